//! Which call of a span has its stack copied: the longest, as it returns. Of one within another that took hardly longer it is the
//! inner one, whose stack says more; and where no call was long, that of the end.

use aya_ebpf::{EbpfContext, bindings::pt_regs};
use ckb_probe_common::spans::{SpanControl, SpanState};

use crate::caller;

/// A call that has returned.
///
/// # Safety
/// The state is a map's value.
#[inline(always)]
pub unsafe fn call(
    context: &impl EbpfContext,
    state: *mut SpanState,
    control: &SpanControl,
    slot: usize,
    lasted_ns: u64,
) {
    // SAFETY: by the caller's word.
    unsafe {
        let longest_ns = (*state).span.stack_ns;
        if caller::are_copied()
            && (*state).open != 0
            && lasted_ns >= control.stack_ns
            && lasted_ns > longest_ns + longest_ns / 4
        {
            copy(context, state, slot, lasted_ns);
        }
    }
}

/// The span is about to end, now, by a call of this slot.
///
/// # Safety
/// As above.
#[inline(always)]
pub unsafe fn end(
    context: &impl EbpfContext,
    state: *mut SpanState,
    control: &SpanControl,
    slot: usize,
    now: u64,
) {
    // SAFETY: by the caller's word.
    unsafe {
        if caller::are_copied()
            && (*state).open != 0
            && (*state).span.stack == 0
            && now.saturating_sub((*state).began_ns) >= control.threshold_ns
        {
            copy(context, state, slot, 0);
        }
    }
}

#[inline(always)]
unsafe fn copy(context: &impl EbpfContext, state: *mut SpanState, slot: usize, lasted_ns: u64) {
    let number = caller::copy(context.as_ptr() as *const pt_regs, slot as u32);
    // SAFETY: by the caller's word.
    unsafe {
        // What was copied before says more than nothing.
        if number > 0 {
            (*state).span.stack = number;
            (*state).span.stack_slot = slot as u32;
            (*state).span.stack_ns = lasted_ns;
        }
    }
}
