//! What one thread of a process does between the beginning of a database transaction and its commit, as one thing: a span.
//!
//! The thread is known by its name, and found at the first transaction that it begins. From then on each program compares one
//! number to leave all others alone. A span's state, and all that is counted, has this one thread as its only writer, so
//! nothing here is atomic.
//!
//! A span is counted where its end is seen. One that was under way as counting ceased, or whose successor begins first,
//! is counted as unseen and as nothing else.
#![no_std]
#![no_main]

mod account;
#[allow(
    dead_code,
    reason = "operations are not told apart by whether their stacks are copied"
)]
#[path = "../calls/caller.rs"]
mod caller;
mod families;
mod names;
#[path = "../calls/stack.rs"]
mod stack;
mod stacks;
mod usage;

/// What copies stacks counts by this.
mod record {
    pub use ckb_probe_programs::counters::add;
}

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::bpf_get_current_comm,
    macros::map,
    maps::{Array, PerCpuArray},
    programs::ProbeContext,
};
use ckb_probe_common::spans::{OPERATIONS, SpanControl, SpanState, role};
use ckb_probe_programs::{
    column_family::read_user,
    helpers::{cookie, now, thread},
    registers::argument,
};

/// What user space has to say.
#[map]
static CONTROL: Array<SpanControl> = Array::with_max_entries(1, 0);

/// The span that is under way.
#[map]
static STATE: Array<SpanState> = Array::with_max_entries(1, 0);

/// By slot, calls of other threads and then calls of the thread: the one is met at its entry only.
#[map]
static HITS: PerCpuArray<[u64; 2]> = PerCpuArray::with_max_entries(OPERATIONS as u32, 0);

ckb_probe_programs::call_programs!(enters, returns);

/// Whether its return matters: that of the thread's calls, but for those that are counted only.
#[inline(always)]
fn enters(context: &ProbeContext) -> bool {
    let (Some(control), Some(state)) = (CONTROL.get(0), STATE.get_ptr_mut(0)) else {
        // Always there, so this is the place for what no program comes by.
        stack::stay_on_the_threads(context);
        return false;
    };
    if control.open == 0 {
        return false;
    }
    let cookie = cookie(context);
    let slot = cookie.slot() as usize & (OPERATIONS - 1);
    let role = control.roles[slot];
    let thread = thread();
    // SAFETY: a map's value. Only the thread that it names writes to it, or one that takes its place.
    unsafe {
        let own = (*state).thread == thread
            || (role == role::BEGIN && takes_over(state, thread, control));
        hit(slot, own);
        if !own {
            return false;
        }
        if (*state).generation != control.generation {
            account::begin_anew(state, control.generation);
        }
        usage::look_at_clock();
        families::take_down(state, control, context.regs, cookie);
        let family = (&raw const (*state).family).read_volatile();
        match role {
            role::BEGIN => account::begin(state),
            role::DROP => account::drop(state, control),
            role::PUT | role::DELETE => names::note(state, context.regs, role, family),
            role::PHASE => account::begin_phase(state),
            role::COMMIT => (*state).error = argument::<1>(context.regs).read_volatile(),
            _ => {}
        }
        // Last, so that what came before is not charged to the call.
        (*state).entered[slot] = now();
    }
    !cookie.is_counted_only()
}

#[inline(always)]
fn returns(context: &impl EbpfContext, _registers: *const pt_regs) {
    // First, so that what comes after is not charged to the call.
    let now = now();
    let (Some(control), Some(state)) = (CONTROL.get(0), STATE.get_ptr_mut(0)) else {
        stack::stay_on_the_threads(context);
        return;
    };
    let slot = cookie(context).slot() as usize & (OPERATIONS - 1);
    // SAFETY: as above.
    unsafe {
        if control.open == 0
            || (*state).thread != thread()
            || (*state).generation != control.generation
        {
            return;
        }
        let entered = (*state).entered[slot];
        // It began before counting did.
        if entered == 0 {
            return;
        }
        (*state).entered[slot] = 0;
        let lasted_ns = now.saturating_sub(entered).saturating_sub(control.trap_ns);
        account::call(state, (*state).within[slot], lasted_ns);
        if control.roles[slot] == role::PHASE {
            account::end_phase(state, lasted_ns);
        }
        stacks::call(context, state, control, slot, lasted_ns);
        if control.roles[slot] == role::COMMIT && read_user((*state).error).unwrap_or(0) == 0 {
            stacks::end(context, state, control, slot, now);
            account::commit(state, control, now);
        }
    }
}

/// Whether this thread is the one that is asked about, which it then is from now on.
///
/// # Safety
/// The state is a map's value.
#[inline(always)]
unsafe fn takes_over(state: *mut SpanState, thread: u32, control: &SpanControl) -> bool {
    let Ok(name) = bpf_get_current_comm() else {
        return false;
    };
    let words = |name: &[u8; 16]| {
        let word = |at: usize| {
            u64::from_ne_bytes([
                name[at],
                name[at + 1],
                name[at + 2],
                name[at + 3],
                name[at + 4],
                name[at + 5],
                name[at + 6],
                name[at + 7],
            ])
        };
        (word(0), word(8))
    };
    if words(&name) != words(&control.thread_name) {
        return false;
    }
    // SAFETY: by the caller's word.
    unsafe {
        account::begin_anew(state, control.generation);
        (*state).thread = thread;
    }
    true
}

#[inline(always)]
fn hit(slot: usize, own: bool) {
    if let Some(hits) = HITS.get_ptr_mut(slot as u32) {
        // Not atomic: for the overhead's estimate only.
        // SAFETY: a map's value.
        unsafe { (*hits)[usize::from(own)] += 1 };
    }
}

ckb_probe_programs::end!();
