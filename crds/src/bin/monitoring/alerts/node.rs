//! What a person must see to in the node itself.

use super::{
    Alert,
    Severity::{Critical, Info, Warning},
    Sign::{Above, Below},
};
use crate::query::{TARGET, grown, quantile};

/// Of RocksDB, blocks, disks, peers and processes.
pub fn alerts() -> Vec<Alert> {
    vec![
        Alert {
            alert: "CkbRocksDbErrorLasts",
            needs: Some("rocksdb"),
            value: format!("max by ({TARGET}, reason) (ckb_probe_rocksdb_lasting_errors)"),
            sign: Above,
            threshold: 0.0,
            lasts: "1m",
            severity: Critical,
            summary: "RocksDB has an error that is not over",
            description: "RocksDB of {{ $labels.namespace }}/{{ $labels.pod }} took down an error and is not over it: {{ $labels.reason }}. \
                          A hard one refuses all writes.",
        },
        Alert {
            alert: "CkbRocksDbWorkFails",
            needs: Some("rocksdb"),
            value: format!(
                "sum by ({TARGET}, operation, reason) ({})",
                grown(
                    "ckb_probe_rocksdb_problems_total{operation!=\"NoRoomForCompaction\"}",
                    "15m"
                )
            ),
            sign: Above,
            threshold: 0.0,
            lasts: "0s",
            severity: Warning,
            summary: "Background work of RocksDB fails",
            description: "{{ $labels.operation }} of {{ $labels.namespace }}/{{ $labels.pod }}, {{ $value | humanize }} times in the last 15 \
                          minutes: {{ $labels.reason }}.",
        },
        Alert {
            alert: "CkbRocksDbNoRoom",
            needs: Some("rocksdb"),
            value: format!(
                "sum by ({TARGET}, reason) ({})",
                grown(
                    "ckb_probe_rocksdb_problems_total{operation=\"NoRoomForCompaction\"}",
                    "15m"
                )
            ),
            sign: Above,
            threshold: 0.0,
            lasts: "0s",
            severity: Critical,
            summary: "The disk has no room for a compaction",
            description: "RocksDB of {{ $labels.namespace }}/{{ $labels.pod }} cannot compact {{ $labels.reason }} for lack of room on the \
                          disk. It tries again for ever, and the data only grow.",
        },
        Alert {
            alert: "CkbRocksDbHoldsWritesBack",
            needs: Some("rocksdb"),
            value: format!(
                "max by ({TARGET}, operation, column_family) (rate(ckb_probe_rocksdb_write_stall_seconds_total[5m]))"
            ),
            sign: Above,
            threshold: 0.05,
            lasts: "5m",
            severity: Warning,
            summary: "RocksDB holds writes back",
            description: "Writes of {{ $labels.namespace }}/{{ $labels.pod }} were held back for {{ $value | humanizePercentage }} of the time, \
                          by {{ $labels.operation }} of {{ $labels.column_family }}.",
        },
        Alert {
            alert: "CkbCommitsSlow",
            needs: Some("rocksdb"),
            value: quantile(
                0.99,
                "ckb_probe_operation_duration_seconds_bucket{operation=\"TxnCommit\"}",
                TARGET,
                "10m",
            ),
            sign: Above,
            threshold: 1.0,
            lasts: "10m",
            severity: Warning,
            summary: "Commits are slow",
            description: "One in a hundred commits of {{ $labels.namespace }}/{{ $labels.pod }} takes {{ $value | humanizeDuration }} or \
                          longer.",
        },
        Alert {
            alert: "CkbNoBlocks",
            needs: Some("chain"),
            // Only of what is measured all that time: who is not has an alert of its own. Before its first block there is no series of blocks.
            value: format!(
                "(sum by ({TARGET}) (increase(ckb_probe_blocks_total[15m])) \
                 or 0 * min by ({TARGET}) (ckb_probe_attached{{kind=\"chain\"}})) \
                 and min by ({TARGET}) (min_over_time(ckb_probe_attached{{kind=\"chain\"}}[15m])) == 1"
            ),
            sign: Below,
            threshold: 1.0,
            lasts: "5m",
            severity: Critical,
            summary: "A node verifies no blocks",
            description: "{{ $labels.namespace }}/{{ $labels.pod }} is measured, and has verified no block for a quarter of an hour.",
        },
        Alert {
            alert: "CkbBlocksSlow",
            needs: Some("chain"),
            value: quantile(
                0.9,
                "ckb_probe_block_duration_seconds_bucket",
                TARGET,
                "15m",
            ),
            sign: Above,
            threshold: 4.0,
            lasts: "15m",
            severity: Warning,
            summary: "Blocks are slow",
            description: "One in ten blocks of {{ $labels.namespace }}/{{ $labels.pod }} takes {{ $value | humanizeDuration }} or longer to \
                          verify: close to the time until the next one.",
        },
        Alert {
            alert: "CkbReorganisations",
            needs: Some("chain"),
            value: format!(
                "sum by ({TARGET}) ({})",
                grown("ckb_probe_blocks_detached_total", "1h")
            ),
            sign: Above,
            threshold: 10.0,
            lasts: "0s",
            severity: Info,
            summary: "Many blocks were taken off the main chain",
            description: "Reorganisations took {{ $value | humanize }} blocks off the main chain of {{ $labels.namespace }}/{{ $labels.pod }} \
                          within an hour.",
        },
        Alert {
            alert: "CkbDiskSlow",
            needs: Some("blockIo"),
            value: quantile(
                0.99,
                "ckb_probe_block_io_device_seconds_bucket",
                &format!("{TARGET}, disk"),
                "10m",
            ),
            sign: Above,
            threshold: 0.25,
            lasts: "15m",
            severity: Warning,
            summary: "A disk is slow",
            description: "The disk {{ $labels.disk }} of the node of {{ $labels.namespace }}/{{ $labels.pod }} has one in a hundred requests \
                          for {{ $value | humanizeDuration }} or longer, whoever asks.",
        },
        Alert {
            alert: "CkbPeersLoseSegments",
            needs: Some("tcp"),
            value: format!(
                "sum by ({TARGET}) (rate(ckb_probe_tcp_retransmits_total[15m])) \
                 / sum by ({TARGET}) (rate(ckb_probe_tcp_segments_total[15m]))"
            ),
            sign: Above,
            threshold: 0.1,
            lasts: "15m",
            severity: Warning,
            summary: "Much of what is sent is sent again",
            description: "{{ $value | humanizePercentage }} of the segments that {{ $labels.namespace }}/{{ $labels.pod }} sends were sent \
                          before: they were lost, to many peers or to busy ones.",
        },
        Alert {
            alert: "CkbKilledForMemory",
            needs: Some("processes"),
            value: format!(
                "sum by ({TARGET}, command) ({})",
                grown("ckb_probe_process_oom_kills_total", "1h")
            ),
            sign: Above,
            threshold: 0.0,
            lasts: "0s",
            severity: Critical,
            summary: "The kernel killed a process for lack of memory",
            description: "{{ $labels.command }} in {{ $labels.namespace }}/{{ $labels.pod }} was killed to free memory, \
                          {{ $value | humanize }} times in the last hour.",
        },
        Alert {
            alert: "CkbFiguresUnusual",
            needs: None,
            // Who has no anomaly has no series of them, but targets.
            value: "max by (cluster, namespace, ckbprobe) (ckb_probe_anomalies or ckb_probe_target_attached * 0)".to_string(),
            sign: Above,
            threshold: 0.0,
            lasts: "5m",
            severity: Warning,
            summary: "Figures are not as they usually are",
            description: "{{ $value }} figures of the CkbProbe {{ $labels.namespace }}/{{ $labels.ckbprobe }} are not as they usually are, by their \
                          own past: its status says which, and what its targets waited for.",
        },
    ]
}
