//! Rows and parts that are not told by themselves, and what they come to together.

use std::{borrow::Cow, cmp::Reverse};

use ckb_probe_crds::{Figures, IntervalFigures, PartReport, RowReport, report::OTHER};

use super::count;

/// A row, or some that are folded.
pub struct Whole<'a> {
    pub total: Cow<'a, Figures>,
    pub window: Cow<'a, IntervalFigures>,
    pub parts: Cow<'a, [PartReport]>,
}

fn named(row: &RowReport) -> (String, Whole<'_>) {
    let whole = Whole {
        total: Cow::Borrowed(&row.total),
        window: Cow::Borrowed(&row.window),
        parts: Cow::Borrowed(&row.parts[..]),
    };
    (row.key.clone(), whole)
}

/// So many rows by name, and those that are apart from the whole; and how many others count in the one of the others.
pub fn fold_rows(
    rows: &[RowReport],
    apart: impl Fn(&str) -> bool,
    keep: usize,
) -> (Vec<(String, Whole<'_>)>, u32) {
    if rows.len() <= keep {
        return (rows.iter().map(named).collect(), 0);
    }
    let (apart, foldable): (Vec<_>, Vec<_>) = rows.iter().partition(|row| apart(&row.key));
    let (kept, rest) = split(foldable, keep, |row| (&row.key, &row.total));
    let folded = fold(rest.iter().map(|row| (&row.total, &row.window)));
    let mut told: Vec<_> = apart.into_iter().chain(kept).map(named).collect();
    told.extend(folded.map(|(total, window)| {
        let whole = Whole {
            total: Cow::Owned(total),
            window: Cow::Owned(window),
            parts: Cow::Owned(Vec::new()),
        };
        (OTHER.to_string(), whole)
    }));
    (told, count(rest.len()))
}

/// So many parts by name; and how many others count in the one of the others, or in their row alone.
pub fn fold_parts(parts: &[PartReport], keep: usize) -> (Vec<PartReport>, u32) {
    match keep {
        // The row has all of them.
        0 => return (Vec::new(), count(parts.len())),
        keep if parts.len() <= keep => return (parts.to_vec(), 0),
        _ => {}
    }
    let (kept, rest) = split(parts.iter().collect(), keep, |part| {
        (&part.key, &part.total)
    });
    let folded = fold(rest.iter().map(|part| (&part.total, &part.window)));
    let mut told: Vec<PartReport> = kept.into_iter().cloned().collect();
    told.extend(folded.map(|(total, window)| PartReport {
        key: OTHER.to_string(),
        total,
        window,
    }));
    (told, count(rest.len()))
}

/// All of them together.
fn fold<'a>(
    all: impl Iterator<Item = (&'a Figures, &'a IntervalFigures)>,
) -> Option<(Figures, IntervalFigures)> {
    let mut folded: Option<(Figures, IntervalFigures)> = None;
    for (total, window) in all {
        match &mut folded {
            Some((totals, windows)) => {
                totals.merge(total);
                merge_windows(windows, window);
            }
            None => folded = Some((total.clone(), window.clone())),
        }
    }
    folded
}

/// The weightiest, and what is to be folded together: with the one of the others, which is then not among the first; nothing
/// where that would be one alone.
fn split<'a, T>(
    all: Vec<&'a T>,
    keep: usize,
    of: impl Fn(&'a T) -> (&'a String, &'a Figures),
) -> (Vec<&'a T>, Vec<&'a T>) {
    if all.len() <= keep.saturating_add(1) {
        return (all, Vec::new());
    }
    let mut all = all;
    all.sort_by_cached_key(|one| {
        let (key, total) = of(one);
        (key == OTHER, Reverse(weight(total)))
    });
    let rest = all.split_off(keep);
    (all, rest)
}

/// How much there is of it: what it is kept before others for.
fn weight(total: &Figures) -> u64 {
    let values = total.distributions.values().map(|values| values.count());
    let sums = total.sums.values().copied();
    let levels = total.levels.values().copied();
    values.chain(sums).chain(levels).max().unwrap_or_default()
}

/// Adds what another row did in the same interval. Of which nothing was recorded, nothing is known.
fn merge_windows(window: &mut IntervalFigures, other: &IntervalFigures) {
    if other.recorded_milliseconds == 0 {
        return;
    }
    if window.recorded_milliseconds == 0 {
        *window = other.clone();
        return;
    }
    window.milliseconds = window.milliseconds.max(other.milliseconds);
    window.recorded_milliseconds = window
        .recorded_milliseconds
        .min(other.recorded_milliseconds);
    window.samples = window.samples.saturating_add(other.samples);
    window.figures.merge(&other.figures);
}
