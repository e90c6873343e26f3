//! What a span is called, and what it consists of: the keys of eight bytes that it puts into one column family, what is put under
//! the last of them, and how much is put into another.

use core::ffi::c_void;

use aya_ebpf::{bindings::pt_regs, helpers::generated::bpf_probe_read_user};
use ckb_probe_common::spans::{SpanState, VALUE_BYTES, family, role};
use ckb_probe_programs::{column_family::read_user, registers::argument};

const NAME_BYTES: u64 = 8;

/// Notes what a put or a delete says of the span, by what its family is.
///
/// # Safety
/// The state is a map's value, and the registers are those of the call at its entry.
#[inline(always)]
pub unsafe fn note(state: *mut SpanState, registers: *const pt_regs, role: u8, of: u32) {
    // SAFETY: by the caller's word.
    unsafe {
        let (key, length) = key(registers);
        if role == role::PUT {
            (*state).puts += 1;
        }
        if (*state).open == 0 {
            return;
        }
        let span = &raw mut (*state).span;
        if role == role::DELETE {
            if of == family::NAMES && length == NAME_BYTES {
                (*span).taken_back += 1;
            }
            return;
        }
        let (value, value_length) = value(registers);
        (*span).bytes += length.wrapping_add(value_length);
        if of == family::UNITS {
            (*span).units += 1;
        }
        if of != family::NAMES || length != NAME_BYTES {
            return;
        }
        if let Some(name) = read_user(key) {
            (*span).name = name;
            (*span).names += 1;
            note_value(state, value, value_length);
        }
    }
}

/// Arguments 2 and 3.
#[inline(always)]
unsafe fn key(registers: *const pt_regs) -> (u64, u64) {
    // SAFETY: by the caller's word. Volatile, so that no two reads are made one of a choice of addresses.
    unsafe {
        (
            argument::<2>(registers).read_volatile(),
            argument::<3>(registers).read_volatile(),
        )
    }
}

/// Arguments 4 and 5.
#[inline(always)]
unsafe fn value(registers: *const pt_regs) -> (u64, u64) {
    // SAFETY: by the caller's word. Volatile, as in `key`.
    unsafe {
        (
            argument::<4>(registers).read_volatile(),
            argument::<5>(registers).read_volatile(),
        )
    }
}

#[inline(always)]
unsafe fn note_value(state: *mut SpanState, value: u64, length: u64) {
    // SAFETY: by the caller's word; there is room for so many bytes, which the helper fills, with zeros where it cannot read.
    unsafe {
        let to = (&raw mut (*state).span.value).cast::<c_void>();
        let from = match length == VALUE_BYTES as u64 {
            true => value as *const c_void,
            false => core::ptr::null(),
        };
        let _ = bpf_probe_read_user(to, VALUE_BYTES as u32, from);
    }
}
