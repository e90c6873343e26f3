//! How two records, or two runs of blocks, differ, in the form of `-o json`.

use std::path::Path;

use ckb_probe_agent::{
    blocks::{Difference, DifferenceRow},
    text,
};
use ckb_probe_figures::comparison::Comparison;
use ckb_probe_report::{
    History,
    content::{Change, confidence, ordered},
};
use ckb_probe_views::{
    document::{Document, View},
    records::{Changes, FigureChange},
};

/// A line of two runs of blocks.
pub fn of_blocks(files: [&Path; 2], difference: &Difference) -> String {
    let [before, after] = files.map(text::of_path);
    let [blocks_before, blocks_after] = difference.blocks.map(|count| count as u64);
    line(Changes {
        before,
        after,
        blocks_before: Some(blocks_before),
        blocks_after: Some(blocks_after),
        paired: difference.paired,
        confidence: difference.confidence,
        too_few: 0,
        figures: difference.rows.iter().map(of_row).collect(),
    })
}

/// A line of two records.
pub fn of_records(before: (&str, &History), after: (&str, &History)) -> String {
    line(between(before, after))
}

/// What has changed from a record to another.
pub fn between(before: (&str, &History), after: (&str, &History)) -> Changes {
    let (changes, few) = ordered(before.1, after.1);
    Changes {
        before: before.0.to_owned(),
        after: after.0.to_owned(),
        confidence: confidence(changes.len()),
        too_few: few as u64,
        figures: changes.iter().map(of_figure).collect(),
        ..Changes::default()
    }
}

fn line(changes: Changes) -> String {
    Document::of(View::Changes(changes)).line() + "\n"
}

fn of_row(row: &DifferenceRow) -> FigureChange {
    FigureChange {
        figure: row.told.field.to_owned(),
        unit: row.told.unit().to_owned(),
        statistic: row.statistic.as_str().to_owned(),
        is: row.verdict().to_owned(),
        ..compared(&row.comparison)
    }
}

fn of_figure(change: &Change) -> FigureChange {
    FigureChange {
        probe: Some(change.probe.clone()),
        row: Some(change.row.clone()),
        part: change.part.clone(),
        figure: change.name.to_owned(),
        unit: change.unit(),
        statistic: change.statistic().as_str().to_owned(),
        is: change.word().to_owned(),
        ..compared(&change.comparison)
    }
}

fn compared(of: &Comparison) -> FigureChange {
    FigureChange {
        before: of.before,
        after: of.after,
        change: of.change(),
        low: of.low,
        high: of.high,
        ..FigureChange::default()
    }
}
