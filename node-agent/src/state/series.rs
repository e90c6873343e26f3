//! The books of one group: what was counted in its rows, and for how much of the time it stands. No clock, no I/O.
//!
//! A group that is measured all the time is entered as it is counted. One that is measured in slices is entered when a slice
//! ends. Each slice stands for the time that nobody saw up to half of the way to the slices before and after it, and what it
//! saw is scaled up accordingly: wherever a group changes, neither the old nor the new one is favoured. The time from the last
//! slice to the process's end is taken to have been like that slice.

mod record;
mod row;

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_crds::{
    PartReport, RowReport,
    report::{MAX_ROWS, OTHER},
};

use record::{RecordedTime, Span};
pub use row::RowState;
use row::{Seen, with_room};

use super::accumulator::Accumulator;
use crate::{
    kinds::Instrument,
    mechanism::{Breakdown, GroupId, RowId, RowReading, Subscription},
};

/// One group of a target, on behalf of one probe.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What is measured.
    pub subscription: Subscription,
    /// Whether it is measured now, under the number that its subscription says.
    pub live: bool,
    /// The rows by their names.
    pub rows: BTreeMap<String, RowState>,
    /// What the rows of the process count under, by their place: once given, a name stays.
    names: BTreeMap<u64, String>,
    /// How many of those are not told apart, here and already by the mechanism.
    folded: (u64, u64),
    record: RecordedTime,
    /// Since when nothing measures it, if all of it was recorded until then.
    suspended: Option<Duration>,
    /// Since when nothing measures it though its process goes on: nobody guesses what happens meanwhile.
    hole: Option<Duration>,
    window: Span,
    window_began: Duration,
    closed: Span,
    /// How long the target takes for as much as it did in the last slice, in seconds.
    last_slice: Option<f64>,
    /// How long the last slices stand for, and for how long they saw the target, the newest the most; nothing where all is recorded.
    slices: Span,
}

/// What slices before it weigh in [`Series::weight`] when another one is entered.
const KEPT: f64 = 7.0 / 8.0;

impl Series {
    /// A group of which nothing is known.
    pub fn new(subscription: Subscription) -> Self {
        let mut series = Self::default();
        series.rows.extend(subscription.row.iter().map(|name| {
            let all = Accumulator::blank(&subscription.blank);
            let row = RowState {
                all,
                ..RowState::default()
            };
            (name.clone(), row)
        }));
        series.subscription = subscription;
        series
    }

    /// Whether facts about this group are about it.
    pub fn is(&self, group: GroupId) -> bool {
        self.live && self.subscription.group == group
    }

    /// Probes are in place, and count from zero: everything from now on.
    pub fn attached(&mut self, subscription: Subscription, now: Duration) {
        let holed = self.hole.is_some() || self.suspended.is_some();
        self.end_hole(now);
        self.restarted(subscription);
        for tally in self.tallies() {
            tally.forget_pending();
        }
        self.record = RecordedTime {
            entered: now,
            ..RecordedTime::default()
        };
        if !holed {
            self.window_began = now;
        }
        self.last_slice = None;
        self.slices = Span::default();
    }

    /// What measures it is about to be replaced; all that was counted was observed.
    pub fn suspend(&mut self, now: Duration) {
        let complete = self.record.is_complete();
        self.pause(now, 1.0);
        self.suspended = complete.then_some(now);
    }

    /// It was replaced, and counts from zero. What is sampled goes on as after any pause. What is not stays exact: the moment in
    /// between is a part of the interval that was not recorded, and nobody guesses what happened in it.
    pub fn continued(&mut self, subscription: Subscription, now: Duration) {
        self.restarted(subscription);
        self.leave_out_hole(now);
        match self.suspended.take() {
            Some(_) => {
                self.record = RecordedTime {
                    entered: now,
                    ..RecordedTime::default()
                };
            }
            None => self.resume(now),
        }
    }

    /// It is not measured any more from then on, and its process goes on. All that was counted was observed.
    pub fn fail(&mut self, since: Duration) {
        let since = self.suspended.take().unwrap_or(since);
        self.end(since);
        self.hole = Some(since.max(self.window_began));
    }

    /// A hole ends, if there is one: with its process, or as it is measured again.
    pub fn end_hole(&mut self, now: Duration) {
        self.leave_out_hole(now);
        self.suspended = None;
        self.hole = None;
    }

    /// What of a hole is over by now is a part of the interval that was not recorded.
    fn leave_out_hole(&mut self, now: Duration) {
        for since in [&mut self.suspended, &mut self.hole].into_iter().flatten() {
            self.window.elapsed += now.saturating_sub(*since);
            *since = now;
        }
    }

    fn restarted(&mut self, subscription: Subscription) {
        for tally in self.tallies() {
            tally.restarted();
        }
        self.names.clear();
        self.folded = (0, 0);
        for row in self.rows.values_mut() {
            row.names.clear();
            row.folded = (0, 0);
        }
        self.subscription = subscription;
        self.live = true;
    }

    /// Takes in what was counted; whether that is more than before.
    pub fn observe(
        &mut self,
        readings: &[RowReading],
        instrument: &dyn Instrument,
        now: Duration,
    ) -> bool {
        let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
        for reading in readings {
            if !self.subscription.has(reading.row.as_ref()) {
                continue;
            }
            let row = self.row_name(reading.row.as_ref(), instrument);
            let seen = seen.entry(row.clone()).or_default();
            let own = self.subscription.own(&reading.figures);
            seen.all.merge(&own);
            if reading.folded > 0
                && let Some(row) = self.rows.get_mut(&row)
            {
                row.folded.1 = reading.folded;
            }
            // Until something was counted of a part, its name may still be on its way.
            if self.subscription.has_part(reading.part.as_ref()) && !own.is_idle() {
                let row = self.rows.entry(row).or_default();
                let name = row.part_name(reading.part.as_ref(), instrument);
                seen.parts.entry(name).or_default().merge(&own);
            }
        }
        let mut news = false;
        for (name, row) in &mut self.rows {
            match seen.get(name) {
                Some(seen) => news |= row.observe(seen),
                None => row.vanished(),
            }
        }
        if self.record.is_complete() {
            self.enter(now, 1.0);
        }
        news
    }

    /// So many rows of what is read are in `other` already, since the mechanism had no room to tell them apart.
    pub fn fold(&mut self, rows: u64) {
        self.folded.1 = rows;
    }

    /// What a row counts under. Two places may have one name.
    fn row_name(&mut self, raw: Option<&RowId>, instrument: &dyn Instrument) -> String {
        let known = raw.and_then(|raw| self.names.get(&raw.place));
        if let Some(name) = known {
            return name.clone();
        }
        let name = match raw {
            Some(raw) => {
                let (name, folded) = with_room(instrument.row(raw), &self.rows, MAX_ROWS);
                self.folded.0 += u64::from(folded);
                name
            }
            None => self
                .subscription
                .row
                .clone()
                .unwrap_or_else(|| OTHER.to_string()),
        };
        let blank = || RowState {
            all: Accumulator::blank(&self.subscription.blank),
            ..RowState::default()
        };
        self.rows.entry(name.clone()).or_insert_with(blank);
        if let Some(raw) = raw {
            self.names.insert(raw.place, name.clone());
        }
        name
    }

    /// Nothing is recorded from now on. What was observed up to now is entered: in it the target did the given part of what it
    /// does when it is not watched.
    pub fn pause(&mut self, now: Duration, part: f64) {
        if self.record.paused.is_none() {
            self.enter(now, part);
            self.record.paused = Some(now);
        }
    }

    /// It is, from now on.
    pub fn resume(&mut self, now: Duration) {
        if let Some(paused) = self.record.paused.take() {
            let since = paused.max(self.record.entered);
            self.record.unrecorded += now.saturating_sub(since);
        }
    }

    /// The process is gone, or nobody asks any more, and all that it did was observed.
    pub fn end(&mut self, now: Duration) {
        self.live = false;
        self.enter(now, 1.0);
        // Once: what comes after this end is nobody's.
        if let Some(did) = self.last_slice.take() {
            let tail = now.saturating_sub(self.record.entered);
            self.record.entered = now;
            self.record.unrecorded = Duration::ZERO;
            self.window.elapsed += tail;
            for tally in self.tallies() {
                tally.stretch(tail.as_secs_f64() / did);
            }
        }
        for row in self.rows.values_mut() {
            row.vanished();
        }
    }

    /// Ends an interval: what was entered in it becomes the figures of the next reports. `sliced` groups are entered at the end
    /// of their slices only.
    pub fn close_interval(&mut self, now: Duration, sliced: bool) {
        if self.live && !sliced {
            self.enter(now, 1.0);
        }
        self.leave_out_hole(now);
        let mut span = std::mem::take(&mut self.window);
        if span.elapsed.is_zero() {
            // Without a slice, all that is known of the interval is its length.
            span.elapsed = now.saturating_sub(self.window_began);
        }
        span.leave_out(self.record.pending(now));
        self.window_began = now;
        self.closed = span;
        let (elapsed, recorded) = span.milliseconds();
        for tally in self.tallies() {
            tally.close(elapsed, recorded);
        }
    }

    /// The part of the last interval in which calls were recorded; None before one has ended.
    pub fn share(&self) -> Option<f64> {
        let Span { elapsed, recorded } = self.closed;
        (!elapsed.is_zero()).then(|| recorded.as_secs_f64() / elapsed.as_secs_f64())
    }

    /// How many calls one stands for that is told of by itself: 1 where all are recorded.
    pub fn weight(&self) -> f64 {
        let Span { elapsed, recorded } = self.slices;
        match recorded.is_zero() {
            true => 1.0,
            false => elapsed.as_secs_f64() / recorded.as_secs_f64(),
        }
    }

    /// How many rows of the process are not told apart for want of room, and of which rows how many parts.
    pub fn folded(&self) -> (u64, impl Iterator<Item = (&str, u64)>) {
        let parts = self.rows.iter().map(|(name, row)| {
            let (here, before) = row.folded;
            (name.as_str(), here.saturating_add(before))
        });
        let (here, before) = self.folded;
        let rows = here.saturating_add(before);
        (rows, parts.filter(|(_, folded)| *folded > 0))
    }

    /// Whether anything was counted in it.
    pub fn has_counted(&self) -> bool {
        self.rows.values().any(|row| row.all.samples > 0)
    }

    /// Its rows as they stand in a report.
    pub fn report(&self) -> impl Iterator<Item = RowReport> {
        self.rows.iter().map(|(key, row)| RowReport {
            key: key.clone(),
            total: row.all.total.clone(),
            window: row.all.window().clone(),
            parts: row
                .parts
                .iter()
                .filter(|(_, tally)| tally.is_told())
                .map(|(key, tally)| PartReport {
                    key: key.clone(),
                    total: tally.total.clone(),
                    window: tally.window().clone(),
                })
                .collect(),
        })
    }

    /// The names of an event's row and part.
    pub fn place(
        &self,
        row: Option<&RowId>,
        part: Option<&RowId>,
        instrument: &dyn Instrument,
    ) -> (String, Option<String>) {
        let row = match row {
            Some(raw) => instrument.row(raw),
            None => self.subscription.row.clone().unwrap_or_default(),
        };
        // Somebody else may have it told apart.
        let part = part.filter(|_| self.subscription.parts != Breakdown::None);
        (row, part.map(|raw| instrument.part(raw)))
    }

    /// Enters what was observed since the last entry, and what is to be thought of the time since then that nobody saw.
    fn enter(&mut self, now: Duration, part: f64) {
        let Some(span) = self.record.take(now) else {
            return;
        };
        self.window.elapsed += span.elapsed;
        self.window.recorded += span.recorded;
        let unseen = (span.elapsed - span.recorded).as_secs_f64();
        // A slice of calls that were slowed down stands for less time than it lasted.
        let does = span.recorded.as_secs_f64() * part;
        let between = self.last_slice.filter(|_| unseen > 0.0);
        let before = between.map(|did| unseen / 2.0 / did);
        let since = if before.is_some() {
            unseen / 2.0
        } else {
            unseen
        };
        self.last_slice = (unseen > 0.0).then_some(does);
        self.slices = match self.last_slice {
            Some(_) => Span {
                elapsed: self.slices.elapsed.mul_f64(KEPT) + span.elapsed,
                recorded: self.slices.recorded.mul_f64(KEPT) + span.recorded.mul_f64(part),
            },
            None => Span::default(),
        };
        for tally in self.tallies() {
            if let Some(weight) = before {
                tally.stretch(weight);
            }
            tally.enter(if unseen > 0.0 {
                1.0 + since / does
            } else {
                1.0
            });
        }
    }

    fn tallies(&mut self) -> impl Iterator<Item = &mut Accumulator> {
        let rows = self.rows.values_mut();
        rows.flat_map(|row| std::iter::once(&mut row.all).chain(row.parts.values_mut()))
    }
}

#[cfg(test)]
mod tests;
