//! Counting a call that has returned.

use aya_ebpf::{
    bindings::pt_regs,
    helpers::bpf_get_current_comm,
    macros::map,
    maps::{PerCpuArray, RingBuf},
};
use ckb_probe_common::{
    Arguments, BUCKETS, CallKey, CallStart, Control, Cookie, Group, Histogram, Losses,
    MAX_OPERATIONS, MAX_PAYLOAD, Mark, SlowCall, SlowCallWithArguments, Totals, bucket,
    hits::{SlowCallWithParent, Traceparent},
};
use ckb_probe_programs::{
    counters::{add, raise},
    helpers::thread,
};

use crate::{caller, cause, file_io, kept, parent, stack};

/// One for each operation, then one for each column family of each; the loader sets how many.
#[map]
static TOTALS: PerCpuArray<Totals> = PerCpuArray::with_max_entries(1, 0);

/// How long calls took, by slot.
#[map]
static HISTOGRAMS: PerCpuArray<Histogram> = PerCpuArray::with_max_entries(1, 0);

/// What could not be recorded.
#[map]
static LOSSES: PerCpuArray<Losses> = PerCpuArray::with_max_entries(1, 0);

/// By operation: slow calls of which the event found the ring buffer full. Who asked for another operation lost nothing.
#[map]
static EVENTS_LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(MAX_OPERATIONS as u32, 0);

/// Slow calls.
#[map]
static SLOW_CALLS: RingBuf = RingBuf::with_byte_size(4096, 0);

/// A call that has returned.
pub struct Call<'a> {
    /// The operation's slot.
    pub operation: u32,
    /// The slot that it counts in: the operation's, or that of its column family.
    pub slot: u32,
    /// The number of its group.
    pub group: u32,
    pub ended_ns: u64,
    pub duration_ns: u64,
    pub bytes: u64,
    /// As they are after its return.
    pub registers: *const pt_regs,
    /// By what the `traceparent` is kept that it began with, if it did with any.
    pub parent: Option<&'a CallKey>,
    /// Of what ends elsewhere than it began: the argument that both have in common, and the thread in which it began.
    pub number: u64,
    pub began_on: u32,
}

impl Call<'_> {
    /// What was remembered as it began, and has ended `now`. Its bytes are as they were known then.
    #[inline(always)]
    pub fn of(
        start: CallStart,
        operation: u32,
        now: u64,
        probed: u64,
        control: &Control,
        registers: *const pt_regs,
    ) -> Self {
        Self {
            operation,
            slot: start.mark.slot(),
            group: start.mark.group(),
            ended_ns: now,
            duration_ns: now
                .saturating_sub(probed)
                .saturating_sub(start.time_ns)
                .saturating_sub(control.trap_ns),
            bytes: start.bytes,
            registers,
            parent: None,
            number: 0,
            began_on: 0,
        }
    }
}

/// Takes up a call of this slot and group.
#[inline(always)]
pub fn begin(operation: u32, slot: u32, group: u32) {
    if let Some(totals) = TOTALS.get_ptr_mut(slot) {
        // SAFETY: a map's value.
        unsafe {
            fly(totals, group, 1);
            if slot == operation {
                // Not atomic: see `Totals::hits`.
                (*totals).hits += 1;
            }
        }
    }
    if slot != operation {
        hit(operation);
    }
}

/// Counts a call that was taken up, and whose end nobody will see.
#[inline(always)]
pub fn vanish(mark: Mark) {
    if let Some(totals) = TOTALS.get_ptr_mut(mark.slot()) {
        // SAFETY: a map's value.
        unsafe {
            fly(totals, mark.group(), u64::MAX);
            add(&raw mut (*totals).untimed, 1);
        }
    }
}

/// One more that is in flight, or one less.
///
/// # Safety
/// The totals are a map's value.
#[inline(always)]
unsafe fn fly(totals: *mut Totals, group: u32, by: u64) {
    // SAFETY: by the caller's word, and within the array, by the mask.
    unsafe {
        let in_flight = (&raw mut (*totals).in_flight).cast::<u64>();
        add(in_flight.add(group as usize & (Group::PLACES - 1)), by);
    }
}

/// Counts a call that has ended, and reports it when it was slow.
#[inline(always)]
pub fn call(call: &Call<'_>, control: &Control) {
    let (Some(totals), Some(histogram), Some(threshold)) = (
        TOTALS.get_ptr_mut(call.slot),
        HISTOGRAMS.get_ptr_mut(call.slot),
        control.slow_thresholds_ns.get(call.operation as usize),
    ) else {
        return;
    };
    let slow = call.duration_ns >= *threshold;
    let index = bucket(call.duration_ns) as usize;
    let bytes = believed(call.bytes);
    // SAFETY: the maps' values outlive the program's run; the index is within bounds, by the comparison that the
    // verifier sees too.
    unsafe {
        fly(totals, call.group, u64::MAX);
        add(&raw mut (*totals).sum_ns, call.duration_ns);
        if bytes > 0 {
            add(&raw mut (*totals).bytes, bytes);
        }
        if index < BUCKETS {
            add((&raw mut (*histogram).buckets).cast::<u64>().add(index), 1);
        }
        let half = (&raw mut (*totals).maxima)
            .cast::<u64>()
            .add(control.epoch as usize & 1);
        raise(half, control.epoch, call.duration_ns);
        if slow {
            add(&raw mut (*totals).slow, 1);
        }
        file_io::ends(&raw mut (*totals).file_io, control.files(call.operation));
    }
    if slow {
        report(call, bytes, control);
    }
}

/// The size, where it can be one; 0 where it can't, and one more is lost.
#[inline(always)]
fn believed(bytes: u64) -> u64 {
    if bytes <= MAX_PAYLOAD {
        return bytes;
    }
    lose_size();
    0
}

/// Counts for the operation, whatever its column families: user space looks at these numbers often.
#[inline(always)]
pub fn hit(operation: u32) {
    if let Some(totals) = TOTALS.get_ptr_mut(operation) {
        // SAFETY: a map's value. Not atomic: see `Totals::hits`.
        unsafe { (*totals).hits += 1 };
    }
}

/// Counts a call that is not timed.
#[inline(always)]
pub fn untimed(slot: u32, bytes: u64, cookie: Cookie) {
    if let Some(totals) = TOTALS.get_ptr_mut(slot) {
        // SAFETY: a map's value.
        unsafe {
            add(&raw mut (*totals).untimed, 1);
            add(&raw mut (*totals).bytes, believed(bytes));
        }
    }
    hit(cookie.slot());
}

/// Counts a call of another process: nothing else of it matters.
#[inline(always)]
pub fn pass(slot: u32) {
    if let Some(totals) = TOTALS.get_ptr_mut(slot) {
        // SAFETY: a map's value. Not atomic: see `Totals::hits`.
        unsafe { (*totals).others += 1 };
    }
}

/// Counts a call that could not be taken up.
#[inline(always)]
pub fn lose_call() {
    // SAFETY: the field of a value that the caller looked up.
    lose(|losses| unsafe { &raw mut (*losses).calls });
}

/// Counts a call whose size is not known.
#[inline(always)]
pub fn lose_size() {
    // SAFETY: the field of a value that the caller looked up.
    lose(|losses| unsafe { &raw mut (*losses).sizes });
}

#[inline(always)]
fn lose(which: impl FnOnce(*mut Losses) -> *mut u64) {
    if let Some(losses) = LOSSES.get_ptr_mut(0) {
        // SAFETY: a field of a map's value.
        unsafe { add(which(losses), 1) };
    }
}

#[inline(always)]
fn report(call: &Call<'_>, bytes: u64, control: &Control) {
    let slow = SlowCall {
        time_ns: call.ended_ns,
        duration_ns: call.duration_ns,
        // One of both is 0.
        bytes: bytes | call.number,
        slot: call.slot,
        thread: thread(),
        during: SlowCall::during(
            cause::since(call.ended_ns.wrapping_sub(call.duration_ns), control),
            call.began_on,
        ),
        stack: if caller::is_wanted(call.operation, control) {
            caller::copy(call.registers, call.operation)
        } else {
            0
        },
        thread_name: bpf_get_current_comm().unwrap_or_default(),
    };
    let told = if let Some(parent) = call.parent.and_then(parent::of) {
        report_with_parent(slow, parent)
    } else if let Some(arguments) = kept::of(stack(call.registers), call.operation) {
        report_with(slow, arguments, call.operation, control)
    } else {
        SLOW_CALLS.output::<SlowCall>(slow, 0).is_ok()
    };
    if !told {
        if let Some(lost) = EVENTS_LOST.get_ptr_mut(call.operation) {
            // SAFETY: a map's value.
            unsafe { add(lost, 1) };
        }
        if slow.stack > 0 {
            caller::lose(call.operation);
        }
    }
}

#[inline(always)]
fn report_with_parent(slow: SlowCall, parent: &Traceparent) -> bool {
    let Some(mut event) = SLOW_CALLS.reserve::<SlowCallWithParent>(0) else {
        return false;
    };
    // SAFETY: reserved, as long as it is; all of it is written.
    unsafe {
        let event = &mut *event.as_mut_ptr();
        event.call = slow;
        event.parent = *parent;
    }
    event.submit(0);
    true
}

#[inline(always)]
fn report_with(slow: SlowCall, arguments: &Arguments, operation: u32, control: &Control) -> bool {
    let Some(mut event) = SLOW_CALLS.reserve::<SlowCallWithArguments>(0) else {
        return false;
    };
    let texts = control.texts.get(operation as usize).copied().unwrap_or(0);
    // SAFETY: reserved, as long as it is; all of it is written.
    unsafe {
        let event = &mut *event.as_mut_ptr();
        event.call = slow;
        kept::tell(&mut event.arguments, arguments, texts);
    }
    event.submit(0);
    true
}
