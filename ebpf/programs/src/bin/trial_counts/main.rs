//! For the tests of the mechanism `counts`: counts system calls that there are not, and tells of them.
#![no_std]
#![no_main]

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use ckb_probe_common::counts::{CountEvent, KEY_BYTES};
use ckb_probe_programs::{counts, counts::Record, fields, helpers::now, storage::Thread};

counts!(COUNTER);

/// No system call has a number as great.
const FIRST: u64 = 100_000;

/// That many are counted.
const COUNT: u64 = 2000;

// Of `task_struct`.
fields!(FIELDS: PROCESS);

#[btf_tracepoint(function = "sys_enter")]
pub fn enter(context: BtfTracePointContext) -> i32 {
    let number = context.arg::<u64>(1).wrapping_sub(FIRST);
    let task = Thread::current().as_ptr();
    // SAFETY: the helper hands out a task.
    unsafe {
        COUNTER.observe(task, |target| {
            if number >= COUNT {
                return;
            }
            let mut key = [0; KEY_BYTES];
            key[0] = number as u8;
            key[1] = (number >> 8) as u8;
            if let Some(row) = COUNTER.row(target, &key) {
                COUNTER.measure(target, row, &key, 0, number);
                row.add(0, 1);
            }
            if target.wants(1) {
                let mut record = Record {
                    event: CountEvent {
                        time_ns: now(),
                        what: 7,
                        process: FIELDS.trusted::<PROCESS, u32>(task),
                        ..CountEvent::default()
                    },
                    payload: number,
                };
                COUNTER.tell(target, &mut record, size_of::<u64>());
            }
        });
    }
    0
}

ckb_probe_programs::end!();
