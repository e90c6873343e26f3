//! Probes by which a program emits a text: the whole of it is told, or it is counted why not. Programs of their own, loaded where that is asked
//! for: what the ring takes is nobody else's.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::{bpf_get_current_comm, bpf_probe_read_user, generated::bpf_probe_read_user_str},
    macros::{map, uprobe},
    maps::{RingBuf, ring_buf::RingBufEntry},
    programs::ProbeContext,
};
use ckb_probe_common::hits::{Operand, PAYLOAD_BYTES, PAYLOAD_ROOM, Payload, PayloadRecord};
use ckb_probe_programs::helpers::{cookie, now, thread};

use crate::{NO_RETURN, control, hit::HITS, operand, probing, record, value};

/// What was emitted. The loader makes it where somebody asks for that, and says how large it is.
#[map]
static PAYLOADS: RingBuf = RingBuf::with_byte_size(4096, 0);

#[uprobe]
pub fn emit(context: ProbeContext) -> u32 {
    meet(&context);
    0
}

// See `hit_session`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
extern "C" fn emit_session(registers: *mut c_void) -> u32 {
    meet(&ProbeContext::new(registers));
    NO_RETURN
}

#[inline(always)]
fn meet(context: &ProbeContext) {
    let cookie = cookie(context);
    let Some(control) = control(context) else {
        return;
    };
    probing::add_entry(cookie.slot(), control);
    if !control.gate(cookie.slot()).takes_up(cookie.group()) {
        return;
    }
    let Some(hit) = HITS.get(cookie.place()) else {
        return;
    };
    record::untimed(cookie.slot(), 0, cookie);
    if let Err(lost) = tell(context, &hit.payload, cookie.slot()) {
        // SAFETY: the field of a value that the caller looked up.
        value::lose(cookie.slot(), |losses| unsafe {
            match lost {
                Lost::Room => &raw mut (*losses).payloads,
                Lost::Unread => &raw mut (*losses).unread_payloads,
                Lost::Long => &raw mut (*losses).long_payloads,
            }
        });
    }
}

/// Why a text is not told.
#[derive(Clone, Copy)]
enum Lost {
    Room,
    Unread,
    Long,
}

/// Into the ring at once: a thread may be preempted by another that is here, too, and what each CPU has one of would then be both's.
#[inline(always)]
fn tell(context: &ProbeContext, payload: &Operand, slot: u32) -> Result<(), Lost> {
    let mut address = 0;
    if !operand::read(context, payload, &mut address) || is_nowhere(address) {
        return Err(Lost::Unread);
    }
    let Some(mut entry) = PAYLOADS.reserve::<PayloadRecord>(0) else {
        return Err(Lost::Room);
    };
    match fill(&mut entry, address, slot) {
        Ok(()) => {
            entry.submit(0);
            Ok(())
        }
        Err(lost) => {
            entry.discard(0);
            Err(lost)
        }
    }
}

/// Whether nothing is there. Asked first: what is reserved takes room until somebody reads on, also where it is discarded.
#[inline(always)]
fn is_nowhere(address: u64) -> bool {
    // SAFETY: the helper checks the address itself.
    unsafe { bpf_probe_read_user(address as *const u8) }.is_err()
}

#[inline(always)]
fn fill(entry: &mut RingBufEntry<PayloadRecord>, address: u64, slot: u32) -> Result<(), Lost> {
    let told = entry.as_mut_ptr();
    // SAFETY: reserved, as long as it is. The helper checks the address itself, reads each byte once, and ends what it wrote with NUL.
    let read = unsafe {
        bpf_probe_read_user_str(
            (&raw mut (*told).text).cast(),
            PAYLOAD_ROOM as u32,
            address as *const _,
        )
    };
    if read < 0 {
        return Err(Lost::Unread);
    }
    // With its NUL, but for an empty one, of which some kernels (6.1, 6.12) say that it has no byte.
    let length = (read as u64).saturating_sub(1);
    if length > PAYLOAD_BYTES as u64 {
        return Err(Lost::Long);
    }
    // SAFETY: as above.
    unsafe {
        (*told).head = Payload {
            time_ns: now(),
            slot,
            thread: thread(),
            thread_name: bpf_get_current_comm().unwrap_or_default(),
            length,
        };
    }
    Ok(())
}
