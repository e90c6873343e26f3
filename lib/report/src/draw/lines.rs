//! Lines, over time or over heights.

use std::fmt::Write as _;

use ckb_probe_profiles::text::html;

use super::{Axis, axes, on_axis, time_labels, written};
use crate::content::{Across, Lines, Scale};

/// A chart with its lines, and what each is below it; empty where there is nothing to draw.
pub fn lines(of: &Lines) -> String {
    let values = || of.lines.iter().flat_map(|(_, values)| values).flatten();
    let shown = || values().map(|value| on_axis(of.scale, *value));
    let (Some(first), Some(last)) = (of.places.first(), of.places.last()) else {
        return String::new();
    };
    let most = shown().fold(f64::NEG_INFINITY, f64::max);
    if !most.is_finite() {
        return String::new();
    }
    let least = match of.scale {
        Scale::Nanoseconds => shown().fold(f64::INFINITY, f64::min).floor(),
        Scale::Number | Scale::Percent => 0.0,
    };
    let top = match of.scale {
        Scale::Nanoseconds => most.ceil(),
        Scale::Number | Scale::Percent => most * 1.05,
    };
    let clock = time_labels(*first, *last);
    let across = |value: f64| match of.across {
        Across::Time => clock(value),
        Across::Height => format!("{}", value as u64),
    };
    let up = |value: f64| match of.scale {
        Scale::Nanoseconds => written(of.scale, 10_f64.powf(value).round()),
        Scale::Number | Scale::Percent => written(of.scale, value),
    };
    let axis = |range, labels, written| Axis {
        range,
        labels,
        written,
    };
    let right = last.max(first + 1.0);
    let svg = axes(
        230,
        &axis(*first..right, 8, &across),
        &axis(least..top.max(least + 1e-9), 5, &up),
        &mut |at, out| {
            for (place, (name, values)) in of.lines.iter().enumerate() {
                let path = path(&of.places, values, &|x, y| at(x, on_axis(of.scale, y)));
                let _ = write!(
                    out,
                    "<path class=\"line l{place}\" d=\"{path}\"><title>{}</title></path>",
                    html(name)
                );
            }
        },
    );
    let names = of.lines.iter().enumerate().map(|(place, (name, values))| {
        let last = values.iter().rev().flatten().next();
        let last = last.map_or_else(String::new, |value| format!(" ({} at the end)", written(of.scale, *value)));
        format!(
            "<span class=\"name\"><svg viewBox=\"0 0 34 8\" class=\"key\"><path class=\"line l{place}\" d=\"M0 4H34\"/></svg> {}{last}</span>",
            html(name)
        )
    });
    format!("{svg}<p class=\"names\">{}</p>", names.collect::<String>())
}

/// A line that is broken where nothing is known. A value with nothing known on either side is a dot.
fn path(places: &[f64], values: &[Option<f64>], at: &dyn Fn(f64, f64) -> (f64, f64)) -> String {
    let mut path = String::new();
    let mut drawing = false;
    for (place, value) in places.iter().zip(values) {
        match value {
            None => drawing = false,
            Some(value) => {
                let (x, y) = at(*place, *value);
                let letter = if drawing { 'L' } else { 'M' };
                let _ = write!(path, "{letter}{x:.1} {y:.1}");
                if !drawing {
                    path.push_str("h.1");
                }
                drawing = true;
            }
        }
    }
    path
}
