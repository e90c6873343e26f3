//! A target over time: of samples by source, the intervals between them.

mod increments;

use std::collections::BTreeMap;

use ckb_probe_crds::{Descriptor, IntervalFigures, descriptor::Unit};

use super::{
    Facts, Target,
    kept::{Source, Values},
    question::Grid,
};
use crate::{
    history::{Gap, History, Run},
    record::{Asked, Header, Interval, ProbeInterval, Row, SCHEMA},
};
use increments::{Counter, Here, RowWalk, counter};

/// Where samples are farther apart than so many of what is usual, nothing is known of what is between.
const MISSED: (u64, u64) = (5, 2);

/// A scrape.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Tick {
    /// The place of the time at which it was the newest.
    place: u32,
    /// When it was, in milliseconds since 1970.
    at: u64,
}

/// What there is of a target.
pub(super) fn target(name: String, sources: &BTreeMap<String, Source>, grid: Grid) -> Target {
    let mut target = Target {
        name,
        ..Target::default()
    };
    let mut ends = Vec::new();
    let stretches = stretches(sources, grid);
    for (source, ticks) in &stretches {
        let usual = usual(ticks).max(grid.step * 1000);
        let farthest = usual * MISSED.0 / MISSED.1;
        let walk = Walk::new(source, &target.name, usual);
        let run = walk.through(ticks, farthest, &mut target.facts);
        target.facts.samples += ticks.len();
        if let (Some(first), Some(last)) = (ticks.first(), ticks.last()) {
            ends.push((first.at, last.at, farthest));
        }
        if !run.intervals.is_empty() {
            target.history.runs.push(run);
        }
    }
    target.history.gaps = gaps(&target.history, &ends, grid);
    target.facts.attached = average(&stretches, |source| &source.attached);
    target.facts.firing = average(&stretches, |source| &source.firing);
    target.facts.without_histogram = without_histogram(sources);
    target
}

/// Of the sources one at any time, and the scrapes of each: the one that is there stays until it ends, and then comes the one that begins
/// first. What two scrape of one agent is not to count twice.
fn stretches(sources: &BTreeMap<String, Source>, grid: Grid) -> Vec<(&Source, Vec<Tick>)> {
    let mut all: Vec<(&Source, Vec<Tick>)> = sources
        .values()
        .map(|source| (source, ticks(&source.scraped, grid)))
        .collect();
    let mut chosen = Vec::new();
    let mut until = 0;
    loop {
        for (_, ticks) in &mut all {
            ticks.retain(|tick| tick.at > until);
        }
        all.retain(|(_, ticks)| !ticks.is_empty());
        let key = |(_, ticks): &(&Source, Vec<Tick>)| {
            let (first, last) = (ticks.first().copied(), ticks.last().copied());
            (
                first.map(|tick| tick.place),
                last.map(|tick| u64::MAX - tick.at),
            )
        };
        let places = 0..all.len();
        let Some(next) = places.min_by_key(|place| all.get(*place).map(key)) else {
            return chosen;
        };
        let (source, ticks) = all.swap_remove(next);
        until = ticks.last().map_or(until, |tick| tick.at);
        chosen.push((source, ticks));
    }
}

/// The scrapes. A time at which the newest is an old one has none of its own.
fn ticks(scraped: &Values, grid: Grid) -> Vec<Tick> {
    let mut ticks: Vec<Tick> = Vec::new();
    for (place, seconds) in scraped.iter() {
        let at = (seconds * 1000.0).round() as u64;
        let newest = ticks.last().is_none_or(|last| last.at < at);
        // Nothing is scraped after the time at which it is the newest.
        let by = (grid.from + u64::from(place) * grid.step) * 1000;
        if newest && at <= by {
            ticks.push(Tick { place, at });
        }
    }
    ticks
}

/// How far apart they are: the median.
fn usual(ticks: &[Tick]) -> u64 {
    let pairs = ticks.iter().zip(ticks.iter().skip(1));
    let mut apart: Vec<u64> = pairs.map(|(one, next)| next.at - one.at).collect();
    apart.sort_unstable();
    apart.get(apart.len() / 2).copied().unwrap_or_default()
}

/// From one scrape of a source to the next.
struct Walk<'a> {
    source: &'a Source,
    header: Header,
    counters: Counters<'a>,
    probes: Vec<ProbeWalk<'a>>,
}

/// What is counted of a target as a whole.
struct Counters<'a> {
    lost: Vec<(&'a str, Counter<'a>)>,
    reattaches: Counter<'a>,
    without_probe: Counter<'a>,
}

struct ProbeWalk<'a> {
    name: &'a str,
    descriptor: &'static Descriptor,
    attached: &'a Values,
    rows: Vec<RowWalk<'a>>,
}

impl<'a> Walk<'a> {
    fn new(source: &'a Source, name: &str, usual: u64) -> Self {
        let probes = source.probes.iter().filter_map(|(name, probe)| {
            let descriptor = probe.kind?.descriptor();
            let rows = probe.rows.iter();
            Some(ProbeWalk {
                name,
                descriptor,
                attached: &probe.attached,
                rows: rows
                    .map(|(name, row)| RowWalk::new(name, row, descriptor))
                    .collect(),
            })
        });
        let asked = source.probes.iter().filter_map(|(name, probe)| {
            Some(Asked {
                name: name.clone(),
                kind: probe.kind?.as_str().to_owned(),
            })
        });
        let lost = source.lost.iter();
        Self {
            header: Header {
                schema: SCHEMA.to_owned(),
                target: name.to_owned(),
                interval_milliseconds: usual,
                probes: asked.collect(),
                ..Header::default()
            },
            counters: Counters {
                lost: lost
                    .map(|(what, values)| (what.as_str(), counter(values, Unit::Count)))
                    .collect(),
                reattaches: counter(&source.reattaches, Unit::Count),
                // Milliseconds are enough of it, and nanoseconds are what this unit has.
                without_probe: counter(&source.without_probe, Unit::Nanoseconds),
            },
            probes: probes.collect(),
            source,
        }
    }

    /// All of it, as a run.
    fn through(mut self, ticks: &[Tick], farthest: u64, facts: &mut Facts) -> Run {
        let mut intervals = Vec::new();
        let mut before: Option<Tick> = None;
        for tick in ticks {
            let here = Here {
                place: tick.place,
                from_zero: before.is_some_and(|before| {
                    let left_out = self.source.rows_left_out.at(before.place);
                    left_out.is_none_or(|rows| rows == 0.0)
                }),
            };
            let passed = before.map_or(0, |before| tick.at - before.at);
            let interval = self.interval(here, (tick.at, passed), facts);
            if before.is_some() && passed <= farthest {
                intervals.push(interval);
            }
            before = Some(*tick);
        }
        for interval in &mut intervals {
            interval.leave_idle_out();
        }
        if let Some(last) = intervals.last_mut() {
            self.tell_totals(last);
        }
        Run {
            header: Header {
                run: ticks.first().map_or(0, |tick| tick.at),
                ..self.header
            },
            intervals,
            coarse: Vec::new(),
            end: None,
        }
    }

    fn interval(
        &mut self,
        here: Here,
        (at, milliseconds): (u64, u64),
        facts: &mut Facts,
    ) -> Interval {
        let mut anew = false;
        for (what, counter) in &mut self.counters.lost {
            let (added, again) = counter.advance(here).unwrap_or_default();
            anew |= again;
            let told = facts.lost.entry((*what).to_owned()).or_default();
            *told = told.saturating_add(added);
        }
        let counters = &mut self.counters;
        let (added, again) = counters.reattaches.advance(here).unwrap_or_default();
        facts.reattaches = facts.reattaches.saturating_add(added);
        anew |= again;
        let (added, again) = counters.without_probe.advance(here).unwrap_or_default();
        facts.without_probe = facts.without_probe.saturating_add(added / 1_000_000);
        anew |= again;
        let holds = |values: &Values| values.at(here.place).is_some_and(|value| value > 0.0);
        facts.entry_only |= holds(&self.source.entry_only);
        facts.rows_left_out |= holds(&self.source.rows_left_out);
        let mut probes = Vec::new();
        for probe in &mut self.probes {
            let attached = probe.attached.at(here.place);
            let counted = probe.descriptor.counted(false);
            let counted = counted.map(ckb_probe_figures::Value::measure);
            let time = (milliseconds, attached.unwrap_or_default());
            let rows = probe.rows.iter_mut();
            let rows: Vec<Row> = rows
                .map(|row| row.advance(here, time, counted, &mut anew))
                .collect();
            // It was not asked then, or not yet.
            let Some(attached) = attached else {
                continue;
            };
            probes.push(ProbeInterval {
                name: probe.name.to_owned(),
                unmeasured: (attached == 0.0).then(|| "not attached".to_owned()),
                rows,
                ..ProbeInterval::default()
            });
        }
        facts.resets += u64::from(anew);
        let millipercent = |values: &Values| {
            let ratio = values.at(here.place)?;
            ratio
                .is_finite()
                .then(|| (ratio * 100_000.0).round() as u64)
        };
        Interval {
            at,
            milliseconds,
            cost: millipercent(&self.source.cost),
            floor: millipercent(&self.source.granted),
            contention: None,
            contention_unknown: BTreeMap::new(),
            own_cpu: 0,
            renewed: 0,
            probes,
        }
    }

    /// Writes what was added in all, also where nothing is known of when, into the last interval, as records have it in each.
    fn tell_totals(&self, last: &mut Interval) {
        let milliseconds = last.milliseconds;
        for probe in &self.probes {
            let place = last.probes.iter().position(|of| of.name == probe.name);
            let place = place.unwrap_or_else(|| {
                last.probes.push(ProbeInterval {
                    name: probe.name.to_owned(),
                    unmeasured: Some("not asked any more".to_owned()),
                    ..ProbeInterval::default()
                });
                last.probes.len() - 1
            });
            let Some(of) = last.probes.get_mut(place) else {
                continue;
            };
            let recorded = if of.unmeasured.is_none() {
                milliseconds
            } else {
                0
            };
            for row in &probe.rows {
                let held = held(&mut of.rows, row.name, (milliseconds, recorded));
                held.total.clone_from(&row.whole.total);
                held.total.forget_distribution();
                for (name, part) in &row.parts {
                    let held = self::held(&mut held.parts, name, (milliseconds, recorded));
                    held.total.clone_from(&part.total);
                    held.total.forget_distribution();
                }
            }
        }
    }
}

/// The row of this name. Where there is none nothing happened to it in that time.
fn held<'a>(
    rows: &'a mut Vec<Row>,
    name: &str,
    (milliseconds, recorded): (u64, u64),
) -> &'a mut Row {
    let place = rows.iter().position(|row| row.key == name);
    let place = place.unwrap_or_else(|| {
        rows.push(Row {
            key: name.to_owned(),
            window: IntervalFigures {
                milliseconds,
                recorded_milliseconds: recorded,
                ..IntervalFigures::default()
            },
            ..Row::default()
        });
        rows.len() - 1
    });
    &mut rows[place]
}

impl Interval {
    /// Without the rows of which nothing happened while they were watched, as a record has it.
    fn leave_idle_out(&mut self) {
        let told = |row: &Row| {
            let watched = row.window.recorded_milliseconds >= row.window.milliseconds;
            !row.window.figures.is_idle() || !watched || !row.parts.is_empty()
        };
        for probe in &mut self.probes {
            for row in &mut probe.rows {
                row.parts.retain(told);
            }
            probe.rows.retain(told);
        }
    }
}

/// What nothing is known of: between intervals, before the first scrape, and after the last.
fn gaps(history: &History, ends: &[(u64, u64, u64)], grid: Grid) -> Vec<Gap> {
    const SCRAPE: &str = "Prometheus has no sample: it did not scrape the agent, or could not; what the agent counted meanwhile is in counts, and in no rate";
    const SOURCE: &str = "another agent, or another scrape of it, tells from here on: what was counted before its first sample is in no figure";
    const EMPTY: &str =
        "Prometheus has no sample: the target was not measured, or its agent not scraped";
    let gap = |from, to, why: &str| Gap {
        from,
        to: Some(to),
        why: why.to_owned(),
    };
    let (begin, end) = (grid.from * 1000, grid.to * 1000);
    let (Some((first, _, farthest)), Some((_, last, farthest_last))) = (ends.first(), ends.last())
    else {
        return vec![gap(begin, end, EMPTY)];
    };
    let mut gaps = Vec::new();
    if first.saturating_sub(begin) > *farthest {
        gaps.push(gap(begin, *first, EMPTY));
    }
    let mut known = *first;
    for (number, run) in history.runs.iter().enumerate() {
        for (place, interval) in run.intervals.iter().enumerate() {
            if interval.began() > known {
                let of_source = number > 0 && place == 0;
                let why = if of_source { SOURCE } else { SCRAPE };
                gaps.push(gap(known, interval.began(), why));
            }
            known = interval.at;
        }
    }
    if *last > known {
        gaps.push(gap(known, *last, SCRAPE));
    }
    if end.saturating_sub(*last) > *farthest_last {
        gaps.push(gap(*last, end, EMPTY));
    }
    gaps
}

/// The mean of what a series says at each scrape: None where it says nothing.
fn average(stretches: &[(&Source, Vec<Tick>)], of: fn(&Source) -> &Values) -> Option<f64> {
    let values = stretches
        .iter()
        .flat_map(|(source, ticks)| ticks.iter().filter_map(|tick| of(source).at(tick.place)));
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Probes that saw something of which it is not kept how long it took.
fn without_histogram(sources: &BTreeMap<String, Source>) -> Vec<(String, &'static str)> {
    let mut missing = BTreeMap::new();
    for (name, probe) in sources.values().flat_map(|source| &source.probes) {
        let metrics = probe.kind.map(|kind| kind.descriptor().metrics.iter());
        let mut metrics = metrics.into_iter().flatten();
        let histogram = metrics.find(|metric| metric.export.type_name() == "histogram");
        let rows = probe.rows.values();
        let has = rows.clone().any(|row| !row.whole.buckets.is_empty());
        let saw = rows
            .flat_map(|row| row.samples.iter())
            .any(|(_, samples)| samples > 0.0);
        if let Some(histogram) = histogram
            && saw
            && !has
        {
            missing.insert(name.clone(), histogram.name);
        }
    }
    missing.into_iter().collect()
}
