//! Objects for tests, small to write: everything that a test does not say is as it usually is.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    AgentStatus, CkbProbeSpec, Container, Counters, InstanceReport, InstanceState, NodeProbeSpec,
    NodeProbeStatus, OperationReport, PodReference, ProbeReference, Reason, Window,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use kube::runtime::watcher::Event;
use serde_json::json;

use crate::{
    template::agent_name,
    world::{
        AgentPod, Change, Node, NodeProbeRow, Owner, Phase, ProbeRow, TargetPod, ValidSpec, World,
    },
};

pub const NOW: i64 = 1_800_000_000;
pub const HASH: &str = "0123";

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

/// A world that has been listed, with these in it.
pub fn world(changes: impl IntoIterator<Item = Change>) -> World {
    let mut world = World::default();
    for change in synced().into_iter().chain(changes) {
        world.apply(change, at(0));
    }
    world
}

fn synced() -> [Change; 5] {
    [
        Change::Probe(Event::InitDone),
        Change::Pod(Event::InitDone),
        Change::Node(Event::InitDone),
        Change::NodeProbe(Event::InitDone),
        Change::Agent(Event::InitDone),
    ]
}

/// Selects `app: ckb`; `overrides` replaces parts of the spec.
pub fn spec(overrides: serde_json::Value) -> CkbProbeSpec {
    let mut spec = json!({
        "target": { "selector": { "matchLabels": { "app": "ckb" } } },
        "probes": [{ "name": "storage", "rocksdb": { "operations": ["Get", "Write"] } }],
    });
    for (key, value) in overrides.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

pub fn probe(namespace: &str, name: &str, overrides: serde_json::Value) -> ProbeRow {
    ProbeRow {
        reference: ProbeReference {
            namespace: namespace.into(),
            name: name.into(),
            uid: format!("uid-{namespace}-{name}"),
        },
        generation: 3,
        created: at(-100),
        deleting: false,
        spec: ValidSpec::new(spec(overrides)),
        status: None,
    }
}

/// Runs on this node, labelled `app: ckb`, with one container `ckb`.
pub fn pod(namespace: &str, name: &str, node: Option<&str>) -> TargetPod {
    TargetPod {
        reference: PodReference {
            namespace: namespace.into(),
            name: name.into(),
            uid: format!("uid-{namespace}-{name}"),
        },
        labels: BTreeMap::from([("app".into(), "ckb".into())]),
        node: node.map(str::to_owned),
        phase: if node.is_some() {
            Phase::Running
        } else {
            Phase::Pending
        },
        trouble: None,
        containers: vec![container("ckb")],
    }
}

pub fn container(name: &str) -> Container {
    Container {
        name: name.into(),
        id: Some(format!("id-{name}")),
    }
}

pub fn node(name: &str) -> Change {
    Change::Node(Event::Apply(Node {
        name: name.into(),
        ready: true,
    }))
}

pub fn agent(node: &str) -> AgentPod {
    AgentPod {
        name: agent_name(node),
        uid: format!("uid-agent-{node}"),
        owner: Some(Owner {
            name: node.into(),
            uid: format!("uid-{node}"),
        }),
        template_hash: Some(HASH.into()),
        phase: Phase::Running,
        ..AgentPod::default()
    }
}

/// Reported `age` seconds ago.
pub fn node_probe(node: &str, age: i64, instances: Vec<InstanceReport>) -> NodeProbeRow {
    NodeProbeRow {
        node: node.into(),
        uid: format!("uid-{node}"),
        generation: 1,
        deleting: false,
        spec: Some(NodeProbeSpec::default()),
        status: Some(NodeProbeStatus {
            observed_generation: Some(1),
            reported_at: Some(MicroTime(at(-age))),
            agent: AgentStatus {
                tier: "session".into(),
                ..AgentStatus::default()
            },
            instances,
        }),
        heard: None,
    }
}

/// Attached and firing, with a hundred calls of `Get` in a window of one second.
pub fn firing(probe: &ProbeRow, pod: &TargetPod) -> InstanceReport {
    InstanceReport {
        probe: probe.reference.clone(),
        pod: pod.reference.clone(),
        container: Some("ckb".into()),
        pid: Some(7),
        state: InstanceState::Attached,
        reason: Some(Reason::Firing),
        message: "measuring process 7".into(),
        firing: true,
        overhead_millipercent: Some(412),
        operations: vec![operation("Get", 100, "119:60,40")],
        ..InstanceReport::default()
    }
}

pub fn operation(name: &str, count: u64, histogram: &str) -> OperationReport {
    OperationReport {
        column_families: Vec::new(),
        probe: "storage".into(),
        operation: name.into(),
        has_bytes: true,
        total: Counters {
            count: count * 10,
            slow: 2,
            ..Counters::default()
        },
        window: Window {
            recorded_milliseconds: 1000,
            samples: count,
            milliseconds: 1000,
            counters: Counters {
                count,
                bytes: count * 32,
                ..Counters::default()
            },
            max_nanoseconds: 1480,
            histogram: histogram.parse().unwrap(),
        },
    }
}

pub fn has(probe: &ProbeRow) -> Change {
    Change::Probe(Event::Apply(probe.clone()))
}

pub fn runs(pod: &TargetPod) -> Change {
    Change::Pod(Event::Apply(pod.clone()))
}

pub fn reports(row: NodeProbeRow) -> Change {
    Change::NodeProbe(Event::Apply(row))
}

pub fn has_agent(agent: AgentPod) -> Change {
    Change::Agent(Event::Apply(agent))
}
