//! TCP sockets of watched processes: as they stand, whenever user space goes through a process's files, and as they stood when
//! they were closed, so that short ones count.
//!
//! A socket is known as a watched process's from its `connect()` or `listen()` on, or from the first time that user space goes
//! by; one that is accepted inherits that from the one that listens, long before anybody accepts it.
#![no_std]
#![no_main]

mod socket;

use core::ffi::c_void;

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, generated::bpf_sock_from_file},
    macros::{btf_tracepoint, map},
    maps::{HashMap, PerCpuArray, RingBuf},
    programs::BtfTracePointContext,
};
use ckb_probe_common::tcp::{
    CLOSED, INCOMING, Kept, MAX_PROCESSES, Met, OPENED, OUTGOING, SEEN, Socket, UNKNOWN, state,
};
use ckb_probe_programs::{counters, iterator, socket_storage::SocketStorage};
use socket::{FIELDS, PROCESS, SOCKET, TcpSocket};

/// The watched processes.
#[map]
static PROCESSES: HashMap<u32, u32> = HashMap::with_max_entries(MAX_PROCESSES as u32, 0);

/// What is known of their sockets.
#[map]
static KEPT: SocketStorage<Kept> = SocketStorage::new();

/// Their sockets that were established or closed.
#[map]
static CHANGED: RingBuf = RingBuf::with_byte_size(4096, 0);

#[map]
static MET: PerCpuArray<Met> = PerCpuArray::with_max_entries(1, 0);

#[btf_tracepoint(function = "inet_sock_set_state")]
pub fn state_changed(context: BtfTracePointContext) -> i32 {
    if let Some(met) = MET.get_ptr_mut(0) {
        // SAFETY: a map's value. A softirq may interrupt this.
        unsafe { counters::add(&raw mut (*met).changes, 1) };
    }
    let before = context.arg::<i32>(1) as u8;
    let after = context.arg::<i32>(2) as u8;
    let socket: *const c_void = context.arg(0);
    match (before, after) {
        (_, state::SYN_SENT) => begins(socket, OUTGOING),
        (_, state::LISTEN) => begins(socket, UNKNOWN),
        (state::LISTEN, state::SYN_RECV) => was_accepted(socket),
        (_, state::ESTABLISHED) => was_established(socket),
        (state::LISTEN | state::CLOSE, _) => {}
        (before, state::CLOSE) => was_closed(socket, before),
        _ => {}
    }
    0
}

/// The process that runs asks for a connection, or for those of others.
#[inline(always)]
fn begins(socket: *const c_void, direction: u8) {
    let process = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: nobody keeps the value.
    if unsafe { PROCESSES.get(&process) }.is_none() {
        return;
    }
    let Some(socket) = TcpSocket::of(socket) else {
        return;
    };
    // SAFETY: a socket of the kernel's.
    let Some(kept) = (unsafe { KEPT.get_or_create(socket.as_ptr()) }) else {
        // The kernel has no memory for it: nothing of the connection will be told.
        return lose();
    };
    let began_ns = if direction == OUTGOING { now() } else { 0 };
    let begun = Kept {
        process,
        direction: direction.into(),
        began_ns,
        established_ns: 0,
    };
    // SAFETY: a map's value; a socket that is being connected is its process's alone.
    unsafe { *kept = begun };
}

#[inline(always)]
fn was_accepted(socket: *const c_void) {
    // SAFETY: the tracepoint's socket.
    if let Some(kept) = unsafe { KEPT.get(socket) } {
        // SAFETY: a map's value; nobody else has the socket yet.
        unsafe {
            (*kept).direction = INCOMING.into();
            (*kept).began_ns = now();
        }
    }
}

#[inline(always)]
fn was_established(socket: *const c_void) {
    // SAFETY: the tracepoint's socket.
    let Some(place) = (unsafe { KEPT.get(socket) }) else {
        return;
    };
    let now = now();
    // SAFETY: a map's value; the socket is locked while its state changes.
    let kept = unsafe {
        (*place).established_ns = now;
        *place
    };
    tell(socket, &kept, state::ESTABLISHED, OPENED, now);
}

#[inline(always)]
fn was_closed(socket: *const c_void, before: u8) {
    // SAFETY: the tracepoint's socket.
    let Some(place) = (unsafe { KEPT.get(socket) }) else {
        return;
    };
    // SAFETY: a map's value.
    let kept = unsafe { *place };
    // It may be connected again: that is another connection then.
    let used = Kept {
        process: kept.process,
        ..Kept::default()
    };
    // SAFETY: a map's value; the socket is locked while its state changes.
    unsafe { *place = used };
    tell(socket, &kept, before, CLOSED, now());
}

#[inline(always)]
fn tell(socket: *const c_void, kept: &Kept, state: u8, event: u8, now: u64) {
    if kept.process == 0 {
        return;
    }
    let Some(socket) = TcpSocket::of(socket) else {
        return;
    };
    let changed = socket.describe(kept, state, event, now);
    if CHANGED.output::<Socket>(changed, 0).is_err() {
        lose();
    }
}

/// Something will not be told.
#[inline(always)]
fn lose() {
    if let Some(met) = MET.get_ptr_mut(0) {
        // SAFETY: a map's value.
        unsafe { counters::add(&raw mut (*met).lost, 1) };
    }
}

/// One socket for each file that is one.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
pub fn list(context: *mut c_void) -> i32 {
    let context = iterator::Context::new(context);
    // SAFETY: `struct bpf_iter__task_file` has the task, a number and the file.
    let (task, file) = unsafe { (context.word::<0>(), context.word::<2>()) };
    if task.is_null() || file.is_null() {
        return 0;
    }
    // SAFETY: the kernel's file.
    let socket = unsafe { bpf_sock_from_file(file.cast()) };
    if socket.is_null() {
        return 0;
    }
    // SAFETY: the kernel's socket.
    let socket = unsafe { FIELDS.trusted::<SOCKET, *const c_void>(socket.cast_const().cast()) };
    let Some(socket) = TcpSocket::of(socket) else {
        return 0;
    };
    // First: a socket that is closed from here on is told of as closed.
    // SAFETY: a socket of the kernel's.
    let kept = unsafe { KEPT.get_or_create(socket.as_ptr()) };
    let kept = kept.map_or(Kept::default(), |kept| {
        // SAFETY: a map's value, and the kernel's task.
        unsafe {
            if (*kept).process == 0 {
                (*kept).process = FIELDS.trusted::<PROCESS, u32>(task);
            }
            *kept
        }
    });
    i32::from(!context.write(&socket.describe(&kept, socket.state(), SEEN, now())))
}

fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

ckb_probe_programs::end!();
