//! Which parts are published for whom, when, and when they go.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

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
fn a_part_of_a_window_that_there_cannot_be_yet_has_no_turn() {
    let (mut world, probe, pods) = two();
    let mut desk = PublishPlanner::default();
    // An agent that is another's: numbers of its choice, of a pod that it has.
    for slot in 0..16 {
        let mut part = row(&format!("n.{slot}"), &probe, &pods[0], 1_000_000 + slot);
        part.written = since_1970(100);
        world.apply(comes(part), at(100));
    }
    let mut honest = row("m.0", &probe, &pods[1], 9);
    honest.written = since_1970(100);
    world.apply(comes(honest), at(100));
    let plan = planned(&mut desk, &world, at(131));
    let dropped = drops(&plan);
    assert_eq!(dropped.len(), 16, "{dropped:?}");
    assert!(dropped.iter().all(|(_, why)| *why == Why::Untimely));
    let published = publishes(&plan);
    assert_eq!((published.len(), names(published[0])), (1, vec!["m.0"]));
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
