//! What `rocksdb` gives: each operation's calls, by duration.

use super::Operation;
use crate::{Value, descriptor::{Column, Descriptor, Measure, Merge, Metric, Unit, calls}};
pub use crate::descriptor::calls::{DURATION, LONGEST, SLOW};

/// Payload bytes; of operations of which they are known.
pub const BYTES: Measure = Measure::new("bytes", Unit::Bytes, Merge::Sum);

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "operation",
    part: Some("column_family"),
    measures: &[DURATION, LONGEST, BYTES, SLOW],
    columns: &[
        calls::PER_SECOND, calls::P50, calls::P90.of_rows(), calls::P99, calls::MAX, calls::SLOW_ONES,
        Column::new("bytesPerSecond", "BYTES/S", Value::Rate("bytes")).of_rows(),
        calls::COUNT,
    ],
    headline: calls::HEADLINE,
    metrics: &[
        Metric::histogram("ckb_probe_operation_duration_seconds", "duration",
            "Duration of the operation's calls since the agent first attached to the target; scaled up where they were sampled."),
        Metric::histogram("ckb_probe_column_family_operation_duration_seconds", "duration",
            "The same by column family, where byColumnFamily asks for it and the operation is on one.").by_part(),
        Metric::counter("ckb_probe_operation_bytes_total", "bytes",
            "Payload bytes of the operation's calls, where they are known; scaled up where they were sampled."),
        Metric::counter("ckb_probe_operation_calls_total", "duration",
            "The operation's calls, also those that are counted and not timed; scaled up where they were sampled."),
        Metric::counter("ckb_probe_slow_operations_total", "slow",
            "Calls at or above the probe's slowThreshold; scaled up where they were sampled."),
    ],
    apart: is_background,
    ..Descriptor::EMPTY
};

/// RocksDB's background work is no call of the node's, or is a part of one.
fn is_background(row: &str) -> bool {
    Operation::CAUSES.iter().any(|cause| cause.as_str() == row)
}
