//! The `traceparent` that something began with, kept until it has ended: of what that is asked of.

use aya_ebpf::{
    helpers::bpf_probe_read_user_str_bytes, macros::map, maps::HashMap, programs::ProbeContext,
};
use ckb_probe_common::{
    CallKey,
    hits::{Hit, TRACEPARENT_BYTES, Traceparent},
};

use crate::{operand, value};

/// By what is in flight, which says whether there is one. The loader sets how many: as many as may be in flight.
#[map]
static PARENTS: HashMap<CallKey, Traceparent> = HashMap::with_max_entries(1, 0);

/// Keeps that of what begins here, in place of that of what began before by the same key. False where there is none.
#[inline(never)]
pub fn keep(context: &ProbeContext, hit: &Hit, key: &CallKey, operation: u32) -> bool {
    let mut parent = Traceparent {
        text: [0; TRACEPARENT_BYTES],
    };
    match read(context, hit, &mut parent) {
        Read::Nothing => {}
        // There is room for as many as may be in flight, but while one goes.
        Read::Text if PARENTS.insert(key, &parent, 0).is_ok() => return true,
        Read::Text | Read::Not => value::lose_argument(operation),
    }
    forget(key);
    false
}

/// What an argument was found to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    /// An address of nothing, or of an empty text.
    Nothing,
    /// A text.
    Text,
    /// It is not in memory.
    Not,
}

#[inline(always)]
fn read(context: &ProbeContext, hit: &Hit, parent: &mut Traceparent) -> Read {
    let mut address = 0;
    if !operand::read(context, &hit.parent, &mut address) {
        return Read::Not;
    }
    if address == 0 {
        return Read::Nothing;
    }
    // SAFETY: the helper checks the address itself.
    match unsafe { bpf_probe_read_user_str_bytes(address as *const u8, &mut parent.text) } {
        Ok([]) => Read::Nothing,
        Ok(_) => Read::Text,
        Err(_) => Read::Not,
    }
}

/// That of what began by this key.
#[inline(always)]
pub fn of(key: &CallKey) -> Option<&'static Traceparent> {
    // SAFETY: who has ended what began by this key is the only one that does anything with it.
    unsafe { PARENTS.get(key) }
}

/// Forgets it.
#[inline(always)]
pub fn forget(key: &CallKey) {
    // Where there is none, there is nothing to forget.
    let _ = PARENTS.remove(key);
}
