//! How calls and returns are made on arm64: a call leaves its return address in a register, and functions that call others put it on
//! the stack, signed by the processor where they are compiled so.

use std::sync::Arc;

use framehop::aarch64::{PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use gimli::{AArch64, Register};

use super::{CALL_BYTES, Registers, convention::Convention};

/// Where code is: programs have it in the lower 48 bits, unless they ask for more. Above is the signature.
const CODE: u64 = u64::MAX >> 16;

/// The machine.
pub enum Aarch64 {}

impl Convention for Aarch64 {
    type ByTables = UnwinderAarch64<Arc<[u8]>>;

    const STACK_POINTER: Register = AArch64::SP;
    const FRAME_POINTER: Register = AArch64::X29;
    const RETURN_ADDRESS: Register = AArch64::X30;
    /// It was not looked at.
    const PUSHED_BY_CKB_VM: u64 = 0;

    fn begin(at: Registers) -> UnwindRegsAarch64 {
        UnwindRegsAarch64::new_with_ptr_auth_mask(PtrAuthMask(CODE), at.lr, at.sp, at.bp)
    }

    fn end(ip: u64, registers: &UnwindRegsAarch64) -> Registers {
        Registers {
            ip,
            sp: registers.sp(),
            bp: registers.fp(),
            lr: registers.lr(),
        }
    }

    fn address(word: u64) -> u64 {
        word & CODE
    }

    fn linked(at: Registers) -> Option<Registers> {
        match Self::address(at.lr) {
            0 => None,
            ip => Some(Registers { ip, ..at }),
        }
    }

    /// It is a breakpoint.
    fn pushed_by_trampoline(_: u64) -> u64 {
        0
    }

    /// `bl`, `blr`, or one of those that authenticate (`blraa` and others): of so many bytes the last instruction.
    fn ends_in_call(bytes: &[u8; CALL_BYTES]) -> bool {
        let word = u32::from_le_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]);
        word & 0xfc00_0000 == 0x9400_0000
            || word & 0xffff_fc1f == 0xd63f_0000
            || word & 0xfeff_f800 == 0xd63f_0800
    }
}

#[cfg(test)]
mod tests;
