//! Is RocksDB slow, and why?

use super::{Dashboard, Unit, Variables, how_uncertain, lines};
use crate::query::{chosen, quantile, rate};

pub fn dashboard() -> Dashboard {
    let calls = rate(&chosen("ckb_probe_operation_duration_seconds_count", ""));
    let durations = chosen("ckb_probe_operation_duration_seconds_bucket", "");
    let of_families = "ckb_probe_column_family_operation_duration_seconds";
    let family_calls = rate(&chosen(&format!("{of_families}_count"), ""));
    let family_reads = chosen(
        &format!("{of_families}_bucket"),
        "operation=~\"Get|TxnGet\"",
    );
    let largest = |query: &str| format!("topk(10, {query})");
    let backlog = |metric| {
        format!(
            "max by (namespace, pod, column_family) ({})",
            chosen(metric, "")
        )
    };
    Dashboard {
        name: "storage",
        title: "Storage",
        about: "What RocksDB is asked, how long that takes, and what it suffers from.",
        variables: Variables::Pods,
        panels: vec![
            lines(
                "What is RocksDB asked?",
                "Calls per second by operation, the ten busiest; scaled up where they are sampled.",
                Unit::PerSecond,
                vec![(
                    largest(&format!(
                        "sum by (namespace, pod, ckbprobe, operation) ({calls})"
                    )),
                    "{{pod}} {{operation}}",
                )],
            ),
            lines(
                "How long do calls take?",
                "The 99th percentile by operation, the ten slowest. Bounds of buckets are powers of two, so read it as within a factor of two.",
                Unit::Seconds,
                vec![(
                    largest(&quantile(
                        0.99,
                        &durations,
                        "namespace, pod, operation",
                        "$__rate_interval",
                    )),
                    "{{pod}} {{operation}}",
                )],
            ),
            lines(
                "How many calls are slow?",
                "Calls per second at or above the probe's slowThreshold, by operation.",
                Unit::PerSecond,
                vec![(
                    format!(
                        "sum by (namespace, pod, ckbprobe, operation) ({})",
                        rate(&chosen("ckb_probe_slow_operations_total", ""))
                    ),
                    "{{pod}} {{operation}}",
                )],
            ),
            lines(
                "How much is read and written?",
                "Payload bytes per second by operation, where they are known.",
                Unit::BytesPerSecond,
                vec![(
                    largest(&format!(
                        "sum by (namespace, pod, ckbprobe, operation) ({})",
                        rate(&chosen("ckb_probe_operation_bytes_total", ""))
                    )),
                    "{{pod}} {{operation}}",
                )],
            ),
            lines(
                "On which data?",
                "Calls per second by column family, the ten busiest, where a CkbProbe asks for byColumnFamily.",
                Unit::PerSecond,
                vec![(
                    largest(&format!(
                        "sum by (namespace, pod, ckbprobe, column_family) ({family_calls})"
                    )),
                    "{{pod}} {{column_family}}",
                )],
            ),
            lines(
                "Which data are slow to read?",
                "The 99th percentile of reads by column family, the ten slowest, where a CkbProbe asks for byColumnFamily.",
                Unit::Seconds,
                vec![(
                    largest(&quantile(
                        0.99,
                        &family_reads,
                        "namespace, pod, column_family",
                        "$__rate_interval",
                    )),
                    "{{pod}} {{column_family}}",
                )],
            ),
            lines(
                "Are writes held back, and by what?",
                "The part of the time in which writes were delayed or stopped, by cause and column family.",
                Unit::Ratio,
                vec![(
                    format!(
                        "max by (namespace, pod, operation, column_family) ({})",
                        rate(&chosen("ckb_probe_rocksdb_write_stall_seconds_total", ""))
                    ),
                    "{{pod}} {{operation}} {{column_family}}",
                )],
            ),
            lines(
                "Does background work fail?",
                "Flushes and compactions that failed, errors that RocksDB took down, and compactions without room, since the agent began.",
                Unit::Number,
                vec![(
                    format!(
                        "max by (namespace, pod, operation, reason) ({})",
                        chosen("ckb_probe_rocksdb_problems_total", "")
                    ),
                    "{{pod}} {{operation}} {{reason}}",
                )],
            ),
            lines(
                "How many files and memtables wait?",
                "Files of level 0 and memtables that wait to be written, of column families that have a backlog.",
                Unit::Number,
                vec![
                    (
                        backlog("ckb_probe_rocksdb_level_zero_files"),
                        "{{pod}} {{column_family}} files of level 0",
                    ),
                    (
                        backlog("ckb_probe_rocksdb_waiting_memtables"),
                        "{{pod}} {{column_family}} memtables",
                    ),
                ],
            ),
            lines(
                "How much have compactions before them?",
                "Bytes that are yet to be rewritten, by RocksDB's own estimate, of column families that have a backlog.",
                Unit::Bytes,
                vec![(
                    backlog("ckb_probe_rocksdb_pending_compaction_bytes"),
                    "{{pod}} {{column_family}}",
                )],
            ),
            lines(
                "Is it the disk?",
                "The 99th percentile of how long the device had requests, and of how long they waited for it, by disk; of the whole node.",
                Unit::Seconds,
                super::node::disk_times(),
            ),
            how_uncertain("operation!=\"\""),
        ],
    }
}
