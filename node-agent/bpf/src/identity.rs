//! A process as the programs know it: by its number and by when it began, so that a later one of that number is not taken for it, however
//! late it is noticed that it has ended.

use std::{fs, io, sync::OnceLock};

use ckb_probe_common::{Field, TICK_NS};

use super::{
    AttachError,
    btf::{self, Types},
};

/// A process, told apart from a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Its number in the host's pid namespace.
    pub number: u32,
    /// Nanoseconds since boot until the clock tick in which it began, by the clock of the host.
    pub(super) since_ns: u64,
}

impl Identity {
    /// Of a number, and of when it began as /proc/PID/stat tells it: clock ticks since boot.
    pub fn new(number: u32, start_ticks: u64) -> Self {
        let since_ns = start_ticks.saturating_mul(TICK_NS);
        Self {
            number,
            since_ns: since_ns.wrapping_sub(ahead_ns()),
        }
    }

    /// Of nobody: no process has this number, but what idles.
    pub fn nobody() -> Self {
        Self::new(0, 0)
    }

    /// Of whoever has the number now.
    pub fn of_now(number: u32) -> Result<Self, AttachError> {
        let process = procfs::process::Process::new(number.cast_signed());
        let stat = process.and_then(|process| process.stat());
        let stat = stat.map_err(|source| AttachError::NoProcess {
            process: number,
            source: io::Error::other(source),
        })?;
        Ok(Self::new(number, stat.starttime))
    }

    /// What the programs read to know it, as their static `IDENTITY` has it.
    pub(super) fn fields(types: &Types) -> Result<Vec<u8>, AttachError> {
        const FIELDS: [(&str, &str); 2] = [
            ("task_struct", "group_leader"),
            ("task_struct", "start_boottime"),
        ];
        let known = |(structure, field): (&'static str, &'static str)| {
            let found: Option<Field> = types.field(structure, field);
            found
                .filter(|found| found.size as usize == size_of::<u64>())
                .ok_or(AttachError::NoField { structure, field })
        };
        let fields = FIELDS.map(known).into_iter();
        Ok(btf::as_bytes(&fields.collect::<Result<Vec<_>, _>>()?))
    }
}

/// By how much the clock since boot is ahead of the host's for this process, which /proc goes by: in a time namespace of its own.
fn ahead_ns() -> u64 {
    static AHEAD: OnceLock<u64> = OnceLock::new();
    *AHEAD.get_or_init(|| {
        let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        offset_in(&offsets).unwrap_or_default().cast_unsigned()
    })
}

/// `boottime 10 500000000`, as time_namespaces(7) has it.
fn offset_in(offsets: &str) -> Option<i64> {
    let mut lines = offsets.lines().map(str::split_whitespace);
    let mut words =
        lines.find_map(|mut words| (words.next() == Some("boottime")).then_some(words))?;
    let mut number = || words.next()?.parse::<i64>().ok();
    let (seconds, nanos) = (number()?, number()?);
    Some(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(test)]
mod tests;
