//! Which column family a call is on, as RocksDB has it.
//!
//! The handle that a call passes is `{rep}`; rep is `{vtable, data}`; data begins with `{id: u32, name: std::string}`,
//! whose first word points to its text. That much of RocksDB's layout has held from 5 to 10.

use aya_ebpf::{bindings::pt_regs, helpers::bpf_probe_read_user};
use ckb_probe_common::FamilyArgument;

use crate::registers::argument as place;

/// A word of the target's memory; None where it cannot be read without a page fault.
#[inline(always)]
pub fn read_user(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address itself.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}

/// The handle that a call at its entry passes as this argument: one of [`FamilyArgument`], and not None.
///
/// Both are read, whichever is wanted: a choice between two addresses in the context, which the compiler would make of it, is one that
/// the verifier refuses.
///
/// # Safety
/// The registers are those that the kernel handed out.
#[inline(always)]
pub unsafe fn handle(registers: *const pt_regs, argument: u8) -> u64 {
    // SAFETY: by the caller's word.
    let (first, second) = unsafe {
        (
            place::<1>(registers).read_volatile(),
            place::<2>(registers).read_volatile(),
        )
    };
    if argument == FamilyArgument::Argument1 as u8 {
        first
    } else {
        second
    }
}

/// The number of a handle's family, and where its text is.
#[inline(always)]
pub fn id_and_text(handle: u64) -> Option<(u32, u64)> {
    let representation = read_user(handle)?;
    let data = read_user(representation.wrapping_add(8))?;
    let id = read_user(data)? as u32;
    Some((id, read_user(data.wrapping_add(8))?))
}
