//! How deep the probed calls of a thread are nested.

use ckb_probe_programs::{fields, storage::Thread};

// `task_struct.utask`, and of that `depth`: how many returns the kernel waits for in this thread, whoever probes them.
fields!(NESTING: PROBED, DEPTH);

/// The kernel sees no more of them to their ends (`MAX_URETPROBE_DEPTH` in include/linux/uprobes.h).
const DEEPEST: u32 = 64;

/// Whether the kernel will not see the return of the call that begins: it looks at the same number, after the programs have run
/// (`prepare_uretprobe` in kernel/events/uprobes.c).
#[inline(always)]
pub fn is_too_deep() -> bool {
    if !NESTING.has::<PROBED>(size_of::<u64>()) || !NESTING.has::<DEPTH>(size_of::<u32>()) {
        return false;
    }
    let thread = Thread::current().as_ptr();
    // SAFETY: the kernel's own pointers, followed by types that the verifier knows; of a thread that was never probed there is
    // nothing to follow, which reads as zero.
    let depth: u32 = unsafe {
        let probed = NESTING.trusted_u64::<PROBED>(thread);
        NESTING.trusted::<DEPTH, u32>(probed as *const _)
    };
    depth >= DEEPEST
}
