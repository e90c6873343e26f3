//! Hits of probes that a program has at any place, where more is looked at than that they are met. They have no return.

use core::ffi::c_void;

use aya_ebpf::{
    macros::{map, uprobe},
    maps::Array,
    programs::ProbeContext,
};
use ckb_probe_common::hits::{Hit, Role};
use ckb_probe_programs::helpers::{cookie, now};

use crate::{NO_RETURN, control, probing, record, span, value};

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

#[inline(always)]
fn meet(context: &ProbeContext) {
    // First, so that what comes after is not taken for a part of what ends here.
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
