//! Crafted CkbProbes: what a tenant may write, whatever the API server lets through, and what the operator makes of it. It selects what
//! Kubernetes says that it selects, and nothing beyond its own namespace.

use std::collections::BTreeMap;

use ckb_probe_crds::PodReference;
use ckb_probe_operator::{
    aggregate::{Past, aggregate, next_change},
    desired::{View, next_expiry, orders},
    limits::Limits,
    world::{Bounds, Change, CkbProbeEntry, InvalidProbe, Node, Phase, Raw, TargetPod, World},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::LabelSelector, jiff::Timestamp};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

type Map = BTreeMap<String, String>;

/// Pods of two namespaces on one node, each with other labels.
const LABELS: [&[(&str, &str)]; 5] = [
    &[],
    &[("app", "ckb")],
    &[("app", "ckb"), ("tier", "storage")],
    &[("app", "other"), ("a", "")],
    &[("tier", "storage"), ("example.org/a", "b")],
];

/// Reads the bytes as the spec of a CkbProbe of the namespace `a`.
pub fn check(bytes: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let now = Timestamp::from_second(1_800_000_000).unwrap_or_default();
    let probe = CkbProbeEntry::from(raw(spec));
    let limits = Limits::default();
    let mut world = World::new(Bounds {
        specs_per_namespace: 1,
        ..limits.bounds()
    });
    let pods: Vec<TargetPod> = ["a", "b"]
        .iter()
        .flat_map(|namespace| {
            let labels = LABELS.iter().enumerate();
            labels.map(|(index, labels)| pod(namespace, index, labels))
        })
        .collect();
    world.apply(Change::Probe(Event::Apply(probe.clone())), now);
    for pod in &pods {
        world.apply(Change::Pod(Event::Apply(pod.clone())), now);
    }
    let node = Node {
        name: "n".to_string(),
        ready: true,
    };
    world.apply(Change::Node(Event::Apply(node)), now);
    let view = View {
        world: &world,
        limits: &limits,
        now,
    };
    let orders = orders(view);
    let mut ordered = orders.values().flat_map(|order| &order.assignments);
    assert!(ordered.all(|one| one.pod.namespace == "a" && one.probe.namespace == "a"));
    serde_json::to_string(&orders).unwrap();
    next_expiry(&world, now);
    let Some(kept) = world.probes().next() else {
        return;
    };
    let status = aggregate(kept, &world, None, &mut Past::default(), now);
    next_change(kept, &world, now);
    serde_json::to_string(&status).unwrap();
    selects(&probe, &world, &pods);
}

/// What it selects is what Kubernetes says.
fn selects(probe: &CkbProbeEntry, world: &World, pods: &[TargetPod]) {
    let spec = match &probe.spec {
        Ok(spec) => spec,
        Err(error) => {
            assert!(!matches!(error, InvalidProbe::Missing) || !error.to_string().is_empty());
            return;
        }
    };
    let selector = &spec.spec.target.selector;
    assert!(!is_empty(selector), "an empty selector selects everything");
    for pod in pods {
        let labels = pod.labels.map();
        assert_eq!(
            spec.matches(&labels),
            matches(selector, &labels),
            "{selector:?} on {labels:?}"
        );
    }
    let selected = world.selected("a", spec);
    let ours = pods.iter().filter(|pod| pod.reference.namespace == "a");
    let ours = ours.filter(|pod| matches(selector, &pod.labels.map()));
    assert_eq!(selected.count(), ours.count());
}

fn is_empty(selector: &LabelSelector) -> bool {
    let LabelSelector {
        match_labels,
        match_expressions,
    } = selector;
    match_labels.iter().flatten().next().is_none()
        && match_expressions.iter().flatten().next().is_none()
}

/// As its documentation has it: all must hold, and what is not there is in no set.
fn matches(selector: &LabelSelector, labels: &Map) -> bool {
    let mut pairs = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    pairs.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|one| {
            let value = labels.get(&one.key);
            let is_in = || {
                let values = one.values.iter().flatten();
                value.is_some_and(|value| values.into_iter().any(|known| known == value))
            };
            match one.operator.as_str() {
                "In" => is_in(),
                "NotIn" => !is_in(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// As the watch brings it.
fn raw(spec: Value) -> Raw {
    let object = json!({
        "apiVersion": "ckbprobe.dev/v1alpha1",
        "kind": "CkbProbe",
        "metadata": {
            "namespace": "a",
            "name": "p",
            "uid": "uid-p",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn pod(namespace: &str, index: usize, labels: &[(&str, &str)]) -> TargetPod {
    let labels = labels
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()));
    TargetPod {
        reference: PodReference {
            namespace: namespace.to_string(),
            name: format!("pod-{index}"),
            uid: format!("uid-{namespace}-{index}"),
        },
        labels: labels.collect::<Map>().into(),
        node: Some("n".to_string()),
        phase: Phase::Running,
        containers: vec![ckb_probe_crds::Container {
            name: "ckb".to_string(),
            id: Some("id".to_string()),
        }],
        ..TargetPod::default()
    }
}
