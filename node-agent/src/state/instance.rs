//! What one target did, on behalf of one CkbProbe: its probes' books, gaps, and how it stands. No clock, no I/O.
//!
//! Time is passed in, as the time since the agent's start.

mod reported_state;

pub use reported_state::ReportedState;

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_crds::{Breach, Contention, Name, Overhead, Reason};
use serde_json::Value;

use super::{
    TimedFact,
    probe::{Placed, ProbeState},
    series::Series,
};
use crate::{
    kinds::Instrumented,
    mechanism::{Accepted, Event, GroupIds, Lost, Refusal},
    observe::ProcessId,
    target::InstanceKey,
};

/// Without anything counted for so many report intervals, a target is silent.
const SILENT_AFTER: u32 = 3;

/// The first interval after an attach is no longer than this: whoever waits for figures wants some.
const FIRST_WINDOW: Duration = Duration::from_secs(2);

/// Over budget for so many report intervals in a row, it is a breach and not a burst.
const BREACH_AFTER: u32 = 3;

/// A process that dies so soon after an attach may have died of it.
pub const EARLY_DEATH: Duration = Duration::from_secs(5);

/// So many early deaths in a row, and the target is left alone.
const EARLY_DEATHS: u32 = 2;

/// What is lost of events that are counted and not written into the agent's log.
const LINES: Name = Name::Borrowed(ckb_probe_crds::report::LINES);

/// On what terms a target is measured.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Between two reports.
    pub interval: Duration,
    /// What measuring may cost.
    pub overhead: Overhead,
    /// What counts as an early death: [`EARLY_DEATH`] but in tests.
    pub early_death: Duration,
    /// For how long slow calls are gathered with who called them: [`slow_calls::WINDOW`](super::slow_calls::WINDOW) but in tests.
    pub profile_window: Duration,
}

/// What a target is at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// It was found, and nothing is known of it yet.
    New,
    /// Its process is gone.
    Waiting,
    /// Probes are in place, at least some of those asked for.
    Attached {
        process: ProcessId,
        since: Duration,
        note: String,
    },
    /// Nothing could be attached.
    Failed { reason: Reason, message: String },
    /// Detached on purpose.
    Detached { reason: Reason, message: String },
}

/// One target, from its first process to the end of its order.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Who it is.
    pub key: InstanceKey,
    /// What is asked of it, in the order of the spec.
    pub probes: Vec<ProbeState>,
    /// What could not be recorded, over all of its processes, by what it was.
    pub lost: BTreeMap<Name, u64>,
    /// How often its process was found anew.
    pub reattaches: u64,
    /// Time without a probe, in all: between a process's end and the next one's attach, while a process that was measured could
    /// not be, and while what measures it was replaced.
    pub gap: Duration,
    /// Estimated share of its CPU time that probing costs, in the last interval: all that anybody asks of the process.
    pub overhead_ratio: Option<f64>,
    /// What of that is for what is asked here, whoever else asks for it too.
    pub own_ratio: Option<f64>,
    /// What all that anybody asks of the process may cost, in percent.
    pub budget_percent: f64,
    /// What the floor granted besides in the last interval, as a part of the CPU time that the process used itself.
    pub floor_ratio: Option<f64>,
    /// What probing cost in the last minute, or in the last interval where that is longer, as a part of what was granted in it.
    pub budget_used: Option<f64>,
    /// What its container waited for in the last interval.
    pub contention: Option<Contention>,
    terms: Terms,
    stage: Stage,
    lost_latest: BTreeMap<(usize, Name), u64>,
    attached_before: bool,
    early_deaths: u32,
    gone_since: Option<Duration>,
    /// Since when a process that was measured is not, though it goes on.
    failed_since: Option<Duration>,
    /// When what measures it was last about to be replaced.
    suspended: Option<Duration>,
    window_ends: Duration,
    breaches: u32,
}

impl Instance {
    /// A target that nothing is attached to yet.
    pub fn new(key: InstanceKey, probes: Vec<Instrumented>, terms: Terms, now: Duration) -> Self {
        Self {
            key,
            probes: probes.into_iter().map(ProbeState::new).collect(),
            lost: BTreeMap::new(),
            reattaches: 0,
            gap: Duration::ZERO,
            overhead_ratio: None,
            own_ratio: None,
            budget_percent: terms.overhead.max_percent,
            floor_ratio: None,
            budget_used: None,
            contention: None,
            stage: Stage::New,
            lost_latest: BTreeMap::new(),
            attached_before: false,
            early_deaths: 0,
            gone_since: None,
            failed_since: None,
            suspended: None,
            window_ends: now + terms.interval,
            breaches: 0,
            terms,
        }
    }

    /// The order changed: totals of what stays are kept, and so are gaps and reattaches.
    pub fn reconfigure(&mut self, probes: Vec<Instrumented>, terms: Terms) {
        let mut old = std::mem::take(&mut self.probes);
        self.probes = probes
            .into_iter()
            .map(|probe| {
                let same = |old: &ProbeState| {
                    old.probe.name == probe.name && old.probe.kind() == probe.kind()
                };
                match old.iter().position(same) {
                    Some(index) => old.swap_remove(index).asked(probe),
                    None => ProbeState::new(probe),
                }
            })
            .collect();
        // The interval that is running is no longer than the ones to come.
        let sooner = self.terms.interval.saturating_sub(terms.interval);
        self.window_ends = self.window_ends.saturating_sub(sooner);
        self.budget_percent = terms.overhead.max_percent;
        self.terms = terms;
        self.breaches = 0;
        self.early_deaths = 0;
    }

    /// What was asked was answered on a process: an answer for each probe, in their order. `others` of its container run the
    /// same executable and are not measured. Nothing is attached where every answer is a refusal.
    pub fn answered(
        &mut self,
        process: ProcessId,
        others: usize,
        answers: Vec<Result<Accepted, Refusal>>,
        now: Duration,
    ) {
        let before = match &self.stage {
            Stage::Attached { process, since, .. } => Some((*process, *since)),
            _ => None,
        };
        let continued = before.filter(|(before, _)| *before == process);
        self.lost_latest.clear();
        for (probe, answer) in self.probes.iter_mut().zip(answers) {
            probe.answered(answer, continued.is_some(), now);
        }
        if !self.probes.iter().any(ProbeState::is_attached) {
            let refusal = self.probes.iter().find_map(ProbeState::refusal);
            let refusal = refusal.cloned().unwrap_or_else(|| {
                let message = "nothing is asked that this version can answer";
                Refusal::new(Reason::AttachFailed, message)
            });
            let Refusal {
                reason, message, ..
            } = refusal;
            self.fail(reason, message, now);
            return;
        }
        self.end_failure(now);
        if let Some(gone) = self.gone_since.take() {
            self.reattaches += 1;
            self.gap += now.saturating_sub(gone);
        }
        self.attached_before = true;
        let first = now + self.terms.interval.min(FIRST_WINDOW);
        if continued.is_none() {
            self.window_ends = first;
        } else if self.probes.iter().any(|probe| probe.since() == Some(now)) {
            self.window_ends = self.window_ends.min(first);
        }
        let note = match others {
            0 => String::new(),
            others => format!(
                "; {others} more processes of the container run the same executable and are not measured"
            ),
        };
        self.stage = Stage::Attached {
            process,
            since: continued.map_or(now, |(_, since)| since),
            note,
        };
    }

    /// What measures it is about to be replaced, and counts no more; all that was counted was read. Until it is, that is a gap,
    /// which is told when it is over: how long it will have been is not known before.
    pub fn suspend(&mut self, now: Duration) {
        for probe in &mut self.probes {
            probe.suspend(now);
        }
        if self.is_attached() {
            self.suspended = Some(now);
        }
    }

    /// Nothing of it is measured: it is a gap from when it last was, if it was.
    fn fail(&mut self, reason: Reason, message: String, now: Duration) {
        let since = self.suspended.take().unwrap_or(now);
        if self.is_attached() {
            self.failed_since.get_or_insert(since);
        }
        self.stage = Stage::Failed { reason, message };
    }

    fn end_failure(&mut self, now: Duration) {
        let suspended = self.suspended.take();
        if let Some(since) = self.failed_since.take().or(suspended) {
            self.gap += now.saturating_sub(since);
        }
    }

    /// The process is gone; probing resumes with its successor, unless [`Self::may_be_killing`] says otherwise.
    pub fn process_gone(&mut self, now: Duration) {
        for probe in &mut self.probes {
            probe.end(now);
        }
        self.end_failure(now);
        if let Stage::Attached { since, .. } = self.stage {
            let early = now.saturating_sub(since) < self.terms.early_death;
            self.early_deaths = if early { self.early_deaths + 1 } else { 0 };
        }
        if self.attached_before && self.gone_since.is_none() {
            self.gone_since = Some(now);
        }
        self.stage = Stage::Waiting;
        self.overhead_ratio = None;
        self.own_ratio = None;
        self.budget_used = None;
        self.contention = None;
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

    /// Everything failed that worked before. What was counted was read.
    pub fn failed(&mut self, reason: Reason, message: String, now: Duration) {
        for probe in &mut self.probes {
            probe.fail(now);
        }
        self.fail(reason, message, now);
    }

    /// Probes were taken off on purpose.
    pub fn detached(&mut self, reason: Reason, message: String, now: Duration) {
        for probe in &mut self.probes {
            probe.end(now);
        }
        self.end_failure(now);
        self.stage = Stage::Detached { reason, message };
    }

    /// Takes a fact about the measurement of its process.
    pub fn take(&mut self, entry: &TimedFact) {
        if let super::Fact::Read(reading) = &entry.fact {
            for (place, lost) in reading.lost.iter().enumerate() {
                self.lose(place, lost);
            }
        }
        for probe in &mut self.probes {
            probe.take(entry);
        }
    }

    /// Each mechanism's losses count once, however many probes stand on it.
    fn lose(&mut self, place: usize, lost: &Lost) {
        let mut series = self.probes.iter().flat_map(|probe| &probe.series);
        if !series.any(|series| series.live && lost.groups.contains(&series.subscription.group)) {
            return;
        }
        for (what, count) in &lost.counts {
            let before = self.lost_latest.insert((place, what.clone()), *count);
            *self.lost.entry(what.clone()).or_default() +=
                count.saturating_sub(before.unwrap_or_default());
        }
    }

    /// Notes an event, and returns it as a line of JSON for each probe that it belongs to.
    pub fn event(&mut self, event: &Event) -> Vec<Value> {
        let window = self.terms.profile_window;
        let probes = self.probes.iter_mut();
        probes
            .filter_map(|probe| probe.event(event, window))
            .collect()
    }

    /// Where an event stands, in the books of each probe that it belongs to.
    pub fn placed(&self, event: &Event) -> impl Iterator<Item = Placed<'_>> {
        let probes = self.probes.iter();
        probes.filter_map(|probe| probe.placed(event))
    }

    /// How many calls one stands for that an event tells of.
    pub fn weight(&self, event: &Event) -> f64 {
        let mut probes = self.probes.iter();
        probes.find_map(|probe| probe.weight(event)).unwrap_or(1.0)
    }

    /// About what all of this takes of memory.
    pub fn bytes(&self) -> u64 {
        let probes = self.probes.iter();
        let subscriptions =
            probes.map(|probe| probe.series.iter().map(|series| &series.subscription));
        let expected: u64 = subscriptions.map(super::bytes).sum();
        let series = self.probes.iter().flat_map(|probe| &probe.series);
        expected + series.map(Series::beyond).sum::<u64>()
    }

    /// A line of [`Self::event`]'s was not written.
    pub fn leave_out(&mut self, line: &Value) {
        *self.lost.entry(LINES).or_default() += 1;
        let mut probes = self.probes.iter_mut();
        if let Some(probe_state) =
            probes.find(|probe_state| line["probe"] == probe_state.probe.name)
        {
            *probe_state.lost.entry(LINES).or_default() += 1;
        }
    }

    /// When the running interval ends.
    pub fn window_ends(&self) -> Duration {
        self.window_ends
    }

    /// Ends the running interval: what was observed in it becomes the figures of the next reports.
    ///
    /// `overhead_ratio` is what probing cost in it, as a part of the CPU time that the process used itself.
    pub fn close_interval(&mut self, now: Duration, overhead_ratio: Option<f64>) {
        for probe in &mut self.probes {
            probe.close_interval(now);
        }
        self.overhead_ratio = overhead_ratio;
        let granted = self.granted_ratio();
        let over = overhead_ratio
            .zip(granted)
            .is_some_and(|(ratio, granted)| ratio > granted);
        self.breaches = if over { self.breaches + 1 } else { 0 };
        self.window_ends = now + self.terms.interval;
    }

    /// What measuring might have cost in the last interval, as a part of the CPU time that the process used itself: the budget, and what its
    /// floor was of that. None where nothing was measured.
    pub fn granted_ratio(&self) -> Option<f64> {
        let granted = self.budget_percent / 100.0 + self.floor_ratio.unwrap_or_default();
        self.overhead_ratio.map(|_| granted)
    }

    /// Why the probes must come off, when the order says that a breach ends them.
    pub fn must_detach(&self) -> Option<String> {
        let percent = self.overhead_ratio.unwrap_or_default() * 100.0;
        (self.terms.overhead.on_breach == Breach::Detach && self.breaches >= BREACH_AFTER).then(|| {
            format!(
                "probing cost {percent:.2}% of the target's CPU time, above maxPercent {} for {BREACH_AFTER} \
                 intervals; detached, as onBreach: Detach asks. Measure fewer operations or raise \
                 overhead.maxPercent, and probing resumes",
                self.budget_percent
            )
        })
    }

    /// The groups that are measured for it.
    pub fn loads(&self) -> GroupIds {
        let series = self.probes.iter().flat_map(|probe| &probe.series);
        let live = series.filter(|series| series.live);
        live.map(|series| series.subscription.group).collect()
    }

    /// Whether probes are in place.
    pub fn is_attached(&self) -> bool {
        matches!(self.stage, Stage::Attached { .. })
    }

    /// Whether it is known of each probe what becomes of it.
    pub fn is_answered(&self) -> bool {
        self.probes.iter().all(ProbeState::is_answered)
    }

    /// Whether calls are counted and not timed.
    pub fn is_entry_only(&self) -> bool {
        let mut covers = self.probes.iter().filter_map(ProbeState::coverage);
        let mut lacks = covers.by_ref().flat_map(|coverage| &coverage.lacks);
        self.is_attached() && lacks.any(|lack| lack.reason == Reason::EntryOnly)
    }

    /// Whether all is well with every probe that the kernel supports: something was counted within the last three report
    /// intervals, or need not be.
    pub fn is_firing(&self, now: Duration) -> bool {
        let patience = self.patience();
        let mut supported = self.supported();
        self.is_attached() && supported.all(|probe| probe.is_well(now, patience))
    }

    fn supported(&self) -> impl Iterator<Item = &ProbeState> {
        let probes = self.probes.iter();
        probes.filter(|probe| probe.unsupported().is_none())
    }

    fn patience(&self) -> Duration {
        self.terms.interval * SILENT_AFTER
    }

    /// What measuring may cost it.
    pub fn overhead(&self) -> &Overhead {
        &self.terms.overhead
    }

    /// How long the target has been without its process, or that without a probe, so far.
    pub fn open_gap(&self, now: Duration) -> Duration {
        let since = self.gone_since.or(self.failed_since);
        since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests;
