//! What is in the API, as far as this operator needs it: an index without a client.
//!
//! It is fed with watch events and with the answers to the operator's own writes, and says what each one
//! touches. Objects are taken apart on the way in: only what is used is kept.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_crds::CkbProbeStatus;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;

mod agent;
mod node_probe;
mod pod;
mod probe;
mod table;

pub use agent::{AgentPod, Owner, RawAgent};
pub use node_probe::NodeProbeRow;
pub use pod::{Phase, RawPod, TargetPod};
pub use probe::{InvalidProbe, ProbeRow, ValidSpec};
pub use table::{Row, Table};

use node_probe::hear;

/// An object whose spec and status are read apart, so that one that is unreadable takes nothing else along.
pub type Raw = kube::core::Object<Option<serde_json::Value>, serde_json::Value>;

/// Namespace and name.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// The key of the object of this name in this namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether its kubelet says that it is fit for use.
    pub ready: bool,
}

impl Row for Node {
    type Key = String;

    fn key(&self) -> String {
        self.name.clone()
    }

    /// Pods are bound to a node by its name alone.
    fn same(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// News of one object.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "each is moved into the index at once: a box would only add an allocation"
)]
pub enum Change {
    /// A CkbProbe.
    Probe(Event<ProbeRow>),
    /// A pod that may be a target.
    Pod(Event<TargetPod>),
    /// A node.
    Node(Event<Node>),
    /// A NodeProbe of the operator's namespace.
    NodeProbe(Event<NodeProbeRow>),
    /// An agent pod.
    Agent(Event<AgentPod>),
    /// The API server does not answer: agents cannot be heard for now.
    Deaf,
}

/// What a change may have made out of date.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// CkbProbes whose status may be another.
    pub probes: BTreeSet<ObjectKey>,
    /// Nodes whose agent says something else of itself and its node.
    pub agents: BTreeSet<String>,
    /// Whether NodeProbes or agent pods may have to be others.
    pub fleet: bool,
}

/// The index.
#[derive(Clone, Debug, Default)]
pub struct World {
    probes: Table<ProbeRow>,
    pods: Table<TargetPod>,
    nodes: Table<Node>,
    node_probes: Table<NodeProbeRow>,
    agents: Table<AgentPod>,
    deaf: Option<Timestamp>,
}

impl World {
    /// True once every kind has been listed.
    pub fn synced(&self) -> bool {
        self.probes.synced()
            && self.pods.synced()
            && self.nodes.synced()
            && self.node_probes.synced()
            && self.agents.synced()
    }

    /// Takes in the news and says what they touch. `now` is when they arrived.
    pub fn apply(&mut self, change: Change, now: Timestamp) -> Touched {
        match change {
            Change::Probe(event) => self.apply_probe(event),
            Change::Pod(event) => {
                let namespaces: BTreeSet<String> = keys(self.pods.apply(event))
                    .map(|key| key.namespace)
                    .collect();
                self.touch_namespaces(&namespaces)
            }
            Change::Node(event) => {
                let nodes = self.nodes.apply(event);
                self.touch_nodes(keys(nodes))
            }
            Change::NodeProbe(event) => {
                let heard = hear(&self.node_probes, event, now);
                self.apply_node_probe(heard)
            }
            Change::Agent(event) => {
                let agents = self.agents.apply(event);
                let nodes: BTreeSet<_> = agents
                    .into_iter()
                    .flat_map(|(_, before, after)| [before, after])
                    .flatten()
                    .filter_map(|agent| Some(agent.owner?.name))
                    .collect();
                self.touch_nodes(nodes.into_iter())
            }
            Change::Deaf => {
                self.deaf = Some(now);
                Touched::default()
            }
        }
    }

    /// Takes in a CkbProbe whose status this process has just written, without waiting for the watch. The watch may
    /// be ahead all the same: then it knows better.
    pub fn confirm(&mut self, written: ProbeRow) -> Touched {
        let ahead = self
            .probe(&written.key())
            .is_none_or(|known| !known.same(&written) || known.generation > written.generation);
        if ahead {
            return Touched::default();
        }
        self.apply_probe(Event::Apply(written))
    }

    fn apply_probe(&mut self, event: Event<ProbeRow>) -> Touched {
        let mut touched = Touched::default();
        for (key, before, after) in self.probes.apply(event) {
            let order = |row: Option<ProbeRow>| {
                row.map(|row| ProbeRow {
                    status: None,
                    ..row
                })
            };
            touched.fleet |= order(before) != order(after);
            touched.probes.insert(key);
        }
        touched
    }

    fn apply_node_probe(&mut self, event: Event<NodeProbeRow>) -> Touched {
        let mut touched = Touched::default();
        for (node, before, after) in self.node_probes.apply(event) {
            let agent = |row: &NodeProbeRow| row.status.as_ref().map(|s| s.agent.clone());
            let said = after.as_ref().and_then(agent);
            if said.is_some() && said != before.as_ref().and_then(agent) {
                touched.agents.insert(node);
            }
            let rows = [before.as_ref(), after.as_ref()];
            touched
                .probes
                .extend(rows.into_iter().flatten().flat_map(NodeProbeRow::probes));
            let order = |row: &NodeProbeRow| (row.uid.clone(), row.deleting, row.spec.clone());
            touched.fleet |= before.as_ref().map(order) != after.as_ref().map(order);
        }
        touched
    }

    /// All that there is to look after.
    pub fn everything(&self) -> Touched {
        Touched {
            probes: self.probes.keys().cloned().collect(),
            agents: self.node_probes.keys().cloned().collect(),
            fleet: true,
        }
    }

    fn touch_namespaces(&self, namespaces: &BTreeSet<String>) -> Touched {
        let probes: BTreeSet<_> = self
            .probes
            .keys()
            .filter(|key| namespaces.contains(&key.namespace))
            .cloned()
            .collect();
        Touched {
            fleet: !probes.is_empty(),
            probes,
            ..Touched::default()
        }
    }

    fn touch_nodes(&self, nodes: impl Iterator<Item = String>) -> Touched {
        let mut touched = Touched::default();
        for node in nodes {
            touched.fleet = true;
            if let Some(row) = self.node_probes.get(&node) {
                touched.probes.extend(row.probes());
            }
        }
        touched
    }

    /// Every CkbProbe, in the order of namespace and name.
    pub fn probes(&self) -> impl Iterator<Item = &ProbeRow> {
        self.probes.values()
    }

    /// One CkbProbe.
    pub fn probe(&self, key: &ObjectKey) -> Option<&ProbeRow> {
        self.probes.get(key)
    }

    /// The unfinished pods that this CkbProbe selects, in the order of their names.
    pub fn selected<'a>(
        &'a self,
        namespace: &'a str,
        spec: &'a ValidSpec,
    ) -> impl Iterator<Item = &'a TargetPod> {
        let first = ObjectKey::new(namespace, "");
        self.pods
            .range(first..)
            .take_while(move |pod| pod.reference.namespace == namespace)
            .filter(|pod| pod.phase != Phase::Finished && spec.matches(&pod.labels))
    }

    /// One node.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The NodeProbe of a node.
    pub fn node_probe(&self, node: &str) -> Option<&NodeProbeRow> {
        self.node_probes.get(node)
    }

    /// Every NodeProbe.
    pub fn node_probes(&self) -> impl Iterator<Item = &NodeProbeRow> {
        self.node_probes.values()
    }

    /// Every agent pod.
    pub fn agents(&self) -> impl Iterator<Item = &AgentPod> {
        self.agents.values()
    }

    /// The agent pod of this name.
    pub fn agent(&self, name: &str) -> Option<&AgentPod> {
        self.agents.get(name)
    }

    /// When this node's agent was last heard, or could last have been heard: no agent is blamed for the time
    /// in which the API server could not be reached.
    pub fn heard(&self, node_probe: &NodeProbeRow) -> Option<Timestamp> {
        node_probe
            .heard
            .map(|heard| heard.max(self.deaf.unwrap_or(heard)))
    }

    /// The status of a CkbProbe as the API has it.
    pub fn status(&self, key: &ObjectKey) -> Option<&CkbProbeStatus> {
        self.probes.get(key)?.status.as_ref()
    }
}

fn keys<R: Row>(changes: Vec<table::Changed<R>>) -> impl Iterator<Item = R::Key> {
    changes.into_iter().map(|(key, _, _)| key)
}

/// The labels, annotations and so on that tests and the executor share.
pub(crate) type Labels = BTreeMap<String, String>;

#[cfg(test)]
mod tests;
