//! What is in the API, as far as this operator needs it: an index without a client.
//!
//! It is fed with watch events and with the answers to the operator's own writes, and says what each one
//! touches. Objects are taken apart on the way in: only what is used is kept.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_crds::CkbProbeStatus;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::runtime::watcher::Event;

mod agent;
mod by_node;
mod labels;
mod node_probe;
mod packed;
mod pod;
mod probe;
mod reading;
mod table;

pub use agent::{AgentPod, Owner, RawAgent};
pub use labels::Labels;
pub use node_probe::{NodeProbeEntry, Report};
pub use pod::{Phase, RawPod, TargetPod};
pub use probe::{CkbProbeEntry, InvalidProbe, ValidSpec};
pub use reading::Bounds;
pub(crate) use table::rows;
pub use table::{Row, Table};

use by_node::ByNode;
use node_probe::hear;
use reading::Reading;

use crate::profiles::rows::{News, ProfileIndex};

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
    /// The name of the node.
    pub name: String,
    /// Whether its kubelet says that it is fit for use.
    pub ready: bool,
}

rows! {
    // Pods are bound to a node by its name alone.
    Node by String: |row| row.name.clone(), name;
}

/// News of one object.
#[derive(Clone, Debug)]
pub enum Change {
    /// A CkbProbe.
    Probe(Event<CkbProbeEntry>),
    /// A pod that may be a target.
    Pod(Event<TargetPod>),
    /// A node.
    Node(Event<Node>),
    /// A NodeProbe of the operator's namespace.
    NodeProbe(Event<NodeProbeEntry>),
    /// An agent pod.
    Agent(Event<AgentPod>),
    /// A profile, or a part of one.
    Profiles(News),
    /// The API server does not answer: agents cannot be heard for now.
    WatchFailed,
}

/// What a change may have made out of date.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// CkbProbes whose status may be another.
    pub probes: BTreeSet<ObjectKey>,
    /// Nodes whose agent says something else of itself and its node.
    pub agents: BTreeSet<String>,
    /// Nodes whose NodeProbe or agent pod may have to be another.
    pub nodes: BTreeSet<String>,
    /// Namespaces whose CkbProbes ask for something else.
    pub namespaces: BTreeSet<String>,
    /// Whether those of any node may.
    pub fleet: bool,
}

/// The index.
#[derive(Clone, Debug, Default)]
pub struct World {
    probes: Table<CkbProbeEntry>,
    pods: Table<TargetPod>,
    nodes: Table<Node>,
    node_probes: Table<NodeProbeEntry>,
    agents: Table<AgentPod>,
    pods_by_node: ByNode<ObjectKey>,
    agents_by_node: ByNode<String>,
    shelf: ProfileIndex,
    deaf: Option<Timestamp>,
    reading: Reading,
    /// Which CkbProbe, by its uid, was paused when: of those that were measured until a moment ago.
    paused: BTreeMap<String, Timestamp>,
}

/// A CkbProbe was paused a moment ago for so long.
const LATELY: SignedDuration = SignedDuration::from_secs(60);

impl World {
    /// One that keeps no more of CkbProbes than that.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            reading: Reading::within(bounds),
            ..Self::default()
        }
    }

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
            Change::Probe(event) => self.apply_probe(event, now),
            Change::Pod(event) => {
                let pods = self.pods.apply(event);
                let node = |pod: &TargetPod| pod.node.clone();
                self.pods_by_node.follow(&pods, node);
                self.touch_pods(&pods)
            }
            Change::Node(event) => {
                let nodes = self.nodes.apply(event);
                self.touch_nodes(keys(nodes))
            }
            Change::NodeProbe(event) => {
                let heard = hear(&self.node_probes, event, self.deaf, now);
                self.apply_node_probe(heard)
            }
            Change::Agent(event) => {
                let agents = self.agents.apply(event);
                let node = |agent: &AgentPod| Some(agent.owner.as_ref()?.name.clone());
                self.agents_by_node.follow(&agents, node);
                let nodes: BTreeSet<_> = agents
                    .iter()
                    .flat_map(|(_, before, after)| [before, after])
                    .flatten()
                    .filter_map(node)
                    .collect();
                self.touch_nodes(nodes.into_iter())
            }
            Change::Profiles(news) => {
                let owners = self.shelf.apply(news, now);
                let probes = owners.iter().flat_map(|(namespace, uid)| {
                    let probes = self.probes_in(namespace);
                    probes.filter(move |probe| probe.reference.uid == *uid)
                });
                Touched {
                    probes: probes.map(Row::key).collect(),
                    ..Touched::default()
                }
            }
            Change::WatchFailed => {
                self.deaf = Some(now);
                Touched::default()
            }
        }
    }

    /// Takes in a CkbProbe whose status this process has just written, without waiting for the watch. The watch may
    /// be ahead all the same: then it knows better.
    pub fn confirm(&mut self, written: CkbProbeEntry, now: Timestamp) -> Touched {
        let ahead = self
            .probe(&written.key())
            .is_none_or(|known| !known.same(&written) || known.generation > written.generation);
        if ahead {
            return Touched::default();
        }
        self.apply_probe(Event::Apply(written), now)
    }

    /// Whether it was measured until a moment ago, and is paused now: the last window is still on its way.
    pub fn was_paused_lately(&self, probe: &CkbProbeEntry, now: Timestamp) -> bool {
        let at = self.paused.get(&probe.reference.uid);
        probe.is_paused() && at.is_some_and(|at| *at + LATELY > now)
    }

    fn apply_probe(&mut self, event: Event<CkbProbeEntry>, now: Timestamp) -> Touched {
        let mut touched = Touched::default();
        let event = self.reading.trim(event);
        let mut roomy = BTreeSet::new();
        for (key, before, after) in self.probes.apply(event) {
            if after.is_none() && self.reading.gone(&key) {
                roomy.insert(key.namespace.clone());
            }
            if let (Some(before), Some(after)) = (&before, &after)
                && !before.is_paused()
                && after.is_paused()
            {
                self.paused.retain(|_, at| *at + LATELY > now);
                self.paused.insert(after.reference.uid.clone(), now);
            }
            let same = match (&before, &after) {
                (Some(before), Some(after)) => before.asks_the_same(after),
                _ => false,
            };
            if !same {
                for spec in [&before, &after].into_iter().flatten().map(|row| &row.spec) {
                    let spec = spec.iter();
                    let pods = spec.flat_map(|spec| self.selected(&key.namespace, spec));
                    touched
                        .nodes
                        .extend(pods.filter_map(|pod| pod.node.clone()));
                }
                touched.namespaces.insert(key.namespace.clone());
            }
            touched.probes.insert(key);
        }
        for namespace in &roomy {
            let unread = self.probes_in(namespace).filter(|row| row.is_unread());
            touched.probes.extend(unread.map(Row::key));
        }
        touched
    }

    fn apply_node_probe(&mut self, event: Event<NodeProbeEntry>) -> Touched {
        let mut touched = Touched::default();
        for (node, before, after) in self.node_probes.apply(event) {
            let agent = |row: &NodeProbeEntry| row.status.as_ref().map(|s| s.agent.clone());
            let said = after.as_ref().and_then(agent);
            if said.is_some() && said != before.as_ref().and_then(agent) {
                touched.agents.insert(node.clone());
            }
            let same_names = before.as_ref().zip(after.as_ref());
            let same_names = same_names.is_some_and(|(before, after)| before.names_the_same(after));
            // A report that is of the same as the one before concerns the same.
            let before_too = before.as_ref().filter(|_| !same_names);
            for row in before_too.into_iter().chain(after.as_ref()) {
                touched.probes.extend(self.concerned(row));
            }
            let same = match (&before, &after) {
                (Some(before), Some(after)) => before.orders_the_same(after),
                _ => false,
            };
            if !same {
                touched.nodes.insert(node);
            }
        }
        touched
    }

    /// All that there is to look after.
    pub fn everything(&self) -> Touched {
        Touched {
            probes: self.probes.keys().cloned().collect(),
            agents: self.node_probes.keys().cloned().collect(),
            fleet: true,
            ..Touched::default()
        }
    }

    /// Of a pod's change, those know that select it now or did so before: however many others there are.
    fn touch_pods(&self, pods: &[table::Changed<TargetPod>]) -> Touched {
        let mut touched = Touched::default();
        for (key, before, after) in pods {
            let versions = || [before, after].into_iter().flatten();
            let labels: Vec<_> = versions().map(|pod| pod.labels.map()).collect();
            let selects = |probe: &&CkbProbeEntry| {
                let spec = probe.spec.as_ref();
                spec.is_ok_and(|spec| labels.iter().any(|labels| spec.matches(labels)))
            };
            let concerned = self.probes_in(&key.namespace).filter(selects);
            let concerned: Vec<_> = concerned.map(Row::key).collect();
            if !concerned.is_empty() {
                touched
                    .nodes
                    .extend(versions().filter_map(|pod| pod.node.clone()));
                touched.probes.extend(concerned);
            }
        }
        touched
    }

    fn touch_nodes(&self, nodes: impl Iterator<Item = String>) -> Touched {
        let mut touched = Touched::default();
        for node in nodes {
            if let Some(row) = self.node_probes.get(&node) {
                touched.probes.extend(self.concerned(row));
            }
            touched.nodes.insert(node);
        }
        touched
    }

    /// The CkbProbes that an order or a report is about: those that it names, and those that look at the same pods. Of several
    /// that ask the same it names one.
    fn concerned(&self, row: &NodeProbeEntry) -> BTreeSet<ObjectKey> {
        let (probes, pods) = row.named();
        let looking = pods.into_iter().flat_map(|key| {
            let labels = self.pods.get(&key).map(|pod| pod.labels.map());
            let looks = |probe: &&CkbProbeEntry| {
                let spec = probe.spec.as_ref().ok().zip(labels.as_ref());
                spec.is_some_and(|(spec, labels)| spec.matches(labels))
            };
            let probes = self.probes_in(&key.namespace).filter(looks);
            probes.map(CkbProbeEntry::key).collect::<Vec<_>>()
        });
        looking.chain(probes).collect()
    }

    /// Every CkbProbe, in the order of namespace and name.
    pub fn probes(&self) -> impl Iterator<Item = &CkbProbeEntry> {
        self.probes.values()
    }

    /// How many CkbProbes there are.
    pub fn probe_count(&self) -> usize {
        self.probes.count()
    }

    /// One CkbProbe.
    pub fn probe(&self, key: &ObjectKey) -> Option<&CkbProbeEntry> {
        self.probes.get(key)
    }

    /// Whether the spec of this CkbProbe may be read now, though it was not.
    pub fn may_be_read(&self, row: &CkbProbeEntry) -> bool {
        row.is_unread() && self.reading.has_room(&row.reference.namespace)
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
            .filter(|pod| pod.phase != Phase::Finished && spec.matches(&pod.labels.map()))
    }

    /// The CkbProbes of a namespace, in the order of their names.
    pub fn probes_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a CkbProbeEntry> {
        let first = ObjectKey::new(namespace, "");
        self.probes
            .range(first..)
            .take_while(move |probe| probe.reference.namespace == namespace)
    }

    /// The unfinished pods that are bound to a node, in the order of namespace and name.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &TargetPod> {
        self.pods_by_node
            .on(node)
            .filter_map(|key| self.pods.get(key))
            .filter(|pod| pod.phase != Phase::Finished)
    }

    /// The names of all nodes for which there is something: a node, a NodeProbe or an agent pod.
    pub fn places(&self) -> BTreeSet<&str> {
        let nodes = self.nodes.keys().map(String::as_str);
        let ordered = self.node_probes.keys().map(String::as_str);
        nodes
            .chain(ordered)
            .chain(self.agents_by_node.nodes())
            .collect()
    }

    /// One node.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The NodeProbe of a node.
    pub fn node_probe(&self, node: &str) -> Option<&NodeProbeEntry> {
        self.node_probes.get(node)
    }

    /// Every NodeProbe.
    pub fn node_probes(&self) -> impl Iterator<Item = &NodeProbeEntry> {
        self.node_probes.values()
    }

    /// Every agent pod.
    pub fn agents(&self) -> impl Iterator<Item = &AgentPod> {
        self.agents.values()
    }

    /// The agent pods that were made for a node.
    pub fn agents_of(&self, node: &str) -> impl Iterator<Item = &AgentPod> {
        self.agents_by_node
            .on(node)
            .filter_map(|name| self.agents.get(name))
    }

    /// The agent pod of this name.
    pub fn agent(&self, name: &str) -> Option<&AgentPod> {
        self.agents.get(name)
    }

    /// Profiles, and parts of them. They may be listed later than all else, or never: nothing else waits for them.
    pub fn shelf(&self) -> &ProfileIndex {
        &self.shelf
    }

    /// When this node's agent was last heard, or could last have been heard: no agent is blamed for the time
    /// in which the API server could not be reached.
    pub fn heard(&self, node_probe: &NodeProbeEntry) -> Option<Timestamp> {
        node_probe
            .heard
            .map(|heard| heard.max(self.deaf.unwrap_or(heard)))
    }

    /// The status of a CkbProbe as the API has it.
    pub fn status(&self, key: &ObjectKey) -> Option<&CkbProbeStatus> {
        self.probes.get(key)?.status.as_deref()
    }
}

fn keys<R: Row>(changes: Vec<table::Changed<R>>) -> impl Iterator<Item = R::Key> {
    changes.into_iter().map(|(key, _, _)| key)
}

#[cfg(test)]
mod tests;
