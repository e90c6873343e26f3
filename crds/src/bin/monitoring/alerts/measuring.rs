//! Whether what is to be measured is, whether its figures can be believed, and whether they arrive.

use super::{
    Alert,
    Severity::{Info, Warning},
    Sign::{Above, Below},
};
use crate::query::{TARGET, grown};

/// What is not measured, or not well enough to tell anything.
pub fn coverage() -> Vec<Alert> {
    vec![
        Alert {
            alert: "CkbProbeNoLeader",
            needs: None,
            value: "max(ckb_probe_operator_leader) or vector(0)".to_string(),
            sign: Below,
            threshold: 1.0,
            lasts: "10m",
            severity: Warning,
            summary: "No operator of ckb-probe leads",
            description: "No replica of the operator that Prometheus scrapes leads: CkbProbes that are made or changed are not answered, \
                          statuses stand still, and new nodes get no agent. Agents that are there go on measuring.",
        },
        Alert {
            alert: "CkbProbeAgentMissing",
            needs: None,
            value: "max by (cluster) (ckb_probe_operator_nodeprobes) - (count by (cluster) (ckb_probe_tier_info) \
                    or max by (cluster) (ckb_probe_operator_nodeprobes) * 0)"
                .to_string(),
            sign: Above,
            threshold: 0.0,
            lasts: "15m",
            severity: Warning,
            summary: "Nodes with targets have no agent that is scraped",
            description: "{{ $value }} nodes that are to have an agent have none that Prometheus scrapes: nothing is known of their targets.",
        },
        Alert {
            alert: "CkbProbeTargetNotAttached",
            needs: None,
            value: format!("min by ({TARGET}) (ckb_probe_target_attached)"),
            sign: Below,
            threshold: 1.0,
            lasts: "15m",
            severity: Warning,
            summary: "A target is not measured",
            description: "No probe is in place on {{ $labels.namespace }}/{{ $labels.pod }} ({{ $labels.container }}), though the CkbProbe \
                          {{ $labels.ckbprobe }} selects it.",
        },
        Alert {
            alert: "CkbProbeTargetSilent",
            needs: None,
            value: format!("max by ({TARGET}) (ckb_probe_target_attached - ckb_probe_target_firing)"),
            sign: Above,
            threshold: 0.0,
            lasts: "15m",
            severity: Warning,
            summary: "A target is attached and silent",
            description: "Probes are in place on {{ $labels.namespace }}/{{ $labels.pod }} ({{ $labels.container }}), and at least one of the \
                          CkbProbe {{ $labels.ckbprobe }} counts nothing: either the process does nothing of the kind, or it is not seen.",
        },
        Alert {
            alert: "CkbProbeSamplingTooThin",
            needs: None,
            value: format!("max by ({TARGET}, probe) (avg_over_time(ckb_probe_relative_error_ratio[30m]))"),
            sign: Above,
            threshold: 0.3,
            lasts: "30m",
            severity: Info,
            summary: "Sampling is too thin to tell",
            description: "Figures of the probe {{ $labels.probe }} on {{ $labels.namespace }}/{{ $labels.pod }} are uncertain: the standard \
                          error of one of its rows is {{ $value | humanizePercentage }} of what is told, on average of half an hour.",
        },
        Alert {
            alert: "CkbProbeEventsLost",
            needs: None,
            // What is not listed is counted all the same; what is not counted makes figures too low.
            value: format!(
                "sum by ({TARGET}, what) ({})",
                grown(
                    "ckb_probe_lost_total{what=~\"calls|counts|requests|times|connections\"}",
                    "15m"
                )
            ),
            sign: Above,
            threshold: 0.0,
            lasts: "0s",
            severity: Info,
            summary: "Figures are too low: something was not counted",
            description: "{{ $value | humanize }} {{ $labels.what }} of {{ $labels.namespace }}/{{ $labels.pod }} could not be recorded in the \
                          last 15 minutes.",
        },
        Alert {
            alert: "CkbProbeOverheadHigh",
            needs: None,
            // Of an idle target the floor is more than all that it uses itself.
            value: format!(
                "max by ({TARGET}) (avg_over_time(ckb_probe_overhead_ratio[15m]) \
                 / avg_over_time(ckb_probe_overhead_granted_ratio[15m]))"
            ),
            sign: Above,
            threshold: 1.1,
            lasts: "15m",
            severity: Warning,
            summary: "Measuring costs a target more than it should",
            description: "Measuring {{ $labels.namespace }}/{{ $labels.pod }} costs it {{ $value | humanizePercentage }} of what it may, by \
                          the estimate.",
        },
        Alert {
            alert: "CkbProbeGaps",
            needs: None,
            value: format!("max by ({TARGET}) (increase(ckb_probe_gap_seconds_total[1h])) / 3600"),
            sign: Above,
            threshold: 0.1,
            lasts: "5m",
            severity: Warning,
            summary: "A target was not measured for a good part of the hour",
            description: "{{ $labels.namespace }}/{{ $labels.pod }} was without a probe for {{ $value | humanizePercentage }} of the last hour: \
                          its process ends and comes back, or cannot be attached to each time.",
        },
        Alert {
            alert: "CkbProbeRowsLeftOut",
            needs: None,
            value: format!("max by ({TARGET}) (ckb_probe_rows_left_out)"),
            sign: Above,
            threshold: 0.0,
            lasts: "15m",
            severity: Info,
            summary: "Rows of a target are not among the metrics",
            description: "{{ $value }} rows of {{ $labels.namespace }}/{{ $labels.pod }} are left out of the metrics, since the targets of its \
                          node have more than 2,048 together. The status of the CkbProbe has the most important of them.",
        },
    ]
}

/// What was measured and did not arrive.
pub fn delivery() -> Vec<Alert> {
    vec![
        Alert {
            alert: "CkbProbeReportsFail",
            needs: None,
            value: format!(
                "sum by (cluster, instance, result) ({})",
                grown("ckb_probe_reports_total{result!=\"written\"}", "15m")
            ),
            sign: Above,
            threshold: 5.0,
            lasts: "5m",
            severity: Warning,
            summary: "An agent cannot write its reports",
            description: "{{ $value | humanize }} reports of the agent at {{ $labels.instance }} were {{ $labels.result }} in the last 15 \
                          minutes: statuses of CkbProbes are older than they should be. Metrics are not concerned.",
        },
        Alert {
            alert: "CkbProbeReconcileErrors",
            needs: None,
            value: format!(
                "sum by (cluster, reason) ({})",
                grown("ckb_probe_reconcile_errors_total", "15m")
            ),
            sign: Above,
            threshold: 10.0,
            lasts: "15m",
            severity: Warning,
            summary: "The operator fails at the API server",
            description: "{{ $value | humanize }} times in the last 15 minutes the operator failed to read from or write to the API server: \
                          {{ $labels.reason }}.",
        },
        Alert {
            alert: "CkbProbeProfilePartsDropped",
            needs: Some("profile"),
            // Unasked is what is under way when a CkbProbe is changed or deleted.
            value: format!(
                "sum by (cluster, reason) ({})",
                grown("ckb_probe_profile_parts_dropped_total{reason!=\"Unasked\"}", "1h")
            ),
            sign: Above,
            threshold: 0.0,
            lasts: "0s",
            severity: Warning,
            summary: "Stacks are in no profile",
            description: "{{ $value | humanize }} parts of profiles were dropped by the operator in the last hour: {{ $labels.reason }}.",
        },
        Alert {
            alert: "CkbProbeProfilesNotPushed",
            needs: Some("push"),
            value: format!(
                "sum by (cluster, reason) ({})",
                grown("ckb_probe_profiles_push_dropped_total", "1h")
            ),
            sign: Above,
            threshold: 0.0,
            lasts: "0s",
            severity: Warning,
            summary: "Profiles do not reach the server they are pushed to",
            description: "{{ $value | humanize }} profiles were not taken by the server of profiles.push.url in the last hour: \
                          {{ $labels.reason }}. They are in the cluster all the same.",
        },
        Alert {
            alert: "CkbProbeSpansDropped",
            needs: Some("traces"),
            value: "sum by (cluster, instance, exporter, cause) (increase(ckb_probe_spans_dropped_total[1h]))".to_string(),
            sign: Above,
            threshold: 0.0,
            lasts: "0s",
            severity: Warning,
            summary: "Traces do not reach their receiver",
            description: "{{ $value | humanize }} spans of the agent at {{ $labels.instance }}, of its exporter {{ $labels.exporter }}, were \
                          given up in the last hour: {{ $labels.cause }}.",
        },
        Alert {
            alert: "CkbProbeMetricPointsDropped",
            needs: Some("otlpMetrics"),
            value: "sum by (cluster, instance, cause) (increase(ckb_probe_metric_points_dropped_total[1h]))".to_string(),
            sign: Above,
            threshold: 0.0,
            lasts: "0s",
            severity: Warning,
            summary: "Figures do not reach their receiver",
            description: "{{ $value | humanize }} points of metrics of the agent at {{ $labels.instance }} were given up in the last hour: \
                          {{ $labels.cause }}. What Prometheus scrapes is not concerned.",
        },
    ]
}
