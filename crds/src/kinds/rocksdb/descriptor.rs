//! What `rocksdb` gives: each operation's calls, by duration.

use super::Operation;
use crate::descriptor::{
    Column, Descriptor, Export, Measure, Merge, Metric, Phrase, Unit, Value,
};

/// How long calls took. Those that were counted and not timed are in it too.
pub const DURATION: Measure = Measure::new("duration", Unit::Nanoseconds, Merge::Distribution);
/// The longest of them.
pub const LONGEST: Measure = Measure::new("duration", Unit::Nanoseconds, Merge::Maximum);
/// Payload bytes; of operations of which they are known.
pub const BYTES: Measure = Measure::new("bytes", Unit::Bytes, Merge::Sum);
/// Calls as slow as `slowThreshold`, or slower.
pub const SLOW: Measure = Measure::new("slow", Unit::Count, Merge::Sum);

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "operation",
    part: Some("column_family"),
    measures: &[DURATION, LONGEST, BYTES, SLOW],
    columns: &[
        column("perSecond", "PER SECOND", Value::Rate("duration")),
        column("p50", "P50", Value::Quantile("duration", 0.5)),
        Column {
            of_parts: false,
            ..column("p90", "P90", Value::Quantile("duration", 0.9))
        },
        column("p99", "P99", Value::Quantile("duration", 0.99)),
        column("max", "MAX", Value::Maximum("duration")),
        column("slow", "SLOW", Value::Total("slow")),
        Column {
            of_parts: false,
            ..column("bytesPerSecond", "BYTES/S", Value::Rate("bytes"))
        },
        column("count", "COUNT", Value::Total("duration")),
    ],
    headline: &[
        phrase("", Value::Rate("duration"), "/s"),
        phrase("p99 ", Value::Quantile("duration", 0.99), ""),
        Phrase {
            of_zero: false,
            ..phrase("", Value::Total("slow"), " slow")
        },
    ],
    metrics: &[
        Metric {
            name: "ckb_probe_operation_duration_seconds",
            help: "Duration of the operation's calls since the agent first attached to the target; scaled up where they were sampled.",
            export: Export::Histogram("duration"),
            of_parts: false,
        },
        Metric {
            name: "ckb_probe_column_family_operation_duration_seconds",
            help: "The same by column family, where byColumnFamily asks for it and the operation is on one.",
            export: Export::Histogram("duration"),
            of_parts: true,
        },
        Metric {
            name: "ckb_probe_operation_bytes_total",
            help: "Payload bytes of the operation's calls, where they are known; scaled up where they were sampled.",
            export: Export::Counter("bytes"),
            of_parts: false,
        },
        Metric {
            name: "ckb_probe_operation_calls_total",
            help: "The operation's calls, also those that are counted and not timed; scaled up where they were sampled.",
            export: Export::Counter("duration"),
            of_parts: false,
        },
        Metric {
            name: "ckb_probe_slow_operations_total",
            help: "Calls at or above the probe's slowThreshold; scaled up where they were sampled.",
            export: Export::Counter("slow"),
            of_parts: false,
        },
    ],
    apart: is_background,
    quiet: false,
};

/// RocksDB's background work is no call of the node's, or is a part of one.
fn is_background(row: &str) -> bool {
    Operation::CAUSES.iter().any(|cause| cause.as_str() == row)
}

const fn column(name: &'static str, head: &'static str, value: Value) -> Column {
    Column {
        name,
        head,
        value,
        of_parts: true,
    }
}

const fn phrase(before: &'static str, value: Value, after: &'static str) -> Phrase {
    Phrase {
        before,
        value,
        after,
        of_zero: true,
    }
}
