//! Rates, quantiles and counts over all targets.
//!
//! Rates and quantiles are those of the last window of the targets that are attached now. Counts are of every
//! target that reported, also of one whose agent is silent: a counter does not go back because nobody speaks.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    CkbProbeSpec, Histogram, InstanceState, OperationReport, OperationStatus, Totals, display_nanos,
};

use super::{numbers, targets::Target};

/// What was counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub totals: Totals,
    pub operations: Vec<OperationStatus>,
}

/// One operation of many targets. Merging two is associative and commutative, but for the last bit of the rates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sum {
    count: u64,
    slow: u64,
    per_second: f64,
    bytes_per_second: Option<f64>,
    max: u64,
    histogram: Histogram,
}

/// The figures of the operations that the spec asks for, in its order.
pub fn merge(spec: &CkbProbeSpec, targets: &[Target]) -> Figures {
    let mut sums: BTreeMap<(&str, &str), Sum> = BTreeMap::new();
    let mut lost = 0_u64;
    for target in targets {
        let Some(report) = target.report else {
            continue;
        };
        lost = lost
            .saturating_add(report.calls_lost)
            .saturating_add(report.events_lost);
        let live = target.state == InstanceState::Attached;
        for operation in &report.operations {
            let key = (operation.probe.as_str(), operation.operation.as_str());
            sums.entry(key)
                .or_default()
                .merge(&Sum::of(operation, live));
        }
    }
    let mut all = Sum::default();
    let operations: Vec<_> = asked_for(spec)
        .filter_map(|(probe, operation)| {
            let sum = sums.get(&(probe, operation))?;
            all.merge(sum);
            Some(sum.status(probe, operation))
        })
        .collect();
    let attached = targets.iter().any(|t| t.state == InstanceState::Attached);
    Figures {
        totals: all.totals(attached, lost),
        operations,
    }
}

fn asked_for(spec: &CkbProbeSpec) -> impl Iterator<Item = (&str, &'static str)> {
    spec.probes.iter().flat_map(|probe| {
        let rocksdb = probe.rocksdb.iter().flat_map(|rocksdb| &rocksdb.operations);
        rocksdb.map(|operation| (probe.name.as_str(), operation.as_str()))
    })
}

impl Sum {
    /// That of one report; `live` when its window is of now.
    pub fn of(report: &OperationReport, live: bool) -> Self {
        let OperationReport {
            probe: _,
            operation: _,
            has_bytes,
            total,
            window,
        } = report;
        let mut sum = Self {
            count: total.count,
            slow: total.slow,
            bytes_per_second: has_bytes.then_some(0.0),
            ..Self::default()
        };
        if live && window.milliseconds > 0 {
            let seconds = window.milliseconds as f64 / 1000.0;
            sum.per_second = window.counters.count as f64 / seconds;
            sum.bytes_per_second = has_bytes.then(|| window.counters.bytes as f64 / seconds);
            sum.max = window.max_nanoseconds;
            sum.histogram = window.histogram.clone();
        }
        sum
    }

    /// Adds another's calls.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            count,
            slow,
            per_second,
            bytes_per_second,
            max,
            histogram,
        } = other;
        self.count = self.count.saturating_add(*count);
        self.slow = self.slow.saturating_add(*slow);
        self.per_second += per_second;
        self.bytes_per_second = match (self.bytes_per_second, bytes_per_second) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(*b),
        };
        self.max = self.max.max(*max);
        self.histogram.merge(histogram);
    }

    /// A quantile, never above the exact maximum: the bucket of the longest call may reach beyond it.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        Some(self.histogram.quantile(quantile)?.min(self.longest()?))
    }

    /// The longest call of the window, if there was any.
    pub fn longest(&self) -> Option<u64> {
        (self.histogram.iter().next().is_some()).then_some(self.max)
    }

    fn status(&self, probe: &str, operation: &str) -> OperationStatus {
        let shown = |quantile| self.quantile(quantile).map(display_nanos);
        OperationStatus {
            probe: probe.to_owned(),
            operation: operation.to_owned(),
            per_second: numbers::rate(self.per_second),
            p50: shown(0.5),
            p90: shown(0.9),
            p99: shown(0.99),
            max: self.longest().map(display_nanos),
            bytes_per_second: self.bytes_per_second.map(numbers::rate),
            count: self.count,
            slow: self.slow,
        }
    }

    fn totals(&self, attached: bool, lost: u64) -> Totals {
        let shown = |quantile| self.quantile(quantile).map(display_nanos);
        Totals {
            per_second: attached.then(|| numbers::rate(self.per_second)),
            p50: shown(0.5),
            p99: shown(0.99),
            max: self.longest().map(display_nanos),
            slow: self.slow,
            lost,
        }
    }
}
