//! The order of one node.

use std::collections::{BTreeMap, btree_map::Entry};

use ckb_probe_crds::{Assignment, Container, NodeProbeSpec, Probe};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{
    Beyond, MAX_CONTAINERS, View, active, age, containers, key,
    share::{self, Entries},
};
use crate::{
    limits::Limit,
    world::{CkbProbeEntry, ObjectKey, TargetPod, ValidSpec},
};

/// An order, and what it does not hold though it is asked for and the namespace may have it: CkbProbe and name of the pod.
#[derive(Debug, Default, PartialEq)]
pub struct Ordered {
    pub order: Option<NodeProbeSpec>,
    pub cut: Vec<(ObjectKey, String, Limit)>,
}

/// Something that is asked of a pod, by one CkbProbe or several.
pub struct Asked<'a> {
    /// The oldest that asks it.
    probe: &'a CkbProbeEntry,
    /// All that do.
    pub probes: Vec<&'a CkbProbeEntry>,
    spec: &'a ValidSpec,
    pub pod: &'a TargetPod,
    containers: Vec<Container>,
    /// When the last of them expires; None: never.
    expires: Option<Timestamp>,
}

/// That of a node, less what is beyond the limits of a namespace.
pub fn of(node: &str, view: View<'_>, beyond: &BTreeMap<String, Beyond>) -> Ordered {
    let mut ordered = Ordered::default();
    if view.world.node(node).is_none() {
        return ordered;
    }
    let mut pods: BTreeMap<&str, Vec<&TargetPod>> = BTreeMap::new();
    for pod in view.world.pods_on(node) {
        pods.entry(&pod.reference.namespace).or_default().push(pod);
    }
    let mut namespaces = Vec::new();
    for (namespace, mut pods) in pods {
        // Stable: equals stay in the order of their names.
        pods.sort_by_key(|pod| pod.created);
        let asked = asked(
            namespace,
            &pods,
            view,
            beyond.get(namespace),
            &mut ordered.cut,
        );
        if !asked.is_empty() {
            namespaces.push(asked);
        }
    }
    if !namespaces.is_empty() {
        ordered.order = Some(shared(namespaces, &mut ordered.cut));
    }
    ordered
}

/// What the CkbProbes of one namespace ask of these pods within the limits, the oldest first. Those that ask the same of a pod
/// are one.
fn asked<'a>(
    namespace: &'a str,
    pods: &[&'a TargetPod],
    view: View<'a>,
    beyond: Option<&Beyond>,
    cut: &mut Vec<(ObjectKey, String, Limit)>,
) -> Vec<Asked<'a>> {
    let labelled = pods.iter().map(|pod| (*pod, pod.labels.map()));
    let labelled: Vec<(&TargetPod, _)> = labelled.collect();
    let matching = |probe: &'a CkbProbeEntry| {
        let spec = active(probe, view.now)?;
        let any = labelled.iter().any(|(_, labels)| spec.matches(labels));
        any.then_some((probe, spec))
    };
    let mut probes: Vec<_> = view
        .world
        .probes_in(namespace)
        .filter_map(matching)
        .collect();
    probes.sort_by_key(|(probe, _)| age(probe));
    let most = view.limits.ckb_probes_per_target;
    let mut all: Vec<Asked> = Vec::new();
    let mut known: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut on_pod: BTreeMap<&str, usize> = BTreeMap::new();
    for (probe, spec) in probes {
        let left_out = beyond.and_then(|beyond| beyond.get(&key(probe)));
        if let Some(super::LeftOut::All(_)) = left_out {
            continue;
        }
        let selected = labelled.iter().filter(|(_, labels)| spec.matches(labels));
        for (pod, _) in selected {
            let mut leave_out = |limit| cut.push((key(probe), pod.reference.name.clone(), limit));
            let containers = containers(spec, pod);
            if containers.len() > MAX_CONTAINERS {
                leave_out(Limit::Containers(MAX_CONTAINERS));
                continue;
            }
            if containers.is_empty() || left_out.is_some_and(|left_out| left_out.of(pod).is_some())
            {
                continue;
            }
            let uid = pod.reference.uid.as_str();
            let on_pod = on_pod.entry(uid).or_default();
            if *on_pod >= most {
                leave_out(Limit::CkbProbesPerTarget(most));
                continue;
            }
            *on_pod += 1;
            match known.entry((uid, &spec.asks)) {
                Entry::Occupied(same) => all[*same.get()].join(probe),
                Entry::Vacant(place) => {
                    place.insert(all.len());
                    all.push(Asked::new(probe, spec, pod, containers));
                }
            }
        }
    }
    all
}

/// As much of what the namespaces ask on a node as its order holds.
fn shared(namespaces: Vec<Vec<Asked>>, cut: &mut Vec<(ObjectKey, String, Limit)>) -> NodeProbeSpec {
    let weights = namespaces
        .iter()
        .map(|asked| asked.iter().map(Asked::weight).collect());
    let Entries { fit, limit } = share::entries(weights.collect());
    let mut assignments = Vec::new();
    for (asked, fit) in namespaces.into_iter().zip(fit) {
        let mut asked = asked.into_iter();
        assignments.extend(asked.by_ref().take(fit).map(Asked::assignment));
        for asked in asked {
            let pod = &asked.pod.reference.name;
            cut.extend(
                asked
                    .probes
                    .iter()
                    .map(|probe| (key(probe), pod.clone(), limit)),
            );
        }
    }
    assignments.sort_by(|a, b| (&a.pod, &a.probe).cmp(&(&b.pod, &b.probe)));
    NodeProbeSpec { assignments }
}

impl<'a> Asked<'a> {
    pub fn new(
        probe: &'a CkbProbeEntry,
        spec: &'a ValidSpec,
        pod: &'a TargetPod,
        containers: Vec<Container>,
    ) -> Self {
        Self {
            probe,
            probes: vec![probe],
            spec,
            pod,
            containers,
            expires: probe.expires(),
        }
    }

    /// A younger one asks the same.
    pub fn join(&mut self, probe: &'a CkbProbeEntry) {
        self.probes.push(probe);
        let both = self.expires.zip(probe.expires());
        self.expires = both.map(|(before, expires)| before.max(expires));
    }

    /// What the entry takes of an order, in bytes, at least.
    pub fn weight(&self) -> usize {
        let reference = &self.probe.reference;
        let pod = &self.pod.reference;
        let names = [
            &reference.namespace,
            &reference.name,
            &pod.namespace,
            &pod.name,
        ];
        let containers = self.containers.iter().map(|container| &container.name);
        share::weight(self.spec.bytes, names.into_iter(), containers)
    }

    /// Whether the probe is measured now. A profile that waits is not, until something is not as usual for one of those that ask it.
    fn has(&self, probe: &Probe) -> bool {
        let captures = |asking: &&CkbProbeEntry| asking.captures(&probe.name);
        probe.capture().is_none() || self.probes.iter().any(captures)
    }

    pub fn assignment(self) -> Assignment {
        let spec = &self.spec.spec;
        let probes = spec.probes.iter().filter(|probe| self.has(probe)).cloned();
        let probes = probes.collect();
        Assignment {
            probe: self.probe.reference.clone(),
            asks: self.spec.asks.clone(),
            pod: self.pod.reference.clone(),
            containers: self.containers,
            executable: spec.target.executable.clone(),
            report_interval: spec.report_interval,
            overhead: spec.overhead.clone(),
            probes,
            traces: spec.traces.clone(),
            expires_at: self.expires.map(Time),
        }
    }
}
