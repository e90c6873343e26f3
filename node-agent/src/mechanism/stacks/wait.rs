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

/// What a thread that does not run waits for, in brackets: the kind of thing, and where that is a file, which.
pub(super) fn waits_for(files: Option<&OpenFiles>, head: &Head) -> String {
    if head.task_state == 0 {
        return FOR_A_CPU.to_string();
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
