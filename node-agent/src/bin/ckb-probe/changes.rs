//! How two records, or two runs of blocks, differ, in the form of `-o json`.

use std::path::Path;

use ckb_probe_agent::{
    blocks::{Difference, DifferenceRow},
    text,
};
use ckb_probe_kubectl::report::told::{between, compared};
use ckb_probe_report::History;
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
