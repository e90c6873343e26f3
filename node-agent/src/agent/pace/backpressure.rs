//! How an agent yields to an API server that is slow to take its reports: what a tool does beside it is to write less, not more.
//!
//! Each agent goes by what its own reports meet, as who sends packets does without knowing of the others: to write takes a tenth of
//! its time at the most. What an API server cannot take waits, so writing takes longer, and so there is less of it, until what
//! waits is no more: a thousand agents settle at what it takes, each with its share. And since what is written stays in the API
//! server's store for minutes, also where that is quick, large reports are farther apart than small ones.

use std::time::Duration;

/// Reports are so many times as far apart as it takes to write one.
const TIMES: u32 = 10;

/// Beyond the interval that is asked for, by no more than this factor. An API server that is beyond help is not helped by less.
pub const MOST: u32 = 6;

/// So many bytes an agent writes in a second, at most. The store keeps every version for five minutes and has 2 GiB by default:
/// with so many of each agent, for a hundred of them.
const BYTES_PER_SECOND: u64 = 64 << 10;

/// A write that took longer, as through an outage, tells no more than one that took so long.
pub const ENOUGH: Duration = Duration::from_secs(6);

/// How hard the API server finds it to take reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backpressure {
    /// How long the last few writes took: a mean, in which each counts a quarter of what was before.
    mean: Duration,
    /// How large the last one was.
    bytes: u64,
}

impl Backpressure {
    /// A report of so many bytes was taken, or given up, after so long, other attempts included.
    pub fn note(&mut self, took: Duration, bytes: u64) {
        self.bytes = bytes;
        self.mean = (self.mean * 3 + took.min(ENOUGH)) / 4;
    }

    /// How far apart reports are to be, where they are asked for at this interval: in whole seconds, where that is more. So that
    /// it does not become another with every report.
    pub fn stretch(&self, interval: Duration) -> Duration {
        let least = (self.mean * TIMES).min(interval * MOST).max(self.apart());
        if least <= interval {
            return interval;
        }
        Duration::from_secs(least.as_millis().div_ceil(1000) as u64)
    }

    /// How far apart any two reports are to be, whatever they tell, for how large they are.
    pub fn apart(&self) -> Duration {
        Duration::from_millis(self.bytes.saturating_mul(1000) / BYTES_PER_SECOND)
    }
}
