//! Rates, quantiles and counts over all targets.
//!
//! Rates and quantiles are those of the last window of the targets that are attached now. Counts are of every
//! target that reported, also of one whose agent is silent: a counter does not go back because nobody speaks.
//!
//! Agents scale what they sampled by elapsed over recorded time, counters and histograms alike, so merging is adding,
//! whether or not anything was sampled. A window in which nothing was recorded says nothing of its time: it counts
//! in the share, and not as a rate of zero.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_crds::{
    CkbProbeSpec, ColumnFamilyReport, ColumnFamilyStatus, Counters, Histogram, InstanceState,
    OperationReport, OperationStatus, Totals, Window, display_nanos, kinds::rocksdb::Operation,
};

use super::{numbers, share::Share, targets::Target};

/// How many column families of an operation are listed.
pub const MAX_COLUMN_FAMILIES: usize = 64;

/// What was counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub totals: Totals,
    pub operations: Vec<OperationStatus>,
    /// That of the operation that is sampled most sparsely, if an interval has ended.
    pub share: Option<Share>,
}

/// Calls of many targets. Merging two is associative and commutative, but for the last bit of the rates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    count: u64,
    slow: u64,
    per_second: Option<f64>,
    bytes_per_second: Option<f64>,
    max: u64,
    histogram: Histogram,
}

/// One operation of many targets. Merges as [`Calls`] do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sum {
    pub calls: Calls,
    share: Share,
    samples: u64,
    column_families: BTreeMap<String, Calls>,
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
    let background: BTreeSet<_> = Operation::CAUSES.iter().map(|o| o.as_str()).collect();
    let mut all = Calls::default();
    let mut share: Option<Share> = None;
    let operations: Vec<_> = asked_for(spec)
        .filter_map(|(probe, operation)| {
            let sum = sums.get(&(probe, operation))?;
            if !background.contains(operation) {
                all.merge(&sum.calls);
            }
            let shares = [share, sum.share.of_an_interval()];
            share = shares.into_iter().flatten().min_by(Share::sparseness);
            Some(sum.status(probe, operation))
        })
        .collect();
    Figures {
        totals: all.totals(lost),
        operations,
        share,
    }
}

fn asked_for(spec: &CkbProbeSpec) -> impl Iterator<Item = (&str, &'static str)> {
    spec.probes.iter().flat_map(|probe| {
        let rocksdb = probe.rocksdb.iter().flat_map(|rocksdb| &rocksdb.operations);
        rocksdb.map(|operation| (probe.name.as_str(), operation.as_str()))
    })
}

impl Calls {
    /// Those of one report; `live` when its window is of now.
    fn of(total: &Counters, window: &Window, has_bytes: bool, live: bool) -> Self {
        let mut calls = Self {
            count: total.count,
            slow: total.slow,
            ..Self::default()
        };
        if live && Share::of(window).is_known() {
            let seconds = window.milliseconds as f64 / 1000.0;
            let rate = |count: u64| count as f64 / seconds;
            calls.per_second = Some(rate(window.counters.count));
            calls.bytes_per_second = has_bytes.then(|| rate(window.counters.bytes));
            calls.max = window.max_nanoseconds;
            calls.histogram = window.histogram.clone();
        }
        calls
    }

    /// Adds another's calls.
    fn merge(&mut self, other: &Self) {
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
        self.per_second = sum(self.per_second, *per_second);
        self.bytes_per_second = sum(self.bytes_per_second, *bytes_per_second);
        self.max = self.max.max(*max);
        self.histogram.merge(histogram);
    }

    /// A quantile, never above the exact maximum: the bucket of the longest call may reach beyond it.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        Some(self.histogram.quantile(quantile)?.min(self.longest()?))
    }

    /// The longest call of the window, if any was timed.
    pub fn longest(&self) -> Option<u64> {
        (self.histogram.iter().next().is_some()).then_some(self.max)
    }

    fn rate(&self) -> String {
        self.per_second.map(numbers::rate).unwrap_or_default()
    }

    fn shown(&self, quantile: f64) -> Option<String> {
        self.quantile(quantile).map(display_nanos)
    }

    fn totals(&self, lost: u64) -> Totals {
        Totals {
            per_second: self.per_second.map(numbers::rate),
            p50: self.shown(0.5),
            p99: self.shown(0.99),
            max: self.longest().map(display_nanos),
            slow: self.slow,
            lost,
        }
    }

    fn status(&self, column_family: &str) -> ColumnFamilyStatus {
        ColumnFamilyStatus {
            name: column_family.to_owned(),
            per_second: self.rate(),
            p50: self.shown(0.5),
            p99: self.shown(0.99),
            max: self.longest().map(display_nanos),
            count: self.count,
            slow: self.slow,
        }
    }
}

/// What is unknown adds nothing.
fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    }
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
            column_families,
        } = report;
        let mut sum = Self {
            calls: Calls::of(total, window, *has_bytes, live),
            ..Self::default()
        };
        if live {
            sum.share = Share::of(window);
            sum.samples = window.samples;
        }
        for family in column_families {
            let ColumnFamilyReport {
                name,
                total,
                window,
            } = family;
            sum.column_families
                .entry(name.clone())
                .or_default()
                .merge(&Calls::of(total, window, false, live));
        }
        sum
    }

    /// Adds another's calls.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            calls,
            share,
            samples,
            column_families,
        } = other;
        self.calls.merge(calls);
        self.share.merge(share);
        self.samples = self.samples.saturating_add(*samples);
        for (name, calls) in column_families {
            self.column_families
                .entry(name.clone())
                .or_default()
                .merge(calls);
        }
    }

    fn status(&self, probe: &str, operation: &str) -> OperationStatus {
        let calls = &self.calls;
        OperationStatus {
            probe: probe.to_owned(),
            operation: operation.to_owned(),
            per_second: calls.rate(),
            p50: calls.shown(0.5),
            p90: calls.shown(0.9),
            p99: calls.shown(0.99),
            max: calls.longest().map(display_nanos),
            bytes_per_second: calls.bytes_per_second.map(numbers::rate),
            count: calls.count,
            slow: calls.slow,
            sampling_percent: self.share.percent(),
            samples: self.samples,
            column_families: self.column_families(),
        }
    }

    /// The busiest now first, then those that were, and equals by name.
    fn column_families(&self) -> Vec<ColumnFamilyStatus> {
        let mut families: Vec<_> = self.column_families.iter().collect();
        families.sort_by(|(_, a), (_, b)| {
            let now = |calls: &Calls| calls.per_second.unwrap_or(-1.0);
            now(b).total_cmp(&now(a)).then(b.count.cmp(&a.count))
        });
        families
            .into_iter()
            .take(MAX_COLUMN_FAMILIES)
            .map(|(name, calls)| calls.status(name))
            .collect()
    }
}

#[cfg(test)]
mod tests;
