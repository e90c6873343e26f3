//! What an agent reported of a target, over all of its reports.

use ckb_probe_crds::{Histogram, IntervalFigures, NodeProbeStatus};

use super::prelude::*;

/// One operation.
#[derive(Clone, Debug, Default)]
pub struct Operation {
    /// Calls since the agent first attached; scaled where they were sampled.
    pub calls: u64,
    /// Durations over all report intervals.
    pub histogram: Histogram,
    /// The standard error of that, as a part of it; infinite where it is the least that there were, since few slices saw them.
    pub error: f64,
    /// Calls that were seen.
    pub samples: u64,
    /// Time that the report intervals cover.
    pub elapsed: Duration,
    /// Time in which calls were recorded.
    pub recorded: Duration,
    last: IntervalFigures,
}

/// Everything of one target.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By the operation's name.
    pub operations: BTreeMap<String, Operation>,
    /// The agent's own estimate for each report interval: percent of the target's CPU time.
    pub overhead_percent: Vec<f64>,
}

impl Figures {
    /// Adds up the reports on the only target that there was.
    pub fn of(reports: &[NodeProbeStatus]) -> Self {
        let mut figures = Self::default();
        for instance in reports.iter().flat_map(|report| &report.instances) {
            let mut news = false;
            for row in rows::reported(instance) {
                let operation = figures.operations.entry(row.key.clone()).or_default();
                operation.calls = rows::calls(&row.total);
                operation.error = rows::error(&row.total);
                news |= operation.add(&row.window);
            }
            if news && let Some(overhead) = instance.overhead_millipercent {
                figures.overhead_percent.push(overhead as f64 / 1000.0);
            }
        }
        figures
    }

    /// Calls in all.
    pub fn calls(&self) -> u64 {
        self.operations
            .values()
            .map(|operation| operation.calls)
            .sum()
    }

    /// Calls that were seen, in all report intervals.
    pub fn samples(&self) -> u64 {
        self.operations
            .values()
            .map(|operation| operation.samples)
            .sum()
    }

    /// The time that the report intervals cover, in seconds.
    pub fn seconds(&self) -> f64 {
        let elapsed = self.operations.values().map(|operation| operation.elapsed);
        elapsed.max().unwrap_or_default().as_secs_f64()
    }

    /// The least share of the time in which any operation was recorded, in percent.
    pub fn sampling_percent(&self) -> f64 {
        let shares = self.operations.values().map(Operation::share);
        shares.fold(1.0, f64::min) * 100.0
    }

    /// Succeeds when the last interval has been reported, too: the intervals then add up to the totals, or to more where these are the
    /// least that there was.
    pub fn expect_complete(&self) -> Result<()> {
        let (mut windows, mut calls) = (0, 0);
        for operation in self.operations.values() {
            let counted = operation.histogram.count();
            calls += operation.calls;
            windows += match operation.error.is_infinite() {
                true => counted.min(operation.calls),
                false => counted,
            };
        }
        // What is scaled up is rounded, operation by operation and interval by interval.
        expect(
            windows.abs_diff(calls) * 1000 <= calls && calls > 0,
            "report intervals that add up to the totals",
            || format!("{windows} for {calls}"),
        )
    }
}

impl Operation {
    /// Adds an interval, unless it is the one of the report before, told once more. Whether it did.
    fn add(&mut self, window: &IntervalFigures) -> bool {
        if *window == self.last {
            return false;
        }
        self.last = window.clone();
        self.histogram.merge(&rows::durations(&window.figures));
        self.samples += window.samples;
        self.elapsed += Duration::from_millis(window.milliseconds);
        self.recorded += Duration::from_millis(window.recorded_milliseconds);
        true
    }

    /// Of the time that passed, that in which calls were recorded.
    pub fn share(&self) -> f64 {
        if self.elapsed.is_zero() {
            return 1.0;
        }
        self.recorded.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use ckb_probe_crds::{
        Distribution, Figures as Counted, InstanceReport, ProbeReport, RowReport,
    };

    use super::*;

    fn report(total: u64, window: u64, recorded: u64) -> NodeProbeStatus {
        let counted = |calls| {
            let durations = Distribution {
                histogram: [(100, calls)].into_iter().collect(),
                ..Distribution::default()
            };
            Counted {
                distributions: [("duration".into(), durations)].into(),
                ..Counted::default()
            }
        };
        let row = RowReport {
            key: "Get".to_string(),
            total: counted(total),
            window: IntervalFigures {
                milliseconds: 2000,
                recorded_milliseconds: recorded,
                samples: window / 2,
                figures: counted(window),
            },
            parts: Vec::new(),
        };
        let probe = ProbeReport {
            rows: vec![row],
            ..ProbeReport::default()
        };
        let instance = InstanceReport {
            overhead_millipercent: Some(500),
            probes: vec![probe],
            ..InstanceReport::default()
        };
        NodeProbeStatus {
            instances: vec![instance],
            ..NodeProbeStatus::default()
        }
    }

    #[test]
    fn an_interval_told_twice_counts_once() {
        let reports = [
            report(10, 10, 2000),
            report(12, 10, 2000),
            report(30, 20, 1000),
        ];
        let figures = Figures::of(&reports);
        let get = &figures.operations["Get"];
        assert_eq!(
            (get.calls, get.histogram.count(), get.samples),
            (30, 30, 15)
        );
        assert_eq!(figures.sampling_percent(), 75.0);
        assert_eq!(figures.overhead_percent, [0.5, 0.5]);
        figures.expect_complete().unwrap();
    }

    #[test]
    fn a_total_that_is_the_least_that_there_was_may_be_less_than_its_intervals() {
        let of = |total| {
            let mut report = report(total, 20, 1000);
            let row = &mut report.instances[0].probes[0].rows[0];
            row.total.leave_out();
            Figures::of(&[report]).expect_complete()
        };
        of(12).unwrap();
        of(20).unwrap();
        of(30).unwrap_err();
    }

    #[test]
    fn an_interval_that_is_still_to_come_is_missed() {
        let figures = Figures::of(&[report(30, 10, 2000)]);
        figures.expect_complete().unwrap_err();
    }
}
