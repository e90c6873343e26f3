//! How calls and returns are made on arm64: a call leaves its return address in a register, and functions that call others put it on
//! the stack, signed by the processor where they are compiled so.

use std::sync::Arc;

use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use gimli::{AArch64, Register};

use super::Registers;

pub type Native = UnwinderAarch64<Arc<[u8]>>;
pub type Cache = CacheAarch64;

/// The numbers that tables have for them.
pub const STACK_POINTER: Register = AArch64::SP;
pub const FRAME_POINTER: Register = AArch64::X29;
pub const RETURN_ADDRESS: Register = AArch64::X30;

/// What ckb-vm's interpreter in assembly pushes as it begins was not looked at: its caller is looked for.
pub const PUSHED_BY_CKB_VM: u64 = 0;

/// As much code as is looked at: of it the last instruction.
pub const CALL_BYTES: usize = 7;

/// Where code is: programs have it in the lower 48 bits, unless they ask for more. Above is the signature.
const CODE: u64 = u64::MAX >> 16;

pub fn begin(at: Registers) -> UnwindRegsAarch64 {
    UnwindRegsAarch64::new_with_ptr_auth_mask(PtrAuthMask(CODE), at.lr, at.sp, at.bp)
}

pub fn end(ip: u64, registers: &UnwindRegsAarch64) -> Registers {
    Registers {
        ip,
        sp: registers.sp(),
        bp: registers.fp(),
        lr: registers.lr(),
    }
}

/// A return address without its signature.
pub const fn address(word: u64) -> u64 {
    word & CODE
}

/// What the register of an innermost function says of its caller, where the function has not called another.
pub const fn linked(at: Registers) -> Option<Registers> {
    match address(at.lr) {
        0 => None,
        ip => Some(Registers { ip, ..at }),
    }
}

/// The kernel's trampoline is a breakpoint.
pub const fn pushed_by_trampoline(_: u64) -> u64 {
    0
}

/// Whether code ends in a call: `bl`, `blr`, or one of those that authenticate (`blraa` and others).
pub const fn ends_in_call(bytes: &[u8; CALL_BYTES]) -> bool {
    let word = u32::from_le_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]);
    word & 0xfc00_0000 == 0x9400_0000
        || word & 0xffff_fc1f == 0xd63f_0000
        || word & 0xfeff_f800 == 0xd63f_0800
}

#[cfg(test)]
mod tests;
