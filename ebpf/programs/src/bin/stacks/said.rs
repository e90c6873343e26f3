//! Who allocates and who frees, as the process says it itself, by the probes `otel_memory:alloc` and `otel_memory:free`: the contract of
//! OpenTelemetry's eBPF profiler. What it says is a sample already: it has chosen at random, and says for how many bytes that stands.

use aya_ebpf::{
    macros::map,
    maps::{Array, LruHashMap},
    programs::ProbeContext,
};
use ckb_probe_common::{
    hits::Operand,
    stacks::{FREED, Order, Pace, allocations},
};
use ckb_probe_programs::{counters::add, operand};

use crate::allocations::{count, sample};

/// By the place of a probe: where it tells the address, and for how many bytes that stands. The loader says how many there are.
#[map]
static OPERANDS: Array<[Operand; 2]> = Array::with_max_entries(1, 0);

/// What was said to be allocated, and not to be freed, by its address: for how many bytes it stands. Of more than there is room for, the oldest are
/// forgotten: of these it is not known what is freed. The loader says how many.
#[map]
static SAID: LruHashMap<u64, u64> = LruHashMap::with_max_entries(1, 0);

/// It has allocated.
#[inline(always)]
pub fn allocated(order: &Order, pace: *mut Pace, context: &ProbeContext, place: u32) {
    let Some([address, bytes]) = OPERANDS.get(place) else {
        return;
    };
    let (Some(address), Some(bytes)) = (read(context, address), read(context, bytes)) else {
        lose(pace);
        return;
    };
    if !(1..allocations::MOST).contains(&bytes) {
        lose(pace);
        return;
    }
    // Where that fails, it is forgotten at once.
    let _ = SAID.insert(&address, &bytes, 0);
    count(0, bytes);
    // SAFETY: a map's value.
    unsafe { sample(order, pace, bytes, allocations::TOLD_ALONE, 0) };
}

/// It frees what it has said that it allocated. What that was before anybody looked is not known.
#[inline(always)]
pub fn freed(order: &Order, pace: *mut Pace, context: &ProbeContext, place: u32) {
    let Some([address, _]) = OPERANDS.get(place) else {
        return;
    };
    let Some(address) = read(context, address) else {
        lose(pace);
        return;
    };
    // SAFETY: a word, copied at once.
    let bytes = unsafe { SAID.get(&address) }.copied();
    let Some(bytes) = bytes.filter(|_| SAID.remove(&address).is_ok()) else {
        return;
    };
    count(1, bytes);
    // SAFETY: a map's value.
    unsafe { sample(order, pace, bytes, allocations::TOLD_ALONE, FREED) };
}

#[inline(always)]
fn lose(pace: *mut Pace) {
    // SAFETY: a map's value.
    unsafe { add(&raw mut (*pace).lost, 1) };
}

#[inline(always)]
fn read(context: &ProbeContext, operand: &Operand) -> Option<u64> {
    let mut number = 0;
    // SAFETY: the kernel hands the program a valid pt_regs for as long as it runs.
    let read = unsafe { operand::read(context.regs, operand, &mut number) };
    read.then_some(number)
}
