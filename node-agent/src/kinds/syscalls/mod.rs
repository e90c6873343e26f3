//! `syscalls`: each system call of the process, by its number.

mod arguments;

pub use arguments::Arguments;
use ckb_probe_crds::{
    kinds::syscalls::{DURATION, ERRORS, LONGEST, RESTARTS, SLOW, SyscallsProbe, WAITS},
    report::OTHER,
};
use nix::errno::Errno;

use super::Instrument;
use crate::{
    mechanism::{
        CollectorConfig,
        RowId,
        syscalls::{self, Measures},
    },
    observe::syscall_name,
};

impl Instrument for SyscallsProbe {
    fn config(&self) -> CollectorConfig {
        syscalls::SyscallsConfig {
            names: (!self.names.is_empty()).then(|| self.names.clone()),
            slow_threshold_ns: self.slow_threshold.as_nanos(),
            never_slow: &WAITS,
            measures: Measures {
                duration: DURATION.key(),
                longest: LONGEST.key(),
                errors: ERRORS.key(),
                slow: SLOW.key(),
                restarts: RESTARTS.key(),
            },
        }
        .into()
    }

    fn row(&self, raw: &RowId) -> String {
        let number = u32::try_from(raw.number).ok();
        let name = number.and_then(syscall_name);
        name.unwrap_or(OTHER).to_string()
    }

    fn part(&self, raw: &RowId) -> String {
        error_name(raw.number)
    }
}

/// `ENOENT` for 2.
fn error_name(number: u64) -> String {
    let errno = i32::try_from(number).map_or(Errno::UnknownErrno, Errno::from_raw);
    match errno {
        Errno::UnknownErrno => format!("errno-{number}"),
        known => format!("{known:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::syscall_number;

    fn numbered(number: u64) -> RowId {
        RowId {
            place: number,
            number,
            ..RowId::default()
        }
    }

    #[test]
    fn what_waits_is_a_system_call_each() {
        let unknown = WAITS.iter().filter(|name| syscall_number(name).is_none());
        assert_eq!(unknown.count(), 0);
    }

    #[test]
    fn rows_have_the_names_of_the_manual_and_parts_those_of_the_errors() {
        let kind = SyscallsProbe::default();
        assert_eq!(kind.row(&numbered(257)), "openat");
        assert_eq!(kind.row(&numbered(511)), "other");
        assert_eq!(kind.row(&numbered(u64::MAX)), "other");
        assert_eq!(kind.part(&numbered(2)), "ENOENT");
        assert_eq!(kind.part(&numbered(11)), "EAGAIN");
        // None that a program is ever told: those by which calls are made again are no errors.
        assert_eq!(kind.part(&numbered(3000)), "errno-3000");
    }
}
