//! Intervals that become one: what followed each other of one run, with nothing missing between.

use std::collections::BTreeMap;

use ckb_probe_crds::{Contention, EventReport, Figures, IntervalFigures, contention::RESOURCES};

use crate::record::{Interval, MAX_EVENTS, ProbeInterval, Row};

impl Interval {
    /// Adds the interval that came after this one.
    pub fn follow(&mut self, later: &Self) {
        let (ours, theirs) = (self.milliseconds, later.milliseconds);
        self.cost = averaged((self.cost, ours), (later.cost, theirs));
        self.floor = averaged((self.floor, ours), (later.floor, theirs));
        self.wait(later);
        self.at = later.at;
        self.milliseconds += theirs;
        self.own_cpu += later.own_cpu;
        self.renewed += later.renewed;
        for probe in &later.probes {
            match self.probes.iter_mut().find(|one| one.name == probe.name) {
                Some(held) => held.follow(probe, ours, theirs),
                // It was not known before, and so not measured.
                None => {
                    let mut held = ProbeInterval {
                        name: probe.name.clone(),
                        unmeasured: Some("not attached yet".to_owned()),
                        ..ProbeInterval::default()
                    };
                    held.follow(probe, ours, theirs);
                    self.probes.push(held);
                }
            }
        }
    }

    /// What was waited for in both: each resource by itself, as one may be known where another is not, and each by how long it is known.
    fn wait(&mut self, later: &Self) {
        let all = self.milliseconds + later.milliseconds;
        let mut both = Contention::default();
        let mut unknown = BTreeMap::new();
        for resource in &RESOURCES {
            let (ours, theirs) = (self.waited(resource), later.waited(resource));
            let mean = averaged(ours, theirs);
            *(resource.part_mut)(&mut both) = mean;
            let missing = all.saturating_sub(ours.1 + theirs.1);
            if mean.is_some() && missing > 0 {
                unknown.insert(resource.key.to_owned(), missing);
            }
        }
        self.contention = self.contention.or(later.contention).map(|_| both);
        self.contention_unknown = unknown;
    }
}

impl ProbeInterval {
    fn follow(&mut self, later: &Self, ours: u64, theirs: u64) {
        // What was not measured is not known for as long.
        let known = |probe: &Self, time| if probe.unmeasured.is_none() { time } else { 0 };
        let watched = (known(self, ours), known(later, theirs));
        if later.unmeasured.is_none() {
            self.unmeasured = None;
        }
        self.lost.extend(later.lost.clone());
        follow_rows(
            &mut self.rows,
            &later.rows,
            [(ours, watched.0), (theirs, watched.1)],
        );
        self.events.extend(later.events.iter().cloned());
        weightiest(&mut self.events);
    }
}

/// Adds rows to those before. A row that is not there had nothing happen to it for as long as was watched.
fn follow_rows(rows: &mut Vec<Row>, later: &[Row], times: [(u64, u64); 2]) {
    let [ours, theirs] = times;
    let mut seen = vec![false; rows.len()];
    for (index, row) in later.iter().enumerate() {
        // Rows come in the same order, mostly.
        let same = rows.get(index).is_some_and(|held| held.key == row.key);
        let place = match same {
            true => Some(index),
            false => rows.iter().position(|held| held.key == row.key),
        };
        if let Some(held) = place.and_then(|place| rows.get_mut(place)) {
            // One that was not read is that of a later one.
            if row.total != Figures::default() {
                held.total.clone_from(&row.total);
            }
            follow_row(held, row, theirs.0);
            follow_rows(&mut held.parts, &row.parts, times);
            if let Some(flag) = place.and_then(|place| seen.get_mut(place)) {
                *flag = true;
            }
        } else {
            let mut held = row.clone();
            idle(&mut held, ours);
            rows.push(held);
        }
    }
    for (row, seen) in rows.iter_mut().zip(seen) {
        if !seen {
            idle(row, theirs);
        }
    }
}

/// Adds the row of a later interval of this length.
///
/// What is sampled is told once a slice has stood for its time: an interval in which none ended is one of which nothing was seen, and the next that
/// saw something is longer by that, which is not counted twice.
fn follow_row(held: &mut Row, later: &Row, length: u64) {
    let before = match is_blind(&held.window) {
        true => held.window.milliseconds,
        false => held.unseen_last,
    };
    let is_blind = is_blind(&later.window);
    let told = later.window.milliseconds + later.unseen;
    let reaches_back = !is_blind && told > length && later.window.milliseconds > before;
    join(
        (&mut held.window, &mut held.unseen),
        (&later.window, later.unseen),
    );
    if reaches_back {
        held.unseen = held.unseen.saturating_sub(before);
    }
    held.unseen_last = match is_blind {
        true => before + later.window.milliseconds,
        false => later.unseen_last,
    };
}

/// Adds what came after it. Of a time in which nothing was seen nothing is known, which is no rate of zero: it is kept apart, unless there is nothing
/// else.
pub fn join(
    (window, unseen): (&mut IntervalFigures, &mut u64),
    (later, later_unseen): (&IntervalFigures, u64),
) {
    match (is_blind(window), is_blind(later)) {
        (true, false) => {
            *unseen += std::mem::replace(&mut window.milliseconds, later.milliseconds);
        }
        (false, true) => *unseen += later.milliseconds,
        (true, true) | (false, false) => window.milliseconds += later.milliseconds,
    }
    *unseen += later_unseen;
    window.recorded_milliseconds += later.recorded_milliseconds;
    window.samples = window.samples.saturating_add(later.samples);
    window.figures.follow(&later.figures);
}

/// Whether nothing was seen in all of it.
pub fn is_blind(window: &IntervalFigures) -> bool {
    let figures = &window.figures;
    let counts = || figures.measures().filter_map(|name| figures.count(name));
    window.recorded_milliseconds == 0 && window.samples == 0 && counts().all(|count| count == 0)
}

/// Nothing happened for a time, of which so much was watched.
fn idle(row: &mut Row, (time, watched): (u64, u64)) {
    let nothing = IntervalFigures {
        milliseconds: watched,
        recorded_milliseconds: watched,
        ..IntervalFigures::default()
    };
    let unwatched = IntervalFigures {
        milliseconds: time.saturating_sub(watched),
        ..IntervalFigures::default()
    };
    for part in [nothing, unwatched] {
        join((&mut row.window, &mut row.unseen), (&part, 0));
    }
    row.unseen_last = 0;
    for part in &mut row.parts {
        idle(part, (time, watched));
    }
}

/// Leaves the weightiest, the weightiest first.
pub fn weightiest(events: &mut Vec<EventReport>) {
    events.sort_by(|one, other| {
        other
            .weight
            .cmp(&one.weight)
            .then(one.time.cmp(&other.time))
    });
    events.truncate(MAX_EVENTS);
}

/// The mean of both, each weighed by its time; where one is not known it is the other.
fn averaged(one: (Option<u64>, u64), other: (Option<u64>, u64)) -> Option<u64> {
    match (one, other) {
        ((Some(a), time), (Some(b), later)) => {
            let all = u128::from(time) + u128::from(later);
            let sum = u128::from(a) * u128::from(time) + u128::from(b) * u128::from(later);
            u64::try_from(sum / all.max(1)).ok()
        }
        ((known, _), (None, _)) | ((None, _), (known, _)) => known,
    }
}

/// Intervals of about this length at the least: what followed each other with nothing missing between is put together.
pub fn by_time(intervals: &[Interval], milliseconds: u64) -> Vec<Interval> {
    let mut merged: Vec<Interval> = Vec::new();
    for interval in intervals {
        match merged.last_mut() {
            Some(last)
                if last.milliseconds + interval.milliseconds <= milliseconds
                    && follows(last, interval) =>
            {
                last.follow(interval);
            }
            _ => merged.push(interval.clone()),
        }
    }
    merged
}

/// Whether nothing is missing between them: less than half of an interval, and clocks are set now and then.
pub fn follows(before: &Interval, after: &Interval) -> bool {
    let began = after.began();
    began.abs_diff(before.at) <= after.milliseconds / 2
}

#[cfg(test)]
mod tests;
