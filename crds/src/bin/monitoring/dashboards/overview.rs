//! Are the nodes well, and is it known?

use super::{Dashboard, Unit, Variables, figure, how_uncertain, lines};
use crate::query::{chosen, most_of_pods, of_cluster, quantile, rate};

pub fn dashboard() -> Dashboard {
    let attached = chosen("ckb_probe_target_attached", "");
    // Anomalies are of a CkbProbe, and of no pod.
    let of_namespace =
        |metric: &str| format!("{metric}{{cluster=~\"$cluster\", namespace=~\"$namespace\"}}");
    let anomalies = of_namespace("ckb_probe_anomalies");
    let measured = of_namespace("ckb_probe_target_attached");
    let firing = chosen("ckb_probe_target_firing", "");
    let lost = chosen("ckb_probe_lost_total", "what!~\"cut|lines\"");
    let samples = rate(&chosen("ckb_probe_samples_total", ""));
    let commits = chosen(
        "ckb_probe_operation_duration_seconds_bucket",
        "operation=\"TxnCommit\"",
    );
    let blocks = rate(&chosen("ckb_probe_blocks_total", ""));
    let stalls = rate(&chosen("ckb_probe_rocksdb_write_stall_seconds_total", ""));
    Dashboard {
        name: "overview",
        title: "Overview",
        about: "Whether the nodes are well, and whether what is to be measured is.",
        variables: Variables::Pods,
        panels: vec![
            figure(
                "How many targets are measured?",
                "Targets on which probes are in place, and all that CkbProbes select.",
                Unit::Number,
                vec![
                    (format!("sum({attached})"), "attached"),
                    (format!("count({attached})"), "selected"),
                ],
            ),
            figure(
                "How many are attached and silent?",
                "Targets on which probes are in place that count nothing: their figures cannot be told from those of a node that does nothing.",
                Unit::Number,
                vec![(format!("sum({attached} - {firing})"), "silent")],
            ),
            figure(
                "Does each node have its agent?",
                "Agents that are scraped, and nodes that are to have one.",
                Unit::Number,
                vec![
                    (
                        format!("count({})", of_cluster("ckb_probe_tier_info")),
                        "agents",
                    ),
                    (
                        format!("max({})", of_cluster("ckb_probe_operator_nodeprobes")),
                        "nodes",
                    ),
                ],
            ),
            figure(
                "Was anything lost?",
                "What could not be recorded or listed in the time that is shown, without what is meant to be left out.",
                Unit::Number,
                vec![(
                    format!("sum(increase({lost}[$__range])) or vector(0)"),
                    "lost",
                )],
            ),
            lines(
                "Does every probe see something?",
                "What was seen per second, by probe: not scaled, so where figures are sampled this is what they rest on.",
                Unit::PerSecond,
                vec![(
                    format!("sum by (namespace, pod, ckbprobe, probe) ({samples})"),
                    "{{pod}} {{ckbprobe}}/{{probe}}",
                )],
            ),
            lines(
                "Is anything not as usual?",
                "Figures of each CkbProbe that are not as they usually are, by their own past: its status says which.",
                Unit::Number,
                vec![(
                    // Who has no anomaly has no series of them, but targets.
                    format!("max by (namespace, ckbprobe) ({anomalies} or {measured} * 0)"),
                    "{{namespace}}/{{ckbprobe}}",
                )],
            ),
            lines(
                "How long do commits take?",
                "The 99th percentile of commits of transactions.",
                Unit::Seconds,
                vec![(
                    quantile(0.99, &commits, "namespace, pod", "$__rate_interval"),
                    "{{pod}}",
                )],
            ),
            lines(
                "Do blocks come?",
                "Blocks verified per minute, by what became of them.",
                Unit::PerMinute,
                vec![(
                    format!("60 * max by (namespace, pod, outcome) ({blocks})"),
                    "{{pod}} {{outcome}}",
                )],
            ),
            lines(
                "Does RocksDB hold writes back?",
                "The part of the time in which writes were delayed or stopped, by cause. A database without trouble has none.",
                Unit::Ratio,
                vec![(
                    format!("max by (namespace, pod, operation) ({stalls})"),
                    "{{pod}} {{operation}}",
                )],
            ),
            lines(
                "What does measuring cost?",
                "The estimated share of the target's own CPU time, for all CkbProbes on it.",
                Unit::Ratio,
                vec![(most_of_pods("ckb_probe_overhead_ratio"), "{{pod}}")],
            ),
            how_uncertain(""),
        ],
    }
}
