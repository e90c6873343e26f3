//! Sizes of payloads, out of arguments and results.

use aya_ebpf::{bindings::pt_regs, programs::ProbeContext};
use ckb_probe_common::Payload;
use ckb_probe_programs::{column_family::read_user, registers};

use crate::record;

/// Whether anything must be remembered from entry to return to know the size.
#[inline(always)]
pub fn are_known_at_entry(payload: u8) -> bool {
    payload != Payload::Unknown as u8 && payload != Payload::ReturnedSlice as u8
}

/// Whether the size itself is known at entry.
#[inline(always)]
pub fn are_values(payload: u8) -> bool {
    are_known_at_entry(payload) && !are_pointed_to(payload)
}

/// Whether an argument says where the size is once the call returns.
#[inline(always)]
fn are_pointed_to(payload: u8) -> bool {
    payload >= Payload::PointedToBy5 as u8
}

/// The payload size where it is known at entry; for sizes known at return only, where to look then.
#[inline(always)]
pub fn at_entry(context: &ProbeContext, stack: u64, payload: u8) -> u64 {
    let argument = |index| context.arg::<u64>(index).unwrap_or(0);
    if payload == Payload::Argument3 as u8 {
        argument(3)
    } else if payload == Payload::Argument4 as u8 {
        argument(4)
    } else if payload == Payload::Arguments3And5 as u8 {
        argument(3).wrapping_add(argument(5))
    } else if payload == Payload::Arguments4And6 as u8 {
        argument(4).wrapping_add(seventh(context, stack))
    } else if payload == Payload::PointedToBy5 as u8 {
        argument(5)
    } else if payload == Payload::PointedToBy4 as u8 {
        argument(4)
    } else {
        0
    }
}

/// The seventh argument is the first on the stack, above the return address.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
fn seventh(_: &ProbeContext, stack: u64) -> u64 {
    size_at(stack.wrapping_add(8))
}

/// The seventh argument is in a register, too.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn seventh(context: &ProbeContext, _: u64) -> u64 {
    context.arg::<u64>(6).unwrap_or(0)
}

/// The payload size, with what was remembered from the entry.
#[inline(always)]
pub fn at_return(registers: *const pt_regs, at_entry: u64, payload: u8) -> u64 {
    let returned = payload == Payload::ReturnedSlice as u8;
    let pointed = are_pointed_to(payload);
    if !returned && !pointed {
        return at_entry;
    }
    // SAFETY: the kernel hands the program a valid pt_regs for as long as it runs.
    let result = unsafe { *registers::result(registers) };
    if result == 0 || (pointed && at_entry == 0) {
        return 0;
    }
    let address = if returned {
        result.wrapping_add(8)
    } else {
        at_entry
    };
    size_at(address)
}

/// The size that is in the target's memory; 0 where it cannot be read, and one more is lost.
#[inline(always)]
fn size_at(address: u64) -> u64 {
    read_user(address).unwrap_or_else(|| {
        record::lose_size();
        0
    })
}
