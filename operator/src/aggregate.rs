//! The status of a CkbProbe, merged out of what the agents of all nodes report.

use ckb_probe_crds::{
    CkbProbeStatus, InstanceState, InstanceStatus, OverheadStatus, Share, SpanCounts, TargetCounts,
    numbers,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::{
    desired::LeftOut,
    world::{CkbProbeEntry, ValidSpec, World},
};

mod alarms;
mod anomalies;
mod captures;
mod conditions;
mod events;
mod fleet;
mod health;
mod probes;
mod summaries;
mod support;
mod targets;

pub use anomalies::Past;
pub use events::is_notable;
use probes::Measured;
use support::Support;
use targets::Target;

/// How many targets a status lists.
const MAX_INSTANCES: usize = 50;

/// The status that answers this CkbProbe's spec, as far as is known now. `left_out` is what no order has of it; `past` is what its figures
/// were, and learns what they are.
pub fn aggregate(
    probe: &CkbProbeEntry,
    world: &World,
    left_out: Option<&LeftOut>,
    past: &mut Past,
    now: Timestamp,
) -> CkbProbeStatus {
    let reports = match &probe.spec {
        Ok(spec) => targets::reports(probe, spec, world, now),
        Err(_) => targets::Reports::new(),
    };
    let (targets, measured, support, verdict) = match &probe.spec {
        Ok(spec) => {
            let targets = targets::of(probe, spec, &reports, world, left_out, now);
            let mut measured = probes::measured(&spec.spec, &targets, past);
            let unusual = captures::Unusual::of(&spec.spec, past);
            for (asked, status) in spec.spec.probes.iter().zip(&mut measured.probes) {
                status.profiles = profiles(probe, &status.name, world);
                captures::tell(asked, status, probe, &unusual, world, now);
            }
            let support = Support::of(probe, spec, &targets, now);
            let verdict = conditions::judge(probe, spec, &targets, &support, &measured, world, now);
            (targets, measured, support, verdict)
        }
        Err(invalid) => (
            Vec::new(),
            Measured::default(),
            Support::default(),
            conditions::invalid(invalid),
        ),
    };
    let Measured {
        headline,
        probes,
        share,
        alarms: _,
    } = measured;
    let previous = probe.status.as_ref().map_or(&[][..], |s| &s.conditions);
    CkbProbeStatus {
        observed_generation: Some(probe.generation),
        conditions: verdict.conditions(previous, probe.generation, now),
        targets: counts(&targets),
        support: support.status(),
        overhead: overhead(&targets, share),
        headline,
        probes,
        traces: traces(&targets),
        instances_omitted: targets.len().saturating_sub(MAX_INSTANCES) as u32,
        last_report_time: targets.iter().filter_map(|t| t.reported_at).max().map(Time),
        instances: instances(targets),
    }
}

/// When time alone will next change the status: an agent falls silent, or the CkbProbe expires.
pub fn next_change(probe: &CkbProbeEntry, world: &World, now: Timestamp) -> Option<Timestamp> {
    let spec = probe.spec.as_ref().ok()?;
    let expiry = probe.expires().filter(|expires| *expires > now);
    targets::deadlines(probe, spec, world, now)
        .chain(expiry)
        .chain(captures::deadlines(probe, spec, now))
        .min()
}

/// Whether two statuses say the same, the times at which they say it aside.
pub fn same(a: &CkbProbeStatus, b: &CkbProbeStatus) -> bool {
    timeless(a) == timeless(b)
}

/// Whether two statuses say the same of how things stand: of the same rows, whatever their figures are.
pub fn same_but_figures(a: &CkbProbeStatus, b: &CkbProbeStatus) -> bool {
    let without_figures = |status: &CkbProbeStatus| {
        let mut status = timeless(status);
        status.headline.clear();
        status.overhead = OverheadStatus {
            budget_percent: status.overhead.budget_percent.take(),
            ..OverheadStatus::default()
        };
        if let Some(traces) = &mut status.traces {
            *traces = SpanCounts {
                message: std::mem::take(&mut traces.message),
                ..SpanCounts::default()
            };
        }
        for instance in &mut status.instances {
            instance.overhead_percent = None;
            instance.own_overhead_percent = None;
        }
        for probe in &mut status.probes {
            probe.headline.clear();
            probe.sampling_percent = None;
            for outlier in &mut probe.outliers {
                outlier.value.clear();
                outlier.median.clear();
                outlier.times.clear();
            }
            for anomaly in &mut probe.anomalies {
                anomaly.value.clear();
                anomaly.times.clear();
                anomaly.intervals = 0;
            }
            for row in &mut probe.rows {
                row.figures.clear();
                row.samples = 0;
                row.sampling_percent = None;
                for part in &mut row.parts {
                    part.figures.clear();
                }
                row.parts.sort_by(|a, b| a.key.cmp(&b.key));
            }
            // The busiest come first.
            probe.rows.sort_by(|a, b| a.key.cmp(&b.key));
        }
        status
    };
    without_figures(a) == without_figures(b)
}

fn timeless(status: &CkbProbeStatus) -> CkbProbeStatus {
    let mut status = status.clone();
    status.last_report_time = None;
    for condition in &mut status.conditions {
        condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
    }
    status
}

/// The newest profiles of a probe. Until they are listed they are taken to be those that they were.
fn profiles(probe: &CkbProbeEntry, name: &str, world: &World) -> Vec<String> {
    let before = || {
        let probes = probe.status.iter().flat_map(|status| &status.probes);
        let mut known = probes.filter(|status| status.name == name);
        let known = known.next().map(|status| status.profiles.clone());
        known.unwrap_or_default()
    };
    let latest = world.shelf().latest(&probe.reference, name);
    latest.unwrap_or_else(before)
}

fn counts(targets: &[Target]) -> TargetCounts {
    let count = |which: fn(&Target) -> bool| targets.iter().filter(|t| which(t)).count() as u32;
    let matched = targets.len() as u32;
    let attached = count(|target| target.state == InstanceState::Attached);
    TargetCounts {
        matched,
        attached,
        firing: count(|target| target.firing),
        summary: format!("{attached}/{matched}"),
    }
}

/// What became of the spans of all targets; the first that says so tells what is in the way.
fn traces(targets: &[Target]) -> Option<SpanCounts> {
    let reports = targets.iter().filter_map(|target| target.report);
    let told = reports.filter_map(|report| report.spans.as_ref());
    told.fold(None, |all: Option<SpanCounts>, one| {
        let all = all.unwrap_or_default();
        let message = match all.message.is_empty() {
            true => one.message.clone(),
            false => all.message,
        };
        Some(SpanCounts {
            started: all.started.saturating_add(one.started),
            exported: all.exported.saturating_add(one.exported),
            dropped: all.dropped.saturating_add(one.dropped),
            queued: all.queued.saturating_add(one.queued),
            message,
        })
    })
}

/// The estimate is that of the target that pays most, the share that of the row that is sampled most sparsely.
fn overhead(targets: &[Target], share: Option<Share>) -> OverheadStatus {
    let costliest = targets::costliest(targets);
    let estimate = costliest.and_then(|report| report.overhead_millipercent);
    let own = costliest.and_then(|report| report.own_overhead_millipercent);
    let budget = costliest.and_then(|report| report.budget_millipercent);
    let floor = costliest.and_then(|report| report.floor_millipercent);
    let used = targets
        .iter()
        .filter_map(|target| target.report?.budget_used_millipercent);
    let remark = share.map(Share::remark).unwrap_or_default();
    OverheadStatus {
        estimated_percent: estimate.map(numbers::percent),
        own_percent: own.map(numbers::percent),
        budget_percent: budget.map(numbers::percent),
        floor_percent: floor.map(numbers::percent),
        budget_used_percent: used.max().map(numbers::percent),
        sampling_percent: share.and_then(Share::percent),
        summary: estimate.map(|estimate| numbers::percent_summary(estimate) + &remark),
    }
}

/// The worst first, and in a lasting order among equals.
fn instances(mut targets: Vec<Target>) -> Vec<InstanceStatus> {
    targets.sort_by(|a, b| a.rank().cmp(&b.rank()));
    targets
        .into_iter()
        .take(MAX_INSTANCES)
        .map(Target::into_status)
        .collect()
}

/// Whether anything is to be measured at all.
fn halted(
    probe: &CkbProbeEntry,
    spec: &ValidSpec,
    now: Timestamp,
) -> Option<ckb_probe_crds::Reason> {
    if spec.spec.paused {
        return Some(ckb_probe_crds::Reason::Paused);
    }
    probe
        .expired(now)
        .then_some(ckb_probe_crds::Reason::Expired)
}

#[cfg(test)]
pub(crate) mod tests;
