//! By which value of an argument a hit is told apart.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, PerCpuArray},
    programs::ProbeContext,
};
use ckb_probe_common::{
    Cookie, MAX_OPERATIONS, TEXT_BYTES,
    hits::{FOLDED_VALUES, Hit, HitLosses, VALUES, Value},
};
use ckb_probe_programs::counters::{add, next};

use crate::operand;

/// The slot of each value seen; the loader sets how many there may be.
#[map]
static VALUE_SLOTS: HashMap<Value, u64> = HashMap::with_max_entries(1, 0);

/// The values that have slots of their own; the loader sets how many there may be.
#[map]
static VALUES_SEEN: Array<Value> = Array::with_max_entries(1, 0);

/// By operation: how many values have been met, as far as they are told apart from one another.
#[map]
static VALUE_COUNTS: Array<u64> = Array::with_max_entries(MAX_OPERATIONS as u32, 0);

/// By operation.
#[map]
static HIT_LOSSES: PerCpuArray<HitLosses> = PerCpuArray::with_max_entries(1, 0);

/// The same where hits need not be told apart.
#[inline(always)]
pub fn slot_if_asked(context: &ProbeContext, hit: &Hit, operation: u32) -> u32 {
    if hit.by.bytes == 0 {
        return operation;
    }
    slot(context, hit, operation)
}

/// Counts a hit of which an argument cannot be read.
#[inline(always)]
pub fn lose_argument(operation: u32) {
    // SAFETY: the field of a value that the caller looked up.
    lose(operation, |losses| unsafe { &raw mut (*losses).unread });
}

/// Counts an end of which no beginning is known. In a slice there are such of all that began before it.
#[inline(always)]
pub fn lose_end(cookie: Cookie) {
    if !cookie.is_sliced() {
        // SAFETY: the field of a value that the caller looked up.
        lose(cookie.slot(), |losses| unsafe {
            &raw mut (*losses).unbegun
        });
    }
}

/// Counts what could not be told of an operation's hit.
#[inline(always)]
pub fn lose(operation: u32, which: impl FnOnce(*mut HitLosses) -> *mut u64) {
    if let Some(losses) = HIT_LOSSES.get_ptr_mut(operation) {
        // SAFETY: a field of a map's value.
        unsafe { add(which(losses), 1) };
    }
}

/// Where the hit counts: in the slot of its value, or of the operation where there is no room for one more, or it cannot be read.
#[inline(never)]
pub fn slot(context: &ProbeContext, hit: &Hit, operation: u32) -> u32 {
    let mut value = Value {
        slot: operation,
        kind: 0,
        bytes: [0; TEXT_BYTES],
    };
    if !operand::value(context, &hit.by, &mut value) {
        lose_argument(operation);
        return operation;
    }
    // SAFETY: a word, which is written once.
    match unsafe { VALUE_SLOTS.get(&value) } {
        Some(slot) => *slot as u32,
        None => first_seen(&value, hit, operation),
    }
}

/// Takes up a value. Two threads that meet it first at the same moment both do: whoever reads adds what has one name.
#[inline(always)]
fn first_seen(value: &Value, hit: &Hit, operation: u32) -> u32 {
    let Some(count) = VALUE_COUNTS.get_ptr_mut(operation) else {
        return operation;
    };
    // SAFETY: a map's value.
    if unsafe { count.read_volatile() } >= (VALUES + FOLDED_VALUES) as u64 {
        return operation;
    }
    // SAFETY: a map's value.
    let index = unsafe { next(count) };
    let mut slot = operation;
    if index < VALUES as u64
        && let Some(seen) = VALUES_SEEN.get_ptr_mut(hit.first_value + index as u32)
    {
        // SAFETY: a map's value, which no other program run was given this index of.
        unsafe { *seen = *value };
        slot = hit.first_slot + index as u32;
    }
    // Where there is no room, it is taken up again the next time, and what has one name is added.
    let _ = VALUE_SLOTS.insert(value, &(slot as u64), 0);
    slot
}
