//! Where a request counts.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap},
};
use ckb_probe_common::block_io::{MAX_OWNERS, MAX_SLOTS, NO_SLOT, Slot, SlotKey};
use ckb_probe_programs::counters::next;

use crate::request::{Disk, Request};

/// The slot of each key seen.
#[map]
static SLOT_OF: HashMap<SlotKey, u32> = HashMap::with_max_entries(MAX_SLOTS, 0);

/// What each slot is of. Two may be of the same, where two CPUs met it first at the same time.
#[map]
static SLOTS: Array<Slot> = Array::with_max_entries(MAX_SLOTS, 0);

/// How many are taken, without [`NO_SLOT`].
#[map]
static SLOTS_TAKEN: Array<u32> = Array::with_max_entries(1, 0);

/// How many of those each owner has: no more than it leaves to others.
#[map]
static SLOTS_OWNED: Array<u32> = Array::with_max_entries(MAX_OWNERS + 1, 0);

/// Whose requests count in a slot.
#[inline(always)]
pub fn owner(slot: u32) -> u32 {
    SLOTS.get(slot).map_or(0, |slot| slot.key.owner.into())
}

/// Where a request of this owner's counts: with nobody's where there is no room for its owner's.
#[inline(always)]
pub fn slot(request: Request, owner: u16) -> u32 {
    let Some(disk) = request.disk() else {
        return NO_SLOT;
    };
    let mut key = SlotKey {
        device: disk.device(),
        direction: request.direction() as u16,
        owner,
    };
    if let Some(slot) = find(&key, disk) {
        return slot;
    }
    key.owner = 0;
    find(&key, disk).unwrap_or(NO_SLOT)
}

#[inline(always)]
fn find(key: &SlotKey, disk: Disk) -> Option<u32> {
    // SAFETY: entries are never changed or removed.
    match unsafe { SLOT_OF.get(key) } {
        Some(slot) => Some(*slot),
        None => first_seen(key, disk),
    }
}

#[inline(always)]
fn first_seen(key: &SlotKey, disk: Disk) -> Option<u32> {
    let taken = SLOTS_TAKEN.get_ptr_mut(0)?;
    // SAFETY: a map's value. Looked at first, so that the number does not grow forever.
    let index = unsafe {
        let left = (MAX_SLOTS - 1).saturating_sub(taken.read_volatile());
        if left == 0 {
            return None;
        }
        if key.owner > 0
            && let Some(owned) = SLOTS_OWNED.get_ptr_mut(key.owner.into())
        {
            if owned.read_volatile() >= left {
                return None;
            }
            next(owned);
        }
        next(taken) + 1
    };
    let slot = SLOTS.get_ptr_mut(index)?;
    // SAFETY: a map's value, which no other program run was given this index of.
    unsafe {
        (*slot).disk = disk.name();
        (*slot).key = *key;
    }
    // Full, or another CPU was first: this one counts here all the same, and user space adds up.
    let _ = SLOT_OF.insert(key, &index, 0);
    Some(index)
}
