//! The last intervals of each row, and how they are drawn: a strip of bars.

use std::{collections::VecDeque, time::Duration};

use ckb_probe_views::top::Row;

use crate::columns::Sort;

/// So many intervals are kept of a row.
const KEPT: usize = 300;

/// A strip shows at least about that much time, where there is as much.
const SPAN: Duration = Duration::from_secs(180);

/// From little to much. What was seen to be nothing has a bar, too; what was not seen has none.
const BARS: [char; 9] = ['_', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What was told of a row, interval by interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    points: VecDeque<[Option<f32>; 3]>,
    /// How many there were in all: what is drawn together stays together.
    all: u64,
}

/// Which of the three figures of a point.
fn place(sort: Sort) -> usize {
    match sort {
        Sort::Name | Sort::Rate => 0,
        Sort::P99 => 1,
        Sort::Time => 2,
    }
}

impl History {
    /// Adds an interval; None where nothing was told of it.
    pub fn push(&mut self, row: Option<&Row>) {
        let figures = row.map(|row| [&row.rate, &row.p99, &row.time]);
        let numbers = figures.map(|all| all.map(|one| one.as_ref().map(|one| one.number as f32)));
        self.points.push_back(numbers.unwrap_or_default());
        self.all += 1;
        if self.points.len() > KEPT {
            self.points.pop_front();
        }
    }

    /// A strip of so many characters, the newest on the right, each with the heat that it has: 0 to 8. None: nothing was seen.
    pub fn strip(&self, sort: Sort, width: usize, interval: Duration) -> Vec<Option<u8>> {
        let together = together(width, interval);
        let place = place(sort);
        let first = self.all - self.points.len() as u64;
        let mut cells: Vec<(u64, Option<f32>)> = Vec::new();
        for (index, point) in (first..).zip(&self.points) {
            let cell = index / together;
            let value = point[place].filter(|value| value.is_finite());
            match cells.last_mut().filter(|(last, _)| *last == cell) {
                Some((_, held)) => *held = most(*held, value),
                None => cells.push((cell, value)),
            }
        }
        let shown = &cells[cells.len().saturating_sub(width)..];
        let greatest = shown.iter().fold(None, |all, (_, value)| most(all, *value));
        let greatest = greatest.unwrap_or_default();
        let missing = std::iter::repeat_n(None, width - shown.len());
        let heat = shown
            .iter()
            .map(|(_, value)| Some(level((*value)?, greatest)));
        missing.chain(heat).collect()
    }
}

/// How many intervals are drawn as one.
fn together(width: usize, interval: Duration) -> u64 {
    let all = interval.as_millis().max(1) * width.max(1) as u128;
    u64::try_from(SPAN.as_millis() / all).unwrap_or(1).max(1)
}

/// How much time a strip of that width shows.
pub fn span(width: usize, interval: Duration) -> Duration {
    interval * u32::try_from(width as u64 * together(width, interval)).unwrap_or(u32::MAX)
}

fn most(a: Option<f32>, b: Option<f32>) -> Option<f32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (one, other) => one.or(other),
    }
}

fn level(value: f32, greatest: f32) -> u8 {
    if value <= 0.0 || greatest <= 0.0 {
        return 0;
    }
    ((value / greatest * 8.0).ceil() as u8).clamp(1, 8)
}

/// The character of a heat.
pub fn bar(heat: Option<u8>) -> char {
    heat.map_or(' ', |heat| BARS[usize::from(heat.min(8))])
}
