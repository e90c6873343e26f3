//! System calls of the processes that are its targets, by number: how many, how long, how they failed.
//!
//! One pair of programs for a node, at the tracepoints of all system calls. Whoever is no target pays for a look at a
//! table; what else that costs them is the kernel's own slower way while anybody traces system calls.
//!
//! The kernel runs these programs with preemption disabled, so what a CPU counts for itself needs no atomics.
#![no_std]
#![no_main]

mod file;
mod record;
mod rows;

use aya_ebpf::{
    bindings::pt_regs,
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::{btf_tracepoint, map},
    maps::{Array, HashMap, PerCpuArray},
    programs::BtfTracePointContext,
};
use ckb_probe_common::syscalls::{
    Begun, CELLS, Cell, MAX_TARGETS, Met, NUMBERS, OTHER, Order, SEVERAL,
};
use ckb_probe_programs::{
    fields::Fields,
    task_storage::{TaskStorage, Thread},
};
use record::Call;

/// Finds the targets, and tells nearly every process that it is none, in a few instructions.
#[map]
static FINDER: Array<Cell> = Array::with_max_entries(CELLS, 0);

/// The places of all targets, by process, for those that share a cell.
#[map]
static TARGETS: HashMap<u32, u32> = HashMap::with_max_entries(MAX_TARGETS as u32, 0);

/// What to do with each target.
#[map]
static ORDERS: Array<Order> = Array::with_max_entries(MAX_TARGETS as u32, 0);

/// What each target met, and last what the processes met that are none.
#[map]
static MET: PerCpuArray<Met> = PerCpuArray::with_max_entries(MAX_TARGETS as u32 + 1, 0);

/// The call that each thread is in.
#[map]
static CALLS: TaskStorage<Begun> = TaskStorage::new();

#[unsafe(no_mangle)]
static FIELDS: Fields<9> = Fields::unset();
/// `task_struct.thread_info.status`.
const STATUS: usize = 0;
/// In a system call of a 32-bit program.
const TS_COMPAT: u32 = 2;

#[btf_tracepoint(function = "sys_enter")]
pub fn syscall_enter(context: BtfTracePointContext) -> i32 {
    let Some(target) = target() else {
        if let Some(met) = MET.get_ptr_mut(MAX_TARGETS as u32) {
            // SAFETY: a map's value.
            unsafe { (*met).left += 1 };
        }
        return 0;
    };
    let (Some(order), Some(met)) = (ORDERS.get(target), MET.get_ptr_mut(target)) else {
        return 0;
    };
    let thread = Thread::current();
    let number = number(context.arg(1), thread);
    if order.gate == 0 || !is_wanted(order, number) {
        // SAFETY: a map's value.
        unsafe { (*met).left += 1 };
        return 0;
    }
    let Some(call) = CALLS.get_or_create(thread) else {
        record::lose_call();
        return 0;
    };
    // SAFETY: maps' values; the thread's own is written by nobody else.
    unsafe {
        (*met).taken += 1;
        (*call).gate = order.gate;
        (*call).number = number as u64;
        // Last, so that what came before is not charged to the call.
        (*call).time_ns = bpf_ktime_get_ns();
    }
    0
}

#[btf_tracepoint(function = "sys_exit")]
pub fn syscall_exit(context: BtfTracePointContext) -> i32 {
    let Some(target) = target() else {
        return 0;
    };
    let Some(order) = ORDERS.get(target) else {
        return 0;
    };
    if order.gate == 0 {
        return 0;
    }
    let Some(begun) = CALLS.get(Thread::current()) else {
        return 0;
    };
    // SAFETY: the thread's own value. What a call leaves here is for its own end only.
    let call = unsafe {
        let call = *begun;
        (*begun).gate = 0;
        call
    };
    // Nothing began; or under another gate, so that what happened since is not known.
    if call.gate == 0 || call.gate != order.gate {
        return 0;
    }
    // SAFETY: the helper has no preconditions. Before the call is counted, so that this is not charged to it.
    let now = unsafe { bpf_ktime_get_ns() };
    let call = Call {
        target,
        number: call.number as u32,
        ended_ns: now,
        duration_ns: now.saturating_sub(call.time_ns),
        result: context.arg(1),
        registers: context.arg::<*const pt_regs>(0),
    };
    record::call(&call, order);
    0
}

/// The place of the process that runs, if it is a target.
#[inline(always)]
fn target() -> Option<u32> {
    let process = (bpf_get_current_pid_tgid() >> 32) as u32;
    let cell = FINDER.get(process % CELLS)?;
    match cell.process {
        SEVERAL => {
            // SAFETY: user space does not change an entry that is there.
            unsafe { TARGETS.get(&process) }.copied()
        }
        found if found == process => Some(cell.place),
        _ => None,
    }
}

#[inline(always)]
fn number(number: u64, thread: Thread) -> u32 {
    // SAFETY: the loader made sure of the size.
    let status = unsafe { FIELDS.trusted_u32::<STATUS>(thread.as_ptr()) };
    if number < NUMBERS as u64 && status & TS_COMPAT == 0 {
        number as u32
    } else {
        OTHER
    }
}

#[inline(always)]
fn is_wanted(order: &Order, number: u32) -> bool {
    match order.wanted.get((number / 64) as usize) {
        Some(word) => word >> (number % 64) & 1 == 1,
        None => order.other_wanted != 0,
    }
}

ckb_probe_programs::end!();
