//! Who allocates and who frees, seen where jemalloc itself stops to look (`te_event_trigger` of jemalloc 5.3): at each 64 KiB that a
//! thread has allocated, or freed. It has counted these bytes itself, by then.
//!
//! It counts from the end of the allocation that made it stop, so one that is large makes it stop more often than by its share.
//! Whatever is larger than what threads keep for themselves goes by three other functions, which are seen as well: each is told with its own
//! size, and what makes it stop besides stands for all that is smaller. See decision 21.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::pt_regs,
    helpers::generated::{bpf_get_prandom_u32, bpf_probe_read_user},
    macros::map,
    maps::PerCpuArray,
    programs::ProbeContext,
};
use ckb_probe_common::stacks::{FREED, Order, Pace, allocations};
use ckb_probe_programs::{
    counters::add,
    helpers::{cookie, now},
    registers::argument,
    storage::{TaskStorage, Thread},
};

use crate::{ORDER, PACE, crowded, is_the_targets, said, stack, take};

/// What one thread allocates, or frees.
#[repr(C)]
struct Account {
    /// Where jemalloc counts it; 0: not known yet.
    counter: u64,
    /// Of what was counted since it stopped the last time, bytes that were told with their own size.
    told: u64,
    /// The last of these.
    size: u64,
    /// What was counted before that.
    before: u64,
    /// Bytes that the next sample stands for besides those since it stopped.
    carried: u64,
    /// In which slice it was seen the last time.
    slice: u64,
}

#[map]
static ACCOUNTS: TaskStorage<[Account; 2]> = TaskStorage::new();

/// Bytes that were allocated, and that were freed, by the allocator's count.
#[map]
static ALLOCATED: PerCpuArray<[u64; 2]> = PerCpuArray::with_max_entries(1, 0);

// All of it in the program itself, which aya's attribute leaves to the compiler: what makes a tail call must not be a function that is called.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
extern "C" fn hit(registers: *mut c_void) -> u32 {
    meet(&ProbeContext::new(registers));
    0
}

#[inline(always)]
fn meet(context: &ProbeContext) {
    let (Some(order), Some(pace)) = (ORDER.get(0), PACE.get_ptr_mut(0)) else {
        // Always there, so this is the place for what no program comes by.
        stack::stay_on_the_threads(context);
        return;
    };
    if !is_the_targets(order) {
        return;
    }
    let began = now();
    let Some(accounts) = ACCOUNTS.get_or_create(Thread::current()) else {
        // SAFETY: a map's value.
        unsafe { add(&raw mut (*pace).lost, 1) };
        return;
    };
    // SAFETY: maps' values, and the registers that the kernel handed out. An account is its thread's own.
    unsafe {
        add(&raw mut (*pace).met, 1);
        let account = |side: usize| (&raw mut (*accounts)[side]);
        let registers = context.regs;
        let cookie = cookie(context);
        match cookie.slot() {
            allocations::STOPS => stops(order, pace, account(0), account(1), registers),
            allocations::ALLOCATES => {
                told(order, pace, account(0), 0, *argument::<2>(registers));
            }
            allocations::GROWS => told(order, pace, account(0), 0, *argument::<3>(registers)),
            allocations::FREES => {
                if let Some(extent) = word(*argument::<1>(registers) + allocations::EXTENT_SIZE) {
                    let size = allocations::usable(extent);
                    told(order, pace, account(1), FREED, size);
                }
            }
            allocations::SAYS_ALLOCATED => said::allocated(order, pace, context, cookie.place()),
            allocations::SAYS_FREED => said::freed(order, pace, context, cookie.place()),
            _ => {}
        }
        add(&raw mut (*pace).spent_ns, now() - began);
    }
}

/// jemalloc stops to look. It has counted what made it stop.
#[inline(always)]
unsafe fn stops(
    order: &Order,
    pace: *mut Pace,
    allocated: *mut Account,
    freed: *mut Account,
    registers: *const pt_regs,
) {
    // SAFETY: maps' values, and the registers that the kernel handed out.
    unsafe {
        let mut seen = [0_u64; 4];
        let from = *argument::<1>(registers) as *const c_void;
        let read = bpf_probe_read_user(seen.as_mut_ptr().cast(), size_of_val(&seen) as u32, from);
        let [is_allocated, counter, last, next] = seen;
        let (Some(counted), Some(last), Some(next)) = (word(counter), word(last), word(next))
        else {
            add(&raw mut (*pace).lost, 1);
            return;
        };
        let since = counted.wrapping_sub(last);
        let beyond = counted.wrapping_sub(next);
        // Of another version it may be anything.
        if read != 0 || since > allocations::MOST || beyond > since {
            add(&raw mut (*pace).lost, 1);
            return;
        }
        // It is a bool, beside which there is anything.
        let (account, flags) = if is_allocated & 0xff != 0 {
            (allocated, 0)
        } else {
            (freed, FREED)
        };
        begin(account, order);
        let Account {
            counter: known,
            told,
            size,
            before,
            carried,
            slice: _,
        } = account.read();
        count(usize::from(flags != 0), since);
        let smaller = since.saturating_sub(told) + carried;
        // What has its own size, if that was the last.
        let is_told = size > 0
            && if known == 0 {
                beyond < size && since >= size
            } else {
                counted.wrapping_sub(before) == size
            };
        (*account).counter = counter;
        (*account).told = 0;
        (*account).size = 0;
        if is_told {
            (*account).carried = smaller;
            return;
        }
        // What was smaller took it no further than this. It stands for what came since the one before would have done, if that had ended
        // where it made jemalloc stop: else who allocates more at a time would be met more often, and told with more.
        let beyond = if beyond < allocations::TOLD {
            beyond
        } else {
            0
        };
        (*account).carried = beyond;
        sample(order, pace, smaller.saturating_sub(beyond), beyond, flags);
    }
}

/// What is told with its own size is about to be allocated, or freed, and not counted yet.
#[inline(always)]
unsafe fn told(order: &Order, pace: *mut Pace, account: *mut Account, flags: u32, size: u64) {
    if !(allocations::TOLD + 1..allocations::MOST).contains(&size) {
        return;
    }
    // SAFETY: maps' values.
    unsafe {
        begin(account, order);
        let counted = match (*account).counter {
            0 => 0,
            counter => word(counter).unwrap_or(0),
        };
        // What is grown may be allocated anew: one function within the other.
        if (*account).size == size && (*account).before == counted && counted != 0 {
            return;
        }
        (*account).size = size;
        (*account).before = counted;
        (*account).told += size;
        sample(order, pace, size, allocations::TOLD_ALONE, flags);
    }
}

/// What was not seen to its end in an earlier slice is of no moment in this one.
#[inline(always)]
unsafe fn begin(account: *mut Account, order: &Order) {
    // SAFETY: a map's value.
    unsafe {
        if (*account).slice != order.slice {
            (*account).slice = order.slice;
            (*account).told = 0;
            (*account).size = 0;
            (*account).carried = 0;
        }
    }
}

/// So many more bytes were allocated, or freed.
#[inline(always)]
pub fn count(side: usize, bytes: u64) {
    if let Some(all) = ALLOCATED.get_ptr_mut(0) {
        // SAFETY: a map's value.
        unsafe { add(&raw mut (*all)[side & 1], bytes) };
    }
}

/// What stands for so many bytes is a sample as often as it stands for as many as a sample does at the least; and for more of them, where
/// there is little room for samples.
///
/// # Safety
/// The pace is a map's value.
#[inline(always)]
pub unsafe fn sample(order: &Order, pace: *mut Pace, bytes: u64, beyond: u64, flags: u32) {
    let least = order.period_ns * allocations::UNIT;
    let Some(bytes) = by_chance(bytes, least) else {
        return;
    };
    let samples = crowded(order);
    // SAFETY: a map's value.
    unsafe {
        add(&raw mut (*pace).taken, 1);
        let Some(bytes) = by_chance(bytes, least * u64::from(samples)) else {
            add(&raw mut (*pace).left_out, 1);
            return;
        };
        if !take(order, |head| {
            head.bytes = bytes;
            head.stands_for = samples;
            head.written = beyond;
            head.flags |= flags;
        }) {
            add(&raw mut (*pace).lost, 1);
        }
    }
}

/// For how many bytes one of so many stands, if that is to be `least` at the least: of those with fewer, some do for the others.
#[inline(always)]
fn by_chance(bytes: u64, least: u64) -> Option<u64> {
    if bytes >= least {
        return Some(bytes);
    }
    // SAFETY: the helper has no preconditions.
    let random = u64::from(unsafe { bpf_get_prandom_u32() });
    let chance = (random * (least >> 12)) >> 20;
    (chance < bytes).then_some(least)
}

/// A word of the process's.
#[inline(always)]
fn word(at: u64) -> Option<u64> {
    let mut word = 0_u64;
    // SAFETY: there is room for as many bytes as are read; the helper copes with any address.
    let read = unsafe { bpf_probe_read_user((&raw mut word).cast(), 8, at as *const c_void) };
    (read == 0).then_some(word)
}
