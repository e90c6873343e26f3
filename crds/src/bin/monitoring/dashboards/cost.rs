//! What does measuring cost, and what is it worth?

use super::{Dashboard, Unit, Variables, how_uncertain, lines};
use crate::query::{chosen, most_of_pods, of_cluster, rate};

pub fn dashboard() -> Dashboard {
    Dashboard {
        name: "cost",
        title: "Cost of measuring",
        about: "What measuring costs the targets, what is sampled for it, and what is missing.",
        variables: Variables::Pods,
        panels: vec![
            lines(
                "What does measuring cost the targets?",
                "The estimated share of the target's own CPU time, for all CkbProbes on it. An idle one may be above its percentage: it is \
                 granted a floor.",
                Unit::Ratio,
                vec![(most_of_pods("ckb_probe_overhead_ratio"), "{{pod}}")],
            ),
            lines(
                "In how much of the time is anything recorded?",
                "Of the row of each probe that is sampled most sparsely. 1: all of it.",
                Unit::Ratio,
                vec![(
                    format!(
                        "min by (namespace, pod, ckbprobe, probe) ({})",
                        chosen("ckb_probe_sampling_ratio", "")
                    ),
                    "{{pod}} {{ckbprobe}}/{{probe}}",
                )],
            ),
            how_uncertain(""),
            lines(
                "What do figures rest on?",
                "What was seen per second by probe, never scaled.",
                Unit::PerSecond,
                vec![(
                    format!(
                        "sum by (namespace, pod, ckbprobe, probe) ({})",
                        rate(&chosen("ckb_probe_samples_total", ""))
                    ),
                    "{{pod}} {{ckbprobe}}/{{probe}}",
                )],
            ),
            lines(
                "What does one probed call cost?",
                "As each agent measured it on its node when it began; and where the kernel must single-step.",
                Unit::Seconds,
                vec![
                    (
                        format!(
                            "max by (instance) ({})",
                            of_cluster("ckb_probe_cost_per_call_seconds")
                        ),
                        "{{instance}}",
                    ),
                    (
                        format!(
                            "max by (instance) ({})",
                            of_cluster("ckb_probe_single_step_cost_seconds")
                        ),
                        "{{instance}} single-stepped",
                    ),
                ],
            ),
            lines(
                "How are probes attached?",
                "Agents by the way that is cheapest on their node's kernel.",
                Unit::Number,
                vec![(
                    format!("count by (tier) ({})", of_cluster("ckb_probe_tier_info")),
                    "{{tier}}",
                )],
            ),
            lines(
                "What was lost?",
                "What could not be recorded, listed or written, since the agent began; by what it is.",
                Unit::Number,
                vec![(
                    format!(
                        "sum by (namespace, pod, what) ({})",
                        chosen("ckb_probe_lost_total", "")
                    ),
                    "{{pod}} {{what}}",
                )],
            ),
            lines(
                "For how long was nothing measured?",
                "Seconds without a probe since the agent began: while the process was away, or could not be attached to.",
                Unit::Seconds,
                vec![(most_of_pods("ckb_probe_gap_seconds_total"), "{{pod}}")],
            ),
            lines(
                "Which targets are measured in part?",
                "1 where calls are counted and not timed; and how many rows are left out of the metrics.",
                Unit::Number,
                vec![
                    (
                        most_of_pods("ckb_probe_entry_only"),
                        "{{pod}} counted and not timed",
                    ),
                    (
                        most_of_pods("ckb_probe_rows_left_out"),
                        "{{pod}} rows left out",
                    ),
                ],
            ),
            lines(
                "Do reports arrive?",
                "Reports of the agents to the API server per second, by what became of them.",
                Unit::PerSecond,
                vec![(
                    format!(
                        "sum by (result) ({})",
                        rate(&of_cluster("ckb_probe_reports_total"))
                    ),
                    "{{result}}",
                )],
            ),
            lines(
                "How large are reports?",
                "The report that each agent wrote last.",
                Unit::Bytes,
                vec![(
                    format!(
                        "max by (instance) ({})",
                        of_cluster("ckb_probe_report_bytes")
                    ),
                    "{{instance}}",
                )],
            ),
            lines(
                "Do traces arrive?",
                "Spans per second that the receiver took, that were given up, and how many wait. Of agents that export.",
                Unit::Number,
                vec![
                    (
                        format!(
                            "sum({})",
                            rate(&of_cluster("ckb_probe_spans_exported_total"))
                        ),
                        "taken per second",
                    ),
                    (
                        format!(
                            "sum by (cause) ({})",
                            rate(&of_cluster("ckb_probe_spans_dropped_total"))
                        ),
                        "given up per second: {{cause}}",
                    ),
                    (
                        format!("sum({})", of_cluster("ckb_probe_spans_queued")),
                        "waiting",
                    ),
                ],
            ),
        ],
    }
}
