//! When a report is written: once in each interval of the node, however many targets end theirs at whatever times.
//!
//! The shortest interval that anybody asks for is the node's. What changes how a target stands (it is attached, it fires, its
//! process is gone) does not wait for the end of it, but never are two reports closer together than the shortest interval that
//! anybody could ask for. Where the API server is slow to take reports, the interval is [longer](strain).

pub mod backpressure;

use std::time::Duration;

use tokio::time::Instant;

/// No two reports are closer together.
pub const FLOOR: Duration = Duration::from_secs(1);

/// The end of an interval is late by some of these at each turn; those of targets may be so by more.
const MOST_SLACK: Duration = Duration::from_millis(250);

/// What is new since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    /// Nothing is new.
    #[default]
    None,
    /// Figures of an interval that ended.
    Figures,
    /// How some target stands, or which orders are carried out.
    Standing,
}

/// Says when the next report is due.
#[derive(Debug)]
pub struct Pace {
    started: Instant,
    floor: Duration,
    written: Option<Instant>,
    /// When figures were written last. A report in between, of how a target stands, does not put theirs off: they would be late by
    /// as much from then on.
    figures: Option<Instant>,
    has_figures: bool,
    news: News,
}

impl Pace {
    /// Nothing was written yet. No two reports are to be closer together than `floor`: [`FLOOR`] but in tests.
    pub fn new(now: Instant, floor: Duration) -> Self {
        Self {
            started: now,
            floor,
            written: None,
            figures: None,
            has_figures: false,
            news: News::None,
        }
    }

    /// Something is new.
    pub fn note(&mut self, news: News) {
        self.has_figures |= news == News::Figures;
        self.news = self.news.max(news);
    }

    /// When a report is due, where reports are asked for at this interval, and any two have to be so far apart; None where nobody
    /// asks for any.
    ///
    /// Without any news it is due all the same: a target without a process ends no interval, and an agent that says nothing
    /// for three of them counts as silent.
    pub fn due(&self, interval: Option<Duration>, apart: Duration) -> Option<Instant> {
        let Some(written) = self.written else {
            return match self.news {
                News::None => Some(self.started + interval?),
                News::Figures | News::Standing => Some(self.started),
            };
        };
        if self.news == News::Standing {
            return Some(written + self.floor.max(apart));
        }
        let interval = interval?.max(self.floor);
        let slack = (interval / 20).min(MOST_SLACK);
        Some(match self.news {
            // A little sooner than an interval later: that of a target which ends at that time, give or take some
            // milliseconds, is in it.
            News::Figures | News::Standing => {
                // The first ones set the pace.
                let next = self.figures.map(|figures| figures + (interval - slack));
                next.unwrap_or(written).max(written + self.floor.max(apart))
            }
            News::None => written + interval + slack,
        })
    }

    /// A report with all news was written.
    pub fn written(&mut self, now: Instant) {
        self.written = Some(now);
        if self.has_figures {
            self.figures = Some(now);
        }
        self.has_figures = false;
        self.news = News::None;
    }
}

#[cfg(test)]
mod tests;
