//! Flame graphs, by inferno.

use std::io;

use inferno::flamegraph::{self, Options, Palette, color::MultiPalette};

use super::{Difference, View, compared::compared, folded, page};
use crate::{SampleType, Stacks, categories, functions::top};

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum RenderError {
    #[error("there is nothing to draw: no stack of the profile has any {0}")]
    Nothing(String),
    #[error("it cannot be drawn: its weights add up to {0}, which is beyond all measure")]
    TooMuch(u64),
    #[error("it cannot be drawn: {0}")]
    Draw(#[from] io::Error),
}

/// What is drawn is added up, and doubled where it is gone, in numbers with a sign: 18 years of nanoseconds.
const DRAWN_LIMIT: u64 = 1 << 59;

/// How many functions a page lists.
const LISTED: usize = 20;

/// A flame graph as SVG, which a browser searches (Ctrl-F) and zooms (a click).
///
/// # Errors
///
/// When there is nothing to draw.
pub fn svg(stacks: &Stacks, view: View, title: &str) -> Result<String, RenderError> {
    let of = shown(stacks, view)?;
    let mut options = options(&of, title);
    options.subtitle = Some(categories::summary(stacks));
    options.colors = Palette::Multi(MultiPalette::Rust);
    options.hash = true;
    let text = folded(stacks, view);
    draw(&mut options, text.lines())
}

/// A page by itself: the flame graph, a field to search it, and the functions that are seen most. It loads nothing.
///
/// # Errors
///
/// When there is nothing to draw.
pub fn html(stacks: &Stacks, view: View, title: &str) -> Result<String, RenderError> {
    let of = shown(stacks, view)?;
    let svg = svg(stacks, view, title)?;
    let top = top(stacks, view.place, LISTED);
    Ok(page::page(title, &svg, &page::tables(&top, &of)))
}

/// What became of one profile in another, as SVG: what there is more of is orange, what there is less of is blue.
///
/// # Errors
///
/// When there is nothing to draw.
pub fn diff_svg(
    difference: &Difference,
    of: &SampleType,
    title: &str,
) -> Result<String, RenderError> {
    let mut options = options(of, title);
    let most = difference.before.max(difference.after);
    if most > DRAWN_LIMIT {
        return Err(RenderError::TooMuch(most));
    }
    let (factor, unit) = unit(of);
    let amount = |sum: u64| format!("{:.0} {unit}", sum as f64 * factor);
    options.subtitle = Some(format!(
        "orange: more, blue: less, grey: noise or no change, in percent of all: {} before, {} after; what is [gone] is as wide as it was",
        amount(difference.before),
        amount(difference.after),
    ));
    let drawn = difference.drawn();
    if drawn.lines.is_empty() {
        return Err(RenderError::Nothing(of.name.clone()));
    }
    // They are in order already, by whole names: the library would go by letters, and draw `main!` in the midst of `main`.
    // It takes an order as it is when it believes it to be one of time, and then from the last to the first.
    options.flame_chart = true;
    let svg = draw(&mut options, drawn.lines.iter().rev().map(String::as_str))?;
    Ok(compared(&svg, &drawn))
}

/// The same as a page by itself.
///
/// # Errors
///
/// When there is nothing to draw.
pub fn diff_html(
    difference: &Difference,
    of: &SampleType,
    title: &str,
) -> Result<String, RenderError> {
    let svg = diff_svg(difference, of, title)?;
    Ok(page::page(title, &svg, ""))
}

fn shown(stacks: &Stacks, view: View) -> Result<SampleType, RenderError> {
    let of = stacks.types().get(view.place).cloned();
    let of = of.unwrap_or_else(|| SampleType::new("weight", ""));
    match stacks.total(view.place) {
        0 => Err(RenderError::Nothing(of.name)),
        total if total > DRAWN_LIMIT => Err(RenderError::TooMuch(total)),
        _ => Ok(of),
    }
}

fn options(of: &SampleType, title: &str) -> Options<'static> {
    let (factor, unit) = unit(of);
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = unit.to_owned();
    options.factor = factor;
    options
}

/// What a person counts in, and how much of it one is.
pub(super) fn unit(of: &SampleType) -> (f64, &str) {
    match of.unit.as_str() {
        "nanoseconds" => (1e-6, "ms"),
        "microseconds" => (1e-3, "ms"),
        "bytes" => (1.0 / 1024.0, "KiB"),
        "count" => (1.0, &of.name),
        unit => (1.0, unit),
    }
}

fn draw<'a>(
    options: &mut Options<'_>,
    lines: impl Iterator<Item = &'a str>,
) -> Result<String, RenderError> {
    let mut svg = Vec::new();
    flamegraph::from_lines(options, lines, &mut svg)?;
    String::from_utf8(svg).map_err(|error| RenderError::Draw(io::Error::other(error)))
}
