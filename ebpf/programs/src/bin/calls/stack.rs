//! Keeps the programs on the stack of the thread that they interrupt.
//!
//! From 6.13 on, the kernel gives a program of this type that uses 64 bytes of stack or more a stack of its own, one on
//! each CPU, and trusts that no CPU runs it twice at a time (`bpf_enable_priv_stack` in kernel/bpf/verifier.c). For uprobes
//! nothing sees to that (`uprobe_prog_run` in kernel/trace/bpf_trace.c): where the kernel can be preempted, another thread
//! on the same CPU runs the same program over what the first one has on its stack. Counts go wrong, or the kernel crashes.
//! A program that may make a tail call is given no such stack.

use aya_ebpf::{EbpfContext, macros::map, maps::ProgramArray};

/// Always empty.
#[map]
static NO_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// A tail call that leads nowhere. Each program must have one in its code; none needs to come by it.
#[inline(always)]
pub fn stay_on_the_threads(context: &impl EbpfContext) {
    // SAFETY: the context is the one that the kernel handed to this program. The call fails, since there is no program.
    let _ = unsafe { NO_PROGRAMS.tail_call(context, 0) };
}
