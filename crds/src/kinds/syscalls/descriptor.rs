//! What `syscalls` gives: each system call, by duration and by error.

use crate::{Value, descriptor::{Column, Descriptor, Measure, Merge, Phrase, Unit, calls, metrics}};
pub use crate::descriptor::calls::{DURATION, LONGEST, SLOW};

/// Those that failed.
pub const ERRORS: Measure = Measure::new("errors", Unit::Count, Merge::Sum);
/// How often the kernel broke a call off, for a signal or a stop, and made it again. Each is one call, which did not fail.
pub const RESTARTS: Measure = Measure::new("restarts", Unit::Count, Merge::Sum);

/// The calls that wait for something to happen: a thread with nothing to do is in one of these all of the time, and who adds
/// them to the rest learns nothing.
pub const WAITS: [&str; 24] = [
    "accept",
    "accept4",
    "clock_nanosleep",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "futex",
    "futex_wait",
    "futex_waitv",
    "io_getevents",
    "io_pgetevents",
    "io_uring_enter",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pselect6",
    "restart_syscall",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "select",
    "semtimedop",
    "wait4",
    "waitid",
];

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "syscall",
    part: Some("errno"),
    measures: &[DURATION, LONGEST, ERRORS, SLOW, RESTARTS],
    columns: &[
        calls::PER_SECOND.of_rows(), calls::P50.of_rows(), calls::P90.of_rows(), calls::P99.of_rows(), calls::MAX.of_rows(),
        Column::new("errorsPerSecond", "ERRORS/S", Value::Rate("errors")),
        Column::new("errors", "ERRORS", Value::Total("errors")),
        calls::SLOW_ONES.of_rows(),
        Column::new("restarts", "RESTARTS", Value::Total("restarts")).of_rows(),
        calls::COUNT.of_rows(),
    ],
    headline: &[
        calls::SAY_RATE, calls::SAY_P99,
        Phrase::new("", Value::Percent("errors", "duration"), "% failed").unless_zero(),
        calls::SAY_SLOW,
    ],
    metrics: metrics! {
        /// Duration of the system calls since the agent first attached to the target; scaled up where they were sampled.
        histogram("ckb_probe_syscall_duration_seconds", "duration"),
        /// System calls that failed, by the error's name; scaled up where they were sampled.
        counter("ckb_probe_syscall_errors_total", "errors").by_part(),
        /// System calls at or above the probe's slowThreshold; scaled up where they were sampled.
        counter("ckb_probe_slow_syscalls_total", "slow"),
        /// Times that the kernel broke a system call off, for a signal or a stop, and made it again; scaled up where they were sampled.
        counter("ckb_probe_syscall_restarts_total", "restarts"),
    },
    alarms: &[],
    apart: waits,
    ..Descriptor::EMPTY
};

fn waits(row: &str) -> bool {
    WAITS.contains(&row)
}
