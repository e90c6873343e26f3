//! What programs that count and tell share with the mechanism `counts`: who is a target, what is counted for it, what is told
//! of it one by one, and what could not be.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes that name a row of a target: whatever the kind makes of them.
pub const KEY_BYTES: usize = 32;

/// Numbers that add up, of each row.
pub const SUMS: usize = 8;

/// Rows of a target that are told apart: more count as [`OTHER_ROW`].
pub const MAX_ROWS: u32 = 127;

/// Rows and buckets of all targets.
pub const MAX_KEYS: u32 = 1 << 16;

/// Buckets of all targets: what is left where each has all of its rows, that of the others among them.
pub const MAX_BUCKETS: u32 = MAX_KEYS - MAX_TARGETS * (MAX_ROWS + 1);

/// Names of a target that count as [`OTHER_ROW`] and are counted themselves: there may be more.
pub const MAX_FOLDED: u32 = 1024;

/// The same, of all targets.
pub const MAX_FOLDED_OF_ALL: u32 = 4 * MAX_FOLDED;

/// The row of what finds no room. No name that a program reads is all ones.
pub const OTHER_ROW: [u8; KEY_BYTES] = [u8::MAX; KEY_BYTES];

/// Targets of one node, at most: their slots are numbered below this.
pub const MAX_TARGETS: u32 = 256;

/// Targets that one task belongs to, at most: its namespaces', and those that it descends from.
pub const MAX_TARGETS_OF_TASK: usize = 4;

/// Parents that are asked whether they are a target.
pub const MAX_ANCESTORS: u32 = 16;

/// By what a task belongs to a target; a bit each.
pub mod space {
    /// It is in the network namespace of this number, which all containers of a pod share.
    pub const NETWORK: u32 = 1;
    /// It is in the pid namespace of this number.
    pub const PROCESS_IDS: u32 = 2;
    /// It is the process of this number, or descends from it.
    pub const DESCENT: u32 = 4;
    /// It is the process of this number.
    pub const PROCESS: u32 = 8;
    /// Nothing belongs to anything by this: the process of this number is one that somebody asks about, and what is told of it
    /// finds room where nothing else does any more.
    pub const ASKED: u32 = 16;
}

/// What tasks belong to a target by.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetKey {
    /// One of [`space`].
    pub space: u32,
    /// Of a namespace, or of a process.
    pub number: u32,
}

/// A target that is measured now: what is not in the map is not.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetEntry {
    /// Tells its rows from those of every other target, also of one that is gone.
    pub id: u32,
    /// Where its [`TargetTally`] is.
    pub slot: u32,
    /// What of it is wanted: bits that the kind gives a meaning.
    pub wants: u32,
    /// The pid namespace whose tasks do not belong to it, by [`space::NETWORK`]; 0 for none.
    pub outside: u32,
    /// So many buckets of distributions it may have: what finds none is counted in its row all the same.
    pub most_buckets: u32,
    /// Whose share of the ring buffer its events take: a number below [`MAX_TARGETS`].
    pub payer: u32,
}

/// What the programs find by a [`TargetKey`]. They keep the entry alone: on their stack, whose bytes the verifier of Linux 6.1 has to see
/// written before they are read.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownTarget {
    /// The target.
    pub entry: TargetEntry,
    /// By [`space::PROCESS`] and [`space::DESCENT`]: since when that process has been. What has to do with a later one of its number does
    /// not belong to it. See [`is_since`](crate::is_since).
    pub since_ns: u64,
}

/// What counting for a target takes, on each CPU.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetTally {
    /// How often a program ran on its behalf.
    pub runs: u64,
    /// Nanoseconds that this took.
    pub time_ns: u64,
    /// What should have been counted and found no room in any row.
    pub counts_lost: u64,
    /// What should have been told and found no room in the ring buffer.
    pub events_lost: u64,
}

/// What it takes to find out that a task belongs to no target, on each CPU.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// How often a task was looked up.
    pub runs: u64,
    /// Nanoseconds that this took.
    pub time_ns: u64,
}

/// About how many keys a target has: whoever finds the number that it found before, before and after it read, knows them all.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetKeys {
    /// How many keys are rows.
    pub rows: u32,
    /// Of rows, and of the buckets of distributions; one that several CPUs find missing at once may be in it as often.
    pub all: u32,
    /// Of those that there was no room for, so that they are in [`OTHER_ROW`].
    pub folded: u32,
}

/// A row of a target.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    /// [`TargetEntry::id`].
    pub target: u32,
    /// 0: the row's sums. Else a distribution, from 1 on, in the upper half, and a bucket of it in the lower: how many values
    /// fell into it. See [`crate::bucket`].
    pub bucket: u32,
    /// The row's name.
    pub key: [u8; KEY_BYTES],
}

/// What is counted in a row. Of a bucket, the first is all there is.
pub type Sums = [u64; SUMS];

/// The key of a bucket of a distribution.
#[inline(always)]
pub const fn distribution_bucket(distribution: u32, bucket: u32) -> u32 {
    (distribution + 1) << 16 | bucket
}

/// Distribution and bucket, of such a key.
#[inline(always)]
pub const fn of_distribution(key: u32) -> Option<(u32, u32)> {
    match key >> 16 {
        0 => None,
        number => Some((number - 1, key & 0xffff)),
    }
}

/// Something that happened to a target, with as many bytes more as it says.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountEvent {
    /// `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// [`TargetEntry::id`].
    pub target: u32,
    /// What: the kind knows.
    pub what: u32,
    /// The process, in the host's pid namespace.
    pub process: u32,
    /// Bytes that follow.
    pub length: u16,
    /// [`TargetEntry::payer`].
    pub payer: u16,
    /// The process's name, NUL-padded.
    pub name: [u8; 16],
}

layout! {
    TargetKey: 8, TargetEntry: 24, KnownTarget: 32, TargetTally: 32, Misses: 16, TargetKeys: 12, CountKey: 40,
    CountEvent: 40,
}
