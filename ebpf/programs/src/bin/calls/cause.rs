//! Compactions, flushes, syncs and stalls: what a slow call may be due to.

use aya_ebpf::{macros::map, maps::Array};
use ckb_probe_common::{Cause, Control, Cookie, MAX_CAUSE};
use ckb_probe_programs::counters::add;

/// By the number of the cause.
#[map]
static CAUSES: Array<Cause> = Array::with_max_entries(MAX_CAUSE as u32 + 1, 0);

/// Of those that have begun, how many ended unseen: user space writes it, which knows what is attached.
#[map]
static CAUSES_UNSEEN: Array<u64> = Array::with_max_entries(MAX_CAUSE as u32 + 1, 0);

/// The call that begins is one, unless the cookie says that it is none, or is seen for a slice only.
#[inline(always)]
pub fn begins(cookie: Cookie) {
    if cookie.cause() == 0 || cookie.is_sliced() {
        return;
    }
    if let Some(cause) = CAUSES.get_ptr_mut(cookie.cause()) {
        // SAFETY: a map's value.
        unsafe { add(&raw mut (*cause).running, 1) };
    }
}

/// The call that ends is one, unless the cookie says that it is none, or was seen for a slice only.
#[inline(always)]
pub fn ends(cookie: Cookie, now: u64) {
    if cookie.cause() == 0 || cookie.is_sliced() {
        return;
    }
    if let Some(cause) = CAUSES.get_ptr_mut(cookie.cause()) {
        // SAFETY: a map's value.
        unsafe {
            (&raw mut (*cause).ended_ns).write_volatile(now);
            add(&raw mut (*cause).running, u64::MAX);
        }
    }
}

/// Those that were under way at some time since `start_ns`, of those that are watched all of the time: bit n for cause n.
#[inline(always)]
pub fn since(start_ns: u64, control: &Control) -> u32 {
    let mut seen = 0;
    for number in 1..=MAX_CAUSE as u32 {
        if let (Some(cause), Some(unseen)) = (CAUSES.get(number), CAUSES_UNSEEN.get(number))
            && (cause.running != *unseen || cause.ended_ns >= start_ns)
        {
            seen |= 1 << number;
        }
    }
    seen & control.causes
}
