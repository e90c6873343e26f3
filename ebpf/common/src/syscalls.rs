//! What the program `syscalls` and its loader share.

use crate::Histogram;
#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// System calls that are told apart, by their number.
pub const NUMBERS: usize = 512;

/// In place of a number: those beyond, and those of 32-bit programs, whose numbers mean other things.
pub const OTHER: u32 = NUMBERS as u32;

/// Processes that are traced at a time.
pub const MAX_TARGETS: usize = 64;

/// A row that says: none yet.
pub const NO_ROW: u32 = u32::MAX;

/// Cells for finding targets: a process has the one of its lower bits.
pub const CELLS: u32 = 4096;

/// Which target a process may be.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The process, [`NOBODY`], or [`SEVERAL`].
    pub process: u32,
    /// The target's place.
    pub place: u32,
}

/// In a cell: no target has these lower bits.
pub const NOBODY: u32 = 0;

/// In a cell: several targets have these lower bits, and a hash map tells them apart.
pub const SEVERAL: u32 = u32::MAX;

/// What user space tells the programs of a target.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// 0: its calls are left alone. Otherwise they are recorded, if they also began under this very number: user space
    /// takes a new one whenever it begins anew.
    pub gate: u64,
    /// Its parity selects the half of [`SyscallRow::maxima`] that is written.
    pub epoch: u32,
    /// The row of what has no row of its own.
    pub other_row: u32,
    /// So many rows of its own it may have.
    pub most_rows: u32,
    /// Whether [`OTHER`] is wanted.
    pub other_wanted: u32,
    /// Since when the process has been: a later one of its number is no target. See [`is_since`](crate::is_since).
    pub since_ns: u64,
    /// Calls that take at least so many nanoseconds are slow.
    pub slow_threshold_ns: u64,
    /// The numbers that are wanted, a bit for each.
    pub wanted: [u64; NUMBERS / 64],
    /// Whose share of the ring buffer its slow calls take: a number below [`MAX_TARGETS`].
    pub payer: u32,
    /// So many errors are told apart by their numbers.
    pub most_errors: u32,
}

/// The row of each number, for a target; written by the programs as calls come.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct Table {
    /// [`NO_ROW`], or the row; [`Order::other_row`] for what came when there were no more.
    pub rows: [u32; NUMBERS],
    /// How many rows have been asked for.
    pub used: u32,
    /// How many errors are told apart.
    pub errors: u32,
}

impl Table {
    /// No rows.
    pub const EMPTY: Self = Self {
        rows: [NO_ROW; NUMBERS],
        used: 0,
        errors: 0,
    };
}

/// What is kept of one system call of one target, on each CPU. How many of its calls ended is the sum of the histogram; what of
/// those that began did not, and is not to be made again, has not ended yet.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct SyscallRow {
    /// Calls that began.
    pub begun: u64,
    /// Of those: calls that the kernel broke off for a signal or a stop, to make them again. Each begins once more.
    pub restarts: u64,
    /// Nanoseconds spent in the calls.
    pub sum_ns: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Calls at or above the slow threshold.
    pub slow: u64,
    /// The longest call of an even and of an odd epoch: see [`maximum`](crate::maximum).
    pub maxima: [u64; 2],
    /// Calls by duration.
    pub histogram: Histogram,
}

/// How many calls of a target met the programs, and what of them could not be recorded, on each CPU.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Taken up, to be recorded at their end.
    pub taken: u64,
    /// Left alone: the gate was closed, or they are not wanted.
    pub left: u64,
    /// Calls whose beginning could not be remembered: in no figure.
    pub calls_lost: u64,
    /// Events of slow calls that found no room in the ring buffer. The calls themselves are counted.
    pub events_lost: u64,
    /// Errors that found the table of error numbers full. They are counted without their number.
    pub error_numbers_lost: u64,
}

/// What is remembered of a call, with its thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Begun {
    /// [`Order::gate`] at that time; 0: nothing began.
    pub gate: u64,
    /// `bpf_ktime_get_ns`.
    pub time_ns: u64,
    /// The call's number, or [`OTHER`].
    pub number: u32,
    /// The row that it counts in.
    pub row: u32,
}

/// What is remembered with a thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InThread {
    /// The call that it is in.
    pub call: Begun,
    /// One that was broken off, until it is made again or known to have failed.
    pub broken: Begun,
    /// Where the thread made that one: the address of its instruction.
    pub instruction: u64,
    /// And its stack pointer. Who makes a call there again makes the same one.
    pub stack: u64,
    /// With what the kernel broke it off: see [`is_broken_off`]. 0 once it is known that it is made again.
    pub result: u64,
}

/// `ERESTARTSYS`: made again, unless a signal's handler runs that was not installed with [`SA_RESTART`].
pub const ERESTARTSYS: u64 = 512;

/// `ERESTARTNOINTR`: made again, whatever happens.
pub const ERESTARTNOINTR: u64 = 513;

/// `ERESTARTNOHAND`: made again, unless a signal's handler runs.
pub const ERESTARTNOHAND: u64 = 514;

/// `ERESTART_RESTARTBLOCK`: the same, by the system call `restart_syscall`.
pub const ERESTART_RESTARTBLOCK: u64 = 516;

/// What a handler is installed with that leaves calls to be made again.
pub const SA_RESTART: u64 = 0x1000_0000;

/// What a program is told of a call that failed for a signal.
pub const EINTR: u64 = 4;

/// Whether that is how a call ends that the kernel has broken off. No program ever sees it: see include/linux/errno.h.
#[inline(always)]
pub const fn is_broken_off(error: u64) -> bool {
    matches!(
        error,
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK
    )
}

/// Whether a call that was broken off so fails where a handler runs that was installed with these flags: see `handle_signal` of
/// the kernel.
#[inline(always)]
pub const fn fails_by_handler(error: u64, flags: u64) -> bool {
    match error {
        ERESTARTSYS => flags & SA_RESTART == 0,
        ERESTARTNOINTR => false,
        _ => true,
    }
}

/// Names the errors of a row by their number.
#[inline(always)]
pub const fn error_key(row: u32, error: u32) -> u32 {
    row << 12 | error & MAX_ERROR
}

/// The row and the error's number.
pub const fn of_error_key(key: u32) -> (u32, u32) {
    (key >> 12, key & MAX_ERROR)
}

/// Results from minus this to minus one are errors.
pub const MAX_ERROR: u32 = 4095;

/// A path is cut off at so many bytes, a NUL included.
pub const PATH_BYTES: usize = 96;

/// One slow system call.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowSyscall {
    /// `CLOCK_MONOTONIC` at its end.
    pub time_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// What it returned: below zero, minus an error's number.
    pub result: i64,
    /// What it was called with, as far as it takes so many.
    pub arguments: [u64; 6],
    /// The process, in the host's pid namespace.
    pub process: u32,
    /// The thread, in the host's pid namespace.
    pub thread: u32,
    /// The target's place: see the loader.
    pub target: u16,
    /// [`Order::payer`].
    pub payer: u16,
    /// Its number, or [`OTHER`].
    pub number: u32,
    /// If its first argument were a descriptor: the inode of what that stood for at the end; else 0.
    pub inode: u64,
    /// The thread's name, NUL-padded.
    pub thread_name: [u8; 16],
    /// NUL-terminated, and empty where there is none or it cannot be read: the path that it was called with or, where an inode
    /// is told, the name of that file without its folders.
    pub path: [u8; PATH_BYTES],
}

layout! {
    Cell: 8, Order: 48 + NUMBERS / 8, Table: 4 * NUMBERS + 8, SyscallRow: 56 + 8 * crate::BUCKETS, Met: 40,
    Begun: 24, InThread: 72, SlowSyscall: 112 + PATH_BYTES, Order.slow_threshold_ns: 32,
    SlowSyscall.thread_name: 96,
}
