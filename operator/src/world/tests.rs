use std::collections::BTreeSet;

use ckb_probe_crds::Container;
use serde_json::json;

use super::*;
use crate::testing::{at, firing, has, node, node_probe, pod, probe, reports, runs, synced, world};

fn target(pod: serde_json::Value) -> TargetPod {
    serde_json::from_value::<RawPod>(pod).unwrap().into()
}

#[test]
fn a_pod_is_read_as_far_as_it_is_needed() {
    let pod = target(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "ckb", "name": "ckb-0", "uid": "u", "labels": { "app": "ckb" } },
        "spec": {
            "nodeName": "node-a",
            "initContainers": [{ "name": "once" }, { "name": "sidecar", "restartPolicy": "Always" }],
            "containers": [{ "name": "ckb", "env": [{ "name": "A", "value": "b" }] }, { "name": "late" }],
        },
        "status": {
            "phase": "Pending",
            "containerStatuses": [
                { "name": "ckb", "containerID": "containerd://abc", "state": { "running": {} } },
                { "name": "late", "state": { "waiting": { "reason": "ErrImagePull", "message": "no such image" } } },
            ],
            "initContainerStatuses": [{ "name": "sidecar", "containerID": "cri-o://def" }],
        },
    }));
    let container = |name: &str, id: Option<&str>| Container {
        name: name.into(),
        id: id.map(str::to_owned),
    };
    assert_eq!(
        pod.containers,
        [
            container("ckb", Some("abc")),
            container("late", None),
            container("sidecar", Some("def")),
        ]
    );
    assert_eq!(pod.node.as_deref(), Some("node-a"));
    assert_eq!(pod.phase, Phase::Pending);
    assert_eq!(
        pod.trouble.as_deref(),
        Some("container late waits: ErrImagePull: no such image")
    );
}

#[test]
fn a_pod_that_no_node_takes_says_why() {
    let pod = target(json!({
        "metadata": { "name": "ckb-0" },
        "spec": { "containers": [{ "name": "ckb" }] },
        "status": { "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes" },
        ] },
    }));
    assert_eq!(pod.node, None);
    assert_eq!(pod.trouble.as_deref(), Some("Unschedulable: 0/1 nodes"));
}

#[test]
fn an_agent_that_is_only_starting_is_in_no_trouble() {
    let agent = |reason: &str| -> AgentPod {
        let raw: RawAgent = serde_json::from_value(json!({
            "metadata": { "name": "a" },
            "spec": {},
            "status": { "phase": "Pending", "containerStatuses": [
                { "name": "agent", "state": { "waiting": { "reason": reason, "message": "m" } } },
            ] },
        }))
        .unwrap();
        raw.into()
    };
    assert_eq!(agent("ContainerCreating").trouble, None);
    assert_eq!(agent("PodInitializing").trouble, None);
    assert_eq!(
        agent("ImagePullBackOff").trouble.as_deref(),
        Some("ImagePullBackOff: m")
    );
}

#[test]
fn an_agent_that_ended_says_how_and_not_when() {
    let trouble = |terminated: serde_json::Value| {
        let raw: RawAgent = serde_json::from_value(json!({
            "metadata": { "name": "a" },
            "spec": {},
            "status": { "phase": "Running", "containerStatuses": [{
                "name": "agent",
                "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 10s" } },
                "lastState": { "terminated": terminated },
            }] },
        }))
        .unwrap();
        AgentPod::from(raw).trouble.unwrap()
    };
    let log = "2026-11-20T14:00:00.123456Z  INFO node_agent: begins\n\
               2026-11-20T14:00:01.123456Z ERROR node_agent: cannot measure on this node: no\n";
    assert_eq!(
        trouble(json!({ "reason": "Error", "exitCode": 1, "message": log })),
        "CrashLoopBackOff: back-off 10s; it ended with Error: \
         ERROR node_agent: cannot measure on this node: no"
    );
    assert_eq!(
        trouble(json!({ "reason": "Error", "message": "a line without a time" })),
        "CrashLoopBackOff: back-off 10s; it ended with Error: a line without a time"
    );
    assert_eq!(
        trouble(json!({ "reason": "OOMKilled", "exitCode": 137 })),
        "CrashLoopBackOff: back-off 10s; it ended with OOMKilled"
    );
}

fn raw(spec: serde_json::Value, status: serde_json::Value) -> Raw {
    serde_json::from_value(json!({
        "metadata": { "namespace": "ckb", "name": "p", "uid": "u", "generation": 2 },
        "spec": spec,
        "status": status,
    }))
    .unwrap()
}

#[test]
fn an_unreadable_spec_or_status_leaves_the_rest_readable() {
    let broken = CkbProbeEntry::from(raw(json!({ "probes": 7 }), json!({})));
    assert!(
        matches!(broken.spec, Err(InvalidProbe::Unreadable(_))),
        "{broken:?}"
    );
    assert_eq!(broken.reference.uid, "u");

    let empty = CkbProbeEntry::from(raw(
        json!({ "target": { "selector": {} }, "probes": [] }),
        json!({}),
    ));
    assert!(
        matches!(empty.spec, Err(InvalidProbe::Selector(_))),
        "{empty:?}"
    );

    let good = json!({ "target": { "selector": { "matchLabels": { "a": "b" } } }, "probes": [] });
    let odd_status = CkbProbeEntry::from(raw(good, json!({ "conditions": "none" })));
    assert!(odd_status.spec.is_ok());
    assert_eq!(odd_status.status, None);

    let report = NodeProbeEntry::from(raw(
        json!({ "assignments": [] }),
        json!({ "instances": [{ "state": "Levitating" }] }),
    ));
    assert!(report.spec.is_some());
    assert_eq!(report.status, None);
}

#[test]
fn the_world_is_synced_when_every_kind_was_listed() {
    let mut world = World::default();
    for change in synced() {
        assert!(!world.synced());
        world.apply(change, at(0));
    }
    assert!(world.synced());
}

#[test]
fn a_new_list_replaces_the_old_one_at_its_end() {
    let probe = probe("ckb", "p", json!({}));
    let (a, b) = (pod("ckb", "a", None), pod("ckb", "b", None));
    let mut world = world([has(&probe), runs(&a)]);
    let spec = probe.spec.as_ref().unwrap();
    let names = |world: &World| -> Vec<String> {
        let pods = world.selected("ckb", spec);
        pods.map(|pod| pod.reference.name.clone()).collect()
    };
    world.apply(Change::Pod(Event::Init), at(0));
    world.apply(Change::Pod(Event::InitApply(b)), at(0));
    assert_eq!(names(&world), ["a"]);
    let touched = world.apply(Change::Pod(Event::InitDone), at(0));
    assert_eq!(names(&world), ["b"]);
    assert_eq!(touched.probes, BTreeSet::from([ObjectKey::new("ckb", "p")]));
}

#[test]
fn the_end_of_an_older_object_does_not_remove_a_newer_one_of_its_name() {
    let old = pod("ckb", "a", None);
    let mut new = old.clone();
    new.reference.uid = "newer".into();
    let probe = probe("ckb", "p", json!({}));
    let mut world = world([has(&probe), runs(&new)]);
    world.apply(Change::Pod(Event::Delete(old)), at(0));
    assert_eq!(
        world.selected("ckb", probe.spec.as_ref().unwrap()).count(),
        1
    );
    world.apply(Change::Pod(Event::Delete(new)), at(0));
    assert_eq!(
        world.selected("ckb", probe.spec.as_ref().unwrap()).count(),
        0
    );
}

#[test]
fn pods_touch_the_probes_of_their_namespace_only_and_nothing_when_nothing_changed() {
    let mut world = world([
        has(&probe("ckb", "p", json!({}))),
        has(&probe("other", "q", json!({}))),
    ]);
    let a = pod("ckb", "a", None);
    let touched = world.apply(runs(&a), at(0));
    let expected = Touched {
        probes: [ObjectKey::new("ckb", "p")].into(),
        ..Touched::default()
    };
    assert_eq!(touched, expected);
    assert_eq!(world.apply(runs(&a), at(0)), Touched::default());
    let elsewhere = pod("empty", "a", None);
    assert_eq!(world.apply(runs(&elsewhere), at(0)), Touched::default());
}

#[test]
fn a_report_touches_statuses_but_not_the_fleet() {
    let probe = probe("ckb", "p", json!({}));
    let pod = pod("ckb", "a", Some("n"));
    let mut world = world([
        has(&probe),
        runs(&pod),
        node("n"),
        reports(node_probe("n", 9, vec![])),
    ]);
    let touched = world.apply(
        reports(node_probe("n", 1, vec![firing(&probe, &pod)])),
        at(0),
    );
    assert_eq!(touched.probes, [ObjectKey::new("ckb", "p")].into());
    assert!(!touched.fleet);
    assert_eq!(touched.nodes, BTreeSet::new());
}

#[test]
fn a_pod_touches_the_nodes_that_it_is_and_was_on_and_no_other() {
    let probe = probe("ckb", "p", json!({}));
    let on = |node| pod("ckb", "a", Some(node));
    let others = (0..9).map(|other| runs(&pod("ckb", &format!("b{other}"), Some("other"))));
    let mut world = world([has(&probe), node("n"), node("m"), node("other")]);
    for other in others {
        world.apply(other, at(0));
    }
    let nodes = |touched: Touched| -> Vec<String> {
        assert!(!touched.fleet);
        touched.nodes.into_iter().collect()
    };
    assert_eq!(nodes(world.apply(runs(&on("n")), at(0))), ["n"]);
    assert_eq!(nodes(world.apply(runs(&on("m")), at(0))), ["m", "n"]);
    let gone = Change::Pod(Event::Delete(on("m")));
    assert_eq!(nodes(world.apply(gone, at(0))), ["m"]);
}

#[test]
fn a_pod_that_no_probe_selects_touches_nothing_until_one_does() {
    let probe = probe("ckb", "p", json!({}));
    let mut world = world([has(&probe), node("n")]);
    let selected = pod("ckb", "a", Some("n"));
    let mut other = selected.clone();
    other.labels = std::collections::BTreeMap::from([("app".into(), "web".into())]).into();
    assert_eq!(world.apply(runs(&other), at(0)), Touched::default());
    let expected = Touched {
        probes: [ObjectKey::new("ckb", "p")].into(),
        nodes: ["n".to_owned()].into(),
        ..Touched::default()
    };
    assert_eq!(world.apply(runs(&selected), at(0)), expected);
    assert_eq!(world.apply(runs(&other), at(0)), expected);
}

#[test]
fn an_own_status_write_does_not_touch_the_fleet() {
    let mut row = probe("ckb", "p", json!({}));
    let mut world = world([has(&row)]);
    row.status = Some(Box::default());
    let expected = Touched {
        probes: [row.key()].into(),
        ..Touched::default()
    };
    assert_eq!(world.apply(has(&row), at(0)), expected);
    row.generation += 1;
    let touched = world.apply(has(&row), at(0));
    assert_eq!(touched.namespaces, ["ckb".to_owned()].into());
}

#[test]
fn an_answer_that_the_watch_has_overtaken_is_no_news() {
    let old = probe("ckb", "p", json!({}));
    let mut newer = old.clone();
    newer.generation += 1;
    let written = CkbProbeEntry {
        status: Some(Box::default()),
        ..old.clone()
    };
    let key = old.key();
    let confirmed = |known: Option<&CkbProbeEntry>| {
        let mut world = world(known.map(has));
        world.confirm(written.clone(), at(0));
        world.probe(&key).cloned()
    };
    assert_eq!(confirmed(Some(&old)), Some(written.clone()));
    assert_eq!(confirmed(Some(&newer)), Some(newer.clone()));
    assert_eq!(confirmed(None), None, "what was deleted stays deleted");
    newer.reference.uid = "newer".into();
    assert_eq!(confirmed(Some(&newer)), Some(newer));
}

#[test]
fn reports_are_dated_by_this_clock_except_those_that_were_there_before() {
    // An agent whose clock is an hour ahead.
    let mut world = world([reports(node_probe("n", -3600, vec![]))]);
    let heard = |world: &World| world.heard(world.node_probe("n").unwrap());
    assert_eq!(heard(&world), Some(at(0)));
    // The same report, seen again, is no news; a later one is.
    world.apply(reports(node_probe("n", -3600, vec![])), at(50));
    assert_eq!(heard(&world), Some(at(0)));
    world.apply(reports(node_probe("n", -3610, vec![])), at(60));
    assert_eq!(heard(&world), Some(at(60)));
}

#[test]
fn an_agent_is_not_blamed_while_the_api_server_was_away() {
    let mut world = world([reports(node_probe("n", 10, vec![]))]);
    let heard = |world: &World| world.heard(world.node_probe("n").unwrap());
    assert_eq!(heard(&world), Some(at(-10)));
    world.apply(Change::WatchFailed, at(20));
    assert_eq!(heard(&world), Some(at(20)));
}

#[test]
fn nobody_is_reported_on_more_often_than_may_be() {
    let asking = |interval: &str| {
        let asked = probe("a", "p", json!({ "reportInterval": interval }));
        let mut world = World::new(Bounds {
            min_report_interval: std::time::Duration::from_secs(5),
            ..Bounds::default()
        });
        world.apply(Change::Probe(Event::InitApply(asked.clone())), at(0));
        world.apply(Change::Probe(Event::InitDone), at(0));
        let listed = world.probe(&asked.key()).unwrap().spec.clone().unwrap();
        world.apply(Change::Probe(Event::Apply(asked.clone())), at(0));
        let row = world.probe(&asked.key()).unwrap();
        assert_eq!(row.spec.as_ref(), Ok(&listed));
        // What was written back is the same, and no news.
        assert_eq!(world.confirm(asked, at(0)).nodes, [].into());
        listed
    };
    let (often, just, rarely) = (asking("1s"), asking("5s"), asking("10s"));
    assert_eq!(often, just, "they ask the same then");
    assert_eq!(
        just,
        probe("a", "p", json!({ "reportInterval": "5s" }))
            .spec
            .unwrap()
    );
    assert_eq!(
        rarely,
        probe("a", "p", json!({ "reportInterval": "10s" }))
            .spec
            .unwrap()
    );
}

#[test]
fn of_too_many_ckb_probes_no_more_than_the_name_is_kept_until_there_is_room() {
    let mut world = World::new(Bounds {
        specs_per_namespace: 2,
        ..Bounds::default()
    });
    let named = |name: &str| probe("a", name, json!({}));
    for name in ["p", "q", "r", "s"] {
        world.apply(Change::Probe(Event::InitApply(named(name))), at(0));
    }
    let other = probe("b", "p", json!({}));
    world.apply(Change::Probe(Event::InitApply(other.clone())), at(0));
    world.apply(Change::Probe(Event::InitDone), at(0));
    let unread = |world: &World| -> Vec<String> {
        let rows = world.probes().filter(|row| row.is_unread());
        rows.map(|row| row.key().to_string()).collect()
    };
    assert_eq!(unread(&world), ["a/r", "a/s"]);
    let row = world.probe(&named("r").key()).unwrap().clone();
    assert_eq!(row.spec, Err(InvalidProbe::Unread(2)));
    assert!(!world.may_be_read(&row));
    // A change of one that is read finds its place, and of one that is not, none.
    world.apply(Change::Probe(Event::Apply(named("q"))), at(0));
    world.apply(Change::Probe(Event::Apply(named("s"))), at(0));
    assert_eq!(unread(&world), ["a/r", "a/s"]);
    // When one goes the others are looked at, and the first answer that has its spec is taken in.
    let touched = world.apply(Change::Probe(Event::Delete(named("p"))), at(0));
    let keys = ["p", "r", "s"].map(|name| named(name).key());
    assert_eq!(touched.probes, keys.into());
    assert!(world.may_be_read(&row));
    let touched = world.confirm(named("s"), at(0));
    assert_eq!(touched.namespaces, ["a".to_owned()].into());
    assert_eq!(unread(&world), ["a/r"]);
    assert!(!world.may_be_read(&row));
    world.confirm(named("r"), at(0));
    assert_eq!(unread(&world), ["a/r"]);
}
