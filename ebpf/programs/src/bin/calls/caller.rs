//! Copies of the stacks of slow calls, as they are at the return: whoever called has the stack from there on.
//!
//! They go to slots that user space has mapped, which unwinds and wipes them. There are as many as it has left free: what is not
//! copied is counted. Where nobody asks for stacks the loader says so, and the verifier leaves out all of this.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::pt_regs,
    helpers::generated::{bpf_get_current_comm, bpf_get_current_task, bpf_probe_read_user},
    macros::map,
    maps::{Array, PerCpuArray},
};
use ckb_probe_common::{
    Control,
    stacks::{
        FILLED, FILLING, FREE, Head, ON_CPU, PAGE, REPLACED, SLOT_PAGES, SLOW_SLOTS, pages_between,
    },
};
use ckb_probe_programs::{
    constants::Constants,
    counters::{self, add},
    fields,
    helpers::{now, process, thread},
    registers, stack_pages,
};

/// BPF_F_MMAPABLE.
const MAPPED: u32 = 1 << 10;

/// 1 where stacks are copied at all.
#[unsafe(no_mangle)]
static COPIES_STACKS: Constants<1> = Constants::unset();

fields!(
    FIELDS:
    // What a probe at a function's return leaves, on kernels that have those: `task_struct.utask`, of that `return_instances`, and
    // of each what it has replaced, whether another one had replaced it already, where on the stack it is, and the next one.
    PROBED, INSTANCES, ORIGINAL, CHAINED, STACK, NEXT_INSTANCE,
    /// Where the control block of the thread is: `task_struct.thread.fsbase`.
    CONTROL_BLOCK,
);

/// The pages of the slots: a head, and what is copied. One page where nothing is: the loader says how many.
#[map]
static SLOTS: Array<[u8; PAGE]> = Array::with_max_entries(1, MAPPED);

/// The slot that is tried first, and how many copies were begun.
#[map]
static NEXT: Array<u32> = Array::with_max_entries(2, 0);

/// By operation, if stacks are copied: slow calls that are told without their stacks. The loader says how many operations there are.
#[map]
static STACKS_LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// What copying took, in nanoseconds: at the process's expense.
#[map]
static COPYING: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// How many slots are tried: two threads may come for the same one.
const TRIES: u32 = 4;

/// Whether the stacks of slow calls of this operation are copied.
#[inline(always)]
pub fn is_wanted(operation: u32, control: &Control) -> bool {
    are_copied() && control.stacks.get(operation as usize) == Some(&1)
}

/// Whether any stacks are copied.
#[inline(always)]
pub fn are_copied() -> bool {
    COPIES_STACKS.at(0) == 1
}

/// Copies the stack of a thread that has returned from a call. The number of the copy; 0 where there is none.
#[inline(never)]
pub fn copy(registers: *const pt_regs, operation: u32) -> u32 {
    let began = now();
    let number = copied(registers).unwrap_or(0);
    if number == 0 {
        lose(operation);
    }
    if let Some(copying) = COPYING.get_ptr_mut(0) {
        // SAFETY: a map's value.
        unsafe { add(copying, now() - began) };
    }
    number
}

/// Counts a slow call that is told without its stack, or not at all.
#[inline(always)]
pub fn lose(operation: u32) {
    if let Some(lost) = STACKS_LOST.get_ptr_mut(operation) {
        // SAFETY: a map's value.
        unsafe { add(lost, 1) };
    }
}

#[inline(always)]
fn copied(registers: *const pt_regs) -> Option<u32> {
    let next = NEXT.get_ptr_mut(0)?;
    let copies = NEXT.get_ptr_mut(1)?;
    // SAFETY: a map's value. Where two threads are at it, one of them goes a slot further.
    let first = unsafe { next.read_volatile() };
    let mut taken = None;
    for tried in 0..TRIES {
        let place = first.wrapping_add(tried) & (SLOW_SLOTS - 1);
        let head = SLOTS.get_ptr_mut(place * SLOT_PAGES)?.cast::<Head>();
        // SAFETY: a map's value: the head of a slot.
        let state = unsafe { &raw mut (*head).state };
        // SAFETY: as above.
        if unsafe { counters::exchange(state, FREE, FILLING) }.is_ok() {
            taken = Some((place, head));
            break;
        }
    }
    let (place, head) = taken?;
    // SAFETY: maps' values, and the slot is this program's.
    unsafe {
        next.write_volatile(place + 1);
        // Never 0, but for one in four thousand million.
        let number = counters::next(copies).wrapping_add(1);
        describe(&mut *head, registers);
        (*head).stands_for = number;
        let begin = (*head).sp & !(PAGE as u64 - 1);
        let limit = pages_between((*head).sp, control_block());
        let (pages, flags) = stack_pages::copy(
            limit,
            |page| {
                SLOTS
                    .get_ptr_mut(place * SLOT_PAGES + 1 + page)
                    .map(<*mut _>::cast)
            },
            |to, at| {
                bpf_probe_read_user(to.cast(), PAGE as u32, (begin + at) as *const c_void) == 0
            },
        );
        (*head).pages = pages;
        (*head).flags |= flags;
        // Last, and the kernel puts nothing behind it.
        let filled = counters::exchange(&raw mut (*head).state, FILLING, FILLED);
        filled.is_ok().then_some(number)
    }
}

/// All but the stack.
///
/// # Safety
/// The registers are those that the kernel handed to the program.
#[inline(always)]
unsafe fn describe(head: &mut Head, registers: *const pt_regs) {
    head.process = process();
    head.thread = thread();
    head.flags = ON_CPU;
    // Straight to where it belongs: a copy on the stack, and a call to fill it, are more than there is room for on Linux 6.1, which rounds
    // up the frame of each function.
    // SAFETY: a map's value, as long as is said.
    unsafe { bpf_get_current_comm(head.name.as_mut_ptr().cast(), head.name.len() as u32) };
    // SAFETY: by the caller's word. Volatile, so that no two reads are made one of a choice of addresses, which the verifier
    // refuses.
    unsafe {
        head.ip = registers::instruction(registers).read_volatile();
        head.sp = registers::stack(registers).read_volatile();
        head.bp = registers::frame(registers).read_volatile();
        head.lr = registers::link(registers);
    }
    replaced(head);
}

/// Tells the return addresses that are replaced further up on the stack: whether the kernel's list still has those of the call that
/// has just returned is different from kernel to kernel. Each is told with the stack pointer at its function's entry, which is where it is
/// again after the return, but for what that pops. A caller of that function has its own above.
#[inline(always)]
fn replaced(head: &mut Head) {
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() } as *const c_void;
    let probed = FIELDS.pointer::<PROBED>(task);
    let mut instance = probed.and_then(|probed| FIELDS.pointer::<INSTANCES>(probed));
    for index in 0..REPLACED {
        head.replaced[index] = 0;
        if let Some(it) = instance {
            let number = |found: Option<u64>| found.unwrap_or(0);
            if number(FIELDS.number::<CHAINED>(it)) == 0
                && number(FIELDS.number::<STACK>(it)).wrapping_add(registers::POPPED_BY_RETURN)
                    > head.sp
            {
                head.replaced[index] = number(FIELDS.number::<ORIGINAL>(it));
            }
            instance = FIELDS.pointer::<NEXT_INSTANCE>(it);
        }
    }
}

#[inline(always)]
fn control_block() -> u64 {
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() } as *const c_void;
    FIELDS.number::<CONTROL_BLOCK>(task).unwrap_or(0)
}
