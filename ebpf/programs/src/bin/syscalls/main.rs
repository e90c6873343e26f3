//! System calls of the processes that are its targets, by number: how many, how long, how they failed.
//!
//! One pair of programs for a node, at the tracepoints of all system calls. Whoever is no target pays for a look at a
//! table; what else that costs them is the kernel's own slower way while anybody traces system calls.
//!
//! The kernel runs these programs with preemption disabled, so what a CPU counts for itself needs no atomics.
#![no_std]
#![no_main]

mod file;
mod numbers;
mod record;
mod rows;

use aya_ebpf::{
    bindings::pt_regs,
    helpers::generated::bpf_task_pt_regs,
    macros::{btf_tracepoint, map},
    maps::{Array, HashMap, PerCpuArray},
    programs::BtfTracePointContext,
};
use ckb_probe_common::syscalls::{
    CELLS, Cell, EINTR, InThread, MAX_TARGETS, Met, NUMBERS, OTHER, Order, SEVERAL,
    fails_by_handler, is_broken_off,
};
use ckb_probe_programs::{
    fields,
    helpers::{now, process},
    identity::Identity,
    registers,
    storage::{TaskStorage, Thread},
};
use numbers::{EXIT, EXIT_GROUP, OF_32_BITS, RESTART, SIGNAL_RETURN};
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
static CALLS: TaskStorage<InThread> = TaskStorage::new();

fields!(
    FIELDS:
    /// `task_struct.thread_info.status`, or `flags`: what says [`OF_32_BITS`].
    STATUS,
    // What a descriptor stands for: `task_struct.files`, `files_struct.fdt`, `fdtable.max_fds` and `fd`.
    FILES, TABLE, MOST, DESCRIPTORS,
    // `file.f_inode`, `inode.i_ino`, `file.f_path.dentry`, `dentry.d_name.name`.
    INODE, INODE_NUMBER, ENTRY, NAME,
    /// `k_sigaction.sa.sa_handler`.
    HANDLER,
    /// `k_sigaction.sa.sa_flags`.
    HANDLER_FLAGS,
);

#[unsafe(no_mangle)]
static IDENTITY: Identity = Identity::unset();

/// What the kernel does with a signal that has no handler.
const SIG_IGN: u64 = 1;

#[btf_tracepoint(function = "sys_enter")]
pub fn syscall_enter(context: BtfTracePointContext) -> i32 {
    let Some(target) = target() else {
        return leave();
    };
    let (Some(order), Some(met)) = (ORDERS.get(target), MET.get_ptr_mut(target)) else {
        return 0;
    };
    let thread = Thread::current();
    // What does not begin here does not end either, so it is asked at no end.
    // SAFETY: the kernel hands out the thread.
    if !unsafe { IDENTITY.is_of(thread.as_ptr(), order.since_ns) } {
        return leave();
    }
    let mut number = number(context.arg(1), thread);
    if number == RESTART && order.gate != 0 {
        number = made_again(thread, order).unwrap_or(RESTART);
    }
    if order.gate == 0 || !is_wanted(order, number) {
        // SAFETY: a map's value.
        unsafe { (*met).left += 1 };
        return 0;
    }
    let (Some(here), Some(row)) = (CALLS.get_or_create(thread), rows::of(target, number, order))
    else {
        // SAFETY: a map's value.
        unsafe { (*met).calls_lost += 1 };
        return 0;
    };
    // SAFETY: maps' values; the thread's own is written by nobody else.
    unsafe {
        (*met).taken += 1;
        if number != EXIT && number != EXIT_GROUP {
            record::begun(row);
        }
        let mut began = None;
        if (*here).broken.gate != 0 {
            began = resumed(here, context.arg::<*const pt_regs>(0), order);
        }
        (*here).call.gate = order.gate;
        (*here).call.number = number;
        (*here).call.row = row;
        // Last, so that what came before is not charged to the call.
        (*here).call.time_ns = match began {
            Some(time_ns) => time_ns,
            None => now(),
        };
    }
    0
}

/// A call of who is no target.
#[inline(always)]
fn leave() -> i32 {
    if let Some(met) = MET.get_ptr_mut(MAX_TARGETS as u32) {
        // SAFETY: a map's value.
        unsafe { (*met).left += 1 };
    }
    0
}

#[btf_tracepoint(function = "sys_exit")]
pub fn syscall_exit(context: BtfTracePointContext) -> i32 {
    let Some((target, order)) = ordered() else {
        return 0;
    };
    let Some(here) = CALLS.get(Thread::current()) else {
        return 0;
    };
    // SAFETY: the thread's own value. What a call leaves here is for its own end only.
    let begun = unsafe {
        let begun = (*here).call;
        (*here).call.gate = 0;
        begun
    };
    // Nothing began; or under another gate, so that what happened since is not known.
    if begun.gate == 0 || begun.gate != order.gate {
        return 0;
    }
    // Before the call is counted, so that this is not charged to it.
    let now = now();
    let result: i64 = context.arg(1);
    let registers = context.arg::<*const pt_regs>(0);
    let error = result.wrapping_neg() as u64;
    if is_broken_off(error) && begun.number != SIGNAL_RETURN {
        // Whether it fails or is made again is decided on the way back to the program.
        // SAFETY: the thread's own value, and a tracepoint's registers.
        unsafe {
            (*here).broken = begun;
            (*here).instruction = *registers::instruction(registers);
            (*here).stack = *registers::stack(registers);
            (*here).result = error;
        }
        return 0;
    }
    record::call(&Call::of(target, &begun, now, result, registers), order);
    0
}

/// The thread is about to run a signal's handler, or the kernel does with it what it does without one.
///
/// Newer kernels may run this one with preemption enabled: what it adds to is added to atomically.
#[btf_tracepoint(function = "signal_deliver")]
pub fn signal_delivered(context: BtfTracePointContext) -> i32 {
    let Some((target, order)) = ordered() else {
        return 0;
    };
    let thread = Thread::current();
    let Some(here) = CALLS.get(thread) else {
        return 0;
    };
    // SAFETY: the thread's own value.
    let (begun, error) = unsafe { ((*here).broken, (*here).result) };
    if error == 0 || begun.gate == 0 || begun.gate != order.gate {
        return 0;
    }
    let action: *const core::ffi::c_void = context.arg(2);
    let (Some(handler), Some(flags)) = (
        FIELDS.number::<HANDLER>(action),
        FIELDS.number::<HANDLER_FLAGS>(action),
    ) else {
        return 0;
    };
    if handler <= SIG_IGN {
        return 0;
    }
    // SAFETY: the thread's own value; the helper has no preconditions.
    unsafe {
        (*here).result = 0;
        if !fails_by_handler(error, flags) {
            record::restarted(begun.row);
            return 0;
        }
        (*here).broken.gate = 0;
        let now = now();
        let registers = bpf_task_pt_regs(thread.as_ptr().cast_mut().cast()) as *const pt_regs;
        let result = -(EINTR as i64);
        record::call_atomically(&Call::of(target, &begun, now, result, registers), order);
    }
    0
}

/// The call that `restart_syscall` makes again, if it is known.
#[inline(always)]
fn made_again(thread: Thread, order: &Order) -> Option<u32> {
    let here = CALLS.get(thread)?;
    // SAFETY: the thread's own value.
    let broken = unsafe { (*here).broken };
    (broken.gate == order.gate).then_some(broken.number)
}

/// A call begins in a thread where one was broken off: if it is that one made again, when it first began.
///
/// # Safety
/// `here` is the thread's own value, and the registers are those of a tracepoint.
#[inline(always)]
unsafe fn resumed(here: *mut InThread, registers: *const pt_regs, order: &Order) -> Option<u64> {
    // SAFETY: by the caller's word.
    unsafe {
        let broken = (*here).broken;
        if broken.gate != order.gate {
            (*here).broken.gate = 0;
            return None;
        }
        // No handler ran in between.
        if (*here).result != 0 {
            (*here).result = 0;
            record::restarted(broken.row);
        }
        let same = *registers::instruction(registers) == (*here).instruction
            && *registers::stack(registers) == (*here).stack;
        if !same {
            // A handler's own.
            return None;
        }
        (*here).broken.gate = 0;
        Some(broken.time_ns)
    }
}

/// The process that runs, if it is a target whose gate is open, and what to do with it.
#[inline(always)]
fn ordered() -> Option<(u32, &'static Order)> {
    let target = target()?;
    let order = ORDERS.get(target)?;
    (order.gate != 0).then_some((target, order))
}

/// The place of the process that runs, if it is a target.
#[inline(always)]
fn target() -> Option<u32> {
    let process = process();
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
    if number < NUMBERS as u64 && status & OF_32_BITS == 0 {
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
