//! Counting a system call that has ended.

use aya_ebpf::{
    bindings::pt_regs,
    helpers::{
        bpf_get_current_comm,
        generated::{bpf_probe_read_kernel_str, bpf_probe_read_user_str},
    },
    macros::map,
    maps::{HashMap, RingBuf},
};
use ckb_probe_common::{
    BUCKETS, bucket,
    syscalls::{
        Begun, MAX_ERROR, MAX_TARGETS, Met, NUMBERS, Order, PATH_BYTES, SlowSyscall, error_key,
    },
};
use ckb_probe_programs::{
    constants::Constants,
    counters::{add, raise_alone},
    helpers::{process, thread},
    registers::syscall_argument,
    ring_shares,
};

use crate::{MET, file, numbers::SIGNAL_RETURN, rows};

/// Errors, by row and number; the loader sets how many.
#[map]
static ERRORS: HashMap<u32, u64> = HashMap::with_max_entries(1, 0);

/// Slow calls.
#[map]
static SLOW_CALLS: RingBuf = RingBuf::with_byte_size(4096, 0);
ring_shares!(SHARES, SLOW_CALLS, MAX_TARGETS as u32);

/// By number: which argument is a path, counting from 1; 0 for none.
#[unsafe(no_mangle)]
static PATHS: Constants<NUMBERS> = Constants::unset();

/// BPF_NOEXIST.
const IF_ABSENT: u64 = 1;

/// A call that has ended.
pub struct Call {
    target: u32,
    number: u32,
    row: u32,
    ended_ns: u64,
    duration_ns: u64,
    result: i64,
    registers: *const pt_regs,
}

impl Call {
    /// Of a target's, which ends now.
    #[inline(always)]
    pub fn of(
        target: u32,
        begun: &Begun,
        now: u64,
        result: i64,
        registers: *const pt_regs,
    ) -> Self {
        Self {
            target,
            number: begun.number,
            row: begun.row,
            ended_ns: now,
            duration_ns: now.saturating_sub(begun.time_ns),
            result,
            registers,
        }
    }

    #[inline(always)]
    fn error(&self) -> Option<u32> {
        let error = self.result.wrapping_neg() as u64;
        (error.wrapping_sub(1) < MAX_ERROR as u64 && self.number != SIGNAL_RETURN)
            .then_some(error as u32)
    }
}

/// Counts a beginning.
#[inline(always)]
pub fn begun(row: u32) {
    if let Some(values) = rows::values(row) {
        // SAFETY: a map's value, of this CPU.
        unsafe { (*values).begun += 1 };
    }
}

/// Counts a call that was broken off, and will be made again.
#[inline(always)]
pub fn restarted(row: u32) {
    if let Some(values) = rows::values(row) {
        // SAFETY: a map's value.
        unsafe { add(&raw mut (*values).restarts, 1) };
    }
}

/// Counts an end, and reports it when the call was slow.
#[inline(always)]
pub fn call(call: &Call, order: &Order) {
    // SAFETY: a value of this CPU's, and nothing preempts this.
    counted(call, order, |counter, by| unsafe { *counter += by });
}

/// The same, where another run of the programs may come in between.
#[inline(always)]
pub fn call_atomically(call: &Call, order: &Order) {
    // SAFETY: a map's value.
    counted(call, order, |counter, by| unsafe { add(counter, by) });
}

#[inline(always)]
fn counted(call: &Call, order: &Order, plus: impl Fn(*mut u64, u64)) {
    let Some(values) = rows::values(call.row) else {
        return;
    };
    let index = bucket(call.duration_ns) as usize;
    // SAFETY: a map's value, of this CPU; the index is within bounds, by the comparison that the verifier sees too.
    unsafe {
        plus(&raw mut (*values).sum_ns, call.duration_ns);
        if index < BUCKETS {
            let buckets = (&raw mut (*values).histogram.buckets).cast::<u64>();
            plus(buckets.add(index), 1);
        }
        let half = (&raw mut (*values).maxima)
            .cast::<u64>()
            .add(order.epoch as usize & 1);
        raise_alone(half, order.epoch, call.duration_ns);
    }
    if let Some(error) = call.error() {
        // SAFETY: a map's value.
        plus(unsafe { &raw mut (*values).errors }, 1);
        count_error(call, error_key(call.row, error), order);
    }
    if call.duration_ns >= order.slow_threshold_ns {
        // SAFETY: a map's value.
        plus(unsafe { &raw mut (*values).slow }, 1);
        report(call, order);
    }
}

#[inline(always)]
fn count_error(call: &Call, key: u32, order: &Order) {
    // Absent: once, then it is there. Another CPU may put it there in between.
    if ERRORS.get_ptr_mut(&key).is_none() && rows::may_tell_one_more_error(call.target, order) {
        let _ = ERRORS.insert(&key, &0, IF_ABSENT);
    }
    match ERRORS.get_ptr_mut(&key) {
        // SAFETY: a map's value.
        Some(count) => unsafe { add(count, 1) },
        // SAFETY: the field of a value that the caller looked up.
        None => lose(call, |met| unsafe { &raw mut (*met).error_numbers_lost }),
    }
}

/// Counts something that is lost to the target of this call.
#[inline(always)]
fn lose(call: &Call, which: impl FnOnce(*mut Met) -> *mut u64) {
    if let Some(met) = MET.get_ptr_mut(call.target) {
        // SAFETY: a field of a map's value.
        unsafe { add(which(met), 1) };
    }
}

#[inline(always)]
fn report(call: &Call, order: &Order) {
    const SIZE: u64 = size_of::<SlowSyscall>() as u64;
    if !SHARES.take(order.payer, SIZE) {
        // SAFETY: the field of a value that the caller looked up.
        return lose(call, |met| unsafe { &raw mut (*met).events_lost });
    }
    let Some(mut event) = SLOW_CALLS.reserve::<SlowSyscall>(0) else {
        SHARES.give_back(order.payer, SIZE);
        // SAFETY: the field of a value that the caller looked up.
        return lose(call, |met| unsafe { &raw mut (*met).events_lost });
    };
    // SAFETY: the registers are the kernel's, by the tracepoint's type.
    let arguments = unsafe { arguments(call.registers) };
    event.write(SlowSyscall {
        time_ns: call.ended_ns,
        duration_ns: call.duration_ns,
        result: call.result,
        arguments,
        process: process(),
        thread: thread(),
        target: call.target as u16,
        payer: order.payer as u16,
        number: call.number,
        inode: 0,
        thread_name: bpf_get_current_comm().unwrap_or_default(),
        path: [0; PATH_BYTES],
    });
    let event_at = event.as_mut_ptr();
    // SAFETY: the event has the room; the helpers cope with any address, and what they cannot read stays empty.
    unsafe {
        let path = (&raw mut (*event_at).path).cast();
        let address = match PATHS.at(call.number) {
            1 => arguments[0],
            2 => arguments[1],
            3 => arguments[2],
            4 => arguments[3],
            _ => 0,
        };
        if address != 0 {
            bpf_probe_read_user_str(path, PATH_BYTES as u32, address as *const _);
        } else if let Some(file) = file::of(arguments[0] as u32) {
            (*event_at).inode = file.inode;
            bpf_probe_read_kernel_str(path, PATH_BYTES as u32, file.name);
        }
    }
    event.submit(0);
}

/// What the call was made with: the kernel leaves these registers alone.
///
/// # Safety
/// The registers are those of a tracepoint.
#[inline(always)]
unsafe fn arguments(registers: *const pt_regs) -> [u64; 6] {
    // SAFETY: by the caller's word.
    unsafe {
        [
            *syscall_argument::<0>(registers),
            *syscall_argument::<1>(registers),
            *syscall_argument::<2>(registers),
            *syscall_argument::<3>(registers),
            *syscall_argument::<4>(registers),
            *syscall_argument::<5>(registers),
        ]
    }
}
