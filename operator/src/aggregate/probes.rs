//! What each probe gives over all targets.
//!
//! Rates and quantiles are those of the last window of the targets that are attached now. Counts are of every
//! target that reported, also of one whose agent is silent: a counter does not go back because nobody speaks.
//! [`Summary`] has the rest of the rules.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    CkbProbeSpec, Descriptor, InstanceState, OutlierStatus, PartReport, PartStatus, Probe,
    ProbeReport, ProbeStatus, RowReport, RowStatus, Share, Summary, TargetCounts,
    contention::Work,
    fleet::FEWEST,
    numbers,
    report::{CUT, LINES},
};

use super::{
    alarms::{self, Alarmed},
    anomalies::{Interval, Past},
    events,
    fleet::Fleet,
    health,
    targets::Target,
};

/// How many rows of a probe are listed.
const MAX_ROWS: usize = 64;
/// How many parts of a row are listed.
const MAX_PARTS: usize = 64;
/// How many sorts of losses a status tells apart.
const MAX_LOST: usize = 8;
/// How many characters the line about all probes may have: it is a column of `kubectl get`.
const HEADLINE_LENGTH: usize = 120;

/// What was measured.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub headline: String,
    pub probes: Vec<ProbeStatus>,
    /// That of the row that is sampled most sparsely, if an interval has ended.
    pub share: Option<Share>,
    /// What a person must see to in the targets, the gravest first.
    pub alarms: Vec<Alarmed>,
}

/// A row over all targets.
#[derive(Clone, Debug, Default, PartialEq)]
struct MergedRow {
    summary: Summary,
    parts: BTreeMap<String, Summary>,
}

/// The rows of a probe over all targets, those of one name merged.
type MergedRows = BTreeMap<String, MergedRow>;

/// What the probes of the spec give, in its order; what is usual of it is learned into `past`.
pub fn measured(spec: &CkbProbeSpec, targets: &[Target], past: &mut Past) -> Measured {
    let mut share: Option<Share> = None;
    let mut probes = Vec::new();
    let Seen {
        rows,
        outliers,
        mut alarms,
    } = seen(spec, targets);
    learn(spec, targets, &rows, past);
    for ((probe, rows), outliers) in spec.probes.iter().zip(rows).zip(outliers) {
        let (mut status, own) = status(probe, targets, &rows);
        status.outliers = outliers;
        if let Some(question) = probe.kind_spec() {
            let descriptor = question.kind().descriptor();
            status.anomalies = past.anomalies(&probe.name, descriptor);
            let sentences = past.sentences(&probe.name, descriptor);
            alarms.extend(sentences.into_iter().map(Alarmed::unusual));
        }
        share = sparser(share, own);
        probes.push(status);
    }
    Measured {
        headline: headline(&probes),
        probes,
        share,
        alarms,
    }
}

/// What the rows of an interval were that is over for all targets.
fn learn(spec: &CkbProbeSpec, targets: &[Target], rows: &[MergedRows], past: &mut Past) {
    let live = targets
        .iter()
        .filter(|target| target.state == InstanceState::Attached);
    let reported = live.clone().filter_map(|target| target.reported_at).max();
    let Some(reported) = reported.filter(|_| spec.detect_anomalies) else {
        past.forget();
        return;
    };
    let interval = Interval {
        reported,
        length: spec.report_interval.get(),
        targets: live.count(),
    };
    if !past.is_next(&interval) {
        return;
    }
    past.begin(&interval);
    let waits = targets
        .iter()
        .filter(|target| target.state == InstanceState::Attached);
    let waits = waits.map(|target| {
        let contention = target.report.and_then(|report| report.contention);
        (target.pod.reference.name.as_str(), contention)
    });
    let work = work(spec, &interval, rows);
    past.look_beside(&waits.collect::<Vec<_>>(), &work);
    let asked = |name: &str| spec.probes.iter().position(|probe| probe.name == name);
    past.keep(
        |probe| asked(probe).is_some(),
        |probe, row| asked(probe).is_some_and(|place| rows[place].contains_key(row)),
    );
    for (probe, rows) in spec.probes.iter().zip(rows) {
        // What is taken of something unusual is not itself what is.
        let Some(question) = probe.kind_spec().filter(|_| probe.capture().is_none()) else {
            continue;
        };
        let descriptor = question.kind().descriptor();
        for (key, row) in rows {
            past.see(&probe.name, descriptor, key, &row.summary);
        }
    }
}

/// For which part of an interval the targets did what on their own account, of them all together.
fn work(spec: &CkbProbeSpec, interval: &Interval, rows: &[MergedRows]) -> Work {
    let milliseconds = interval.length.as_millis() as u64 * interval.targets as u64;
    let mut work = Work::new();
    for (probe, rows) in spec.probes.iter().zip(rows) {
        let Some(question) = probe.kind_spec() else {
            continue;
        };
        let descriptor = question.kind().descriptor();
        let own = rows.iter().filter(|(row, _)| (descriptor.background)(row));
        for (row, merged) in own {
            let part = descriptor.part_of_time(&merged.summary, milliseconds);
            work.entry(row.clone()).or_insert(part);
        }
    }
    work
}

/// One line about all probes.
fn headline(probes: &[ProbeStatus]) -> String {
    let told = probes.iter().filter(|probe| !probe.headline.is_empty());
    let words: Vec<_> = told
        .map(|probe| format!("{} {}", probe.name, probe.headline))
        .collect();
    cut(&words.join(" · "), HEADLINE_LENGTH)
}

/// At most so many characters, the last of which says that there would be more.
fn cut(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    let kept = text.chars().take(length.saturating_sub(1));
    kept.chain(['…']).collect()
}

fn sparser(a: Option<Share>, b: Option<Share>) -> Option<Share> {
    [a, b].into_iter().flatten().min_by(Share::sparseness)
}

fn status(probe: &Probe, targets: &[Target], rows: &MergedRows) -> (ProbeStatus, Option<Share>) {
    let Some(question) = probe.kind_spec() else {
        let nothing = ProbeStatus {
            name: probe.name.clone(),
            ..ProbeStatus::default()
        };
        return (nothing, None);
    };
    let reports: Vec<_> = targets
        .iter()
        .filter_map(|target| Some((target, health::reported(target.report?, probe)?)))
        .collect();
    let live: Vec<_> = reports
        .iter()
        .copied()
        .filter(|(target, report)| is_live(target, report))
        .collect();
    let descriptor = question.kind().descriptor();
    let share = rows.values().fold(None, |share, row| {
        sparser(share, row.summary.share().of_an_interval())
    });
    let lost = lost(reports.iter().map(|(_, report)| *report));
    let status = ProbeStatus {
        name: probe.name.clone(),
        kind: question.kind().as_str().to_owned(),
        targets: counts(targets.len(), &live),
        headline: summed_up(descriptor, rows, &lost),
        sampling_percent: share.and_then(Share::percent),
        message: complaint(probe, &reports),
        rows_omitted: rows.len().saturating_sub(MAX_ROWS) as u32,
        rows: shown(descriptor, rows),
        events: events::weightiest(reports.iter().copied()),
        lost,
        outliers: Vec::new(),
        anomalies: Vec::new(),
        profiles: Vec::new(),
        capture: None,
    };
    (status, share)
}

/// Whether the last interval of a probe is of now.
pub(super) fn is_live(target: &Target, report: &ProbeReport) -> bool {
    target.state == InstanceState::Attached && report.state == InstanceState::Attached
}

fn counts(matched: usize, live: &[(&Target, &ProbeReport)]) -> TargetCounts {
    let firing = live.iter().filter(|(_, report)| report.firing).count();
    let attached = live.len();
    TargetCounts {
        matched: matched as u32,
        attached: attached as u32,
        firing: firing as u32,
        summary: format!("{attached}/{matched}"),
    }
}

/// What is seen of the targets of each probe of the spec.
struct Seen {
    rows: Vec<MergedRows>,
    outliers: Vec<Vec<OutlierStatus>>,
    alarms: Vec<Alarmed>,
}

/// The rows of one target after the other: of all at once there would be more than there is room for.
fn seen(spec: &CkbProbeSpec, targets: &[Target]) -> Seen {
    let fleet = |probe: &Probe| {
        let question = probe.kind_spec();
        Fleet::new(question.map_or(&Descriptor::EMPTY, |question| question.kind().descriptor()))
    };
    let mut all: Vec<(MergedRows, Fleet)> = spec
        .probes
        .iter()
        .map(|probe| (MergedRows::new(), fleet(probe)))
        .collect();
    let are_compared = targets.len() >= FEWEST;
    let mut alarms = Vec::new();
    for (place, target) in targets.iter().enumerate() {
        let Some(source) = target.source else {
            continue;
        };
        source.each_probe(|report, rows| {
            for (probe, (merged, fleet)) in spec.probes.iter().zip(&mut all) {
                let own = health::reported(&source.instance, probe);
                if own.is_some_and(|own| std::ptr::eq(own, report)) {
                    let live = is_live(target, report);
                    merge(merged, rows, live);
                    let question = probe.kind_spec().filter(|_| live);
                    if let Some(question) = question {
                        let descriptor = question.kind().descriptor();
                        if are_compared {
                            fleet.see(place, rows);
                        }
                        alarms.extend(alarms::of(descriptor, target, report, rows));
                    }
                }
            }
        });
    }
    alarms.sort();
    let (rows, fleets): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let outliers = fleets.iter().map(|fleet| fleet.outliers(targets));
    Seen {
        rows,
        outliers: outliers.collect(),
        alarms,
    }
}

fn merge(merged: &mut MergedRows, rows: &[RowReport], live: bool) {
    for RowReport {
        key,
        total,
        window,
        parts,
    } in rows
    {
        let row = merged.entry(key.clone()).or_default();
        row.summary.add(total, window, live);
        for PartReport { key, total, window } in parts {
            let part = row.parts.entry(key.clone()).or_default();
            part.add(total, window, live);
        }
    }
}

/// What could not be recorded, of every target that reported. More sorts than there may be count as others.
fn lost<'a>(reports: impl Iterator<Item = &'a ProbeReport>) -> BTreeMap<String, u64> {
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in reports.flat_map(|report| &report.lost) {
        add(&mut lost, name, *count);
    }
    while lost.len() > MAX_LOST {
        let last = lost
            .keys()
            .rfind(|name| *name != ckb_probe_crds::report::OTHER);
        let Some((_, count)) = last.cloned().and_then(|name| lost.remove_entry(&name)) else {
            break;
        };
        add(&mut lost, ckb_probe_crds::report::OTHER, count);
    }
    lost
}

fn add(lost: &mut BTreeMap<String, u64>, name: &str, count: u64) {
    let held = lost.entry(name.to_owned()).or_default();
    *held = held.saturating_add(count);
}

/// What is most worth knowing of all rows that are part of the whole, and that something was lost.
fn summed_up(descriptor: &Descriptor, rows: &MergedRows, lost: &BTreeMap<String, u64>) -> String {
    let summaries = rows.iter().map(|(key, row)| (&**key, &row.summary));
    // That a log is kept short is no loss, and what is cut is counted.
    let lost = lost.iter();
    let lost = lost.filter(|(what, _)| ![LINES, CUT].contains(&what.as_str()));
    let lost = lost.fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
    let split = descriptor.split(rows.iter().map(|(key, row)| {
        let parts = row.parts.iter().map(|(part, of)| (&**part, of));
        (&**key, &row.summary, parts.collect())
    }));
    let words = [
        Some(split).filter(|words| !words.is_empty()),
        Some(descriptor.headline_of(summaries)).filter(|words| !words.is_empty()),
        (lost > 0).then(|| format!("{lost} lost")),
    ];
    let words: Vec<_> = words.into_iter().flatten().collect();
    words.join(", ")
}

/// The busiest rows first, with the busiest of their parts.
fn shown(descriptor: &Descriptor, rows: &MergedRows) -> Vec<RowStatus> {
    let mut sorted: Vec<_> = rows.iter().collect();
    sorted.sort_by(|(a, a_row), (b, b_row)| {
        descriptor.order((a, &a_row.summary), (b, &b_row.summary))
    });
    let listed = sorted.into_iter().take(MAX_ROWS);
    listed
        .map(|(key, MergedRow { summary, parts })| RowStatus {
            key: key.clone(),
            figures: descriptor.figures(summary, false),
            samples: summary.samples(),
            sampling_percent: summary.share().percent(),
            error: descriptor.error(summary, false).map(numbers::plus_or_minus),
            count_error: descriptor
                .count_error(summary, false)
                .map(numbers::plus_or_minus),
            parts: shown_parts(descriptor, parts),
        })
        .collect()
}

fn shown_parts(descriptor: &Descriptor, parts: &BTreeMap<String, Summary>) -> Vec<PartStatus> {
    let mut sorted: Vec<_> = parts.iter().collect();
    sorted
        .sort_by(|(a, a_summary), (b, b_summary)| descriptor.order((a, a_summary), (b, b_summary)));
    let listed = sorted.into_iter().take(MAX_PARTS);
    listed
        .map(|(key, summary)| PartStatus {
            key: key.clone(),
            figures: descriptor.figures(summary, true),
            error: descriptor.error(summary, true).map(numbers::plus_or_minus),
            count_error: descriptor
                .count_error(summary, true)
                .map(numbers::plus_or_minus),
        })
        .collect()
}

/// What is not as it was asked for; of the first target of which there is something to say.
fn complaint(probe: &Probe, reports: &[(&Target, &ProbeReport)]) -> String {
    // What an agent said that is silent now is not how things are.
    let current = |target: &Target| target.report.is_some_and(|r| r.state == target.state);
    let told = reports.iter().filter(|(target, _)| current(target));
    told.filter_map(|(target, report)| {
        let place = (&target.pod.reference.name, target.container);
        Some((place, health::complaint(report, probe)?))
    })
    .min()
    .map(|(_, complaint)| complaint)
    .unwrap_or_default()
}

#[cfg(test)]
mod tests;
