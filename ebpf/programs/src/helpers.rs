//! What the kernel tells any program, whatever it was called for.

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_attach_cookie, bpf_get_current_pid_tgid, bpf_ktime_get_ns},
};
use ckb_probe_common::Cookie;

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

/// The number of the thread that runs, in the host's pid namespace.
#[inline(always)]
pub fn thread() -> u32 {
    bpf_get_current_pid_tgid() as u32
}

/// The number of its process, likewise.
#[inline(always)]
pub fn process() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

/// What stands with the site that is met.
#[inline(always)]
pub fn cookie(context: &impl EbpfContext) -> Cookie {
    // SAFETY: the context is the one that the kernel handed to this program.
    Cookie(unsafe { bpf_get_attach_cookie(context.as_ptr()) })
}
