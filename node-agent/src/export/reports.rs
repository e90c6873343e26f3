//! What became of the reports, and of the stacks beside them, for Prometheus.

use prometheus::proto::{Metric, MetricType};

use super::{
    exposition::Family,
    metrics::{counter, family, gauge, label},
};

/// How many reports there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// Those that the API server took.
    pub written: u64,
    /// Those that it will not have.
    pub refused: u64,
    /// Attempts that failed, and were made again.
    pub failed: u64,
    /// Of those that it took, the ones that leave something out.
    pub cut: u64,
    /// Size of the last of those.
    pub bytes: u64,
}

impl Reports {
    /// Their part of `/metrics`.
    pub fn families(&self) -> Vec<Family<'static>> {
        let results = [
            ("written", self.written),
            ("refused", self.refused),
            ("failed", self.failed),
        ];
        let results = results.map(by_result);
        let families = [
            family(
                "ckb_probe_reports_total",
                "Reports to the API server, by what became of them: written; refused, for good: see the log; failed, and tried again.",
                MetricType::COUNTER,
                results,
            ),
            family(
                "ckb_probe_reports_cut_total",
                "Reports that leave something out, since all of it is more than one object holds.",
                MetricType::COUNTER,
                [counter(vec![], self.cut as f64)],
            ),
            family(
                "ckb_probe_report_bytes",
                "Size of the report that was written last.",
                MetricType::GAUGE,
                [gauge(vec![], self.bytes as f64)],
            ),
        ];
        families.map(Family::from).into()
    }
}

fn by_result((result, count): (&'static str, u64)) -> Metric {
    counter(vec![label("result", result)], count as f64)
}

/// How many windows of stacks there were to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileParts {
    /// Those that the API server took.
    pub written: u64,
    /// Those that it will not have.
    pub refused: u64,
    /// Attempts that failed, and were made again.
    pub failed: u64,
    /// Those that were given up for others: there was no room to wait.
    pub dropped: u64,
}

impl ProfileParts {
    /// Their part of `/metrics`.
    pub fn families(&self) -> Vec<Family<'static>> {
        let results = [
            ("written", self.written),
            ("refused", self.refused),
            ("failed", self.failed),
            ("dropped", self.dropped),
        ];
        let results = results.map(by_result);
        let parts = family(
            "ckb_probe_profile_parts_total",
            "Windows of stacks for the operator, by what became of them: written; refused, for good: see the log; failed, and tried \
             again; dropped, since too many waited.",
            MetricType::COUNTER,
            results,
        );
        vec![parts.into()]
    }
}
