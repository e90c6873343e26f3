//! Drawings as SVG without a script: readable on paper, without colours, and in the dark.
//!
//! Axes are by `plotters`. What is drawn between them is paths with classes, so that the style sheet has the colours, and with a
//! `<title>`, so that a pointer is told what it points at. Lines have the colours of Okabe and Ito's palette, and a pattern of dashes
//! each; heat is cividis, which grows lighter by the same step for everybody.

mod flames;
mod heat;
mod lines;

use plotters::prelude::*;

pub use self::{flames::flames, heat::heat, lines::lines};
use crate::{content::Scale, times::tick};

/// Wide enough for paper.
const WIDTH: u32 = 900;

/// What numbers an axis has, and how they are written.
struct Axis<'a> {
    range: std::ops::Range<f64>,
    labels: usize,
    written: &'a dyn Fn(f64) -> String,
}

/// Where a place is, in pixels.
type At<'a> = &'a dyn Fn(f64, f64) -> (f64, f64);

/// Axes of this height, with what is drawn between them.
fn axes(height: u32, across: &Axis, up: &Axis, draw: &mut dyn FnMut(At, &mut String)) -> String {
    let mut svg = String::new();
    let mut between = String::new();
    let drawn = (|| -> Option<()> {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .x_label_area_size(26)
            .y_label_area_size(70)
            .build_cartesian_2d(across.range.clone(), up.range.clone())
            .ok()?;
        chart
            .configure_mesh()
            .x_labels(across.labels)
            .y_labels(up.labels)
            .max_light_lines(0)
            .x_label_formatter(&|value| (across.written)(*value))
            .y_label_formatter(&|value| (up.written)(*value))
            .draw()
            .ok()?;
        let area = chart.plotting_area();
        let (wide, high) = area.get_pixel_range();
        let span = |range: &std::ops::Range<f64>| (range.end - range.start).max(f64::MIN_POSITIVE);
        let at = |x: f64, y: f64| {
            let part = ((x - across.range.start) / span(&across.range)).clamp(0.0, 1.0);
            let up = ((y - up.range.start) / span(&up.range)).clamp(0.0, 1.0);
            let (left, right) = (f64::from(wide.start), f64::from(wide.end));
            let (top, bottom) = (f64::from(high.start), f64::from(high.end));
            (left + part * (right - left), bottom - up * (bottom - top))
        };
        draw(&at, &mut between);
        root.present().ok()
    })();
    if drawn.is_none() {
        return String::new();
    }
    // Whatever it is shown at, and of no size of its own.
    let opened = format!("<svg class=\"chart\" role=\"img\" viewBox=\"0 0 {WIDTH} {height}\">");
    let inner = svg.split_once('>').map_or("", |(_, inner)| inner);
    let inner = inner.replace(" opacity=\"1\"", "").replace('\n', "");
    let inner = inner.trim_end_matches("</svg>");
    format!("{opened}{inner}{between}</svg>")
}

/// A value on an axis, of which nanoseconds are logarithms.
fn on_axis(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Nanoseconds => value.max(1.0).log10(),
        Scale::Number | Scale::Percent => value,
    }
}

/// How a value is written.
pub fn written(scale: Scale, value: f64) -> String {
    match scale {
        Scale::Nanoseconds => ckb_probe_figures::display_nanos(value.max(0.0) as u64),
        Scale::Number => short(value),
        Scale::Percent => format!("{}%", ckb_probe_crds::numbers::rate(value)),
    }
}

/// Numbers of an axis, in a few letters.
fn short(value: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let unit = UNITS.iter().find(|(scale, _)| value >= *scale * 10.0);
    let (scale, unit) = unit.copied().unwrap_or((1.0, ""));
    format!("{}{unit}", ckb_probe_crds::numbers::rate(value / scale))
}

/// How times are written on an axis that has these.
fn time_labels(from: f64, to: f64) -> impl Fn(f64) -> String {
    move |value| tick(value.max(0.0) as u64, (to - from).max(0.0) as u64)
}
