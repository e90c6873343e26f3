//! Latency of function calls, any number of functions by the same few programs.
//!
//! The attach cookie says which slot a site counts in, where its payload size and its column family are, and what
//! counts as slow. Everything is aggregated here, per CPU; only slow calls leave the kernel one by one. Sizes of the
//! maps are set by the loader, for one target each.
//!
//! Three ways to see a call: `call_session` at both its ends (what it has to remember, the kernel keeps with the
//! call), `call_enter` and `call_return` as a pair (what they remember is in a table), and `call_count` at its entry
//! only, where its return must not be touched (a session does so where its cookie says it). Places at which arguments are looked at
//! that no calling convention knows have programs of their own: see `hit` and `emit`. Functions of the kernel have programs of their own, which share all that
//! is recorded: see `kernel`.
#![no_std]
#![no_main]

mod arguments;
mod caller;
mod cause;
mod emit;
mod family;
mod file_io;
mod hit;
mod in_flight;
mod kept;
mod kernel;
mod nesting;
mod operand;
mod parent;
mod probing;
mod record;
mod span;
mod stack;
mod value;

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    macros::{map, uprobe, uretprobe},
    maps::Array,
    programs::{ProbeContext, RetProbeContext},
};
use ckb_probe_common::{CallKey, CallStart, Control, Cookie, Mark, Session};
use ckb_probe_programs::{
    calls::NO_RETURN,
    helpers::{cookie, now, thread},
    registers::{self, POPPED_BY_RETURN},
    session,
};
use in_flight::Remembered;
use record::Call;

/// What user space has to say.
#[map]
static CONTROL: Array<Control> = Array::with_max_entries(1, 0);

// Not by aya's macro, whose programs return 0 whatever is returned here: the return of a call that is not taken up would be
// touched all the same, and met as if it were an entry.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
extern "C" fn call_session(registers: *mut c_void) -> u32 {
    let context = ProbeContext::new(registers);
    let remembered = session::word(context.as_ptr());
    // SAFETY: see there.
    match unsafe { *remembered } {
        0 => session_enter(&context, remembered),
        session => {
            session_return(&context, Session(session));
            0
        }
    }
}

#[inline(always)]
fn session_enter(context: &ProbeContext, remembered: *mut u64) -> u32 {
    let cookie = cookie(context);
    let Some(control) = control(context) else {
        return NO_RETURN;
    };
    if !control.gate(cookie.slot()).takes_up(cookie.group()) {
        probing::add_entry(cookie.slot(), control);
        return NO_RETURN;
    }
    let slot = family::slot(context, cookie, control);
    if cookie.is_counted_only() || nesting::is_too_deep() {
        count_only(context, slot, cookie, control);
        return NO_RETURN;
    }
    let probed = probing::so_far();
    let bytes = arguments::at_entry(context, stack(context.regs), cookie.payload());
    if bytes > 0 {
        let key = key_at_entry(context.regs, cookie, control);
        let start = CallStart {
            time_ns: 0,
            bytes,
            mark: Mark::default(),
        };
        if in_flight::remember(&key, start) == Remembered::Not {
            record::lose_size();
        }
    }
    if cookie.keeps_arguments() {
        kept::keep(context, cookie);
    }
    cause::begins(cookie);
    record::begin(cookie.slot(), slot, cookie.group());
    file_io::begins(control.files(cookie.slot()));
    // Last, so that what came before is not charged to the call.
    let session = Session::new(now().wrapping_sub(probed), slot, cookie);
    // SAFETY: see `session::word`.
    unsafe { *remembered = session.0 };
    0
}

#[inline(always)]
fn session_return(context: &ProbeContext, session: Session) {
    // First, so that what comes after is not charged to the call.
    let now = now();
    let traits = session.traits();
    let Some(control) = control(context) else {
        return;
    };
    let operation = family::operation(session.slot(), control);
    let bytes = if arguments::are_known_at_entry(traits.payload()) {
        let key = key(stack(context.regs), operation, traits, control);
        in_flight::recall(&key).map_or(0, |start| start.bytes)
    } else {
        0
    };
    if !control.gate(operation).records(traits.group()) {
        return;
    }
    cause::ends(traits, now);
    let probed = probing::after(operation, control);
    let lasted_ns = probing::floored(session.elapsed_ns(now.wrapping_sub(probed)));
    let call = Call {
        operation,
        slot: session.slot(),
        group: traits.group(),
        ended_ns: now,
        duration_ns: lasted_ns.saturating_sub(control.trap_ns),
        bytes: arguments::at_return(context.regs, bytes, traits.payload()),
        registers: context.regs,
        parent: None,
        number: 0,
        began_on: 0,
    };
    record::call(&call, control);
}

#[uprobe]
pub fn call_enter(context: ProbeContext) -> u32 {
    let cookie = cookie(&context);
    let Some(control) = control(&context) else {
        return 0;
    };
    let gate = control.gate(cookie.slot());
    if !gate.takes_up(cookie.group()) {
        probing::add_entry(cookie.slot(), control);
        return 0;
    }
    let slot = family::slot(&context, cookie, control);
    if nesting::is_too_deep() {
        count_only(&context, slot, cookie, control);
        return 0;
    }
    let probed = probing::so_far();
    if cookie.keeps_arguments() {
        kept::keep(&context, cookie);
    }
    file_io::begins(control.files(cookie.slot()));
    let key = key_at_entry(context.regs, cookie, control);
    let start = CallStart {
        mark: Mark::new(slot, cookie.group(), gate.generation()),
        bytes: arguments::at_entry(&context, stack(context.regs), cookie.payload()),
        // Last, so that what came before is not charged to the call.
        time_ns: now().wrapping_sub(probed),
    };
    take_up(&key, start, cookie, control);
    0
}

/// Takes up a call that is seen by a pair.
#[inline(always)]
fn take_up(key: &CallKey, start: CallStart, cookie: Cookie, control: &Control) {
    match in_flight::remember(key, start) {
        Remembered::Not => {
            record::lose_call();
            return;
        }
        // It was unwound, or the kernel did not see it to its end.
        Remembered::InsteadOf(mark) if mark.passes(control.gate(cookie.slot())) => {
            cause::ends(cookie, now());
            record::vanish(mark);
        }
        Remembered::InsteadOf(_) | Remembered::Alone => {}
    }
    cause::begins(cookie);
    record::begin(cookie.slot(), start.mark.slot(), cookie.group());
}

#[uretprobe]
pub fn call_return(context: RetProbeContext) -> u32 {
    // First, so that what comes after is not charged to the call.
    let now = now();
    let cookie = cookie(&context);
    let Some(control) = control(&context) else {
        return 0;
    };
    let key = key(stack(context.regs), cookie.slot(), cookie, control);
    pair_return(&context, now, &key, cookie, control);
    0
}

#[inline(always)]
fn pair_return(
    context: &RetProbeContext,
    now: u64,
    key: &CallKey,
    cookie: Cookie,
    control: &Control,
) {
    let Some(start) = in_flight::recall(key) else {
        // The call began before the probe was attached, or in a slice that is over.
        return;
    };
    if !start.mark.passes(control.gate(cookie.slot())) {
        return;
    }
    cause::ends(cookie, now);
    let probed = probing::after(cookie.slot(), control);
    let call = Call {
        bytes: arguments::at_return(context.regs, start.bytes, cookie.payload()),
        ..Call::of(start, cookie.slot(), now, probed, control, context.regs)
    };
    record::call(&call, control);
}

#[uprobe]
pub fn call_count(context: ProbeContext) -> u32 {
    let cookie = cookie(&context);
    let Some(control) = control(&context) else {
        return 0;
    };
    if control.gate(cookie.slot()).takes_up(cookie.group()) {
        let slot = family::slot(&context, cookie, control);
        count_only(&context, slot, cookie, control);
    } else {
        probing::add_entry(cookie.slot(), control);
    }
    0
}

/// Counts a call at its entry, which is all that is seen of it.
#[inline(always)]
fn count_only(context: &ProbeContext, slot: u32, cookie: Cookie, control: &Control) {
    probing::add_entry(cookie.slot(), control);
    let bytes = if arguments::are_values(cookie.payload()) {
        arguments::at_entry(context, stack(context.regs), cookie.payload())
    } else {
        0
    };
    record::untimed(slot, bytes, cookie);
}

/// What user space has to say: always there, so this is the place for what no program comes by.
#[inline(always)]
fn control(context: &impl EbpfContext) -> Option<&'static Control> {
    let control = CONTROL.get(0);
    if control.is_none() {
        stack::stay_on_the_threads(context);
    }
    control
}

#[inline(always)]
fn stack(registers: *const pt_regs) -> u64 {
    // SAFETY: the kernel hands the program a valid pt_regs for as long as it runs.
    unsafe { *registers::stack(registers) }
}

#[inline(always)]
fn key_at_entry(registers: *const pt_regs, cookie: Cookie, control: &Control) -> CallKey {
    key(
        stack(registers).wrapping_add(POPPED_BY_RETURN),
        cookie.slot(),
        cookie,
        control,
    )
}

#[inline(always)]
fn key(stack: u64, slot: u32, traits: Cookie, control: &Control) -> CallKey {
    let slice = if traits.is_sliced() { control.slice } else { 0 };
    CallKey::new(slice, slot, thread(), stack)
}

ckb_probe_programs::end!();
