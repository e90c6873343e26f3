//! What is counted, and what is told.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_current_comm, bpf_probe_read_user_str_bytes},
    macros::map,
    maps::{Array, HashMap, PerCpuArray, RingBuf},
};
use ckb_probe_common::health::{
    HealthCall, HealthEvent, HealthKey, HealthLosses, HealthSums, LastError, MAX_ROWS,
};
use ckb_probe_programs::counters::add;

use crate::{Arguments, families, now, status::Status};

/// By key.
#[map]
static ROWS: HashMap<HealthKey, HealthSums> = HashMap::with_max_entries(MAX_ROWS, 0);

/// What went wrong, as it is told; the loader sets the size.
#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(4096, 0);

/// The gravest error that was taken down and is not over.
#[map]
static LAST_ERROR: Array<LastError> = Array::with_max_entries(1, 0);

/// What could not be recorded.
#[map]
static LOSSES: PerCpuArray<HealthLosses> = PerCpuArray::with_max_entries(1, 0);

/// What is told beside the key.
struct Told {
    duration_ns: u64,
    numbers: [u64; 2],
    text: u64,
}

/// Background work that has ended. That it succeeded, others count.
#[inline(never)]
pub fn outcome(slot: u32, call: &HealthCall) {
    let status = Status::at(call.about);
    if status.is_ok() {
        return;
    }
    let key = HealthKey {
        slot,
        status: status.head,
        ..HealthKey::default()
    };
    let duration_ns = now().saturating_sub(call.began_ns);
    add_to(&key, 1, duration_ns);
    let told = Told {
        duration_ns,
        numbers: [0; 2],
        text: status.text,
    };
    tell(&key, &told);
}

/// An error that is taken down: the reason is the second argument, and the third points to the status.
#[inline(always)]
pub fn error(slot: u32, arguments: &Arguments) {
    let status = Status::at(arguments.third);
    let key = HealthKey {
        slot,
        reason: arguments.second as u32,
        status: status.head,
        ..HealthKey::default()
    };
    add_to(&key, 1, 0);
    if status.lasts
        && let Some(last) = LAST_ERROR.get_ptr_mut(0)
    {
        // SAFETY: a map's value; RocksDB takes errors down under a lock, and keeps the gravest until it is over.
        unsafe {
            if (*last).lasts == 0 || (*last).key.status.severity < status.head.severity {
                *last = LastError { key, lasts: 1 };
            }
        }
    }
    let told = Told {
        duration_ns: 0,
        numbers: [0; 2],
        text: status.text,
    };
    tell(&key, &told);
}

/// That error is over, where the status that the third argument points to is well.
#[inline(always)]
pub fn recovered(arguments: &Arguments) {
    if Status::at(arguments.third).is_ok()
        && let Some(last) = LAST_ERROR.get_ptr_mut(0)
    {
        // SAFETY: as above.
        unsafe { (*last).lasts = 0 };
    }
}

/// A wait that is over.
#[inline(always)]
pub fn waited(slot: u32, call: &HealthCall) {
    let key = HealthKey {
        slot,
        ..HealthKey::default()
    };
    add_to(&key, 1, now().saturating_sub(call.began_ns));
}

/// A compaction that there is no room for.
#[inline(never)]
pub fn no_room(slot: u32, call: &HealthCall) {
    let Some(key) = families::named(slot, call.about) else {
        lose_call();
        return;
    };
    add_to(&key, 1, 0);
    let told = Told {
        duration_ns: 0,
        numbers: call.numbers,
        text: call.text,
    };
    tell(&key, &told);
}

/// Adds to a row, which is made if it is not there.
#[inline(always)]
pub fn add_to(key: &HealthKey, count: u64, time_ns: u64) {
    if ROWS.get_ptr(key).is_none() {
        // Another CPU may be quicker: then there is one.
        let _ = ROWS.insert(key, &HealthSums::default(), u64::from(BPF_NOEXIST));
    }
    let Some(sums) = ROWS.get_ptr_mut(key) else {
        lose_call();
        return;
    };
    // SAFETY: a map's value; nothing is removed.
    unsafe {
        add(&raw mut (*sums).count, count);
        add(&raw mut (*sums).time_ns, time_ns);
    }
}

/// Counts what found no room.
#[inline(always)]
pub fn lose_call() {
    if let Some(losses) = LOSSES.get_ptr_mut(0) {
        // SAFETY: a map's value.
        unsafe { add(&raw mut (*losses).calls, 1) };
    }
}

#[inline(never)]
fn tell(key: &HealthKey, told: &Told) {
    let Some(mut event) = EVENTS.reserve::<HealthEvent>(0) else {
        if let Some(losses) = LOSSES.get_ptr_mut(0) {
            // SAFETY: a map's value.
            unsafe { add(&raw mut (*losses).events, 1) };
        }
        return;
    };
    let place = event.as_mut_ptr();
    // SAFETY: reserved, as long as it is; all of it is written.
    unsafe {
        (*place).time_ns = now();
        (*place).duration_ns = told.duration_ns;
        (*place).key = *key;
        (*place).numbers = told.numbers;
        (*place).thread = ckb_probe_programs::helpers::thread();
        (*place).padding = 0;
        (*place).thread_name = bpf_get_current_comm().unwrap_or_default();
        (*place).text = [0; ckb_probe_common::health::ERROR_BYTES];
        if told.text != 0 {
            // What cannot be read stays empty.
            let _ = bpf_probe_read_user_str_bytes(told.text as *const u8, &mut (*place).text);
        }
    }
    event.submit(0);
}
