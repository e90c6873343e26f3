//! Each target against the others: which of them sets itself apart, and in what.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    Descriptor, OutlierStatus, RowReport, Value,
    descriptor::Column,
    fleet::{FEWEST, Outlier, TargetFigure, outliers},
    numbers,
};

use super::targets::Target;

/// How many outliers a status lists.
const MAX_OUTLIERS: usize = 10;

/// Rows that are compared: of some kinds each target has rows of its own, of which there is no end.
const MAX_ROWS: usize = 256;

/// What shows that a target is slow: what nine of ten do not.
const TAIL: f64 = 0.99;

/// What the targets of a probe have of what can be compared.
#[derive(Debug)]
pub struct Fleet {
    columns: Vec<&'static Column>,
    descriptor: &'static Descriptor,
    targets: usize,
    /// Of each row and column: which targets have it, and what they have.
    seen: BTreeMap<String, Vec<Vec<(usize, TargetFigure)>>>,
}

impl Fleet {
    /// Of a kind.
    pub fn new(descriptor: &'static Descriptor) -> Self {
        let is_compared = |column: &&Column| match column.value {
            Value::Rate(_) => true,
            Value::Quantile(_, quantile) => quantile == TAIL,
            _ => false,
        };
        Self {
            columns: descriptor.columns.iter().filter(is_compared).collect(),
            descriptor,
            targets: 0,
            seen: BTreeMap::new(),
        }
    }

    /// A target that is measured now has these rows.
    pub fn see(&mut self, target: usize, rows: &[RowReport]) {
        self.targets += 1;
        for row in rows {
            if !self.seen.contains_key(&row.key) && self.seen.len() >= MAX_ROWS {
                continue;
            }
            let seen = self.seen.entry(row.key.clone()).or_default();
            seen.resize_with(self.columns.len(), Vec::new);
            for (column, seen) in self.columns.iter().zip(seen) {
                if let Some(figure) = TargetFigure::of(&row.window, column.value) {
                    seen.push((target, figure));
                }
            }
        }
    }

    /// The targets that set themselves apart, those that do so most first: each by what it does so in most.
    pub fn outliers(&self, targets: &[Target]) -> Vec<OutlierStatus> {
        // What most targets do not have says nothing of what is usual.
        let is_common =
            |seen: &&[(usize, TargetFigure)]| seen.len() >= FEWEST && seen.len() * 2 > self.targets;
        let all = || {
            self.seen.iter().flat_map(|(row, columns)| {
                let columns = columns.iter().map(Vec::as_slice);
                let columns = self.columns.iter().copied().zip(columns);
                columns.map(move |(column, seen)| (row, column, seen))
            })
        };
        let common = || all().filter(|(_, _, seen)| is_common(seen));
        let comparisons = common().count();
        let mut most: BTreeMap<usize, (Outlier, &str, &Column)> = BTreeMap::new();
        for (row, column, seen) in common() {
            let values: Vec<TargetFigure> = seen.iter().map(|(_, figure)| *figure).collect();
            for outlier in outliers(&values, comparisons) {
                let Some((target, _)) = seen.get(outlier.place) else {
                    continue;
                };
                let held = most.get(target);
                if held.is_none_or(|(held, ..)| held.errors < outlier.errors) {
                    most.insert(*target, (outlier, row, column));
                }
            }
        }
        let mut found: Vec<_> = most.into_iter().collect();
        found.sort_by(|(_, (a, ..)), (_, (b, ..))| b.errors.total_cmp(&a.errors));
        let listed = found.into_iter().take(MAX_OUTLIERS);
        listed
            .filter_map(|(target, (outlier, row, column))| {
                let target = targets.get(target)?;
                let written = |number| self.descriptor.written(column.value, number);
                Some(OutlierStatus {
                    pod: target.pod.reference.name.clone(),
                    container: target.container.map(str::to_owned),
                    row: row.to_owned(),
                    figure: column.name.to_owned(),
                    value: written(outlier.value),
                    median: written(outlier.usual),
                    times: numbers::rate(outlier.times()),
                })
            })
            .collect()
    }
}
