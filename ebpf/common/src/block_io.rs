//! Requests to disks: what the programs of `block_io` and the node-agent share.

use crate::BUCKETS;
#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Places to count in: each for a disk, what is done to it, and who asked for it.
pub const MAX_SLOTS: u32 = 192;

/// The slot of whatever finds no other free.
pub const NO_SLOT: u32 = 0;

/// Processes whose requests are told from others', at most.
pub const MAX_OWNERS: u32 = 32;

/// The owner of requests that began before the programs were attached, or before a slice: who asked for them is not known.
pub const UNKNOWN: u16 = u16::MAX;

/// A process whose requests are told from others'.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Since when it has been: a later one of its number is nobody here. See [`is_since`](crate::is_since).
    pub since_ns: u64,
    /// What stands for it where requests are told apart.
    pub number: u64,
}

/// Different thresholds above which requests are slow.
pub const MAX_THRESHOLDS: usize = 8;

/// Who share the ring buffer for slow requests: for each namespace that has owners, and first for nobody's, each of the thresholds.
pub const MAX_PAYERS: u32 = (MAX_OWNERS + 1) * MAX_THRESHOLDS as u32;

/// Who pays for telling of a request of this namespace's, by its number; 0 for nobody's; the greatest threshold that it reached has
/// this place. Whoever wants shorter ones told, too, thus takes nothing from who wants the long ones alone.
#[inline(always)]
pub const fn payer(namespace: u32, threshold: u32) -> u32 {
    namespace * MAX_THRESHOLDS as u32 + threshold
}

/// Slow requests that found no room in the ring buffer, by [`payer`]. They are counted.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug)]
pub struct Untold {
    /// The counts.
    pub counts: [u64; MAX_PAYERS as usize],
}

/// Requests in flight of which times are known.
pub const IN_FLIGHT: u32 = 8192;

/// What user space tells the programs while they run.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct Control {
    /// Numbers the times that the programs were attached. What was remembered of a request under another number is stale: its
    /// end, or another request's beginning in its place, was not seen.
    pub generation: u32,
    /// Its parity selects the half of the maxima that is written: see [`crate::maximum`].
    pub epoch: u32,
    /// The bit of a request's flags by which the kernel accounts for it in /proc/diskstats: `RQF_IO_STAT`.
    pub accounted: u32,
    /// That of a request that is not done with as it ends, since it is one step of a flush: `RQF_FLUSH_SEQ`.
    pub sequenced: u32,
    /// Since when, by `bpf_ktime_get_ns`: what began before, nobody saw begin.
    pub since_ns: u64,
    /// The least of the thresholds.
    pub least_threshold_ns: u64,
    /// Requests that take at least so many nanoseconds are slow; `u64::MAX` for none.
    pub thresholds_ns: [u64; MAX_THRESHOLDS],
}

/// What is done to a disk, as /proc/diskstats tells it apart.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A read.
    Read = 0,
    /// A write, also of zeros.
    Write = 1,
    /// Blocks are told to be unused.
    Discard = 2,
    /// The disk's cache is written out.
    Flush = 3,
}

impl Direction {
    /// By the lowest byte of a request's `cmd_flags`, as `op_stat_group` has it.
    #[inline(always)]
    pub const fn of(operation: u8) -> Self {
        match operation {
            2 => Self::Flush,
            3 => Self::Discard,
            _ if operation & 1 == 1 => Self::Write,
            _ => Self::Read,
        }
    }
}

/// What is counted together.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotKey {
    /// The disk's major number, and its minor number in the lower 20 bits.
    pub device: u32,
    /// The [`Direction`].
    pub direction: u16,
    /// Who asked for it: one of the processes that are told apart, from 1; 0 for anybody else; [`UNKNOWN`].
    pub owner: u16,
}

/// What a slot is of.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The key.
    pub key: SlotKey,
    /// The disk's name, NUL-padded.
    pub disk: [u8; 32],
}

/// What the kernel side keeps of one slot: all but the histograms. All CPUs share it: disks are slow beside memory.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Default)]
pub struct Totals {
    /// Bytes transferred, or discarded.
    pub bytes: u64,
    /// Nanoseconds that requests waited before they were given to the device.
    pub queue_ns: u64,
    /// Nanoseconds that the device had them.
    pub device_ns: u64,
    /// Requests of which it is not known when they were given to the device: in no histogram.
    pub unmeasured: u64,
    /// The longest wait of an even and of an odd epoch.
    pub queue_maxima: [u64; 2],
    /// The longest time in the device, the same.
    pub device_maxima: [u64; 2],
    /// By threshold: requests that took at least as long.
    pub slow: [u64; MAX_THRESHOLDS],
}

/// The requests of one slot by their times.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct Times {
    /// By the time before the device had them: see [`crate::bucket`].
    pub queue: [u64; BUCKETS],
    /// By the time that it had them.
    pub device: [u64; BUCKETS],
}

/// What is remembered of a request.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct InFlight {
    /// When it was last given to the device; 0 before.
    pub issued_ns: u64,
    /// See [`Control::generation`].
    pub generation: u32,
    /// Where it counts.
    pub slot: u32,
    /// Its bytes as it was given to the device.
    pub bytes: u32,
    /// The thread that asked for it, in the host's pid namespace.
    pub thread: u32,
    /// The thread's name, NUL-padded.
    pub thread_name: [u8; 16],
}

/// How many requests there were, and what could not be recorded.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Default)]
pub struct Met {
    /// Requests that ended.
    pub requests: u64,
    /// Requests that found the table of those in flight full: their times are not known.
    pub untimed: u64,
}

/// One slow request.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowRequest {
    /// `CLOCK_MONOTONIC` as it ended.
    pub time_ns: u64,
    /// From its beginning to its end.
    pub duration_ns: u64,
    /// How much of that the device had it; 0 where that is not known.
    pub device_ns: u64,
    /// The slot that it was counted in.
    pub slot: u32,
    /// How many bytes the request transfers.
    pub bytes: u32,
    /// The thread that asked for it; 0 where that is not known.
    pub thread: u32,
    /// See [`payer`].
    pub payer: u32,
    /// The thread's name, NUL-padded.
    pub thread_name: [u8; 16],
}

layout! {
    Control: 32 + 8 * MAX_THRESHOLDS, SlotKey: 8, Slot: 40, Totals: 64 + 8 * MAX_THRESHOLDS, Times: 2 * 8 * BUCKETS,
    InFlight: 40, Untold: 8 * MAX_PAYERS as usize, Met: 16, SlowRequest: 56, Control.least_threshold_ns: 24, SlowRequest.thread_name: 40,
}
