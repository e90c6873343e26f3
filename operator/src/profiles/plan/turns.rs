//! Whose turn it is: namespaces come one after the other, and within one the nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::jiff::Timestamp;

use super::{ProfileAction, Publish, Series};

/// So many steps are planned at once: what comes meanwhile waits for them. Each writes one profile at most.
pub const MOST_STEPS: usize = 16;

/// What is done in one turn.
pub type Step = VecDeque<ProfileAction>;

/// A window that is to be published.
pub struct Due {
    pub job: Publish,
    /// When its first part came.
    pub first: Timestamp,
}

/// Who had a turn.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// The namespace that was the last one.
    namespace: String,
    /// Which turn the last one of a node was, in each namespace.
    nodes: BTreeMap<String, BTreeMap<String, u64>>,
    count: u64,
}

impl Turns {
    /// Of what is to be published in one namespace at most one window of each series, and as many as there are steps at most.
    /// The one comes first that has a node whose last turn is the longest ago, and of equals the oldest: an agent that sends many
    /// windows keeps no other waiting for more than one of them.
    pub fn of_nodes(&self, namespace: &str, mut due: Vec<Due>) -> Vec<(Series, Publish)> {
        due.sort_by_key(|due| due.first);
        let mut due: Vec<_> = due
            .into_iter()
            .map(|due| Some((due.job.series(), due.job)))
            .collect();
        let mut turns = self.nodes.get(namespace).cloned().unwrap_or_default();
        let mut count = self.count;
        let mut chosen = Vec::new();
        let mut taken = BTreeSet::new();
        while chosen.len() < MOST_STEPS {
            let turn = |job: &Publish| {
                let nodes = job.parts.iter().map(|part| turns.get(&part.node).copied());
                nodes.map(Option::unwrap_or_default).min()
            };
            let waiting = due.iter_mut().filter(|one| one.is_some());
            let free = waiting.filter(|one| {
                let series = one.as_ref().map(|(series, _)| series);
                series.is_some_and(|series| !taken.contains(series))
            });
            // The first of equals.
            let next = free.min_by_key(|one| one.as_ref().and_then(|(_, job)| turn(job)));
            let Some((series, job)) = next.and_then(Option::take) else {
                break;
            };
            count += 1;
            note(&mut turns, &job, count);
            taken.insert(series.clone());
            chosen.push((series, job));
        }
        chosen
    }

    /// Forgets the turns of nodes that wait for none.
    pub fn retain(&mut self, waits: impl Fn(&str) -> bool) {
        for nodes in self.nodes.values_mut() {
            nodes.retain(|node, _| waits(node));
        }
        self.nodes.retain(|_, nodes| !nodes.is_empty());
    }

    /// A step of each namespace in turn, in the order of their names, beginning with the one after that whose turn was the last.
    pub fn of_namespaces(&mut self, mut waiting: BTreeMap<String, VecDeque<Step>>) -> Vec<Step> {
        let mut steps = Vec::new();
        while steps.len() < MOST_STEPS {
            let mut names = waiting.keys();
            let next = names.find(|name| **name > self.namespace);
            let Some(name) = next.or_else(|| waiting.keys().next()).cloned() else {
                break;
            };
            match waiting.get_mut(&name).and_then(VecDeque::pop_front) {
                Some(step) => {
                    self.count += 1;
                    let nodes = self.nodes.entry(name.clone()).or_default();
                    for action in &step {
                        if let ProfileAction::Publish(job) = action {
                            note(nodes, job, self.count);
                        }
                    }
                    steps.push(step);
                    self.namespace = name;
                }
                None => drop(waiting.remove(&name)),
            }
        }
        steps
    }
}

/// The nodes of these parts have had this turn.
fn note(turns: &mut BTreeMap<String, u64>, job: &Publish, count: u64) {
    let nodes = job.parts.iter().map(|part| part.node.clone());
    turns.extend(nodes.map(|node| (node, count)));
}
