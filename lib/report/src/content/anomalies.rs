//! What was not as it usually is, by the rule of [`ckb_probe_figures::anomaly`], over the record as it was recorded.

use std::collections::BTreeMap;

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

/// What one figure did.
struct Seen {
    from: u64,
    to: u64,
    most: Anomaly,
}

/// Of what, which figure, how much it was, and when.
type Told = (String, &'static str, String, Seen);

/// How often a figure was not as it usually is.
pub fn count(history: &History) -> usize {
    let history = history.without_parts();
    find(&history, &history.merged(EACH)).len()
}

/// All that was not as it usually is.
fn find(history: &History, intervals: &[Interval]) -> Vec<Told> {
    let probes = history.probes(intervals);
    let mut all: Vec<Told> = Vec::new();
    for probe in &probes {
        let values: BTreeMap<&str, Value> = probe
            .descriptor
            .columns
            .iter()
            .filter(|column| matches!(column.value, Value::Rate(_) | Value::Quantile(_, 0.99)))
            .map(|column| (column.head, column.value))
            .collect();
        for series in probe.series.iter().filter(|one| one.part.is_none()) {
            // Each is made once, and not once for each figure.
            let places = 0..intervals.len();
            let summaries: Vec<_> = places.map(|place| series.column(place)).collect();
            for (head, value) in &values {
                let name = format!("{} {}", probe.asked.name, series.name());
                let mut course = Course::default();
                let mut open: Option<Seen> = None;
                for (of, interval) in summaries.iter().zip(intervals) {
                    let known = of.as_ref().and_then(|of| Known::of(of, *value, 1));
                    match (course.observe(known), &mut open) {
                        (Some(anomaly), Some(seen)) => {
                            seen.to = interval.at;
                            if anomaly.times().ln().abs() > seen.most.times().ln().abs() {
                                seen.most = anomaly;
                            }
                        }
                        (Some(anomaly), none) => {
                            *none = Some(Seen {
                                from: interval.began(),
                                to: interval.at,
                                most: anomaly,
                            });
                        }
                        (None, seen) => {
                            if let Some(seen) = seen.take() {
                                all.push((name.clone(), head, shown(probe, *value, &seen), seen));
                            }
                        }
                    }
                }
                if let Some(seen) = open {
                    all.push((name, head, shown(probe, *value, &seen), seen));
                }
            }
        }
    }
    all
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
    let mut all = find(&history, &intervals);
    all.sort_by(|(.., one), (.., other)| {
        let size = |seen: &Seen| seen.most.times().ln().abs();
        size(other).total_cmp(&size(one))
    });
    let count = all.len();
    let rows = all.into_iter().take(TOLD).map(|(name, head, shown, seen)| {
        vec![
            name,
            head.to_owned(),
            clock(seen.from),
            lasted(seen.to - seen.from),
            shown,
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let said = format!(
        "Rates and p99s are held against their own past in intervals of {}; in the first {} that is learned, and nothing is said.",
        lasted(each),
        lasted(LEARNED * each),
    );
    let mut blocks = vec![Block::Text(match count {
        0 => format!("Nothing was not as it usually is, as far as the record tells. {said}"),
        1 => format!("Once something was not as it usually is. {said}"),
        _ => format!(
            "{count} times something was not as it usually is; {} are listed. {said}",
            rows.len()
        ),
    })];
    if !rows.is_empty() {
        let head = ["OF", "FIGURE", "FROM", "FOR", "WAS"]
            .map(str::to_owned)
            .to_vec();
        blocks.push(Block::Table(Table {
            head,
            rows,
            numbers: false,
        }));
    }
    Section { title, blocks }
}

fn shown(probe: &crate::history::ProbeHistory, value: Value, seen: &Seen) -> String {
    let written = |number| probe.descriptor.written(value, number);
    format!(
        "{} in place of {}",
        written(seen.most.value),
        written(seen.most.usual)
    )
}
