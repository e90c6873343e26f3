//! What became of spans, and of points of metrics, for Prometheus.

use ckb_probe_traces::{Cause, Counts, Signal};
use prometheus::proto::MetricType;

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

/// Their part of `/metrics`.
pub fn families(signal: Signal, counts: &Counts) -> Vec<Family<'static>> {
    let dropped = Cause::ALL.map(|cause| {
        counter(
            vec![label("cause", cause.as_str())],
            counts.dropped_for(cause) as f64,
        )
    });
    let one = |count: u64| vec![counter(vec![], count as f64)];
    let values = [
        (MetricType::COUNTER, one(counts.started)),
        (MetricType::COUNTER, one(counts.exported)),
        (MetricType::COUNTER, dropped.into()),
        (MetricType::GAUGE, vec![gauge(vec![], counts.queued as f64)]),
        (MetricType::COUNTER, one(counts.failures)),
    ];
    let names = match signal {
        Signal::Traces => SPANS,
        Signal::Metrics => POINTS,
    };
    let families = names.into_iter().zip(values);
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
            ..Counts::default()
        };
        counts.dropped[Cause::Full as usize] = 5;
        let text = page(&families(Signal::Traces, &counts), Format::Text).unwrap();
        for line in [
            "ckb_probe_spans_started_total 10",
            "ckb_probe_spans_exported_total 4",
            "ckb_probe_spans_dropped_total{cause=\"full\"} 5",
            "ckb_probe_spans_dropped_total{cause=\"unanswered\"} 0",
            "ckb_probe_spans_queued 1",
            "ckb_probe_span_requests_failed_total 3",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
        let text = page(&families(Signal::Metrics, &counts), Format::Text).unwrap();
        for line in [
            "ckb_probe_metric_points_started_total 10",
            "ckb_probe_metric_points_dropped_total{cause=\"full\"} 5",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
    }
}
