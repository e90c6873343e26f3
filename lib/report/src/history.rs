//! A record as a whole: its runs, what is missing of it, and each row over time.

use std::collections::BTreeMap;

use ckb_probe_crds::{Descriptor, EventReport, Figures, IntervalFigures, Kind, Share, Summary};

use crate::{
    content::compared,
    lines::{Damage, Segment},
    merge::{by_time, follows, join},
    record::{Asked, End, Header, Interval, ProbeInterval, Row},
};

/// A chart has about so many columns of time.
pub const COLUMNS: u64 = 240;

/// To how many milliseconds parts of rows are put together as segments are read, so that a chart still has about its columns, or a
/// comparison its values: whole shares of a segment, which lasts so long.
pub fn parts_each(segments: usize, segment: u64, compared: bool) -> u64 {
    let most = if compared { compared::VALUES } else { COLUMNS };
    let all = segment.saturating_mul(segments as u64);
    let shares = (segment as f64 / (all / most).max(1) as f64).round() as u64;
    // What is read is minutes.
    segment.div_ceil(shares.max(1)).next_multiple_of(60_000)
}

/// All that was read of a record.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The runs of the recorder, the first one first.
    pub runs: Vec<Run>,
    /// What could not be read.
    pub damage: Damage,
    /// Stretches of which nothing is known.
    pub gaps: Vec<Gap>,
}

/// From one start of the recorder to its end.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Who was measured.
    pub header: Header,
    /// The intervals, in their order.
    pub intervals: Vec<Interval>,
    /// The same put together, with the parts of rows, where the intervals have none.
    pub coarse: Vec<Interval>,
    /// How it ended; None where that was not written down.
    pub end: Option<End>,
}

/// A stretch of which nothing is known, in milliseconds since 1970.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gap {
    /// Its beginning.
    pub from: u64,
    /// Its end; None where nobody knows.
    pub to: Option<u64>,
    /// What is the reason, for people.
    pub why: String,
}

/// A row, or a part of one, over time.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The row.
    pub row: String,
    /// The part; None: all of the row.
    pub part: Option<String>,
    /// Since the runs began.
    pub total: Figures,
    /// In all intervals that are there, and of which something is known.
    pub window: IntervalFigures,
    /// For how many milliseconds besides nothing was seen of it.
    pub unseen: u64,
    /// In each column; None where it was not there: idle, if the column is known.
    pub columns: Vec<Option<IntervalFigures>>,
}

/// A probe over time.
#[derive(Debug)]
pub struct ProbeHistory {
    /// What was asked.
    pub asked: Asked,
    /// What its figures mean.
    pub descriptor: &'static Descriptor,
    /// Rows and their parts; the weightiest first, each followed by its parts.
    pub series: Vec<Series>,
    /// What was listed individually, the weightiest first.
    pub events: Vec<EventReport>,
    /// What could not be recorded, by category.
    pub lost: BTreeMap<String, u64>,
    /// For how many milliseconds it was not measured, by why.
    pub unmeasured: BTreeMap<String, u64>,
}

/// So many events are told of a probe.
const EVENTS: usize = 20;

impl History {
    /// Of segments in their order.
    pub fn of(segments: Vec<Segment>) -> Self {
        let mut history = Self::default();
        for segment in segments {
            history.damage = history.damage.and(segment.damage);
            let known = history.runs.last().map(|run| run.header.run);
            match segment.header {
                Some(header) if known != Some(header.run) => history.runs.push(Run {
                    header,
                    ..Run::default()
                }),
                None if known.is_none() => history.runs.push(Run::default()),
                _ => {}
            }
            if let Some(run) = history.runs.last_mut() {
                run.intervals.extend(segment.intervals);
                run.coarse.extend(segment.coarse);
                run.end = segment.end.or(run.end.take());
            }
        }
        history.gaps = history.find_gaps();
        history
    }

    /// All intervals.
    pub fn intervals(&self) -> impl Iterator<Item = &Interval> {
        self.runs.iter().flat_map(|run| &run.intervals)
    }

    /// From when to when there are intervals, in milliseconds since 1970; None where there are none.
    pub fn span(&self) -> Option<(u64, u64)> {
        let (first, last) = (self.intervals().next()?, self.intervals().last()?);
        Some((first.began(), last.at.max(first.began() + 1)))
    }

    /// For how many milliseconds of that it is known what happened.
    pub fn known(&self) -> u64 {
        self.intervals().map(|one| one.milliseconds).sum()
    }

    /// The intervals put together, so that there are about as many columns as a chart has.
    pub fn columns(&self) -> Vec<Interval> {
        let (from, to) = self.span().unwrap_or_default();
        let each = (to - from) / COLUMNS;
        self.merged(each)
    }

    /// The intervals put together to about this length.
    pub fn merged(&self, milliseconds: u64) -> Vec<Interval> {
        let runs = self.runs.iter();
        runs.flat_map(|run| by_time(run.with_parts(), milliseconds))
            .collect()
    }

    /// The same without the parts of rows.
    #[must_use]
    pub fn without_parts(&self) -> Self {
        let row = |row: &Row| Row {
            key: row.key.clone(),
            total: row.total.clone(),
            window: row.window.clone(),
            unseen: row.unseen,
            unseen_last: row.unseen_last,
            parts: Vec::new(),
        };
        let probe = |probe: &ProbeInterval| ProbeInterval {
            name: probe.name.clone(),
            unmeasured: probe.unmeasured.clone(),
            rows: probe.rows.iter().map(row).collect(),
            ..ProbeInterval::default()
        };
        let interval = |one: &Interval| Interval {
            probes: one.probes.iter().map(probe).collect(),
            at: one.at,
            milliseconds: one.milliseconds,
            contention: one.contention,
            contention_unknown: one.contention_unknown.clone(),
            ..Interval::default()
        };
        let run = |run: &Run| Run {
            header: run.header.clone(),
            intervals: run.intervals.iter().map(interval).collect(),
            coarse: Vec::new(),
            end: run.end.clone(),
        };
        Self {
            runs: self.runs.iter().map(run).collect(),
            ..Self::default()
        }
    }

    fn find_gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut before: Option<(&Run, &Interval)> = None;
        for run in &self.runs {
            for interval in &run.intervals {
                let began = interval.began();
                match before {
                    Some((of, last)) if of.header.run != run.header.run => gaps.push(Gap {
                        from: last.at,
                        to: Some(began),
                        why: format!("nobody recorded: {}", of.how_it_ended()),
                    }),
                    Some((_, last)) if !follows(last, interval) && began > last.at => {
                        gaps.push(Gap {
                            from: last.at,
                            to: Some(began),
                            why: "what was recorded was removed for want of room, or is damaged"
                                .to_owned(),
                        });
                    }
                    None if began > run.header.run + 2 * interval.milliseconds.max(5000)
                        && run.header.run > 0 =>
                    {
                        gaps.push(Gap {
                            from: run.header.run,
                            to: Some(began),
                            why: "the oldest part was removed for want of room".to_owned(),
                        });
                    }
                    _ => {}
                }
                before = Some((run, interval));
            }
        }
        if let Some((run, last)) = before
            && run.end.is_none()
        {
            gaps.push(Gap {
                from: last.at,
                to: None,
                why: run.how_it_ended(),
            });
        }
        gaps
    }

    /// Each probe over time, in these columns.
    pub fn probes(&self, columns: &[Interval]) -> Vec<ProbeHistory> {
        let mut asked: Vec<Asked> = Vec::new();
        for one in self.runs.iter().flat_map(|run| &run.header.probes) {
            if !asked.contains(one) {
                asked.push(one.clone());
            }
        }
        let wholes = self.wholes(columns);
        let of = |asked: Asked| {
            let mut kinds = Kind::ALL.iter();
            let kind = kinds.find(|kind| kind.as_str() == asked.kind)?;
            Some(self.probe(asked, kind.descriptor(), &wholes, columns))
        };
        asked.into_iter().filter_map(of).collect()
    }

    /// Each run as one interval, of the columns that are made of it: they last as long together.
    fn wholes(&self, columns: &[Interval]) -> Vec<Interval> {
        let mut columns = columns.iter();
        let mut wholes = Vec::new();
        for run in &self.runs {
            let mut left: u64 = run.intervals.iter().map(|one| one.milliseconds).sum();
            let mut whole: Option<Interval> = None;
            while left > 0
                && let Some(column) = columns.next()
            {
                left = left.saturating_sub(column.milliseconds);
                match &mut whole {
                    Some(whole) => whole.follow(column),
                    None => whole = Some(column.clone()),
                }
            }
            wholes.extend(whole);
        }
        wholes
    }

    fn probe(
        &self,
        asked: Asked,
        descriptor: &'static Descriptor,
        wholes: &[Interval],
        columns: &[Interval],
    ) -> ProbeHistory {
        let mut held: BTreeMap<(String, Option<String>), Series> = BTreeMap::new();
        let mut each = |rows: &[Row], enter: &mut dyn FnMut(&mut Series, &Row)| {
            for row in rows {
                let whole = std::iter::once((None, row));
                let parts = row.parts.iter().map(|part| (Some(part.key.clone()), part));
                for (part, of) in whole.chain(parts) {
                    let key = (row.key.clone(), part.clone());
                    let series = held.entry(key).or_insert_with(|| Series {
                        row: row.key.clone(),
                        part,
                        columns: vec![None; columns.len()],
                        ..Series::default()
                    });
                    enter(series, of);
                }
            }
        };
        let mut lost = BTreeMap::new();
        let mut events = Vec::new();
        for whole in wholes {
            let Some(probe) = whole.probe(&asked.name) else {
                continue;
            };
            for (what, count) in &probe.lost {
                *lost.entry(what.clone()).or_insert(0) += count;
            }
            each(&probe.rows, &mut |series, row| {
                // Runs follow each other: a level is that of the last.
                series.total.follow(&row.total);
                join(
                    (&mut series.window, &mut series.unseen),
                    (&row.window, row.unseen),
                );
            });
        }
        for (place, column) in columns.iter().enumerate() {
            let Some(probe) = column.probe(&asked.name) else {
                continue;
            };
            events.extend(probe.events.iter().cloned());
            each(&probe.rows, &mut |series, row| {
                series.columns[place] = Some(row.window.clone());
            });
        }
        events.sort_by(|one, other| {
            other
                .weight
                .cmp(&one.weight)
                .then(one.time.cmp(&other.time))
        });
        events.truncate(EVENTS);
        ProbeHistory {
            series: ordered(descriptor, held.into_values().collect()),
            unmeasured: self.unmeasured(&asked.name),
            asked,
            descriptor,
            events,
            lost,
        }
    }

    /// For how many milliseconds a probe measured nothing, by why.
    fn unmeasured(&self, name: &str) -> BTreeMap<String, u64> {
        let mut unmeasured = BTreeMap::new();
        for interval in self.intervals() {
            let why = interval
                .probe(name)
                .map_or(Some("not attached yet"), |probe| {
                    probe.unmeasured.as_deref()
                });
            if let Some(why) = why {
                *unmeasured.entry(why.to_owned()).or_insert(0) += interval.milliseconds;
            }
        }
        unmeasured
    }
}

impl Run {
    /// The intervals, as fine as they are with parts of rows.
    fn with_parts(&self) -> &[Interval] {
        match self.coarse.is_empty() {
            true => &self.intervals,
            false => &self.coarse,
        }
    }

    /// In a sentence.
    pub fn how_it_ended(&self) -> String {
        match &self.end {
            Some(end) => format!("recording ended, since {}", end.reason),
            None => "the end is missing: the recorder was killed, or goes on".to_owned(),
        }
    }
}

impl Series {
    /// All of it.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.total, &self.window, true)
    }

    /// In how much of all the time it was recorded.
    pub fn share(&self) -> Share {
        Share::of(&IntervalFigures {
            milliseconds: self.window.milliseconds + self.unseen,
            recorded_milliseconds: self.window.recorded_milliseconds,
            ..IntervalFigures::default()
        })
    }

    /// One column of it.
    pub fn column(&self, place: usize) -> Option<Summary> {
        let window = self.columns.get(place)?.as_ref()?;
        Some(Summary::of(&Figures::default(), window, true))
    }

    /// The row and its part, as people read it.
    pub fn name(&self) -> String {
        match &self.part {
            Some(part) => format!("{} {part}", self.row),
            None => self.row.clone(),
        }
    }
}

fn ordered(descriptor: &Descriptor, series: Vec<Series>) -> Vec<Series> {
    let mut with: Vec<(Summary, Series)> =
        series.into_iter().map(|one| (one.summary(), one)).collect();
    let wholes: BTreeMap<String, Summary> = with
        .iter()
        .filter(|(_, one)| one.part.is_none())
        .map(|(of, one)| (one.row.clone(), of.clone()))
        .collect();
    with.sort_by(|(of, one), (other_of, other)| {
        let rows = (wholes.get(&one.row), wholes.get(&other.row));
        let by_row = match rows {
            (Some(a), Some(b)) => descriptor.order((&one.row, a), (&other.row, b)),
            _ => one.row.cmp(&other.row),
        };
        by_row
            .then(one.part.is_some().cmp(&other.part.is_some()))
            .then_with(|| {
                let [a, b] = [one, other].map(|one| one.part.as_deref().unwrap_or_default());
                descriptor.order((a, of), (b, other_of))
            })
    });
    with.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests;
