//! Crafted reports: what an agent that is another's by now may write as the status of its NodeProbe, and what the operator makes of
//! it. Nothing breaks, and of a neighbour on another node the same is told as without.

use std::sync::OnceLock;

use ckb_probe_crds::{CkbProbeStatus, PodReference};
use ckb_probe_operator::{
    aggregate::{Past, aggregate, next_change, same, same_but_figures},
    notes::{notes, preflight},
    world::{Change, CkbProbeEntry, Node, Phase, Raw, TargetPod, World},
};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

const NOW: i64 = 1_800_000_000;

/// The most that a status lists of targets.
const LISTED: usize = 50;

/// Reads the bytes as the report of the node `n`, beside the node `m` whose agent is as it should be.
pub fn check(bytes: &[u8]) {
    let Ok(report) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let now = Timestamp::from_second(NOW).unwrap_or_default();
    static BEFORE: OnceLock<CkbProbeStatus> = OnceLock::new();
    let before = BEFORE.get_or_init(|| told(Value::Null, now).1);
    let (world, status) = told(report, now);
    let counts = &status.targets;
    assert!(counts.attached <= counts.matched && counts.firing <= counts.attached);
    assert!(status.instances.len() <= LISTED);
    assert_eq!(neighbour(&status), neighbour(before));
    // The rows of the one may well be added to those of the other, and no number is beyond what JSON's readers take.
    let text = serde_json::to_string(&status).unwrap();
    assert!(text.len() < 2_000_000, "{} bytes", text.len());
    let again: CkbProbeStatus = serde_json::from_str(&text).unwrap();
    assert!(same(&again, &status) && same_but_figures(&again, &status));
    assert!(notes(Some(&status), &status).is_empty());
    notes(Some(before), &status);
    notes(None, &status);
    for node in world.node_probes() {
        let (probes, pods) = node.named();
        assert!(probes.len() <= 1_000_000 && pods.len() <= 1_000_000);
        if let Some(status) = &node.status {
            preflight(&status.agent);
        }
    }
}

/// What is told of the neighbour's target, the number of all aside.
fn neighbour(status: &CkbProbeStatus) -> Vec<String> {
    let own = status.instances.iter().filter(|one| one.pod == "ckb-m");
    own.filter_map(|one| serde_json::to_string(one).ok())
        .collect()
}

/// What there is and what the CkbProbe is told of it, with this report of the node `n`.
fn told(report: Value, now: Timestamp) -> (World, CkbProbeStatus) {
    static PROBE: OnceLock<CkbProbeEntry> = OnceLock::new();
    static GOOD: OnceLock<Value> = OnceLock::new();
    let probe =
        PROBE.get_or_init(|| CkbProbeEntry::from(raw(object("a", "p", question(), Value::Null))));
    let good = GOOD.get_or_init(|| {
        let seed = include_bytes!("../../seeds/report/good");
        let text = String::from_utf8_lossy(seed).replace("ckb-n", "ckb-m");
        serde_json::from_str(&text).unwrap_or_default()
    });
    let mut world = World::default();
    let changes = [
        Change::Probe(Event::Init),
        Change::Probe(Event::InitApply(probe.clone())),
        Change::Probe(Event::InitDone),
        Change::Pod(Event::InitApply(pod("n"))),
        Change::Pod(Event::InitApply(pod("m"))),
        Change::Pod(Event::InitDone),
        Change::Node(Event::InitApply(node("n"))),
        Change::Node(Event::InitApply(node("m"))),
        Change::Node(Event::InitDone),
        Change::NodeProbe(Event::InitApply(
            raw(object("system", "m", Value::Null, good.clone())).into(),
        )),
        Change::NodeProbe(Event::InitApply(
            raw(object("system", "n", Value::Null, report)).into(),
        )),
        Change::NodeProbe(Event::InitDone),
        Change::Agent(Event::InitDone),
    ];
    for change in changes {
        world.apply(change, now);
    }
    let status = aggregate(probe, &world, None, &mut Past::default(), now);
    next_change(probe, &world, now);
    (world, status)
}

/// One probe of each kind.
fn question() -> Value {
    json!({
        "target": { "selector": { "matchLabels": { "app": "ckb" } } },
        "probes": [
            { "name": "storage", "rocksdb": { "operations": ["Get", "Write"], "byColumnFamily": true } },
            { "name": "library", "functions": { "match": "ckb_*" } },
            { "name": "throws", "usdt": { "provider": "libstdcxx" } },
            { "name": "kernel", "kernelFunctions": { "match": "ext4_sync_file" } },
            { "name": "calls", "syscalls": {} },
            { "name": "disks", "blockIo": {} },
            { "name": "peers", "tcp": {} },
            { "name": "ends", "processes": {} },
            { "name": "flames", "profile": { "every": "1m" } },
        ],
    })
}

fn object(namespace: &str, name: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": "ckbprobe.dev/v1alpha1",
        "kind": "Any",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": format!("uid-{name}"),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": spec,
        "status": status,
    })
}

/// As the watch brings it.
fn raw(object: Value) -> Raw {
    serde_json::from_value(object).unwrap()
}

fn pod(node: &str) -> TargetPod {
    let name = format!("ckb-{node}");
    TargetPod {
        reference: PodReference {
            namespace: "a".to_string(),
            uid: format!("uid-{name}"),
            name,
        },
        labels: [("app".to_string(), "ckb".to_string())]
            .into_iter()
            .collect::<std::collections::BTreeMap<_, _>>()
            .into(),
        node: Some(node.to_string()),
        phase: Phase::Running,
        containers: vec![ckb_probe_crds::Container {
            name: "ckb".to_string(),
            id: Some("id".to_string()),
        }],
        ..TargetPod::default()
    }
}

fn node(name: &str) -> Node {
    Node {
        name: name.to_string(),
        ready: true,
    }
}
