//! Arguments that are wherever the compiler left them, which a note beside the code tells.

use aya_ebpf::{bindings::pt_regs, helpers::generated::bpf_probe_read_user};
use ckb_probe_common::hits::{Operand, ValueKind};

use crate::registers;

/// Reads an argument: a number as it is with its sign, or the address of a text. False where it cannot be read without a page
/// fault; the number is 0 then.
///
/// # Safety
/// The registers are those that the kernel handed out.
#[inline(never)]
pub unsafe fn read(registers: *const pt_regs, operand: &Operand, number: &mut u64) -> bool {
    // SAFETY: by the caller's word.
    let known = unsafe { registers::numbered(registers, [operand.base, operand.index]) };
    let Some([base, index]) = known else {
        return false;
    };
    let mut sum = base
        .wrapping_add(index << (operand.scale & 3))
        .wrapping_add(operand.displacement as u64);
    if operand.is_short != 0 {
        sum &= u32::MAX as u64;
    }
    let mut raw = sum >> (operand.below & 63);
    if operand.is_in_memory != 0 {
        raw = 0;
        // The comparison is for the verifier: it does not see that there are no others.
        let bytes = (operand.bytes & 15) as u32;
        // SAFETY: the helper checks the address itself, and writes no more than is there.
        let read = bytes <= 8
            && unsafe { bpf_probe_read_user((&raw mut raw).cast(), bytes, sum as *const _) } == 0;
        if !read {
            *number = 0;
            return false;
        }
    }
    let above = 64_u32.wrapping_sub(operand.bytes as u32 * 8) & 63;
    *number = if operand.kind == ValueKind::Signed as u8 {
        ((raw << above) as i64 >> above) as u64
    } else {
        raw << above >> above
    };
    true
}
