//! Counting in maps' values.

// The stable atomics hide the read-modify-write operations on this target; LLVM has them since BPF ISA v3.
use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};

use ckb_probe_common::{TIME_BITS, maximum};

/// Adds to a counter that several CPUs write to, or a program that another run of it can interrupt.
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
/// `counter` points into a map's value.
#[inline(always)]
pub unsafe fn next(counter: *mut u32) -> u32 {
    // SAFETY: aligned and alive, by the caller's word.
    unsafe { atomic_xadd::<u32, u32, { AtomicOrdering::SeqCst }>(counter, 1) }
}

/// Puts a value in the place of another; if there was a third one, that.
///
/// # Safety
/// `place` points into a map's value.
#[inline(always)]
pub unsafe fn exchange(place: *mut u32, old: u32, new: u32) -> Result<(), u32> {
    // SAFETY: aligned and alive, by the caller's word.
    let (found, exchanged) = unsafe {
        atomic_cxchg::<u32, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(place, old, new)
    };
    if exchanged { Ok(()) } else { Err(found) }
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
