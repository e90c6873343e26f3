//! What probing itself has taken of a thread's time, so that no call is charged with that of the calls which it makes.
//!
//! Nothing can measure what a call's probes take: most of it is the kernel's, before and after the programs. The loader says what it
//! is by calibration, and each thread has the sum: what of it was added between a call's beginning and its end is taken off.
//! It costs some nanoseconds at both ends of a call, and is left out where no probed function is known to call another.

use aya_ebpf::macros::map;
use ckb_probe_common::Control;
use ckb_probe_programs::{
    constants::Constants,
    storage::{TaskStorage, Thread},
};

/// 1 where calls of one operation are likely to be made in calls of another.
#[unsafe(no_mangle)]
static NESTS: Constants<1> = Constants::unset();

/// By thread, in nanoseconds.
#[map]
static PROBING: TaskStorage<u64> = TaskStorage::new();

/// What it is by now; None where that is not known.
#[inline(always)]
pub fn so_far() -> Option<u64> {
    if NESTS.at(0) != 1 {
        return Some(0);
    }
    let sum = PROBING.get_or_create(Thread::current())?;
    // SAFETY: a map's value, which only this thread has to do with.
    Some(unsafe { *sum })
}

/// What it was as a call of this operation ended, which adds its own; None where that is not known.
#[inline(always)]
pub fn after(operation: u32, control: &Control) -> Option<u64> {
    if NESTS.at(0) != 1 {
        return Some(0);
    }
    let sum = PROBING.get_or_create(Thread::current())?;
    // SAFETY: as above.
    unsafe {
        let before = *sum;
        *sum = before + control.inner_ns(operation);
        Some(before)
    }
}

/// A call of this operation was trapped at its entry only.
#[inline(always)]
pub fn add_entry(operation: u32, control: &Control) {
    if NESTS.at(0) == 1
        && let Some(sum) = PROBING.get_or_create(Thread::current())
    {
        // SAFETY: as above.
        unsafe { *sum += control.inner_ns(operation) / 2 };
    }
}

/// A duration of which what probing took has been taken off: what is below zero is an estimate that was too large.
#[inline(always)]
pub fn floored(duration_ns: u64) -> u64 {
    /// Half of what a session can tell: longer than three quarters of a day.
    const LONGEST: u64 = 1 << 46;
    if NESTS.at(0) == 1 && duration_ns >= LONGEST {
        0
    } else {
        duration_ns
    }
}
