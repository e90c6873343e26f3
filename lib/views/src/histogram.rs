//! How a measure of a row is distributed, with bounds that people read: 1, 2, 5, 10, 20, 50 and so on.

use std::fmt::Write as _;

use ckb_probe_crds::{
    CkbProbe, Histogram, InstanceReport, IntervalFigures, Kind, NodeProbe, Probe, ProbeReport,
    RowReport,
    descriptor::{Measure, Merge, Unit},
    display_nanos,
    histogram::bounds,
};

use crate::{
    document::{Bar, Distribution},
    figures::cut,
    text::{WIDTH, neutral, one_line},
};

/// How wide the longest bar is: beside the longest number, too, 80 columns suffice.
const BAR: usize = 36;

/// What is shown of a CkbProbe.
#[derive(Clone, Copy, Debug, Default)]
pub struct Which<'a> {
    /// A probe of it; None: its first that has distributions.
    pub probe: Option<&'a str>,
    /// A row; None: each.
    pub row: Option<&'a str>,
    /// A part of each row, such as a column family; None: the whole row.
    pub part: Option<&'a str>,
}

impl Which<'_> {
    /// All rows of the same probe.
    #[must_use]
    pub fn of_any_row(self) -> Self {
        Self {
            probe: self.probe,
            ..Self::default()
        }
    }
}

/// The rows that there are where that which was asked for is not among them, as the end of a sentence; empty where there is none.
pub fn others(found: &[Distribution]) -> String {
    let mut rows: Vec<&str> = found.iter().map(|one| one.row.as_str()).collect();
    rows.dedup();
    match rows.is_empty() {
        true => String::new(),
        false => format!("; there is {}", neutral(&rows.join(", "))),
    }
}

/// The distributions of the last report interval, over all targets, by what the agents told: those of a row together, the row of which there
/// is most first. Rows of which nothing was measured are not among them.
pub fn of(probe: &CkbProbe, orders: &[NodeProbe], which: Which<'_>) -> Vec<Distribution> {
    let Some(shown) = Shown::of(&probe.spec.probes, which.probe) else {
        return Vec::new();
    };
    let meta = &probe.metadata;
    let subject = format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    );
    let told = reports(probe, orders, shown.name).map(|(_, report)| report);
    merged(&subject, &shown, told, which)
}

/// The same of a process on a host, by its books.
pub fn of_reports(
    subject: &str,
    probes: &[Probe],
    reports: &[ProbeReport],
    which: Which<'_>,
) -> Vec<Distribution> {
    let Some(shown) = Shown::of(probes, which.probe) else {
        return Vec::new();
    };
    let told = reports.iter().filter(|one| one.name == shown.name);
    merged(subject, &shown, told, which)
}

fn merged<'a>(
    subject: &str,
    shown: &Shown<'_>,
    reports: impl Iterator<Item = &'a ProbeReport>,
    which: Which<'_>,
) -> Vec<Distribution> {
    let measure = shown.measure;
    let mut found: Vec<(String, Histogram)> = Vec::new();
    for row in reports.flat_map(|report| &report.rows) {
        let Some(figures) = figures(row, which) else {
            continue;
        };
        let Some(distribution) = figures.distributions.get(measure.name) else {
            continue;
        };
        match found.iter_mut().find(|(key, _)| *key == row.key) {
            Some((_, all)) => all.merge(&distribution.histogram),
            None => found.push((row.key.clone(), distribution.histogram.clone())),
        }
    }
    found.retain(|(_, histogram)| histogram.count() > 0);
    found.sort_by(|(a, all), (b, other)| other.count().cmp(&all.count()).then(a.cmp(b)));
    let each = found.into_iter().map(|(row, histogram)| Distribution {
        subject: subject.to_owned(),
        time: None,
        probe: shown.name.to_owned(),
        row,
        part: which.part.map(str::to_owned),
        measure: measure.name.to_owned(),
        unit: unit(measure.unit).to_owned(),
        count: histogram.count(),
        bars: bars(&histogram),
    });
    each.collect()
}

/// The probe that is shown, and what of it is distributed.
pub(crate) struct Shown<'a> {
    pub(crate) name: &'a str,
    pub(crate) measure: &'static Measure,
}

impl<'a> Shown<'a> {
    /// None where there is none of that name, or none that has distributions.
    pub(crate) fn of(probes: &'a [Probe], wanted: Option<&str>) -> Option<Self> {
        let mut each = probes.iter().filter_map(|one| {
            let kind: Kind = one.kind_spec()?.kind();
            let mut measures = kind.descriptor().measures.iter();
            let measure = measures.find(|one| one.merge == Merge::Distribution)?;
            let name = one.name.as_str();
            Some(Self { name, measure })
        });
        each.find(|one| wanted.is_none_or(|wanted| one.name == wanted))
    }
}

/// The word for a unit in a document.
pub(crate) fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Bytes => "bytes",
        Unit::Count => "",
    }
}

/// What agents told of a probe of this CkbProbe, or of another that asks the same of the same pods.
pub(crate) fn reports<'a>(
    probe: &'a CkbProbe,
    orders: &'a [NodeProbe],
    name: &'a str,
) -> impl Iterator<Item = (&'a InstanceReport, &'a ProbeReport)> {
    let uid = probe.metadata.uid.as_deref().unwrap_or_default();
    let namespace = probe.metadata.namespace.as_deref().unwrap_or_default();
    let pods = probe.status.iter().flat_map(|status| &status.instances);
    let pods: Vec<&str> = pods.map(|one| one.pod.as_str()).collect();
    let instances = orders.iter().filter_map(|order| order.status.as_ref());
    let instances = instances.flat_map(|status| &status.instances);
    let own: Vec<_> = instances
        .filter(|one| one.pod.namespace == namespace && pods.contains(&one.pod.name.as_str()))
        .collect();
    // Under its own name, unless it is measured in the name of another.
    let is_own = own.iter().any(|one| one.probe.uid == uid);
    own.into_iter()
        .filter(move |one| !is_own || one.probe.uid == uid)
        .flat_map(|one| one.probes.iter().map(move |probe| (one, probe)))
        .filter(move |(_, one)| one.name == name)
}

/// The figures of the last interval of a row, or of a part of it, that are asked for.
fn figures<'a>(row: &'a RowReport, which: Which<'_>) -> Option<&'a ckb_probe_crds::Figures> {
    Some(&window(row, which)?.figures)
}

/// The last interval of a row, or of a part of it, that is asked for.
pub(crate) fn window<'a>(row: &'a RowReport, which: Which<'_>) -> Option<&'a IntervalFigures> {
    if which.row.is_some_and(|wanted| wanted != row.key) {
        return None;
    }
    match which.part {
        None => Some(&row.window),
        Some(wanted) => {
            let part = row.parts.iter().find(|part| part.key == wanted)?;
            Some(&part.window)
        }
    }
}

/// How many there are between two bounds, from the first that has any to the last. A bucket belongs where its middle is, so a bound is off by at
/// most a thirty-second.
pub fn bars(histogram: &Histogram) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for (bucket, count) in histogram.iter() {
        let range = bounds(bucket);
        let middle = range.start + (range.end - 1 - range.start) / 2;
        let (from, to) = around(middle);
        while let Some(last) = bars.last()
            && last.to < to
            && last.to != from
        {
            let (from, to) = around(last.to);
            bars.push(Bar { from, to, count: 0 });
        }
        match bars.last_mut().filter(|last| last.to == to) {
            Some(last) => last.count = last.count.saturating_add(count),
            None => bars.push(Bar { from, to, count }),
        }
    }
    bars
}

/// The bounds on either side of a value.
pub(crate) fn around(value: u64) -> (u64, u64) {
    let mut from = 0;
    for power in 0..19 {
        let ten = 10_u64.pow(power);
        for digit in [1, 2, 5] {
            let to = ten.saturating_mul(digit);
            if value < to {
                return (from, to);
            }
            from = to;
        }
    }
    (from, u64::MAX)
}

impl Distribution {
    /// A bar for each range.
    pub fn text(&self) -> String {
        let Self {
            subject,
            time: _,
            probe,
            row,
            part,
            measure,
            unit,
            count,
            bars,
        } = self;
        let part = part
            .as_deref()
            .map_or_else(String::new, |part| format!(" {part}"));
        let head = format!(
            "{subject} {probe}: {row}{part}: {measure} of {count}, in the last report interval"
        );
        let mut text = cut(&one_line(&head), WIDTH) + "\n";
        let written = |bound: u64| match unit.as_str() {
            "nanoseconds" => display_nanos(bound),
            _ => bound.to_string(),
        };
        let most = bars.iter().map(|bar| bar.count).max().unwrap_or_default();
        for Bar { from, to, count } in bars {
            let exact = u128::from(*count) * BAR as u128;
            // What is there is seen.
            let width = exact.div_ceil(u128::from(most.max(1))) as usize;
            let (from, to) = (written(*from), written(*to));
            let line = format!("{from:>9} - {to:<9} {count:>12}  {}", "#".repeat(width));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests;
