//! The arguments of calls, kept until it is known whether they are slow: of functions of which that is asked.
//!
//! Nothing is removed: the next call at the same place of the same thread's stack takes the room of the one before, and what is
//! least used goes when there is none. Whoever finds nothing tells the call without its arguments.

use aya_ebpf::{
    helpers::bpf_probe_read_user_str_bytes, macros::map, maps::LruHashMap, programs::ProbeContext,
};
use ckb_probe_common::{Arguments, CallKey, Cookie, MAX_ARGUMENTS, SlowArguments, UNREADABLE};
use ckb_probe_programs::registers::{POPPED_BY_RETURN, argument};

use crate::{stack, thread};

/// By the thread, the operation and the stack pointer after the return. The loader sets how many.
#[map]
static ARGUMENTS: LruHashMap<CallKey, Arguments> = LruHashMap::with_max_entries(1, 0);

/// Keeps the arguments of a call that begins.
#[inline(never)]
pub fn keep(context: &ProbeContext, cookie: Cookie) {
    let registers = context.regs;
    // SAFETY: the kernel hands the program a valid pt_regs for as long as it runs. Volatile, so that no two reads are made one
    // of a choice of addresses, which the verifier refuses.
    let values = unsafe {
        [
            argument::<0>(registers).read_volatile(),
            argument::<1>(registers).read_volatile(),
            argument::<2>(registers).read_volatile(),
            argument::<3>(registers).read_volatile(),
            argument::<4>(registers).read_volatile(),
            argument::<5>(registers).read_volatile(),
        ]
    };
    let arguments = Arguments {
        values,
        slot: cookie.slot() as u64,
    };
    let key = key(
        stack(registers).wrapping_add(POPPED_BY_RETURN),
        cookie.slot(),
    );
    // Full of calls on other CPUs: see above.
    let _ = ARGUMENTS.insert(&key, &arguments, 0);
}

/// Those of the call of this operation that returns with this stack pointer.
#[inline(always)]
pub fn of(stack: u64, operation: u32) -> Option<&'static Arguments> {
    // SAFETY: only this thread writes to what it finds under its own key.
    let kept = unsafe { ARGUMENTS.get(&key(stack, operation)) }?;
    (kept.slot == operation as u64).then_some(kept)
}

/// Tells what arguments point to, of those that are texts.
#[inline(never)]
pub fn tell(told: &mut SlowArguments, arguments: &Arguments, texts: u8) {
    for index in 0..MAX_ARGUMENTS {
        told.values[index] = arguments.values[index];
        told.texts[index] = [0; ckb_probe_common::TEXT_BYTES];
        if texts & 1 << index != 0 {
            // SAFETY: the helper checks the address itself.
            let read = unsafe {
                bpf_probe_read_user_str_bytes(
                    arguments.values[index] as *const u8,
                    &mut told.texts[index],
                )
            };
            if read.is_err() {
                told.texts[index][0] = UNREADABLE;
            }
        }
    }
}

#[inline(always)]
fn key(stack: u64, slot: u32) -> CallKey {
    CallKey::new(0, slot, thread(), stack)
}
