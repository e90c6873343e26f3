//! Functions of the kernel that may be probed, by how their names begin: whoever looks after the node says which.

use crate::observe::Machine;

/// What a process asks of the kernel: files, disks, sockets, system calls. Not what everything runs through, whoever asks for what: memory,
/// the scheduler, interrupts, timers, faults.
pub const ADMITTED: &[&str] = &[
    match Machine::NATIVE {
        Machine::X86_64 => "__x64_sys_",
        Machine::Aarch64 => "__arm64_sys_",
    },
    "blk_",
    "blkdev_",
    "btrfs_",
    "do_futex",
    "do_fsync",
    "ext4_",
    "f2fs_",
    "fuse_",
    "futex_",
    "generic_file_",
    "inet_",
    "inet6_",
    "iomap_",
    "jbd2_",
    "nfs_",
    "ovl_",
    "sock_",
    "submit_bio",
    "tcp_",
    "udp_",
    "vfs_",
    "xfs_",
];

/// Whether a function is among these. None: all are.
pub(super) fn is_admitted(function: &str, beginnings: Option<&[String]>) -> bool {
    beginnings.is_none_or(|all| all.iter().any(|begin| function.starts_with(begin)))
}
