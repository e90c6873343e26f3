//! For whom parts are: the CkbProbes that are measured and that ask what a part answers.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_crds::{PartLabels, PodReference, ProbeReference};

use super::{GRACE, Publish, has};
use crate::{
    desired::{Desired, View, active, age, containers},
    world::{CkbProbeEntry, ObjectKey, Row as _, TargetPod, ValidSpec},
};

/// Who is measured, looked up once a plan: what it takes to find the readers of a part depends neither on how many CkbProbes are
/// paused, expired or beyond a limit, nor on how often a node's order is asked for.
pub struct Readers<'a> {
    view: View<'a>,
    desired: &'a Desired,
    /// CkbProbes by namespace and by what they ask, the oldest first.
    asking: BTreeMap<(&'a str, &'a str), Vec<Asking<'a>>>,
    /// What is named in the orders and reports of the nodes that were asked for.
    named: BTreeMap<String, Vec<Named>>,
}

/// A CkbProbe and its spec.
type Asking<'a> = (&'a CkbProbeEntry, &'a ValidSpec);

/// A CkbProbe on a pod, as an order or a report names them.
struct Named {
    probe: ObjectKey,
    pod: PodReference,
    asks: String,
}

impl<'a> Readers<'a> {
    pub fn new(view: View<'a>, desired: &'a Desired) -> Self {
        let mut asking: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for probe in view.world.probes() {
            // The last window of one that has just expired, or was paused, is still on its way.
            let paused = view.world.was_paused_lately(probe, view.now) && !probe.deleting;
            let paused = probe.spec.as_ref().ok().filter(|_| paused);
            if let Some(spec) = active(probe, view.now - GRACE).or(paused) {
                let key = (&*probe.reference.namespace, &*spec.asks);
                asking.entry(key).or_default().push((probe, spec));
            }
        }
        for probes in asking.values_mut() {
            // What is over is in nobody's way, and so comes last.
            let over = |probe: &CkbProbeEntry| probe.expired(view.now) || probe.is_paused();
            probes.sort_by_key(|(probe, _)| (over(probe), age(probe)));
        }
        Self {
            view,
            desired,
            asking,
            named: BTreeMap::new(),
        }
    }

    /// The pod, and the CkbProbes that have this measured of it. A part is only about what its own node has: a pod that runs
    /// there, or, where that is gone already, one that its agent was told to measure.
    pub fn of(
        &mut self,
        node: &str,
        about: &PartLabels,
    ) -> Option<(PodReference, Vec<ProbeReference>)> {
        let mut running = self.view.world.pods_on(node);
        if let Some(pod) = running.find(|pod| pod.reference.uid == about.pod) {
            let labels = pod.labels.map();
            let asking = self.asking(&pod.reference.namespace, about);
            let admitted = asking.iter().filter(|(probe, spec)| {
                has(&spec.spec, &about.probe)
                    && self.desired.admits(&probe.key(), &pod.reference.name)
                    && spec.matches(&labels)
            });
            // As many as the pod can have been measured for, whoever has just expired.
            let most = self.view.limits.ckb_probes_per_target;
            let readers = admitted.take(most);
            let readers = readers.map(|(probe, _)| probe.reference.clone()).collect();
            return Some((pod.reference.clone(), readers));
        }
        let mut named = self.named(node).iter();
        let Named { probe, pod, .. } =
            named.find(|one| one.pod.uid == about.pod && one.asks == about.asks)?;
        // A pod and its CkbProbe are of one namespace, whatever an agent says of them.
        if pod.namespace != probe.namespace {
            return None;
        }
        let (probe, pod) = (probe.clone(), pod.clone());
        let asking = self.asking(&probe.namespace, about);
        let (row, _) = asking.iter().find(|(row, spec)| {
            row.reference.name == probe.name
                && has(&spec.spec, &about.probe)
                && self.desired.admits(&probe, &pod.name)
        })?;
        Some((pod, vec![row.reference.clone()]))
    }

    /// Whether a part of each pod that is measured for this CkbProbe is there.
    pub fn complete(&self, key: &ObjectKey, job: &Publish) -> bool {
        let world = self.view.world;
        let Some(Ok(spec)) = world.probe(key).map(|row| row.spec.as_ref()) else {
            return true;
        };
        if spec.asks != job.asks {
            return true;
        }
        let come: BTreeSet<&str> = job.parts.iter().map(|part| &*part.pod.uid).collect();
        let measured = |pod: &&TargetPod| {
            let node = pod.node.as_deref().and_then(|node| world.node(node));
            node.is_some()
                && self.desired.admits(key, &pod.reference.name)
                && !containers(spec, pod).is_empty()
        };
        world
            .selected(&key.namespace, spec)
            .filter(measured)
            .all(|pod| come.contains(&*pod.reference.uid))
    }

    fn asking<'b>(&'b self, namespace: &'b str, about: &'b PartLabels) -> &'b [Asking<'a>] {
        let asking = self.asking.get(&(namespace, &*about.asks));
        asking.map(Vec::as_slice).unwrap_or_default()
    }

    /// The order of a node takes a millisecond to open, and is opened once a plan.
    fn named(&mut self, node: &str) -> &[Named] {
        if !self.named.contains_key(node) {
            let row = self.view.world.node_probe(node);
            let order = row.and_then(|row| row.ordered());
            let ordered = order.iter().flat_map(|order| &order.assignments);
            let ordered = ordered.map(|one| (&one.probe, &one.pod, &one.asks));
            let status = row.and_then(|row| row.status.as_ref());
            let reported = status.iter().flat_map(|status| &status.instances);
            let reported = reported.map(|one| (&one.probe, &one.pod, &one.asks));
            let named = ordered.chain(reported).map(|(probe, pod, asks)| Named {
                probe: ObjectKey::new(&probe.namespace, &probe.name),
                pod: pod.clone(),
                asks: asks.clone(),
            });
            self.named.insert(node.to_owned(), named.collect());
        }
        self.named.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// CkbProbes that may be readers, and orders that were opened.
    #[cfg(test)]
    pub fn work(&self) -> (usize, usize) {
        (self.asking.values().map(Vec::len).sum(), self.named.len())
    }
}
