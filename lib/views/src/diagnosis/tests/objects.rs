//! A cluster on which all is well, of real objects, and how to break it.

use ckb_probe_crds::{CkbProbe, NodeProbe};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        coordination::v1::Lease,
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};
use serde::de::DeserializeOwned;
use serde_yaml::Value;

use super::super::{
    Diagnosis, Finding, Place,
    cluster::{Answer, Right, Snapshot},
};

/// A moment after the last report in them.
pub const NOW: &str = "2026-11-26T10:12:10Z";

/// The YAML of an object of the folder `objects`, with each of these pointers set to what is beside it.
pub fn object<T: DeserializeOwned>(text: &str, changes: &[(&str, &str)]) -> T {
    let mut value: Value = serde_yaml::from_str(text).unwrap();
    for (path, new) in changes {
        let mut place = &mut value;
        for key in path.split('/') {
            place = match key.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[key],
            };
        }
        *place = serde_yaml::from_str(new).unwrap();
    }
    serde_yaml::from_value(value).unwrap()
}

pub fn probe(changes: &[(&str, &str)]) -> CkbProbe {
    object(include_str!("objects/ckbprobe.yaml"), changes)
}

pub fn node_probe(changes: &[(&str, &str)]) -> NodeProbe {
    object(include_str!("objects/nodeprobe.yaml"), changes)
}

pub fn deployment(changes: &[(&str, &str)]) -> Deployment {
    object(include_str!("objects/deployment.yaml"), changes)
}

pub fn lease(changes: &[(&str, &str)]) -> Lease {
    object(include_str!("objects/lease.yaml"), changes)
}

pub fn agent(changes: &[(&str, &str)]) -> Pod {
    object(include_str!("objects/agent.yaml"), changes)
}

pub fn node(changes: &[(&str, &str)]) -> Node {
    object(include_str!("objects/node.yaml"), changes)
}

pub fn right(who: &str, what: &str, needed: bool, granted: Option<bool>) -> Right {
    Right {
        who: who.to_owned(),
        what: what.to_owned(),
        namespace: "e2e-soak".to_owned(),
        without: "nothing is said".to_owned(),
        needed,
        granted,
    }
}

/// A cluster on which all is well.
pub fn healthy() -> Snapshot {
    let resources = ["ckbprobes", "ckbprofiles", "nodeprobes", "profileparts"];
    Snapshot {
        now: NOW.parse::<Timestamp>().unwrap(),
        namespace: Some("e2e-soak".to_owned()),
        name: Some("steady".to_owned()),
        server: Answer::Known("v1.34.4".to_owned()),
        resources: Answer::Known(resources.map(str::to_owned).to_vec()),
        operators: Answer::Known(vec![deployment(&[])]),
        operator_pods: Answer::Known(Vec::new()),
        lease: Answer::Known(Some(lease(&[]))),
        rights: vec![right("you", "get ckbprobes.ckbprobe.dev", true, Some(true))],
        probes: Answer::Known(vec![probe(&[])]),
        node_probes: Answer::Known(vec![node_probe(&[])]),
        agents: Answer::Known(vec![agent(&[])]),
        nodes: Answer::Known(vec![node(&[])]),
    }
}

/// What is broken first of a cluster, which must be at this place.
pub fn broken_first(cluster: Snapshot, place: Place) -> Finding {
    first(&cluster.diagnose(), place).clone()
}

/// What is broken first, which must be at this place.
pub fn first(found: &Diagnosis, place: Place) -> &Finding {
    let first = found.first_failure();
    let first = first.unwrap_or_else(|| panic!("nothing is broken in {found:#?}"));
    assert_eq!(first.place, place, "{found:#?}");
    first
}
