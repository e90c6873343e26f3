//! What do blocks cost?

use super::{Dashboard, Unit, Variables, figure, how_uncertain, lines};
use crate::query::{chosen, most, quantile, rate};

/// What a block takes of something, on average.
fn per_block(metric: &str) -> String {
    let each = |metric: &str| {
        format!(
            "sum by (namespace, pod, ckbprobe) ({})",
            rate(&chosen(metric, ""))
        )
    };
    format!("{} / {}", each(metric), each("ckb_probe_blocks_total"))
}

pub fn dashboard() -> Dashboard {
    let durations = chosen("ckb_probe_block_duration_seconds_bucket", "");
    let of_pods = |quantile_of| {
        quantile(
            quantile_of,
            &durations,
            "namespace, pod",
            "$__rate_interval",
        )
    };
    let blocks = rate(&chosen("ckb_probe_blocks_total", ""));
    let operations = rate(&chosen("ckb_probe_block_operation_seconds_total", ""));
    Dashboard {
        name: "blocks",
        title: "Blocks",
        about: "What each block cost, and on what.",
        variables: Variables::Pods,
        panels: vec![
            figure(
                "How high is the chain?",
                "Height of the last block that became part of the main chain, of the node that is highest and of the one that is lowest.",
                Unit::Number,
                vec![
                    (most("ckb_probe_block_height"), "highest"),
                    (
                        format!("min({})", chosen("ckb_probe_block_height", "")),
                        "lowest",
                    ),
                ],
            ),
            figure(
                "How many blocks were taken off again?",
                "Blocks that reorganisations took off the main chain, in the time that is shown.",
                Unit::Number,
                vec![(
                    format!(
                        "max(increase({}[$__range])) or vector(0)",
                        chosen("ckb_probe_blocks_detached_total", "")
                    ),
                    "detached",
                )],
            ),
            lines(
                "How many blocks come?",
                "Blocks verified per minute, by what became of them; scaled up where they are sampled.",
                Unit::PerMinute,
                vec![(
                    format!("60 * max by (namespace, pod, outcome) ({blocks})"),
                    "{{pod}} {{outcome}}",
                )],
            ),
            lines(
                "How long does a block take?",
                "From the beginning of the verification to the commit: half of the blocks take no longer, and 99 in 100.",
                Unit::Seconds,
                vec![
                    (of_pods(0.5), "{{pod}} p50"),
                    (of_pods(0.99), "{{pod}} p99"),
                ],
            ),
            lines(
                "What does the time go into?",
                "Of a block, on average. Parts overlap: what has no CPU is in storage and verification too.",
                Unit::Seconds,
                vec![
                    (
                        per_block("ckb_probe_block_cpu_seconds_total"),
                        "{{pod}} on a CPU",
                    ),
                    (
                        per_block("ckb_probe_block_off_cpu_seconds_total"),
                        "{{pod}} without a CPU",
                    ),
                    (
                        per_block("ckb_probe_block_queued_seconds_total"),
                        "{{pod}} waiting for a CPU",
                    ),
                    (
                        per_block("ckb_probe_block_verification_seconds_total"),
                        "{{pod}} verification",
                    ),
                    (
                        per_block("ckb_probe_block_sync_seconds_total"),
                        "{{pod}} sync of files",
                    ),
                    (
                        per_block("ckb_probe_block_wal_write_seconds_total"),
                        "{{pod}} write-ahead log",
                    ),
                ],
            ),
            lines(
                "Which operations of RocksDB take it?",
                "The part of the time in which blocks are in them, by operation, the ten longest.",
                Unit::Ratio,
                vec![(
                    format!(
                        "topk(10, sum by (namespace, pod, ckbprobe, operation) ({operations}))"
                    ),
                    "{{pod}} {{operation}}",
                )],
            ),
            lines(
                "How many transactions does a block have?",
                "Of a block that became part of the main chain, on average.",
                Unit::Number,
                vec![(per_block("ckb_probe_block_transactions_total"), "{{pod}}")],
            ),
            lines(
                "How much does a block write?",
                "Bytes of keys and values that a block puts into RocksDB, on average.",
                Unit::Bytes,
                vec![(per_block("ckb_probe_block_written_bytes_total"), "{{pod}}")],
            ),
            lines(
                "Do blocks wait for memory?",
                "Page faults of a block, on average: those that waited for a disk, and those that did not.",
                Unit::Number,
                vec![
                    (
                        per_block("ckb_probe_block_major_faults_total"),
                        "{{pod}} from a disk",
                    ),
                    (
                        per_block("ckb_probe_block_minor_faults_total"),
                        "{{pod}} without",
                    ),
                ],
            ),
            how_uncertain("outcome!=\"\""),
        ],
    }
}
