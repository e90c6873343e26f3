//! What a thread waits for, by the system call that it is in.

use std::path::PathBuf;

use crate::{
    kernel::stacks::Head,
    observe::{OpenFiles, syscall_name},
    text,
};

/// What a thread waits for that could run.
pub(super) const FOR_A_CPU: &str = "[a CPU]";

/// What one waits for that is in no call of the kernel's.
pub(super) const FOR_A_PAGE: &str = "[a page]";

/// What one waits for that was stopped, is traced, or is frozen: nothing of its own, wherever it was.
pub(super) const STOPPED: &str = "[SIGCONT]";
pub(super) const TRACED: &str = "[its tracer]";
pub(super) const FROZEN: &str = "[the freezer]";

/// Bits of the kernel's word for a thread's state.
const SLEEPS: u32 = 1;
const IS_STOPPED: u32 = 4;
const IS_TRACED: u32 = 8;
const MAY_BE_FROZEN: u32 = 0x2000;
const IS_FROZEN: u32 = 0x8000;

/// What a thread waits for by its state alone, whatever it was about to do.
fn by_state(state: u32, is_in_call: bool) -> Option<&'static str> {
    match state {
        0 => Some(FOR_A_CPU),
        _ if state & IS_STOPPED != 0 => Some(STOPPED),
        _ if state & IS_TRACED != 0 => Some(TRACED),
        _ if state & IS_FROZEN != 0 => Some(FROZEN),
        // A cgroup freezes what is on its way to user space, in a sleep that looks like any other: but whoever waits for a page sleeps
        // in no such way.
        _ if state & SLEEPS != 0 && state & MAY_BE_FROZEN != 0 && !is_in_call => Some(FROZEN),
        _ => None,
    }
}

/// What a thread that does not run waits for, in brackets: the kind of thing, and where that is a file, which.
pub(super) fn waits_for(files: Option<&OpenFiles>, head: &Head) -> String {
    if let Some(known) = by_state(head.task_state, head.call >= 0) {
        return known.to_string();
    }
    let number = u32::try_from(head.call).ok();
    let Some(call) = number.and_then(syscall_name) else {
        return FOR_A_PAGE.to_string();
    };
    of_call(call, || files?.path(head.argument))
}

/// By the call's name; `file` tells what its first argument is a descriptor of.
fn of_call(call: &str, file: impl Fn() -> Option<PathBuf>) -> String {
    let what = match call {
        "futex" | "futex_wait" | "futex_waitv" => "futex",
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => "epoll",
        "poll" | "ppoll" | "select" | "pselect6" => "poll",
        "nanosleep" | "clock_nanosleep" => "sleep",
        "wait4" | "waitid" => "child",
        "fsync" | "fdatasync" | "sync_file_range" | "syncfs" | "msync" => {
            return with_file("fsync", file());
        }
        "read" | "pread64" | "readv" | "preadv" | "preadv2" | "getdents64" => {
            return with_file("read", file());
        }
        "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "ftruncate" | "fallocate" => {
            return with_file("write", file());
        }
        "accept" | "accept4" | "connect" | "recvfrom" | "recvmsg" | "recvmmsg" | "sendto"
        | "sendmsg" | "sendmmsg" => "socket",
        other => other,
    };
    format!("[{what}]")
}

fn with_file(what: &str, file: Option<PathBuf>) -> String {
    let Some(file) = file else {
        return format!("[{what}]");
    };
    // pipe:[1234], socket:[1234], anon_inode:[eventfd]
    let path = text::of_path(&file);
    match path.split_once(":[") {
        Some(("anon_inode", kind)) => format!("[{what} {}]", kind.trim_end_matches(']')),
        Some((kind @ ("pipe" | "socket"), _)) => format!("[{what} {kind}]"),
        _ => format!("[{what} {path}]"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use std::fs::File;

    use super::*;
    use crate::observe::ProcessId;

    #[test]
    fn open_files_are_what_they_are_now() {
        let own = ProcessId {
            pid: std::process::id(),
            start_ticks: 0,
        };
        let files = OpenFiles::of(own).unwrap();
        // Opened after that.
        for path in [PathBuf::from("/dev/null"), std::env::current_exe().unwrap()] {
            let file = File::open(&path).unwrap();
            let descriptor = u64::try_from(file.as_raw_fd()).unwrap();
            assert_eq!(files.path(descriptor), Some(path));
        }
        assert_eq!(files.path(u64::MAX), None);
    }

    #[test]
    fn who_is_stopped_traced_or_frozen_waits_for_that_and_for_nothing_of_its_own() {
        for (state, outside, within) in [
            (0, Some(FOR_A_CPU), Some(FOR_A_CPU)),
            (1, None, None),
            (2, None, None),
            (4, Some(STOPPED), Some(STOPPED)),
            (0x104, Some(STOPPED), Some(STOPPED)),
            (0x108, Some(TRACED), Some(TRACED)),
            // In its place, since Linux 6.1.
            (0x8000, Some(FROZEN), Some(FROZEN)),
            // By its cgroup; in a call that is how anybody sleeps.
            (0x2001, Some(FROZEN), None),
            // For a page, which nobody may interrupt, or only who kills.
            (0x102, None, None),
        ] {
            assert_eq!(by_state(state, false), outside, "{state:#x}");
            assert_eq!(by_state(state, true), within, "{state:#x}");
        }
    }

    #[test]
    fn a_wait_is_told_by_its_call_and_its_file() {
        let file = |path: &str| {
            let path = PathBuf::from(path);
            move || Some(path.clone())
        };
        assert_eq!(of_call("futex", || None), "[futex]");
        assert_eq!(of_call("epoll_pwait2", || None), "[epoll]");
        assert_eq!(of_call("clock_nanosleep", || None), "[sleep]");
        assert_eq!(of_call("read", file("pipe:[4711]")), "[read pipe]");
        assert_eq!(
            of_call("read", file("anon_inode:[eventfd]")),
            "[read eventfd]"
        );
        assert_eq!(of_call("fdatasync", file("/db/1.log")), "[fsync /db/1.log]");
        assert_eq!(of_call("write", || None), "[write]");
        assert_eq!(of_call("io_uring_enter", || None), "[io_uring_enter]");
    }
}
