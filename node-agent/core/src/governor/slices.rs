//! How long and how far apart slices are. No clock, no I/O.

use std::time::Duration;

use super::{SLICE, WINDOW, finite};

/// Cells in a window at most: a period of half a second, lest attaching and detaching load the node.
const CELLS: f64 = 20.0;

/// When the sliced operations are attached: once in each period.
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
    /// The part of the time in which they measure.
    pub fn share(&self) -> f64 {
        self.open.as_secs_f64() / self.period.as_secs_f64()
    }

    /// Where in its cell a slice begins, for a `random` number from [0, 1): uniform, so that no rhythm of the target
    /// can hide from it.
    pub fn start(&self, random: f64) -> Duration {
        // An edge lasts twice as long as it costs.
        let lasts = self.attached * 2 - self.open;
        let room = self.period.saturating_sub(lasts);
        room.mul_f64(finite(random).clamp(0.0, 1.0))
    }

    /// Slices that are attached for the part `a` of any window, at most.
    pub(super) fn affordable(a: f64, edge: f64) -> Self {
        let least = SLICE + edge;
        let most = (WINDOW * a / least).min(CELLS + 1.0);
        let half = (WINDOW * a / (2.0 * edge)).max(2.0);
        let slices = most.min(half).floor();
        if slices >= 2.0 {
            Self::new(WINDOW * a / slices, edge, WINDOW / (slices - 1.0))
        } else {
            Self::new(least, edge, 2.0 * least / a)
        }
    }

    /// The first look at operations that may cost anything.
    pub(super) fn discovery(edge: f64) -> Self {
        let least = SLICE + edge;
        Self::new(least, edge, (2.0 * least).max(WINDOW / CELLS))
    }

    fn new(attached: f64, edge: f64, period: f64) -> Self {
        Self {
            open: Duration::from_secs_f64(attached - edge),
            attached: Duration::from_secs_f64(attached),
            period: Duration::from_secs_f64(period),
        }
    }
}
