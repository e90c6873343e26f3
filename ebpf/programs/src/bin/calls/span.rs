//! Time between two probes: from one that is met as something begins to one that is met as it ends, which need not be in one function
//! nor, where an argument says what belongs together, in one thread.

use aya_ebpf::{bindings::BPF_NOEXIST, macros::map, maps::HashMap, programs::ProbeContext};
use ckb_probe_common::{Begun, CallKey, CallStart, Control, Cookie, Mark, hits::Hit};
use ckb_probe_programs::helpers::{now, thread};

use crate::{operand, parent, probing, record, value};

/// What has begun and not ended. Not with the calls of functions, which are found in fewer steps, and of which none may be lost since
/// something else is never seen to end. The loader sets how many there may be.
#[map]
static SPANS: HashMap<CallKey, CallStart> = HashMap::with_max_entries(1, 0);

/// Something begins. A function by itself, as the end is: one program has no room on its stack for both.
#[inline(never)]
pub fn begin(context: &ProbeContext, hit: &Hit, cookie: Cookie, control: &Control, key: &CallKey) {
    let slot = value::slot_if_asked(context, hit, cookie.slot());
    let probed = probed(key);
    let gate = control.gate(cookie.slot());
    let start = CallStart {
        time_ns: now(),
        bytes: Begun::of(thread(), false).0,
        mark: Mark::new(slot, cookie.group(), gate.generation()),
    };
    if SPANS.insert(key, &start, BPF_NOEXIST as u64).is_err() {
        // SAFETY: a word, which is written once.
        let Some(before) = (unsafe { SPANS.get(key) }).map(|start| start.mark) else {
            // There is no room.
            record::lose_call();
            record::hit(cookie.slot());
            return;
        };
        if SPANS.insert(key, &start, 0).is_err() {
            record::lose_call();
            record::hit(cookie.slot());
            return;
        }
        // It began once more, and what began before was not seen to end.
        if before.passes(gate) {
            record::vanish(before);
        }
    }
    record::begin(cookie.slot(), slot, cookie.group());
    let has_parent = hit.parent.bytes != 0 && parent::keep(context, hit, key, cookie.slot());
    if let Some(start) = SPANS.get_ptr_mut(key) {
        if has_parent {
            // SAFETY: a map's value.
            unsafe { (&raw mut (*start).bytes).write_volatile(Begun::of(thread(), true).0) };
        }
        // Last, so that what came before is not taken for a part of it.
        // SAFETY: a map's value.
        unsafe { (&raw mut (*start).time_ns).write_volatile(now().wrapping_sub(probed)) };
    }
}

/// Something ended at `now`.
#[inline(never)]
pub fn end(context: &ProbeContext, key: &CallKey, cookie: Cookie, control: &Control, now: u64) {
    let probed = probed(key);
    let Some(start) = take(key) else {
        value::lose_end(cookie);
        return;
    };
    // Read twice, or all that is between would be compiled twice.
    // SAFETY: it is on this program's stack.
    let begun = || Begun(unsafe { (&raw const start.bytes).read_volatile() });
    if start.mark.passes(control.gate(cookie.slot())) {
        let call = record::Call {
            bytes: 0,
            parent: begun().has_parent().then_some(key),
            number: key.stack,
            began_on: begun().thread(),
            ..record::Call::of(start, cookie.slot(), now, probed, control, context.regs)
        };
        record::call(&call, control);
    }
    if begun().has_parent() {
        // Last, since it is told from where it is kept.
        parent::forget(key);
    }
}

/// The end of what began by this key would be next, and will not be seen: it is over, and not timed. What ends later is not its end.
#[inline(never)]
pub fn forsake(key: &CallKey, cookie: Cookie, control: &Control) {
    if let Some(start) = take(key) {
        if start.mark.passes(control.gate(cookie.slot())) {
            record::vanish(start.mark);
        }
        if Begun(start.bytes).has_parent() {
            parent::forget(key);
        }
    }
}

/// Takes what began by this key.
#[inline(always)]
fn take(key: &CallKey) -> Option<CallStart> {
    // SAFETY: copied at once. Of two threads that end the same at the same time, one removes it.
    let start = unsafe { SPANS.get(key) }.copied();
    start.filter(|_| SPANS.remove(key).is_ok())
}

/// What probing has taken by now of the thread in which all of it is. Of what may begin in one and end in another there is no such
/// thread: what it took of the one says nothing of the other, and none of it is taken off.
#[inline(always)]
fn probed(key: &CallKey) -> u64 {
    match key.is_of_a_thread() {
        true => probing::so_far(),
        false => 0,
    }
}

/// What a beginning and its end have in common: the thread, or an argument. None where that cannot be read.
#[inline(always)]
pub fn key(
    context: &ProbeContext,
    hit: &Hit,
    cookie: Cookie,
    control: &Control,
) -> Option<CallKey> {
    let number = number(context, hit, cookie)?;
    Some(key_of(number, hit, cookie, control))
}

/// The argument that they have in common, or 0 where that is the thread. None where it cannot be read.
#[inline(always)]
pub fn number(context: &ProbeContext, hit: &Hit, cookie: Cookie) -> Option<u64> {
    let mut number = 0;
    if hit.key.bytes != 0 && !operand::read(context, &hit.key, &mut number) {
        value::lose_argument(cookie.slot());
        return None;
    }
    Some(number)
}

/// The key of which the number is known.
#[inline(always)]
pub fn key_of(number: u64, hit: &Hit, cookie: Cookie, control: &Control) -> CallKey {
    let slice = if cookie.is_sliced() { control.slice } else { 0 };
    let thread = if hit.key.bytes == 0 { thread() } else { 0 };
    CallKey::new(slice, cookie.slot(), thread, number)
}
