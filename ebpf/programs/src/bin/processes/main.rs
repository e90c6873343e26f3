//! Counts and tells how processes come to run what they run, and how they end.
#![no_std]
#![no_main]

mod layout;

use core::ffi::c_void;

use aya_ebpf::{
    helpers::generated::bpf_probe_read_user,
    macros::{btf_tracepoint, map},
    maps::{LruHashMap, PerCpuArray},
    programs::BtfTracePointContext,
};
use ckb_probe_common::counts::CountEvent;
use ckb_probe_programs::{
    counts,
    counts::{Record, Target, is_first},
    fields,
    helpers::now,
};
use layout::{ARGUMENT_BYTES, End, Exec, sum};

counts!(COUNTER);

fields!(
    FIELDS:
    // Of `task_struct`.
    PROCESS, LEADER, PARENT, NAME, SIGNALS, STARTED, CODE, MEMORY,
    // Of `signal_struct`.
    LIVE, FLAGS, GROUP_CODE, FREED_MEMORY,
    // Of `mm_struct`.
    ARGUMENTS_BEGIN, ARGUMENTS_END,
    /// Of `linux_binprm`.
    ARGUMENT_COUNT,
);

/// `SIGNAL_GROUP_EXIT`: the process ends by its own code, and not by its first thread's.
const GROUP_EXIT: u32 = 4;

const KILL: u32 = 9;

/// Room to put a record together: more than fits on the stack.
#[map]
static EXEC: PerCpuArray<Record<Exec>> = PerCpuArray::with_max_entries(1, 0);

/// Scratch space for the record of an end, which is too large for the stack.
#[map]
static END: PerCpuArray<Record<End>> = PerCpuArray::with_max_entries(1, 0);

/// Processes of which the end was told: the last two threads of one may both find that nobody is left.
#[map]
static ENDED: LruHashMap<Process, u8> = LruHashMap::with_max_entries(1024, 0);

/// A process, told apart from a later one of the same number.
#[repr(C)]
struct Process {
    number: u64,
    started_ns: u64,
}

#[btf_tracepoint(function = "sched_process_exec")]
pub fn exec(context: BtfTracePointContext) -> i32 {
    let task: *const c_void = context.arg(0);
    let plan: *const c_void = context.arg(2);
    // SAFETY: the tracepoint's arguments are a task and the plan of its exec.
    unsafe {
        COUNTER.observe(task, |target| {
            let key = layout::key(name(task));
            if let Some(row) = COUNTER.row(target, &key) {
                row.add(sum::EXECS, 1);
            }
            if target.wants(layout::TELL_EXECS) {
                tell_exec(target, task, plan);
            }
        });
    }
    0
}

/// # Safety
/// Both are of the types that the verifier knows.
#[inline(always)]
unsafe fn tell_exec(target: Target, task: *const c_void, plan: *const c_void) {
    let Some(record) = EXEC.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: a map's value, of which nobody else writes to this CPU's; the types are those of the caller's word.
    unsafe {
        let record = &mut *record;
        record.event = event(task, layout::EXEC);
        let exec = &mut record.payload;
        (exec.parent, exec.parent_name) = parent(task);
        exec.count = FIELDS.trusted::<ARGUMENT_COUNT, u32>(plan);
        exec.bytes = 0;
        let mut copied = 0;
        let memory: *const c_void = FIELDS.trusted::<MEMORY, _>(task);
        if target.wants(layout::TELL_ARGUMENTS) && !memory.is_null() {
            let begin = FIELDS.trusted::<ARGUMENTS_BEGIN, u64>(memory);
            let end = FIELDS.trusted::<ARGUMENTS_END, u64>(memory);
            let bytes = end.wrapping_sub(begin);
            exec.bytes = bytes as u32;
            copied = if bytes > ARGUMENT_BYTES as u64 {
                ARGUMENT_BYTES as u64
            } else {
                bytes
            };
            let to = (&raw mut exec.arguments).cast();
            if bpf_probe_read_user(to, copied as u32, begin as *const c_void) != 0 {
                copied = 0;
            }
        }
        exec.copied = copied as u32;
        let head = size_of::<Exec>() - ARGUMENT_BYTES;
        COUNTER.tell(target, record, head + copied as usize);
    }
}

#[btf_tracepoint(function = "sched_process_exit")]
pub fn end(context: BtfTracePointContext) -> i32 {
    let began = now();
    let task: *const c_void = context.arg(0);
    // SAFETY: the tracepoint's argument is a task.
    unsafe {
        let signals: *const c_void = FIELDS.trusted::<SIGNALS, _>(task);
        // A thread ends, and others of its process go on.
        if FIELDS.trusted::<LIVE, u32>(signals) != 0 {
            COUNTER.miss(began);
            return 0;
        }
        COUNTER.observe(task, |target| count_end(target, task, signals));
    }
    0
}

/// # Safety
/// Both are of the types that the verifier knows.
#[inline(always)]
unsafe fn count_end(target: Target, task: *const c_void, signals: *const c_void) {
    // SAFETY: by the caller's word.
    unsafe {
        let leader: *const c_void = FIELDS.trusted::<LEADER, _>(task);
        let started_ns = FIELDS.trusted::<STARTED, u64>(leader);
        let process = Process {
            number: u64::from(FIELDS.trusted::<PROCESS, u32>(task)) | u64::from(target.id()) << 32,
            started_ns,
        };
        if !is_first(&ENDED, &process) {
            return;
        }
        let status = if FIELDS.trusted::<FLAGS, u32>(signals) & GROUP_EXIT != 0 {
            FIELDS.trusted::<GROUP_CODE, u32>(signals)
        } else {
            FIELDS.trusted::<CODE, u32>(leader)
        };
        let signal = status & 0x7f;
        // What is dying already may be taken for its memory too, and does not die of that.
        let out_of_memory = signal == KILL && FIELDS.trusted::<FREED_MEMORY, u64>(signals) != 0;
        let Some(record) = END.get_ptr_mut(0) else {
            return;
        };
        let record = &mut *record;
        record.event = event(leader, layout::END);
        record.payload.status = status;
        record.payload.out_of_memory = u32::from(out_of_memory);
        record.payload.padding = 0;
        let lifetime_ns = record.event.time_ns.wrapping_sub(started_ns);
        let key = layout::key(record.event.name);
        if let Some(row) = COUNTER.row(target, &key) {
            COUNTER.measure(target, row, &key, layout::LIFETIME, lifetime_ns);
            row.add(sum::ENDS, 1);
            row.add(sum::LIFETIME, lifetime_ns);
            if signal != 0 {
                row.add(sum::KILLS, 1);
            } else if status != 0 {
                row.add(sum::FAILURES, 1);
            }
            if out_of_memory {
                row.add(sum::OUT_OF_MEMORY, 1);
            }
        }
        let wanted = status != 0 || target.wants(layout::TELL_SUCCESSES);
        if target.wants(layout::TELL_ENDS)
            && (wanted || COUNTER.is_asked_about(record.event.process))
        {
            record.payload.lifetime_ns = lifetime_ns;
            (record.payload.parent, record.payload.parent_name) = parent(leader);
            COUNTER.tell(target, record, size_of::<End>());
        }
    }
}

/// # Safety
/// The task is of the type that the verifier knows.
#[inline(always)]
unsafe fn event(task: *const c_void, what: u32) -> CountEvent {
    CountEvent {
        time_ns: now(),
        target: 0,
        what,
        // SAFETY: by the caller's word.
        process: unsafe { FIELDS.trusted::<PROCESS, u32>(task) },
        length: 0,
        payer: 0,
        // SAFETY: by the caller's word.
        name: unsafe { name(task) },
    }
}

/// The number and the name of the process that forked this one; of another, once that one has ended.
///
/// # Safety
/// The task is of the type that the verifier knows.
#[inline(always)]
unsafe fn parent(task: *const c_void) -> (u32, [u8; 16]) {
    // SAFETY: by the caller's word.
    unsafe {
        let parent: *const c_void = FIELDS.trusted::<PARENT, _>(task);
        let leader: *const c_void = FIELDS.trusted::<LEADER, _>(parent);
        (FIELDS.trusted::<PROCESS, u32>(parent), name(leader))
    }
}

/// # Safety
/// The address is a task's.
#[inline(always)]
unsafe fn name(task: *const c_void) -> [u8; 16] {
    // SAFETY: bytes.
    unsafe { FIELDS.value::<NAME, _>(task) }.unwrap_or_default()
}

ckb_probe_programs::end!();
