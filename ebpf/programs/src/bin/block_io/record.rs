//! Counting a request that has ended.

use aya_ebpf::{
    macros::map,
    maps::{Array, PerCpuArray, RingBuf},
};
use ckb_probe_common::{
    BUCKETS,
    block_io::{
        Control, InFlight, MAX_OWNERS, MAX_PAYERS, MAX_SLOTS, MAX_THRESHOLDS, Met, SlowRequest,
        Times, Totals, Untold, payer,
    },
    bucket,
};
use ckb_probe_programs::{
    counters::{add, raise},
    ring_shares,
};

use crate::slots;

/// Requests and bytes of each slot.
#[map]
static TOTALS: Array<Totals> = Array::with_max_entries(MAX_SLOTS, 0);

/// How long the requests of each slot took.
#[map]
static TIMES: Array<Times> = Array::with_max_entries(MAX_SLOTS, 0);

/// How many there were, and what could not be recorded.
#[map]
static MET: PerCpuArray<Met> = PerCpuArray::with_max_entries(1, 0);

/// Slow requests.
#[map]
static SLOW_REQUESTS: RingBuf = RingBuf::with_byte_size(128 << 10, 0);
ring_shares!(SHARES, SLOW_REQUESTS, MAX_PAYERS);

/// By owner: the number of its namespace.
#[map]
static NAMESPACES: Array<u32> = Array::with_max_entries(MAX_OWNERS + 1, 0);

#[map]
static UNTOLD: Array<Untold> = Array::with_max_entries(1, 0);

/// Counts bytes that were done.
#[inline(always)]
pub fn bytes(slot: u32, bytes: u64) {
    if let Some(totals) = TOTALS.get_ptr_mut(slot) {
        // SAFETY: a map's value.
        unsafe { add(&raw mut (*totals).bytes, bytes) };
    }
}

/// Counts a request whose beginning could not be remembered.
#[inline(always)]
pub fn untimed() {
    // SAFETY: the field of a value that the caller looked up.
    met(|met| unsafe { &raw mut (*met).untimed });
}

/// Counts a request, and reports it when it was slow.
#[inline(always)]
pub fn request(held: &InFlight, began_ns: u64, now: u64, control: &Control) {
    // SAFETY: the field of a value that the caller looked up.
    met(|met| unsafe { &raw mut (*met).requests });
    let (Some(totals), Some(times)) = (TOTALS.get_ptr_mut(held.slot), TIMES.get_ptr_mut(held.slot))
    else {
        return;
    };
    let measured = held.issued_ns > 0 && began_ns > 0;
    let device = now.saturating_sub(held.issued_ns);
    if measured {
        // The kernel may have noted the beginning by a clock that it last read a little before.
        let queue = held.issued_ns.saturating_sub(began_ns);
        let half = control.epoch as usize & 1;
        // SAFETY: maps' values.
        unsafe {
            add(&raw mut (*totals).queue_ns, queue);
            add(&raw mut (*totals).device_ns, device);
            raise(
                (&raw mut (*totals).queue_maxima).cast::<u64>().add(half),
                control.epoch,
                queue,
            );
            raise(
                (&raw mut (*totals).device_maxima).cast::<u64>().add(half),
                control.epoch,
                device,
            );
            into_bucket((&raw mut (*times).queue).cast(), queue);
            into_bucket((&raw mut (*times).device).cast(), device);
        }
    } else {
        // SAFETY: a map's value.
        unsafe { add(&raw mut (*totals).unmeasured, 1) };
    }
    let duration = now.saturating_sub(began_ns);
    if began_ns == 0 || duration < control.least_threshold_ns {
        return;
    }
    let (mut greatest, mut place) = (0, 0);
    for index in 0..MAX_THRESHOLDS {
        let threshold = control.thresholds_ns[index];
        if duration >= threshold {
            // SAFETY: a map's value, and an index within the array.
            unsafe { add((&raw mut (*totals).slow).cast::<u64>().add(index), 1) };
            if threshold >= greatest {
                (greatest, place) = (threshold, index as u32);
            }
        }
    }
    let namespace = NAMESPACES.get(slots::owner(held.slot)).copied();
    report(&SlowRequest {
        time_ns: now,
        duration_ns: duration,
        device_ns: if measured { device } else { 0 },
        slot: held.slot,
        bytes: held.bytes,
        thread: held.thread,
        payer: payer(namespace.unwrap_or(0), place),
        thread_name: held.thread_name,
    });
}

#[inline(always)]
fn report(request: &SlowRequest) {
    const SIZE: u64 = size_of::<SlowRequest>() as u64;
    if SHARES.take(request.payer, SIZE) {
        if SLOW_REQUESTS.output::<SlowRequest>(*request, 0).is_ok() {
            return;
        }
        SHARES.give_back(request.payer, SIZE);
    }
    if let Some(untold) = UNTOLD.get_ptr_mut(0)
        && request.payer < MAX_PAYERS
    {
        // SAFETY: a map's value, and an index within the array.
        unsafe {
            let counts = (&raw mut (*untold).counts).cast::<u64>();
            add(counts.add(request.payer as usize), 1);
        }
    }
}

#[inline(always)]
fn met(which: impl FnOnce(*mut Met) -> *mut u64) {
    if let Some(met) = MET.get_ptr_mut(0) {
        // SAFETY: a field of a map's value.
        unsafe { add(which(met), 1) };
    }
}

/// # Safety
/// The buckets are those of a map's value.
#[inline(always)]
unsafe fn into_bucket(buckets: *mut u64, nanos: u64) {
    let index = bucket(nanos) as usize;
    if index < BUCKETS {
        // SAFETY: within the array, by the comparison that the verifier sees too.
        unsafe { add(buckets.add(index), 1) };
    }
}
