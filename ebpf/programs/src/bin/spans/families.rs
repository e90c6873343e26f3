//! Which column family a call is on, what that is to a span, and where its calls count.
//!
//! A handle's family is read from its memory, and its address is known from then on. Between two readings of user space it is looked at once more: a database that was closed and opened again may have
//! another family's handle there.

use aya_ebpf::{
    bindings::pt_regs,
    helpers::bpf_probe_read_user_str_bytes,
    macros::map,
    maps::{Array, HashMap},
};
use ckb_probe_common::{
    Cookie, FamilyArgument, FamilyKey,
    spans::{OPERATIONS, PARTS, SpanControl, SpanHandle, SpanPart, SpanState, family},
};
use ckb_probe_programs::column_family::{handle, id_and_text, read_user};

/// What is known of each handle, by operation. What finds no room is looked up at each call.
#[map]
static HANDLES: HashMap<FamilyKey, SpanHandle> = HashMap::with_max_entries(512, 0);

/// What parts are of; those of the operations themselves are not there.
#[map]
static FAMILIES: Array<SpanPart> = Array::with_max_entries(PARTS as u32, 0);

/// Takes down in which part a call counts, and what its family is: in the state, which the verifier knows nothing of. What it can tell
/// apart it looks at again with each call that follows, and there is a part for each family.
///
/// # Safety
/// The state is a map's value, and the registers are those of the call at its entry.
#[inline(always)]
pub unsafe fn take_down(
    state: *mut SpanState,
    control: &SpanControl,
    registers: *const pt_regs,
    cookie: Cookie,
) {
    let argument = cookie.family();
    let slot = cookie.slot() & (OPERATIONS as u32 - 1);
    if argument == FamilyArgument::None as u8 {
        // SAFETY: by the caller's word.
        unsafe { note(state, slot, slot, family::OTHER) };
        return;
    }
    let key = FamilyKey {
        // SAFETY: by the caller's word.
        handle: unsafe { handle(registers, argument) },
        slot: u64::from(slot),
    };
    if let Some(known) = HANDLES.get_ptr(&key) {
        // SAFETY: a map's value: entries are not removed.
        let known = unsafe { *known };
        if known.epoch == control.epoch {
            // SAFETY: by the caller's word.
            unsafe { note(state, slot, known.part, known.family) };
            return;
        }
    }
    // SAFETY: by the caller's word.
    unsafe { look_up(state, &key, control) };
}

/// Reads of which family a handle is.
#[inline(never)]
unsafe fn look_up(state: *mut SpanState, key: &FamilyKey, control: &SpanControl) {
    let slot = key.slot as u32;
    // SAFETY: by the caller's word.
    unsafe {
        match read(state, key, control) {
            Some(known) => {
                let _ = HANDLES.insert(key, &known, 0);
                note(state, slot, known.part, known.family);
            }
            None => note(state, slot, slot, family::OTHER),
        }
    }
}

#[inline(always)]
unsafe fn note(state: *mut SpanState, slot: u32, part: u32, family: u32) {
    // SAFETY: by the caller's word. Within the array, by the mask.
    unsafe {
        (*state).within[slot as usize & (OPERATIONS - 1)] = part;
        (*state).family = family;
    }
}

#[inline(always)]
unsafe fn read(
    state: *mut SpanState,
    key: &FamilyKey,
    control: &SpanControl,
) -> Option<SpanHandle> {
    let (id, text) = id_and_text(key.handle)?;
    // A string's own room is of sixteen bytes, so that there are eight to be read of the shortest.
    let begins = read_user(text)?;
    let is = |[wanted, mask]: [u64; 2]| mask != 0 && begins & mask == wanted;
    let slot = key.slot as u32;
    Some(SpanHandle {
        part: match control.by_family {
            0 => slot,
            // SAFETY: by the caller's word.
            _ => unsafe { part(state, slot, id, text) },
        },
        family: if is(control.names) {
            family::NAMES
        } else if is(control.units) {
            family::UNITS
        } else {
            family::OTHER
        },
        epoch: control.epoch,
        id,
    })
}

/// The part of an operation on a family: one that there is, or a new one, or where there is no more room that of the operation.
#[inline(always)]
unsafe fn part(state: *mut SpanState, slot: u32, id: u32, text: u64) -> u32 {
    // SAFETY: by the caller's word. Only the thread that is asked about comes here.
    let used = unsafe { (*state).parts }.max(OPERATIONS as u32);
    for at in OPERATIONS as u32..PARTS as u32 {
        let Some(known) = FAMILIES.get_ptr_mut(at) else {
            return slot;
        };
        // SAFETY: a map's value.
        unsafe {
            if at >= used {
                (*known).slot = slot;
                (*known).family = id;
                // What cannot be read stays empty, and the number names it.
                let _ = bpf_probe_read_user_str_bytes(text as *const u8, &mut (*known).name);
                (*state).parts = at + 1;
                return at;
            }
            if (*known).slot == slot && (*known).family == id {
                return at;
            }
        }
    }
    slot
}
