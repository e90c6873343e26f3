use std::collections::HashMap;

use ckb_probe_crds::{Assignment, NodeProbeSpec};
use kube::runtime::watcher::Event;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    limits::Limits,
    profiles::rows::{News, ProfileEntry},
    testing::{at, has, node, node_probe, pod, probe, reports, runs, world},
    world::{Change, CkbProbeEntry, TargetPod},
};

/// Keeps two windows of what it looks at.
fn asking(name: &str) -> CkbProbeEntry {
    let probes = json!([{ "name": "flames", "profile": { "modes": ["Cpu"], "keep": 2 } }]);
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
        expires_at: None,
    });
    let mut row = node_probe(on, 1, vec![]);
    row.spec = Some(NodeProbeSpec {
        assignments: assignments.collect(),
    });
    reports(row)
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

#[test]
fn a_window_is_published_once_all_that_are_measured_have_sent_their_part() {
    let (mut world, probe, pods) = two();
    let mut desk = PublishPlanner::default();
    world.apply(comes(row("n.0", &probe, &pods[0], 7)), at(0));
    let plan = planned(&mut desk, &world, at(1));
    assert_eq!(plan.jobs, []);
    assert_eq!(plan.next, Some(at(30)));
    world.apply(comes(row("m.0", &probe, &pods[1], 7)), at(5));
    let plan = planned(&mut desk, &world, at(6));
    let [job] = &publishes(&plan)[..] else {
        panic!("{plan:?}");
    };
    assert_eq!(names(job), ["m.0", "n.0"]);
    assert_eq!(job.object(), "p.flames.cpu.7");
    assert_eq!(job.probe, probe.reference);
    assert_eq!(job.parts[0].pod, pods[1].reference);

    desk.published(job);
    let plan = planned(&mut desk, &world, at(7));
    assert_eq!(drops(&plan), [("m.0", Why::Merged), ("n.0", Why::Merged)]);
    assert_eq!(plan.jobs.len(), 2);
}

#[test]
fn who_sends_nothing_is_waited_for_and_comes_late_into_the_same_profile() {
    let (mut world, probe, pods) = two();
    let mut desk = PublishPlanner::default();
    world.apply(comes(row("n.0", &probe, &pods[0], 7)), at(0));
    assert_eq!(planned(&mut desk, &world, at(29)).jobs, []);
    let plan = planned(&mut desk, &world, at(30));
    let first = publishes(&plan)[0].clone();
    assert_eq!(names(&first), ["n.0"]);
    desk.published(&first);
    world.apply(comes(row("m.3", &probe, &pods[1], 7)), at(40));
    let plan = planned(&mut desk, &world, at(71));
    let late = publishes(&plan)[0];
    assert_eq!((late.object(), names(late)), (first.object(), vec!["m.3"]));
}

#[test]
fn a_part_answers_all_that_ask_the_same_and_select_its_pod_and_stays_until_all_have_it() {
    let (mut world, probe, pods) = two();
    let other = asking("q");
    assert_eq!(asks(&probe), asks(&other));
    let mut narrow = asking("r");
    narrow.spec.as_mut().unwrap().selector = kube::core::Selector::default();
    world.apply(has(&other), at(0));
    let different = crate::testing::probe("a", "s", json!({}));
    world.apply(has(&different), at(0));
    for (name, pod) in ["n.0", "m.0"].iter().zip(&pods) {
        world.apply(comes(row(name, &probe, pod, 7)), at(0));
    }
    let mut desk = PublishPlanner::default();
    let plan = planned(&mut desk, &world, at(1));
    let objects: Vec<_> = publishes(&plan).iter().map(|job| job.object()).collect();
    assert_eq!(objects, ["p.flames.cpu.7", "q.flames.cpu.7"]);
    desk.published(publishes(&plan)[0]);
    let plan = planned(&mut desk, &world, at(2));
    assert_eq!(drops(&plan), []);
    assert_eq!(publishes(&plan)[0].object(), "q.flames.cpu.7");
}

#[test]
fn an_agent_has_no_say_about_pods_of_other_nodes() {
    let (mut world, probe, pods) = two();
    world.apply(comes(row("n.0", &probe, &pods[1], 7)), at(0));
    let mut desk = PublishPlanner::default();
    assert_eq!(planned(&mut desk, &world, at(29)).jobs, []);
    let plan = planned(&mut desk, &world, at(30));
    assert_eq!(drops(&plan), [("n.0", Why::Unasked)]);
    assert_eq!(publishes(&plan).len(), 0);
}

#[test]
fn a_pod_that_has_gone_meanwhile_has_its_last_stacks_published() {
    let (mut world, probe, pods) = two();
    world.apply(Change::Pod(Event::Delete(pods[0].clone())), at(0));
    world.apply(comes(row("n.0", &probe, &pods[0], 7)), at(1));
    let mut desk = PublishPlanner::default();
    assert_eq!(planned(&mut desk, &world, at(2)).jobs, []);
    // It is known by now whose they are: the order may go.
    world.apply(reports(node_probe("n", 1, vec![])), at(3));
    let plan = planned(&mut desk, &world, at(31));
    assert_eq!(names(publishes(&plan)[0]), ["n.0"]);
}

#[test]
fn parts_of_nobody_without_sense_or_too_old_are_dropped() {
    let (mut world, probe, pods) = two();
    let mut desk = PublishPlanner::default();
    let nameless = PartEntry {
        about: None,
        ..row("n.1", &probe, &pods[0], 7)
    };
    let placeless = row("n", &probe, &pods[0], 7);
    let stranger = pod("a", "gone", Some("n"));
    for part in [nameless, placeless, row("n.2", &probe, &stranger, 7)] {
        world.apply(comes(part), at(0));
    }
    assert_eq!(
        drops(&planned(&mut desk, &world, at(1))),
        [("n", Why::Unreadable), ("n.1", Why::Unreadable)]
    );
    world.apply(comes(row("n.0", &probe, &pods[0], 8)), at(10));
    let plan = planned(&mut desk, &world, at(31));
    assert!(drops(&plan).contains(&("n.2", Why::Unasked)));
    // It could not be published for ten minutes.
    let plan = planned(&mut desk, &world, at(610));
    assert!(drops(&plan).contains(&("n.0", Why::TooOld)));
    // What is written over it is young again.
    let mut again = row("n.0", &probe, &pods[0], 9);
    again.version = "2".into();
    world.apply(comes(again), at(610));
    assert!(!drops(&planned(&mut desk, &world, at(611))).contains(&("n.0", Why::TooOld)));
}

#[test]
fn a_ckb_probe_that_is_gone_gets_nothing() {
    let (mut world, probe, pods) = two();
    let mut desk = PublishPlanner::default();
    world.apply(comes(row("n.0", &probe, &pods[0], 7)), at(0));
    planned(&mut desk, &world, at(1));
    world.apply(Change::Probe(Event::Delete(probe.clone())), at(2));
    assert_eq!(
        drops(&planned(&mut desk, &world, at(3))),
        [("n.0", Why::Unasked)]
    );
}

#[test]
fn what_cannot_be_published_is_tried_again_ever_less_often() {
    let (mut world, probe, pods) = two();
    let mut desk = PublishPlanner::default();
    for (name, pod) in ["n.0", "m.0"].iter().zip(&pods) {
        world.apply(comes(row(name, &probe, pod, 7)), at(0));
    }
    let job = publishes(&planned(&mut desk, &world, at(0)))[0].clone();
    let mut now = at(0);
    for seconds in [2, 4, 8, 16, 32, 64, 64] {
        assert_eq!(desk.failed(&job, now), SignedDuration::from_secs(seconds));
        let plan = planned(&mut desk, &world, now);
        assert_eq!(publishes(&plan).len(), 0);
        now += SignedDuration::from_secs(seconds);
        assert_eq!(publishes(&planned(&mut desk, &world, now)).len(), 1);
    }
}

#[test]
fn a_failure_is_remembered_for_as_long_as_its_parts_may_wait() {
    let (mut world, probe, pods) = two();
    let mut desk = PublishPlanner::default();
    world.apply(comes(row("n.0", &probe, &pods[0], 7)), at(0));
    let job = publishes(&planned(&mut desk, &world, at(30)))[0].clone();
    let seconds = SignedDuration::from_secs;
    assert_eq!(desk.failed(&job, at(30)), seconds(2));
    planned(&mut desk, &world, at(631));
    assert_eq!(desk.failed(&job, at(631)), seconds(4));
    planned(&mut desk, &world, at(1235));
    assert_eq!(desk.failed(&job, at(1235)), seconds(2));
    // A clock that was ahead keeps nobody waiting.
    planned(&mut desk, &world, at(-3600));
    assert_eq!(desk.failed(&job, at(-3600)), seconds(2));
}

#[test]
fn who_begins_anew_knows_nothing_of_what_was_done() {
    let (mut world, probe, pods) = two();
    let mut desk = PublishPlanner::default();
    world.apply(comes(row("n.0", &probe, &pods[0], 7)), at(0));
    let job = publishes(&planned(&mut desk, &world, at(30)))[0].clone();
    desk.failed(&job, at(30));
    desk.published(&job);
    assert_eq!(
        drops(&planned(&mut desk, &world, at(31))),
        [("n.0", Why::Merged)]
    );
    desk.forget();
    assert_eq!(publishes(&planned(&mut desk, &world, at(31))), [&job]);
}

#[test]
fn the_oldest_go_where_there_are_more_than_are_kept() {
    let (mut world, probe, _) = two();
    // Its `every` was made longer meanwhile: numbers begin anew.
    for (window, created) in [(900, 1), (901, 2), (90, 3)] {
        world.apply(is_published(profile(&probe, window, created)), at(4));
    }
    let mut others = [
        profile(&probe, 1, 0),
        profile(&probe, 2, 0),
        profile(&probe, 3, 0),
    ];
    others[0].mode = Some(ProfileMode::Memory);
    others[1].owner = Some("an earlier one".into());
    others[2].key.namespace = "b".into();
    for other in others {
        world.apply(is_published(other), at(4));
    }
    let plan = planned(&mut PublishPlanner::default(), &world, at(5));
    assert_eq!(
        plan.jobs,
        [ProfileAction::Remove {
            key: ObjectKey::new("a", "p.flames.cpu.900"),
            uid: "uid-p.flames.cpu.900".into(),
        }]
    );
}

#[test]
fn slow_calls_are_published_without_those_who_had_none_and_five_windows_of_them_are_kept() {
    let probes = json!([{ "name": "storage", "rocksdb": { "stacks": true } }]);
    let probe = probe("a", "p", json!({ "probes": probes }));
    let (mut world, _, pods) = two();
    world.apply(has(&probe), at(0));
    for (node, pod) in ["n", "m"].iter().zip(&pods) {
        world.apply(ordered(node, &probe, std::slice::from_ref(pod)), at(0));
    }
    let mut part = row("n.0", &probe, &pods[0], 7);
    if let Some(about) = &mut part.about {
        (about.probe, about.mode) = ("storage".into(), ProfileMode::SlowCalls);
    }
    world.apply(comes(part), at(0));
    let mut desk = PublishPlanner::default();
    assert_eq!(planned(&mut desk, &world, at(29)).next, Some(at(30)));
    let plan = planned(&mut desk, &world, at(30));
    let [job] = &publishes(&plan)[..] else {
        panic!("{plan:?}");
    };
    assert_eq!(
        (job.object(), names(job)),
        ("p.storage.slowcalls.7".into(), vec!["n.0"])
    );
    desk.published(job);
    assert_eq!(
        drops(&planned(&mut desk, &world, at(31))),
        [("n.0", Why::Merged)]
    );

    for window in 1..=7 {
        let row = ProfileEntry {
            probe: "storage".into(),
            mode: Some(ProfileMode::SlowCalls),
            ..profile(&probe, window, window as i64)
        };
        world.apply(is_published(row), at(32));
    }
    let plan = planned(&mut PublishPlanner::default(), &world, at(33));
    let removed = plan.jobs.iter().filter_map(|job| match job {
        ProfileAction::Remove { uid, .. } => Some(&**uid),
        ProfileAction::Publish(_) | ProfileAction::Drop { .. } => None,
    });
    let removed: BTreeSet<&str> = removed.collect();
    let oldest = ["uid-p.flames.cpu.1", "uid-p.flames.cpu.2"];
    assert_eq!(removed, BTreeSet::from(oldest));
}

fn removed(plan: &Plan) -> Vec<&str> {
    let removed = plan.jobs.iter().filter_map(|job| match job {
        ProfileAction::Remove { uid, .. } => uid.strip_prefix("uid-"),
        ProfileAction::Publish(_) | ProfileAction::Drop { .. } => None,
    });
    removed.collect()
}

#[test]
fn the_oldest_profiles_of_a_namespace_go_where_they_take_too_many_bytes_together() {
    let probes =
        json!({ "probes": [{ "name": "flames", "profile": { "modes": ["Cpu"], "keep": 50 } }] });
    let (p, q) = (
        probe("a", "p", probes.clone()),
        probe("a", "q", probes.clone()),
    );
    let other = probe("b", "r", probes);
    let elsewhere = ProfileEntry {
        key: ObjectKey::new("b", "r.flames.cpu.1"),
        bytes: 9_000,
        ..profile(&other, 1, 0)
    };
    let rows = [
        profile(&p, 1, 1),
        profile(&q, 1, 2),
        profile(&p, 2, 3),
        profile(&q, 2, 4),
        elsewhere,
    ];
    let mut world = world(listed().into_iter().chain([has(&p), has(&q), has(&other)]));
    for row in rows {
        world.apply(is_published(row), at(4));
    }
    let plan = |world: &World, bytes| {
        let limits = Limits {
            profile_bytes_per_namespace: bytes,
            ..Limits::default()
        };
        within(&limits, &mut PublishPlanner::default(), world, at(5))
    };
    assert_eq!(removed(&plan(&world, 9_000)), [] as [&str; 0]);
    world.apply(is_published(profile(&p, 3, 5)), at(5));
    assert_eq!(removed(&plan(&world, 9_000)), [] as [&str; 0]);
    let plan_of = plan(&world, 3_999);
    let gone: BTreeSet<&str> = removed(&plan_of).into_iter().collect();
    let oldest = ["p.flames.cpu.1", "q.flames.cpu.1", "r.flames.cpu.1"];
    assert_eq!(
        gone,
        BTreeSet::from(oldest),
        "r's is larger than all that may be"
    );
}

#[test]
fn what_is_younger_does_not_go_before_what_is_older_however_many_must() {
    let probes =
        json!({ "probes": [{ "name": "flames", "profile": { "modes": ["Cpu"], "keep": 50 } }] });
    let (p, q) = (probe("a", "p", probes.clone()), probe("a", "q", probes));
    let mut world = world(listed().into_iter().chain([has(&p), has(&q)]));
    for window in 0..20 {
        world.apply(is_published(profile(&p, window, window as i64)), at(30));
    }
    for window in 0..3 {
        world.apply(is_published(profile(&q, window, 100)), at(100));
    }
    let limits = Limits {
        profile_bytes_per_namespace: 1_000,
        ..Limits::default()
    };
    let (mut older, mut younger) = (0, 0);
    loop {
        let plan = within(&limits, &mut PublishPlanner::default(), &world, at(101));
        let uids: Vec<String> = removed(&plan).into_iter().map(str::to_owned).collect();
        if uids.is_empty() {
            break;
        }
        for name in uids {
            match name.starts_with("p.") {
                true => older += 1,
                false => younger += 1,
            }
            let key = ObjectKey::new("a", name);
            let row = world.shelf().profiles().find(|row| row.key == key);
            let row = row.cloned().unwrap();
            world.apply(Change::Profiles(News::Profile(Event::Delete(row))), at(101));
        }
        assert!(younger == 0 || older == 20, "{older} and {younger}");
    }
    assert_eq!((older, younger), (20, 2), "one of a thousand bytes stays");
}

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    PartToMerge {
        node: usize,
        slot: u8,
        pod: usize,
        window: u64,
    },
    Forget,
    Probe {
        which: usize,
        there: bool,
    },
    Pod {
        which: usize,
        there: bool,
    },
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2_usize, 0..4_u8, 0..4_usize, 0..3_u64)
            .prop_map(|(node, slot, pod, window)| Step::PartToMerge { node, slot, pod, window }),
        1 => Just(Step::Forget),
        1 => (0..2_usize, any::<bool>()).prop_map(|(which, there)| Step::Probe { which, there }),
        1 => (0..4_usize, any::<bool>()).prop_map(|(which, there)| Step::Pod { which, there }),
        3 => (1..40_i64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever comes in whatever order, with plans carried out or forgotten on the way: no part outlives its time, none is dropped
    /// as merged before it is in a profile of each that is there, none gets to a CkbProbe that does not ask, and none is about
    /// another node's pod.
    #[test]
    fn each_part_is_published_or_dropped_and_only_where_it_belongs(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let nodes = ["n", "m"];
        let probes = [asking("p"), asking("q")];
        let pods: Vec<_> = (0..4)
            .map(|n| pod("a", &format!("ckb-{n}"), Some(nodes[n % 2])))
            .collect();
        let (mut world, _, _) = two();
        for (on, node) in nodes.iter().enumerate() {
            let here: Vec<_> = pods.iter().skip(on).step_by(2).cloned().collect();
            world.apply(ordered(node, &probes[0], &here), at(0));
        }
        let mut desk = PublishPlanner::default();
        let (mut now, mut version) = (0, 0);
        // Which parts are in which profile.
        let mut shelf: HashMap<String, BTreeSet<PartId>> = HashMap::new();
        for step in steps.into_iter().chain([Step::Wait(700), Step::Wait(1)]) {
            match step {
                Step::PartToMerge { node, slot, pod, window } => {
                    let name = ckb_probe_crds::part_name(nodes[node], slot);
                    let mut row = row(&name, &probes[0], &pods[pod], window);
                    version += 1;
                    row.version = version.to_string();
                    world.apply(comes(row), at(now));
                }
                Step::Forget => desk.forget(),
                Step::Probe { which, there: true } => drop(world.apply(has(&probes[which]), at(now))),
                Step::Probe { which, there: false } => {
                    world.apply(Change::Probe(Event::Delete(probes[which].clone())), at(now));
                }
                Step::Pod { which, there: true } => drop(world.apply(runs(&pods[which]), at(now))),
                Step::Pod { which, there: false } => {
                    world.apply(Change::Pod(Event::Delete(pods[which].clone())), at(now));
                }
                Step::Wait(seconds) => now += seconds,
            }
            let plan = planned(&mut desk, &world, at(now));
            prop_assert!(plan.next.is_none_or(|next| next > at(now)), "{plan:?} at {now}");
            for job in &plan.jobs {
                match job {
                    ProfileAction::Publish(job) => {
                        let probe = world.probe(&ObjectKey::new("a", &job.probe.name));
                        prop_assert_eq!(probe.map(|row| &row.reference), Some(&job.probe));
                        for part in &job.parts {
                            let row = world.shelf().part(&part.id.name).unwrap();
                            prop_assert_eq!(&PartId::of(row), &part.id);
                            let on = pods.iter().find(|pod| pod.reference == part.pod).unwrap();
                            prop_assert_eq!(on.node.as_deref(), Some(&*part.node));
                            shelf.entry(job.object()).or_default().insert(part.id.clone());
                        }
                        desk.published(job);
                    }
                    ProfileAction::Drop { part, why } => {
                        let row = world.shelf().part(&part.name).unwrap().clone();
                        prop_assert_eq!(&PartId::of(&row), part);
                        if *why == Why::Merged {
                            let held = shelf.values().any(|parts| parts.contains(part));
                            prop_assert!(held, "{part:?} is in no profile");
                        }
                        world.apply(Change::Profiles(News::Part(Event::Delete(row))), at(now));
                    }
                    ProfileAction::Remove { .. } => prop_assert!(false, "there is no profile"),
                }
            }
        }
        prop_assert_eq!(world.shelf().parts().count(), 0);
    }
}

#[test]
fn who_is_paused_expired_or_beyond_a_limit_gets_no_profiles() {
    let (mut world, _, pods) = two();
    let (mut paused, mut expired, mut beyond) = (asking("q"), asking("r"), asking("s"));
    paused.spec.as_mut().unwrap().spec.paused = true;
    expired.spec.as_mut().unwrap().spec.duration = Some("10s".parse().unwrap());
    beyond.created = at(-1);
    for probe in [&paused, &expired, &beyond] {
        world.apply(has(probe), at(0));
    }
    for (name, pod) in ["n.0", "m.0"].iter().zip(&pods) {
        world.apply(comes(row(name, &paused, pod, 7)), at(0));
    }
    let one_per_target = Limits {
        ckb_probes_per_target: 1,
        ..Limits::default()
    };
    let one_per_namespace = Limits {
        ckb_probes_per_namespace: 1,
        ..Limits::default()
    };
    for limits in [one_per_target, one_per_namespace] {
        let plan = within(&limits, &mut PublishPlanner::default(), &world, at(1));
        let objects: Vec<_> = publishes(&plan).iter().map(|job| job.object()).collect();
        assert_eq!(objects, ["p.flames.cpu.7"], "{limits:?}");
    }
    let plan = planned(&mut PublishPlanner::default(), &world, at(1));
    let objects: Vec<_> = publishes(&plan).iter().map(|job| job.object()).collect();
    assert_eq!(objects, ["p.flames.cpu.7", "s.flames.cpu.7"]);
}

#[test]
fn who_has_just_expired_still_gets_the_last_window_in_no_greater_number_than_was_measured() {
    let (mut world, probe, pods) = two();
    for n in 0..4 {
        let mut expired = asking(&format!("q{n}"));
        expired.spec.as_mut().unwrap().spec.duration = Some("100s".parse().unwrap());
        world.apply(has(&expired), at(0));
    }
    world.apply(comes(row("n.0", &probe, &pods[0], 7)), at(2));
    let limits = Limits {
        ckb_probes_per_target: 3,
        ..Limits::default()
    };
    let mut desk = PublishPlanner::default();
    within(&limits, &mut desk, &world, at(2));
    let plan = within(&limits, &mut desk, &world, at(40));
    let objects: Vec<_> = publishes(&plan).iter().map(|job| job.object()).collect();
    let first = ["p.flames.cpu.7", "q0.flames.cpu.7", "q1.flames.cpu.7"];
    assert_eq!(objects, first);
    // And nobody else who asks later.
    let plan = within(&limits, &mut PublishPlanner::default(), &world, at(40));
    let objects: Vec<_> = publishes(&plan).iter().map(|job| job.object()).collect();
    assert_eq!(objects, ["p.flames.cpu.7"]);
}

#[test]
fn who_has_just_been_paused_still_gets_the_last_window() {
    let (mut world, mut probe, pods) = two();
    let never = {
        let mut never = asking("q");
        never.spec.as_mut().unwrap().spec.paused = true;
        never
    };
    world.apply(has(&never), at(0));
    probe.spec.as_mut().unwrap().spec.paused = true;
    world.apply(has(&probe), at(10));
    for (name, pod) in ["n.0", "m.0"].iter().zip(&pods) {
        world.apply(comes(row(name, &probe, pod, 7)), at(12));
    }
    for (now, expected) in [(60, vec!["p.flames.cpu.7"]), (71, vec![])] {
        let plan = planned(&mut PublishPlanner::default(), &world, at(now));
        let objects: Vec<_> = publishes(&plan).iter().map(|job| job.object()).collect();
        assert_eq!(objects, expected, "at {now}");
    }
}

#[test]
fn five_thousand_paused_copies_add_no_work() {
    let names: Vec<_> = (0..16).map(|n| format!("flames-{n}")).collect();
    let modes = ["Cpu", "OffCpu", "Memory", "Threads"];
    let probes = names
        .iter()
        .map(|name| json!({ "name": name, "profile": { "modes": modes } }));
    let probes = json!({ "probes": probes.collect::<Vec<_>>() });
    let one = probe("a", "p", probes.clone());
    let pod = pod("a", "ckb-0", Some("n"));
    let mut world = world(listed().into_iter().chain([
        node("n"),
        has(&one),
        runs(&pod),
        ordered("n", &one, std::slice::from_ref(&pod)),
    ]));
    for n in 0..5_000 {
        let mut paused = probe("a", &format!("q{n}"), probes.clone());
        paused.spec.as_mut().unwrap().spec.paused = true;
        world.apply(has(&paused), at(0));
    }
    for slot in 0..64 {
        let mut part = row(&format!("n.{slot}"), &one, &pod, 7);
        let about = part.about.as_mut().unwrap();
        about.probe = names[slot / 4].clone();
        about.mode = ProfileMode::named(modes[slot % 4]).unwrap();
        world.apply(comes(part), at(0));
    }
    let view = View {
        world: &world,
        limits: &Limits::default(),
        now: at(1),
    };
    assert_eq!(Readers::new(view, &desired(view)).work(), (1, 0));
    let mut desk = PublishPlanner::default();
    let (mut done, mut rounds) = (BTreeSet::new(), 0);
    while done.len() < 64 {
        rounds += 1;
        let plan = desk.plan(view, &desired(view));
        for job in publishes(&plan) {
            assert_eq!(job.probe, one.reference);
            assert!(done.insert(job.object()), "{} again", job.object());
            desk.published(job);
        }
    }
    assert_eq!(rounds, 64 / turns::MOST_STEPS);
}

#[test]
fn the_order_of_a_node_is_opened_once_a_plan() {
    let (mut world, probe, pods) = two();
    world.apply(Change::Pod(Event::Delete(pods[0].clone())), at(0));
    let view = View {
        world: &world,
        limits: &Limits::default(),
        now: at(1),
    };
    let desired = desired(view);
    let mut readers = Readers::new(view, &desired);
    let about = row("n.0", &probe, &pods[0], 7).about.unwrap();
    for _ in 0..16 {
        let (pod, found) = readers.of("n", &about).unwrap();
        assert_eq!(
            (pod, found),
            (pods[0].reference.clone(), vec![probe.reference.clone()])
        );
    }
    assert_eq!(readers.work(), (1, 1));
}

#[test]
fn a_series_has_one_window_published_at_a_time_and_what_it_has_no_room_for_goes_right_after() {
    let (mut world, probe, pods) = two();
    for window in 0..20 {
        let old = profile(&probe, window, window as i64 - 100);
        world.apply(is_published(old), at(0));
    }
    for (slot, window) in [(0, 30), (1, 31)] {
        for (node, pod) in ["n", "m"].iter().zip(&pods) {
            let part = row(&format!("{node}.{slot}"), &probe, pod, window);
            world.apply(comes(part), at(slot));
        }
    }
    let plan = planned(&mut PublishPlanner::default(), &world, at(2));
    let words = plan.jobs.iter().map(|job| match job {
        ProfileAction::Publish(job) => job.object(),
        ProfileAction::Remove { key, .. } => format!("- {}", key.name),
        ProfileAction::Drop { part, .. } => format!("- {}", part.name),
    });
    let oldest = (0..8).map(|window| format!("- p.flames.cpu.{window}"));
    let expected = ["p.flames.cpu.30".to_owned()].into_iter().chain(oldest);
    assert_eq!(words.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn namespaces_take_turns_whoever_asks_for_more() {
    let (mut world, _, _) = two();
    for namespace in ["b", "c"] {
        let count = if namespace == "b" { 40 } else { 1 };
        let pod = pod(namespace, "ckb-0", Some("n"));
        world.apply(runs(&pod), at(0));
        for n in 0..count {
            let mut one = asking(&format!("{namespace}{n}"));
            one.reference.namespace = namespace.into();
            world.apply(has(&one), at(0));
            if n == 0 {
                world.apply(comes(row(&format!("n.{namespace}"), &one, &pod, 7)), at(0));
            }
        }
    }
    // The names of slots are not what this is about.
    let parts: Vec<_> = world.shelf().parts().cloned().collect();
    for (slot, part) in parts.into_iter().enumerate() {
        world.apply(
            Change::Profiles(News::Part(Event::Delete(part.clone()))),
            at(0),
        );
        let part = PartEntry {
            name: format!("n.{slot}"),
            node: Some("n".into()),
            ..part
        };
        world.apply(comes(part), at(0));
    }
    let mut desk = PublishPlanner::default();
    let of = |plan: &Plan| -> Vec<String> {
        let jobs = publishes(plan).into_iter();
        jobs.map(|job| job.probe.namespace.clone()).collect()
    };
    let mut expected = vec!["b".to_owned(); 16];
    expected[1] = "c".into();
    assert_eq!(of(&planned(&mut desk, &world, at(1))), expected);
    // It goes on where it stopped: after b comes c.
    expected.swap(0, 1);
    assert_eq!(of(&planned(&mut desk, &world, at(2))), expected);
}

#[test]
fn a_node_that_sends_many_windows_keeps_no_other_waiting_for_more_than_one() {
    let (mut world, probe, pods) = two();
    for window in 1..=5 {
        let part = row(&format!("m.{window}"), &probe, &pods[1], window);
        world.apply(comes(part), at(0));
    }
    for window in 8..=9 {
        let part = row(&format!("n.{window}"), &probe, &pods[0], window);
        world.apply(comes(part), at(1));
    }
    let mut desk = PublishPlanner::default();
    let mut windows = Vec::new();
    for _ in 0..7 {
        let plan = planned(&mut desk, &world, at(40));
        let [job] = publishes(&plan)[..] else {
            panic!("{plan:?}");
        };
        windows.push(job.window);
        desk.published(job);
    }
    assert_eq!(windows, [1, 8, 2, 9, 3, 4, 5]);
}
