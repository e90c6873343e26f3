//! Objects for tests, small to write: everything that a test does not say is as it usually is.

use std::{collections::BTreeMap, io};

use ckb_probe_crds::{
    AgentStatus, CkbProbeSpec, Container, Distribution, Figures, Histogram, InstanceReport,
    InstanceState, IntervalFigures, Lack, NodeProbeSpec, NodeProbeStatus, PodReference,
    ProbeReference, ProbeReport, Reason, RowReport,
};
use http_body_util::BodyExt;
use hyper::{Request, Response, StatusCode, http::request::Parts};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::{SignedDuration, Timestamp},
};
use kube::{Client, client::Body, runtime::watcher::Event};
use serde_json::{Value, json};

use crate::{
    template::agent_name,
    world::{
        AgentPod, Change, CkbProbeEntry, Node, NodeProbeEntry, Owner, Phase, TargetPod, ValidSpec,
        World,
    },
};

/// A client of an API server that answers each request, and what was sent with it, by a code and an object.
pub fn client<A>(answer: impl Fn(Parts, Vec<u8>) -> A + Clone + Send + 'static) -> Client
where
    A: Future<Output = io::Result<(u16, Value)>> + Send,
{
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (parts, body) = request.into_parts();
            let sent = body.collect().await.unwrap().to_bytes();
            let (code, object) = answer(parts, sent.to_vec()).await?;
            let mut response = Response::new(Body::from(serde_json::to_vec(&object).unwrap()));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            Ok::<_, io::Error>(response)
        }
    });
    Client::new(service, "system")
}

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

/// Each kind was listed.
pub fn synced() -> [Change; 5] {
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

pub fn probe(namespace: &str, name: &str, overrides: serde_json::Value) -> CkbProbeEntry {
    CkbProbeEntry {
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
        created: at(-100),
        labels: BTreeMap::from([("app".into(), "ckb".into())]).into(),
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
        ready: true,
        ..AgentPod::default()
    }
}

/// Reported `age` seconds ago.
pub fn node_probe(node: &str, age: i64, instances: Vec<InstanceReport>) -> NodeProbeEntry {
    NodeProbeEntry {
        node: node.into(),
        uid: format!("uid-{node}"),
        generation: 1,
        deleting: false,
        spec: Some(NodeProbeSpec::default()),
        order: None,
        status: Some(NodeProbeStatus {
            observed_generation: Some(1),
            reported_at: Some(MicroTime(at(-age))),
            agent: AgentStatus {
                tier: "session".into(),
                ..AgentStatus::default()
            },
            instances,
            ..NodeProbeStatus::default()
        }),
        unreadable: None,
        packed: Vec::new(),
        heard: None,
        gap: SignedDuration::ZERO,
    }
}

/// Attached and firing, with a hundred calls of `Get` in a window of one second.
pub fn firing(probe: &CkbProbeEntry, pod: &TargetPod) -> InstanceReport {
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
        probes: vec![measuring("storage", vec![row("Get", 100, "119:60,40")])],
        ..InstanceReport::default()
    }
}

/// A probe of this name, attached and firing.
pub fn measuring(name: &str, rows: Vec<RowReport>) -> ProbeReport {
    ProbeReport {
        name: name.into(),
        kind: "rocksdb".into(),
        state: InstanceState::Attached,
        reason: Some(Reason::Firing),
        firing: true,
        rows,
        ..ProbeReport::default()
    }
}

/// The same said of each of its probes: what is so of all of them is so of their target.
pub fn throughout(report: InstanceReport) -> InstanceReport {
    let probes = report.probes.iter().map(|probe| ProbeReport {
        state: report.state,
        reason: report.reason,
        message: report.message.clone(),
        firing: report.firing,
        ..probe.clone()
    });
    InstanceReport {
        probes: probes.collect(),
        ..report
    }
}

/// The same, with this missing of its first probe.
pub fn without(mut report: InstanceReport, reason: Reason, item: &str) -> InstanceReport {
    let items = vec![item.to_owned()];
    report.probes[0].lacks.push(Lack { reason, items });
    report.probes[0].message = report.message.clone();
    report
}

/// So many calls in a second, all of which was recorded; those that are not in the histogram were not timed.
pub fn row(key: &str, count: u64, histogram: &str) -> RowReport {
    let histogram: Histogram = histogram.parse().unwrap();
    let timed = Distribution {
        unmeasured: count.saturating_sub(histogram.count()),
        histogram,
        sum: 0,
    };
    RowReport {
        key: key.into(),
        total: Figures {
            sums: [("slow".into(), 2)].into(),
            distributions: [("duration".into(), untimed(count * 10))].into(),
            ..Figures::default()
        },
        window: IntervalFigures {
            recorded_milliseconds: 1000,
            samples: count,
            milliseconds: 1000,
            figures: Figures {
                sums: [("bytes".into(), count * 32)].into(),
                maxima: [("duration".into(), 1480)].into(),
                distributions: [("duration".into(), timed)].into(),
                ..Figures::default()
            },
        },
        parts: Vec::new(),
    }
}

/// Calls that were counted and not timed.
pub fn untimed(count: u64) -> Distribution {
    Distribution {
        unmeasured: count,
        ..Distribution::default()
    }
}

pub fn has(probe: &CkbProbeEntry) -> Change {
    Change::Probe(Event::Apply(probe.clone()))
}

pub fn runs(pod: &TargetPod) -> Change {
    Change::Pod(Event::Apply(pod.clone()))
}

pub fn reports(row: NodeProbeEntry) -> Change {
    Change::NodeProbe(Event::Apply(row))
}

pub fn has_agent(agent: AgentPod) -> Change {
    Change::Agent(Event::Apply(agent))
}
