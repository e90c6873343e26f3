//! What statuses and reports say of operations: their rows, and the figures in these by name.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    CkbProbeStatus, Duration, Figures, Histogram, InstanceReport, RowReport, RowStatus,
};

use crate::failure::{Failure, Result};

/// The measure that holds a call's duration, and so how many calls there were.
const DURATION: &str = "duration";

/// The figures of a row, or of a part of one, as a status shows them.
pub type Shown = BTreeMap<String, String>;

/// The operations in a status.
pub fn shown(status: &CkbProbeStatus) -> impl Iterator<Item = &RowStatus> {
    status.probes.iter().flat_map(|probe| &probe.rows)
}

/// One of them.
pub fn shown_of<'a>(status: &'a CkbProbeStatus, operation: &str) -> Result<&'a RowStatus> {
    let row = shown(status).find(|row| row.key == operation);
    row.ok_or_else(|| Failure::Unexpected {
        expected: format!("{operation} in the status"),
        got: format!("{:?}", status.probes),
    })
}

/// A figure that must be there.
pub fn figure<'a>(shown: &'a Shown, name: &str) -> Result<&'a str> {
    let figure = shown.get(name).map(String::as_str);
    figure.ok_or_else(|| Failure::Unexpected {
        expected: format!("the figure {name}"),
        got: format!("{shown:?}"),
    })
}

/// Calls since the agents attached.
pub fn count(shown: &Shown) -> Result<u64> {
    let count = figure(shown, "count")?;
    count.parse().map_err(Failure::format("count"))
}

/// The calls of all operations in a status.
pub fn all_counted(status: &CkbProbeStatus) -> Result<u64> {
    shown(status).map(|row| count(&row.figures)).sum()
}

/// A duration that must be there.
pub fn duration(shown: &Shown, name: &str) -> Result<Duration> {
    let text = figure(shown, name)?;
    text.parse().map_err(Failure::format(text))
}

/// The operations in a report.
pub fn reported(report: &InstanceReport) -> impl Iterator<Item = &RowReport> {
    report.probes.iter().flat_map(|probe| &probe.rows)
}

/// How many calls there were.
pub fn calls(figures: &Figures) -> u64 {
    figures.count(DURATION).unwrap_or_default()
}

/// How many of them were slow.
pub fn slow(figures: &Figures) -> u64 {
    figures.count("slow").unwrap_or_default()
}

/// How long they took, of those that were timed.
pub fn durations(figures: &Figures) -> Histogram {
    let durations = figures.distributions.get(DURATION);
    durations.map_or_else(Histogram::default, |one| one.histogram.clone())
}

/// How long the longest took, in nanoseconds.
pub fn longest(figures: &Figures) -> u64 {
    figures.maxima.get(DURATION).copied().unwrap_or_default()
}

/// How long they took together, in nanoseconds, of those that were timed.
pub fn nanoseconds(figures: &Figures) -> u64 {
    let durations = figures.distributions.get(DURATION);
    durations.map_or(0, |one| one.sum)
}

/// Payload bytes, where they are known of the operation.
pub fn bytes(figures: &Figures) -> Option<u64> {
    figures.count("bytes")
}
