//! What there should be: one work order for each node that has a target, within the [limits](crate::limits).
//!
//! An order is made from the pods of its node and the CkbProbes of their namespaces. Only where a namespace asks for more than
//! it may does one of its pods depend on all the others, so that is found out apart, and only for such a namespace: what a
//! change costs does not depend on how large the cluster is.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_crds::{Container, NodeProbeSpec};
use k8s_openapi::jiff::Timestamp;

use crate::{
    limits::{Limit, Limits},
    world::{CkbProbeEntry, ObjectKey, TargetPod, ValidSpec, World},
};

mod namespace;
mod order;
mod share;

use order::Ordered;

/// How many containers an entry names at most: as the schema of the NodeProbe says. One pod with more would make the whole
/// order invalid, and so keep every other target of its node as it is.
const MAX_CONTAINERS: usize = 64;

/// What of a CkbProbe is in no order though it asks for it.
#[derive(Clone, Debug, PartialEq)]
pub enum LeftOut {
    /// Everything.
    All(Limit),
    /// These pods, by name.
    Pods(BTreeMap<String, Limit>),
}

impl LeftOut {
    /// Why this pod is not measured, if it is left out.
    pub fn of(&self, pod: &TargetPod) -> Option<Limit> {
        match self {
            Self::All(limit) => Some(*limit),
            Self::Pods(pods) => pods.get(&pod.reference.name).copied(),
        }
    }
}

/// What of one namespace is left out, by CkbProbe.
type Beyond = BTreeMap<ObjectKey, LeftOut>;

/// What orders are made from.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What there is.
    pub world: &'a World,
    /// What may be taken of it.
    pub limits: &'a Limits,
    /// The time at which the orders are made.
    pub now: Timestamp,
}

/// Of what the orders are out of date.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// Nodes: of what is on them.
    pub nodes: BTreeSet<String>,
    /// Namespaces: of what their CkbProbes ask.
    pub namespaces: BTreeSet<String>,
}

/// What is known of the orders, kept up to date by what changes. The orders themselves are in the API.
#[derive(Debug, Default, PartialEq)]
pub struct Desired {
    nodes: BTreeMap<String, Node>,
    /// Pairs of CkbProbe and pod that a namespace asks for, whether it may or not.
    asked: BTreeMap<String, usize>,
    /// What the namespaces that ask for more than they may are not given.
    beyond: BTreeMap<String, Beyond>,
    /// What orders do not hold otherwise, by the names of pods.
    cut: BTreeMap<ObjectKey, BTreeMap<String, Limit>>,
    /// Nodes that have an order.
    orders: usize,
    /// Assignments of all orders.
    targets: usize,
}

/// What is known of a node with something on it that is asked for.
#[derive(Debug, Default, PartialEq)]
struct Node {
    /// Pairs of CkbProbe and pod on it, by namespace.
    asked: BTreeMap<String, usize>,
    /// Those of them that its order does not hold.
    cut: Vec<(ObjectKey, String)>,
    /// Assignments of its order.
    targets: Option<usize>,
}

impl Desired {
    /// Takes in that these are out of date: tells of each node that may be concerned what its order is to be, if any, and
    /// returns the CkbProbes of which another part than before is left out. A paused, expired or unreadable CkbProbe asks for
    /// nothing, and a node that is not there gets no order.
    pub fn revise(
        &mut self,
        stale: Stale,
        view: View<'_>,
        mut order: impl FnMut(&str, Option<NodeProbeSpec>),
    ) -> BTreeSet<ObjectKey> {
        let Stale {
            mut nodes,
            mut namespaces,
        } = stale;
        let mut before = BTreeMap::new();
        for node in &nodes {
            self.count(node, view, &mut namespaces);
        }
        for namespace in &namespaces {
            self.admit(namespace, view, &mut before, &mut nodes);
        }
        for node in &nodes {
            self.forget(node, &mut before);
        }
        for node in &nodes {
            let ordered = order::of(node, view, &self.beyond);
            order(node, self.keep(node, ordered, &mut before));
        }
        before
            .into_iter()
            .filter(|(probe, before)| self.left_out(probe) != *before)
            .map(|(probe, _)| probe)
            .collect()
    }

    /// Everything that may be out of date.
    pub fn everything(&self, world: &World) -> Stale {
        let places = world.places().into_iter().map(str::to_owned);
        let asking = world.probes().map(|probe| &probe.reference.namespace);
        Stale {
            nodes: places.chain(self.nodes.keys().cloned()).collect(),
            namespaces: asking.chain(self.beyond.keys()).cloned().collect(),
        }
    }

    /// What is in no order of this CkbProbe; None when it has all that it asks for.
    pub fn left_out(&self, probe: &ObjectKey) -> Option<LeftOut> {
        let beyond = self.beyond.get(&probe.namespace);
        let beyond = beyond.and_then(|beyond| beyond.get(probe));
        match (beyond, self.cut.get(probe)) {
            (Some(LeftOut::All(limit)), _) => Some(LeftOut::All(*limit)),
            (Some(LeftOut::Pods(pods)), Some(cut)) => {
                let mut pods = pods.clone();
                pods.extend(cut.iter().map(|(pod, limit)| (pod.clone(), *limit)));
                Some(LeftOut::Pods(pods))
            }
            (Some(pods), None) => Some(pods.clone()),
            (None, cut) => cut.map(|cut| LeftOut::Pods(cut.clone())),
        }
    }

    /// Whether nothing keeps this pod from being measured for this CkbProbe, as far as limits go.
    pub fn admits(&self, probe: &ObjectKey, pod: &str) -> bool {
        let beyond = self.beyond.get(&probe.namespace);
        let beyond = match beyond.and_then(|beyond| beyond.get(probe)) {
            Some(LeftOut::All(_)) => true,
            Some(LeftOut::Pods(pods)) => pods.contains_key(pod),
            None => false,
        };
        let cut = self.cut.get(probe);
        !beyond && cut.is_none_or(|pods| !pods.contains_key(pod))
    }

    /// Nodes that have an order.
    pub fn orders(&self) -> usize {
        self.orders
    }

    /// Assignments of all orders.
    pub fn targets(&self) -> usize {
        self.targets
    }

    /// What is asked for on a node, and in all; `namespaces` are those of which anything is or was.
    fn count(&mut self, node: &str, view: View<'_>, namespaces: &mut BTreeSet<String>) {
        let asked = namespace::asked(node, view);
        let known = self.nodes.entry(node.to_owned()).or_default();
        let before = std::mem::replace(&mut known.asked, asked);
        for (namespace, count) in &known.asked {
            *self.asked.entry(namespace.clone()).or_default() += count;
            namespaces.insert(namespace.clone());
        }
        for (namespace, count) in before {
            if let Some(all) = self.asked.get_mut(&namespace) {
                *all = all.saturating_sub(count);
                if *all == 0 {
                    self.asked.remove(&namespace);
                }
            }
            namespaces.insert(namespace);
        }
    }

    /// What a namespace is not given for it asks for more than it may. Whatever is given now and was not, or the other way
    /// round, is on one of `nodes` then.
    fn admit(
        &mut self,
        namespace: &str,
        view: View<'_>,
        before: &mut BTreeMap<ObjectKey, Option<LeftOut>>,
        nodes: &mut BTreeSet<String>,
    ) {
        let asked = self.asked.get(namespace).copied().unwrap_or_default();
        let beyond = namespace::beyond(namespace, asked, view);
        let empty = Beyond::new();
        let known = self.beyond.get(namespace).unwrap_or(&empty);
        let concerned: BTreeSet<_> = known
            .keys()
            .chain(beyond.keys())
            .filter(|probe| known.get(*probe) != beyond.get(*probe))
            .cloned()
            .collect();
        for probe in concerned {
            let spec = view
                .world
                .probe(&probe)
                .and_then(|row| row.spec.as_ref().ok());
            let pods = spec
                .into_iter()
                .flat_map(|spec| view.world.selected(namespace, spec));
            nodes.extend(pods.filter_map(|pod| pod.node.clone()));
            let left_out = self.left_out(&probe);
            before.entry(probe).or_insert(left_out);
        }
        if beyond.is_empty() {
            self.beyond.remove(namespace);
        } else {
            self.beyond.insert(namespace.to_owned(), beyond);
        }
    }

    /// Forgets what the order of a node did not hold.
    fn forget(&mut self, node: &str, before: &mut BTreeMap<ObjectKey, Option<LeftOut>>) {
        let cut = self
            .nodes
            .get_mut(node)
            .map(|node| std::mem::take(&mut node.cut));
        for (probe, pod) in cut.into_iter().flatten() {
            if !before.contains_key(&probe) {
                before.insert(probe.clone(), self.left_out(&probe));
            }
            if let Some(pods) = self.cut.get_mut(&probe) {
                pods.remove(&pod);
                if pods.is_empty() {
                    self.cut.remove(&probe);
                }
            }
        }
    }

    /// Notes what has become of a node, and returns its order.
    fn keep(
        &mut self,
        node: &str,
        ordered: Ordered,
        before: &mut BTreeMap<ObjectKey, Option<LeftOut>>,
    ) -> Option<NodeProbeSpec> {
        let Ordered { order, cut } = ordered;
        let targets = order.as_ref().map(|order| order.assignments.len());
        let known = self.nodes.entry(node.to_owned()).or_default();
        let earlier = std::mem::replace(&mut known.targets, targets);
        self.orders = self.orders + usize::from(targets.is_some()) - usize::from(earlier.is_some());
        self.targets = self.targets + targets.unwrap_or_default() - earlier.unwrap_or_default();
        known.cut = cut
            .iter()
            .map(|(probe, pod, _)| (probe.clone(), pod.clone()))
            .collect();
        if *known == Node::default() {
            self.nodes.remove(node);
        }
        for (probe, pod, limit) in cut {
            if !before.contains_key(&probe) {
                before.insert(probe.clone(), self.left_out(&probe));
            }
            self.cut.entry(probe).or_default().insert(pod, limit);
        }
        order
    }
}

/// All orders by node, for who has no use for what came before.
pub fn orders(view: View<'_>) -> BTreeMap<String, NodeProbeSpec> {
    let mut desired = Desired::default();
    let mut orders = BTreeMap::new();
    desired.revise(desired.everything(view.world), view, |node, order| {
        orders.extend(order.map(|order| (node.to_owned(), order)));
    });
    orders
}

/// When time alone will next change the orders.
pub fn next_expiry(world: &World, now: Timestamp) -> Option<Timestamp> {
    world
        .probes()
        .filter(|probe| active(probe, now).is_some())
        .filter_map(CkbProbeEntry::expires)
        .min()
}

/// The spec of a CkbProbe that wants its targets measured.
pub fn active(probe: &CkbProbeEntry, now: Timestamp) -> Option<&ValidSpec> {
    let spec = probe.spec.as_ref().ok()?;
    let active = !probe.deleting && !spec.spec.paused && !probe.expired(now);
    active.then_some(spec)
}

/// The containers of this pod to look in: the one named, or all.
pub fn containers(spec: &ValidSpec, pod: &TargetPod) -> Vec<Container> {
    looked_in(spec, pod).cloned().collect()
}

fn looked_in<'a>(spec: &'a ValidSpec, pod: &'a TargetPod) -> impl Iterator<Item = &'a Container> {
    let wanted = spec.spec.target.container.as_deref();
    let containers = pod.containers.iter();
    containers.filter(move |container| wanted.is_none_or(|name| name == container.name))
}

/// What comes later takes nothing from what was there: the oldest is served first.
pub fn age(probe: &CkbProbeEntry) -> (Timestamp, &str) {
    (probe.created, &probe.reference.name)
}

fn key(probe: &CkbProbeEntry) -> ObjectKey {
    ObjectKey::new(&probe.reference.namespace, &probe.reference.name)
}

#[cfg(test)]
pub(crate) mod tests;
