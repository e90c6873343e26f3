//! What is read of the maps, as plain values.

use ckb_probe_common::{
    Family, FileIo, SlowArguments, SlowCall,
    hits::{Payload, TRACEPARENT_BYTES, Value},
};
use ckb_probe_figures::Histogram;
use ckb_probe_symbols::text;

/// What was counted, over all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapsReading {
    /// By slot; without the calls of `families`.
    pub slots: Vec<SlotReading>,
    /// By column family, in the order in which they were first seen.
    pub families: Vec<FamilyReading>,
    /// By operation: column families that count with the operation's others, since there was no room for more.
    pub families_folded: Vec<u64>,
    /// By value of an argument, in the order in which they were first met, of each slot that is told apart so.
    pub values: Vec<ValueReading>,
    /// By operation: values that count with the operation's others, since there was no room for more.
    pub values_folded: Vec<u64>,
    /// By operation: hits that count with the operation's others, since their argument could not be read.
    pub unread: Vec<u64>,
    /// By operation: texts that were emitted and are not told.
    pub payloads_lost: Vec<PayloadsLost>,
    /// Calls not recorded, since too many were in flight.
    pub calls_lost: u64,
    /// By operation: slow-call events that the ring buffer could not take.
    pub events_lost: Vec<u64>,
    /// Calls counted without their payload size.
    pub sizes_lost: u64,
}

/// One slot over all CPUs, since the attach; `max_ns` since the reading before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotReading {
    /// Nanoseconds spent in the calls.
    pub sum_ns: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Calls at or above the slow threshold.
    pub slow: u64,
    /// Calls counted and not timed: in no bucket.
    pub untimed: u64,
    /// Of those, the ones that were cut off: whose beginning was seen, and not their end.
    pub cut: u64,
    /// Ends of which no beginning is known, of what begins at a probe and ends at another.
    pub unbegun: u64,
    /// What timed calls read and wrote, where that is asked.
    pub files: FileIo,
    /// Longest call since the reading before.
    pub max_ns: u64,
    /// Timed calls by duration.
    pub histogram: Histogram,
}

/// One operation on one column family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilyReading {
    /// The operation's slot.
    pub slot: u32,
    /// RocksDB's number for it.
    pub id: u32,
    /// Its name in RocksDB; empty where it could not be read.
    pub name: String,
    /// The calls on the column family.
    pub reading: SlotReading,
}

/// Hits of one operation with one value of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueReading {
    /// The slot in which they are counted.
    pub place: u32,
    /// The value, and the operation's slot.
    pub value: Value,
    /// The hits with this value.
    pub reading: SlotReading,
}

impl FamilyReading {
    pub(super) fn of(family: &Family) -> Self {
        Self {
            slot: family.slot,
            id: family.id,
            name: text::of_padded(&family.name),
            reading: SlotReading::default(),
        }
    }
}

/// Texts that were emitted and are not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadsLost {
    /// Those that found no room in the ring buffer.
    pub full: u64,
    /// Those that could not be read.
    pub unread: u64,
    /// Those that are longer than what is told.
    pub long: u64,
}

/// A text that a probe emitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenPayload {
    /// Whose it is, and when it was.
    pub head: Payload,
    /// The text, whole: any bytes but NUL.
    pub text: Vec<u8>,
}

/// A slow call, as the kernel told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenCall {
    /// The call, as the kernel reported it.
    pub call: SlowCall,
    /// Its arguments; None where they were not asked for or not kept.
    pub arguments: Option<SlowArguments>,
    /// The `traceparent` that it began with, NUL-padded, as its caller wrote it; None where it was not asked for, or there was none.
    pub parent: Option<[u8; TRACEPARENT_BYTES]>,
}
