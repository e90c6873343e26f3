//! What to do so that what is there becomes what should be, as plain data.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ckb_probe_crds::NodeProbeSpec;
use strum::IntoStaticStr;

use crate::{
    desired::{Desired, Stale, View},
    template::agent_name,
    world::{AgentPod, NodeProbeEntry, ObjectKey, Phase, World},
};

mod rollout;

pub use rollout::Rollout;

/// One step on one node.
#[derive(Clone, Debug, PartialEq, IntoStaticStr)]
pub enum Action {
    /// Write the order of a node, new or changed.
    ApplyNodeProbe {
        /// The node.
        node: String,
        /// The order. It may be as long as a megabyte, and is kept until the watch has told that it was written.
        spec: Arc<NodeProbeSpec>,
    },
    /// Withdraw the order of a node.
    DeleteNodeProbe {
        /// The node.
        node: String,
        /// Which one, lest a newer one be deleted.
        uid: String,
    },
    /// Start the agent of a node.
    CreateAgent {
        /// The node.
        node: String,
        /// The uid of the node's NodeProbe, which will own the pod.
        owner: String,
    },
    /// Stop an agent.
    DeleteAgent {
        /// The pod.
        pod: String,
        /// Which one, lest a newer one be deleted.
        uid: String,
        /// Why the pod is removed.
        why: Removal,
    },
}

impl Action {
    /// The word for logs.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Whether it replaces an agent that ended by itself, and so may have to be done again and again.
    pub fn is_respawn(&self) -> bool {
        let why = match self {
            Self::DeleteAgent { why, .. } => Some(*why),
            Self::ApplyNodeProbe { .. }
            | Self::DeleteNodeProbe { .. }
            | Self::CreateAgent { .. } => None,
        };
        why == Some(Removal::Ended)
    }
}

/// Why an agent pod goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Removal {
    /// The node has no target any more.
    Unwanted,
    /// It was made from another template, for another NodeProbe, or under another name.
    Outdated,
    /// It was evicted or otherwise ended, and will not run again.
    Ended,
}

/// The steps of each node that needs some, kept up to date node by node: what one change costs does not depend on how many
/// nodes there are. Carried out, and planned again as long as there are any, they lead to what is desired.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    desired: Desired,
    steps: BTreeMap<String, Vec<Action>>,
}

/// What has been planned anew.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Revised {
    /// The nodes whose steps may be others than before.
    pub nodes: BTreeSet<String>,
    /// The CkbProbes of which another part than before is left out.
    pub probes: BTreeSet<ObjectKey>,
}

impl Plan {
    /// Asks anew for everything.
    pub fn renew(&mut self, view: View<'_>, template_hash: &str) -> Revised {
        let stale = self.desired.everything(view.world);
        self.revise(stale, view, template_hash)
    }

    /// Asks anew for what is out of date.
    pub fn revise(&mut self, stale: Stale, view: View<'_>, template_hash: &str) -> Revised {
        let Self {
            desired,
            steps: all,
        } = self;
        let mut nodes = BTreeSet::new();
        let probes = desired.revise(stale, view, |node, order| {
            let steps = steps(node, order, view.world, template_hash);
            match steps.is_empty() {
                true => all.remove(node),
                false => all.insert(node.to_owned(), steps),
            };
            nodes.insert(node.to_owned());
        });
        Revised { nodes, probes }
    }

    /// What is to be done on a node; None when that is nothing.
    pub fn of(&self, node: &str) -> Option<&Vec<Action>> {
        self.steps.get(node)
    }

    /// What is desired.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }
}

/// What is to be done on a node so that it has this order, and an agent that follows it.
fn steps(
    node: &str,
    desired: Option<NodeProbeSpec>,
    world: &World,
    template_hash: &str,
) -> Vec<Action> {
    let order = world.node_probe(node);
    let agents: Vec<_> = world.agents_of(node).collect();
    match desired {
        Some(spec) => wanted(node, spec, order, &agents, template_hash),
        None => unwanted(order, &agents),
    }
}

fn unwanted(order: Option<&NodeProbeEntry>, agents: &[&AgentPod]) -> Vec<Action> {
    let agents = agents
        .iter()
        .filter(|agent| !agent.deleting)
        .map(|agent| remove(agent, Removal::Unwanted));
    let order = order
        .filter(|order| !order.deleting)
        .map(|order| Action::DeleteNodeProbe {
            node: order.node.clone(),
            uid: order.uid.clone(),
        });
    agents.chain(order).collect()
}

fn wanted(
    node: &str,
    spec: NodeProbeSpec,
    order: Option<&NodeProbeEntry>,
    agents: &[&AgentPod],
    template_hash: &str,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let current = order.is_some_and(|order| order.orders(&spec));
    match order {
        // It goes, and what it owns goes with it: the next plan starts afresh.
        Some(order) if order.deleting => return actions,
        Some(_) if current => {}
        _ => actions.push(Action::ApplyNodeProbe {
            node: node.to_owned(),
            spec: Arc::new(spec),
        }),
    }
    let Some(order) = order else {
        return actions;
    };
    let name = agent_name(node);
    actions.extend(
        agents
            .iter()
            .filter(|agent| !agent.deleting)
            .filter_map(|agent| {
                let why = defect(agent, &name, &order.uid, template_hash)?;
                Some(remove(agent, why))
            }),
    );
    if !agents.iter().any(|agent| agent.name == name) {
        actions.push(Action::CreateAgent {
            node: node.to_owned(),
            owner: order.uid.clone(),
        });
    }
    actions
}

/// Why this agent pod cannot stay as it is.
fn defect(agent: &AgentPod, name: &str, owner: &str, template_hash: &str) -> Option<Removal> {
    let owned = agent.owner.as_ref().is_some_and(|o| o.uid == owner);
    let made_from_template = agent.template_hash.as_deref() == Some(template_hash);
    if agent.name != name || !owned || !made_from_template {
        return Some(Removal::Outdated);
    }
    (agent.phase == Phase::Finished).then_some(Removal::Ended)
}

fn remove(agent: &AgentPod, why: Removal) -> Action {
    Action::DeleteAgent {
        pod: agent.name.clone(),
        uid: agent.uid.clone(),
        why,
    }
}

#[cfg(test)]
mod tests;
