//! Arguments, and what is told apart by them.

use aya_ebpf::{helpers::bpf_probe_read_user_str_bytes, programs::ProbeContext};
use ckb_probe_common::hits::{Operand, Value, ValueKind};
use ckb_probe_programs::operand;

/// Reads an argument: a number, or the address of a text. False where it cannot be read.
#[inline(always)]
pub fn read(context: &ProbeContext, operand: &Operand, number: &mut u64) -> bool {
    // SAFETY: the kernel hands the program a valid pt_regs for as long as it runs.
    unsafe { operand::read(context.regs, operand, number) }
}

/// The same as what rows are told apart by.
#[inline(always)]
pub fn value(context: &ProbeContext, operand: &Operand, value: &mut Value) -> bool {
    let mut number = 0;
    if !read(context, operand, &mut number) {
        return false;
    }
    value.kind = operand.kind as u32;
    if operand.kind != ValueKind::Text as u8 {
        let (bytes, _) = value.bytes.split_at_mut(size_of::<u64>());
        bytes.copy_from_slice(&number.to_le_bytes());
    } else if number == 0 {
        value.kind = ValueKind::Null as u32;
    } else {
        // SAFETY: the helper checks the address itself.
        let text = unsafe { bpf_probe_read_user_str_bytes(number as *const u8, &mut value.bytes) };
        return text.is_ok();
    }
    true
}
