//! The books of one probe of a target: what is measured for it, or why not, and whether anything was counted lately.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_crds::{
    EventReport, InstanceState, Kind, Lack, Name, ProbeReport, Reason,
    report::{MAX_EVENTS, OTHER, Omitted},
};
use serde_json::Value;

use super::{Fact, TimedFact, series::Series, slow_calls::SlowCalls};
use crate::{
    kinds::Instrumented,
    mechanism::{Accepted, Coverage, Event, GroupIds, Lost, Refusal, Unseen},
};

/// As many items of what is lacking as a status lists.
const MAX_LACKING: usize = 64;

/// One probe of a target, from its first process to the end of its order.
#[derive(Clone, Debug)]
pub struct ProbeState {
    /// The probe, as the spec has it.
    pub probe: Instrumented,
    /// Whether it is well though nothing happens.
    pub quiet: bool,
    /// Its groups: those that are measured, and those that were. What was counted once is told for as long as its target is
    /// known.
    pub series: Vec<Series>,
    /// What could not be recorded, over all of the target's processes.
    pub lost: BTreeMap<Name, u64>,
    /// Its slow calls by who called them, where that is asked.
    pub slow_calls: SlowCalls,
    answer: Option<Result<Coverage, Refusal>>,
    lost_latest: BTreeMap<(usize, Name), u64>,
    /// Since when this question is measured on this process.
    since: Option<Duration>,
    seen: Option<Duration>,
    /// When what measures it was last about to be replaced.
    suspended: Option<Duration>,
    /// Something else is asked: what is not measured any more is not told of any more.
    renewed: bool,
    weightiest: Vec<EventReport>,
    weightiest_closed: Vec<EventReport>,
}

/// Where an event stands in the books of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed<'a> {
    /// The name of the probe.
    pub probe: &'a str,
    /// Its kind.
    pub kind: Kind,
    /// The name of the row.
    pub row: String,
    /// That of the part, where there is one.
    pub part: Option<String>,
    /// How many such there were: more than one where only a part of the time is watched.
    pub stands_for: f64,
}

impl ProbeState {
    /// One that was not answered yet.
    pub fn new(probe: Instrumented) -> Self {
        Self {
            quiet: probe.kind().descriptor().quiet,
            probe,
            series: Vec::new(),
            lost: BTreeMap::new(),
            slow_calls: SlowCalls::default(),
            answer: None,
            lost_latest: BTreeMap::new(),
            since: None,
            seen: None,
            suspended: None,
            renewed: false,
            weightiest: Vec::new(),
            weightiest_closed: Vec::new(),
        }
    }

    /// The order changed: this is what is asked now. Totals of what stays are kept.
    #[must_use]
    pub fn asked(mut self, probe: Instrumented) -> Self {
        if self.probe.question != probe.question {
            self.renewed = true;
            // What is slow now is perhaps something else.
            self.slow_calls = SlowCalls::default();
        }
        self.probe = probe;
        self
    }

    /// The question was answered on a process: from now on everything is counted. `continued`: it goes on, after a moment that
    /// nobody saw anything in.
    pub fn answered(&mut self, answer: Result<Accepted, Refusal>, continued: bool, now: Duration) {
        self.lost_latest.clear();
        let suspended = self.suspended.take();
        let Accepted {
            subscriptions,
            coverage,
        } = match answer {
            Ok(opened) => opened,
            Err(refusal) => {
                self.fail(suspended.unwrap_or(now));
                self.answer = Some(Err(refusal));
                return;
            }
        };
        let renewed = std::mem::take(&mut self.renewed);
        if !continued || renewed || self.since.is_none() {
            self.since = Some(now);
            self.seen = None;
        }
        let mut before = std::mem::take(&mut self.series);
        for subscription in subscriptions {
            let same = |old: &Series| old.subscription.row == subscription.row;
            let (mut series, known) = match before.iter().position(same) {
                Some(index) => (before.swap_remove(index), true),
                None => (Series::new(subscription.clone()), false),
            };
            if continued && known && series.live {
                series.continued(subscription, now);
            } else {
                series.attached(subscription, now);
            }
            self.series.push(series);
        }
        for mut gone in before {
            if gone.live {
                gone.end(now);
            }
            gone.end_hole(now);
            if gone.has_counted() && !renewed {
                self.series.push(gone);
            }
        }
        self.answer = Some(Ok(coverage));
    }

    /// What measures it is about to be replaced, and counts no more; all that was counted was read.
    pub fn suspend(&mut self, now: Duration) {
        for series in self.series.iter_mut().filter(|series| series.live) {
            series.suspend(now);
        }
        self.suspended = Some(now);
    }

    /// Its process is gone, or nobody asks any more; all that was counted was read.
    pub fn end(&mut self, now: Duration) {
        for series in &mut self.series {
            if series.live {
                series.end(now);
            }
            series.end_hole(now);
        }
        self.answer = None;
        self.since = None;
    }

    /// It is not measured any more from then on, though its process goes on; all that was counted was read.
    pub fn fail(&mut self, since: Duration) {
        for series in self.series.iter_mut().filter(|series| series.live) {
            series.fail(since);
        }
        self.answer = None;
        self.since = None;
    }

    /// Takes a fact about the measurement of the target's process.
    pub fn take(&mut self, entry: &TimedFact) {
        let at = entry.at;
        for series in self.series.iter_mut().filter(|series| series.live) {
            series.pass(entry.time);
        }
        match &entry.fact {
            Fact::Read(reading) => {
                for series in self.series.iter_mut().filter(|series| series.live) {
                    let Some(rows) = reading.groups.get(&series.subscription.group) else {
                        continue;
                    };
                    let folded = reading.folded.get(&series.subscription.group);
                    series.fold(folded.copied().unwrap_or_default());
                    series.unseen = reading.unseen.get(&series.subscription.group).cloned();
                    if series.observe(rows, &*self.probe.instrument, at) {
                        self.seen = Some(at);
                    }
                }
                for (place, lost) in reading.lost.iter().enumerate() {
                    self.lose(place, lost);
                }
            }
            Fact::Paused(groups) => self.measured(groups).for_each(|one| one.pause(at)),
            Fact::Resumed(groups) => self.measured(groups).for_each(|one| one.resume(at)),
            Fact::CellBegan {
                groups,
                slice,
                time,
            } => {
                let all = self.measured(groups);
                all.for_each(|one| one.begin_cell(*slice, at, *time));
            }
            Fact::SliceBegan {
                groups,
                time,
                before,
            } => {
                self.measured(groups)
                    .for_each(|one| one.begin_slice(at, *time, *before));
            }
            Fact::SliceEnded {
                groups,
                time,
                probing,
            } => {
                self.measured(groups)
                    .for_each(|one| one.end_slice(at, *time, *probing));
            }
            Fact::CellEnded { groups, time } => {
                self.measured(groups)
                    .for_each(|one| one.end_cell(at, *time));
            }
        }
    }

    /// The series of these groups that are measured.
    fn measured(&mut self, groups: &GroupIds) -> impl Iterator<Item = &mut Series> {
        let live = self.series.iter_mut().filter(|series| series.live);
        live.filter(|series| groups.contains(&series.subscription.group))
    }

    fn lose(&mut self, place: usize, lost: &Lost) {
        let mut live = self.series.iter().filter(|series| series.live);
        if !live.any(|series| lost.groups.contains(&series.subscription.group)) {
            return;
        }
        for (what, count) in &lost.counts {
            let before = self.lost_latest.insert((place, what.clone()), *count);
            *self.lost.entry(what.clone()).or_default() +=
                count.saturating_sub(before.unwrap_or_default());
        }
    }

    /// Notes an event, if it is one of this probe's, and returns it as a line of JSON. Where it is told who called, it belongs to a
    /// profile of a window of this length, too.
    pub fn event(&mut self, event: &Event, window: Duration) -> Option<Value> {
        let series = self.series_of(event)?;
        let instrument = &*self.probe.instrument;
        let (row, part) = series.place(event.row.as_ref(), event.part.as_ref(), instrument);
        if series.subscription.reports_stacks {
            let stands_for = series.weight();
            self.slow_calls.add(event, &row, stands_for, window);
        }
        let descriptor = self.probe.kind().descriptor();
        let part_key = camel_case(descriptor.part.unwrap_or_default());
        let line = event.line(
            &self.probe.name,
            (descriptor.row, &row),
            part.as_deref().map(|part| (part_key.as_str(), part)),
        );
        let report = event.report(&row, part.as_deref());
        let heavier = |other: &EventReport| other.weight >= report.weight;
        let place = self.weightiest.partition_point(heavier);
        if place < MAX_EVENTS {
            self.weightiest.insert(place, report);
            self.weightiest.truncate(MAX_EVENTS);
        }
        Some(line)
    }

    /// The series that an event was counted in, if it is one that this probe tells of.
    fn series_of(&self, event: &Event) -> Option<&Series> {
        let series = self.series.iter().find(|series| series.is(event.group))?;
        let is_told = event.weight >= series.subscription.least_weight
            && series.subscription.has(event.row.as_ref());
        is_told.then_some(series)
    }

    /// Where an event stands in this probe's books, if it is one of its.
    pub fn placed(&self, event: &Event) -> Option<Placed<'_>> {
        let series = self.series_of(event)?;
        let instrument = &*self.probe.instrument;
        let (row, part) = series.place(event.row.as_ref(), event.part.as_ref(), instrument);
        Some(Placed {
            probe: &self.probe.name,
            kind: self.probe.kind(),
            row,
            part,
            stands_for: series.weight(),
        })
    }

    /// How many calls one stands for that an event of this probe's tells of; None where it is not this probe's.
    pub fn weight(&self, event: &Event) -> Option<f64> {
        let mut series = self.series.iter();
        series.find_map(|series| series.is(event.group).then(|| series.weight()))
    }

    /// Ends the running interval.
    pub fn close_interval(&mut self, now: Duration) {
        for series in &mut self.series {
            series.close_interval(now);
        }
        self.weightiest_closed = std::mem::take(&mut self.weightiest);
    }

    /// Whether it is known what becomes of it on the process.
    pub fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// Whether anything is measured for it.
    pub fn is_attached(&self) -> bool {
        matches!(self.answer, Some(Ok(_)))
    }

    /// Why it is not, if it was refused.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.answer {
            Some(Err(refusal)) => Some(refusal),
            _ => None,
        }
    }

    /// Why it is not, if that is the kernel's doing: nothing need be counted, and it keeps no other from anything.
    pub fn unsupported(&self) -> Option<&Refusal> {
        self.refusal()
            .filter(|refusal| refusal.reason == Reason::UnsupportedByKernel)
    }

    /// What of it is not measured, or not fully.
    pub fn coverage(&self) -> Option<&Coverage> {
        match &self.answer {
            Some(Ok(coverage)) => Some(coverage),
            _ => None,
        }
    }

    /// Whether something was counted within this time.
    pub fn is_firing(&self, now: Duration, patience: Duration) -> bool {
        let lately = |seen: Duration| now.saturating_sub(seen) <= patience;
        self.sees() && self.seen.is_some_and(lately)
    }

    /// Whether something of it may be seen: it is attached, and not [blind](Self::blind).
    pub fn sees(&self) -> bool {
        self.is_attached() && self.blind().is_none()
    }

    /// Whether all is well with it: something is counted, or nothing need be.
    pub fn is_well(&self, now: Duration, patience: Duration) -> bool {
        self.is_firing(now, patience) || (self.sees() && self.quiet)
    }

    /// Whether it ought to have counted something by now and did not.
    pub fn is_silent(&self, now: Duration, patience: Duration) -> bool {
        let long = |since: Duration| now.saturating_sub(since) > patience;
        !self.is_well(now, patience) && self.since.is_some_and(long)
    }

    /// The part of the last interval in which what it measures was watched: of its series, where that is the least. All of it before one
    /// has ended.
    pub fn watched(&self) -> f64 {
        let series = self.series.iter().filter(|series| series.live);
        let shares = series.filter_map(Series::share);
        shares.fold(1.0, f64::min)
    }

    /// Since when its present question is measured on the present process.
    pub fn since(&self) -> Option<Duration> {
        self.since
    }

    /// As it stands in a report, while the target is in this state.
    pub fn report(
        &self,
        state: (InstanceState, Reason, &str),
        now: Duration,
        patience: Duration,
    ) -> ProbeReport {
        let (state, reason, mut message) = self.standing(state, now, patience);
        let mut lacks = match &self.answer {
            Some(Ok(coverage)) => coverage.lacks.clone(),
            Some(Err(refusal)) => refusal.lacks.clone(),
            None => Vec::new(),
        };
        for (lack, sentence) in self.folded().into_iter().chain(self.partly_unseen()) {
            lacks.push(lack);
            if !message.is_empty() {
                message.push_str("; ");
            }
            message.push_str(&sentence);
        }
        ProbeReport {
            name: self.probe.name.clone(),
            kind: self.probe.kind().as_str().to_string(),
            state,
            reason: Some(reason),
            message,
            firing: self.is_firing(now, patience),
            lacks,
            lost: self
                .lost
                .iter()
                .map(|(what, count)| (what.to_string(), *count))
                .collect(),
            rows: self
                .series
                .iter()
                .flat_map(Series::report)
                .take(ckb_probe_crds::report::MAX_ROWS + 1)
                .collect(),
            events: self.weightiest_closed.clone(),
            omitted: Omitted::default(),
        }
    }

    /// What counts in `other` since there is no room to tell more apart, and that in words.
    fn folded(&self) -> Option<(Lack, String)> {
        let descriptor = self.probe.kind().descriptor();
        let (mut rows, mut parts) = (0, Vec::new());
        for series in self.series.iter().filter(|series| series.live) {
            let (folded, of) = series.folded();
            rows += folded;
            parts.extend(of);
        }
        let words = |label: &str| label.replace('_', " ");
        let mut items = Vec::new();
        if rows > 0 {
            items.push(format!("{}: {rows}", words(descriptor.row)));
        }
        let part = words(descriptor.part.unwrap_or_default());
        let of_rows = parts
            .iter()
            .map(|(row, folded)| format!("{part} of {row}: {folded}"));
        items.extend(of_rows.take(MAX_LACKING - items.len()));
        let sentence = format!(
            "there is no room to tell more apart, so that these count in {OTHER}: {}",
            items.join(", ")
        );
        (!items.is_empty()).then_some((
            Lack {
                reason: Reason::TooManyRows,
                items,
            },
            sentence,
        ))
    }

    fn unseen(&self) -> Option<&Unseen> {
        let mut live = self.series.iter().filter(|series| series.live);
        live.find_map(|series| series.unseen.as_ref())
    }

    /// That nothing of it is seen, and why, though it was attached.
    pub fn blind(&self) -> Option<&Unseen> {
        self.unseen()
            .filter(|unseen| unseen.all && self.is_attached())
    }

    /// What of it is not seen, as what it lacks and in words.
    fn partly_unseen(&self) -> Option<(Lack, String)> {
        let unseen = self.unseen().filter(|unseen| !unseen.all)?;
        let lack = Lack {
            reason: unseen.reason,
            items: unseen.items.clone(),
        };
        Some((lack, unseen.why.clone()))
    }

    fn standing(
        &self,
        (state, reason, message): (InstanceState, Reason, &str),
        now: Duration,
        patience: Duration,
    ) -> (InstanceState, Reason, String) {
        if let Some(unseen) = self.blind() {
            return (InstanceState::Failed, unseen.reason, unseen.why.clone());
        }
        match &self.answer {
            Some(Err(refusal)) => (
                InstanceState::Failed,
                refusal.reason,
                refusal.message.clone(),
            ),
            Some(Ok(coverage)) => {
                let (reason, message) = if self.is_well(now, patience) {
                    (Reason::Firing, String::new())
                } else if self.is_silent(now, patience) {
                    (Reason::Silent, silence(self.watched()))
                } else {
                    (Reason::Attaching, "nothing counted yet".to_string())
                };
                let message = match (message.is_empty(), coverage.sentence.is_empty()) {
                    (_, true) => message,
                    (true, false) => coverage.sentence.trim_start_matches("; ").to_string(),
                    (false, false) => message + &coverage.sentence,
                };
                (InstanceState::Attached, reason, message)
            }
            // The others of its target are measured; it has just been asked.
            None if state == InstanceState::Attached => (
                InstanceState::Waiting,
                Reason::Attaching,
                "not attached yet".to_string(),
            ),
            None => (state, reason, message.to_string()),
        }
    }
}

/// What is said where nothing was counted for three report intervals, by what part of the last one was watched. That nothing happened is known
/// only where all of it was.
fn silence(watched: f64) -> String {
    let seen = |what: &str| format!("attached, but nothing that it measures {what}");
    if watched <= 0.0 {
        "attached in slices, which are too few to see whether anything that it measures happens"
            .to_string()
    } else if watched < 1.0 {
        let percent = watched * 100.0;
        let message = seen("was seen for three report intervals");
        format!("{message}, of the last of which {percent:.2} % was watched")
    } else {
        seen("happened for three report intervals")
    }
}

/// `column_family` as a key of JSON: `columnFamily`.
fn camel_case(label: &str) -> String {
    let mut words = label.split('_');
    let mut key = words.next().unwrap_or_default().to_string();
    for word in words {
        let mut letters = word.chars();
        key.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        key.push_str(letters.as_str());
    }
    key
}
