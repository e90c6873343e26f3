//! The health of an embedded RocksDB: what its background work comes to, which errors are taken down, and which column families
//! have writes held back, by what.
//!
//! All of it is read where RocksDB hands it from one of its functions to another: in arguments, results, and the first words of
//! structures that have been the same from version 5 to 10. What is not laid out as that is counted without being told. The
//! functions are rare: some calls for each flush and compaction.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(internal_features)]

mod account;
mod families;
#[path = "../calls/stack.rs"]
mod stack;
mod status;

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::generated::bpf_probe_read_user,
    macros::map,
    maps::{Array, HashMap, PerCpuArray},
    programs::ProbeContext,
};
use ckb_probe_common::{
    Cookie,
    health::{HealthCall, HealthCallKey, HealthControl, SLOTS, held, role},
};
use ckb_probe_programs::{
    counters::add,
    helpers::{cookie, now, thread},
    registers::{self, argument},
};

/// What user space has to say.
#[map]
static CONTROL: Array<HealthControl> = Array::with_max_entries(1, 0);

/// Calls that are under way.
#[map]
static CALLS: HashMap<HealthCallKey, HealthCall> = HashMap::with_max_entries(1024, 0);

/// By slot: how often a program was run.
#[map]
static HITS: PerCpuArray<u64> = PerCpuArray::with_max_entries(SLOTS as u32, 0);

/// Calls that nothing within them looks for go by their slot, above all roles.
const BY_SLOT: u32 = 256;

ckb_probe_programs::call_programs!(enters, returns);

/// Whether its return matters.
#[inline(always)]
fn enters(context: &ProbeContext) -> bool {
    let Some(control) = CONTROL.get(0) else {
        // Always there, so this is the place for what no program comes by.
        stack::stay_on_the_threads(context);
        return false;
    };
    if control.open == 0 {
        return false;
    }
    let slot = cookie(context).slot() & (SLOTS as u32 - 1);
    hit(slot);
    // SAFETY: the registers are those that the kernel handed out.
    let arguments = unsafe { Arguments::of(context.regs) };
    let role = control.roles[slot as usize];
    match role {
        role::ERROR => {
            account::error(slot, &arguments);
            false
        }
        role::RECOVERY => {
            account::recovered(&arguments);
            false
        }
        role::DELAY | role::STOP => {
            if let Some(call) = within(role::JUDGE, control) {
                let held = if role == role::STOP {
                    held::STOPPED
                } else {
                    held::DELAYED
                };
                // SAFETY: a map's value, which this thread alone writes to.
                unsafe { (*call).judgement.held = held };
            }
            false
        }
        role::VERDICT => {
            let Some(call) = within(role::JUDGE, control) else {
                return false;
            };
            // SAFETY: as above.
            unsafe {
                (*call).memtables = arguments.first as u32;
                (*call).numbers = [arguments.second & u64::from(u32::MAX), arguments.third];
            }
            remember(slot, role, &arguments, control)
        }
        role::LOG => {
            if let Some(call) = within(role::ROOM, control) {
                // SAFETY: as above.
                unsafe {
                    (*call).numbers = [arguments.fifth, arguments.sixth];
                    (*call).text = arguments.third;
                }
            }
            false
        }
        _ => remember(slot, role, &arguments, control),
    }
}

#[inline(always)]
fn returns(context: &impl EbpfContext, registers: *const pt_regs) {
    let Some(control) = CONTROL.get(0) else {
        stack::stay_on_the_threads(context);
        return;
    };
    let slot = cookie(context).slot() & (SLOTS as u32 - 1);
    let role = control.roles[slot as usize];
    let key = key(slot, role);
    let Some(known) = CALLS.get_ptr(&key) else {
        return;
    };
    // SAFETY: a map's value, which this thread alone writes to.
    let call = unsafe { *known };
    let _ = CALLS.remove(&key);
    if control.open == 0 || call.generation != control.generation {
        return;
    }
    // SAFETY: the kernel hands the program a valid pt_regs for as long as it runs.
    let result = unsafe { registers::result(registers).read_volatile() };
    match role {
        role::OUTCOME => account::outcome(slot, &call),
        role::VERDICT => {
            if let Some(judge) = within(role::JUDGE, control) {
                // SAFETY: as above.
                unsafe {
                    (*judge).judgement.cause = (result >> 32) as u16;
                    (*judge).judgement.has_cause = 1;
                }
            }
        }
        role::JUDGE => families::judged(slot, &call),
        role::WAIT => account::waited(slot, &call),
        // A bool is a byte.
        role::ROOM if result as u8 == 0 => account::no_room(slot, &call),
        _ => {}
    }
}

/// Remembers a call until it returns.
#[inline(always)]
fn remember(slot: u32, role: u8, arguments: &Arguments, control: &HealthControl) -> bool {
    let about = match role {
        role::ROOM => arguments.second,
        role::OUTCOME => arguments.structure,
        _ => arguments.first,
    };
    let call = HealthCall {
        began_ns: now(),
        about,
        generation: control.generation,
        ..HealthCall::default()
    };
    if CALLS.insert(&key(slot, role), &call, 0).is_err() {
        account::lose_call();
        return false;
    }
    true
}

/// The call of this role that the thread is within.
#[inline(always)]
fn within(role: u8, control: &HealthControl) -> Option<*mut HealthCall> {
    let call = CALLS.get_ptr_mut(&key(0, role))?;
    // SAFETY: a map's value, which this thread alone writes to.
    (unsafe { (*call).generation } == control.generation).then_some(call)
}

#[inline(always)]
fn key(slot: u32, role: u8) -> HealthCallKey {
    HealthCallKey {
        thread: thread(),
        what: match role {
            role::JUDGE | role::ROOM => u32::from(role),
            _ => BY_SLOT | slot,
        },
    }
}

/// Arguments of a call, by the platform's calling convention.
struct Arguments {
    /// Where the structure is to be that it returns, if it returns one.
    structure: u64,
    first: u64,
    second: u64,
    third: u64,
    fifth: u64,
    sixth: u64,
}

impl Arguments {
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    unsafe fn of(registers: *const pt_regs) -> Self {
        // SAFETY: by the caller's word. Volatile, so that no two reads are made one of a choice of addresses.
        unsafe {
            Self {
                structure: registers::structure(registers).read_volatile(),
                first: argument::<0>(registers).read_volatile(),
                second: argument::<1>(registers).read_volatile(),
                third: argument::<2>(registers).read_volatile(),
                fifth: argument::<4>(registers).read_volatile(),
                sixth: argument::<5>(registers).read_volatile(),
            }
        }
    }
}

#[inline(always)]
fn hit(slot: u32) {
    if let Some(hits) = HITS.get_ptr_mut(slot) {
        // SAFETY: a map's value.
        unsafe { add(hits, 1) };
    }
}

/// Two words of the target's memory; None where they cannot be read without a page fault.
#[inline(always)]
fn read_user(address: u64) -> Option<[u64; 2]> {
    let mut words = [0_u64; 2];
    // SAFETY: the helper checks the address itself, and writes no more than is there.
    let read = unsafe {
        bpf_probe_read_user(
            (&raw mut words).cast(),
            size_of::<[u64; 2]>() as u32,
            address as *const c_void,
        )
    };
    (read == 0).then_some(words)
}

ckb_probe_programs::end!();
