//! Tells of every exec, so that nobody needs to look for new processes all of the time.
#![no_std]
#![no_main]

use aya_ebpf::{
    macros::{map, raw_tracepoint},
    maps::RingBuf,
    programs::RawTracePointContext,
};
use ckb_probe_common::Exec;
use ckb_probe_programs::helpers::process;

/// Full, it drops events: whoever reads it looks at /proc from time to time as well.
#[map]
static EXECS: RingBuf = RingBuf::with_byte_size(4096, 0);

#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn process_exec(_: RawTracePointContext) -> i32 {
    let exec = Exec { pid: process() };
    // Full: see above.
    let _ = EXECS.output::<Exec>(exec, 0);
    0
}

ckb_probe_programs::end!();
