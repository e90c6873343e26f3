mod crowded;
mod readers;
mod whose_turn;

use ckb_probe_crds::{Assignment, NodeProbeSpec};
use kube::runtime::watcher::Event;
use serde_json::json;

use super::*;
use crate::{
    limits::Limits,
    profiles::rows::{News, ProfileEntry},
    testing::{at, has, node, node_probe, pod, probe, reports, runs, world},
    world::{Change, CkbProbeEntry, TargetPod},
};

/// Seconds from one window to the next.
const EVERY: i64 = 10;

/// Keeps two windows of what it looks at.
fn asking(name: &str) -> CkbProbeEntry {
    let probes = json!([{ "name": "flames", "profile": { "modes": ["Cpu"], "every": "10s", "window": "10s", "keep": 2 } }]);
    probe("a", name, json!({ "probes": probes }))
}

fn asks(probe: &CkbProbeEntry) -> String {
    probe.spec.as_ref().unwrap().asks.clone()
}

/// This node is told to measure these pods for the CkbProbe.
fn ordered(on: &str, probe: &CkbProbeEntry, pods: &[TargetPod]) -> Change {
    let spec = &probe.spec.as_ref().unwrap().spec;
    let assignments = pods.iter().map(|pod| Assignment {
        probe: probe.reference.clone(),
        asks: asks(probe),
        pod: pod.reference.clone(),
        containers: pod.containers.clone(),
        executable: "ckb".into(),
        report_interval: spec.report_interval,
        overhead: spec.overhead.clone(),
        probes: spec.probes.clone(),
        traces: None,
        expires_at: None,
    });
    let mut row = node_probe(on, 1, vec![]);
    row.spec = Some(NodeProbeSpec {
        assignments: assignments.collect(),
    });
    reports(row)
}

fn since_1970(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn row(name: &str, probe: &CkbProbeEntry, pod: &TargetPod, window: u64) -> PartEntry {
    PartEntry {
        name: name.into(),
        uid: format!("uid-{name}-{window}"),
        version: "1".into(),
        node: ckb_probe_crds::part_place(name).map(|(node, _)| node.to_owned()),
        about: Some(PartLabels {
            asks: asks(probe),
            probe: "flames".into(),
            mode: ProfileMode::Cpu,
            window,
            pod: pod.reference.uid.clone(),
        }),
        written: since_1970(EVERY * i64::try_from(window).unwrap()),
        seen: Timestamp::UNIX_EPOCH,
    }
}

fn comes(row: PartEntry) -> Change {
    Change::Profiles(News::Part(Event::Apply(row)))
}

fn listed() -> [Change; 2] {
    [
        Change::Profiles(News::Part(Event::InitDone)),
        Change::Profiles(News::Profile(Event::InitDone)),
    ]
}

fn profile(probe: &CkbProbeEntry, window: u64, created: i64) -> ProfileEntry {
    let name = format!("{}.flames.cpu.{window}", probe.reference.name);
    ProfileEntry {
        uid: format!("uid-{name}"),
        key: ObjectKey::new("a", name),
        owner: Some(probe.reference.uid.clone()),
        probe: "flames".into(),
        mode: Some(ProfileMode::Cpu),
        window,
        bytes: 1_000,
        created: at(created),
        deleting: false,
    }
}

fn is_published(row: ProfileEntry) -> Change {
    Change::Profiles(News::Profile(Event::Apply(row)))
}

/// Two pods on two nodes, both measured for `p`.
fn two() -> (World, CkbProbeEntry, [TargetPod; 2]) {
    let probe = asking("p");
    let pods = [pod("a", "ckb-0", Some("n")), pod("a", "ckb-1", Some("m"))];
    let world = world(listed().into_iter().chain([
        node("n"),
        node("m"),
        has(&probe),
        runs(&pods[0]),
        runs(&pods[1]),
        ordered("n", &probe, &pods[..1]),
        ordered("m", &probe, &pods[1..]),
    ]));
    (world, probe, pods)
}

/// What is planned for these within the usual limits.
fn planned(desk: &mut PublishPlanner, world: &World, now: Timestamp) -> Plan {
    within(&Limits::default(), desk, world, now)
}

fn within(limits: &Limits, desk: &mut PublishPlanner, world: &World, now: Timestamp) -> Plan {
    let view = View { world, limits, now };
    desk.plan(view, &desired(view))
}

fn desired(view: View<'_>) -> Desired {
    let mut desired = Desired::default();
    let everything = desired.everything(view.world);
    desired.revise(everything, view, |_, _| {});
    desired
}

fn names(job: &Publish) -> Vec<&str> {
    job.parts.iter().map(|part| &*part.id.name).collect()
}

fn publishes(plan: &Plan) -> Vec<&Publish> {
    let publish = plan.jobs.iter().filter_map(|job| match job {
        ProfileAction::Publish(job) => Some(job),
        ProfileAction::Drop { .. } | ProfileAction::Remove { .. } => None,
    });
    publish.collect()
}

fn drops(plan: &Plan) -> Vec<(&str, Why)> {
    let drops = plan.jobs.iter().filter_map(|job| match job {
        ProfileAction::Drop { part, why } => Some((&*part.name, *why)),
        ProfileAction::Publish(_) | ProfileAction::Remove { .. } => None,
    });
    drops.collect()
}
