//! Calls that have begun and not returned.
//!
//! Nearly every call finds its cell of an array free, which costs a few instructions. A call whose cell is another's
//! goes to a hash map, which costs a tenth of a microsecond; and only one that finds that full is lost.

use core::intrinsics::{AtomicOrdering, atomic_cxchg};

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap},
};
use ckb_probe_common::{CELLS, CallKey, CallStart, Cell, cell_index};

#[map]
static CALLS: Array<Cell> = Array::with_max_entries(CELLS, 0);

#[map]
static MORE_CALLS: HashMap<CallKey, CallStart> = HashMap::with_max_entries(1, 0);

/// Remembers a call; false when there is no room.
#[inline(always)]
pub fn remember(key: &CallKey, start: CallStart) -> bool {
    if let Some(cell) = cell(key)
        && claim(cell, key)
    {
        // SAFETY: the cell is a map's value, and its owner is this very thread.
        unsafe {
            (*cell).key.stack = key.stack;
            (*cell).start = start;
        }
        return true;
    }
    MORE_CALLS.insert(key, &start, 0).is_ok()
}

/// Whether a call is remembered.
#[inline(always)]
pub fn holds(key: &CallKey) -> bool {
    let Some(cell) = cell(key) else {
        return false;
    };
    // SAFETY: a map's value.
    let (owner, stack) = unsafe {
        let owner = (&raw const (*cell).key.owner).read_volatile();
        (owner, (*cell).key.stack)
    };
    if owner == key.owner && stack == key.stack {
        return true;
    }
    // Where the cell is free, the call would be in it.
    // SAFETY: only this thread's own entry and return touch this key.
    owner != 0 && unsafe { MORE_CALLS.get(key) }.is_some()
}

/// Takes what was remembered of a call.
#[inline(always)]
pub fn recall(key: &CallKey) -> Option<CallStart> {
    if let Some(cell) = cell(key) {
        // SAFETY: a map's value; while the owner is this thread, nobody else writes to it.
        unsafe {
            if (&raw const (*cell).key.owner).read_volatile() == key.owner
                && (*cell).key.stack == key.stack
            {
                let start = (*cell).start;
                (&raw mut (*cell).key.owner).write_volatile(0);
                return Some(start);
            }
        }
    }
    // SAFETY: only this thread's own entry and return touch this key, and it is here.
    let start = unsafe { MORE_CALLS.get(key) }.copied()?;
    // The key was found a moment ago and nobody else removes it.
    let _ = MORE_CALLS.remove(key);
    Some(start)
}

#[inline(always)]
fn cell(key: &CallKey) -> Option<*mut Cell> {
    CALLS.get_ptr_mut(cell_index(key))
}

/// Makes a cell this call's own: one that is free, that a slice left behind which is over, or that an earlier call at
/// this very place left behind, which was unwound.
#[inline(always)]
fn claim(cell: *mut Cell, key: &CallKey) -> bool {
    // SAFETY: a map's value.
    let owner = unsafe { &raw mut (*cell).key.owner };
    // SAFETY: as above.
    let held = unsafe { owner.read_volatile() };
    if held == key.owner {
        // SAFETY: as above, and it is this thread's.
        return unsafe { (*cell).key.stack } == key.stack;
    }
    let (slice, mine) = (held >> 32, key.owner >> 32);
    if held != 0 && (slice == 0 || slice == mine || mine == 0) {
        return false;
    }
    // SAFETY: as above.
    let (_, claimed) = unsafe {
        atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
            owner, held, key.owner,
        )
    };
    claimed
}
