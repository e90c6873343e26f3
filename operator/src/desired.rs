//! What there should be: one work order for each node that has a target.

use std::collections::BTreeMap;

use ckb_probe_crds::{Assignment, Container, NodeProbeSpec};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::world::{ProbeRow, TargetPod, ValidSpec, World};

/// The orders by node.
pub type Desired = BTreeMap<String, NodeProbeSpec>;

/// The orders that the CkbProbes ask for now. A paused, expired or unreadable CkbProbe asks for none, and a node
/// that is not there gets none.
pub fn desired(world: &World, now: Timestamp) -> Desired {
    let mut orders = Desired::new();
    for probe in world.probes() {
        let Some(spec) = active(probe, now) else {
            continue;
        };
        for pod in world.selected(&probe.reference.namespace, spec) {
            let node = pod.node.as_deref().and_then(|node| world.node(node));
            let containers = containers(spec, pod);
            let Some(node) = node.filter(|_| !containers.is_empty()) else {
                continue;
            };
            orders
                .entry(node.name.clone())
                .or_default()
                .assignments
                .push(assignment(probe, spec, pod, containers));
        }
    }
    for order in orders.values_mut() {
        order
            .assignments
            .sort_by(|a, b| (&a.pod, &a.probe).cmp(&(&b.pod, &b.probe)));
    }
    orders
}

/// When time alone will next change the orders.
pub fn next_expiry(world: &World, now: Timestamp) -> Option<Timestamp> {
    world
        .probes()
        .filter(|probe| active(probe, now).is_some())
        .filter_map(ProbeRow::expires)
        .min()
}

/// The spec of a CkbProbe that wants its targets measured.
fn active(probe: &ProbeRow, now: Timestamp) -> Option<&ValidSpec> {
    let spec = probe.spec.as_ref().ok()?;
    let active = !probe.deleting && !spec.spec.paused && !probe.expired(now);
    active.then_some(spec)
}

/// The containers of this pod to look in: the one named, or all.
pub fn containers(spec: &ValidSpec, pod: &TargetPod) -> Vec<Container> {
    let wanted = spec.spec.target.container.as_deref();
    pod.containers
        .iter()
        .filter(|container| wanted.is_none_or(|name| name == container.name))
        .cloned()
        .collect()
}

fn assignment(
    probe: &ProbeRow,
    spec: &ValidSpec,
    pod: &TargetPod,
    containers: Vec<Container>,
) -> Assignment {
    let spec = &spec.spec;
    Assignment {
        probe: probe.reference.clone(),
        pod: pod.reference.clone(),
        containers,
        executable: spec.target.executable.clone(),
        report_interval: spec.report_interval,
        overhead: spec.overhead.clone(),
        probes: spec.probes.clone(),
        expires_at: probe.expires().map(Time),
    }
}

#[cfg(test)]
pub(crate) mod tests;
