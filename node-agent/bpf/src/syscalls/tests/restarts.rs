//! Calls that the kernel breaks off for a signal: made again, they are one call, and no failure.

use std::{ptr, thread, time::Duration};

use super::*;

const CLOCK_NANOSLEEP: u32 = libc::SYS_clock_nanosleep as u32;
const RESTART_SYSCALL: u32 = libc::SYS_restart_syscall as u32;

extern "C" fn handle(_: libc::c_int) {}

/// Has SIGALRM come every millisecond, or never again.
fn alarms(microseconds: i64, flags: libc::c_int) {
    // SAFETY: the handler does nothing; all that is not set is zero.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as libc::sighandler_t;
        action.sa_flags = flags;
        libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut());
        let time = libc::timeval {
            tv_sec: 0,
            tv_usec: microseconds,
        };
        let timer = libc::itimerval {
            it_interval: time,
            it_value: time,
        };
        libc::syscall(
            libc::SYS_setitimer,
            libc::ITIMER_REAL,
            &raw const timer,
            ptr::null_mut::<libc::itimerval>(),
        );
    }
}

/// Sleeps as often as it is woken before its time.
fn sleep(milliseconds: i64) {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: milliseconds * 1_000_000,
    };
    // SAFETY: a time to read and to write.
    unsafe {
        let monotonic = libc::CLOCK_MONOTONIC;
        let time = &raw mut time;
        while libc::syscall(libc::SYS_clock_nanosleep, monotonic, 0, time, time) != 0 {}
    }
}

/// A byte of a pipe each 5 ms, read one by one: a hundred of them. How many reads did not give one.
fn read_beside_alarms(flags: libc::c_int) -> u64 {
    let mut failed = 0;
    // SAFETY: buffers as long as is said; the child makes system calls only.
    unsafe {
        let mut ends = [0; 2];
        libc::pipe(ends.as_mut_ptr());
        let writer = libc::fork();
        if writer == 0 {
            for _ in 0..100 {
                sleep(5);
                libc::write(ends[1], c"x".as_ptr().cast(), 1);
            }
            libc::_exit(0);
        }
        alarms(1000, flags);
        let mut byte = 0u8;
        let mut got = 0;
        while got < 100 {
            match libc::syscall(libc::SYS_read, ends[0], &raw mut byte, 1) {
                1 => got += 1,
                _ => failed += 1,
            }
        }
        alarms(0, flags);
        libc::waitpid(writer, ptr::null_mut(), 0);
        libc::close(ends[0]);
        libc::close(ends[1]);
    }
    failed
}

/// What was told of a child's reads, and what the child says.
fn reads_of(what: fn() -> u64) -> (SyscallReading, u64) {
    let (mut tracer, mut child, target) = traced(&SIZES, what, &only(&[READ]));
    let said = child.run();
    let reading = &tracer.read(&[target]).unwrap()[0];
    child.end();
    (call(reading, READ), said)
}

#[test]
fn a_read_that_alarms_break_off_again_and_again_is_one_that_did_not_fail() {
    let (reads, failed) = reads_of(|| read_beside_alarms(libc::SA_RESTART));
    assert_eq!(failed, 0);
    assert_eq!((reads.histogram.count(), reads.failed), (100, 0));
    assert_eq!(reads.errors, []);
    assert!(reads.restarts > 100, "{}", reads.restarts);
    // From when it first began: none is as short as what lies between two alarms.
    let median = reads.histogram.quantile(0.5).unwrap();
    assert!(median > 3_000_000, "{median}");
}

#[test]
fn a_read_that_a_handler_ends_failed_as_the_program_sees_it() {
    let (reads, failed) = reads_of(|| read_beside_alarms(0));
    assert!(failed > 100, "{failed}");
    assert_eq!(reads.histogram.count(), 100 + failed);
    assert_eq!(reads.errors, [(libc::EINTR as u32, failed)]);
    assert_eq!((reads.failed, reads.restarts), (failed, 0));
}

#[test]
fn a_sleep_that_is_stopped_and_goes_on_is_one() {
    let (mut tracer, mut child, target) = traced(
        &SIZES,
        || {
            sleep(300);
            0
        },
        &only(&[CLOCK_NANOSLEEP]),
    );
    let process = child.id() as libc::pid_t;
    let signals = thread::spawn(move || {
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            thread::sleep(Duration::from_millis(80));
            // SAFETY: a child of this process.
            unsafe { libc::kill(process, signal) };
        }
    });
    child.run();
    signals.join().unwrap();
    let reading = &tracer.read(&[target]).unwrap()[0];
    assert_eq!(counts(reading), [(Some(CLOCK_NANOSLEEP), 1)]);
    let slept = call(reading, CLOCK_NANOSLEEP);
    assert_eq!((slept.restarts, slept.failed), (1, 0));
    assert!(slept.sum_ns >= 300_000_000, "{}", slept.sum_ns);
    assert_eq!(call(reading, RESTART_SYSCALL), SyscallReading::default());
    child.end();
}

#[test]
fn a_sleep_that_a_handler_ends_failed() {
    fn sleep_beside_an_alarm() -> u64 {
        alarms(20_000, libc::SA_RESTART);
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        // SAFETY: a time to read.
        unsafe {
            let none = ptr::null_mut::<libc::timespec>();
            libc::syscall(
                libc::SYS_clock_nanosleep,
                libc::CLOCK_MONOTONIC,
                0,
                &raw const time,
                none,
            );
        }
        alarms(0, libc::SA_RESTART);
        0
    }
    let (mut tracer, mut child, target) =
        traced(&SIZES, sleep_beside_an_alarm, &only(&[CLOCK_NANOSLEEP]));
    child.run();
    let reading = &tracer.read(&[target]).unwrap()[0];
    let slept = call(reading, CLOCK_NANOSLEEP);
    assert_eq!(slept.errors, [(libc::EINTR as u32, 1)]);
    assert_eq!((slept.histogram.count(), slept.restarts), (1, 0));
    child.end();
}
