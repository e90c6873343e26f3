//! A report as Markdown: the same sections, sentences and tables; what a page draws is a line of small bars, with its least and its most.

use std::fmt::Write as _;

use ckb_probe_crds::Histogram;
use ckb_probe_profiles::{functions, text::shown};

use crate::{
    content::{Across, Block, Content, Heat, Lines, Scale, Table},
    draw::written,
    times::clock,
};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// So wide is a line of bars.
const WIDE: usize = 60;

/// So many functions stand for a flame graph.
const FUNCTIONS: usize = 15;

/// The text.
pub fn text(content: &Content) -> String {
    let mut out = format!("# {}\n", escaped(&content.title));
    for section in &content.sections {
        let _ = write!(out, "\n## {}\n", escaped(&section.title));
        for block in &section.blocks {
            let written = match block {
                Block::Text(text) => escaped(text) + "\n",
                Block::Table(table) => table_of(table),
                Block::Lines(lines) => lines_of(lines),
                Block::Heat(heat) => heat_of(heat),
                Block::Flames(name, profile) => {
                    let stacks = &profile.stacks;
                    let top = functions::top(stacks, stacks.shown(), FUNCTIONS);
                    let percent = |weight: u64| {
                        format!("{:.1} %", 100.0 * weight as f64 / top.of.max(1) as f64)
                    };
                    let rows = top
                        .by_self
                        .iter()
                        .map(|one| vec![one.name.clone(), percent(one.itself), percent(one.total)]);
                    let head = ["FUNCTION", "ITSELF", "WITH WHAT IT CALLS"];
                    let table = Table {
                        head: head.map(str::to_owned).to_vec(),
                        rows: rows.collect(),
                        numbers: true,
                    };
                    format!("{}:\n\n{}", escaped(name), table_of(&table))
                }
            };
            if !written.is_empty() {
                let _ = write!(out, "\n{written}");
            }
        }
    }
    out
}

fn table_of(table: &Table) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let marks: Vec<&str> = (0..table.head.len())
        .map(|place| {
            if table.numbers && place > 0 {
                "---:"
            } else {
                "---"
            }
        })
        .collect();
    let rows: String = table.rows.iter().map(|row| line(row)).collect();
    format!("{}| {} |\n{rows}", line(&table.head), marks.join(" | "))
}

fn lines_of(lines: &Lines) -> String {
    let (Some(first), Some(last)) = (lines.places.first(), lines.places.last()) else {
        return String::new();
    };
    let place = |place: f64| match lines.across {
        Across::Time => clock(place as u64),
        Across::Height => format!("{}", place as u64),
    };
    let mut out = format!(
        "{}, from {} to {}:\n\n",
        escaped(&lines.title),
        place(*first),
        place(*last)
    );
    for (name, values) in &lines.lines {
        let known = || values.iter().flatten().copied();
        let (least, most) = (
            known().fold(f64::INFINITY, f64::min),
            known().fold(f64::NEG_INFINITY, f64::max),
        );
        if least.is_finite() {
            let _ = writeln!(
                out,
                "- `{}` {}: {} to {}",
                bars(values, lines.scale),
                escaped(name),
                written(lines.scale, least),
                written(lines.scale, most)
            );
        }
    }
    out
}

/// Bars of the values: of as many that follow each other the greatest; a space where nothing is known.
fn bars(values: &[Option<f64>], scale: Scale) -> String {
    let each = values.len().div_ceil(WIDE).max(1);
    let greatest: Vec<Option<f64>> = values
        .chunks(each)
        .map(|chunk| chunk.iter().flatten().copied().reduce(f64::max))
        .collect();
    let sized = |value: f64| match scale {
        Scale::Nanoseconds => value.max(1.0).ln(),
        Scale::Number | Scale::Percent => value,
    };
    let known = || greatest.iter().flatten().map(|value| sized(*value));
    let least = match scale {
        Scale::Nanoseconds => known().fold(f64::INFINITY, f64::min),
        Scale::Number | Scale::Percent => 0.0,
    };
    let span = (known().fold(0.0, f64::max) - least).max(f64::MIN_POSITIVE);
    let bar = |value: &Option<f64>| match value {
        None => ' ',
        Some(value) => {
            let part = (sized(*value) - least) / span;
            BARS[((part * 7.0).round() as usize).min(7)]
        }
    };
    greatest.iter().map(bar).collect()
}

/// The distribution over all of the time, and the median of each column.
fn heat_of(heat: &Heat) -> String {
    let scale = if heat.time {
        Scale::Nanoseconds
    } else {
        Scale::Number
    };
    let mut all = Histogram::default();
    let medians: Vec<Option<f64>> = heat
        .counts
        .iter()
        .map(|counts| {
            let of: Histogram = counts.as_ref()?.iter().copied().collect();
            all.merge(&of);
            of.quantile(0.5).map(|median| median as f64)
        })
        .collect();
    let quantile = |of: f64| {
        all.quantile(of)
            .map_or_else(|| "-".to_owned(), |value| written(scale, value as f64))
    };
    format!(
        "- `{}` median of {}; of all {}: p50 {}, p90 {}, p99 {}, p99.9 {}\n",
        bars(&medians, scale),
        escaped(&heat.title),
        all.count(),
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(0.999),
    )
}

/// A text as Markdown has it: names are whoever's, and are to be no markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '#' | '!' => {
                out.push('\\');
                out.push(letter);
            }
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            _ if letter.is_control() => out.push(' '),
            _ => out.push(shown(letter)),
        }
    }
    out
}
