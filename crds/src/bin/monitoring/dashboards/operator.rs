//! Is the operator well?

use super::{Dashboard, Unit, Variables, figure, lines};
use crate::query::{of_cluster, quantile, rate};

pub fn dashboard() -> Dashboard {
    let most = |metric| format!("max({})", of_cluster(metric));
    let by = |label, metric| format!("sum by ({label}) ({})", rate(&of_cluster(metric)));
    Dashboard {
        name: "operator",
        title: "Operator",
        about: "What the operator looks after, how quickly, and what fails.",
        variables: Variables::Cluster,
        panels: vec![
            figure(
                "Does an operator lead?",
                "Replicas that lead: one of all.",
                Unit::Number,
                vec![(
                    format!("sum({})", of_cluster("ckb_probe_operator_leader")),
                    "leads",
                )],
            ),
            figure(
                "How many CkbProbes are served?",
                "CkbProbes that the operator knows.",
                Unit::Number,
                vec![(most("ckb_probe_operator_ckbprobes"), "CkbProbes")],
            ),
            figure(
                "How many targets are there?",
                "Entries of the agents' orders: each a pod and what is asked of it.",
                Unit::Number,
                vec![(most("ckb_probe_operator_targets"), "targets")],
            ),
            figure(
                "How many nodes have an agent?",
                "Nodes that are to have one, and agents that are scraped.",
                Unit::Number,
                vec![
                    (most("ckb_probe_operator_nodeprobes"), "nodes"),
                    (
                        format!("count({})", of_cluster("ckb_probe_tier_info")),
                        "agents",
                    ),
                ],
            ),
            lines(
                "How much does it do?",
                "Nodes, and statuses of CkbProbes, that it brought in order per second.",
                Unit::PerSecond,
                vec![(
                    by("kind", "ckb_probe_reconcile_duration_seconds_count"),
                    "{{kind}}",
                )],
            ),
            lines(
                "How long does that take?",
                "The 99th percentile by kind, with the API server's answers.",
                Unit::Seconds,
                vec![(
                    quantile(
                        0.99,
                        &of_cluster("ckb_probe_reconcile_duration_seconds_bucket"),
                        "kind",
                        "$__rate_interval",
                    ),
                    "{{kind}}",
                )],
            ),
            lines(
                "How long does it take to make a status?",
                "The 99th percentile of making one out of agents' reports, until it is handed over to be written.",
                Unit::Seconds,
                vec![(
                    quantile(
                        0.99,
                        &of_cluster("ckb_probe_merge_duration_seconds_bucket"),
                        "cluster",
                        "$__rate_interval",
                    ),
                    "p99",
                )],
            ),
            lines(
                "What fails?",
                "Failures to read from or write to the API server, since the operator began, by what failed; and Events that were not written, \
                 for one object had had too many.",
                Unit::Number,
                vec![
                    (
                        format!(
                            "sum by (reason) ({})",
                            of_cluster("ckb_probe_reconcile_errors_total")
                        ),
                        "{{reason}}",
                    ),
                    (
                        format!(
                            "sum({})",
                            of_cluster("ckb_probe_operator_events_dropped_total")
                        ),
                        "Events not written",
                    ),
                ],
            ),
            lines(
                "Are profiles made?",
                "CkbProfiles written since the operator began, by mode; and parts of which they were made.",
                Unit::Number,
                vec![
                    (
                        format!(
                            "sum by (mode) ({})",
                            of_cluster("ckb_probe_profiles_published_total")
                        ),
                        "{{mode}}",
                    ),
                    (
                        format!(
                            "sum({})",
                            of_cluster("ckb_probe_profile_parts_merged_total")
                        ),
                        "parts",
                    ),
                ],
            ),
            lines(
                "Do stacks get lost, or do profiles not arrive?",
                "Parts that the operator dropped, and profiles that the server they are pushed to did not take, since it began; and those it took.",
                Unit::Number,
                vec![
                    (
                        format!(
                            "sum by (reason) ({})",
                            of_cluster("ckb_probe_profile_parts_dropped_total")
                        ),
                        "parts: {{reason}}",
                    ),
                    (
                        format!(
                            "sum by (reason) ({})",
                            of_cluster("ckb_probe_profiles_push_dropped_total")
                        ),
                        "not pushed: {{reason}}",
                    ),
                    (
                        format!("sum({})", of_cluster("ckb_probe_profiles_pushed_total")),
                        "pushed",
                    ),
                ],
            ),
        ],
    }
}
