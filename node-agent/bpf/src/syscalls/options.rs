//! What is asked of a tracer of system calls, and how its programs are told.

use std::collections::BTreeSet;

use ckb_probe_common::syscalls::{NUMBERS, Order};

use ckb_probe_symbols::syscall_number;

/// System calls with a path, by which argument it is, counting from 1.
const PATHS: [(u8, &[&str]); 2] = [
    (
        1,
        &[
            "open",
            "stat",
            "lstat",
            "access",
            "truncate",
            "chdir",
            "rename",
            "mkdir",
            "rmdir",
            "creat",
            "link",
            "unlink",
            "symlink",
            "readlink",
            "chmod",
            "chown",
            "lchown",
            "utime",
            "mknod",
            "statfs",
            "chroot",
            "mount",
            "umount2",
            "execve",
            "utimes",
            "symlinkat",
        ],
    ),
    (
        2,
        &[
            "openat",
            "mkdirat",
            "mknodat",
            "fchownat",
            "futimesat",
            "newfstatat",
            "unlinkat",
            "renameat",
            "linkat",
            "readlinkat",
            "fchmodat",
            "faccessat",
            "utimensat",
            "renameat2",
            "execveat",
            "statx",
            "openat2",
            "faccessat2",
            "fchmodat2",
            "inotify_add_watch",
        ],
    ),
];

/// How the kernel serves probes of functions: calls that the process never asked for, and nobody wants to read of.
pub const OF_PROBES: [&str; 2] = ["uretprobe", "uprobe"];

/// How much a tracer can hold, for all of its targets.
#[derive(Clone, Copy, Debug)]
pub struct SyscallSizes {
    /// System calls of targets that are told apart, besides one row of each target for all that are not: 5 KiB on each CPU.
    pub rows: u32,
    /// Numbers of errors that are told apart, for each of those.
    pub errors: u32,
    /// Size of the ring buffer for slow calls: a power of two, and a multiple of the page size.
    pub ring_bytes: u32,
}

/// What is asked of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyscallOptions {
    /// The numbers that are wanted; none: all, also those that are not known here, but for those [`OF_PROBES`].
    pub wanted: Option<BTreeSet<u32>>,
    /// Calls that take at least so long are slow.
    pub slow_threshold_ns: u64,
    /// So many system calls are told apart; what comes then is counted as others.
    pub most_rows: u32,
    /// So many errors are told apart by their numbers, of all of these.
    pub most_errors: u32,
    /// Whose share of the ring buffer its slow calls take: who has the same number has one together.
    pub payer: u32,
}

impl Default for SyscallOptions {
    fn default() -> Self {
        Self {
            wanted: None,
            slow_threshold_ns: u64::MAX,
            most_rows: 96,
            most_errors: u32::MAX,
            payer: 0,
        }
    }
}

impl SyscallOptions {
    pub(super) fn order(&self, since_ns: u64, other_row: u32) -> Order {
        let mut order = Order {
            gate: 0,
            epoch: 0,
            other_row,
            most_rows: self.most_rows,
            other_wanted: u32::from(self.wanted.is_none()),
            since_ns,
            slow_threshold_ns: self.slow_threshold_ns,
            wanted: [0; NUMBERS / 64],
            payer: self.payer,
            most_errors: self.most_errors,
        };
        match &self.wanted {
            None => {
                order.wanted = [u64::MAX; NUMBERS / 64];
                for number in OF_PROBES.iter().filter_map(|name| syscall_number(name)) {
                    if let Some(word) = order.wanted.get_mut((number / 64) as usize) {
                        *word &= !(1 << (number % 64));
                    }
                }
            }
            Some(wanted) => {
                for number in wanted {
                    if let Some(word) = order.wanted.get_mut((number / 64) as usize) {
                        *word |= 1 << (number % 64);
                    }
                }
            }
        }
        order
    }
}

/// By number: which argument is a path, as the programs are told.
pub(super) fn paths() -> [u8; NUMBERS] {
    let mut paths = [0; NUMBERS];
    for (argument, names) in PATHS {
        for number in names.iter().filter_map(|name| syscall_number(name)) {
            if let Some(path) = paths.get_mut(number as usize) {
                *path = argument;
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_wanted_but_those_of_probes() {
        let order = SyscallOptions::default().order(0, 0);
        let unwanted = (0..NUMBERS as u32).filter(|number| {
            let word = order.wanted[(number / 64) as usize];
            word >> (number % 64) & 1 == 0
        });
        assert_eq!(unwanted.collect::<Vec<_>>(), [335, 336]);
        assert_eq!(order.other_wanted, 1);
    }
}
