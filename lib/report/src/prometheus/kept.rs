//! What was answered, by target, by source, by probe, and by row.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_crds::{
    Kind,
    descriptor::{Export, Merge, Metric, Unit},
    metrics::label,
};

use super::{
    Kept,
    answer::Series,
    course,
    question::{Grid, Subject, What},
};

/// So many targets are told of.
const TARGETS: usize = 16;

/// Values by the place of their time; in the order of these.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(Vec<(u32, f64)>);

impl Values {
    pub(super) fn at(&self, place: u32) -> Option<f64> {
        let found = self.0.binary_search_by_key(&place, |(place, _)| *place);
        Some(self.0.get(found.ok()?)?.1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, f64)> + '_ {
        self.0.iter().copied()
    }

    /// Answers come in parts, the earlier first. Of two series that differ in nothing that is known the first counts.
    fn add(&mut self, points: &[(u64, f64)], grid: Grid) {
        let mut next = self.0.last().map_or(0, |(place, _)| place + 1);
        for (time, value) in points {
            if let Some(place) = grid.place(*time)
                && place >= next
            {
                next = place + 1;
                self.0.push((place, *value));
            }
        }
    }
}

/// What one scrape of an agent's tells of a target.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// When, in seconds since 1970.
    pub scraped: Values,
    pub attached: Values,
    pub firing: Values,
    pub cost: Values,
    pub granted: Values,
    pub entry_only: Values,
    pub reattaches: Values,
    pub without_probe: Values,
    pub rows_left_out: Values,
    pub lost: BTreeMap<String, Values>,
    pub probes: BTreeMap<String, Probe>,
}

/// What it tells of a probe.
#[derive(Debug, Default)]
pub(super) struct Probe {
    pub kind: Option<Kind>,
    pub attached: Values,
    pub rows: BTreeMap<String, Row>,
}

/// And of a row.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub samples: Values,
    pub share: Values,
    pub error: Values,
    pub whole: Figures,
    pub parts: BTreeMap<String, Figures>,
}

/// Figures of a row or a part, by their measures.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// How many values were less than each bound; the last bound is [`u64::MAX`], which is none.
    pub buckets: BTreeMap<&'static str, BTreeMap<u64, Values>>,
    /// The sums of these values, in the measure's unit.
    pub sums: BTreeMap<&'static str, Values>,
    /// How many values there were of what is distributed.
    pub counts: BTreeMap<&'static str, Values>,
    pub counters: BTreeMap<&'static str, Values>,
    pub levels: BTreeMap<&'static str, Values>,
}

/// All that was answered.
#[derive(Debug)]
pub struct Answers {
    subject: Subject,
    grid: Grid,
    /// By pod and container; and by all labels that tell who scraped whom.
    targets: BTreeMap<(String, String), BTreeMap<String, Source>>,
}

/// Labels that an agent gives to what it tells of a target.
const OWN: [&str; 9] = [
    "__name__",
    label::NAMESPACE,
    label::POD,
    label::CONTAINER,
    label::CKBPROBE,
    label::PROBE,
    label::KIND,
    label::WHAT,
    "le",
];

impl Answers {
    /// None yet.
    pub fn new(subject: Subject, grid: Grid) -> Self {
        Self {
            subject,
            grid,
            targets: BTreeMap::new(),
        }
    }

    /// Adds what was answered to a query, or to a part of it: what comes first of a series is to be the earlier. When agents were scraped must be
    /// known first, and then what each probe is.
    pub fn add(&mut self, what: What, answer: &[Series]) {
        for series in answer {
            self.add_one(what, series);
        }
    }

    /// The kinds of all probes that there are.
    pub fn kinds(&self) -> Vec<Kind> {
        let sources = self.targets.values().flat_map(BTreeMap::values);
        let probes = sources.flat_map(|source| source.probes.values());
        let names: BTreeSet<&str> = probes
            .filter_map(|probe| Some(probe.kind?.as_str()))
            .collect();
        let all = Kind::ALL.iter().copied();
        all.filter(|kind| names.contains(kind.as_str())).collect()
    }

    /// Whether there is any target.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// What is known of each target.
    pub fn kept(&self) -> Kept {
        let names = |(pod, container): &(String, String)| format!("{pod}/{container}");
        let told = self.targets.iter().take(TARGETS);
        let told = told.map(|(key, sources)| course::target(names(key), sources, self.grid));
        Kept {
            subject: format!("{}/{}", self.subject.namespace, self.subject.ckbprobe),
            asked: (self.grid.from * 1000, self.grid.to * 1000),
            step: self.grid.step * 1000,
            targets: told.collect(),
            left_out: self.targets.keys().skip(TARGETS).map(names).collect(),
        }
    }

    fn add_one(&mut self, what: What, series: &Series) {
        let grid = self.grid;
        let (row, part) = labels_of(what, series);
        let Some(source) = self.source(what, series, [row, part]) else {
            return;
        };
        let points = &series.points;
        match what {
            What::Scraped => source.scraped.add(points, grid),
            What::TargetAttached => source.attached.add(points, grid),
            What::Firing => source.firing.add(points, grid),
            What::Cost => source.cost.add(points, grid),
            What::Granted => source.granted.add(points, grid),
            What::EntryOnly => source.entry_only.add(points, grid),
            What::Reattaches => source.reattaches.add(points, grid),
            What::WithoutProbe => source.without_probe.add(points, grid),
            What::RowsLeftOut => source.rows_left_out.add(points, grid),
            What::Lost => {
                let of = source.lost.entry(series.label(label::WHAT).to_owned());
                of.or_default().add(points, grid);
            }
            What::Attached => {
                let probe = source.probe(series);
                probe.kind = kind_of(series);
                probe.attached.add(points, grid);
            }
            What::Samples | What::Share | What::Error => {
                let Some(row) = source.probe(series).row(series, row) else {
                    return;
                };
                let values = match what {
                    What::Samples => &mut row.samples,
                    What::Share => &mut row.share,
                    _ => &mut row.error,
                };
                values.add(points, grid);
            }
            What::Figure(kind, metric) | What::Sum(kind, metric) => {
                let probe = source.probe(series);
                // Of two kinds that name a metric alike each has its own.
                if probe.kind.is_some_and(|of| of.as_str() == kind.as_str())
                    && let Some(row) = probe.row(series, row)
                    && let Some(figures) = row.of(metric, series, part)
                    && let Some(values) = figures.of(what, kind, metric, series)
                {
                    values.add(points, grid);
                }
            }
        }
    }

    /// Who told it. What is told at no scrape is not told of a target.
    fn source(
        &mut self,
        what: What,
        series: &Series,
        of_row: [Option<&'static str>; 2],
    ) -> Option<&mut Source> {
        let key = (
            series.label(label::POD).to_owned(),
            series.label(label::CONTAINER).to_owned(),
        );
        let others = series.labels.iter().filter(|(label, _)| {
            let label = label.as_str();
            !OWN.contains(&label) && !of_row.contains(&Some(label))
        });
        let others: Vec<String> = others
            .map(|(label, value)| format!("{label}={value:?}"))
            .collect();
        let others = others.join(",");
        if matches!(what, What::Scraped) {
            return Some(
                self.targets
                    .entry(key)
                    .or_default()
                    .entry(others)
                    .or_default(),
            );
        }
        self.targets.get_mut(&key)?.get_mut(&others)
    }
}

/// The kind that a series says.
fn kind_of(series: &Series) -> Option<Kind> {
    let mut kinds = Kind::ALL.iter().copied();
    kinds.find(|kind| kind.as_str() == series.label(label::KIND))
}

/// The labels that name the row and its part.
fn labels_of(what: What, series: &Series) -> (Option<&'static str>, Option<&'static str>) {
    match what {
        What::Figure(kind, metric) | What::Sum(kind, metric) => {
            let descriptor = kind.descriptor();
            let part = metric.part.or(descriptor.part);
            (Some(descriptor.row), part.filter(|_| metric.of_parts))
        }
        What::Samples | What::Share | What::Error => {
            let mut rows = Kind::ALL.iter().map(|kind| kind.descriptor().row);
            (rows.find(|row| !series.label(row).is_empty()), None)
        }
        _ => (None, None),
    }
}

impl Source {
    fn probe(&mut self, series: &Series) -> &mut Probe {
        self.probes
            .entry(series.label(label::PROBE).to_owned())
            .or_default()
    }
}

impl Probe {
    /// None where the series names no row.
    fn row(&mut self, series: &Series, label: Option<&'static str>) -> Option<&mut Row> {
        let name = series.label(label?);
        (!name.is_empty()).then(|| self.rows.entry(name.to_owned()).or_default())
    }
}

impl Row {
    fn of(
        &mut self,
        metric: &Metric,
        series: &Series,
        part: Option<&'static str>,
    ) -> Option<&mut Figures> {
        if !metric.of_parts {
            return Some(&mut self.whole);
        }
        let name = series.label(part?);
        (!name.is_empty()).then(|| self.parts.entry(name.to_owned()).or_default())
    }
}

impl Figures {
    fn of(
        &mut self,
        what: What,
        kind: Kind,
        metric: &Metric,
        series: &Series,
    ) -> Option<&mut Values> {
        let descriptor = kind.descriptor();
        let measure = metric.export.measure();
        let mut measures = descriptor.measures.iter();
        let distributed =
            measures.any(|one| one.name == measure && one.merge == Merge::Distribution);
        let held = match (what, metric.export) {
            (What::Sum(..), _) => self.sums.entry(measure),
            (_, Export::Histogram(_)) => {
                let bound = bound(series.label("le"), descriptor.unit(measure))?;
                let buckets = self.buckets.entry(measure).or_default();
                return Some(buckets.entry(bound).or_default());
            }
            (_, Export::Counter(_)) if distributed => self.counts.entry(measure),
            (_, Export::Counter(_)) => self.counters.entry(measure),
            (_, Export::Gauge(_)) => self.levels.entry(measure),
        };
        Some(held.or_default())
    }
}

/// The end of a bucket in the measure's unit.
fn bound(text: &str, unit: Unit) -> Option<u64> {
    let bound: f64 = text.parse().ok()?;
    if bound == f64::INFINITY {
        return Some(u64::MAX);
    }
    (bound > 0.0).then(|| scaled(bound, unit))
}

/// A figure in the measure's unit: Prometheus has seconds.
pub(super) fn scaled(value: f64, unit: Unit) -> u64 {
    let value = match unit {
        Unit::Nanoseconds => value * 1e9,
        Unit::Count | Unit::Bytes => value,
    };
    value.round() as u64
}
