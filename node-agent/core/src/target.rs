//! Which process is whose target, and what to do about it: pure functions of the orders and of /proc.

use std::collections::BTreeMap;

use ckb_probe_crds::{Assignment, PodReference, ProbeReference};

use crate::process::{Place, Process, ProcessId};

/// One target: a container of an assigned pod, on behalf of one CkbProbe. A process comes and goes; this stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey {
    /// On whose behalf.
    pub probe: ProbeReference,
    /// The pod, by uid and name.
    pub pod: PodReference,
    /// The container's name.
    pub container: String,
}

/// A process, and how many others of its container run the same executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The oldest of them: the one that is measured.
    pub process: ProcessId,
    /// How many there are besides.
    pub others: usize,
}

/// What the orders and the processes together ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The order.
    pub assignment: Assignment,
    /// The process, unless there is none at the moment.
    pub located: Option<Located>,
}

/// What is in place for one target.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The order it was put in place for.
    pub assignment: Assignment,
    /// The process it was put in place on.
    pub process: Option<ProcessId>,
    /// Nothing is in place, on purpose, until the order changes.
    pub held: bool,
}

/// One step from what is in place to what is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Detach and forget: no order asks for it any more.
    Forget(InstanceKey),
    /// Detach, and go on looking: its process is gone.
    Lose(InstanceKey),
    /// Attach to this process, in place of whatever was there.
    Attach(InstanceKey, Desired),
    /// Note the order; there is nothing to attach to.
    Await(InstanceKey, Desired),
}

/// Finds the process of every target. Targets that are known already stay, with or without a process; an order
/// none of whose containers runs the executable yields nothing (see [`unmatched`]).
pub fn locate<'a>(
    assignments: &[Assignment],
    processes: &[Process],
    known: impl IntoIterator<Item = &'a InstanceKey>,
) -> BTreeMap<InstanceKey, Desired> {
    let mut targets = BTreeMap::new();
    for assignment in assignments {
        for process in processes {
            let Some(container) = container_of(assignment, process) else {
                continue;
            };
            targets
                .entry(key(assignment, container))
                .and_modify(|desired: &mut Desired| prefer_older(desired, process.id))
                .or_insert_with(|| Desired {
                    assignment: assignment.clone(),
                    located: Some(Located {
                        process: process.id,
                        others: 0,
                    }),
                });
        }
    }
    for known in known {
        let assignment = assignments.iter().find(|assignment| {
            assignment.probe == known.probe
                && assignment.pod == known.pod
                && assignment
                    .containers
                    .iter()
                    .any(|container| container.name == known.container)
        });
        if let Some(assignment) = assignment {
            targets.entry(known.clone()).or_insert_with(|| Desired {
                assignment: assignment.clone(),
                located: None,
            });
        }
    }
    targets
}

/// Leaves targets, if there is still an order for them, the processes that they have, whatever else was found.
pub fn hold(targets: &mut BTreeMap<InstanceKey, Desired>, held: BTreeMap<InstanceKey, Located>) {
    for (key, located) in held {
        if let Some(desired) = targets.get_mut(&key) {
            desired.located = Some(located);
        }
    }
}

/// The orders that have no target, known or found.
pub fn unmatched<'a>(
    assignments: &'a [Assignment],
    targets: &BTreeMap<InstanceKey, Desired>,
) -> Vec<&'a Assignment> {
    assignments
        .iter()
        .filter(|assignment| {
            !targets
                .keys()
                .any(|key| key.probe == assignment.probe && key.pod == assignment.pod)
        })
        .collect()
}

/// The steps from `observed` to `desired`, detaching before attaching.
pub fn plan(
    desired: &BTreeMap<InstanceKey, Desired>,
    observed: &BTreeMap<InstanceKey, Observed>,
) -> Vec<Action> {
    let forget = observed
        .keys()
        .filter(|key| !desired.contains_key(*key))
        .map(|key| Action::Forget(key.clone()));
    let change = desired.iter().flat_map(|(key, want)| {
        let have = observed.get(key);
        let process = want.located.as_ref().map(|located| located.process);
        let attached = have.and_then(|have| have.process);
        let same_order = have.is_some_and(|have| same_work(&have.assignment, &want.assignment));
        let held = have.is_some_and(|have| have.held) && same_order;
        let lose = process.is_none() && attached.is_some();
        let attach = process.is_some() && !held && !(process == attached && same_order);
        let wait = process.is_none() && !same_order;
        [
            lose.then(|| Action::Lose(key.clone())),
            attach.then(|| Action::Attach(key.clone(), want.clone())),
            wait.then(|| Action::Await(key.clone(), want.clone())),
        ]
        .into_iter()
        .flatten()
    });
    forget.chain(change).collect()
}

/// Whether two orders ask for the same probes on the same terms: container ids come and go with restarts.
pub fn same_work(a: &Assignment, b: &Assignment) -> bool {
    let Assignment {
        probe,
        asks,
        pod,
        containers: _,
        executable,
        report_interval,
        overhead,
        probes,
        traces,
        expires_at: _,
    } = a;
    *probe == b.probe
        && *asks == b.asks
        && *pod == b.pod
        && *executable == b.executable
        && *report_interval == b.report_interval
        && *overhead == b.overhead
        && *probes == b.probes
        && *traces == b.traces
}

/// The targets that there may be by this order: one for each of its containers.
pub fn keys_of(assignment: &Assignment) -> impl Iterator<Item = InstanceKey> {
    let containers = assignment.containers.iter();
    containers.map(|container| key(assignment, &container.name))
}

/// Which target the process would be by this order; None where it is none.
pub fn key_of(assignment: &Assignment, process: &Process) -> Option<InstanceKey> {
    container_of(assignment, process).map(|container| key(assignment, container))
}

/// The name of the assigned container that the process runs in, if it is the executable looked for.
///
/// The container's id in its cgroup says so, as far as the API server knew it; before it does, the pod's uid there, and the
/// container's name in the kubelet's mounts.
fn container_of<'a>(assignment: &'a Assignment, process: &Process) -> Option<&'a str> {
    if process.executable != assignment.executable {
        return None;
    }
    let Place { pod, container } = &process.place;
    let mut containers = assignment.containers.iter();
    let by_id = containers
        .clone()
        .find(|known| known.id.is_some() && known.id == *container);
    let by_name = || {
        let own = pod.as_ref() == Some(&assignment.pod.uid);
        containers.find(|known| own && process.name.as_ref() == Some(&known.name))
    };
    by_id.or_else(by_name).map(|found| found.name.as_str())
}

fn key(assignment: &Assignment, container: &str) -> InstanceKey {
    InstanceKey {
        probe: assignment.probe.clone(),
        pod: assignment.pod.clone(),
        container: container.to_string(),
    }
}

fn prefer_older(desired: &mut Desired, process: ProcessId) {
    if let Some(located) = &mut desired.located {
        located.others += 1;
        let age = |id: ProcessId| (id.start_ticks, id.pid);
        if age(process) < age(located.process) {
            located.process = process;
        }
    }
}

#[cfg(test)]
mod tests;
