//! From the calls of the thread to spans, and from spans to what is counted of them.

use aya_ebpf::{
    macros::map,
    maps::{Array, RingBuf},
};
use ckb_probe_common::{
    BUCKETS, Histogram, bucket,
    spans::{OPERATIONS, Span, SpanControl, SpanRow, SpanState, SpanUsage, end},
};
use ckb_probe_programs::{counters::raise_alone, helpers::now};

use crate::usage;

/// By how spans ended.
#[map]
static ROWS: Array<SpanRow> = Array::with_max_entries(end::COUNT as u32, 0);

/// How long they took, likewise.
#[map]
static HISTOGRAMS: Array<Histogram> = Array::with_max_entries(end::COUNT as u32, 0);

/// Spans, as they are told; the loader sets the size.
#[map]
static SPANS: RingBuf = RingBuf::with_byte_size(4096, 0);

/// Forgets what was under way: its end was not seen.
///
/// # Safety
/// The state is a map's value, and so in all of these.
#[inline(always)]
pub unsafe fn begin_anew(state: *mut SpanState, generation: u32) {
    // SAFETY: by the caller's word.
    unsafe {
        unseen(state);
        (*state).generation = generation;
        (*state).entered = [0; OPERATIONS];
        (*state).handles = [0; 2];
    }
}

#[inline(always)]
unsafe fn unseen(state: *mut SpanState) {
    // SAFETY: by the caller's word.
    unsafe {
        if (*state).open != 0 {
            (*state).open = 0;
            if let Some(row) = ROWS.get_ptr_mut(end::UNSEEN as u32) {
                (*row).count += 1;
            }
        }
    }
}

/// A span begins.
#[inline(always)]
pub unsafe fn begin(state: *mut SpanState) {
    // SAFETY: by the caller's word.
    unsafe {
        unseen(state);
        (*state).puts = 0;
        let span = &raw mut (*state).span;
        (*span).names = 0;
        (*span).taken_back = 0;
        (*span).thread = (*state).thread;
        let operations = (&raw mut (*span).operations).cast::<u64>();
        for at in 0..2 * OPERATIONS {
            operations.add(at).write_volatile(0);
        }
        (*state).used = usage::so_far();
        (*state).began_ns = now();
        (*state).open = 1;
    }
}

/// A call of the thread's has returned.
#[inline(always)]
pub unsafe fn call(state: *mut SpanState, slot: usize, lasted_ns: u64) {
    // SAFETY: by the caller's word.
    unsafe {
        if (*state).open != 0 {
            let calls = &mut (*state).span.operations[slot & (OPERATIONS - 1)];
            calls.calls += 1;
            calls.time_ns += lasted_ns;
        } else if let Some(row) = ROWS.get_ptr_mut(end::BETWEEN as u32) {
            let calls = &mut (*row).operations[slot & (OPERATIONS - 1)];
            calls.calls += 1;
            calls.time_ns += lasted_ns;
        }
    }
}

/// The transaction was committed.
#[inline(always)]
pub unsafe fn commit(state: *mut SpanState, control: &SpanControl, now: u64) {
    // SAFETY: by the caller's word.
    unsafe {
        let span = &raw const (*state).span;
        // What was abandoned is cleared away in a transaction of its own.
        if (*state).puts == 0 && (*span).taken_back == 0 {
            dissolve(state);
            return;
        }
        let end = if (*span).taken_back > 0 {
            end::REPLACED
        } else if (*span).names > 0 {
            end::NAMED
        } else {
            end::NAMELESS
        };
        close(state, control, end, now);
    }
}

/// It is no span after all: its calls are between two.
#[inline(never)]
unsafe fn dissolve(state: *mut SpanState) {
    // SAFETY: by the caller's word.
    unsafe {
        if (*state).open == 0 {
            return;
        }
        (*state).open = 0;
        if let Some(row) = ROWS.get_ptr_mut(end::BETWEEN as u32) {
            add_calls(row, &raw const (*state).span);
        }
    }
}

/// The transaction is gone.
#[inline(always)]
pub unsafe fn drop(state: *mut SpanState, control: &SpanControl) {
    // SAFETY: by the caller's word.
    unsafe { close(state, control, end::ABANDONED, now()) };
}

#[inline(never)]
unsafe fn close(state: *mut SpanState, control: &SpanControl, end: usize, now: u64) {
    // SAFETY: by the caller's word; the index is within bounds, by the comparison that the verifier sees too.
    unsafe {
        if (*state).open == 0 {
            return;
        }
        (*state).open = 0;
        let span = &raw mut (*state).span;
        let used = usage::so_far();
        let before = &raw const (*state).used;
        (*span).time_ns = now;
        (*span).duration_ns = now.saturating_sub((*state).began_ns);
        (*span).end = end as u32;
        (*span).usage = SpanUsage {
            // Of a tick's length the kernel's account and the clock may differ.
            cpu_ns: used
                .cpu_ns
                .saturating_sub((*before).cpu_ns)
                .min((*span).duration_ns),
            queued_ns: used.queued_ns.saturating_sub((*before).queued_ns),
            major_faults: used.major_faults.saturating_sub((*before).major_faults),
            switches: used.switches.saturating_sub((*before).switches),
        };
        let (Some(row), Some(histogram)) = (
            ROWS.get_ptr_mut(end as u32),
            HISTOGRAMS.get_ptr_mut(end as u32),
        ) else {
            return;
        };
        let index = bucket((*span).duration_ns) as usize;
        if index < BUCKETS {
            *(&raw mut (*histogram).buckets).cast::<u64>().add(index) += 1;
        }
        add(row, span, control);
        if (*span).duration_ns >= control.threshold_ns && SPANS.output::<Span>(&*span, 0).is_err() {
            (*row).untold += 1;
        }
    }
}

#[inline(always)]
unsafe fn add(row: *mut SpanRow, span: *const Span, control: &SpanControl) {
    // SAFETY: by the caller's word.
    unsafe {
        (*row).count += 1;
        (*row).sum_ns += (*span).duration_ns;
        let half = (&raw mut (*row).maxima)
            .cast::<u64>()
            .add(control.epoch as usize & 1);
        raise_alone(half, control.epoch, (*span).duration_ns);
        if (*span).names > 0 {
            (*row).name = (*span).name;
        }
        (*row).names += u64::from((*span).names);
        (*row).taken_back += u64::from((*span).taken_back);
        (*row).usage.cpu_ns += (*span).usage.cpu_ns;
        (*row).usage.queued_ns += (*span).usage.queued_ns;
        (*row).usage.major_faults += (*span).usage.major_faults;
        (*row).usage.switches += (*span).usage.switches;
        add_calls(row, span);
    }
}

#[inline(always)]
unsafe fn add_calls(row: *mut SpanRow, span: *const Span) {
    // SAFETY: by the caller's word.
    unsafe {
        for slot in 0..OPERATIONS {
            (*row).operations[slot].calls += (*span).operations[slot].calls;
            (*row).operations[slot].time_ns += (*span).operations[slot].time_ns;
        }
    }
}
