//! What a span is called: the keys of eight bytes that it puts into one column family.
//!
//! Which family a handle is of is read from its memory, as the programs of `calls` do (`family.rs` there): the two handles that
//! were met last are known by their address.

use aya_ebpf::bindings::pt_regs;
use ckb_probe_common::spans::{SpanControl, SpanState, role};

use crate::{arguments, read_user};

const NAME_BYTES: u64 = 8;

/// Notes the key of a put or of a delete, where it names a span.
///
/// # Safety
/// The state is a map's value, and the registers are those of the call at its entry.
#[inline(always)]
pub unsafe fn note(
    state: *mut SpanState,
    control: &SpanControl,
    registers: *const pt_regs,
    role: u8,
) {
    // SAFETY: by the caller's word.
    unsafe {
        if role == role::PUT {
            (*state).puts += 1;
        }
        let (handle, key, length) = arguments(registers);
        if length != NAME_BYTES || (*state).open == 0 || !has_names(state, control, handle) {
            return;
        }
        if role == role::DELETE {
            (*state).span.taken_back += 1;
        } else if let Some(name) = read_user(key) {
            (*state).span.name = name;
            (*state).span.names += 1;
        }
    }
}

#[inline(always)]
unsafe fn has_names(state: *mut SpanState, control: &SpanControl, handle: u64) -> bool {
    // SAFETY: by the caller's word.
    unsafe {
        if handle == (*state).handles[0] {
            return true;
        }
        if handle == (*state).handles[1] {
            return false;
        }
        let Some(begins) = begin_of_name(handle) else {
            return false;
        };
        let [wanted, mask] = control.family;
        let has = begins & mask == wanted;
        (*state).handles[usize::from(!has)] = handle;
        has
    }
}

/// The first bytes of the name of a handle's family.
#[inline(always)]
fn begin_of_name(handle: u64) -> Option<u64> {
    let representation = read_user(handle)?;
    let data = read_user(representation.wrapping_add(8))?;
    let text = read_user(data.wrapping_add(8))?;
    // A string's own room is of sixteen bytes, so that there are eight to be read of the shortest.
    read_user(text)
}
