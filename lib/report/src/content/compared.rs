//! How a record differs from another: effects with their bounds, and noise called noise.
//!
//! The test is that of `ckb-probe diff` of two runs: each side is cut into stretches that followed each other, and the difference of
//! their means has Welch's bounds ([`ckb_probe_figures::comparison`]). The bounds of all figures hold together (Bonferroni).

use std::collections::BTreeMap;

use ckb_probe_crds::{
    Descriptor,
    descriptor::{Merge, Unit},
};
use ckb_probe_figures::{
    Value,
    comparison::{BATCHES, Comparison, LEAST, Statistic, compare as test},
};

use super::{Block, Section, Table};
use crate::history::History;

/// How likely all bounds are to hold together.
const CONFIDENCE: f64 = 0.95;

/// Intervals are put together until there are no more than this: what is finer is no news for means of stretches.
pub const VALUES: u64 = 2_000;

/// A figure on both sides.
#[derive(Debug)]
pub struct Change {
    /// The probe.
    pub probe: String,
    /// The row.
    pub row: String,
    /// The part of the row; None: all of it.
    pub part: Option<String>,
    /// The key of its column.
    pub name: &'static str,
    /// The head of its column.
    pub figure: &'static str,
    /// What came out.
    pub comparison: Comparison,
    value: Value,
    descriptor: &'static Descriptor,
}

type Values = BTreeMap<
    (String, String, Option<String>, &'static str),
    (Vec<f64>, Value, &'static Descriptor),
>;

/// Compares all figures of which there is enough on both sides; the others are counted.
pub fn compare(before: &History, after: &History) -> (Vec<Change>, usize) {
    let (before, mut after) = (values(before), values(after));
    let mut pairs = Vec::new();
    let mut few = 0;
    for (key, (old, value, descriptor)) in before {
        match after.remove(&key) {
            Some((new, ..)) if old.len() >= LEAST && new.len() >= LEAST => {
                pairs.push((key, old, new, value, descriptor));
            }
            _ => few += 1,
        }
    }
    few += after.len();
    let confidence = confidence(pairs.len());
    let changes = pairs
        .into_iter()
        .filter_map(|(key, old, new, value, descriptor)| {
            let (probe, row, part, figure) = key;
            let mut columns = descriptor.columns.iter();
            Some(Change {
                name: columns
                    .find(|one| one.head == figure && one.value == value)?
                    .name,
                comparison: test(&old, &new, statistic(value), confidence)?,
                probe,
                row,
                part,
                figure,
                value,
                descriptor,
            })
        });
    (changes.collect(), few)
}

/// How likely the bounds of each of so many figures are to hold, so that all do together.
pub fn confidence(figures: usize) -> f64 {
    1.0 - (1.0 - CONFIDENCE) / figures.max(1) as f64
}

/// In what a value is: `nanoseconds`, `bytes`, `count`, or one of these `PerSecond`; `percent` of shares.
pub fn unit(descriptor: &Descriptor, value: Value) -> String {
    let of = value.measure();
    let mut measures = descriptor.measures.iter();
    let measure = measures.find(|known| known.name == of);
    let is_counted = !matches!(value, Value::Quantile(..) | Value::Maximum(_))
        && measure.is_some_and(|known| known.merge == Merge::Distribution);
    let unit = match descriptor.unit(of) {
        // Of what is distributed it is told how often there was some.
        _ if is_counted => "count",
        Unit::Nanoseconds => "nanoseconds",
        Unit::Bytes => "bytes",
        Unit::Count => "count",
    };
    match value {
        Value::Rate(_) => format!("{unit}PerSecond"),
        Value::Percent(..) | Value::Portion(..) => "percent".to_owned(),
        _ => unit.to_owned(),
    }
}

/// A rate is what there was in all; of a quantile a few extremes are no news.
fn statistic(value: Value) -> Statistic {
    match value {
        Value::Quantile(..) => Statistic::Median,
        _ => Statistic::Mean,
    }
}

/// What each figure was in each interval in which it is known.
fn values(history: &History) -> Values {
    let (from, to) = history.span().unwrap_or_default();
    let intervals = history.merged((to - from) / VALUES);
    let mut values = Values::new();
    for probe in history.probes(&intervals) {
        for series in &probe.series {
            let columns = probe.descriptor.columns.iter();
            let columns = columns.filter(|column| column.of_parts || series.part.is_none());
            for column in
                columns.filter(|one| matches!(one.value, Value::Rate(_) | Value::Quantile(..)))
            {
                let of = (0..intervals.len()).filter_map(|place| {
                    let measured = intervals[place]
                        .probes
                        .iter()
                        .any(|one| one.name == probe.asked.name && one.unmeasured.is_none());
                    match series.column(place) {
                        Some(of) => of.value(column.value),
                        None => (measured && matches!(column.value, Value::Rate(_))).then_some(0.0),
                    }
                });
                let of: Vec<f64> = of.collect();
                if of.iter().any(|value| *value > 0.0) {
                    let key = (
                        probe.asked.name.clone(),
                        series.row.clone(),
                        series.part.clone(),
                        column.head,
                    );
                    values.insert(key, (of, column.value, probe.descriptor));
                }
            }
        }
    }
    values
}

/// The same, what changed by more than noise first, and of that the greatest change.
pub fn ordered(before: &History, after: &History) -> (Vec<Change>, usize) {
    let (mut changes, few) = compare(before, after);
    changes.sort_by(|one, two| {
        let key = |one: &Change| {
            let change = one.comparison.of_before(one.comparison.change());
            (
                one.comparison.is_noise(),
                -change.unwrap_or(f64::INFINITY).abs(),
            )
        };
        let ((a, b), (c, d)) = (key(one), key(two));
        a.cmp(&c).then(b.total_cmp(&d))
    });
    (changes, few)
}

/// The section.
pub fn section(title: String, history: &History, other: &str, baseline: &History) -> Section {
    let (changes, few) = ordered(baseline, history);
    let noise = changes
        .iter()
        .filter(|one| one.comparison.is_noise())
        .count();
    let mut blocks = vec![Block::Text(format!(
        "{} figures have changed by more than noise, {noise} have not, and {few} are in too few intervals of either side to tell ({LEAST} of each at the least). \
         Before is {other}. Rates by their means, quantiles by their medians: Welch's test on {BATCHES} stretches of intervals that followed each other; \
         the bounds of all figures hold together in {:.0} of 100 cases (Bonferroni), and where they include 0, the change is called noise.",
        changes.len() - noise,
        100.0 * CONFIDENCE,
    ))];
    if !changes.is_empty() {
        let head = [
            "OF", "FIGURE", "BEFORE", "AFTER", "CHANGE", "BETWEEN", "IT IS",
        ];
        blocks.push(Block::Table(Table {
            head: head.map(str::to_owned).to_vec(),
            rows: changes.iter().map(Change::cells).collect(),
            numbers: true,
        }));
    }
    Section { title, blocks }
}

impl Change {
    /// `noise`, `more` or `less`.
    pub fn word(&self) -> &'static str {
        match self.comparison.is_noise() {
            true => "noise",
            false if self.comparison.change() > 0.0 => "more",
            false => "less",
        }
    }

    /// In what it is.
    pub fn unit(&self) -> String {
        unit(self.descriptor, self.value)
    }

    /// What of all values is compared.
    pub fn statistic(&self) -> Statistic {
        statistic(self.value)
    }

    /// The probe, the row and its part.
    pub fn of(&self) -> String {
        let Self {
            probe, row, part, ..
        } = self;
        let part = part
            .as_ref()
            .map(|part| format!(" {part}"))
            .unwrap_or_default();
        format!("{probe} {row}{part}")
    }

    fn cells(&self) -> Vec<String> {
        let of = &self.comparison;
        let written = |number: f64| self.descriptor.written(self.value, number);
        let share = |change: f64| match of.of_before(change) {
            Some(share) => format!("{:+.1} %", 100.0 * share),
            None => "-".to_owned(),
        };
        vec![
            self.of(),
            self.figure.to_owned(),
            written(of.before),
            written(of.after),
            share(of.change()),
            format!("{} and {}", share(of.low), share(of.high)),
            self.word().to_owned(),
        ]
    }
}
