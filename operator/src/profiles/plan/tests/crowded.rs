//! What goes where there are more profiles, or larger ones, than are kept.

use super::*;

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
    part.written = since_1970(7 * 600);
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
    let probes = json!({ "probes": [{ "name": "flames", "profile": { "modes": ["Cpu"], "every": "10s", "window": "10s", "keep": 50 } }] });
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
    let probes = json!({ "probes": [{ "name": "flames", "profile": { "modes": ["Cpu"], "every": "10s", "window": "10s", "keep": 50 } }] });
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
