//! How fast agents are replaced that were made from another template: as a DaemonSet's would be, a tenth of them at a time, and
//! only while the others are ready. A template of which no agent comes up ends the measuring of a tenth of the nodes, not of all.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Removal};
use crate::{
    template::agent_name,
    world::{AgentPod, World},
};

/// One of so many may be replaced at a time, and one in any case.
const ONE_OF: usize = 10;

/// Agents that are to be replaced, and those that are being so.
#[derive(Debug, Default)]
pub struct Rollout {
    /// Nodes whose agents wait for others to become ready.
    waiting: BTreeSet<String>,
    /// Agents that were told to go, by their nodes, as long as the watch has not told of it: their uids.
    told: BTreeMap<String, String>,
}

impl Rollout {
    /// Begins anew.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// What of these actions may be done now. An agent that is not ready measures nothing, and may always be replaced.
    pub fn permitted(&mut self, node: &str, actions: Vec<Action>, world: &World) -> Vec<Action> {
        self.waiting.remove(node);
        let Some(uid) = replaced(&actions) else {
            return actions;
        };
        let serves = world.agents_of(node).any(|agent| serves(agent, node));
        // One that was told in vain is told again.
        let again = self.told.get(node) == Some(&uid);
        if serves && !again && self.room(world) == 0 {
            self.waiting.insert(node.to_owned());
            return actions
                .into_iter()
                .filter(|action| !is_replacement(action))
                .collect();
        }
        self.told.insert(node.to_owned(), uid);
        actions
    }

    /// The nodes whose agents may be replaced now, of those that wait.
    pub fn freed(&mut self, world: &World) -> Vec<String> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let room = self.room(world);
        self.waiting.iter().take(room).cloned().collect()
    }

    /// How many agents that are ready may go now.
    fn room(&mut self, world: &World) -> usize {
        self.told.retain(|node, uid| {
            let agent = world.agent(&agent_name(node));
            agent.is_some_and(|agent| agent.uid == *uid && !agent.deleting)
        });
        let (mut agents, mut missing) = (0_usize, 0_usize);
        for order in world.node_probes().filter(|order| !order.deleting) {
            agents += 1;
            let node = &*order.node;
            // Of a node that is down nothing is to be expected.
            let up = world.node(node).is_some_and(|node| node.ready);
            let serves = world.agents_of(node).any(|agent| serves(agent, node));
            missing += usize::from(up && (!serves || self.told.contains_key(node)));
        }
        (agents / ONE_OF).max(1).saturating_sub(missing)
    }
}

fn serves(agent: &AgentPod, node: &str) -> bool {
    agent.ready && !agent.deleting && agent.name == agent_name(node)
}

fn is_replacement(action: &Action) -> bool {
    let outdated = Removal::Outdated;
    matches!(action, Action::DeleteAgent { why, .. } if *why == outdated)
}

/// The uid of the agent that is to be replaced.
fn replaced(actions: &[Action]) -> Option<String> {
    actions.iter().find_map(|action| match action {
        Action::DeleteAgent { uid, .. } if is_replacement(action) => Some(uid.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
