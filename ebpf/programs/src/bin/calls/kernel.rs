//! The same of the kernel's own functions. All processes call them, and the calls of one are recorded: the others cost as
//! little as can be, and are counted, since somebody pays for them.
//!
//! As at uprobes there are a session and a pair. The stack at a function's return is not that at its entry here, so the pair
//! knows a call by its thread and its slot: where that is found already at an entry, the function is called within itself, or
//! the kernel had no room to see the call before to its return. That one is then counted and not timed (see `take_up`). Sessions
//! know every call by itself.
//!
//! The kernel runs these programs with preemption disabled, one at a time on each CPU (`bpf_prog_active`): what an interrupt
//! calls while one of them runs, it leaves out.

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext,
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use ckb_probe_common::{CallKey, CallStart, Control, Cookie, Mark, Session};
use ckb_probe_programs::{
    helpers::{cookie, now, process},
    identity::Identity,
    session,
};

use crate::{NO_RETURN, control, key, pair_return, record, session_return, take_up};

#[unsafe(no_mangle)]
static IDENTITY: Identity = Identity::unset();

// Not by aya's macro, whose programs return 0 whatever is returned here.
#[unsafe(no_mangle)]
#[unsafe(link_section = "kprobe")]
extern "C" fn kernel_session(registers: *mut c_void) -> u32 {
    let context = ProbeContext::new(registers);
    if session::is_return(context.as_ptr()) {
        // SAFETY: the kernel's word, which the entry wrote.
        let remembered = unsafe { *session::word(context.as_ptr()) };
        session_return(&context, Session(remembered));
        return 0;
    }
    let Some(control) = control(&context) else {
        return NO_RETURN;
    };
    let cookie = cookie(&context);
    if !is_the_targets(control) {
        record::pass(cookie.slot());
        return NO_RETURN;
    }
    if !control.gate(cookie.slot()).takes_up(cookie.group()) {
        return NO_RETURN;
    }
    record::begin(cookie.slot(), cookie.slot(), cookie.group());
    let remembered = session::word(context.as_ptr());
    let session = Session::new(now(), cookie.slot(), cookie);
    // SAFETY: the kernel's word, valid while the program runs.
    unsafe { *remembered = session.0 };
    0
}

#[kprobe]
pub fn kernel_enter(context: ProbeContext) -> u32 {
    let Some(control) = control(&context) else {
        return 0;
    };
    let cookie = cookie(&context);
    if !is_the_targets(control) {
        record::pass(cookie.slot());
        return 0;
    }
    let gate = control.gate(cookie.slot());
    if !gate.takes_up(cookie.group()) {
        return 0;
    }
    let start = CallStart {
        mark: Mark::new(cookie.slot(), cookie.group(), gate.generation()),
        bytes: 0,
        time_ns: now(),
    };
    take_up(&key_of(cookie, control), start, cookie, control);
    0
}

#[kretprobe]
pub fn kernel_return(context: RetProbeContext) -> u32 {
    let Some(control) = control(&context) else {
        return 0;
    };
    if !is_the_targets(control) {
        return 0;
    }
    let now = now();
    let cookie = cookie(&context);
    pair_return(&context, now, &key_of(cookie, control), cookie, control);
    0
}

#[inline(always)]
fn is_the_targets(control: &Control) -> bool {
    process() == control.process && IDENTITY.runs(control.since_ns)
}

#[inline(always)]
fn key_of(cookie: Cookie, control: &Control) -> CallKey {
    key(0, cookie.slot(), cookie, control)
}
