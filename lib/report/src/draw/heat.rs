//! Heat maps: how many calls took how long, in each column of time.

use std::{collections::BTreeMap, fmt::Write as _, ops::Range};

use ckb_probe_figures::histogram::{SUBBUCKETS, bounds};

use super::{Axis, axes, time_labels, written};
use crate::content::{Heat, Scale};

/// Steps of the heat: `h0` to `h8` of the style sheet.
const STEPS: usize = 9;

/// Buckets of a histogram that are one row: a quarter of a power of two; or a half, of what spans more than so many.
const FINE: u32 = SUBBUCKETS as u32 / 4;
const COARSE: u32 = SUBBUCKETS as u32 / 2;
const SPANS: u32 = 32 * FINE;

/// The drawing is so many units wide: cells are whole numbers of them, which is short to write.
const UNITS: u64 = 960;

/// A heat map, with what its steps are; empty where there is nothing to draw.
pub fn heat(of: &Heat) -> String {
    let Some((each, folded)) = fold(of) else {
        return String::new();
    };
    let keys = || folded.iter().flatten().flat_map(BTreeMap::keys);
    let counts = || folded.iter().flatten().flat_map(BTreeMap::values);
    let (Some(low), Some(high), Some(most)) = (keys().min(), keys().max(), counts().max()) else {
        return String::new();
    };
    let (Some((from, _)), Some((_, to))) = (of.columns.first(), of.columns.last()) else {
        return String::new();
    };
    let edge = |row: u32| bounds(row * each).start.max(1) as f64;
    let (low, high) = (*low, *high + 1);
    let scale = if of.time {
        Scale::Nanoseconds
    } else {
        Scale::Number
    };
    // Rows are of one height: their edges are written where they are.
    let up = |row: f64| written(scale, edge(row.round().max(0.0) as u32));
    let clock = time_labels(*from as f64, *to as f64);
    let height = (60 + 5 * (high - low)).clamp(110, 260);
    let svg = axes(
        height,
        &Axis {
            range: *from as f64..*to as f64,
            labels: 8,
            written: &clock,
        },
        &Axis {
            range: f64::from(low)..f64::from(high),
            labels: 5,
            written: &up,
        },
        &mut |at, out| {
            let (left, top) = at(*from as f64, f64::from(high));
            let (right, bottom) = at(*to as f64, f64::from(low));
            let paths = Paths::of(&folded, &of.columns, low..high, *most);
            let (wide, tall) = (
                (right - left) / UNITS as f64,
                (bottom - top) / f64::from(high - low),
            );
            let _ = write!(
                out,
                "<g transform=\"translate({left:.1} {top:.1}) scale({wide:.5} {tall:.5})\">"
            );
            paths.write(*most, out);
            out.push_str("</g>");
        },
    );
    let keys = (0..STEPS).map(|place| {
        format!("<svg viewBox=\"0 0 1 1\" class=\"cell\"><path class=\"h{place} cells\" d=\"M0 .5h1\"/></svg>")
    });
    format!(
        "{svg}<p class=\"names\">1 {} {most} in a cell; grey: not known</p>",
        keys.collect::<String>()
    )
}

/// The counts of a column by row; None where nothing is known.
type Column = Option<BTreeMap<u32, u64>>;

/// How many buckets are a row, and the counts of each column by row; None where there are none.
fn fold(of: &Heat) -> Option<(u32, Vec<Column>)> {
    let buckets = || {
        of.counts
            .iter()
            .flatten()
            .flatten()
            .map(|(bucket, _)| *bucket)
    };
    let (least, greatest) = (buckets().min()?, buckets().max()?);
    let each = if greatest - least > SPANS {
        COARSE
    } else {
        FINE
    };
    let columns = of.counts.iter().map(|counts| {
        let counts = counts.as_ref()?;
        let mut rows = BTreeMap::new();
        for (bucket, count) in counts {
            *rows.entry(bucket / each).or_insert(0) += count;
        }
        Some(rows)
    });
    Some((each, columns.collect()))
}

/// Cells as paths of SVG, whose units are rows and parts of the time.
struct Paths {
    /// Where nothing is known.
    unknown: String,
    /// The cells of each step.
    steps: Vec<String>,
}

impl Paths {
    /// Of these columns, each from one time to another, and of these rows: the last of them is at the top.
    fn of(folded: &[Column], columns: &[(u64, u64)], shown: Range<u32>, most: u64) -> Self {
        let mut paths = Self {
            unknown: String::new(),
            steps: vec![String::new(); STEPS],
        };
        let (from, to) = match columns {
            [(from, _), .., (_, to)] | [(from, to)] => (*from, *to),
            [] => return paths,
        };
        let unit = |time: u64| (time - from) * UNITS / (to - from).max(1);
        let mut close = |row: u32, (step, from, to): (usize, u64, u64)| {
            let _ = write!(
                paths.steps[step],
                "M{from} {}h{}",
                shown.end - 1 - row,
                (to - from).max(1)
            );
        };
        // Cells of one step that follow each other in a row are one.
        let mut open: BTreeMap<u32, (usize, u64, u64)> = BTreeMap::new();
        let none = BTreeMap::new();
        for (rows, (begins, ends)) in folded.iter().zip(columns) {
            let (begins, ends) = (unit(*begins), unit(*ends));
            if rows.is_none() {
                let _ = write!(
                    paths.unknown,
                    "M{begins} 0h{}v{}h-{0}z",
                    (ends - begins).max(1),
                    shown.end - shown.start
                );
            }
            let rows = rows.as_ref().unwrap_or(&none);
            let is_same = |row: &u32, step: usize, end: u64| {
                end == begins
                    && rows
                        .get(row)
                        .is_some_and(|count| step_of(*count, most) == step)
            };
            let over: Vec<u32> = open
                .iter()
                .filter(|(row, (step, _, end))| !is_same(row, *step, *end))
                .map(|(row, _)| *row)
                .collect();
            for row in over {
                if let Some(cell) = open.remove(&row) {
                    close(row, cell);
                }
            }
            for (row, count) in rows.iter().filter(|(_, count)| **count > 0) {
                open.entry(*row)
                    .or_insert((step_of(*count, most), begins, ends))
                    .2 = ends;
            }
        }
        for (row, cell) in open {
            close(row, cell);
        }
        paths
    }

    /// With what each step stands for, where the most that a cell has is this.
    fn write(&self, most: u64, out: &mut String) {
        let _ = write!(
            out,
            "<path class=\"unknown\" d=\"{}\"><title>not known</title></path><g class=\"cells\" transform=\"translate(0 .5)\">",
            self.unknown
        );
        let steps = self.steps.iter().enumerate();
        for (place, path) in steps.filter(|(_, path)| !path.is_empty()) {
            let (least, most) = range(place, most);
            let _ = write!(
                out,
                "<path class=\"h{place}\" d=\"{path}\"><title>{least} to {most} in a cell</title></path>"
            );
        }
        out.push_str("</g>");
    }
}

/// The step of a count: by logarithms, the most has the last.
fn step_of(count: u64, most: u64) -> usize {
    let part = (count as f64).ln() / (most.max(2) as f64).ln();
    ((part * (STEPS - 1) as f64).round() as usize).min(STEPS - 1)
}

/// The least and the most of a step.
fn range(place: usize, most: u64) -> (u64, u64) {
    let at = |place: f64| (most.max(2) as f64).powf((place / (STEPS - 1) as f64).clamp(0.0, 1.0));
    let place = place as f64;
    (
        at(place - 0.5).ceil() as u64,
        at(place + 0.5).floor() as u64,
    )
}
