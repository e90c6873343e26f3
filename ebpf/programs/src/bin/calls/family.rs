//! Which column family a call is on.
//!
//! It is read once for each handle and operation; after that the handle's address is known. Between two readings of user space the
//! number is looked at once more: a database that was closed and opened again may have another family's handle there.

use aya_ebpf::{
    helpers::bpf_probe_read_user_str_bytes,
    macros::map,
    maps::{Array, HashMap},
    programs::ProbeContext,
};
use ckb_probe_common::{Control, Cookie, Family, FamilyArgument, FamilyKey, FamilySlot};
use ckb_probe_programs::{
    column_family::{handle, id_and_text},
    counters::next,
};

/// The slot of each handle and operation seen.
#[map]
static FAMILY_SLOTS: HashMap<FamilyKey, FamilySlot> = HashMap::with_max_entries(1, 0);

/// What is known of each; the loader sets how many there may be.
#[map]
static FAMILIES: Array<Family> = Array::with_max_entries(1, 0);

/// How many have been asked for.
#[map]
static FAMILY_COUNT: Array<u64> = Array::with_max_entries(1, 0);

/// Where the call counts: in the slot of its column family, where that is asked for and known, or of the operation.
#[inline(always)]
pub fn slot(context: &ProbeContext, cookie: Cookie, control: &Control) -> u32 {
    let argument = cookie.family();
    if argument == FamilyArgument::None as u8 {
        return cookie.slot();
    }
    let key = FamilyKey {
        // SAFETY: the kernel hands the program a valid pt_regs for as long as it runs.
        handle: unsafe { handle(context.regs, argument) },
        slot: cookie.slot() as u64,
    };
    let Some(known) = FAMILY_SLOTS.get_ptr_mut(&key) else {
        return first_seen(&key, control).unwrap_or(cookie.slot());
    };
    // SAFETY: a map's value: entries are not removed. Whichever thread looks first, looks for all.
    let (slot, looked) = unsafe { ((*known).slot, &raw mut (*known).epoch) };
    // SAFETY: as above.
    if unsafe { looked.read_volatile() } != control.epoch {
        // SAFETY: as above.
        unsafe { looked.write_volatile(control.epoch) };
        if is_another(&key, slot, control) {
            return first_seen(&key, control).unwrap_or(cookie.slot());
        }
    }
    slot
}

/// Whether there is another family's handle now than the one that has this slot.
#[inline(never)]
fn is_another(key: &FamilyKey, slot: u32, control: &Control) -> bool {
    let index = slot.wrapping_sub(control.first_family);
    match (FAMILIES.get(index), id_and_text(key.handle)) {
        (Some(family), Some((id, _))) => family.id != id,
        // It counts with the operation's others, or cannot be read now.
        _ => false,
    }
}

/// The operation of a slot.
#[inline(always)]
pub fn operation(slot: u32, control: &Control) -> u32 {
    if slot < control.first_family {
        return slot;
    }
    FAMILIES
        .get(slot.wrapping_sub(control.first_family))
        .map_or(0, |family| family.slot)
}

/// Takes up a column family. None where its memory cannot be read now: the next call tries again.
#[inline(never)]
fn first_seen(key: &FamilyKey, control: &Control) -> Option<u32> {
    let (id, text) = id_and_text(key.handle)?;
    let count = FAMILY_COUNT.get_ptr_mut(0)?;
    // SAFETY: a map's value.
    let index = unsafe { next(count) };
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    let slot = match FAMILIES.get_ptr_mut(index) {
        Some(family) => {
            // SAFETY: a map's value, which no other program run was given this index of.
            unsafe {
                (*family).slot = key.slot as u32;
                (*family).id = id;
                let name = &mut (*family).name;
                // Cut off where it is longer; what cannot be read stays empty, and the id names it.
                let _ = bpf_probe_read_user_str_bytes(text as *const u8, name);
            }
            control.first_family + index
        }
        // No room: it counts with the operation's others.
        None => key.slot as u32,
    };
    // Full, it is asked for again at every call.
    let known = FamilySlot {
        slot,
        epoch: control.epoch,
    };
    let _ = FAMILY_SLOTS.insert(key, &known, 0);
    Some(slot)
}
