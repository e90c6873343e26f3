//! The targets of a CkbProbe, each with what is known of it: from its pod, its agent's report, or its agent's pod.

mod absence;

use std::collections::{BTreeMap, BTreeSet};

use absence::{absent, silence};
use ckb_probe_crds::{
    CkbProbeSpec, InstanceReport, InstanceState, InstanceStatus, Reason, numbers,
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};

use super::{
    halted,
    health::{self, Problem, Prognosis},
};
use crate::{
    desired::LeftOut,
    template::agent_name,
    world::{AgentPod, CkbProbeEntry, NodeProbeEntry, Report, TargetPod, ValidSpec, World},
};

/// An agent may be late by this much, however short the interval.
const SILENCE_FLOOR: SignedDuration = SignedDuration::from_secs(5);

/// A matched process, or a matched pod of which no process is known.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    pub pod: &'a TargetPod,
    pub container: Option<&'a str>,
    pub state: InstanceState,
    pub reason: Reason,
    pub message: String,
    /// Whether every probe of it is well that its node's kernel supports.
    pub firing: bool,
    /// What is not, of the target or its probes.
    pub problems: Vec<Problem>,
    /// What the agent says of it, however long ago. Its probes' rows are in `source`.
    pub report: Option<&'a InstanceReport>,
    pub source: Option<&'a Report<'a>>,
    /// How the agent attaches, by its own word.
    pub tier: Option<&'a str>,
    /// When that agent started, and began to count.
    pub counted_since: Option<Timestamp>,
    /// What measuring may cost any process of its node, in thousandths of a percent.
    pub ceiling: Option<u64>,
    pub reported_at: Option<Timestamp>,
}

/// Every target of this CkbProbe: one for each reported process, and one for each pod without any.
pub fn of<'a>(
    probe: &'a CkbProbeEntry,
    spec: &'a ValidSpec,
    reports: &'a Reports<'a>,
    world: &'a World,
    left_out: Option<&LeftOut>,
    now: Timestamp,
) -> Vec<Target<'a>> {
    let halted = halted(probe, spec, now);
    let limit = |pod| left_out.filter(|_| halted.is_none())?.of(pod);
    let reports = |pod: &TargetPod| reports.get(&pod.reference.uid).into_iter().flatten();
    world
        .selected(&probe.reference.namespace, spec)
        .flat_map(|pod| match limit(pod) {
            Some(limit) => {
                let (state, reason) = (InstanceState::Failed, limit.reason());
                vec![Target::unreported(pod, state, reason, limit.message(pod))]
            }
            None => of_pod(spec, pod, reports(pod).collect(), world, now, halted),
        })
        .map(|target| target.on_behalf_of(probe))
        .collect()
}

/// The report of the target that pays most, by the estimate.
pub fn costliest<'a>(targets: &[Target<'a>]) -> Option<&'a InstanceReport> {
    targets
        .iter()
        .filter(|target| target.state == InstanceState::Attached)
        .filter_map(|target| target.report)
        .filter(|report| report.overhead_millipercent.is_some())
        .max_by_key(|report| report.overhead_millipercent)
}

/// When agents that are heard now will count as silent, unless they report.
pub fn deadlines<'a>(
    probe: &'a CkbProbeEntry,
    spec: &'a ValidSpec,
    world: &'a World,
    now: Timestamp,
) -> impl Iterator<Item = Timestamp> {
    world
        .selected(&probe.reference.namespace, spec)
        .filter_map(move |pod| {
            let node = pod.node.as_deref()?;
            let row = world.node_probe(node)?;
            let signs = [
                world.heard(row),
                last_sign(row, agent_of(node, world), world),
            ];
            let patience = patience(spec, Some(row));
            let signs = signs.into_iter().flatten();
            Some(signs.filter_map(move |since| since.checked_add(patience).ok()))
        })
        .flatten()
        .filter(move |deadline| *deadline > now)
}

fn of_pod<'a>(
    spec: &'a ValidSpec,
    pod: &'a TargetPod,
    reports: Vec<&'a Report<'a>>,
    world: &'a World,
    now: Timestamp,
    halted: Option<Reason>,
) -> Vec<Target<'a>> {
    let row = pod.node.as_deref().and_then(|node| world.node_probe(node));
    let fresh = row.is_some_and(|row| {
        world
            .heard(row)
            .is_some_and(|heard| now.duration_since(heard) <= patience(spec, Some(row)))
    });
    if let Some(reason) = halted {
        return stopped(&spec.spec, pod, row, reports, fresh, reason);
    }
    // What is measured is there, whatever else the pod's phase or the caches may say.
    let attached = |report: &&Report| report.instance.state == InstanceState::Attached;
    let measured = fresh && reports.iter().any(attached);
    if let Some((reason, message)) = absent(spec, pod, world).filter(|_| !measured) {
        return vec![Target::unreported(
            pod,
            InstanceState::Waiting,
            reason,
            message,
        )];
    }
    let failure = row
        .filter(|_| fresh)
        .and_then(|row| row.status.as_ref()?.agent.failure.as_deref());
    if let Some(failure) = failure.filter(|_| !measured) {
        return unmeasurable(&spec.spec, pod, row, reports, failure);
    }
    let refused = row
        .filter(|_| fresh)
        .and_then(|row| row.status.as_ref()?.agent.report_refused.as_deref());
    if let Some(why) = refused {
        let message = format!(
            "the API server refuses the report of node {}: {why}",
            node(pod)
        );
        let (state, reason) = (InstanceState::Failed, Reason::ReportRefused);
        return vec![Target::unreported(pod, state, reason, message)];
    }
    let silence = || silence(spec, pod, row, world, now);
    if reports.is_empty() {
        let (state, reason, message) = match fresh {
            true => missing(pod, row),
            false => silence(),
        };
        return vec![Target::unreported(pod, state, reason, message)];
    }
    let targets = reports
        .into_iter()
        .map(|report| Target::reported(&spec.spec, pod, report, row));
    if fresh {
        return targets.collect();
    }
    let (state, reason, message) = silence();
    targets
        .map(|target| target.overruled(state, reason, message.clone()))
        .collect()
}

/// Why a report of the pod's node, which is fresh, has nothing of the pod.
fn missing(pod: &TargetPod, row: Option<&NodeProbeEntry>) -> (InstanceState, Reason, String) {
    let (node, name) = (node(pod), name(pod));
    if omits(row) {
        let message = format!(
            "the reports of all targets of node {node} are more than one object holds, and {name} is not among them: have fewer \
             CkbProbes select pods of this node"
        );
        return (InstanceState::Failed, Reason::ReportTruncated, message);
    }
    let message = format!("the agent of node {node} has yet to take up {name}");
    (InstanceState::Waiting, Reason::AgentStarting, message)
}

/// Whether a report has the newest order and leaves targets out.
fn omits(row: Option<&NodeProbeEntry>) -> bool {
    let status = row
        .filter(|row| row.observed())
        .and_then(|row| row.status.as_ref());
    status.is_some_and(|status| status.instances_omitted > 0)
}

/// What agents say of the pods of a CkbProbe, by the pods' uids.
pub type Reports<'a> = BTreeMap<String, Vec<Report<'a>>>;

/// Takes the reports apart that are on this very CkbProbe, or on another one that asks the same, and on this very pod.
pub fn reports<'a>(
    probe: &CkbProbeEntry,
    spec: &ValidSpec,
    world: &'a World,
    now: Timestamp,
) -> Reports<'a> {
    // What is halted has no part in what others ask.
    let halted = halted(probe, spec, now);
    let asks = halted.is_none().then_some(spec.asks.as_str());
    let mut all = Reports::new();
    for pod in world.selected(&probe.reference.namespace, spec) {
        let row = pod.node.as_deref().and_then(|node| world.node_probe(node));
        let uid = &pod.reference.uid;
        let reports = row.map(|row| row.reports(&probe.reference.uid, asks, uid));
        let reports = reports.map(|reports| of_containers(pod, reports));
        if let Some(reports) = reports.filter(|reports| !reports.is_empty()) {
            all.insert(uid.clone(), reports);
        }
    }
    all
}

/// One of each container that the pod has: of a container one process is measured. An agent that is another's by now may tell of any
/// number, and what a status has room for is for others, too.
fn of_containers<'a>(pod: &TargetPod, mut reports: Vec<Report<'a>>) -> Vec<Report<'a>> {
    let mut left: BTreeSet<&str> = pod.containers.iter().map(|one| &*one.name).collect();
    reports.retain(|report| match &report.instance.container {
        Some(name) => left.remove(&**name),
        None => true,
    });
    reports
}

/// Paused or expired: what an agent still holds is said, and of the rest that it is let go.
fn stopped<'a>(
    spec: &CkbProbeSpec,
    pod: &'a TargetPod,
    row: Option<&'a NodeProbeEntry>,
    reports: Vec<&'a Report<'a>>,
    fresh: bool,
    reason: Reason,
) -> Vec<Target<'a>> {
    let held: Vec<_> = reports
        .into_iter()
        .filter(|report| fresh && report.instance.state == InstanceState::Attached)
        .map(|report| Target::reported(spec, pod, report, row))
        .collect();
    if !held.is_empty() {
        return held;
    }
    let message = format!("{} is not probed", name(pod));
    vec![Target::unreported(
        pod,
        InstanceState::Detached,
        reason,
        message,
    )]
}

/// The agent can measure nothing on this node, whatever there is.
fn unmeasurable<'a>(
    spec: &CkbProbeSpec,
    pod: &'a TargetPod,
    row: Option<&'a NodeProbeEntry>,
    reports: Vec<&'a Report<'a>>,
    failure: &str,
) -> Vec<Target<'a>> {
    let message = format!("on node {} nothing can be measured: {failure}", node(pod));
    let (state, reason) = (InstanceState::Failed, Reason::PreflightFailed);
    if reports.is_empty() {
        return vec![Target::unreported(pod, state, reason, message)];
    }
    reports
        .into_iter()
        .map(|report| {
            let target = Target::reported(spec, pod, report, row);
            target.overruled(state, reason, message.clone())
        })
        .collect()
}

fn agent_of<'a>(node: &str, world: &'a World) -> Option<&'a AgentPod> {
    world.agent(&agent_name(node))
}

/// When the agent last spoke, or else began to run.
fn last_sign(row: &NodeProbeEntry, agent: Option<&AgentPod>, world: &World) -> Option<Timestamp> {
    let heard = world.heard(row);
    let running = agent.and_then(|agent| agent.running_since);
    heard.max(running)
}

/// How long an agent may be silent: three of the intervals that it keeps. One that was silent for longer of late, and is not, is
/// one that the API server hears late: it gets twice as long, or what is said of it would be said and taken back with each report.
fn patience(spec: &ValidSpec, row: Option<&NodeProbeEntry>) -> SignedDuration {
    let kept = row
        .and_then(|row| row.status.as_ref()?.report_interval)
        .map(|kept| kept.get());
    let interval = spec.spec.report_interval.get();
    let interval = SignedDuration::try_from(kept.map_or(interval, |kept| kept.max(interval)));
    let usual = interval
        .unwrap_or(SignedDuration::MAX)
        .checked_mul(3)
        .unwrap_or(SignedDuration::MAX)
        .max(SILENCE_FLOOR);
    let twice = |time: SignedDuration| time.checked_mul(2).unwrap_or(SignedDuration::MAX);
    let learnt = row.map_or(SignedDuration::ZERO, |row| twice(row.gap));
    usual.max(learnt.min(twice(twice(usual))))
}

fn node(pod: &TargetPod) -> &str {
    pod.node.as_deref().unwrap_or_default()
}

/// As the API server keeps a time: what is read back is what was said.
fn to_the_second(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// `pod ckb/ckb-0`, as messages name it.
pub fn name(pod: &TargetPod) -> String {
    format!("pod {}/{}", pod.reference.namespace, pod.reference.name)
}

impl<'a> Target<'a> {
    fn unreported(
        pod: &'a TargetPod,
        state: InstanceState,
        reason: Reason,
        message: String,
    ) -> Self {
        Self {
            pod,
            container: None,
            state,
            reason,
            problems: vec![Problem::of_whole(state, reason, message.clone(), false)],
            message,
            firing: false,
            report: None,
            source: None,
            tier: None,
            counted_since: None,
            ceiling: None,
            reported_at: None,
        }
    }

    fn reported(
        spec: &CkbProbeSpec,
        pod: &'a TargetPod,
        source: &'a Report<'a>,
        row: Option<&'a NodeProbeEntry>,
    ) -> Self {
        let report = &source.instance;
        let problems = health::of_target(spec, report);
        let troubles = problems
            .iter()
            .filter(|problem| problem.prognosis != Prognosis::Unsupported);
        let gravest = troubles.min_by_key(|problem| problem.gravity());
        let (reason, message) = match gravest {
            Some(problem) => (problem.reason, problem.message.clone()),
            None => (Reason::Firing, report.message.clone()),
        };
        let status = row.and_then(|row| row.status.as_ref());
        Self {
            pod,
            container: report.container.as_deref(),
            state: report.state,
            reason,
            message,
            firing: report.state == InstanceState::Attached
                && problems.iter().all(Problem::lets_fire),
            problems,
            report: Some(report),
            source: Some(source),
            tier: status.map(|status| status.agent.tier.as_str()),
            counted_since: status
                .and_then(|status| status.agent.started_at.as_ref())
                .map(|time| time.0),
            ceiling: status.and_then(|status| status.agent.ceiling_millipercent),
            reported_at: status
                .and_then(|s| s.reported_at.as_ref())
                .map(|time| time.0),
        }
    }

    /// Says so where the report was made for another CkbProbe, which asks the same.
    fn on_behalf_of(mut self, probe: &CkbProbeEntry) -> Self {
        let other = self.report.map(|report| &report.probe);
        if let Some(other) = other.filter(|other| other.uid != probe.reference.uid) {
            self.message += &format!(
                "; CkbProbe {} asks the same, so metrics and log lines carry its name",
                other.name
            );
        }
        self
    }

    /// What is known otherwise of a target counts more than what its agent reported.
    fn overruled(self, state: InstanceState, reason: Reason, message: String) -> Self {
        let found = self.container.is_some();
        Self {
            state,
            reason,
            problems: vec![Problem::of_whole(state, reason, message.clone(), found)],
            message,
            firing: false,
            ..self
        }
    }

    /// The worst is the least; equals are in the order of their names.
    pub fn rank(&self) -> impl Ord + use<> {
        let trouble = match (self.state, self.reason) {
            (InstanceState::Failed, _) | (InstanceState::Detached, Reason::TargetDied) => 0,
            (InstanceState::Detached, Reason::OverBudget) => 1,
            (InstanceState::Waiting, _) => 2,
            (InstanceState::Attached, Reason::Firing) => 5,
            (InstanceState::Attached, Reason::Attaching) => 4,
            (InstanceState::Attached, _) => 3,
            (InstanceState::Detached, _) => 6,
        };
        let pid = self.report.and_then(|report| report.pid);
        let container = self.container.map(str::to_owned);
        (trouble, self.pod.reference.name.clone(), container, pid)
    }

    pub fn into_status(self) -> InstanceStatus {
        let report = self.report;
        let attached = self.state == InstanceState::Attached;
        let measured = report.filter(|_| attached);
        InstanceStatus {
            pod: self.pod.reference.name.clone(),
            container: self.container.map(str::to_owned),
            node: self.pod.node.clone(),
            state: self.state,
            reason: self.reason,
            message: self.message,
            reattaches: report.map_or(0, |report| report.reattaches),
            gap_seconds: numbers::seconds(report.map_or(0, |report| report.gap_milliseconds)),
            overhead_percent: measured
                .and_then(|report| report.overhead_millipercent)
                .map(numbers::percent),
            own_overhead_percent: measured
                .and_then(|report| report.own_overhead_millipercent)
                .map(numbers::percent),
            tier: self
                .tier
                .filter(|tier| attached && !tier.is_empty())
                .map(str::to_owned),
            counted_since: self.counted_since.map(to_the_second),
        }
    }
}

#[cfg(test)]
mod tests;
