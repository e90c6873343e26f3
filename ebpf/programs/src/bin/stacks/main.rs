//! Stacks of the threads of one process: of those that run, by the tick that is there anyway; and of all of them, whenever
//! user space goes through them. Nothing is run in the process, and nothing of it is stopped.
//!
//! What is copied goes to slots that user space has mapped, and wipes. No program waits for a page: who runs has its stack copied as far as
//! it is there, and of who waits user space copies it, between two visits of the thread. A program that waits would have all wait who
//! take a probe or a program away.
#![no_std]
#![no_main]

mod allocations;
mod said;
#[path = "../calls/stack.rs"]
mod stack;
mod thread;

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext,
    helpers::generated::{
        bpf_get_prandom_u32, bpf_get_stack, bpf_get_task_stack, bpf_probe_read_user,
    },
    macros::{btf_tracepoint, map},
    maps::{Array, HashMap, PerCpuArray},
    programs::BtfTracePointContext,
};
use ckb_probe_common::stacks::{
    ANY, ASKED, COPIED, FILLED, FILLING, FREE, Fault, Head, LEARN, MOVED, NAMES, NO_USER, ON_CPU,
    Order, PAGE, PARTS, Pace, Slot, TIMERS, UNCHANGED, by_room, fault,
};
use ckb_probe_programs::{
    counters,
    helpers::{now, process},
    identity::Identity,
    iterator::Context,
    stack_pages,
    storage::{TaskStorage, Thread},
};
use thread::{FIELDS, FUNCTION, PROCESS, THREAD};

/// BPF_F_MMAPABLE.
const MAPPED: u32 = 1 << 10;

#[map]
static ORDER: Array<Order> = Array::with_max_entries(1, 0);

/// The loader says how many.
#[map]
static SLOTS: Array<Slot> = Array::with_max_entries(16, MAPPED);

/// The slot that is tried next.
#[map]
static NEXT: Array<u32> = Array::with_max_entries(1, 0);

/// The slot that is to be copied to, and one more; 0: none is.
#[map]
static WAITING: Array<u32> = Array::with_max_entries(1, 0);

#[map]
static PACE: PerCpuArray<Pace> = PerCpuArray::with_max_entries(1, 0);

/// Functions of timers that expired, and how often.
#[map]
static FUNCTIONS: HashMap<u64, u64> = HashMap::with_max_entries(TIMERS, 0);

/// Addresses that are to be given names.
#[map]
static ADDRESSES: Array<u64> = Array::with_max_entries(NAMES as u32, 0);

/// How often a thread had stopped running when it was looked at, and one more; 0: it was not.
#[map]
static LOOKED_AT: TaskStorage<u64> = TaskStorage::new();

#[unsafe(no_mangle)]
static IDENTITY: Identity = Identity::unset();

/// Who runs?
#[btf_tracepoint(function = "hrtimer_expire_entry")]
pub fn timer_expires(context: BtfTracePointContext) -> i32 {
    let (Some(order), Some(pace)) = (ORDER.get(0), PACE.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: the tracepoint's timer.
    let function = unsafe { FIELDS.trusted_u64::<FUNCTION>(context.arg(0)) };
    if order.tick == LEARN {
        learn(function);
        return 0;
    }
    if order.tick != function && order.tick != ANY {
        return 0;
    }
    // SAFETY: the helpers have no preconditions. This runs with interrupts off: the CPU's value is nobody else's.
    unsafe {
        let began = now();
        let random = || bpf_get_prandom_u32();
        // Before it is asked who runs: whoever runs for a moment is not to weigh more than that.
        if !(*pace).ticks(began, order, random) {
            return 0;
        }
        if !is_the_targets(order) {
            return 0;
        }
        (*pace).met += 1;
        sample(&context, order, pace, 1, 0);
        (*pace).spent_ns += now() - began;
    }
    0
}

/// Whether the thread that runs is one of the process.
#[inline(always)]
fn is_the_targets(order: &Order) -> bool {
    process() == order.process && IDENTITY.runs(order.since_ns)
}

#[inline(always)]
fn learn(function: u64) {
    match FUNCTIONS.get_ptr_mut(&function) {
        // SAFETY: a map's value.
        Some(count) => unsafe { counters::add(count, 1) },
        // What has no room is not the tick, which comes more often than any other.
        None => drop(FUNCTIONS.insert(&function, &1, 0)),
    }
}

/// A page of the process's that it touches and that is not there, or that it writes to and that is not to be written yet.
#[btf_tracepoint(function = "page_fault_user")]
pub fn page_touched(context: BtfTracePointContext) -> i32 {
    page_fault(&context)
}

/// The same, where the kernel does so on its behalf.
#[btf_tracepoint(function = "page_fault_kernel")]
pub fn page_touched_by_kernel(context: BtfTracePointContext) -> i32 {
    page_fault(&context)
}

#[inline(always)]
fn page_fault(context: &BtfTracePointContext) -> i32 {
    let (Some(order), Some(pace)) = (ORDER.get(0), PACE.get_ptr_mut(0)) else {
        return 0;
    };
    if !is_the_targets(order) {
        return 0;
    }
    if thread::touches_nothing(Thread::current().as_ptr()) {
        return 0;
    }
    // Between them are the registers.
    let (address, error): (u64, u64) = (context.arg(0), context.arg(2));
    // SAFETY: the helpers have no preconditions, and the CPU's value is nobody else's but where this is interrupted by itself, which
    // costs a count.
    unsafe {
        let written = match fault(error) {
            Fault::Touch => {
                (*pace).met += 1;
                0
            }
            Fault::Write => {
                (*pace).written += 1;
                address
            }
            Fault::Neither => return 0,
        };
        let one_in = order.period_ns as u32;
        // At random: whoever touches pages by turns is met by no turn more than by another.
        if !is_one_in(one_in) {
            return 0;
        }
        let began = now();
        (*pace).taken += 1;
        sample(context, order, pace, one_in, written);
        (*pace).spent_ns += now() - began;
    }
    0
}

/// How many samples one is to stand for, by how many slots are free now.
#[inline(always)]
fn crowded(order: &Order) -> u32 {
    let Some(next) = NEXT.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: a map's value.
    let next = unsafe { next.read_volatile() };
    let mut filled = 0;
    for part in 0..PARTS {
        // From the one that is tried next on: those that were filled first are read first.
        let index = (next + part * ((order.mask + 1) / PARTS)) & order.mask;
        if let Some(slot) = SLOTS.get_ptr_mut(index) {
            // SAFETY: a map's value.
            let state = unsafe { (&raw const (*slot).head.state).read_volatile() };
            filled += u32::from(state != FREE);
        }
    }
    by_room(filled)
}

/// Whether this one is a sample, of so many.
#[inline(always)]
fn is_one_in(many: u32) -> bool {
    // SAFETY: the helper has no preconditions.
    many <= 1 || unsafe { bpf_get_prandom_u32() } % many == 0
}

/// Takes the thread that runs, with its stack in the kernel, or leaves it out by chance, or loses it.
///
/// # Safety
/// The pace is this CPU's, and nobody else writes to it now.
#[inline(always)]
unsafe fn sample(
    context: &BtfTracePointContext,
    order: &Order,
    pace: *mut Pace,
    stands_for: u32,
    written: u64,
) {
    let samples = crowded(order);
    if !is_one_in(samples) {
        // SAFETY: by the caller's word.
        unsafe { (*pace).left_out += 1 };
        return;
    }
    let is_taken = take(order, |head| {
        head.stands_for = stands_for * samples;
        head.written = written;
        // SAFETY: the context is the one that the kernel handed to this program, and there is room for as many bytes as are asked for.
        let kernel = unsafe {
            bpf_get_stack(
                context.as_ptr(),
                head.kernel.as_mut_ptr().cast(),
                size_of_val(&head.kernel) as u32,
                0,
            )
        };
        head.kernel_frames = frames(kernel);
    });
    if !is_taken {
        // SAFETY: by the caller's word.
        unsafe { (*pace).lost += 1 };
    }
}

/// Takes the thread that runs, of which `describe` says what it stands for; false where there is no free slot.
#[inline(always)]
fn take(order: &Order, describe: impl FnOnce(&mut Head)) -> bool {
    let Some(slot) = next(order) else {
        return false;
    };
    // SAFETY: a map's value, and the slot is this program's once it has changed the state.
    unsafe {
        let state = &raw mut (*slot).head.state;
        if counters::exchange(state, FREE, FILLING).is_err() {
            return false;
        }
        let head = &mut (*slot).head;
        thread::recognize(head, Thread::current().as_ptr());
        thread::describe(head, Thread::current().as_ptr());
        head.flags |= ON_CPU;
        describe(head);
        let begin = head.sp & !(PAGE as u64 - 1);
        if head.flags & NO_USER == 0 {
            let limit = thread::pages(Thread::current().as_ptr(), head.sp);
            copy(slot, limit, |to, at| {
                bpf_probe_read_user(to.cast(), PAGE as u32, (begin + at) as *const c_void) == 0
            });
        }
        // Last, and the kernel puts nothing behind it.
        counters::exchange(state, FILLING, FILLED).is_ok()
    }
}

/// To the kernel: come back to the same thread, when the next is read.
const AGAIN: i32 = 1;

/// One thread of the process, where user space reads of it the number of the slot that it is in. One whose stack is to be copied is
/// visited twice: reading ends before it, with its slot [`ASKED`], and when that is [`COPIED`] reading goes on with it.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub fn threads(context: *mut c_void) -> i32 {
    let context = Context::new(context);
    // SAFETY: `struct bpf_iter__task` has the task.
    let task = unsafe { context.word::<0>() };
    let Some(order) = ORDER.get(0) else {
        return 0;
    };
    if task.is_null() {
        return 0;
    }
    let (Some(next_slot), Some(waiting)) = (NEXT.get_ptr_mut(0), WAITING.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: a map's value, which nobody else writes to: there is one reader at a time.
    let waits = unsafe { core::mem::take(&mut *waiting) };
    // The kernel finds the process by its number alone, each time.
    // SAFETY: the kernel's task.
    if !unsafe { IDENTITY.is_of(task, order.since_ns) } {
        return 0;
    }
    if let Some(slot) = waits.checked_sub(1).and_then(|at| SLOTS.get_ptr_mut(at)) {
        // SAFETY: a map's value, which is this program's again if it is copied; and the kernel's task.
        unsafe {
            // If it is of another thread, that one has gone, and the reader wipes it.
            if (*slot).head.state == COPIED && thread::is_of(&(*slot).head, task) {
                compare(&mut (*slot).head, task);
                (*slot).head.state = FILLED;
                return i32::from(!context.write(&u64::from(waits - 1)));
            }
        }
    }
    // SAFETY: a map's value. One reader at a time: it takes no more than there are slots before it has wiped them.
    let index = unsafe { counters::next(next_slot) } & order.mask;
    let Some(slot) = SLOTS.get_ptr_mut(index) else {
        return 0;
    };
    // SAFETY: a map's value, which the reader does not look at yet; and the kernel's task.
    unsafe {
        let looked_at = LOOKED_AT.get_or_create(Thread::of(task));
        thread::recognize(&mut (*slot).head, task);
        let head = &mut (*slot).head;
        let is_known = looked_at.is_some_and(|looked_at| *looked_at == head.switches + 1);
        // Most threads wait for long, and nothing that is to be said of them changes meanwhile.
        if is_known && order.skip_unchanged != 0 && head.flags & ON_CPU == 0 {
            head.flags |= UNCHANGED;
        } else {
            look(&mut (*slot).head, task);
            if (*slot).head.pages > 0 {
                (*slot).head.state = ASKED;
                *waiting = index + 1;
                return AGAIN;
            }
            if (*slot).head.flags & ON_CPU == 0 {
                compare(&mut (*slot).head, task);
            }
        }
        (*slot).head.state = FILLED;
    }
    i32::from(!context.write(&u64::from(index)))
}

/// Describes a thread as it is, but for its stack: of that, how many pages are to be copied.
///
/// # Safety
/// The kernel handed the task out.
#[inline(always)]
unsafe fn look(head: &mut Head, task: *mut c_void) {
    // SAFETY: by the caller's word.
    unsafe {
        thread::describe(head, task);
        head.reader_arrived_ns = thread::arrived(Thread::current().as_ptr());
        let kernel = bpf_get_task_stack(
            task.cast(),
            head.kernel.as_mut_ptr().cast(),
            size_of_val(&head.kernel) as u32,
            0,
        );
        head.kernel_frames = frames(kernel);
    }
    // One that runs has no stack that stands still.
    if head.flags & (ON_CPU | NO_USER) == 0 {
        head.pages = thread::pages(task, head.sp);
    }
}

/// Whether the thread stood still since it was described, which is remembered with it.
///
/// # Safety
/// The kernel handed the task out.
#[inline(always)]
unsafe fn compare(head: &mut Head, task: *mut c_void) {
    // First: one that runs now has not been counted yet, and one that has run meanwhile has been.
    if thread::runs(task) {
        head.flags |= MOVED;
    } else if thread::switches(task) == head.switches {
        // SAFETY: by the caller's word, and a map's value.
        unsafe {
            if let Some(looked_at) = LOOKED_AT.get_or_create(Thread::of(task)) {
                *looked_at = head.switches + 1;
            }
        }
    // SAFETY: by the caller's word.
    } else if unsafe { thread::is_where_it_was(head, task) } {
        // It ran in the kernel, and what was seen there is of no moment.
        head.kernel_frames = 0;
    } else {
        head.flags |= MOVED;
    }
}

/// The names of the addresses, once.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub fn names(context: *mut c_void) -> i32 {
    let context = Context::new(context);
    // SAFETY: `struct bpf_iter__task` has the task.
    let task = unsafe { context.word::<0>() };
    if task.is_null() || FIELDS.number::<THREAD>(task) != FIELDS.number::<PROCESS>(task) {
        return 0;
    }
    for index in 0..NAMES as u32 {
        if let Some(address) = ADDRESSES.get(index) {
            context.write_name(*address);
        }
    }
    0
}

#[inline(always)]
fn next(order: &Order) -> Option<*mut Slot> {
    let next = NEXT.get_ptr_mut(0)?;
    // SAFETY: a map's value.
    let index = unsafe { counters::next(next) } & order.mask;
    SLOTS.get_ptr_mut(index)
}

/// Frames in so many bytes, or none where the helper failed.
#[inline(always)]
fn frames(bytes: i64) -> u32 {
    if bytes > 0 { bytes as u32 / 8 } else { 0 }
}

/// Copies so many pages at most, to the first that is not there.
///
/// # Safety
/// The slot is a map's value, and this program's.
#[inline(always)]
unsafe fn copy(slot: *mut Slot, limit: u32, read: impl Fn(*mut u8, u64) -> bool) {
    // SAFETY: a map's value, which has so many pages.
    let place = |page: u32| {
        Some(unsafe {
            (&raw mut (*slot).stack)
                .cast::<[u8; PAGE]>()
                .add(page as usize)
                .cast()
        })
    };
    let (pages, flags) = stack_pages::copy(limit, place, read);
    // SAFETY: by the caller's word.
    unsafe {
        (*slot).head.pages = pages;
        (*slot).head.flags |= flags;
    }
}

ckb_probe_programs::end!();
