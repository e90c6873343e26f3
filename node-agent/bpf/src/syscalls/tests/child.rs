//! A process whose system calls are known.

use std::{
    io,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

pub(super) const DO: u8 = 1;
const END: u8 = 0;

/// A child of this process that does one thing each time it is told to, and nothing else: its calls are known.
pub(super) struct Child {
    pid: libc::pid_t,
    pub(super) orders: io::PipeWriter,
    answers: io::PipeReader,
}

impl Child {
    /// What it does makes system calls and nothing else: it runs in a process forked from many threads.
    pub(super) fn new(what: fn() -> u64) -> Self {
        let (order, orders) = io::pipe().unwrap();
        let (answers, answer) = io::pipe().unwrap();
        // SAFETY: the child makes system calls only.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let (order, answer) = (order.as_raw_fd(), answer.as_raw_fd());
            let mut byte = 0u8;
            // SAFETY: the descriptors are open, the buffers as long as is said; what is closed is only a copy.
            unsafe {
                close_all_but(order, answer);
                while libc::read(order, (&raw mut byte).cast(), 1) == 1 && byte == DO {
                    let result = what();
                    libc::write(answer, (&raw const result).cast(), 8);
                }
                libc::_exit(0);
            }
        }
        let child = Self {
            pid,
            orders,
            answers,
        };
        child.wait();
        child
    }

    /// Waits until it waits for an order.
    fn wait(&self) {
        let path = format!("/proc/{}/stat", self.pid);
        until(|| {
            let stat = std::fs::read_to_string(&path).unwrap();
            stat.rsplit(')').next().unwrap().starts_with(" S")
        });
    }

    pub(super) fn id(&self) -> u32 {
        self.pid as u32
    }

    /// Has it do its thing, and returns what it says, once it waits again.
    pub(super) fn run(&mut self) -> u64 {
        io::Write::write_all(&mut self.orders, &[DO]).unwrap();
        let mut answer = [0; 8];
        io::Read::read_exact(&mut self.answers, &mut answer).unwrap();
        self.wait();
        u64::from_ne_bytes(answer)
    }

    /// Has it end, once it has done what it was told to.
    pub(super) fn end(self) {
        drop(self);
    }
}

/// It goes with its test, also where that fails: it has the output of tests open, whose reader would wait for it.
impl Drop for Child {
    fn drop(&mut self) {
        // To close the pipe is not enough: what other tests begin has its end too, for a moment. It may have gone on its own.
        let _ = io::Write::write_all(&mut self.orders, &[END]);
        // Nobody waits for ever for one that does not.
        // SAFETY: a child of this process.
        let gone = |options| unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), options) } != 0;
        let begin = Instant::now();
        while !gone(libc::WNOHANG) {
            if begin.elapsed() > Duration::from_secs(5) {
                // SAFETY: as above.
                unsafe { libc::kill(self.pid, libc::SIGKILL) };
                gone(0);
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Closes what is neither standard input, output or errors nor one of these two: links that other tests have would last as long as a
/// process has a copy of them, and go on counting calls.
///
/// # Safety
///
/// Nobody else in this process has any of it.
unsafe fn close_all_but(one: libc::c_int, other: libc::c_int) {
    let (first, second) = (one.min(other), one.max(other));
    for (from, to) in [
        (3, first - 1),
        (first + 1, second - 1),
        (second + 1, libc::c_int::MAX),
    ] {
        // SAFETY: as the caller says. A range of nothing is refused, and that is all.
        unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    }
}

/// Waits for it, a moment.
pub(super) fn until(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(5), "never done");
        std::thread::sleep(Duration::from_millis(1));
    }
}
