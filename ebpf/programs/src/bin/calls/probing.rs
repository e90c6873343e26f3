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

/// What it is by now.
///
/// A thread of which the kernel keeps nothing yet has no sum: that is 0. It cannot always make room for one at once (not where another thread
/// was preempted on this CPU as it was served), and what would be added meanwhile is not: a call then holds what calls within it cost, of
/// a thread's first milliseconds. Nobody is left untimed for that.
#[inline(always)]
pub fn so_far() -> u64 {
    // SAFETY: a map's value, which only this thread has to do with.
    sum().map_or(0, |sum| unsafe { *sum })
}

/// What it was as a call of this operation ended, which adds its own.
#[inline(always)]
pub fn after(operation: u32, control: &Control) -> u64 {
    let Some(sum) = sum() else {
        return 0;
    };
    // SAFETY: as above.
    unsafe {
        let before = *sum;
        *sum = before + control.inner_ns(operation);
        before
    }
}

/// A call of this operation was trapped at its entry only.
#[inline(always)]
pub fn add_entry(operation: u32, control: &Control) {
    if let Some(sum) = sum() {
        // SAFETY: as above.
        unsafe { *sum += control.inner_ns(operation) / 2 };
    }
}

#[inline(always)]
fn sum() -> Option<*mut u64> {
    if NESTS.at(0) != 1 {
        return None;
    }
    PROBING.get_or_create(Thread::current())
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
