//! How calls and returns are made on x86-64: return addresses are on the stack.

use std::sync::Arc;

use framehop::x86_64::{UnwindRegsX86_64, UnwinderX86_64};
use gimli::Register;

use super::{CALL_BYTES, Registers, convention::Convention};

/// The machine.
pub enum X86_64 {}

impl Convention for X86_64 {
    type ByTables = UnwinderX86_64<Arc<[u8]>>;

    const STACK_POINTER: Register = gimli::X86_64::RSP;
    const FRAME_POINTER: Register = gimli::X86_64::RBP;
    const RETURN_ADDRESS: Register = gimli::X86_64::RA;
    /// rbp, rbx, r12, r13, r14. What its macros push in between, for calls of their own, comes on top of that.
    const PUSHED_BY_CKB_VM: u64 = 5;

    fn begin(at: Registers) -> UnwindRegsX86_64 {
        UnwindRegsX86_64::new(at.ip, at.sp, at.bp)
    }

    fn end(ip: u64, registers: &UnwindRegsX86_64) -> Registers {
        Registers {
            ip,
            sp: registers.sp(),
            bp: registers.bp(),
            lr: 0,
        }
    }

    fn address(word: u64) -> u64 {
        word
    }

    fn linked(_: Registers) -> Option<Registers> {
        None
    }

    /// rax, rcx, and r11 in two bytes.
    fn pushed_by_trampoline(offset: u64) -> u64 {
        match offset {
            0..=2 => offset * 8,
            3 => 16,
            _ => 24,
        }
    }

    /// `call rel32`, or `call` of a register or memory (`FF /2`) with any operand.
    fn ends_in_call(bytes: &[u8; CALL_BYTES]) -> bool {
        const DIRECT: u8 = 0xe8;
        const INDIRECT: u8 = 0xff;
        if bytes[2] == DIRECT {
            return true;
        }
        (2..=CALL_BYTES).any(|length| {
            let begin = CALL_BYTES - length;
            bytes[begin] == INDIRECT
                && operand_bytes(bytes[begin + 1], bytes.get(begin + 2)) == Some(length - 2)
        })
    }
}

/// How many bytes follow the ModRM byte of a call; None where it is none.
fn operand_bytes(modrm: u8, sib: Option<&u8>) -> Option<usize> {
    if modrm >> 3 & 7 != 2 {
        return None;
    }
    let (mode, register) = (modrm >> 6, modrm & 7);
    let has_sib = mode != 3 && register == 4;
    let displacement = match mode {
        0 if register == 5 => 4,
        0 if has_sib && sib.is_some_and(|sib| sib & 7 == 5) => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(usize::from(has_sib) + displacement)
}
