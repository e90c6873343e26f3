//! What was not as it usually is, by the rule of [`ckb_probe_figures::anomaly`], over the record as it was recorded; and what the container
//! waited for meanwhile, and did on its own account.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    Descriptor, Summary,
    contention::{Waits, Work},
    descriptor::Column,
};
use ckb_probe_figures::{
    Value,
    anomaly::{Anomaly, Course, Known},
};

use super::{Block, Section, Table};
use crate::{
    history::History,
    record::Interval,
    times::{clock, lasted},
};

/// That rule knows report intervals of this length.
const EACH: u64 = 30_000;

/// In so many of them it says nothing.
const LEARNED: u64 = 720;

/// So many are told.
const TOLD: usize = 30;

/// A figure that was not as it usually is for a while.
#[derive(Clone, Debug)]
pub struct Unusual {
    /// The name of the probe.
    pub probe: String,
    /// The row.
    pub row: String,
    /// Which figure.
    pub column: &'static Column,
    /// Of which kind the probe is.
    pub descriptor: &'static Descriptor,
    /// From when it was told, in milliseconds since 1970.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// What it was when it differed most.
    pub most: Anomaly,
    /// What the container waited for, and did on its own account, in the interval that `from` begins, beside what is usual of that; empty where
    /// nothing of it was recorded.
    pub beside: String,
    /// The first interval of it, and the last.
    places: [usize; 2],
}

/// How often a figure was not as it usually is.
pub fn count(history: &History) -> usize {
    unusual(history).len()
}

/// All that was not as it usually is, what differed most first.
pub fn unusual(history: &History) -> Vec<Unusual> {
    let history = history.without_parts();
    find(&history, &history.merged(EACH))
}

fn find(history: &History, intervals: &[Interval]) -> Vec<Unusual> {
    let mut all: Vec<Unusual> = Vec::new();
    let mut work = vec![Work::new(); intervals.len()];
    for probe in history.probes(intervals) {
        let descriptor = probe.descriptor;
        let columns: BTreeMap<&str, &Column> = descriptor
            .columns
            .iter()
            .filter(|column| matches!(column.value, Value::Rate(_) | Value::Quantile(_, 0.99)))
            .map(|column| (column.head, column))
            .collect();
        for series in probe.series.iter().filter(|one| one.part.is_none()) {
            // Each is made once, and not once for each figure.
            let places = 0..intervals.len();
            let summaries: Vec<_> = places.map(|place| series.column(place)).collect();
            if (descriptor.background)(&series.row) {
                for ((of, interval), work) in summaries.iter().zip(intervals).zip(&mut work) {
                    let part = under_way(descriptor, of.as_ref(), interval, &probe.asked.name);
                    work.entry(series.row.clone()).or_insert(part);
                }
            }
            for column in columns.values() {
                let mut course = Course::default();
                let mut open: Option<Unusual> = None;
                for (place, (of, interval)) in summaries.iter().zip(intervals).enumerate() {
                    let known = of.as_ref();
                    let known = known.and_then(|of| Known::of(of, column.value, 1));
                    match (course.observe(known), &mut open) {
                        (Some(anomaly), Some(seen)) => {
                            seen.to = interval.at;
                            seen.places[1] = place;
                            if distance(&anomaly) > distance(&seen.most) {
                                seen.most = anomaly;
                            }
                        }
                        (Some(anomaly), none) => {
                            *none = Some(Unusual {
                                probe: probe.asked.name.clone(),
                                row: series.name(),
                                column,
                                descriptor,
                                from: interval.began(),
                                to: interval.at,
                                most: anomaly,
                                beside: String::new(),
                                places: [place; 2],
                            });
                        }
                        (None, seen) => all.extend(seen.take()),
                    }
                }
                all.extend(open);
            }
        }
    }
    look_beside(&mut all, intervals, &work);
    all.sort_by(|one, other| distance(&other.most).total_cmp(&distance(&one.most)));
    all
}

/// How far it is from what is usual, whichever way.
fn distance(anomaly: &Anomaly) -> f64 {
    anomaly.times().ln().abs()
}

/// For which part of an interval it did something on its own account. What is not there was idle, if its probe was measured.
fn under_way(
    descriptor: &Descriptor,
    of: Option<&Summary>,
    interval: &Interval,
    probe: &str,
) -> Option<f64> {
    match of {
        Some(of) => descriptor.part_of_time(of, interval.milliseconds),
        None => {
            let probe = interval.probe(probe)?;
            probe.unmeasured.is_none().then_some(0.0)
        }
    }
}

/// What was beside each as it began, as the operator tells it: what is usual of that is learned while nothing is unusual.
fn look_beside(all: &mut [Unusual], intervals: &[Interval], work: &[Work]) {
    let has_work = work.iter().any(|work| !work.is_empty());
    if !has_work && intervals.iter().all(|one| one.contention.is_none()) {
        return;
    }
    let mut is_unusual = vec![false; intervals.len()];
    for one in &*all {
        let [first, last] = one.places;
        is_unusual[first..=last].fill(true);
    }
    let mut waits = Waits::default();
    let mut was_unusual = false;
    for (place, (interval, work)) in intervals.iter().zip(work).enumerate() {
        let told = [("", interval.contention)];
        let begin = all.iter_mut().filter(|one| one.places[0] == place);
        for one in begin {
            one.beside = waits.beside(&told, work);
        }
        match was_unusual {
            false => waits.learn(&told, work),
            true => waits.hold(),
        }
        was_unusual = is_unusual[place];
    }
}

/// The section. What is told in longer intervals is judged in these.
pub fn section(title: String, history: &History) -> Section {
    let history = history.without_parts();
    let intervals = history.merged(EACH);
    let mut each: Vec<u64> = intervals.iter().map(|one| one.milliseconds).collect();
    each.sort_unstable();
    let each = each
        .get(each.len() / 2)
        .map_or(EACH, |each| EACH.max(*each));
    let all = find(&history, &intervals);
    let has_beside = all.iter().any(|one| !one.beside.is_empty());
    let count = all.len();
    let rows = all.into_iter().take(TOLD).map(|one| {
        let mut row = vec![
            format!("{} {}", one.probe, one.row),
            one.column.head.to_owned(),
            clock(one.from),
            lasted(one.to - one.from),
            shown(&one),
        ];
        row.extend(has_beside.then_some(one.beside));
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let said = format!(
        "Rates and p99s are held against their own past in intervals of {}; in the first {} that is learned, and nothing is said.",
        lasted(each),
        lasted(LEARNED * each),
    );
    let beside = match has_beside {
        true => {
            " Beside each is what its container waited for, and did on its own account, in the interval in which it was first told, which need not be why."
        }
        false => "",
    };
    let mut blocks = vec![Block::Text(match count {
        0 => format!("Nothing was not as it usually is, as far as the record tells. {said}"),
        1 => format!("Once something was not as it usually is. {said}{beside}"),
        _ => format!(
            "{count} times something was not as it usually is; {} are listed. {said}{beside}",
            rows.len()
        ),
    })];
    if !rows.is_empty() {
        let head = ["OF", "FIGURE", "FROM", "FOR", "WAS"].into_iter();
        let head = head.chain(has_beside.then_some("IN THE SAME INTERVAL"));
        blocks.push(Block::Table(Table {
            head: head.map(str::to_owned).collect(),
            rows,
            numbers: false,
        }));
    }
    Section { title, blocks }
}

fn shown(of: &Unusual) -> String {
    let written = |number| of.descriptor.written(of.column.value, number);
    format!(
        "{} in place of {}",
        written(of.most.value),
        written(of.most.usual)
    )
}
