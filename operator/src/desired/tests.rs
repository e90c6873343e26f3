use std::collections::BTreeSet;

use ckb_probe_crds::{Assignment, Kind, NodeProbeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::json;

use super::order::Asked;
use super::*;
use crate::{
    limits::{AdmittedExporters, AdmittedKinds},
    testing::{at, container, has, node, pod, probe, runs, world},
    world::{Change, Phase},
};

mod anew;
mod varied;

use anew::{Whole, whole};
pub use varied::{changes, distinct, in_two_orders, limits, shuffled, varied};

/// The orders by node.
pub type Orders = BTreeMap<String, NodeProbeSpec>;

/// What there should be, made from nothing but what there is.
pub fn desired(world: &World, now: Timestamp, limits: &Limits) -> Whole {
    let mut desired = Desired::default();
    let view = View { world, limits, now };
    let mut orders = Orders::new();
    let stale = desired.everything(world);
    let probes = desired.revise(stale, view, |node, order| {
        orders.extend(order.map(|order| (node.to_owned(), order)));
    });
    let left_out = |probe| Some((desired.left_out(&probe)?, probe));
    let left_out = probes.into_iter().filter_map(left_out);
    let left_out = left_out
        .map(|(left_out, probe)| (probe, left_out))
        .collect();
    Whole { orders, left_out }
}

/// Node, CkbProbe and pod of every assignment.
fn pairs(desired: &Orders) -> Vec<(String, String, String)> {
    let pairs = desired.iter().flat_map(|(node, order)| {
        order.assignments.iter().map(move |assignment| {
            let Assignment { probe, pod, .. } = assignment;
            let probe = format!("{}/{}", probe.namespace, probe.name);
            (
                node.clone(),
                probe,
                format!("{}/{}", pod.namespace, pod.name),
            )
        })
    });
    pairs.collect()
}

/// The orders, within the limits as they usually are.
pub fn orders(world: &World) -> Orders {
    desired(world, at(0), &Limits::default()).orders
}

fn triple(node: &str, probe: &str, pod: &str) -> (String, String, String) {
    (node.into(), probe.into(), pod.into())
}

#[test]
fn each_pair_of_probe_and_pod_is_assigned_on_the_pods_node() {
    let world = world([
        node("n1"),
        node("n2"),
        has(&probe("a", "p", json!({}))),
        has(&probe("a", "q", json!({ "reportInterval": "1s" }))),
        has(&probe("b", "p", json!({}))),
        runs(&pod("a", "ckb-0", Some("n1"))),
        runs(&pod("a", "ckb-1", Some("n2"))),
        runs(&pod("b", "ckb-0", Some("n1"))),
    ]);
    assert_eq!(
        pairs(&orders(&world)),
        [
            triple("n1", "a/p", "a/ckb-0"),
            triple("n1", "a/q", "a/ckb-0"),
            triple("n1", "b/p", "b/ckb-0"),
            triple("n2", "a/p", "a/ckb-1"),
            triple("n2", "a/q", "a/ckb-1"),
        ]
    );
}

#[test]
fn what_cannot_or_may_not_be_measured_is_not_assigned() {
    let unlabelled = |mut pod: TargetPod| {
        pod.labels = Default::default();
        pod
    };
    let finished = |mut pod: TargetPod| {
        pod.phase = Phase::Finished;
        pod
    };
    for pod in [
        pod("a", "unbound", None),
        pod("a", "on-a-node-that-is-not-there", Some("gone")),
        pod("other", "namespace", Some("n")),
        unlabelled(pod("a", "unlabelled", Some("n"))),
        finished(pod("a", "finished", Some("n"))),
    ] {
        let world = world([node("n"), has(&probe("a", "p", json!({}))), runs(&pod)]);
        assert_eq!(orders(&world), Orders::new(), "{pod:?}");
    }
}

#[test]
fn a_paused_expired_or_deleted_probe_asks_for_nothing() {
    let paused = probe("a", "p", json!({ "paused": true }));
    let expired = probe("a", "p", json!({ "duration": "100s" }));
    let mut deleted = probe("a", "p", json!({}));
    deleted.deleting = true;
    for probe in [paused, expired, deleted] {
        let world = world([node("n"), has(&probe), runs(&pod("a", "ckb-0", Some("n")))]);
        assert_eq!(orders(&world), Orders::new(), "{probe:?}");
    }
}

#[test]
fn a_duration_ends_at_a_whole_second_after_creation_and_is_passed_on() {
    let probe = probe("a", "p", json!({ "duration": "101500ms" }));
    let world = world([node("n"), has(&probe), runs(&pod("a", "ckb-0", Some("n")))]);
    let orders = orders(&world);
    let assignment = &orders["n"].assignments[0];
    assert_eq!(assignment.expires_at, Some(Time(at(1))));
    assert_eq!(next_expiry(&world, at(0)), Some(at(1)));
    assert_eq!(desired(&world, at(1), &Limits::default()), Whole::default());
    assert_eq!(next_expiry(&world, at(1)), None);
}

#[test]
fn the_named_container_is_looked_in_or_all_of_them() {
    let mut pod = pod("a", "ckb-0", Some("n"));
    pod.containers = vec![container("ckb"), container("miner")];
    let target = |container: Option<&str>| {
        let selector = json!({ "matchLabels": { "app": "ckb" } });
        json!({ "target": { "selector": selector, "container": container } })
    };
    let looked_in = |overrides| -> Vec<String> {
        let world = world([node("n"), has(&probe("a", "p", overrides)), runs(&pod)]);
        let orders = orders(&world);
        let assignments = orders.values().flat_map(|order| &order.assignments);
        let containers = assignments.flat_map(|assignment| &assignment.containers);
        containers.map(|container| container.name.clone()).collect()
    };
    assert_eq!(looked_in(target(None)), ["ckb", "miner"]);
    assert_eq!(looked_in(target(Some("miner"))), ["miner"]);
    assert!(looked_in(target(Some("nginx"))).is_empty());
}

/// A CkbProbe that was created so many seconds before.
fn aged(name: &str, age: i64, overrides: serde_json::Value) -> CkbProbeEntry {
    CkbProbeEntry {
        created: at(-age),
        ..probe("a", name, overrides)
    }
}

#[test]
fn those_that_ask_the_same_of_a_pod_are_one_entry_in_the_name_of_the_oldest() {
    let pods = [pod("a", "ckb-0", Some("n")), pod("a", "ckb-1", Some("n"))];
    let slower = json!({ "overhead": { "maxPercent": 2 } });
    let world = world([
        node("n"),
        has(&aged("young", 1, json!({}))),
        has(&aged("old", 3, json!({}))),
        has(&aged("brief", 2, json!({ "duration": "1h" }))),
        has(&aged("other", 9, slower)),
        runs(&pods[0]),
        runs(&pods[1]),
    ]);
    let orders = orders(&world);
    assert_eq!(
        pairs(&orders),
        [
            triple("n", "a/old", "a/ckb-0"),
            triple("n", "a/other", "a/ckb-0"),
            triple("n", "a/old", "a/ckb-1"),
            triple("n", "a/other", "a/ckb-1"),
        ]
    );
    let assignments = &orders["n"].assignments;
    assert_eq!(assignments[0].asks, assignments[2].asks);
    assert_ne!(assignments[0].asks, assignments[1].asks);
    // It goes on until the last of them is over.
    assert_eq!(assignments[0].expires_at, None);
}

#[test]
fn what_is_measured_for_several_ends_with_the_last_of_them() {
    let world = world([
        node("n"),
        has(&aged("old", 100, json!({ "duration": "150s" }))),
        has(&aged("young", 10, json!({ "duration": "90s" }))),
        runs(&pod("a", "ckb-0", Some("n"))),
    ]);
    let orders = orders(&world);
    let assignments = &orders["n"].assignments;
    let ends: Vec<_> = assignments
        .iter()
        .map(|one| one.expires_at.clone())
        .collect();
    assert_eq!(ends, [Some(Time(at(80)))]);
    assert_eq!(next_expiry(&world, at(0)), Some(at(50)));
}

fn limited(world: &World, limits: Limits) -> (Vec<String>, Vec<(String, LeftOut)>) {
    let Whole { orders, left_out } = desired(world, at(0), &limits);
    let asked = pairs(&orders).into_iter();
    let asked = asked.map(|(_, probe, pod)| format!("{probe} {pod}"));
    let left_out = left_out.into_iter();
    (
        asked.collect(),
        left_out
            .map(|(key, left_out)| (key.name, left_out))
            .collect(),
    )
}

/// Three CkbProbes that ask for different things of two pods.
fn crowd() -> World {
    let every = |seconds: u8| json!({ "reportInterval": format!("{seconds}s") });
    let older = TargetPod {
        created: at(-200),
        ..pod("a", "ckb-1", Some("n"))
    };
    world([
        node("n"),
        has(&aged("young", 1, every(1))),
        has(&aged("old", 3, every(2))),
        has(&aged("middle", 2, every(3))),
        has(&aged("paused", 9, json!({ "paused": true }))),
        runs(&pod("a", "ckb-0", Some("n"))),
        runs(&older),
    ])
}

#[test]
fn the_oldest_are_measured_when_there_are_more_than_may_be() {
    let usual = Limits::default;
    let all = |name: &str, limit| (name.to_owned(), LeftOut::All(limit));
    let pods = |name: &str, pods: &[&str], limit| {
        let pods = pods.iter().map(|pod| (pod.to_string(), limit));
        (name.to_owned(), LeftOut::Pods(pods.collect()))
    };
    let [of_namespace, targets, of_target] = [
        Limit::CkbProbesPerNamespace(2),
        Limit::TargetsPerNamespace(3),
        Limit::CkbProbesPerTarget(1),
    ];
    let both = ["ckb-0", "ckb-1"];
    for (limits, asked, left_out) in [
        (
            Limits {
                ckb_probes_per_namespace: 2,
                ..usual()
            },
            "a/middle a/ckb-0, a/old a/ckb-0, a/middle a/ckb-1, a/old a/ckb-1",
            vec![all("young", of_namespace)],
        ),
        (
            Limits {
                targets_per_namespace: 3,
                ..usual()
            },
            "a/old a/ckb-0, a/middle a/ckb-1, a/old a/ckb-1",
            vec![pods("middle", &["ckb-0"], targets), all("young", targets)],
        ),
        (
            Limits {
                ckb_probes_per_target: 1,
                ..usual()
            },
            "a/old a/ckb-0, a/old a/ckb-1",
            vec![
                pods("middle", &both, of_target),
                pods("young", &both, of_target),
            ],
        ),
    ] {
        let measured = limited(&crowd(), limits);
        assert_eq!(
            (measured.0.join(", ").as_str(), measured.1),
            (asked, left_out)
        );
    }
}

#[test]
fn who_asks_for_a_kind_that_is_not_admitted_is_not_measured_and_is_in_nobodys_way() {
    let kinds = AdmittedKinds::parse("rocksdb, tcp").unwrap();
    let disks = json!({ "probes": [
        { "name": "storage", "rocksdb": {} },
        { "name": "disks", "blockIo": {} },
    ] });
    let peers = json!({ "probes": [{ "name": "peers", "tcp": {} }] });
    let world = world([
        node("n"),
        has(&aged("disks", 9, disks)),
        has(&aged("peers", 1, peers)),
        runs(&pod("a", "ckb-0", Some("n"))),
    ]);
    let limits = Limits {
        kinds: kinds.clone(),
        ckb_probes_per_namespace: 1,
        targets_per_namespace: 1,
        ckb_probes_per_target: 1,
        ..Limits::default()
    };
    let Whole { orders, left_out } = desired(&world, at(0), &limits);
    assert_eq!(pairs(&orders), [triple("n", "a/peers", "a/ckb-0")]);
    let block_io = Kind::ALL.iter().find(|kind| kind.as_str() == "blockIo");
    let refused = LeftOut::All(Limit::Kind(*block_io.unwrap()));
    assert_eq!(left_out, [(ObjectKey::new("a", "disks"), refused)].into());
    let every = Limits {
        kinds: kinds.and_all_in(["b".to_owned(), "a".to_owned()]),
        ..Limits::default()
    };
    assert_eq!(pairs(&desired(&world, at(0), &every).orders).len(), 2);
}

#[test]
fn who_names_an_exporter_that_is_not_his_is_not_measured_and_is_in_nobodys_way() {
    let exporters = AdmittedExporters::parse("theirs=b").unwrap();
    let theirs = json!({ "traces": { "exporter": "theirs" } });
    let world = world([
        node("n"),
        has(&aged("theirs", 9, theirs)),
        has(&aged("own", 1, json!({ "traces": {} }))),
        runs(&pod("a", "ckb-0", Some("n"))),
    ]);
    let limits = Limits {
        exporters,
        ckb_probes_per_namespace: 1,
        targets_per_namespace: 1,
        ckb_probes_per_target: 1,
        ..Limits::default()
    };
    let Whole { orders, left_out } = desired(&world, at(0), &limits);
    assert_eq!(pairs(&orders), [triple("n", "a/own", "a/ckb-0")]);
    let refused = LeftOut::All(Limit::Exporter);
    assert_eq!(left_out, [(ObjectKey::new("a", "theirs"), refused)].into());
    let lent = Limits {
        exporters: AdmittedExporters::parse("theirs=b,a").unwrap(),
        ..Limits::default()
    };
    assert_eq!(pairs(&desired(&world, at(0), &lent).orders).len(), 2);
}

#[test]
fn kinds_are_named_as_in_a_spec() {
    let all: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    let spec = probe("a", "p", json!({})).spec.unwrap().spec;
    let every = AdmittedKinds::parse(&all.join(",")).unwrap();
    assert_eq!(every.refused("a", &spec), None);
    let none = AdmittedKinds::parse("").unwrap();
    let refused = none.refused("a", &spec).map(Kind::as_str);
    assert_eq!(refused, Some("rocksdb"));
    let none = none.and_all_in(["a".to_owned()]);
    assert_eq!(none.refused("a", &spec), None);
    let refused = none.refused("ab", &spec).map(Kind::as_str);
    assert_eq!(refused, Some("rocksdb"));
    let error = AdmittedKinds::parse("rocksdb,disk").unwrap_err();
    assert!(
        error.starts_with("disk is no kind of probe: rocksdb, functions, "),
        "{error}"
    );
}

#[test]
fn who_asks_for_nothing_is_left_out_of_nothing() {
    let none = json!({ "target": { "selector": { "matchLabels": { "app": "none" } } } });
    let nothing = aged("nothing", 1, none);
    // Two CkbProbes and two pods: exactly as much as there may be, and more.
    for targets_per_namespace in [4, 3] {
        let limits = Limits {
            targets_per_namespace,
            ..Limits::default()
        };
        let world = world([
            node("n"),
            has(&aged("old", 3, json!({ "reportInterval": "1s" }))),
            has(&aged("middle", 2, json!({ "reportInterval": "2s" }))),
            has(&nothing),
            runs(&pod("a", "ckb-0", Some("n"))),
            runs(&pod("a", "ckb-1", Some("n"))),
        ]);
        let (asked, left_out) = limited(&world, limits);
        assert_eq!(asked.len(), targets_per_namespace);
        let names: Vec<_> = left_out.iter().map(|(name, _)| name.as_str()).collect();
        let expected: &[&str] = match targets_per_namespace {
            4 => &[],
            _ => &["middle"],
        };
        assert_eq!(names, expected);
    }
}

#[test]
fn an_order_holds_what_fits_and_a_namespace_that_asks_for_little_has_it() {
    let pods = (0..1_500).map(|n| runs(&pod("a", &format!("ckb-{n:04}"), Some("n"))));
    let few = (0..3).map(|n| runs(&pod("b", &format!("ckb-{n}"), Some("n"))));
    let base = [
        node("n"),
        has(&probe("a", "p", json!({}))),
        has(&probe("a", "same", json!({}))),
        has(&probe("b", "p", json!({}))),
    ];
    let world = world(base.into_iter().chain(pods).chain(few));
    let Whole { orders, left_out } = desired(&world, at(0), &Limits::default());
    let order = &orders["n"];
    assert!(order.assignments.len() <= 1_024);
    let bytes = serde_json::to_string(order).unwrap().len();
    assert!(bytes <= share::BYTES, "{bytes}");
    assert!(bytes > share::BYTES / 2, "{bytes}");
    let of = |namespace: &str| {
        let all = order.assignments.iter();
        all.filter(|one| one.pod.namespace == namespace).count()
    };
    assert_eq!(of("b"), 3);
    // Both that ask the same are told of each pod that is left out.
    let left: Vec<_> = left_out
        .iter()
        .map(|(key, left)| (key.to_string(), left))
        .collect();
    let [(first, LeftOut::Pods(pods)), (second, LeftOut::Pods(same))] = &left[..] else {
        panic!("{left:?}");
    };
    assert_eq!((first.as_str(), second.as_str()), ("a/p", "a/same"));
    assert_eq!(pods, same);
    assert_eq!(pods.len() + of("a"), 1_500);
    assert!(pods.contains_key("ckb-1499") && !pods.contains_key("ckb-0000"));
    assert!(
        pods.values()
            .all(|limit| matches!(limit, Limit::Order { .. }))
    );
}

#[test]
fn a_pod_with_more_containers_than_an_entry_names_takes_nobody_else_along() {
    let crowded = TargetPod {
        containers: (0..65).map(|n| container(&format!("c{n}"))).collect(),
        ..pod("a", "crowded", Some("n"))
    };
    let one = json!({
        "target": { "selector": { "matchLabels": { "app": "ckb" } }, "container": "c64" },
    });
    let world = world([
        node("n"),
        has(&probe("a", "all", json!({}))),
        has(&probe("a", "one", one)),
        runs(&crowded),
        runs(&pod("a", "other", Some("n"))),
    ]);
    let (asked, left_out) = limited(&world, Limits::default());
    assert_eq!(asked, ["a/one a/crowded", "a/all a/other"]);
    let pods = LeftOut::Pods([("crowded".to_owned(), Limit::Containers(64))].into());
    assert_eq!(left_out, [("all".to_owned(), pods)]);
}

#[test]
fn an_entry_is_never_longer_than_it_is_taken_for() {
    let everything = json!({
        "duration": "8760h",
        "reportInterval": "1h59m59s999ms",
        "overhead": { "maxPercent": 12.345_678, "onBreach": "Report" },
        "probes": [{ "name": "a", "rocksdb": { "operations": ["Get"] } }, { "name": "b", "functions": { "match": "\"*ñ" } }],
    });
    let mut long = probe("a", &"p".repeat(63), everything);
    long.reference.uid = "u".repeat(36);
    let mut pod = pod("a", &"x".repeat(253), Some("n"));
    pod.reference.uid = "u".repeat(64);
    pod.containers = (0..64)
        .map(|n| Container {
            name: format!("{n:063}"),
            id: Some("f".repeat(64)),
        })
        .collect();
    let spec = long.spec.as_ref().unwrap();
    let asked = Asked::new(&long, spec, &pod, pod.containers.clone());
    let weight = asked.weight();
    let json = serde_json::to_string(&asked.assignment()).unwrap();
    assert!(json.len() <= weight, "{} of {weight}", json.len());
}

#[test]
fn an_order_survives_the_way_through_the_api() {
    let probe = probe(
        "a",
        "p",
        json!({ "duration": "1h30m", "reportInterval": "1m30s", "overhead": { "maxPercent": 0.7 } }),
    );
    let world = world([node("n"), has(&probe), runs(&pod("a", "ckb-0", Some("n")))]);
    let order = orders(&world).remove("n").unwrap();
    let json = serde_json::to_string(&order).unwrap();
    assert_eq!(serde_json::from_str::<NodeProbeSpec>(&json).unwrap(), order);
}

proptest! {
    #[test]
    fn an_order_at_a_time_is_the_same_as_all_at_once(changes in varied(), limits in limits()) {
        let world = world(changes);
        for limits in [limits, Limits::default()] {
            prop_assert_eq!(desired(&world, at(0), &limits), whole(&world, at(0), &limits));
        }
    }

    #[test]
    fn what_comes_later_takes_nothing_from_what_was_there(
        changes in changes(),
        limits in limits(),
    ) {
        let changes = distinct(changes);
        let before = desired(&world(changes.clone()), at(0), &limits);
        for namespace in ["a/", "b/"] {
            let pairs = pairs(&before.orders);
            let of: Vec<_> = pairs.iter().filter(|one| one.1.starts_with(namespace)).collect();
            prop_assert!(of.len() <= limits.targets_per_namespace);
            let probes: BTreeSet<_> = of.iter().map(|one| &one.1).collect();
            prop_assert!(probes.len() <= limits.ckb_probes_per_namespace);
        }
        let newer = has(&aged("zz", 0, json!({ "reportInterval": "7s" })));
        let after = desired(&world(changes.into_iter().chain([newer])), at(0), &limits);
        let after = pairs(&after.orders);
        for pair in pairs(&before.orders) {
            prop_assert!(after.contains(&pair), "{:?} is gone", pair);
        }
    }

    #[test]
    fn the_order_of_the_news_does_not_matter([one, other] in in_two_orders()) {
        prop_assert_eq!(orders(&world(one)), orders(&world(other)));
    }
}
