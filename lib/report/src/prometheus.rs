//! What a Prometheus that scrapes the agents has kept of a CkbProbe, as the histories of its targets.
//!
//! [`question`] says what to ask of its API for range queries, [`answer`] reads what it says, [`kept`] puts it together by target, source and
//! series, and [`course`] makes of that what a record has: intervals between samples. A counter that falls has begun anew, as Prometheus has it;
//! but increments are those between samples and nothing is extrapolated, so that they add up to what the agent counted. Where samples are
//! missing nothing is known, which is not the same as zero.

pub mod answer;
mod course;
pub mod kept;
pub mod question;
mod spread;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::history::History;

/// What is known of the targets of a CkbProbe.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// `namespace/name` of the CkbProbe.
    pub subject: String,
    /// From when to when it was asked, in milliseconds since 1970.
    pub asked: (u64, u64),
    /// How far apart samples were asked for, in milliseconds.
    pub step: u64,
    /// Each target, by its name.
    pub targets: Vec<Target>,
    /// Targets of which more is there, and which are left out, since they are too many.
    pub left_out: Vec<String>,
}

/// A target.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Its pod and container, as `pod/container`.
    pub name: String,
    /// Its figures over the time that was asked for.
    pub history: History,
    /// What is known besides.
    pub facts: Facts,
}

/// What is told of a target as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Samples of it that are there: times at which its agent was scraped.
    pub samples: usize,
    /// The part of the time, of what is known, in which probes were in place; None where that is not kept.
    pub attached: Option<f64>,
    /// The same of the time in which each probe that has to counted something.
    pub firing: Option<f64>,
    /// What could not be recorded, by category.
    pub lost: BTreeMap<String, u64>,
    /// How often its process was found anew.
    pub reattaches: u64,
    /// How many milliseconds were without a probe.
    pub without_probe: u64,
    /// How often counters began anew.
    pub resets: u64,
    /// Whether calls were counted and not timed at any time.
    pub entry_only: bool,
    /// Whether an agent left out rows of it at any time, since those of its node were too many.
    pub rows_left_out: bool,
    /// Probes of which no durations are kept, though there are figures of their rows; each with the histogram that is missing.
    pub without_histogram: Vec<(String, &'static str)>,
}
