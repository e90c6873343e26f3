//! Makes a drawing one of differences.
//!
//! The library draws differences too, but tells of each function only how much itself changed: of one that calls nothing but slow
//! functions it says that nothing did. Here each tells how much it and all that it called changed, in colour and in words.

use std::{collections::BTreeSet, ops::Range};

use super::{colours::colour, diff};

/// What stands before each function's text.
const BEGIN: &str = "<g><title>";

/// A function as it is drawn: what stands between one [`BEGIN`] and the next.
struct Drawn<'a> {
    text: &'a str,
    /// Where in it its title's figures are, behind the name.
    figures: Range<usize>,
    fill: Range<usize>,
    x: u64,
    y: u64,
}

impl<'a> Drawn<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let end = text.find("</title>")?;
        let begin = text[..end].rfind(" (")?;
        let attribute = |name: &str| {
            let at = end + text[end..].find(name)? + name.len();
            Some(at..at + text[at..].find('"')?)
        };
        Some(Self {
            text,
            figures: begin..end,
            fill: attribute(" fill=\"")?,
            x: text[attribute(" fg:x=\"")?].parse().ok()?,
            y: text[attribute(" y=\"")?].parse().ok()?,
        })
    }
}

/// The drawing with what there was and is of each function, by where it begins and how many are below it, in its text and its
/// colour. What may be chance is said to be noise, and has no colour.
pub fn compared(svg: &str, of: &diff::Drawn) -> String {
    let frames = &of.frames;
    let mut parts = svg.split(BEGIN);
    let mut out = parts.next().unwrap_or_default().to_owned();
    let drawn: Vec<Result<Drawn, &str>> = parts.map(|part| Drawn::of(part).ok_or(part)).collect();
    // What is below has the greater y.
    let levels: BTreeSet<u64> = drawn.iter().flatten().map(|one| one.y).collect();
    let level = |y: u64| levels.range(y + 1..).count();
    let all = frames.get(&(0, 0)).copied().unwrap_or_default();
    let most = (frames.iter().filter(|((_, below), _)| *below > 0))
        .map(|(_, weights)| change(*weights, all).abs())
        .fold(0.0, f64::max);
    for one in drawn {
        out += BEGIN;
        let one = match one {
            Ok(one) => one,
            Err(other) => {
                out += other;
                continue;
            }
        };
        let Some(weights) = frames.get(&(one.x, level(one.y))) else {
            out += one.text;
            continue;
        };
        let [before, after] = percent(*weights, all);
        let change = change(*weights, all);
        let noise = of.is_noise([before / 100.0, after / 100.0]);
        let depth = if most > 0.0 && !noise {
            change / most
        } else {
            0.0
        };
        let [red, green, blue] = colour(depth);
        let noise = if noise { ", noise" } else { "" };
        out += &one.text[..one.figures.start];
        out += &format!(" ({before:.2}% before, {after:.2}% after: {change:+.2}{noise})");
        out += &one.text[one.figures.end..one.fill.start];
        out += &format!("rgb({red},{green},{blue})");
        out += &one.text[one.fill.end..];
    }
    out
}

/// Of what there was, and of what there is.
fn percent(weights: [u64; 2], all: [u64; 2]) -> [f64; 2] {
    [0, 1].map(|place| 100.0 * weights[place] as f64 / all[place].max(1) as f64)
}

/// By how many percent of all it changed.
fn change(weights: [u64; 2], all: [u64; 2]) -> f64 {
    let [before, after] = percent(weights, all);
    after - before
}
