//! Who comes next where there is much to publish, and what planning that costs.

use super::*;

#[test]
fn five_thousand_paused_copies_add_no_work() {
    let names: Vec<_> = (0..16).map(|n| format!("flames-{n}")).collect();
    let modes = ["Cpu", "OffCpu", "Memory", "Threads"];
    let probes = names
        .iter()
        .map(|name| json!({ "name": name, "profile": { "modes": modes, "every": "10s", "window": "10s" } }));
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
    while done.len() < 64 && rounds < 64 {
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
