//! The books of one group: what was counted in its rows, and for how much of the time it stands. No clock, no I/O.
//!
//! A group that is measured all the time is entered as it is counted. One that is measured in slices is entered when a cell
//! ends: what the slice of the cell counted stands for all of it, by a weight that was drawn before anything of it was seen. A cell
//! that ends before its time (its process is gone, or other groups are to be sliced) is entered by the same weight if its slice was
//! in the part that passed, and as nothing if it was not: that is right on the average, and how far off it may be is in the error.

mod record;
mod row;

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_crds::{
    Balance, Figures, PartReport, Passed, RowReport, SliceShape,
    report::{MAX_ROWS, OTHER},
};

use record::{Cell, Mode, Span};
pub use row::RowState;
use row::{Seen, with_room};

use super::{
    accumulator::{Accumulator, EndedCell},
    row_room::RowRoom,
};
use crate::{
    kinds::Instrument,
    mechanism::{Breakdown, GroupId, RowId, RowReading, Subscription, Unseen},
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
    /// What these take.
    room: RowRoom,
    /// What the rows of the process count under, by their place: once given, a name stays.
    names: BTreeMap<u64, String>,
    /// How many of those are not told apart, here and already by the mechanism.
    folded: (u64, u64),
    /// Why nothing new is seen for now, where that is so.
    pub unseen: Option<Unseen>,
    mode: Mode,
    /// What the process had used of its own time when that was told last, since it is measured.
    time: Duration,
    /// How many slices there were, and whether there were to be any.
    slices: u64,
    sliced: bool,
    balance: Balance,
    /// Since when what measures it is being replaced.
    suspended: Option<Duration>,
    /// Since when nothing measures it though its process goes on: nobody guesses what happens meanwhile.
    hole: Option<Duration>,
    window: Span,
    /// How much of the interval is not in it, since it was not measured; when it began. Of both on the wall and in the process's own time.
    missed: (Duration, Duration),
    window_began: (Duration, Duration),
    closed: Span,
}

/// Of fewer slices nothing is told: how far off they may be is not known.
const FEW_SLICES: u64 = 6;

/// As one set of probes takes the place of another nothing is measured for a moment. Where it lasts longer than this, totals say that
/// they leave it out.
const MOMENT: Duration = Duration::from_secs(1);

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
        series.room = RowRoom::of(&subscription);
        series.subscription = subscription;
        series
    }

    /// What its rows take of memory beyond what was expected.
    pub fn beyond(&self) -> u64 {
        self.room.beyond()
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
            tally.forget_spread();
        }
        (self.slices, self.sliced) = (0, false);
        self.balance = Balance::default();
        self.missed = (Duration::ZERO, Duration::ZERO);
        self.mode = Mode::Always {
            entered: (now, Duration::ZERO),
        };
        if !holed {
            self.window_began = (now, Duration::ZERO);
        }
    }

    /// What measures it is about to be replaced; all that was counted was observed.
    pub fn suspend(&mut self, now: Duration) {
        self.leave_off(now);
        self.suspended = Some(now);
    }

    /// It was replaced, counts from zero, and all of the time at first. The moment in between is a part of the interval that was not
    /// recorded, and nobody guesses what happened in it.
    pub fn continued(&mut self, subscription: Subscription, now: Duration) {
        self.restarted(subscription);
        self.leave_out_hole(now);
        self.suspended = None;
        self.mode = Mode::Always {
            entered: (now, Duration::ZERO),
        };
    }

    /// It is not measured any more from then on, and its process goes on. All that was counted was observed.
    pub fn fail(&mut self, since: Duration) {
        let since = self.suspended.take().unwrap_or(since);
        self.end(since);
        self.hole = Some(since.max(self.window_began.0));
    }

    /// A hole ends, if there is one: with its process, or as it is measured again.
    pub fn end_hole(&mut self, now: Duration) {
        self.leave_out_hole(now);
        self.suspended = None;
        self.hole = None;
    }

    /// What of a hole is over by now is a part of the interval that was not recorded.
    fn leave_out_hole(&mut self, now: Duration) {
        let mut longest = Duration::ZERO;
        for since in [&mut self.suspended, &mut self.hole].into_iter().flatten() {
            let lasted = now.saturating_sub(*since);
            longest = longest.max(lasted);
            self.window.add_hole(lasted);
            *since = now;
        }
        if longest > MOMENT {
            self.leave_out();
        }
    }

    /// Its process has used so much of its own time by now, since it is measured.
    pub fn pass(&mut self, time: Duration) {
        self.time = time;
    }

    fn restarted(&mut self, subscription: Subscription) {
        for tally in self.tallies() {
            tally.restarted();
        }
        self.names.clear();
        self.unseen = None;
        self.folded = (0, 0);
        for row in self.rows.values_mut() {
            row.names.clear();
            row.folded = (0, 0);
        }
        self.subscription = subscription;
        self.live = true;
        // What measures it now knows nothing of what was used before.
        (self.time, self.window_began.1) = (Duration::ZERO, Duration::ZERO);
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
            let own = self.subscription.own(&reading.figures);
            let row = self.row_name(reading.row.as_ref(), &own, instrument);
            let seen = seen.entry(row.clone()).or_default();
            seen.all.merge(&own);
            if reading.folded > 0
                && let Some(row) = self.rows.get_mut(&row)
            {
                row.folded.1 = reading.folded;
            }
            // Until something was counted of a part, its name may still be on its way.
            if self.subscription.has_part(reading.part.as_ref()) && !own.is_idle() {
                let row = self.rows.entry(row).or_default();
                let room = |own: &Figures| self.room.take(own);
                let name = row.part_name(reading.part.as_ref(), &own, room, instrument);
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
        self.enter(now);
        news
    }

    /// So many rows of what is read are in `other` already, since the mechanism had no room to tell them apart.
    pub fn fold(&mut self, rows: u64) {
        self.folded.1 = rows;
    }

    /// What a row counts under. Two places may have one name.
    fn row_name(
        &mut self,
        raw: Option<&RowId>,
        figures: &Figures,
        instrument: &dyn Instrument,
    ) -> String {
        let known = raw.and_then(|raw| self.names.get(&raw.place));
        if let Some(name) = known {
            return name.clone();
        }
        let name = match raw {
            Some(raw) => {
                let room = || self.room.take(figures);
                let (name, folded) = with_room(instrument.row(raw), &self.rows, MAX_ROWS, room);
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

    /// It is not measured all of the time any more; all that was counted was observed.
    pub fn pause(&mut self, now: Duration) {
        self.leave_off(now);
    }

    /// It is measured all of the time from now on; what was sliced of it was entered.
    pub fn resume(&mut self, now: Duration) {
        self.leave_off(now);
        self.miss(now, self.time);
        self.forget_pending();
        self.mode = Mode::Always {
            entered: (now, self.time),
        };
    }

    /// A cell begins, whose slice is to come. Here and below, `time` is the process's own.
    pub fn begin_cell(&mut self, shape: SliceShape, now: Duration, time: Duration) {
        self.leave_off(now);
        self.miss(now, time);
        self.sliced = true;
        self.mode = Mode::Sliced(Cell::new(shape, now, time));
    }

    /// What is counted from now on is the slice's; `before` passed without probes since the last one.
    pub fn begin_slice(&mut self, now: Duration, time: Duration, before: Passed) {
        self.forget_pending();
        if let Mode::Sliced(cell) = &mut self.mode {
            cell.counting = Some((now, time));
            cell.before.add(before);
        }
    }

    /// The slice is over; what it counted was observed. Probes are believed to have taken that part of the process's time in it, besides.
    pub fn end_slice(&mut self, now: Duration, time: Duration, probing: f64) {
        let Mode::Sliced(cell) = &mut self.mode else {
            return;
        };
        let Some(since) = cell.counting.take() else {
            return;
        };
        let own = time.saturating_sub(since.1);
        cell.watched += now.saturating_sub(since.0);
        cell.counted += own;
        cell.probing += probing * own.as_secs_f64();
        cell.sliced = true;
        for tally in self.tallies() {
            tally.end_slice();
        }
    }

    /// The cell is over.
    pub fn end_cell(&mut self, now: Duration, time: Duration) {
        let lasted = match self.mode {
            Mode::Sliced(cell) => cell.lasted(),
            Mode::Always { .. } | Mode::Off { .. } => None,
        };
        self.end_slice(now, time, 0.0);
        let Mode::Sliced(cell) = self.mode else {
            return;
        };
        let factor = match lasted {
            Some(lasted) => self.balance.observe(&cell.shape, &lasted),
            None => self.balance.factor(),
        };
        self.mode = Mode::Off { since: (now, time) };
        self.window.add(cell.span(now, time));
        let first = self.slices == 0;
        self.slices += u64::from(cell.sliced);
        let ended = EndedCell {
            shape: cell.shape,
            factor,
            doubt: self.balance.doubt(),
            part: cell.part(time),
            sliced: cell.sliced,
            first,
            few: self.rests_on_few(),
        };
        for tally in self.tallies() {
            tally.end_cell(&ended);
        }
    }

    /// The process is gone, or nobody asks any more, and all that it did was observed.
    pub fn end(&mut self, now: Duration) {
        self.leave_off(now);
        if std::mem::take(&mut self.live) {
            self.miss(now, self.time);
        }
        if self.rests_on_few() {
            self.leave_out();
        }
        for row in self.rows.values_mut() {
            row.vanished();
        }
    }

    /// However it was measured, it is not any more.
    fn leave_off(&mut self, now: Duration) {
        match self.mode {
            Mode::Always { .. } => {
                self.enter(now);
                let since = (now, self.time);
                self.mode = Mode::Off { since };
            }
            Mode::Off { .. } => {}
            // Whoever ends a cell says so; of one that nobody ended, as much is over as its slice tells.
            Mode::Sliced(cell) => {
                let since = cell.counting.unwrap_or(cell.began);
                let time = self.time.max(since.1 + cell.counted);
                self.end_cell(now, time);
            }
        }
    }

    /// What was not measured up to now of the interval is not in it.
    fn miss(&mut self, now: Duration, time: Duration) {
        if let Mode::Off { since } = self.mode {
            let began = self.window_began;
            self.missed.0 += now.saturating_sub(since.0.max(began.0));
            self.missed.1 += time.saturating_sub(since.1.max(began.1));
            if now.saturating_sub(since.0) > MOMENT {
                self.leave_out();
            }
        }
    }

    /// There was more than is counted, and nobody knows how much.
    fn leave_out(&mut self) {
        for tally in self.tallies() {
            tally.leave_out();
        }
    }

    /// Whether slices that stand for what was not watched are too few to know how far off they are.
    fn rests_on_few(&self) -> bool {
        self.sliced && self.slices < FEW_SLICES
    }

    fn forget_pending(&mut self) {
        for tally in self.tallies() {
            tally.forget_pending();
        }
    }

    /// Ends an interval: what was entered in it becomes the figures of the next reports. What is measured in slices is entered as
    /// its cells end only.
    pub fn close_interval(&mut self, now: Duration) {
        if self.live {
            self.enter(now);
        }
        self.leave_out_hole(now);
        let mut span = std::mem::take(&mut self.window);
        if span.elapsed.is_zero() {
            // Without a cell, all that is known of the interval is its length.
            span.elapsed = now.saturating_sub(self.window_began.0);
            span.forget();
        }
        if self.live {
            self.miss(now, self.time);
        }
        let mut missed = std::mem::take(&mut self.missed);
        if let Mode::Sliced(cell) = self.mode {
            missed.0 += now.saturating_sub(cell.began.0);
            missed.1 += self.time.saturating_sub(cell.began.1);
        }
        span.leave_out(missed);
        if !span.is_complete() && self.rests_on_few() {
            span.forget();
        }
        self.window_began = (now, self.time);
        self.closed = span;
        let (elapsed, recorded) = span.milliseconds();
        for tally in self.tallies() {
            tally.close(elapsed, recorded);
        }
    }

    /// The part of the last interval in which calls were recorded; None before one has ended.
    pub fn share(&self) -> Option<f64> {
        (!self.closed.elapsed.is_zero()).then(|| self.closed.share())
    }

    /// How many calls one stands for that is told of by itself: 1 where all are recorded.
    pub fn weight(&self) -> f64 {
        match self.mode {
            Mode::Sliced(cell) => cell.shape.weight(),
            Mode::Always { .. } | Mode::Off { .. } => 1.0,
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
        let few = self.live && self.rests_on_few();
        let total = move |tally: &Accumulator| {
            let mut total = tally.total.clone();
            if few {
                total.leave_out();
            }
            total
        };
        self.rows.iter().map(move |(key, row)| RowReport {
            key: key.clone(),
            total: total(&row.all),
            window: row.all.window().clone(),
            parts: row
                .parts
                .iter()
                .filter(|(_, tally)| tally.is_told())
                .map(|(key, tally)| PartReport {
                    key: key.clone(),
                    total: total(tally),
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

    /// Enters what was observed since the last entry, where that is all that there was.
    fn enter(&mut self, now: Duration) {
        let Mode::Always { entered } = &mut self.mode else {
            return;
        };
        let elapsed = now.saturating_sub(entered.0);
        let own = self.time.saturating_sub(entered.1);
        *entered = (now.max(entered.0), self.time.max(entered.1));
        self.window.add(Span::complete(elapsed, own));
        for tally in self.tallies() {
            tally.enter();
        }
    }

    fn tallies(&mut self) -> impl Iterator<Item = &mut Accumulator> {
        let rows = self.rows.values_mut();
        rows.flat_map(|row| std::iter::once(&mut row.all).chain(row.parts.values_mut()))
    }
}

#[cfg(test)]
mod tests;
