//! How a slow system call is told, and what file it was about.

use k8s_openapi::jiff::Timestamp;

use super::{
    super::{Detail, Event, RowId},
    SystemCalls,
};
use crate::{
    kernel::syscalls::{MAX_ERROR, SlowSyscall},
    observe::{self, syscall_name},
    text,
};

/// System calls whose first argument is a file descriptor: what that is of says more than its number. Not `close`: at its end,
/// the number may already be another's.
const ON_FILES: [&str; 39] = [
    "accept",
    "accept4",
    "bind",
    "connect",
    "epoll_pwait",
    "epoll_wait",
    "fallocate",
    "fcntl",
    "fdatasync",
    "flock",
    "fstat",
    "fsync",
    "ftruncate",
    "getdents64",
    "getsockopt",
    "ioctl",
    "listen",
    "lseek",
    "pread64",
    "preadv",
    "preadv2",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    "sync_file_range",
    "syncfs",
    "write",
    "writev",
];

impl SystemCalls {
    /// None for one that is never slow.
    pub(super) fn event(&self, call: &SlowSyscall, booted: Timestamp) -> Option<Event> {
        if self.is_never_slow(Some(call.number)) {
            return None;
        }
        let path = call.path.split(|byte| *byte == 0).next();
        let path = path.unwrap_or_default();
        let number = u64::from(call.number);
        let mut details = vec![("duration", Detail::Nanoseconds(call.duration_ns))];
        let name = text::of(path);
        if call.inode == 0 {
            if !name.is_empty() {
                details.push(("path", Detail::Text(name)));
            }
        } else if syscall_name(call.number).is_some_and(|name| ON_FILES.contains(&name)) {
            let descriptor = call.arguments[0] as u32;
            let file = observe::open_file(self.process.pid, descriptor, call.inode, path);
            if let Some(file) = file.or((!name.is_empty()).then_some(name)) {
                details.push(("file", Detail::Text(file)));
            }
        }
        let arguments = call
            .arguments
            .iter()
            .map(|argument| format!("{argument:#x}"));
        details.push(("arguments", Detail::List(arguments.collect())));
        details.push(("result", Detail::Number(call.result)));
        Some(Event {
            time: observe::since_boot(booted, call.time_ns),
            group: self.handle.group(),
            row: Some(RowId {
                place: number,
                number,
                text: String::new(),
            }),
            part: error_of(call).map(|error| RowId {
                place: error,
                number: error,
                text: String::new(),
            }),
            thread: call.thread,
            thread_name: text::of_padded(&call.thread_name),
            weight: call.duration_ns,
            details,
        })
    }
}

/// How it failed, if it did.
fn error_of(call: &SlowSyscall) -> Option<u64> {
    let error = call.result.unsigned_abs();
    (call.result < 0 && error <= MAX_ERROR as u64).then_some(error)
}
