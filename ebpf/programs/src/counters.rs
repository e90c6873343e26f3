//! Counting in maps' values.

// The stable atomics hide the read-modify-write operations on this target; LLVM has them since BPF ISA v3.
use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};

use ckb_probe_common::{TIME_BITS, maximum};

/// Adds to a counter, atomically: several CPUs write to it, or it is this CPU's own and another run of a program can come in between,
/// as where a uprobe's is preempted by that of another thread. Counts are exact.
///
/// # Safety
/// `counter` points into a map's value.
#[inline(always)]
pub unsafe fn add(counter: *mut u64, by: u64) {
    // SAFETY: aligned and alive, by the caller's word.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, by) };
}

/// Takes the next of a row of numbers.
///
/// # Safety
/// `counter` points to an integer in a map's value.
#[inline(always)]
pub unsafe fn next<T: Copy + From<u8>>(counter: *mut T) -> T {
    // Relaxed, LLVM 22 makes it an addition that returns nothing, and takes the 1 for what was there before.
    // SAFETY: aligned and alive, by the caller's word.
    unsafe { atomic_xadd::<T, T, { AtomicOrdering::SeqCst }>(counter, T::from(1)) }
}

/// Puts a value in the place of another; if there was a third one, that.
///
/// # Safety
/// `place` points to an integer in a map's value.
#[inline(always)]
pub unsafe fn exchange<T: Copy>(place: *mut T, old: T, new: T) -> Result<(), T> {
    // SAFETY: aligned and alive, by the caller's word.
    let (found, exchanged) = unsafe {
        atomic_cxchg::<T, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(place, old, new)
    };
    if exchanged { Ok(()) } else { Err(found) }
}

/// Raises a maximum, and replaces one of an earlier epoch. Each failed exchange means that another run of a program raised it, on another
/// CPU or in between on this one.
///
/// # Safety
/// `held` points into a map's value.
#[inline(always)]
pub unsafe fn raise(held: *mut u64, epoch: u32, duration: u64) {
    let raised = maximum(epoch, duration);
    for _ in 0..4 {
        // SAFETY: aligned and alive, by the caller's word.
        let current = unsafe { held.read_volatile() };
        if current >> TIME_BITS == raised >> TIME_BITS && current >= raised {
            return;
        }
        // SAFETY: as above.
        if unsafe { exchange(held, current, raised) }.is_ok() {
            return;
        }
    }
}

/// Raises a maximum that this CPU alone writes to, and replaces one of an earlier epoch.
///
/// # Safety
/// `held` points into a map's value, and no other run of a program can interrupt this one.
#[inline(always)]
pub unsafe fn raise_alone(held: *mut u64, epoch: u32, duration: u64) {
    let raised = maximum(epoch, duration);
    // SAFETY: aligned and alive, by the caller's word.
    unsafe {
        if *held >> TIME_BITS != raised >> TIME_BITS || *held < raised {
            *held = raised;
        }
    }
}
