//! How much a namespace asks for, and what of it is beyond what it may have.

use std::collections::BTreeMap;

use super::{Beyond, LeftOut, MAX_CONTAINERS, View, active, age, key, looked_in};
use crate::{
    limits::Limit,
    world::{CkbProbeEntry, TargetPod, ValidSpec},
};

/// Pairs of CkbProbe and pod on a node of which the one asks to have the other measured, by namespace.
pub fn asked(node: &str, view: View<'_>) -> BTreeMap<String, usize> {
    let mut asked = BTreeMap::new();
    if view.world.node(node).is_none() {
        return asked;
    }
    for pod in view.world.pods_on(node) {
        let (namespace, labels) = (&pod.reference.namespace, pod.labels.map());
        let probes = view.world.probes_in(namespace);
        let count = probes
            .filter_map(|probe| active(probe, view.now))
            .filter(|spec| view.limits.refused(namespace, &spec.spec).is_none())
            .filter(|spec| spec.matches(&labels) && counts(spec, pod))
            .count();
        if count > 0 {
            *asked.entry(namespace.clone()).or_default() += count;
        }
    }
    asked
}

/// What this namespace is not given of the so many targets that it asks for, for it asks for more than it may.
pub fn beyond(namespace: &str, asked: usize, view: View<'_>) -> Beyond {
    let (ckb_probes, targets) = (
        view.limits.ckb_probes_per_namespace,
        view.limits.targets_per_namespace,
    );
    let probes = view.world.probes_in(namespace);
    let mut beyond = Beyond::new();
    let mut probes_admitted: Vec<(&CkbProbeEntry, &ValidSpec)> = Vec::new();
    for probe in probes {
        let Some(spec) = active(probe, view.now) else {
            continue;
        };
        match view.limits.refused(namespace, &spec.spec) {
            Some(limit) => drop(beyond.insert(key(probe), LeftOut::All(limit))),
            None => probes_admitted.push((probe, spec)),
        }
    }
    let mut probes = probes_admitted;
    if asked <= targets && probes.len() <= ckb_probes {
        return beyond;
    }
    probes.sort_by_key(|(probe, _)| age(probe));
    let mut admitted = 0;
    for (place, (probe, spec)) in probes.into_iter().enumerate() {
        if place >= ckb_probes {
            let limit = Limit::CkbProbesPerNamespace(ckb_probes);
            beyond.insert(key(probe), LeftOut::All(limit));
            continue;
        }
        let mut pods = measurable(namespace, spec, view);
        // Who asks for nothing is left out of nothing.
        if admitted >= targets && !pods.is_empty() {
            let limit = Limit::TargetsPerNamespace(targets);
            beyond.insert(key(probe), LeftOut::All(limit));
            continue;
        }
        let rest = pods.split_off(pods.len().min(targets - admitted));
        admitted += pods.len();
        if !rest.is_empty() {
            let limit = Limit::TargetsPerNamespace(targets);
            let rest = rest
                .into_iter()
                .map(|pod| (pod.reference.name.clone(), limit));
            beyond.insert(key(probe), LeftOut::Pods(rest.collect()));
        }
    }
    beyond
}

/// The pods that count as targets of a CkbProbe, the oldest first.
fn measurable<'a>(namespace: &'a str, spec: &'a ValidSpec, view: View<'a>) -> Vec<&'a TargetPod> {
    let on_a_node = |pod: &&TargetPod| {
        let node = pod.node.as_deref().and_then(|node| view.world.node(node));
        node.is_some() && counts(spec, pod)
    };
    let pods = view.world.selected(namespace, spec).filter(on_a_node);
    let mut pods: Vec<_> = pods.collect();
    // Stable: equals stay in the order of their names.
    pods.sort_by_key(|pod| pod.created);
    pods
}

/// Whether there is something to be measured in a pod, in no more containers than an entry names.
fn counts(spec: &ValidSpec, pod: &TargetPod) -> bool {
    (1..=MAX_CONTAINERS).contains(&looked_in(spec, pod).count())
}
