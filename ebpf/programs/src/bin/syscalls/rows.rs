//! Which row a system call of a target counts in. Rows are handed out as calls come: a process makes some dozens of the
//! hundreds of system calls that there are, and a histogram for each on each CPU would be too much.

use aya_ebpf::{
    macros::map,
    maps::{Array, PerCpuArray, Stack},
};
use ckb_probe_common::syscalls::{MAX_TARGETS, NO_ROW, NUMBERS, Order, SyscallRow, Table};
use ckb_probe_programs::counters::{exchange, next};

/// Every target's.
#[map]
static TABLES: Array<Table> = Array::with_max_entries(MAX_TARGETS as u32, 0);

/// For all targets; the loader sets how many.
#[map]
static ROWS: PerCpuArray<SyscallRow> = PerCpuArray::with_max_entries(1, 0);

/// Rows that are nobody's; filled by the loader.
#[map]
static FREE: Stack<u32> = Stack::with_max_entries(1, 0);

/// The row of a call.
#[inline(always)]
pub fn of(target: u32, number: u32, order: &Order) -> Option<u32> {
    if number >= NUMBERS as u32 {
        return Some(order.other_row);
    }
    let table = TABLES.get_ptr_mut(target)?;
    // SAFETY: within the map's value, by the comparison.
    let place = unsafe { (&raw mut (*table).rows).cast::<u32>().add(number as usize) };
    // SAFETY: the same.
    Some(match unsafe { place.read_volatile() } {
        NO_ROW => claim(table, place, order),
        row => row,
    })
}

/// What this CPU counted in a row.
#[inline(always)]
pub fn values(row: u32) -> Option<*mut SyscallRow> {
    ROWS.get_ptr_mut(row)
}

/// Whether one more error of a target may be told apart, which is counted then.
#[inline(always)]
pub fn may_tell_one_more_error(target: u32, order: &Order) -> bool {
    let Some(table) = TABLES.get_ptr_mut(target) else {
        return false;
    };
    // SAFETY: a map's value. Looked at first, so that the number does not grow forever.
    unsafe {
        let errors = &raw mut (*table).errors;
        errors.read_volatile() < order.most_errors && next(errors) < order.most_errors
    }
}

/// A new row for a number, or that of the others when there is none.
#[inline(never)]
fn claim(table: *mut Table, place: *mut u32, order: &Order) -> u32 {
    // SAFETY: a map's value.
    let used = unsafe { next(&raw mut (*table).used) };
    let free = if used < order.most_rows {
        FREE.pop().ok().flatten()
    } else {
        None
    };
    // SAFETY: in the map's value.
    match unsafe { exchange(place, NO_ROW, free.unwrap_or(order.other_row)) } {
        Ok(()) => free.unwrap_or(order.other_row),
        // Another CPU was faster.
        Err(row) => {
            if let Some(free) = free {
                // There is room: it was there a moment ago.
                let _ = FREE.push(free, 0);
            }
            row
        }
    }
}
