//! What the thread has used by now, by the kernel's own account of it.
//!
//! That account is brought up to date as the thread gets or loses a CPU, and at each tick: it lags behind by up to a tick,
//! which is longer than most spans. How far, is known by when that was, which is told by another clock than a program can
//! read. The two differ by what changes slowly: the difference is at least what it is found to be at any time, and that is all
//! but exact where a program runs just after the thread got its CPU. So the greatest that was found of late is taken for it.

use core::ffi::c_void;

use aya_ebpf::{macros::map, maps::PerCpuArray};
use ckb_probe_common::spans::SpanUsage;
use ckb_probe_programs::{fields, helpers::now, storage::Thread};

// Of `task_struct`; those that this kernel lacks read as zero.
fields!(USAGE_FIELDS: RUN, UPDATED, QUEUED, MAJOR_FAULTS, VOLUNTARY, INVOLUNTARY, MINOR_FAULTS);

/// How far the scheduler's clock of a CPU is ahead of the programs' clock, as a number that wraps.
#[repr(C)]
#[derive(Clone, Copy)]
struct Ahead {
    /// The greatest of this window, and of the one before.
    found: [u64; 2],
    /// When this window began.
    since_ns: u64,
}

#[map]
static CLOCK: PerCpuArray<Ahead> = PerCpuArray::with_max_entries(1, 0);

/// The clocks drift apart by a millionth at the most, and the scheduler's stands still in interrupts on some kernels.
const WINDOW_NS: u64 = 1_000_000_000;

/// Looks how far the one clock is ahead of the other.
#[inline(always)]
pub fn look_at_clock() {
    let thread = Thread::current().as_ptr();
    if let Some(updated_ns) = USAGE_FIELDS.number::<UPDATED>(thread) {
        ahead(updated_ns, now());
    }
}

#[inline(always)]
fn ahead(updated_ns: u64, now: u64) -> Option<u64> {
    let clock = CLOCK.get_ptr_mut(0)?;
    let found = updated_ns.wrapping_sub(now);
    // SAFETY: a map's value, of this CPU; a thread that comes in between leaves what is as right.
    unsafe {
        let since_ns = now.wrapping_sub((*clock).since_ns);
        if since_ns > 2 * WINDOW_NS {
            (*clock).found = [found; 2];
            (*clock).since_ns = now;
        } else if since_ns > WINDOW_NS {
            (*clock).found[1] = (*clock).found[0];
            (*clock).found[0] = found;
            (*clock).since_ns = now;
        } else {
            (*clock).found[0] = greater((*clock).found[0], found);
        }
        Some(greater((*clock).found[0], (*clock).found[1]))
    }
}

#[inline(always)]
fn greater(one: u64, other: u64) -> u64 {
    if (one.wrapping_sub(other) as i64) < 0 {
        other
    } else {
        one
    }
}

/// What the thread that runs has used by now.
#[inline(always)]
pub fn so_far() -> SpanUsage {
    let thread = Thread::current().as_ptr();
    SpanUsage {
        cpu_ns: ran_ns(thread),
        queued_ns: USAGE_FIELDS.number::<QUEUED>(thread).unwrap_or(0),
        major_faults: USAGE_FIELDS.number::<MAJOR_FAULTS>(thread).unwrap_or(0),
        minor_faults: USAGE_FIELDS.number::<MINOR_FAULTS>(thread).unwrap_or(0),
        switches: USAGE_FIELDS.number::<VOLUNTARY>(thread).unwrap_or(0)
            + USAGE_FIELDS.number::<INVOLUNTARY>(thread).unwrap_or(0),
    }
}

/// What was used from one to the other, of so much time.
#[inline(always)]
pub fn between(before: &SpanUsage, after: &SpanUsage, time_ns: u64) -> SpanUsage {
    SpanUsage {
        // Of a tick's length the kernel's account and the clock may differ.
        cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns).min(time_ns),
        queued_ns: after.queued_ns.saturating_sub(before.queued_ns),
        major_faults: after.major_faults.saturating_sub(before.major_faults),
        minor_faults: after.minor_faults.saturating_sub(before.minor_faults),
        switches: after.switches.saturating_sub(before.switches),
    }
}

/// Adds what was used.
///
/// # Safety
/// Where it is added to is a map's value.
#[inline(always)]
pub unsafe fn add(to: *mut SpanUsage, more: &SpanUsage) {
    // SAFETY: by the caller's word.
    unsafe {
        (*to).cpu_ns += more.cpu_ns;
        (*to).queued_ns += more.queued_ns;
        (*to).major_faults += more.major_faults;
        (*to).minor_faults += more.minor_faults;
        (*to).switches += more.switches;
    }
}

#[inline(always)]
fn ran_ns(thread: *const c_void) -> u64 {
    let (Some(ran_ns), Some(updated_ns)) = (
        USAGE_FIELDS.number::<RUN>(thread),
        USAGE_FIELDS.number::<UPDATED>(thread),
    ) else {
        return 0;
    };
    let now = now();
    let lag_ns = match ahead(updated_ns, now) {
        Some(ahead) => now.wrapping_add(ahead).wrapping_sub(updated_ns),
        None => 0,
    };
    ran_ns.wrapping_add(lag_ns)
}
