//! What became of spans, for Prometheus.

use ckb_probe_traces::{Cause, Counts};
use prometheus::proto::MetricType;

use super::{
    exposition::Family,
    metrics::{counter, family, gauge, label},
};

/// Their part of `/metrics`.
pub fn families(counts: &Counts) -> Vec<Family> {
    let dropped = Cause::ALL.map(|cause| {
        counter(
            vec![label("cause", cause.as_str())],
            counts.dropped_for(cause) as f64,
        )
    });
    let families = [
        family(
            "ckb_probe_spans_started_total",
            "Spans that were to be exported: exported, dropped and queued are as many, always.",
            MetricType::COUNTER,
            [counter(vec![], counts.started as f64)],
        ),
        family(
            "ckb_probe_spans_exported_total",
            "Spans that the receiver took.",
            MetricType::COUNTER,
            [counter(vec![], counts.exported as f64)],
        ),
        family(
            "ckb_probe_spans_dropped_total",
            "Spans that were given up: full, since too many waited; refused by the receiver; unanswered, sent and perhaps arrived; ended, \
             since the agent did.",
            MetricType::COUNTER,
            dropped,
        ),
        family(
            "ckb_probe_spans_queued",
            "Spans that wait, or are under way.",
            MetricType::GAUGE,
            [gauge(vec![], counts.queued as f64)],
        ),
        family(
            "ckb_probe_span_requests_failed_total",
            "Requests with spans that failed, and were made again.",
            MetricType::COUNTER,
            [counter(vec![], counts.failures as f64)],
        ),
    ];
    families.map(Family::from).into()
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
        let text = page(&families(&counts), Format::Text).unwrap();
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
    }
}
