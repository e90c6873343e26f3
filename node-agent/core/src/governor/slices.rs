//! How long and how far apart slices are, in process time. No clock, no I/O.

use std::time::Duration;

use super::{LONG, LONG_ONES, SLICE, WINDOW, finite};

/// Cells in ten seconds of the wall clock at most: one in half a second, lest attaching and detaching load the node.
const CELLS: f64 = 20.0;

/// Between two slices is room for so many turnarounds, on the average.
const TURNAROUNDS: f64 = 3.5;

/// Cells and their slices are so many times as long as they would have to be: once, on the average.
const VARIED: std::ops::Range<f64> = 0.7..1.3;

/// And no more than so many in a window: a target that is hardly ever busy has process time to spare for few.
const MOST_CELLS: f64 = 400.0;

/// Seconds on the wall that a slice lasts at most, of a target that works as it does: what it will cost is believed, not known, and
/// it lasts as long as it was drawn to.
const LONGEST_SLICE: f64 = 2.5;

/// And no more than this part of how long it is known: one that began with a burst seems to work all the time, and a slice that is
/// drawn by that would lie over all bursts of the next minute.
const LONGEST_PART: f64 = 0.25;

/// What slices are spaced by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spacing {
    /// Seconds that a slice costs besides what it measures.
    pub edge: f64,
    /// The part of the time on the wall that process time makes up.
    pub duty: f64,
    /// Seconds on the wall for which that is known.
    pub known: f64,
    /// Seconds from the end of a slice to the beginning of the next, at least.
    pub turnaround: f64,
}

/// When the sliced operations are attached: once in each period. Of the usual length, that is; some slices are [`LONG`] times as
/// long, and stand for as much more time, since what takes long is seen by those alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slices {
    /// How long they measure.
    pub open: Duration,
    /// How long they cost: `open`, and the edge.
    pub attached: Duration,
    /// From the beginning of a cell to that of the next. Longer than `attached`.
    pub period: Duration,
}

impl Slices {
    /// The part of the time in which they measure, whatever their lengths.
    pub fn share(&self) -> f64 {
        let [open, attached, period] =
            [self.open, self.attached, self.period].map(|time| time.as_secs_f64());
        let edge = attached - open;
        let mean = open * mean_length();
        (mean / (period * (mean + edge) / attached)).min(1.0)
    }

    /// How long a slice measures that is or is not one of the long ones, and its cell lasts. Both vary by a number from [0, 1), so
    /// that no rhythm of the target keeps in step with where cells begin.
    pub fn drawn(&self, long: bool, varied: f64) -> (Duration, Duration) {
        let varied = VARIED.start + (VARIED.end - VARIED.start) * finite(varied).clamp(0.0, 1.0);
        let open = self.open.mul_f64(varied * if long { LONG } else { 1.0 });
        let attached = open + (self.attached - self.open);
        let times = attached.as_secs_f64() / self.attached.as_secs_f64();
        (open, self.period.mul_f64(finite(times)))
    }

    /// Slices that are attached for the part `a` of any window, at most.
    pub(super) fn affordable(a: f64, spacing: Spacing) -> Self {
        let Spacing {
            edge, duty, known, ..
        } = spacing;
        let cells = (CELLS / finite(duty).clamp(0.001, 1.0)).min(MOST_CELLS);
        let least = SLICE + edge;
        let most = (WINDOW * a / least).min(cells + 1.0);
        let half = (WINDOW * a / (2.0 * edge)).max(2.0);
        let slices = most.min(half).floor();
        let (attached, period) = if slices >= 2.0 {
            (WINDOW * a / slices, WINDOW / (slices - 1.0))
        } else {
            (least, 2.0 * least / a)
        };
        // Wherever a slice is in its cell, and in the next: there is time to detach the one and attach the other.
        let apart = TURNAROUNDS * spacing.turnaround;
        let times = apart / (period - (attached - edge)).max(1e-9);
        let a = attached / period;
        let longest = (LONGEST_SLICE * finite(duty).clamp(0.0, 1.0)).min(known * LONGEST_PART);
        let longest = longest.max(SLICE);
        let open = ((attached - edge) * times.max(1.0)).min(longest);
        let period = ((open + edge) / a).max(open + apart);
        Self::of_mean(open + edge, edge, period)
    }

    /// Those whose mean, over both lengths, costs and lasts as long.
    fn of_mean(attached: f64, edge: f64, period: f64) -> Self {
        let open = (attached - edge) / mean_length();
        let times = (open + edge) / attached;
        Self {
            open: Duration::from_secs_f64(open),
            attached: Duration::from_secs_f64(open + edge),
            period: Duration::from_secs_f64(period * times),
        }
    }
}

/// Of slices, in usual ones.
fn mean_length() -> f64 {
    1.0 + LONG_ONES * (LONG - 1.0)
}
