//! Ready, Progressing, Degraded, WithinBudget, Supported and TargetsHealthy, each with a sentence that a person can act on.

use std::cmp::Ordering;

use ckb_probe_crds::{Breach, InstanceReport, InstanceState, Reason, condition, numbers};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

use super::{
    alarms, halted,
    health::{Problem, Prognosis},
    probes::Measured,
    summaries::{self, ProblemSummary, summary},
    support::Support,
    targets,
    targets::Target,
};
use crate::world::{CkbProbeEntry, InvalidProbe, ValidSpec, World};

/// With onBreach: Sample, by how much the estimate of a minute may exceed the ceiling.
const TOLERANCE: f64 = 1.1;
/// All that was granted, in thousandths of a percent.
const ALL: u64 = 100_000;
/// What the API server takes as a condition's message.
const MESSAGE_LENGTH: usize = 32_768;

/// One condition's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: &'static str,
    reason: Reason,
    message: String,
}

/// The six answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    ready: Answer,
    progressing: Answer,
    degraded: Answer,
    within_budget: Answer,
    supported: Answer,
    targets_healthy: Answer,
}

pub fn yes(reason: Reason, message: impl Into<String>) -> Answer {
    answer("True", reason, message)
}

pub fn no(reason: Reason, message: impl Into<String>) -> Answer {
    answer("False", reason, message)
}

pub fn unknown(reason: Reason, message: impl Into<String>) -> Answer {
    answer("Unknown", reason, message)
}

fn answer(status: &'static str, reason: Reason, message: impl Into<String>) -> Answer {
    let message: String = message.into();
    Answer {
        status,
        reason,
        message: message.chars().take(MESSAGE_LENGTH).collect(),
    }
}

/// That of a CkbProbe whose spec makes no sense.
pub fn invalid(error: &InvalidProbe) -> Conditions {
    let (reason, message) = match error {
        InvalidProbe::Unread(_) => (Reason::LimitExceeded, error.to_string()),
        InvalidProbe::Missing | InvalidProbe::Unreadable(_) | InvalidProbe::Selector(_) => (
            Reason::InvalidSpec,
            format!("{error}: correct it, or apply it anew"),
        ),
    };
    Conditions {
        ready: no(reason, &*message),
        progressing: no(reason, "waits for a change of the spec"),
        degraded: yes(reason, message),
        within_budget: nothing_attached(),
        supported: unknown(reason, "nothing is known of what is asked"),
        targets_healthy: unknown(reason, "nothing is measured"),
    }
}

/// That of a CkbProbe with these targets, some of whose figures may be sampled.
pub fn judge(
    probe: &CkbProbeEntry,
    spec: &ValidSpec,
    targets: &[Target],
    support: &Support,
    measured: &Measured,
    world: &World,
    now: Timestamp,
) -> Conditions {
    let sampled = measured.share.is_some_and(|share| share.is_sampled());
    let within_budget = budget(probe, spec, targets, sampled);
    if let Some(reason) = halted(probe, spec, now) {
        return stopped(reason, probe, targets, within_budget);
    }
    let troubles = summaries::of(probe, spec, targets);
    let pending = pending(targets).or_else(|| untaken(targets, world));
    let gravest = troubles.first().map(|trouble| trouble.reason);
    let degraded = match gravest {
        Some(reason) => yes(reason, summaries::told(&troubles)),
        None if support.is_lacking() => no(
            Reason::Done,
            "nothing is known to be wrong, but for what the nodes' kernels do not support: see Supported",
        ),
        None => no(Reason::Done, "nothing is known to be wrong"),
    };
    let progressing = match (&pending, gravest) {
        (Some((reason, message)), _) => yes(*reason, message),
        (None, Some(reason)) => no(reason, "waits for a change: see Degraded"),
        (None, None) if support.is_lacking() => no(
            Reason::Done,
            "everything that the nodes' kernels support is in place: see Supported",
        ),
        (None, None) => no(Reason::Done, "everything that was asked for is in place"),
    };
    Conditions {
        ready: ready(targets, &troubles, support, pending),
        progressing,
        degraded,
        within_budget,
        supported: support.answer(),
        targets_healthy: alarms::answer(&measured.alarms),
    }
}

/// True when every target is well, and each of its probes that its node's kernel supports. What is missing of one that is well is
/// for Degraded to say, and what a kernel does not support for Supported.
fn ready(
    targets: &[Target],
    troubles: &[ProblemSummary],
    support: &Support,
    pending: Option<(Reason, String)>,
) -> Answer {
    let firing = targets.iter().filter(|target| target.firing).count();
    if firing == targets.len() && firing > 0 {
        let noun = if firing == 1 {
            "target is"
        } else {
            "targets are"
        };
        return yes(
            Reason::Firing,
            format!("{firing} {noun} attached and firing{}", support.remark()),
        );
    }
    let (reason, message) = troubles
        .iter()
        .find(|trouble| trouble.stops)
        .map(|trouble| (trouble.reason, trouble.message.clone()))
        .or(pending)
        .unwrap_or_else(|| (Reason::Attaching, "not every target fires yet".to_owned()));
    no(
        reason,
        format!("{firing} of {} targets fire: {message}", targets.len()),
    )
}

/// What is still on its way, by itself.
fn pending(targets: &[Target]) -> Option<(Reason, String)> {
    let on_its_way: Vec<_> = problems(targets)
        .filter(|(_, problem)| problem.prognosis == Prognosis::Passing)
        .collect();
    let reason = on_its_way.iter().map(|(_, problem)| problem.reason).min()?;
    Some((reason, summary(told(&on_its_way))?))
}

fn problems<'a, 'b>(
    targets: &'a [Target<'b>],
) -> impl Iterator<Item = (&'a Target<'b>, &'a Problem)> {
    let each = |target: &'a Target<'b>| target.problems.iter().map(move |a| (target, a));
    targets.iter().flat_map(each)
}

fn told<'a, 'b>(
    problems: &'a [(&'a Target<'b>, &'a Problem)],
) -> impl Iterator<Item = (&'a Target<'b>, &'a str)> {
    problems
        .iter()
        .map(|(target, problem)| (*target, problem.message.as_str()))
}

/// The agents that have not taken up the newest order.
fn untaken(targets: &[Target], world: &World) -> Option<(Reason, String)> {
    let node = targets.iter().find_map(|target| {
        let node = target.pod.node.as_deref()?;
        let behind = world.node_probe(node).is_none_or(|row| !row.observed());
        (behind && target.state == InstanceState::Attached).then_some(node)
    })?;
    let message = format!("the agent of node {node} is taking up the new spec");
    Some((Reason::Attaching, message))
}

/// Paused or expired.
fn stopped(
    reason: Reason,
    probe: &CkbProbeEntry,
    targets: &[Target],
    within_budget: Answer,
) -> Conditions {
    let why = match probe.expires().filter(|_| reason == Reason::Expired) {
        Some(expires) => format!("spec.duration was over at {expires:.0}: nothing is probed"),
        None => "spec.paused is true: nothing is probed".to_owned(),
    };
    let held = targets
        .iter()
        .filter(|target| target.state == InstanceState::Attached)
        .count();
    Conditions {
        ready: no(reason, &*why),
        progressing: match held {
            0 => no(Reason::Done, "everything is detached"),
            held => yes(reason, format!("{held} targets are being detached")),
        },
        degraded: no(reason, &*why),
        within_budget,
        supported: unknown(reason, &*why),
        targets_healthy: unknown(reason, why),
    }
}

fn nothing_attached() -> Answer {
    yes(
        Reason::NothingAttached,
        "nothing is attached, so probing costs nothing",
    )
}

/// Whether the budget of each target is kept. With onBreach: Sample the agents keep it, on average: see
/// [`condition::WITHIN_BUDGET`].
fn budget(probe: &CkbProbeEntry, spec: &ValidSpec, targets: &[Target], sampled: bool) -> Answer {
    let samples = spec.spec.overhead.on_breach == Breach::Sample;
    let breached: Vec<_> = problems(targets)
        .filter(|(_, problem)| problem.reason == Reason::OverBudget)
        .collect();
    let tolerance = match samples && !was_over_budget(probe) {
        true => TOLERANCE,
        false => 1.0,
    };
    let measured = targets.iter().filter_map(|target| {
        let report = target.report?;
        let attached = target.state == InstanceState::Attached;
        let estimate = report.overhead_millipercent.filter(|_| attached)?;
        // Of who samples a minute counts: a slice that is long is paid for by intervals after it.
        let used = report.budget_used_millipercent.filter(|_| samples);
        let used = used.map_or(f64::INFINITY, |used| used as f64 / ALL as f64);
        Some((target, estimate, Budget::of(spec, report), used))
    });
    let measured: Vec<_> = measured.collect();
    let over = measured
        .iter()
        .filter(|(_, estimate, budget, used)| {
            let granted = budget.millipercent.saturating_add(budget.floor);
            *estimate as f64 > granted as f64 * tolerance && *used > tolerance
        })
        .max_by_key(|(_, estimate, ..)| *estimate);
    if let Some((target, estimate, budget, _)) = over {
        let mut message = format!(
            "probing is estimated to cost {} {} % of its CPU time, above {budget}: raise it, or measure less",
            targets::name(target.pod),
            numbers::percent(*estimate)
        );
        if let Some(ceiling) = target.ceiling.filter(|_| sampled && !samples) {
            message += &format!(
                ". What is sampled is so to stay below the ceiling of this installation, agent.maxOverheadPercent {}",
                numbers::percent(ceiling)
            );
        }
        return no(Reason::OverBudget, message);
    }
    if let Some(message) = summary(told(&breached)) {
        return no(Reason::OverBudget, message);
    }
    let strictest = measured.iter().map(|(_, _, budget, _)| budget);
    match strictest.min_by_key(|budget| budget.millipercent) {
        // The figures are in the status: here they would only make every message another.
        Some(budget) if samples && sampled => yes(
            Reason::UnderBudget,
            format!(
                "probing is kept below {budget} by sampling: see status.probes[].rows[].samplingPercent"
            ),
        ),
        Some(budget) => yes(
            Reason::UnderBudget,
            format!("probing is estimated to cost no more than {budget}"),
        ),
        None if targets.iter().any(|t| t.state == InstanceState::Attached) => unknown(
            Reason::Attaching,
            "the first report interval has not ended yet",
        ),
        None => nothing_attached(),
    }
}

/// What a target may pay in all.
struct Budget {
    millipercent: u64,
    /// What is granted besides.
    floor: u64,
    whose: Whose,
}

/// Whose word a budget is.
enum Whose {
    Own,
    /// That of another CkbProbe on the same target, which allows more.
    Another,
    /// That of whoever installed ckb-probe, which allows less.
    Installation,
}

impl Budget {
    fn of(spec: &ValidSpec, report: &InstanceReport) -> Self {
        let own = (spec.spec.overhead.max_percent * 1000.0).round() as u64;
        let millipercent = report.budget_millipercent.unwrap_or(own);
        Self {
            millipercent,
            floor: report.floor_millipercent.unwrap_or_default(),
            whose: match millipercent.cmp(&own) {
                Ordering::Less => Whose::Installation,
                Ordering::Equal => Whose::Own,
                Ordering::Greater => Whose::Another,
            },
        }
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = numbers::percent(self.millipercent);
        match self.whose {
            Whose::Own => write!(f, "overhead.maxPercent {percent}"),
            Whose::Another => {
                write!(
                    f,
                    "the overhead.maxPercent {percent} that another CkbProbe allows"
                )
            }
            Whose::Installation => write!(
                f,
                "the ceiling of this installation, agent.maxOverheadPercent {percent}"
            ),
        }
    }
}

/// Whether the last status said so: then the ceiling itself is what the estimate must come back to.
fn was_over_budget(probe: &CkbProbeEntry) -> bool {
    let conditions = probe.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|c| c.type_ == condition::WITHIN_BUDGET && c.status == "False")
}

impl Conditions {
    /// The conditions as the API has them. A time of transition is kept as long as the status is.
    pub fn conditions(
        self,
        previous: &[Condition],
        generation: i64,
        now: Timestamp,
    ) -> Vec<Condition> {
        let Self {
            ready,
            progressing,
            degraded,
            within_budget,
            supported,
            targets_healthy,
        } = self;
        let all = [
            (condition::READY, ready),
            (condition::PROGRESSING, progressing),
            (condition::DEGRADED, degraded),
            (condition::WITHIN_BUDGET, within_budget),
            (condition::SUPPORTED, supported),
            (condition::TARGETS_HEALTHY, targets_healthy),
        ];
        all.into_iter()
            .map(|(type_, answer)| {
                let unchanged = previous
                    .iter()
                    .find(|before| before.type_ == type_ && before.status == answer.status);
                Condition {
                    last_transition_time: unchanged
                        .map_or(Time(now), |before| before.last_transition_time.clone()),
                    message: answer.message,
                    observed_generation: Some(generation),
                    reason: answer.reason.as_str().to_owned(),
                    status: answer.status.to_owned(),
                    type_: type_.to_owned(),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
