//! For the tests of the loader: a program of each kind that it can load, with known results.
#![no_std]
#![no_main]

use core::ffi::c_void;

use aya_ebpf::{
    macros::{btf_tracepoint, map},
    maps::Array,
    programs::BtfTracePointContext,
};
use ckb_probe_programs::{fields, helpers::thread, iterator};

/// The thread whose system calls are counted: others of its process may be other tests.
#[map]
static THREAD: Array<u32> = Array::with_max_entries(1, 0);

/// How many of them are getppid.
#[map]
static CALLS: Array<u64> = Array::with_max_entries(1, 0);

const GETPPID: u64 = 110;

// Of `task_struct`.
fields!(FIELDS: PROCESS_ID, NAME, PARENT);

#[repr(C)]
struct Task {
    process: u32,
    parent: u32,
    name: [u8; 16],
}

#[btf_tracepoint(function = "sys_enter")]
pub fn count(context: BtfTracePointContext) -> i32 {
    let thread = thread();
    if THREAD.get(0) == Some(&thread)
        && context.arg::<u64>(1) == GETPPID
        && let Some(calls) = CALLS.get_ptr_mut(0)
    {
        // SAFETY: a map's value.
        unsafe { *calls += 1 };
    }
    0
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub fn list(context: *mut c_void) -> i32 {
    let context = iterator::Context::new(context);
    // SAFETY: `struct bpf_iter__task` has the task.
    let task: *const c_void = unsafe { context.word::<0>() };
    if task.is_null() {
        return 0;
    }
    let parent = FIELDS.pointer::<PARENT>(task).unwrap_or(core::ptr::null());
    let record = Task {
        process: FIELDS.number::<PROCESS_ID>(task).unwrap_or(0) as u32,
        parent: FIELDS.number::<PROCESS_ID>(parent).unwrap_or(0) as u32,
        // SAFETY: bytes.
        name: unsafe { FIELDS.value::<NAME, _>(task) }.unwrap_or_default(),
    };
    i32::from(!context.write(&record))
}

ckb_probe_programs::end!();
