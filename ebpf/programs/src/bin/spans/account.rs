//! From the calls of the thread to spans, and from spans to what is counted of them.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::generated::bpf_ringbuf_output,
    macros::map,
    maps::{Array, RingBuf},
};
use ckb_probe_common::{
    BUCKETS, Histogram, bucket,
    spans::{OPERATIONS, PARTS, Span, SpanCalls, SpanControl, SpanParts, SpanRow, SpanState, end},
};
use ckb_probe_programs::{counters::raise_alone, helpers::now};

use crate::usage;

/// By how spans ended.
#[map]
static ROWS: Array<SpanRow> = Array::with_max_entries(end::COUNT as u32, 0);

/// Their calls, likewise.
#[map]
static CALLS: Array<SpanParts> = Array::with_max_entries(end::COUNT as u32, 0);

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
        clear(&raw mut (*state).entered);
    }
}

/// Fills whole words with zeros. With volatile writes, or the compiler makes a call of it that goes byte by byte: Linux 6.1 looked at a
/// million instructions of that, and would not have the program.
#[inline(always)]
unsafe fn clear<T>(place: *mut T) {
    let words = place.cast::<u64>();
    for at in 0..size_of::<T>() / 8 {
        // SAFETY: by the caller's word.
        unsafe { words.add(at).write_volatile(0) };
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
        clear(&raw mut (*state).span);
        clear(&raw mut (*state).calls);
        (*state).span.thread = (*state).thread;
        (*state).used[0] = usage::so_far();
        (*state).began_ns = now();
        (*state).open = 1;
    }
}

/// A call of the thread's has returned.
#[inline(always)]
pub unsafe fn call(state: *mut SpanState, part: u32, lasted_ns: u64) {
    // SAFETY: by the caller's word, and within the array, by the mask.
    unsafe {
        let calls = if (*state).open != 0 {
            &raw mut (*state).calls
        } else if let Some(calls) = CALLS.get_ptr_mut(end::BETWEEN as u32) {
            calls
        } else {
            return;
        };
        let calls = calls.cast::<SpanCalls>().add(part as usize & (PARTS - 1));
        (*calls).calls += 1;
        (*calls).time_ns += lasted_ns;
    }
}

/// A phase begins.
#[inline(always)]
pub unsafe fn begin_phase(state: *mut SpanState) {
    // SAFETY: by the caller's word.
    unsafe { (*state).used[1] = usage::so_far() };
}

/// A phase that took so long has ended.
#[inline(always)]
pub unsafe fn end_phase(state: *mut SpanState, lasted_ns: u64) {
    // SAFETY: by the caller's word.
    unsafe {
        if (*state).open != 0 {
            let used = usage::between(&(*state).used[1], &usage::so_far(), lasted_ns);
            usage::add(&raw mut (*state).span.phase, &used);
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
        add_calls(end::BETWEEN, &raw const (*state).calls);
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
        (*span).time_ns = now;
        (*span).duration_ns = now.saturating_sub((*state).began_ns);
        (*span).end = end as u32;
        (*span).usage = usage::between(&(*state).used[0], &usage::so_far(), (*span).duration_ns);
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
        add_calls(end, &raw const (*state).calls);
        if (*span).duration_ns >= control.threshold_ns && !tell(state) {
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
        (*row).units += u64::from((*span).units);
        (*row).bytes += (*span).bytes;
        usage::add(&raw mut (*row).usage, &(*span).usage);
        usage::add(&raw mut (*row).phase, &(*span).phase);
    }
}

#[inline(always)]
unsafe fn add_calls(end: usize, calls: *const SpanParts) {
    let Some(row) = CALLS.get_ptr_mut(end as u32) else {
        return;
    };
    // SAFETY: by the caller's word: both are as long.
    unsafe {
        let (to, from) = (row.cast::<u64>(), calls.cast::<u64>());
        for at in 0..size_of::<SpanParts>() / 8 {
            *to.add(at) += *from.add(at);
        }
    }
}

/// Tells a span and its calls, as far as there are parts; false where there is no room.
#[inline(always)]
unsafe fn tell(state: *const SpanState) -> bool {
    // SAFETY: by the caller's word: the calls follow the span.
    unsafe {
        // Of a few constant lengths: nothing to be proved to any verifier.
        match (*state).parts {
            parts if parts <= OPERATIONS as u32 => output::<OPERATIONS>(state),
            parts if parts <= 32 => output::<32>(state),
            _ => output::<PARTS>(state),
        }
    }
}

#[inline(always)]
unsafe fn output<const COUNT: usize>(state: *const SpanState) -> bool {
    let bytes = size_of::<Span>() + COUNT * size_of::<SpanCalls>();
    let ring = (&raw const SPANS).cast_mut().cast::<c_void>();
    // SAFETY: so many bytes are there, by the caller's word.
    unsafe {
        let span = (&raw const (*state).span).cast_mut().cast::<c_void>();
        bpf_ringbuf_output(ring, span, bytes as u64, 0) == 0
    }
}
