//! Requests to disks, by disk and direction: how many, how large, how long they waited, and how long the device had them.
//!
//! A request counts when and as the kernel counts it in /proc/diskstats: see `blk_account_io_done`, `blk_account_io_completion`
//! and `blk_account_io_flush` of block/. What those go by is in the request, so a count never depends on having seen its
//! beginning. The request also has the time at which it began, `start_time_ns`. When the device got it the kernel notes for some
//! disks only (`io_start_time_ns`, under wbt and kyber), so that is remembered here, with who asked for it.
//!
//! One set of programs for a node. None is preempted by another run of itself; completions interrupt the others.
#![no_std]
#![no_main]

mod record;
mod request;
mod slots;

use aya_ebpf::{
    helpers::bpf_get_current_comm,
    macros::{btf_tracepoint, map},
    maps::{Array, HashMap},
    programs::BtfTracePointContext,
};
use ckb_probe_common::block_io::{self, Control, Direction, InFlight, MAX_OWNERS, Owner, UNKNOWN};
use ckb_probe_programs::{
    helpers::{now, process, thread},
    identity::Identity,
};
use request::Request;

/// The number of each process whose requests are told from others'.
#[map]
static OWNERS: HashMap<u32, Owner> = HashMap::with_max_entries(MAX_OWNERS, 0);

/// What to do.
#[map]
static CONTROL: Array<Control> = Array::with_max_entries(1, 0);

/// The requests in flight, by their addresses.
#[map]
static IN_FLIGHT: HashMap<u64, InFlight> = HashMap::with_max_entries(block_io::IN_FLIGHT, 0);

#[unsafe(no_mangle)]
static IDENTITY: Identity = Identity::unset();

/// Anew, whatever is remembered at this address.
const BPF_ANY: u64 = 0;

/// A request begins, on the thread that asks for it (Linux 6.5 and later).
#[btf_tracepoint(function = "block_io_start")]
pub fn begin(context: BtfTracePointContext) -> i32 {
    let request = Request::of(&context);
    if let Some(control) = CONTROL.get(0) {
        remember(request, control, owner(), 0);
    }
    0
}

/// It is put into a queue: where the kernel does not say when it begins, on the thread that asks for it unless this is again.
#[btf_tracepoint(function = "block_rq_insert")]
pub fn insert(context: BtfTracePointContext) -> i32 {
    let request = Request::of(&context);
    if let Some(control) = CONTROL.get(0)
        && recall(request, control).is_none()
    {
        remember(request, control, owner(), 0);
    }
    0
}

/// The device gets it.
#[btf_tracepoint(function = "block_rq_issue")]
pub fn issue(context: BtfTracePointContext) -> i32 {
    issued(&context, |request, _| unseen(request))
}

/// The same, where the kernel does not say when a request begins: what goes straight to the device goes on the thread that asks.
#[btf_tracepoint(function = "block_rq_issue")]
pub fn issue_first(context: BtfTracePointContext) -> i32 {
    issued(&context, |request, control| {
        let began_ns = request.began_ns();
        if began_ns != 0 && began_ns < control.since_ns {
            unseen(request)
        } else {
            owner()
        }
    })
}

/// It has become a part of another.
#[btf_tracepoint(function = "block_rq_merge")]
pub fn merge(context: BtfTracePointContext) -> i32 {
    forget(Request::of(&context));
    0
}

/// The device has done some of it.
#[btf_tracepoint(function = "block_rq_complete")]
pub fn complete(context: BtfTracePointContext) -> i32 {
    if let Some(control) = CONTROL.get(0) {
        completed(Request::of(&context), context.arg(2), control);
    }
    0
}

/// The same, where the kernel does not say when a request ends: when all of it is done.
#[btf_tracepoint(function = "block_rq_complete")]
pub fn complete_last(context: BtfTracePointContext) -> i32 {
    let request = Request::of(&context);
    let bytes = context.arg(2);
    if let Some(control) = CONTROL.get(0) {
        completed(request, bytes, control);
        if request.bytes() <= bytes {
            ended(request, control);
        }
    }
    0
}

/// It ends (Linux 6.5 and later).
#[btf_tracepoint(function = "block_io_done")]
pub fn done(context: BtfTracePointContext) -> i32 {
    if let Some(control) = CONTROL.get(0) {
        ended(Request::of(&context), control);
    }
    0
}

/// The number of the process that runs; 0 for one that is not told apart.
#[inline(always)]
fn owner() -> u16 {
    let process = process();
    // SAFETY: user space changes an entry by replacing it.
    match unsafe { OWNERS.get(&process) } {
        Some(owner) if IDENTITY.runs(owner.since_ns) => owner.number as u16,
        _ => 0,
    }
}

/// Whose a request is that was not seen to begin. The flushes that the kernel makes itself do not begin, and are nobody's here.
#[inline(always)]
fn unseen(request: Request) -> u16 {
    match request.direction() {
        Direction::Flush => 0,
        _ => UNKNOWN,
    }
}

#[inline(always)]
fn remember(request: Request, control: &Control, owner: u16, issued_ns: u64) {
    let beginning = InFlight {
        issued_ns,
        generation: control.generation,
        slot: slots::slot(request, owner),
        bytes: if issued_ns > 0 { request.bytes() } else { 0 },
        thread: thread(),
        thread_name: bpf_get_current_comm().unwrap_or_default(),
    };
    if IN_FLIGHT
        .insert(request.address(), &beginning, BPF_ANY)
        .is_err()
    {
        record::untimed();
    }
}

/// What is remembered of a request.
#[inline(always)]
fn recall(request: Request, control: &Control) -> Option<*mut InFlight> {
    let held = IN_FLIGHT.get_ptr_mut(request.address())?;
    // SAFETY: a map's value; nobody but the request's own tracepoints writes to it.
    (unsafe { (*held).generation } == control.generation).then_some(held)
}

#[inline(always)]
fn forget(request: Request) {
    // It need not be there.
    let _ = IN_FLIGHT.remove(request.address());
}

#[inline(always)]
fn issued(context: &BtfTracePointContext, owner: impl FnOnce(Request, &Control) -> u16) -> i32 {
    let request = Request::of(context);
    let Some(control) = CONTROL.get(0) else {
        return 0;
    };
    let now = now();
    match recall(request, control) {
        // SAFETY: a map's value.
        Some(held) => unsafe {
            (*held).bytes = request.bytes();
            (*held).issued_ns = now;
        },
        None => remember(request, control, owner(request, control), now),
    }
    0
}

#[inline(always)]
fn completed(request: Request, bytes: u32, control: &Control) {
    if bytes > 0 && request.flags() & control.accounted != 0 {
        let held = recall(request, control);
        let slot = match held {
            // SAFETY: a map's value.
            Some(held) => unsafe { (*held).slot },
            None => slots::slot(request, unseen(request)),
        };
        // In sectors, as the kernel has it.
        record::bytes(slot, u64::from(bytes >> 9) << 9);
    }
    // The kernel's own flushes end here; they are in /proc/diskstats whatever their flags.
    if request.direction() == Direction::Flush {
        count(request, control);
    }
}

#[inline(always)]
fn ended(request: Request, control: &Control) {
    let flags = request.flags();
    if flags & (control.accounted | control.sequenced) == control.accounted {
        count(request, control);
    }
}

#[inline(always)]
fn count(request: Request, control: &Control) {
    let now = now();
    let held = match recall(request, control) {
        // SAFETY: a map's value.
        Some(held) => unsafe { *held },
        None => InFlight {
            slot: slots::slot(request, unseen(request)),
            ..InFlight::default()
        },
    };
    record::request(&held, request.began_ns(), now, control);
    forget(request);
}

ckb_probe_programs::end!();
