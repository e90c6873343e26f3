//! What is told of a thread.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::pt_regs,
    helpers::generated::{bpf_probe_read_kernel, bpf_task_pt_regs},
};
use ckb_probe_common::stacks::{Head, NO_USER, ON_CPU, REPLACED, pages_between};
use ckb_probe_programs::{fields, registers};

fields!(
    FIELDS:
    // Of `task_struct`.
    THREAD, PROCESS, NAME, STATE, RUNS, SWITCHES, FORCED_SWITCHES, FLAGS,
    /// Of its `sched_info`; not all kernels have it.
    ARRIVED,
    /// Of `hrtimer`.
    FUNCTION,
    // What a probe at a function's return leaves, on kernels that have those: `task_struct.utask`, of that `return_instances`, and
    // of each what it has replaced, whether another one had replaced it already, and the next one.
    PROBED, INSTANCES, ORIGINAL, CHAINED, NEXT,
    /// Of `task_struct`: that pages are not brought in for it now; not all kernels have it.
    TOUCHES_NOTHING,
    /// Of its `thread_struct`: where its control block is.
    CONTROL_BLOCK,
);

/// PF_KTHREAD, PF_IO_WORKER, PF_USER_WORKER: what the kernel runs in the process's name.
const OF_THE_KERNEL: u64 = 0x0020_0000 | 0x0000_0010 | 0x0000_4000;

/// Whether it looks for what is there, and no page is brought in that is not: programs do so that copy stacks, these among them.
#[inline(always)]
pub fn touches_nothing(task: *const c_void) -> bool {
    // To read that counts as one more: the helper does the same for as long as it reads.
    number::<TOUCHES_NOTHING>(task) > 1
}

/// How many pages of its stack are copied at most.
#[inline(always)]
pub fn pages(task: *const c_void, sp: u64) -> u32 {
    pages_between(sp, number::<CONTROL_BLOCK>(task))
}

/// Which thread it is, and whether it has run since; of the rest, that there is nothing.
///
/// # Safety
/// The kernel handed the task out.
#[inline(always)]
pub unsafe fn recognize(head: &mut Head, task: *const c_void) {
    head.thread = number::<THREAD>(task) as u32;
    head.process = number::<PROCESS>(task) as u32;
    head.task_state = number::<STATE>(task) as u32;
    head.switches = switches(task);
    head.reader_arrived_ns = 0;
    head.kernel_frames = 0;
    head.pages = 0;
    head.flags = 0;
    if runs(task) {
        head.flags |= ON_CPU;
    }
    // SAFETY: the name has room for as many bytes as are read; the helper copes with any address.
    unsafe {
        bpf_probe_read_kernel(
            head.name.as_mut_ptr().cast(),
            size_of_val(&head.name) as u32,
            FIELDS.place::<NAME>(task),
        );
    }
}

/// All but the stacks, of a thread that was recognized.
///
/// # Safety
/// The kernel handed the task out.
#[inline(always)]
pub unsafe fn describe(head: &mut Head, task: *const c_void) {
    head.arrived_ns = arrived(task);
    if number::<FLAGS>(task) & OF_THE_KERNEL != 0 {
        head.flags |= NO_USER;
    }
    // SAFETY: the registers are those of the task. The helper copes with any address.
    unsafe {
        let registers = bpf_task_pt_regs(task.cast_mut().cast()) as *const pt_regs;
        head.ip = register(registers::instruction(registers));
        head.sp = register(registers::stack(registers));
        head.bp = register(registers::frame(registers));
        head.lr = registers::link(registers);
        head.call = registers::syscall(registers);
        head.argument = register(registers::syscall_argument::<0>(registers));
    }
    let probed = FIELDS.pointer::<PROBED>(task);
    let mut instance = probed.and_then(|probed| FIELDS.pointer::<INSTANCES>(probed));
    for index in 0..REPLACED {
        head.replaced[index] = 0;
        if let Some(it) = instance {
            if number::<CHAINED>(it) == 0 {
                head.replaced[index] = number::<ORIGINAL>(it);
            }
            instance = FIELDS.pointer::<NEXT>(it);
        }
    }
}

/// Whether it is in the same call of the kernel's as it was when it was described, as far as its registers in user space tell: if so
/// its stack there is the same.
///
/// # Safety
/// The kernel handed the task out.
#[inline(always)]
pub unsafe fn is_where_it_was(head: &Head, task: *const c_void) -> bool {
    // SAFETY: the registers are those of the task. The helper copes with any address.
    unsafe {
        let registers = bpf_task_pt_regs(task.cast_mut().cast()) as *const pt_regs;
        head.call >= 0
            && head.call == registers::syscall(registers)
            && head.argument == register(registers::syscall_argument::<0>(registers))
            && head.ip == register(registers::instruction(registers))
            && head.sp == register(registers::stack(registers))
            && head.bp == register(registers::frame(registers))
    }
}

/// Whether it is the thread that was recognized.
#[inline(always)]
pub fn is_of(head: &Head, task: *const c_void) -> bool {
    u64::from(head.thread) == number::<THREAD>(task)
}

/// Whether it is on a CPU.
#[inline(always)]
pub fn runs(task: *const c_void) -> bool {
    number::<RUNS>(task) != 0
}

/// How often a thread has stopped running.
#[inline(always)]
pub fn switches(task: *const c_void) -> u64 {
    number::<SWITCHES>(task) + number::<FORCED_SWITCHES>(task)
}

/// When it came to a CPU the last time.
#[inline(always)]
pub fn arrived(task: *const c_void) -> u64 {
    number::<ARRIVED>(task)
}

#[inline(always)]
fn number<const FIELD: usize>(task: *const c_void) -> u64 {
    FIELDS.number::<FIELD>(task).unwrap_or(0)
}

#[inline(always)]
unsafe fn register(place: *const u64) -> u64 {
    // SAFETY: by the caller's word.
    unsafe { place.read_volatile() }
}
