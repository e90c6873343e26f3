//! In how much of the targets' own time calls were recorded.

use std::cmp::Ordering;

use crate::{IntervalFigures, numbers};

/// Recorded of elapsed milliseconds. Shares are added part by part, so that of many targets is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    recorded: u64,
    elapsed: u64,
}

impl Share {
    /// That of one window.
    pub fn of(window: &IntervalFigures) -> Self {
        Self {
            recorded: window.recorded_milliseconds.min(window.milliseconds),
            elapsed: window.milliseconds,
        }
    }

    /// Adds another's time.
    pub fn merge(&mut self, other: &Self) {
        self.recorded = self.recorded.saturating_add(other.recorded);
        self.elapsed = self.elapsed.saturating_add(other.elapsed);
    }

    /// Whether any calls were recorded: if not, nothing is known of them, and that is not the same as none.
    pub fn is_known(&self) -> bool {
        self.recorded > 0
    }

    /// Whether some were not recorded, of a time that has passed.
    pub fn is_sampled(&self) -> bool {
        self.recorded < self.elapsed
    }

    /// Itself, unless no interval has ended.
    pub fn of_an_interval(self) -> Option<Self> {
        (self.elapsed > 0).then_some(self)
    }

    /// Orders by the part that was recorded.
    pub fn sparseness(&self, other: &Self) -> Ordering {
        let crosswise = |a: &Self, b: &Self| u128::from(a.recorded) * u128::from(b.elapsed);
        crosswise(self, other).cmp(&crosswise(other, self))
    }

    /// As percent with three figures, if an interval has ended.
    pub fn percent(self) -> Option<String> {
        let Self { recorded, elapsed } = self.of_an_interval()?;
        Some(numbers::share(recorded, elapsed, 3))
    }

    /// What the printer column adds where calls are sampled.
    pub fn remark(self) -> String {
        match self.is_sampled() {
            true => format!(
                " ({}% sampled)",
                numbers::share(self.recorded, self.elapsed, 2)
            ),
            false => String::new(),
        }
    }
}
