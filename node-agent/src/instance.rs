//! What one target did: totals, the interval that is running, the one that ended last, gaps. No clock, no I/O.
//!
//! Time is passed in, as the time since the agent's start.

use std::time::Duration;

use ckb_probe_crds::{
    Breach, Counters, Histogram, InstanceReport, InstanceState, OperationReport, Overhead, Reason,
    Window,
};

use crate::{
    attach::Coverage,
    kinds::Slot,
    observe::ProcessId,
    probe::{Reading, SlotReading},
    target::InstanceKey,
};

/// Without a call for so many report intervals, a target is silent.
const SILENT_AFTER: u32 = 3;

/// The first interval after an attach is no longer than this: whoever waits for figures wants some.
const FIRST_WINDOW: Duration = Duration::from_secs(2);

/// Over budget for so many report intervals in a row, it is a breach and not a burst.
const BREACH_AFTER: u32 = 3;

/// One operation of a target.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is.
    pub slot: Slot,
    /// Since the first attach, over all of the target's processes.
    pub total: Counters,
    /// Durations, since the first attach.
    pub histogram: Histogram,
    latest: SlotReading,
    open: Window,
    closed: Window,
}

/// What a target is at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Its process is gone, or was never there.
    Waiting,
    /// Probes are in place.
    Attached {
        process: ProcessId,
        since: Duration,
        note: String,
    },
    /// The attach failed.
    Failed { reason: Reason, message: String },
    /// Detached on purpose.
    Detached { reason: Reason, message: String },
}

/// One target, from its first process to the end of its order.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Who it is.
    pub key: InstanceKey,
    /// Its operations.
    pub series: Vec<Series>,
    /// Calls not recorded, over all of its processes.
    pub calls_lost: u64,
    /// Slow-call events not delivered, over all of its processes.
    pub events_lost: u64,
    /// How often its process was found anew.
    pub reattaches: u64,
    /// Time without a probe, in all, between a process's end and the next one's attach.
    pub gap: Duration,
    /// Estimated share of its CPU time that probing costs, in the last interval.
    pub overhead_ratio: Option<f64>,
    interval: Duration,
    overhead: Overhead,
    coverage: Coverage,
    stage: Stage,
    lost_latest: (u64, u64),
    attached_before: bool,
    gone_since: Option<Duration>,
    last_call: Option<Duration>,
    window_start: Duration,
    window_ends: Duration,
    cpu_at_window_start: Option<Duration>,
    breaches: u32,
}

impl Instance {
    /// A target that nothing is attached to yet.
    pub fn new(
        key: InstanceKey,
        slots: Vec<Slot>,
        interval: Duration,
        overhead: Overhead,
        now: Duration,
    ) -> Self {
        let series = slots
            .into_iter()
            .map(|slot| Series {
                slot,
                total: Counters::default(),
                histogram: Histogram::default(),
                latest: SlotReading::default(),
                open: Window::default(),
                closed: Window::default(),
            })
            .collect();
        Self {
            key,
            series,
            calls_lost: 0,
            events_lost: 0,
            reattaches: 0,
            gap: Duration::ZERO,
            overhead_ratio: None,
            interval,
            overhead,
            coverage: Coverage::default(),
            stage: Stage::Waiting,
            lost_latest: (0, 0),
            attached_before: false,
            gone_since: None,
            last_call: None,
            window_start: now,
            window_ends: now + interval,
            cpu_at_window_start: None,
            breaches: 0,
        }
    }

    /// The order changed: totals of the operations that stay are kept, and so are gaps and reattaches.
    pub fn reconfigure(&mut self, slots: Vec<Slot>, interval: Duration, overhead: Overhead) {
        let mut old = std::mem::take(&mut self.series);
        let fresh = Self::new(
            self.key.clone(),
            slots,
            interval,
            overhead,
            self.window_start,
        );
        self.series = fresh
            .series
            .into_iter()
            .map(|series| {
                let same = |old: &Series| {
                    old.slot.probe == series.slot.probe
                        && old.slot.operation == series.slot.operation
                };
                match old.iter().position(same) {
                    Some(index) => Series {
                        slot: series.slot,
                        ..old.swap_remove(index)
                    },
                    None => series,
                }
            })
            .collect();
        self.interval = fresh.interval;
        self.overhead = fresh.overhead;
        self.breaches = 0;
    }

    /// Probes are in place on a process. `others` of its container run the same executable and are not measured.
    pub fn attached(
        &mut self,
        process: ProcessId,
        others: usize,
        coverage: Coverage,
        cpu: Option<Duration>,
        now: Duration,
    ) {
        if let Some(gone) = self.gone_since.take() {
            self.reattaches += 1;
            self.gap += now.saturating_sub(gone);
        }
        self.attached_before = true;
        for series in &mut self.series {
            series.latest = SlotReading::default();
        }
        self.lost_latest = (0, 0);
        self.last_call = None;
        self.coverage = coverage;
        self.window_start = now;
        self.window_ends = now + self.interval.min(FIRST_WINDOW);
        self.cpu_at_window_start = cpu;
        let note = match others {
            0 => String::new(),
            others => format!(
                "; {others} more processes of the container run the same executable and are not measured"
            ),
        };
        self.stage = Stage::Attached {
            process,
            since: now,
            note,
        };
    }

    /// The process is gone; probing resumes with its successor.
    pub fn process_gone(&mut self, now: Duration) {
        if self.attached_before && self.gone_since.is_none() {
            self.gone_since = Some(now);
        }
        self.stage = Stage::Waiting;
        self.overhead_ratio = None;
    }

    /// The attach failed.
    pub fn failed(&mut self, reason: Reason, message: String, coverage: Coverage) {
        self.coverage = coverage;
        self.stage = Stage::Failed { reason, message };
    }

    /// Probes were taken off on purpose.
    pub fn detached(&mut self, reason: Reason, message: String) {
        self.stage = Stage::Detached { reason, message };
    }

    /// Adds what the kernel counted since the reading before.
    pub fn observe(&mut self, reading: &Reading, now: Duration) {
        for (series, latest) in self.series.iter_mut().zip(&reading.slots) {
            if series.observe(latest) > 0 {
                self.last_call = Some(now);
            }
        }
        let (calls, events) = self.lost_latest;
        self.calls_lost += reading.calls_lost.saturating_sub(calls);
        self.events_lost += reading.events_lost.saturating_sub(events);
        self.lost_latest = (reading.calls_lost, reading.events_lost);
    }

    /// When the running interval ends.
    pub fn window_ends(&self) -> Duration {
        self.window_ends
    }

    /// Ends the running interval: what was observed in it becomes the figures of the next reports.
    ///
    /// `cpu` is the CPU time the process has used so far; `cost` is that of one probed call.
    pub fn close_window(&mut self, now: Duration, cpu: Option<Duration>, cost: Duration) {
        let length = now.saturating_sub(self.window_start);
        let mut calls = 0;
        for series in &mut self.series {
            series.closed = std::mem::take(&mut series.open);
            series.closed.milliseconds = length.as_millis() as u64;
            calls += series.closed.counters.count;
        }
        let used = match (cpu, self.cpu_at_window_start) {
            (Some(end), Some(start)) => end.saturating_sub(start),
            _ => Duration::ZERO,
        };
        self.overhead_ratio =
            (!used.is_zero()).then(|| calls as f64 * cost.as_secs_f64() / used.as_secs_f64());
        let over = self
            .overhead_ratio
            .is_some_and(|ratio| ratio * 100.0 > self.overhead.max_percent);
        self.breaches = if over { self.breaches + 1 } else { 0 };
        self.window_start = now;
        self.window_ends = now + self.interval;
        self.cpu_at_window_start = cpu;
    }

    /// Why the probes must come off, when the order says that a breach ends them.
    pub fn must_detach(&self) -> Option<String> {
        let percent = self.overhead_ratio.unwrap_or_default() * 100.0;
        (self.overhead.on_breach == Breach::Detach && self.breaches >= BREACH_AFTER).then(|| {
            format!(
                "probing cost {percent:.2}% of the target's CPU time, above maxPercent {} for {BREACH_AFTER} \
                 intervals; detached, as onBreach: Detach asks. Measure fewer operations or raise \
                 overhead.maxPercent, and probing resumes",
                self.overhead.max_percent
            )
        })
    }

    /// Whether probes are in place.
    pub fn is_attached(&self) -> bool {
        matches!(self.stage, Stage::Attached { .. })
    }

    /// Whether the kernel counted a call within the last three report intervals.
    pub fn is_firing(&self, now: Duration) -> bool {
        self.is_attached()
            && self
                .last_call
                .is_some_and(|last| now.saturating_sub(last) <= self.interval * SILENT_AFTER)
    }

    /// How long the target has been without its process, so far.
    pub fn open_gap(&self, now: Duration) -> Duration {
        self.gone_since
            .map_or(Duration::ZERO, |gone| now.saturating_sub(gone))
    }

    /// The instance as it stands in a NodeProbe's status.
    pub fn report(&self, now: Duration) -> InstanceReport {
        let (state, reason, message) = self.standing(now);
        InstanceReport {
            probe: self.key.probe.clone(),
            pod: self.key.pod.clone(),
            container: Some(self.key.container.clone()),
            pid: match self.stage {
                Stage::Attached { process, .. } => Some(process.pid),
                _ => None,
            },
            state,
            reason: Some(reason),
            message,
            firing: self.is_firing(now),
            missing_operations: self.coverage.missing_operations.clone(),
            missing_symbols: self.coverage.missing_symbols.clone(),
            reattaches: self.reattaches,
            gap_milliseconds: (self.gap + self.open_gap(now)).as_millis() as u64,
            overhead_millipercent: self
                .overhead_ratio
                .map(|ratio| (ratio * 100_000.0).round() as u64),
            calls_lost: self.calls_lost,
            events_lost: self.events_lost,
            operations: self.measured().map(Series::report).collect(),
        }
    }

    /// The operations, less those that the binary lacks.
    pub fn measured(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| {
            !self
                .coverage
                .missing_operations
                .iter()
                .any(|missing| missing == series.slot.operation)
        })
    }

    fn standing(&self, now: Duration) -> (InstanceState, Reason, String) {
        match &self.stage {
            Stage::Attached {
                process,
                since,
                note,
            } => {
                let pid = process.pid;
                let (reason, message) = if self.is_firing(now) {
                    (Reason::Firing, format!("measuring process {pid}{note}"))
                } else if now.saturating_sub(*since) > self.interval * SILENT_AFTER {
                    (
                        Reason::Silent,
                        format!(
                            "attached to process {pid}, but it called none of the measured functions for \
                             {SILENT_AFTER} report intervals{note}"
                        ),
                    )
                } else {
                    (
                        Reason::Attaching,
                        format!("attached to process {pid}, no call counted yet{note}"),
                    )
                };
                (
                    InstanceState::Attached,
                    reason,
                    message + &self.coverage.sentence(),
                )
            }
            Stage::Waiting => (
                InstanceState::Waiting,
                Reason::ExecutableNotFound,
                format!(
                    "the process in container {} ended; probing resumes when it runs again",
                    self.key.container
                ),
            ),
            Stage::Failed { reason, message } => (InstanceState::Failed, *reason, message.clone()),
            Stage::Detached { reason, message } => {
                (InstanceState::Detached, *reason, message.clone())
            }
        }
    }
}

impl Series {
    /// Adds what is new in the reading, and returns how many calls that are.
    fn observe(&mut self, reading: &SlotReading) -> u64 {
        let news = reading.histogram.since(&self.latest.histogram);
        let counters = Counters {
            count: news.count(),
            nanoseconds: reading.sum_ns.saturating_sub(self.latest.sum_ns),
            bytes: reading.bytes.saturating_sub(self.latest.bytes),
            slow: reading.slow.saturating_sub(self.latest.slow),
        };
        add(&mut self.total, counters);
        add(&mut self.open.counters, counters);
        self.histogram.merge(&news);
        self.open.histogram.merge(&news);
        self.open.max_nanoseconds = self.open.max_nanoseconds.max(reading.max_ns);
        self.latest = reading.clone();
        counters.count
    }

    fn report(&self) -> OperationReport {
        OperationReport {
            probe: self.slot.probe.clone(),
            operation: self.slot.operation.to_string(),
            has_bytes: self.slot.has_bytes(),
            total: self.total,
            window: self.closed.clone(),
        }
    }
}

fn add(to: &mut Counters, more: Counters) {
    let Counters {
        count,
        nanoseconds,
        bytes,
        slow,
    } = more;
    to.count += count;
    to.nanoseconds += nanoseconds;
    to.bytes += bytes;
    to.slow += slow;
}

#[cfg(test)]
mod tests;
