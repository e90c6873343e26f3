//! Hits of probes that a program has at any place, where more is looked at than that they are met. They have no return, but for those of
//! functions at whose return something ends: of such a call it is remembered what ends then, since its arguments are gone by that time.
//! A session has a word of the kernel's for that; of a pair it is with the calls that are in flight.

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext as _,
    macros::{map, uprobe, uretprobe},
    maps::Array,
    programs::{ProbeContext, RetProbeContext},
};
use ckb_probe_common::{
    CallStart, Control, Cookie, Mark,
    hits::{Hit, Role},
};
use ckb_probe_programs::{
    helpers::{cookie, now},
    session,
};

use crate::{
    NO_RETURN, control,
    in_flight::{self, Remembered},
    key, key_at_entry, nesting, probing, record, span, stack, value,
};

/// What is looked at, by place. The loader sets how many there are.
#[map]
pub static HITS: Array<Hit> = Array::with_max_entries(1, 0);

#[uprobe]
pub fn hit(context: ProbeContext) -> u32 {
    meet(&context);
    0
}

// What `call_session` is in one object with must be a session too, and say that there is no return to be seen.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
extern "C" fn hit_session(registers: *mut c_void) -> u32 {
    meet(&ProbeContext::new(registers));
    NO_RETURN
}

// Programs of their own for functions at whose return something ends: in one with the others there is no room on the stack.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
extern "C" fn end_session(registers: *mut c_void) -> u32 {
    // First, so that what comes after is not taken for a part of what ends here.
    let now = now();
    let context = ProbeContext::new(registers);
    let Some(met) = Met::at(&context) else {
        return NO_RETURN;
    };
    let remembered = session::word(context.as_ptr());
    // The word may be 0 at either end: so may an argument.
    if session::is_return(context.as_ptr()) {
        let gate = met.control.gate(met.cookie.slot());
        if gate.records(met.cookie.group()) {
            // SAFETY: see `session::word`.
            leave(&context, &met, unsafe { *remembered }, now);
        }
        return 0;
    }
    let Some(number) = enter(&context, &met) else {
        return NO_RETURN;
    };
    // SAFETY: see `session::word`.
    unsafe { *remembered = number };
    0
}

#[uprobe]
pub fn end_enter(context: ProbeContext) -> u32 {
    let Some(met) = Met::at(&context) else {
        return 0;
    };
    let Some(number) = enter(&context, &met) else {
        return 0;
    };
    let (cookie, control) = (met.cookie, met.control);
    let generation = control.gate(cookie.slot()).generation();
    let start = CallStart {
        time_ns: 0,
        bytes: number,
        mark: Mark::new(cookie.slot(), cookie.group(), generation),
    };
    let call = key_at_entry(context.regs, cookie, control);
    if in_flight::remember(&call, start) == Remembered::Not {
        met.forsake(number);
    }
    0
}

#[uretprobe]
pub fn end_return(context: RetProbeContext) -> u32 {
    // First, as above.
    let now = now();
    let context = ProbeContext::new(context.as_ptr());
    let Some(met) = Met::at(&context) else {
        return 0;
    };
    let (cookie, control) = (met.cookie, met.control);
    let call = key(stack(context.regs), cookie.slot(), cookie, control);
    // Where there is none, the call began before it was watched.
    if let Some(start) = in_flight::recall(&call)
        && start.mark.passes(control.gate(cookie.slot()))
    {
        leave(&context, &met, start.bytes, now);
    }
    0
}

/// What is met, and what is asked of it.
struct Met {
    cookie: Cookie,
    control: &'static Control,
    hit: &'static Hit,
}

impl Met {
    #[inline(always)]
    fn at(context: &ProbeContext) -> Option<Self> {
        let cookie = cookie(context);
        Some(Self {
            cookie,
            control: control(context)?,
            hit: HITS.get(cookie.place())?,
        })
    }

    /// What would end by this number is over.
    #[inline(always)]
    fn forsake(&self, number: u64) {
        let key = span::key_of(number, self.hit, self.cookie, self.control);
        span::forsake(&key, self.cookie, self.control);
    }
}

/// A function begins at whose return something ends: by which number that is known, if its return is going to be seen.
#[inline(always)]
fn enter(context: &ProbeContext, met: &Met) -> Option<u64> {
    let (cookie, control) = (met.cookie, met.control);
    probing::add_entry(cookie.slot(), control);
    if !control.gate(cookie.slot()).attends(cookie.group()) {
        return None;
    }
    record::hit(cookie.slot());
    let Some(number) = span::number(context, met.hit, cookie) else {
        value::lose_end(cookie);
        return None;
    };
    if nesting::is_too_deep() {
        met.forsake(number);
        return None;
    }
    Some(number)
}

/// It returns.
#[inline(always)]
fn leave(context: &ProbeContext, met: &Met, number: u64, now: u64) {
    let (cookie, control) = (met.cookie, met.control);
    let key = span::key_of(number, met.hit, cookie, control);
    span::end(context, &key, cookie, control, now);
    probing::add_entry(cookie.slot(), control);
}

#[inline(always)]
fn meet(context: &ProbeContext) {
    // First, as above.
    let now = now();
    let cookie = cookie(context);
    let Some(control) = control(context) else {
        return;
    };
    let gate = control.gate(cookie.slot());
    let Some(hit) = HITS.get(cookie.place()) else {
        return;
    };
    if hit.role == Role::Ends as u32 {
        // Whichever attachment saw the beginning, the one that is in charge sees the end.
        if gate.attends(cookie.group()) {
            record::hit(cookie.slot());
            match span::key(context, hit, cookie, control) {
                Some(key) => span::end(context, &key, cookie, control, now),
                None => value::lose_end(cookie),
            }
        }
        probing::add_entry(cookie.slot(), control);
        return;
    }
    probing::add_entry(cookie.slot(), control);
    if !gate.takes_up(cookie.group()) {
        return;
    }
    if hit.role == Role::Begins as u32 {
        match span::key(context, hit, cookie, control) {
            Some(key) => span::begin(context, hit, cookie, control, &key),
            None => record::untimed(cookie.slot(), 0, cookie),
        }
    } else {
        let slot = value::slot_if_asked(context, hit, cookie.slot());
        record::untimed(slot, 0, cookie);
    }
}
