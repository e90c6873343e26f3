//! Hits of probes that a program has at any place, where more is looked at than that they are met. They have no return.

use core::ffi::c_void;

use aya_ebpf::{
    macros::{map, uprobe},
    maps::Array,
    programs::ProbeContext,
};
use ckb_probe_common::hits::Hit;

use crate::{NO_RETURN, control, cookie, probing, record, value};

/// What is looked at, by place. The loader sets how many there are.
#[map]
static HITS: Array<Hit> = Array::with_max_entries(1, 0);

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
    let cookie = cookie(context);
    let Some(control) = control(context) else {
        return;
    };
    probing::add_entry(cookie.slot(), control);
    if !control.gate(cookie.slot()).takes_up(cookie.group()) {
        return;
    }
    if let Some(hit) = HITS.get(cookie.place()) {
        let slot = value::slot(context, hit, cookie.slot());
        record::untimed(slot, 0, cookie);
    }
}
