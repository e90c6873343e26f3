use ckb_probe_crds::NodeProbeSpec;
use proptest::{prelude::*, sample::Index};
use serde_json::json;

use super::*;
use crate::{
    testing::{at, container, has, node, pod, probe, runs, world},
    world::{Change, Phase},
};

/// Node, CkbProbe and pod of every assignment.
fn pairs(desired: &Desired) -> Vec<(String, String, String)> {
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

fn triple(node: &str, probe: &str, pod: &str) -> (String, String, String) {
    (node.into(), probe.into(), pod.into())
}

#[test]
fn each_pair_of_probe_and_pod_is_assigned_on_the_pods_node() {
    let world = world([
        node("n1"),
        node("n2"),
        has(&probe("a", "p", json!({}))),
        has(&probe("a", "q", json!({}))),
        has(&probe("b", "p", json!({}))),
        runs(&pod("a", "ckb-0", Some("n1"))),
        runs(&pod("a", "ckb-1", Some("n2"))),
        runs(&pod("b", "ckb-0", Some("n1"))),
    ]);
    assert_eq!(
        pairs(&desired(&world, at(0))),
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
        pod.labels.clear();
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
        assert_eq!(desired(&world, at(0)), Desired::new(), "{pod:?}");
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
        assert_eq!(desired(&world, at(0)), Desired::new(), "{probe:?}");
    }
}

#[test]
fn a_duration_ends_at_a_whole_second_after_creation_and_is_passed_on() {
    let probe = probe("a", "p", json!({ "duration": "101500ms" }));
    let world = world([node("n"), has(&probe), runs(&pod("a", "ckb-0", Some("n")))]);
    let orders = desired(&world, at(0));
    let assignment = &orders["n"].assignments[0];
    assert_eq!(assignment.expires_at, Some(Time(at(1))));
    assert_eq!(next_expiry(&world, at(0)), Some(at(1)));
    assert_eq!(desired(&world, at(1)), Desired::new());
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
        let orders = desired(&world, at(0));
        let assignments = orders.values().flat_map(|order| &order.assignments);
        let containers = assignments.flat_map(|assignment| &assignment.containers);
        containers.map(|container| container.name.clone()).collect()
    };
    assert_eq!(looked_in(target(None)), ["ckb", "miner"]);
    assert_eq!(looked_in(target(Some("miner"))), ["miner"]);
    assert!(looked_in(target(Some("nginx"))).is_empty());
}

#[test]
fn an_order_survives_the_way_through_the_api() {
    let probe = probe(
        "a",
        "p",
        json!({ "duration": "1h30m", "reportInterval": "1m30s", "overhead": { "maxPercent": 0.7 } }),
    );
    let world = world([node("n"), has(&probe), runs(&pod("a", "ckb-0", Some("n")))]);
    let order = desired(&world, at(0)).remove("n").unwrap();
    let json = serde_json::to_string(&order).unwrap();
    assert_eq!(serde_json::from_str::<NodeProbeSpec>(&json).unwrap(), order);
}

/// Probes and pods of two namespaces on three nodes, in any state.
pub fn changes() -> impl Strategy<Value = Vec<Change>> {
    let namespace = || prop::sample::select(vec!["a", "b"]);
    let probes =
        (namespace(), 0..3_u8, any::<bool>(), any::<bool>()).prop_map(|(ns, n, paused, brief)| {
            let duration = if brief { "1m" } else { "1h" };
            let name = format!("p{n}");
            has(&probe(
                ns,
                &name,
                json!({ "paused": paused, "duration": duration }),
            ))
        });
    let pods = (
        namespace(),
        0..4_u8,
        prop::option::of(0..3_u8),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(ns, n, on, labelled, finished)| {
            let on = on.map(|on| format!("n{on}"));
            let mut pod = pod(ns, &format!("ckb-{n}"), on.as_deref());
            if !labelled {
                pod.labels.clear();
            }
            if finished {
                pod.phase = Phase::Finished;
            }
            runs(&pod)
        });
    let nodes = (0..3_u8).prop_map(|n| node(&format!("n{n}")));
    prop::collection::vec(prop_oneof![2 => probes, 3 => pods, 2 => nodes], 0..24)
}

/// One change for each object: those that come twice would leave another world in another order.
pub fn distinct(changes: Vec<Change>) -> Vec<Change> {
    let mut seen = std::collections::BTreeSet::new();
    let key = |change: &Change| {
        use kube::runtime::watcher::Event::Apply;
        match change {
            Change::Probe(Apply(row)) => format!("probe {:?}", row.reference),
            Change::Pod(Apply(row)) => format!("pod {:?}", row.reference),
            other => format!("{other:?}"),
        }
    };
    changes
        .into_iter()
        .filter(|change| seen.insert(key(change)))
        .collect()
}

/// The same in another order.
pub fn shuffled<T: Clone>(items: &[T], picks: &[Index]) -> Vec<T> {
    let mut left = items.to_vec();
    let mut all = Vec::new();
    for pick in picks {
        if !left.is_empty() {
            all.push(left.remove(pick.index(left.len())));
        }
    }
    all.extend(left);
    all
}

proptest! {
    #[test]
    fn the_order_of_the_news_does_not_matter(
        changes in changes(),
        picks in prop::collection::vec(any::<Index>(), 24),
    ) {
        let changes = distinct(changes);
        let again = shuffled(&changes, &picks);
        prop_assert_eq!(desired(&world(changes), at(0)), desired(&world(again), at(0)));
    }
}
