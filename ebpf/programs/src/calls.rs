//! Latency of function calls: one program at the entry, one at the return, any number of attachments.
//!
//! The attach cookie says which slot a site counts in, where its payload size is, and what counts as slow.
//! Everything is aggregated here, per CPU; only slow calls leave the kernel one by one. Sizes of the maps
//! are set by the loader, for one target each.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(internal_features)]

// The stable atomics hide the read-modify-write operations on this target; LLVM has them since BPF ISA v3.
use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};

use aya_ebpf::{
    EbpfContext,
    helpers::{
        bpf_get_attach_cookie, bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_ktime_get_ns,
        bpf_probe_read_user,
    },
    macros::{map, uprobe, uretprobe},
    maps::{Array, HashMap, PerCpuArray, RingBuf},
    programs::{ProbeContext, RetProbeContext},
};
use ckb_probe_common::{
    BUCKETS, CallKey, CallStart, Cookie, Losses, Payload, Slot, SlowCall, bucket, maximum_index,
};

/// One entry for each operation; the loader sets how many.
#[map]
static SLOTS: PerCpuArray<Slot> = PerCpuArray::with_max_entries(1, 0);

/// Calls that have begun and not returned. Full, it loses calls, and `LOSSES` counts them.
#[map]
static IN_FLIGHT: HashMap<CallKey, CallStart> = HashMap::with_max_entries(1, 0);

/// Slow calls.
#[map]
static SLOW_CALLS: RingBuf = RingBuf::with_byte_size(4096, 0);

/// What could not be recorded.
#[map]
static LOSSES: PerCpuArray<Losses> = PerCpuArray::with_max_entries(1, 0);

/// Longest calls, two for each slot: see `maximum_index`.
#[map]
static MAXIMA: PerCpuArray<u64> = PerCpuArray::with_max_entries(2, 0);

/// Its parity selects which of the two maxima is being written.
#[map]
static EPOCH: Array<u32> = Array::with_max_entries(1, 0);

/// What the traps add to the duration of every call as it is seen from here, in nanoseconds: the loader sets what
/// it measured on a function that does nothing, and no call is charged with it.
#[unsafe(no_mangle)]
static TRAP_NS: u64 = 0;

/// On x86-64 a return pops the return address.
const POPPED_BY_RETURN: u64 = 8;

#[uprobe]
pub fn call_enter(context: ProbeContext) -> u32 {
    let cookie = cookie(&context);
    // SAFETY: the kernel hands the program a valid pt_regs for as long as it runs.
    let stack = unsafe { (*context.regs).rsp };
    let key = CallKey {
        // SAFETY: the helper has no preconditions.
        pid_tgid: bpf_get_current_pid_tgid(),
        stack: stack.wrapping_add(POPPED_BY_RETURN),
    };
    let start = CallStart {
        bytes: bytes_at_entry(&context, stack, cookie.payload()),
        // Last, so that what came before is not charged to the call.
        // SAFETY: the helper has no preconditions.
        time_ns: unsafe { bpf_ktime_get_ns() },
    };
    if IN_FLIGHT.insert(&key, &start, 0).is_err() {
        // SAFETY: the field of a value that the caller looked up.
        lose(|losses| unsafe { &raw mut (*losses).calls });
    }
    0
}

#[uretprobe]
pub fn call_return(context: RetProbeContext) -> u32 {
    // First, so that what comes after is not charged to the call.
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let key = CallKey {
        // SAFETY: the helper has no preconditions.
        pid_tgid: bpf_get_current_pid_tgid(),
        // SAFETY: the kernel hands the program a valid pt_regs for as long as it runs.
        stack: unsafe { (*context.regs).rsp },
    };
    // SAFETY: only this thread's own entry and return touch this key, and it is here.
    let Some(start) = (unsafe { IN_FLIGHT.get(&key) }) else {
        // The call began before the probe was attached.
        return 0;
    };
    let CallStart { time_ns, bytes } = *start;
    // The key was found a moment ago and nobody else removes it.
    let _ = IN_FLIGHT.remove(&key);

    let cookie = cookie(&context);
    // SAFETY: read-only data; volatile, since the loader writes it after the compiler has seen it.
    let trap = unsafe { (&raw const TRAP_NS).read_volatile() };
    let duration = now.saturating_sub(time_ns).saturating_sub(trap);
    let bytes = bytes_at_return(&context, bytes, cookie.payload());
    record(cookie, duration, bytes);
    if duration >= cookie.slow_threshold_ns() {
        report_slow(&key, cookie, now, duration, bytes);
    }
    0
}

#[inline(always)]
fn cookie(context: &impl EbpfContext) -> Cookie {
    // SAFETY: the context is the one that the kernel handed to this program.
    Cookie(unsafe { bpf_get_attach_cookie(context.as_ptr()) })
}

#[inline(always)]
fn record(cookie: Cookie, duration: u64, bytes: u64) {
    let Some(slot) = SLOTS.get_ptr_mut(cookie.slot()) else {
        return;
    };
    let epoch = EPOCH.get(0).copied().unwrap_or(0);
    let index = bucket(duration) as usize;
    // SAFETY: the map's value outlives the program's run; the index is within bounds, by the comparison that
    // the verifier sees too.
    unsafe {
        add(&raw mut (*slot).sum_ns, duration);
        if bytes > 0 {
            add(&raw mut (*slot).bytes, bytes);
        }
        if duration >= cookie.slow_threshold_ns() {
            add(&raw mut (*slot).slow, 1);
        }
        if index < BUCKETS {
            add((&raw mut (*slot).buckets).cast::<u64>().add(index), 1);
        }
    }
    if let Some(maximum) = MAXIMA.get_ptr_mut(maximum_index(cookie.slot(), epoch)) {
        // SAFETY: a map's value.
        unsafe { raise(maximum, duration) };
    }
}

/// Adds to a counter, atomically: the value is this CPU's own, but a program run for a uprobe can be preempted
/// by one run for another thread on the same CPU, and counts are exact.
///
/// # Safety
/// `counter` points into a map's value.
#[inline(always)]
unsafe fn add(counter: *mut u64, by: u64) {
    // SAFETY: aligned and alive, by the caller's word.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, by) };
}

/// Raises a maximum. Each failed exchange means that another thread preempted this one and raised it.
///
/// # Safety
/// `maximum` points into a map's value.
#[inline(always)]
unsafe fn raise(maximum: *mut u64, to: u64) {
    for _ in 0..4 {
        // SAFETY: aligned and alive, by the caller's word.
        let current = unsafe { maximum.read_volatile() };
        if to <= current {
            return;
        }
        // SAFETY: as above.
        let (_, exchanged) = unsafe {
            atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
                maximum, current, to,
            )
        };
        if exchanged {
            return;
        }
    }
}

/// Counts one loss.
#[inline(always)]
fn lose(which: impl FnOnce(*mut Losses) -> *mut u64) {
    if let Some(losses) = LOSSES.get_ptr_mut(0) {
        // SAFETY: a field of a map's value.
        unsafe { add(which(losses), 1) };
    }
}

#[inline(always)]
fn report_slow(key: &CallKey, cookie: Cookie, now: u64, duration: u64, bytes: u64) {
    let Some(mut event) = SLOW_CALLS.reserve::<SlowCall>(0) else {
        // SAFETY: the field of a value that the caller looked up.
        lose(|losses| unsafe { &raw mut (*losses).events });
        return;
    };
    event.write(SlowCall {
        time_ns: now,
        duration_ns: duration,
        bytes,
        slot: cookie.slot(),
        thread: key.pid_tgid as u32,
        thread_name: bpf_get_current_comm().unwrap_or_default(),
    });
    event.submit(0);
}

/// The payload size where it is known at entry; for sizes known at return only, where to look then.
#[inline(always)]
fn bytes_at_entry(context: &ProbeContext, stack: u64, payload: u8) -> u64 {
    let argument = |index| context.arg::<u64>(index).unwrap_or(0);
    if payload == Payload::Argument3 as u8 {
        argument(3)
    } else if payload == Payload::Argument4 as u8 {
        argument(4)
    } else if payload == Payload::Arguments3And5 as u8 {
        argument(3).wrapping_add(argument(5))
    } else if payload == Payload::Arguments4And6 as u8 {
        // The seventh argument is the first on the stack, above the return address.
        argument(4).wrapping_add(read_user(stack.wrapping_add(8)))
    } else if payload == Payload::PointedToBy5 as u8 {
        argument(5)
    } else {
        0
    }
}

#[inline(always)]
fn bytes_at_return(context: &RetProbeContext, at_entry: u64, payload: u8) -> u64 {
    let returned = payload == Payload::ReturnedSlice as u8;
    let pointed = payload == Payload::PointedToBy5 as u8;
    if !returned && !pointed {
        return at_entry;
    }
    let result: u64 = context.ret();
    if result == 0 {
        return 0;
    }
    read_user(if returned {
        result.wrapping_add(8)
    } else {
        at_entry
    })
}

/// A word of the target's memory; 0 where it cannot be read without a page fault.
#[inline(always)]
fn read_user(address: u64) -> u64 {
    // SAFETY: the helper checks the address itself.
    unsafe { bpf_probe_read_user(address as *const u64) }.unwrap_or(0)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
