//! What one target did: totals, the interval that is running, the one that ended last, gaps. No clock, no I/O.
//!
//! Time is passed in, as the time since the agent's start.

use std::time::Duration;

use ckb_probe_crds::{Breach, InstanceReport, InstanceState, Overhead, Reason, SlowCallReport};

use crate::{
    attach::Coverage, kinds::Slot, observe::ProcessId, probe::Reading, series::Series,
    target::InstanceKey,
};

/// Without a call for so many report intervals, a target is silent.
const SILENT_AFTER: u32 = 3;

/// The first interval after an attach is no longer than this: whoever waits for figures wants some.
const FIRST_WINDOW: Duration = Duration::from_secs(2);

/// Over budget for so many report intervals in a row, it is a breach and not a burst.
const BREACH_AFTER: u32 = 3;

/// A process that dies so soon after an attach may have died of it.
pub const EARLY_DEATH: Duration = Duration::from_secs(5);

/// So many early deaths in a row, and the target is left alone.
const EARLY_DEATHS: u32 = 2;

/// How many of an interval's slow calls a report lists.
const SLOWEST: usize = 10;

/// On what terms a target is measured.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Between two reports.
    pub interval: Duration,
    /// What measuring may cost.
    pub overhead: Overhead,
    /// What counts as an early death: [`EARLY_DEATH`] but in tests.
    pub early_death: Duration,
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
    /// Calls counted without their payload size, over all of its processes.
    pub sizes_lost: u64,
    /// How often its process was found anew.
    pub reattaches: u64,
    /// Time without a probe, in all, between a process's end and the next one's attach.
    pub gap: Duration,
    /// Estimated share of its CPU time that probing costs, in the last interval.
    pub overhead_ratio: Option<f64>,
    terms: Terms,
    coverage: Coverage,
    stage: Stage,
    lost_latest: Lost,
    attached_before: bool,
    early_deaths: u32,
    gone_since: Option<Duration>,
    last_call: Option<Duration>,
    window_ends: Duration,
    breaches: u32,
    slowest: Vec<SlowCallReport>,
    slowest_closed: Vec<SlowCallReport>,
}

/// What the kernel could not record since the attach.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    calls: u64,
    events: u64,
    sizes: u64,
}

impl Instance {
    /// A target that nothing is attached to yet.
    pub fn new(key: InstanceKey, slots: Vec<Slot>, terms: Terms, now: Duration) -> Self {
        Self {
            key,
            series: slots.into_iter().map(Series::new).collect(),
            calls_lost: 0,
            events_lost: 0,
            sizes_lost: 0,
            reattaches: 0,
            gap: Duration::ZERO,
            overhead_ratio: None,
            coverage: Coverage::default(),
            stage: Stage::Waiting,
            lost_latest: Lost::default(),
            attached_before: false,
            early_deaths: 0,
            gone_since: None,
            last_call: None,
            window_ends: now + terms.interval,
            breaches: 0,
            slowest: Vec::new(),
            slowest_closed: Vec::new(),
            terms,
        }
    }

    /// The order changed: totals of the operations that stay are kept, and so are gaps and reattaches.
    pub fn reconfigure(&mut self, slots: Vec<Slot>, terms: Terms, now: Duration) {
        let mut old = std::mem::take(&mut self.series);
        self.series = slots
            .into_iter()
            .map(|slot| {
                let same = |old: &Series| {
                    old.slot.probe == slot.probe && old.slot.operation == slot.operation
                };
                match old.iter().position(same) {
                    Some(index) => {
                        let mut kept = old.swap_remove(index);
                        kept.end(now);
                        kept.slot = slot;
                        kept
                    }
                    None => Series::new(slot),
                }
            })
            .collect();
        self.terms = terms;
        self.breaches = 0;
        self.early_deaths = 0;
    }

    /// Probes are in place on a process. `others` of its container run the same executable and are not measured.
    pub fn attached(
        &mut self,
        process: ProcessId,
        others: usize,
        coverage: Coverage,
        now: Duration,
    ) {
        if let Some(gone) = self.gone_since.take() {
            self.reattaches += 1;
            self.gap += now.saturating_sub(gone);
        }
        self.attached_before = true;
        for series in &mut self.series {
            series.attached(now);
        }
        self.lost_latest = Lost::default();
        self.last_call = None;
        self.coverage = coverage;
        self.window_ends = now + self.terms.interval.min(FIRST_WINDOW);
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

    /// The process is gone; probing resumes with its successor, unless [`Self::may_be_killing`] says otherwise.
    pub fn process_gone(&mut self, now: Duration) {
        for series in &mut self.series {
            series.end(now);
        }
        if let Stage::Attached { since, .. } = self.stage {
            let early = now.saturating_sub(since) < self.terms.early_death;
            self.early_deaths = if early { self.early_deaths + 1 } else { 0 };
        }
        if self.attached_before && self.gone_since.is_none() {
            self.gone_since = Some(now);
        }
        self.stage = Stage::Waiting;
        self.overhead_ratio = None;
    }

    /// Why the target must be left alone: it died within seconds of an attach, more than once.
    pub fn may_be_killing(&self) -> Option<String> {
        (self.early_deaths >= EARLY_DEATHS).then(|| {
            format!(
                "the process in container {} ended within {} s of an attach, {EARLY_DEATHS} times in a row: whether \
                 probing kills it or it ends by itself, it is left alone until the spec changes (or the CkbProbe is \
                 applied anew)",
                self.key.container,
                self.terms.early_death.as_secs()
            )
        })
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
        for (index, series) in self.series.iter_mut().enumerate() {
            if series.observe(index, reading, now) > 0 {
                self.last_call = Some(now);
            }
        }
        let lost = Lost {
            calls: reading.calls_lost,
            events: reading.events_lost,
            sizes: reading.sizes_lost,
        };
        let before = std::mem::replace(&mut self.lost_latest, lost);
        self.calls_lost += lost.calls.saturating_sub(before.calls);
        self.events_lost += lost.events.saturating_sub(before.events);
        self.sizes_lost += lost.sizes.saturating_sub(before.sizes);
    }

    /// An operation is not recorded from now on; what was counted up to now was observed. `part`: see
    /// [`Series::pause`].
    pub fn pause(&mut self, slot: u8, now: Duration, part: f64) {
        if let Some(series) = self.series.get_mut(usize::from(slot)) {
            series.pause(now, part);
        }
    }

    /// It is, from now on.
    pub fn resume(&mut self, slot: u8, now: Duration) {
        if let Some(series) = self.series.get_mut(usize::from(slot)) {
            series.resume(now);
        }
    }

    /// Notes a slow call, if it is among the slowest of the running interval.
    pub fn slow(&mut self, call: SlowCallReport) {
        let faster = |other: &SlowCallReport| other.nanoseconds >= call.nanoseconds;
        let place = self.slowest.partition_point(faster);
        if place < SLOWEST {
            self.slowest.insert(place, call);
            self.slowest.truncate(SLOWEST);
        }
    }

    /// When the running interval ends.
    pub fn window_ends(&self) -> Duration {
        self.window_ends
    }

    /// Ends the running interval: what was observed in it becomes the figures of the next reports.
    ///
    /// `overhead_ratio` is what probing cost in it, as a part of the CPU time that the process used itself; `is_sampled`
    /// tells of an operation whether it is measured in slices.
    pub fn close_window(
        &mut self,
        now: Duration,
        overhead_ratio: Option<f64>,
        is_sampled: impl Fn(usize) -> bool,
    ) {
        for (index, series) in self.series.iter_mut().enumerate() {
            series.close_window(now, is_sampled(index));
        }
        self.overhead_ratio = overhead_ratio;
        let limit = self.terms.overhead.max_percent;
        let over = overhead_ratio.is_some_and(|ratio| ratio * 100.0 > limit);
        self.breaches = if over { self.breaches + 1 } else { 0 };
        self.slowest_closed = std::mem::take(&mut self.slowest);
        self.window_ends = now + self.terms.interval;
    }

    /// Why the probes must come off, when the order says that a breach ends them.
    pub fn must_detach(&self) -> Option<String> {
        let percent = self.overhead_ratio.unwrap_or_default() * 100.0;
        (self.terms.overhead.on_breach == Breach::Detach && self.breaches >= BREACH_AFTER).then(|| {
            format!(
                "probing cost {percent:.2}% of the target's CPU time, above maxPercent {} for {BREACH_AFTER} \
                 intervals; detached, as onBreach: Detach asks. Measure fewer operations or raise \
                 overhead.maxPercent, and probing resumes",
                self.terms.overhead.max_percent
            )
        })
    }

    /// Whether probes are in place.
    pub fn is_attached(&self) -> bool {
        matches!(self.stage, Stage::Attached { .. })
    }

    /// Whether calls are counted and not timed.
    pub fn is_entry_only(&self) -> bool {
        self.is_attached() && self.coverage.entry_only
    }

    /// Whether the kernel counted a call within the last three report intervals.
    pub fn is_firing(&self, now: Duration) -> bool {
        self.is_attached()
            && self
                .last_call
                .is_some_and(|last| now.saturating_sub(last) <= self.terms.interval * SILENT_AFTER)
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
            single_stepped_symbols: self.coverage.single_stepped_symbols.clone(),
            entry_only: self.coverage.entry_only,
            slow_calls: self.slowest_closed.clone(),
            operations: self.measured().map(Series::report).collect(),
        }
    }

    /// The operations, less those that the binary lacks and those that are left out.
    pub fn measured(&self) -> impl Iterator<Item = &Series> {
        let Coverage {
            missing_operations,
            single_stepped_operations,
            ..
        } = &self.coverage;
        let not_there = missing_operations.iter().chain(single_stepped_operations);
        let not_there: Vec<&str> = not_there.map(String::as_str).collect();
        let series = self.series.iter();
        series.filter(move |series| !not_there.contains(&series.slot.operation))
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
                } else if now.saturating_sub(*since) > self.terms.interval * SILENT_AFTER {
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

#[cfg(test)]
mod tests;
