//! Calls that have begun and not returned.
//!
//! Nearly every call finds its cell of an array free, which costs a few instructions. A call whose cell is another's
//! goes to a hash map, which costs a tenth of a microsecond; and only one that finds that full is lost.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap},
};
use ckb_probe_common::{CELLS, CallKey, CallStart, Cell, Mark, cell_index};
use ckb_probe_programs::counters;

#[map]
static CALLS: Array<Cell> = Array::with_max_entries(CELLS, 0);

#[map]
static MORE_CALLS: HashMap<CallKey, CallStart> = HashMap::with_max_entries(1, 0);

/// What became of a call that was to be remembered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Remembered {
    /// It is.
    Alone,
    /// It is, in the place of an earlier one at this very place, whose end was not seen.
    InsteadOf(Mark),
    /// There is no room.
    Not,
}

/// Remembers a call.
#[inline(always)]
pub fn remember(key: &CallKey, start: CallStart) -> Remembered {
    if let Some(cell) = cell(key) {
        let claimed = claim(cell, key);
        if claimed != Claim::Others {
            // SAFETY: the cell is a map's value, and its owner is this very thread.
            let before = unsafe {
                let before = (*cell).start.mark;
                (*cell).key.stack = key.stack;
                (*cell).start = start;
                before
            };
            return match claimed {
                Claim::Own => Remembered::InsteadOf(before),
                _ => Remembered::Alone,
            };
        }
    }
    // SAFETY: only this thread's own entry and return touch this key.
    let before = unsafe { MORE_CALLS.get(key) }.map(|start| start.mark);
    if MORE_CALLS.insert(key, &start, 0).is_err() {
        return Remembered::Not;
    }
    before.map_or(Remembered::Alone, Remembered::InsteadOf)
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

/// Whose a cell is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// Another call's.
    Others,
    /// This call's now.
    New,
    /// This call's, from an earlier one at this very place.
    Own,
}

/// Makes a cell this call's own: one that is free, that a slice left behind which is over, or that an earlier call at
/// this very place left behind, which was unwound.
#[inline(always)]
fn claim(cell: *mut Cell, key: &CallKey) -> Claim {
    // SAFETY: a map's value.
    let owner = unsafe { &raw mut (*cell).key.owner };
    // SAFETY: as above.
    let held = unsafe { owner.read_volatile() };
    if held == key.owner {
        // SAFETY: as above, and it is this thread's.
        return match unsafe { (*cell).key.stack } == key.stack {
            true => Claim::Own,
            false => Claim::Others,
        };
    }
    let (slice, mine) = (held >> 32, key.owner >> 32);
    if held != 0 && (slice == 0 || slice == mine || mine == 0) {
        return Claim::Others;
    }
    // SAFETY: as above.
    match unsafe { counters::exchange(owner, held, key.owner) } {
        Ok(()) => Claim::New,
        Err(_) => Claim::Others,
    }
}
