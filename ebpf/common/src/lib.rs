//! What the BPF programs and the node-agent share: layouts, cookies, the histogram's scale.
//!
//! Everything here crosses the boundary between kernel and user space: `repr(C)`, fixed-width integers,
//! no padding that is not spelled out. Sizes and offsets are asserted at the end.
#![no_std]

/// Buckets of a histogram: 16 to each power of two, up to 2^42 ns.
pub const BUCKETS: usize = 624;

/// The bucket that a duration of `nanos` falls into; the last one takes whatever is longer.
///
/// A handful of compares and shifts: `leading_zeros` compiles to three times as many instructions on BPF,
/// which has none of its own.
#[inline(always)]
pub const fn bucket(nanos: u64) -> u32 {
    if nanos < 16 {
        return nanos as u32;
    }
    let mut shift = 0;
    let mut value = nanos;
    if value >= 1 << 36 {
        value >>= 32;
        shift += 32;
    }
    if value >= 1 << 20 {
        value >>= 16;
        shift += 16;
    }
    if value >= 1 << 12 {
        value >>= 8;
        shift += 8;
    }
    if value >= 1 << 8 {
        value >>= 4;
        shift += 4;
    }
    if value >= 1 << 6 {
        value >>= 2;
        shift += 2;
    }
    if value >= 1 << 5 {
        value >>= 1;
        shift += 1;
    }
    // Now 16 <= value < 32: bucket 16 * (shift + 1) + (value - 16).
    let index = (shift << 4) + value as u32;
    if index < BUCKETS as u32 {
        index
    } else {
        BUCKETS as u32 - 1
    }
}

/// What the kernel side keeps for one operation of one target, on each CPU.
///
/// The number of calls is the sum of `buckets`: one number less to keep in step.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slot {
    /// Nanoseconds spent in the calls.
    pub sum_ns: u64,
    /// Payload bytes of the calls.
    pub bytes: u64,
    /// Calls at or above the slow threshold.
    pub slow: u64,
    /// Calls by duration.
    pub buckets: [u64; BUCKETS],
}

/// Where the longest call of a slot stands, on each CPU, for an epoch.
///
/// Two per slot: the reader advances the epoch, and then reads and clears the one that is not being written,
/// so that every report interval has a maximum of its own and none is lost in between.
#[inline(always)]
pub const fn maximum_index(slot: u32, epoch: u32) -> u32 {
    slot * 2 + (epoch & 1)
}

/// What could not be recorded, on each CPU.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Losses {
    /// Calls whose beginning found the table of calls in flight full.
    pub calls: u64,
    /// Slow-call events that found the ring buffer full. The calls themselves are counted.
    pub events: u64,
}

/// Names a call in flight: its thread, and the stack pointer its return will have.
///
/// The stack pointer tells a recursive call from its caller, so both are measured.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CallKey {
    /// As `bpf_get_current_pid_tgid` gives it.
    pub pid_tgid: u64,
    /// The stack pointer after the return.
    pub stack: u64,
}

/// What is remembered of a call from its entry to its return.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CallStart {
    /// `bpf_ktime_get_ns` at entry.
    pub time_ns: u64,
    /// Bytes known at entry, or the address where they will be found at return.
    pub bytes: u64,
}

/// One slow call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowCall {
    /// `CLOCK_MONOTONIC` at return.
    pub time_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Its payload bytes, 0 where they are not known.
    pub bytes: u64,
    /// The slot it was counted in.
    pub slot: u32,
    /// The thread, in the host's pid namespace.
    pub thread: u32,
    /// The thread's name, NUL-padded.
    pub thread_name: [u8; 16],
}

/// Where the size of a call's payload is found. All the C functions follow the System V calling convention;
/// arguments count from 0.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Not known.
    Unknown = 0,
    /// Argument 3.
    Argument3 = 1,
    /// Argument 4.
    Argument4 = 2,
    /// Arguments 3 and 5 added.
    Arguments3And5 = 3,
    /// Arguments 4 and 6 added.
    Arguments4And6 = 4,
    /// The returned pointer, unless null, points to `{data, size}`: `rocksdb_pinnableslice_t`.
    ReturnedSlice = 5,
    /// Argument 5 points to the size, which holds at return unless null is returned.
    PointedToBy5 = 6,
}

/// What one attachment tells its program, as a 64-bit attach cookie: slot, payload, slow threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie(pub u64);

impl Cookie {
    /// The longest slow threshold that fits: 2^48 - 1 ns, 78 hours.
    pub const MAX_THRESHOLD_NS: u64 = (1 << 48) - 1;

    /// Packs a cookie; a threshold that does not fit becomes the longest that does.
    pub const fn new(slot: u8, payload: Payload, slow_threshold_ns: u64) -> Self {
        let threshold = if slow_threshold_ns < Self::MAX_THRESHOLD_NS {
            slow_threshold_ns
        } else {
            Self::MAX_THRESHOLD_NS
        };
        Self((threshold << 16) | ((payload as u64) << 8) | slot as u64)
    }

    /// The slot to count in.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        (self.0 & 0xff) as u32
    }

    /// The [`Payload`], as a number: the kernel side compares it, and an unknown one means `Unknown`.
    #[inline(always)]
    pub const fn payload(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Calls that take at least this long are slow.
    #[inline(always)]
    pub const fn slow_threshold_ns(self) -> u64 {
        self.0 >> 16
    }
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<Slot>() == 3 * 8 + BUCKETS * 8);
    assert!(offset_of!(Slot, buckets) == 24);
    assert!(size_of::<Losses>() == 16);
    assert!(size_of::<CallKey>() == 16);
    assert!(size_of::<CallStart>() == 16);
    assert!(size_of::<SlowCall>() == 48);
    assert!(offset_of!(SlowCall, thread_name) == 32);
};
