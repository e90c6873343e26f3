//! What became of spans, and of points of metrics, for Prometheus.

use ckb_probe_traces::{Cause, Counts, Signal};
use prometheus::proto::{LabelPair, Metric, MetricType};

use super::{
    exposition::Family,
    metrics::{counter, family, gauge, label},
};

/// What is said of spans.
const SPANS: [(&str, &str); 5] = [
    (
        "ckb_probe_spans_started_total",
        "Spans that were to be exported: exported, dropped and queued are as many, always.",
    ),
    (
        "ckb_probe_spans_exported_total",
        "Spans that the receiver took.",
    ),
    (
        "ckb_probe_spans_dropped_total",
        "Spans that were given up: full, since too many waited; refused by the receiver; unanswered, sent and perhaps arrived; ended, \
         since the agent did.",
    ),
    (
        "ckb_probe_spans_queued",
        "Spans that wait, or are under way.",
    ),
    (
        "ckb_probe_span_requests_failed_total",
        "Requests with spans that failed, and were made again.",
    ),
];

/// What is said of calls and blocks that may be a part of others.
const HURRIED: (&str, &str) = (
    "ckb_probe_spans_hurried_total",
    "Slow calls and blocks that were exported before it was known what they are a part of, since too many waited for that.",
);

/// The same of points of metrics.
const POINTS: [(&str, &str); 5] = [
    (
        "ckb_probe_metric_points_started_total",
        "Points of metrics that were to be exported: exported, dropped and queued are as many, always.",
    ),
    (
        "ckb_probe_metric_points_exported_total",
        "Points of metrics that the receiver took.",
    ),
    (
        "ckb_probe_metric_points_dropped_total",
        "Points of metrics that were given up, by the causes that spans are.",
    ),
    (
        "ckb_probe_metric_points_queued",
        "Points of metrics that wait, or are under way.",
    ),
    (
        "ckb_probe_metric_requests_failed_total",
        "Requests with metrics that failed, and were made again.",
    ),
];

/// Their part of `/metrics`: of spans those of each exporter, by its name. None of what is not exported.
pub fn families(signal: Signal, exporters: &[(Option<&str>, Counts)]) -> Vec<Family<'static>> {
    if exporters.is_empty() {
        return Vec::new();
    }
    let labels = |name: &Option<&str>| -> Vec<LabelPair> {
        let name = name.iter();
        name.map(|name| label("exporter", name)).collect()
    };
    let each = |count: fn(&Counts) -> u64| -> Vec<Metric> {
        let all = exporters.iter();
        all.map(|(name, counts)| counter(labels(name), count(counts) as f64))
            .collect()
    };
    let dropped = exporters.iter().flat_map(|(name, counts)| {
        Cause::ALL.map(|cause| {
            let mut labels = labels(name);
            labels.push(label("cause", cause.as_str()));
            counter(labels, counts.dropped_for(cause) as f64)
        })
    });
    let queued = exporters
        .iter()
        .map(|(name, counts)| gauge(labels(name), counts.queued as f64));
    let values = [
        (MetricType::COUNTER, each(|counts| counts.started)),
        (MetricType::COUNTER, each(|counts| counts.exported)),
        (MetricType::COUNTER, dropped.collect()),
        (MetricType::GAUGE, queued.collect()),
        (MetricType::COUNTER, each(|counts| counts.failures)),
    ];
    let names = match signal {
        Signal::Traces => SPANS,
        Signal::Metrics => POINTS,
    };
    // No point of a metric is held back.
    let hurried = each(|counts| counts.hurried);
    let hurried = (signal == Signal::Traces).then_some((HURRIED, (MetricType::COUNTER, hurried)));
    let families = names.into_iter().zip(values).chain(hurried);
    families
        .map(|((name, help), (kind, metrics))| family(name, help, kind, metrics).into())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::exposition::{Format, page},
        *,
    };

    #[test]
    fn what_was_started_is_told_apart_by_what_became_of_it() {
        let mut counts = Counts {
            started: 10,
            exported: 4,
            queued: 1,
            failures: 3,
            hurried: 2,
            ..Counts::default()
        };
        counts.dropped[Cause::Full as usize] = 5;
        let idle = Counts::default();
        let exporters = [(Some("archive"), idle), (Some("default"), counts)];
        let text = page(&families(Signal::Traces, &exporters), Format::Text).unwrap();
        for line in [
            "ckb_probe_spans_started_total{exporter=\"archive\"} 0",
            "ckb_probe_spans_started_total{exporter=\"default\"} 10",
            "ckb_probe_spans_exported_total{exporter=\"default\"} 4",
            "ckb_probe_spans_dropped_total{exporter=\"default\",cause=\"full\"} 5",
            "ckb_probe_spans_dropped_total{exporter=\"archive\",cause=\"full\"} 0",
            "ckb_probe_spans_dropped_total{exporter=\"default\",cause=\"unanswered\"} 0",
            "ckb_probe_spans_queued{exporter=\"default\"} 1",
            "ckb_probe_span_requests_failed_total{exporter=\"default\"} 3",
            "ckb_probe_spans_hurried_total{exporter=\"default\"} 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
        let text = page(&families(Signal::Metrics, &[(None, counts)]), Format::Text).unwrap();
        for line in [
            "ckb_probe_metric_points_started_total 10",
            "ckb_probe_metric_points_dropped_total{cause=\"full\"} 5",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
        assert!(!text.contains("hurried"), "{text}");
    }
}
