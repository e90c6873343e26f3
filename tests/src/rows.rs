//! What statuses and reports say of operations: their rows, and the figures in these by name.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    CkbProbeStatus, Duration, Figures, Histogram, InstanceReport, PartStatus, ProbeStatus,
    RowReport, RowStatus,
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
    row.ok_or_else(|| missing(operation, || format!("{:?}", status.probes)))
}

/// A probe that must be in a status.
pub fn probe_of<'a>(status: &'a CkbProbeStatus, name: &str) -> Result<&'a ProbeStatus> {
    let probe = status.probes.iter().find(|probe| probe.name == name);
    probe.ok_or_else(|| missing(name, || format!("{:?}", status.probes)))
}

/// A row of a probe that must be there.
pub fn row_of<'a>(probe: &'a ProbeStatus, key: &str) -> Result<&'a RowStatus> {
    let row = probe.rows.iter().find(|row| row.key == key);
    row.ok_or_else(|| missing(key, || format!("{:?}", probe.rows)))
}

/// A part of a row that must be there.
pub fn part_of<'a>(row: &'a RowStatus, key: &str) -> Result<&'a PartStatus> {
    let part = row.parts.iter().find(|part| part.key == key);
    part.ok_or_else(|| missing(key, || format!("{row:?}")))
}

fn missing(what: &str, got: impl FnOnce() -> String) -> Failure {
    Failure::unexpected(format!("{what} in the status"), got())
}

/// A figure that is a number.
pub fn number(shown: &Shown, name: &str) -> Result<f64> {
    let text = figure(shown, name)?;
    text.parse()
        .map_err(Failure::format(format!("{name} {text}")))
}

/// A figure that must be there.
pub fn figure<'a>(shown: &'a Shown, name: &str) -> Result<&'a str> {
    let figure = shown.get(name).map(String::as_str);
    figure.ok_or_else(|| Failure::unexpected(format!("the figure {name}"), format!("{shown:?}")))
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

/// The standard error of their number, as a part of it; infinite where that is the least that there was.
pub fn error(figures: &Figures) -> f64 {
    figures.relative_error(DURATION).unwrap_or_default()
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
