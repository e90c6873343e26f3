//! The eight bytes that the kernel keeps for a session from a call's entry to its return.
//!
//! They are zero at the entry (`handler_chain` in kernel/events/uprobes.c), and what the entry left there at the return:
//! a value other than zero tells the two apart, and saves the calls of `bpf_session_is_return`.
//!
//! That holds of uprobes. At a function of the kernel they are whatever an earlier call left there, until they are
//! written: there it must be asked.
//!
//! `bpf_session_cookie` is a kfunc, which this compiler cannot name. A call to it is written as the call of a helper
//! whose number no kernel has, and the loader puts the kfunc in its place. Kernels from 7.0 on want the program's context
//! as its argument; earlier ones want none, and do not look.

use core::ffi::c_void;

use ckb_probe_common::{KFUNC_SESSION_COOKIE, KFUNC_SESSION_IS_RETURN};

/// Where they are: a word of the kernel's own, valid while the program runs.
#[inline(always)]
pub fn word(context: *mut c_void) -> *mut u64 {
    // SAFETY: never an address: the loader makes it a call of `__u64 *bpf_session_cookie(void *)`.
    let kfunc: unsafe extern "C" fn(*mut c_void) -> *mut u64 =
        unsafe { core::mem::transmute(KFUNC_SESSION_COOKIE as usize) };
    // SAFETY: the kfunc has no preconditions in a session program.
    unsafe { kfunc(context) }
}

/// Whether the call returns, and does not begin.
#[inline(always)]
pub fn is_return(context: *mut c_void) -> bool {
    // SAFETY: never an address: the loader makes it a call of `bool bpf_session_is_return(void *)`.
    let kfunc: unsafe extern "C" fn(*mut c_void) -> u64 =
        unsafe { core::mem::transmute(KFUNC_SESSION_IS_RETURN as usize) };
    // SAFETY: the kfunc has no preconditions in a session program. Of a bool, its callers may believe no more than a byte.
    unsafe { kfunc(context) as u8 != 0 }
}
