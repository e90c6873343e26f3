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
    helpers::generated::bpf_sock_from_file,
    macros::{btf_tracepoint, map},
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf},
    programs::BtfTracePointContext,
};
use ckb_probe_common::tcp::{
    CLOSED, INCOMING, Kept, LEFT_OUT, MAX_FILES, MAX_PROCESSES, MAX_TOLD, Met, OPENED, OUTGOING,
    Progress, SEEN, Socket, UNKNOWN, Watched, state,
};
use ckb_probe_programs::{
    counters,
    helpers::{now, process},
    identity::Identity,
    iterator, ring_shares,
    storage::{self, SocketStorage},
};
use socket::{FIELDS, PROCESS, SOCKET, TcpSocket};

/// The watched processes.
#[map]
static PROCESSES: HashMap<u32, Watched> = HashMap::with_max_entries(MAX_PROCESSES as u32, 0);

/// What is known of their sockets.
#[map]
static KEPT: SocketStorage<Kept> = SocketStorage::new();

/// The passes that are being made.
#[map]
static PASSES: LruHashMap<u64, Progress> = LruHashMap::with_max_entries(MAX_PROCESSES as u32, 0);

/// Their sockets that were established or closed.
#[map]
static CHANGED: RingBuf = RingBuf::with_byte_size(4096, 0);
ring_shares!(SHARES, CHANGED, MAX_PROCESSES as u32);

/// By the process's place: what will not be told of its sockets.
#[map]
static LOST: Array<u64> = Array::with_max_entries(MAX_PROCESSES as u32, 0);

#[map]
static MET: PerCpuArray<Met> = PerCpuArray::with_max_entries(1, 0);

#[unsafe(no_mangle)]
static IDENTITY: Identity = Identity::unset();

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
    let process = process();
    // SAFETY: nobody keeps the value.
    let watched = match unsafe { PROCESSES.get(&process) } {
        Some(watched) if IDENTITY.runs(watched.since_ns) => *watched,
        _ => return,
    };
    let Some(socket) = TcpSocket::of(socket) else {
        return;
    };
    let Some(kept) = KEPT.get_or_create(socket.stored()) else {
        // The kernel has no memory for it: nothing of the connection will be told.
        return lose(&watched);
    };
    let began_ns = if direction == OUTGOING { now() } else { 0 };
    let begun = Kept {
        process,
        direction: direction.into(),
        began_ns,
        established_ns: 0,
        pass: 0,
    };
    // SAFETY: a map's value; a socket that is being connected is its process's alone.
    unsafe { *kept = begun };
}

#[inline(always)]
fn was_accepted(socket: *const c_void) {
    // SAFETY: the tracepoint's socket.
    if let Some(kept) = KEPT.get(unsafe { storage::Socket::of(socket) }) {
        // SAFETY: a map's value; nobody else has the socket yet.
        unsafe {
            // The pass that told of the one that listens did not tell of this one.
            (*kept).pass = 0;
            (*kept).direction = INCOMING.into();
            (*kept).began_ns = now();
        }
    }
}

#[inline(always)]
fn was_established(socket: *const c_void) {
    // SAFETY: the tracepoint's socket.
    let Some(place) = KEPT.get(unsafe { storage::Socket::of(socket) }) else {
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
    let Some(place) = KEPT.get(unsafe { storage::Socket::of(socket) }) else {
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
    const SIZE: u64 = size_of::<Socket>() as u64;
    // Of what is not watched any more nobody wants to be told.
    // SAFETY: copied.
    let Some(watched) = (unsafe { PROCESSES.get(&kept.process) }).copied() else {
        return;
    };
    let Some(socket) = TcpSocket::of(socket) else {
        return;
    };
    if !SHARES.take(watched.payer, SIZE) {
        return lose(&watched);
    }
    let mut changed = socket.describe(kept, state, event, now);
    changed.payer = watched.payer as u16;
    if CHANGED.output::<Socket>(changed, 0).is_err() {
        SHARES.give_back(watched.payer, SIZE);
        lose(&watched);
    }
}

/// Something will not be told.
#[inline(always)]
fn lose(watched: &Watched) {
    if let Some(lost) = LOST.get_ptr_mut(watched.place) {
        // SAFETY: a map's value.
        unsafe { counters::add(lost, 1) };
    }
}

/// One socket for each file that is one, the first time that this pass meets it, and no more than there is memory and time for; at
/// the end what was left out.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
pub fn list(context: *mut c_void) -> i32 {
    let context = iterator::Context::new(context);
    let pass = context.session();
    // SAFETY: `struct bpf_iter__task_file` has the task, a number and the file.
    let (task, file) = unsafe { (context.word::<0>(), context.word::<2>()) };
    if task.is_null() || file.is_null() {
        return end(context, pass);
    }
    let Some(progress) = progress(pass, task) else {
        return 0;
    };
    // SAFETY: a map's value: one pass is made by one thread.
    let files = unsafe { (*progress).files };
    if files == NOT_ITS {
        if !tell_the_end(context, 0) {
            return 1;
        }
        // SAFETY: as above.
        unsafe { (*progress).files = MAX_FILES + 1 };
        return 0;
    }
    if files > MAX_FILES {
        // The end was told: the kernel hands over what is written.
        return 1;
    }
    // SAFETY: as above.
    let left_out = unsafe { (*progress).left_out };
    if files == MAX_FILES && !tell_the_end(context, left_out + 1) {
        return 1;
    }
    // SAFETY: as above.
    unsafe { (*progress).files += 1 };
    if files == MAX_FILES {
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
    // SAFETY: as above.
    let is_full = unsafe { (*progress).told >= MAX_TOLD };
    // First: a socket that is closed from here on is told of as closed. What is kept takes memory, too.
    let place = if is_full {
        KEPT.get(socket.stored())
    } else {
        KEPT.get_or_create(socket.stored())
    };
    let Some(place) = place else {
        // SAFETY: as above.
        unsafe { (*progress).left_out += 1 };
        return 0;
    };
    // SAFETY: a map's value.
    let kept = unsafe { *place };
    if kept.pass == pass {
        // Another descriptor of it.
        return 0;
    }
    if is_full {
        // SAFETY: as above.
        unsafe { (*progress).left_out += 1 };
        return 0;
    }
    if kept.process == 0 {
        // SAFETY: a map's value, and the kernel's task.
        unsafe { (*place).process = FIELDS.trusted::<PROCESS, u32>(task) };
    }
    // SAFETY: map's values. To read the clock for each would have the processor wait for what is kept before it asks the memory for
    // what is told.
    let (kept, time_ns) = unsafe { (*place, (*progress).began_ns) };
    if !context.write(&socket.describe(&kept, socket.state(), SEEN, time_ns)) {
        // There is room for it later: the kernel comes back to it.
        return 1;
    }
    // SAFETY: map's values.
    unsafe {
        (*place).pass = pass;
        (*progress).told += 1;
    }
    0
}

/// How far this pass is. The kernel finds the process by its number alone: of a later one that has it, this looks at no file.
#[inline(always)]
fn progress(pass: u64, task: *const c_void) -> Option<*mut Progress> {
    if let Some(progress) = PASSES.get_ptr_mut(&pass) {
        return Some(progress);
    }
    // SAFETY: the kernel's task; nobody keeps the value.
    let is_watched = unsafe {
        let process = FIELDS.trusted::<PROCESS, u32>(task);
        let watched = PROCESSES.get(&process);
        watched.is_none_or(|watched| IDENTITY.is_of(task, watched.since_ns))
    };
    let files = if is_watched { 0 } else { NOT_ITS };
    let begun = Progress {
        began_ns: now(),
        files,
        ..Progress::default()
    };
    PASSES.insert(&pass, &begun, 0).ok()?;
    PASSES.get_ptr_mut(&pass)
}

/// In place of a number of files: they are not the process's.
const NOT_ITS: u64 = u64::MAX;

#[inline(always)]
fn end(context: iterator::Context, pass: u64) -> i32 {
    // SAFETY: nobody keeps the value.
    let left_out = unsafe { PASSES.get(&pass) }.map_or(0, |progress| progress.left_out);
    if !tell_the_end(context, left_out) {
        return 1;
    }
    let _ = PASSES.remove(&pass);
    0
}

/// Tells that the pass ends here; false where there is no room for it now.
#[inline(always)]
fn tell_the_end(context: iterator::Context, left_out: u64) -> bool {
    context.write(&Socket {
        cookie: left_out,
        event: LEFT_OUT,
        ..Socket::default()
    })
}

ckb_probe_programs::end!();
