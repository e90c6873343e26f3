//! The same all at once, and without memory: what [`Desired`] is held against.

use std::collections::btree_map::Entry;

use super::*;
use crate::desired::{
    order::Asked,
    share::{self, Entries},
};

/// What there should be, and what is asked beyond it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Whole {
    pub orders: Orders,
    /// By CkbProbe. One that is not here has all that it asks for.
    pub left_out: BTreeMap<ObjectKey, LeftOut>,
}

/// The orders that the CkbProbes ask for, of all nodes.
pub fn whole(world: &World, now: Timestamp, limits: &Limits) -> Whole {
    let mut left_out = BTreeMap::new();
    let mut nodes: BTreeMap<&str, Vec<Vec<Asked>>> = BTreeMap::new();
    for probes in oldest_first(world, now) {
        let admitted = admitted(world, probes, limits, &mut left_out);
        for (node, asked) in admitted {
            nodes.entry(node).or_default().push(asked);
        }
    }
    let orders = nodes
        .into_iter()
        .map(|(node, namespaces)| (node.to_owned(), order(namespaces, &mut left_out)))
        .collect();
    Whole { orders, left_out }
}

/// The CkbProbes that want their targets measured, namespace by namespace. What comes later takes nothing from what was there.
fn oldest_first(world: &World, now: Timestamp) -> Vec<Vec<(&CkbProbeEntry, &ValidSpec)>> {
    let mut namespaces: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for probe in world.probes() {
        if let Some(spec) = active(probe, now) {
            let namespace = namespaces.entry(&probe.reference.namespace);
            namespace.or_default().push((probe, spec));
        }
    }
    for probes in namespaces.values_mut() {
        probes.sort_by_key(|(probe, _)| (probe.created, &probe.reference.name));
    }
    namespaces.into_values().collect()
}

/// What the CkbProbes of one namespace ask that is within the limits, by node. Those that ask the same of a pod are one.
fn admitted<'a>(
    world: &'a World,
    probes: Vec<(&'a CkbProbeEntry, &'a ValidSpec)>,
    limits: &Limits,
    left_out: &mut BTreeMap<ObjectKey, LeftOut>,
) -> BTreeMap<&'a str, Vec<Asked<'a>>> {
    let Limits {
        ckb_probes_per_namespace,
        targets_per_namespace,
        ckb_probes_per_target,
        profile_bytes_per_namespace: _,
        min_report_interval: _,
        kinds: _,
        exporters: _,
    } = *limits;
    let mut nodes: BTreeMap<&str, Vec<Asked>> = BTreeMap::new();
    let mut known: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut on_pod: BTreeMap<&str, usize> = BTreeMap::new();
    let mut targets = 0;
    for (place, (probe, spec)) in probes.into_iter().enumerate() {
        let pods = measurable(world, probe, spec);
        let asks = |(_, _, containers): &(_, _, Vec<_>)| containers.len() <= MAX_CONTAINERS;
        let over = if place >= ckb_probes_per_namespace {
            Some(Limit::CkbProbesPerNamespace(ckb_probes_per_namespace))
        } else {
            (targets >= targets_per_namespace && pods.iter().any(asks))
                .then_some(Limit::TargetsPerNamespace(targets_per_namespace))
        };
        if let Some(limit) = over {
            left_out.insert(key(probe), LeftOut::All(limit));
            continue;
        }
        for (node, pod, containers) in pods {
            let uid = pod.reference.uid.as_str();
            if containers.len() > MAX_CONTAINERS {
                leave_out(left_out, probe, pod, Limit::Containers(MAX_CONTAINERS));
                continue;
            }
            let on_pod = on_pod.entry(uid).or_default();
            if targets >= targets_per_namespace {
                let limit = Limit::TargetsPerNamespace(targets_per_namespace);
                leave_out(left_out, probe, pod, limit);
                continue;
            }
            targets += 1;
            if *on_pod >= ckb_probes_per_target {
                let limit = Limit::CkbProbesPerTarget(ckb_probes_per_target);
                leave_out(left_out, probe, pod, limit);
                continue;
            }
            *on_pod += 1;
            let asked = nodes.entry(node).or_default();
            match known.entry((uid, &spec.asks)) {
                Entry::Occupied(same) => asked[*same.get()].join(probe),
                Entry::Vacant(place) => {
                    place.insert(asked.len());
                    asked.push(Asked::new(probe, spec, pod, containers));
                }
            }
        }
    }
    nodes
}

/// The pods of a CkbProbe that there is something to be measured in, on which node, and in which containers: the oldest first.
fn measurable<'a>(
    world: &'a World,
    probe: &'a CkbProbeEntry,
    spec: &'a ValidSpec,
) -> Vec<(&'a str, &'a TargetPod, Vec<Container>)> {
    let mut pods: Vec<_> = world
        .selected(&probe.reference.namespace, spec)
        .filter_map(|pod| {
            let node = world.node(pod.node.as_deref()?)?;
            let containers = containers(spec, pod);
            (!containers.is_empty()).then_some((node.name.as_str(), pod, containers))
        })
        .collect();
    // Stable: equals stay in the order of their names.
    pods.sort_by_key(|(_, pod, _)| pod.created);
    pods
}

/// As much of what the namespaces ask on a node as its order holds.
fn order(
    namespaces: Vec<Vec<Asked>>,
    left_out: &mut BTreeMap<ObjectKey, LeftOut>,
) -> NodeProbeSpec {
    let weights = namespaces
        .iter()
        .map(|asked| asked.iter().map(Asked::weight).collect());
    let Entries { fit, limit } = share::entries(weights.collect());
    let mut assignments = Vec::new();
    for (asked, fit) in namespaces.into_iter().zip(fit) {
        let mut asked = asked.into_iter();
        assignments.extend(asked.by_ref().take(fit).map(Asked::assignment));
        for asked in asked {
            for probe in asked.probes {
                leave_out(left_out, probe, asked.pod, limit);
            }
        }
    }
    assignments.sort_by(|a, b| (&a.pod, &a.probe).cmp(&(&b.pod, &b.probe)));
    NodeProbeSpec { assignments }
}

fn leave_out(
    left_out: &mut BTreeMap<ObjectKey, LeftOut>,
    probe: &CkbProbeEntry,
    pod: &TargetPod,
    limit: Limit,
) {
    let of_probe = left_out
        .entry(key(probe))
        .or_insert_with(|| LeftOut::Pods(BTreeMap::new()));
    if let LeftOut::Pods(pods) = of_probe {
        pods.insert(pod.reference.name.clone(), limit);
    }
}
