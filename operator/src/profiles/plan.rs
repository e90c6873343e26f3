//! What to do about parts and profiles, as plain data.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use ckb_probe_crds::{CkbProbeSpec, PartLabels, PodReference, ProbeReference, ProfileMode};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::rows::{PartEntry, ProfileEntry};
use crate::world::{CkbProbeEntry, ObjectKey, Row, World};

/// After the first part of a window has come, the others are waited for so long.
pub const GRACE: SignedDuration = SignedDuration::from_secs(30);
/// No part waits longer.
pub const OLDEST: SignedDuration = SignedDuration::from_secs(600);
/// Profiles of each mode that are kept where the probe does not say how many: those of slow calls.
const KEEP: usize = 5;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileAction {
    /// Merge parts into a profile, new or published already.
    Publish(Publish),
    /// Delete a part.
    Drop {
        /// The part to delete.
        part: PartId,
        /// Why the part is deleted.
        why: Why,
    },
    /// Delete a profile that there is no room for.
    Remove {
        /// The profile to delete.
        key: ObjectKey,
        /// Lest a newer one be deleted.
        uid: String,
    },
}

/// A version of a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartId {
    /// The name of the ProfilePart.
    pub name: String,
    /// The uid of the ProfilePart.
    pub uid: String,
    /// Its resource version.
    pub version: String,
}

/// A profile to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// For whom: its owner.
    pub probe: ProbeReference,
    /// The word for what was asked.
    pub asks: String,
    /// The name of the probe.
    pub name: String,
    /// What stacks are weighted by.
    pub mode: ProfileMode,
    /// The window's number.
    pub window: u64,
    /// The parts that the profile is made of.
    pub parts: Vec<PartToMerge>,
}

/// A part to be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartToMerge {
    /// The ProfilePart that it is.
    pub id: PartId,
    /// The node whose agent wrote it.
    pub node: String,
    /// The pod: what the part itself says is not believed.
    pub pod: PodReference,
}

impl Publish {
    /// The name of the profile: the same each time. Names of CkbProbes and of probes have no dots, so no two share one, and it has
    /// at most 159 letters.
    pub fn object(&self) -> String {
        let mode = self.mode.as_str().to_lowercase();
        let Self { probe, name, .. } = self;
        format!("{}.{name}.{mode}.{}", probe.name, self.window)
    }
}

/// Why a part goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
pub enum Why {
    /// It is in the profiles of all that asked for it.
    Merged,
    /// Nobody asks for it, or its agent has no business with that pod.
    Unasked,
    /// It waited too long.
    TooOld,
    /// Its name or its labels mean nothing.
    Unreadable,
}

impl Why {
    /// The word for the metric's label `reason`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What is to be done now, and when to ask again even if nothing changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In this order.
    pub jobs: Vec<ProfileAction>,
    /// When to ask again, at the latest.
    pub next: Option<Timestamp>,
}

/// For whom parts are, and who has got them.
#[derive(Clone, Debug, Default)]
pub struct PublishPlanner {
    parts: BTreeMap<PartId, Known>,
    /// Profiles that could not be published: how often, and when it is tried again.
    failed: BTreeMap<ObjectKey, (u32, Timestamp)>,
}

/// What is known of a part. It stays known when its pod is gone meanwhile.
#[derive(Clone, Debug, Default)]
struct Known {
    pod: PodReference,
    readers: Vec<ProbeReference>,
    /// The uids of those that have it.
    served: BTreeSet<String>,
}

/// For whom, and of what.
type Group = (ObjectKey, PartLabels);

/// The parts of a group.
type Found<'a> = Vec<(&'a PartEntry, PodReference)>;

impl PublishPlanner {
    /// Begins anew, for nobody knows what was done meanwhile.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// These parts are in the profile, or in it already.
    pub fn published(&mut self, done: &Publish) {
        self.failed.remove(&key(done));
        for part in &done.parts {
            if let Some(known) = self.parts.get_mut(&part.id) {
                known.served.insert(done.probe.uid.clone());
            }
        }
    }

    /// It could not be published. Returns how long it waits.
    pub fn failed(&mut self, job: &Publish, now: Timestamp) -> SignedDuration {
        let (times, at) = self.failed.entry(key(job)).or_insert((0, now));
        *times += 1;
        let wait = SignedDuration::from_secs(1 << (*times).min(6));
        *at = now + wait;
        wait
    }

    /// What is to be done.
    pub fn plan(&mut self, world: &World, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let mut groups: BTreeMap<Group, (ProbeReference, Found<'_>)> = BTreeMap::new();
        let mut known = std::mem::take(&mut self.parts);
        for row in world.shelf().parts() {
            let id = PartId::of(row);
            let mut part = known.remove(&id).unwrap_or_default();
            match self.judge(row, &mut part, world, now) {
                Judgement::Drop(why) => plan.jobs.push(ProfileAction::Drop {
                    part: id.clone(),
                    why,
                }),
                Judgement::Wait(until) => plan.ask_at(until),
                Judgement::For(about, readers) => {
                    for reader in readers {
                        let key = ObjectKey::new(&reader.namespace, &reader.name);
                        // The pod is no part of what tells groups apart.
                        let about = PartLabels {
                            pod: String::new(),
                            ..about.clone()
                        };
                        let group = groups.entry((key, about));
                        let (_, parts) = group.or_insert_with(|| (reader, Vec::new()));
                        parts.push((row, part.pod.clone()));
                    }
                    // At the latest then.
                    plan.ask_at(row.seen + OLDEST);
                }
            }
            self.parts.insert(id, part);
        }
        plan.jobs.extend(crowded_out(world));
        let mut publish = Vec::new();
        for ((key, about), (probe, parts)) in groups {
            let Some(first) = parts.iter().map(|(row, _)| row.seen).min() else {
                continue;
            };
            let job = Publish {
                probe,
                asks: about.asks,
                name: about.probe,
                mode: about.mode,
                window: about.window,
                parts: parts.iter().map(|(row, pod)| part(row, pod)).collect(),
            };
            let due = if complete(world, &key, &job) {
                first
            } else {
                first + GRACE
            };
            let failed = self.failed.get(&self::key(&job)).map(|(_, at)| *at);
            let due = failed.map_or(due, |at| due.max(at));
            if due <= now {
                publish.push((first, job));
            } else {
                plan.ask_at(due);
            }
        }
        self.failed
            .retain(|_, (_, at)| *at + OLDEST > now && *at < now + OLDEST);
        // Who waits longest comes first: so nobody who sends without end keeps others waiting.
        publish.sort_by_key(|(first, _)| *first);
        let publish = publish
            .into_iter()
            .map(|(_, job)| ProfileAction::Publish(job));
        plan.jobs.extend(publish);
        plan
    }

    fn judge(
        &self,
        row: &PartEntry,
        known: &mut Known,
        world: &World,
        now: Timestamp,
    ) -> Judgement {
        let (Some(node), Some(about)) = (&row.node, &row.about) else {
            return Judgement::Drop(Why::Unreadable);
        };
        if row.seen + OLDEST <= now {
            return Judgement::Drop(Why::TooOld);
        }
        let unknown = known.readers.is_empty();
        if unknown {
            (known.pod, known.readers) = readers(world, node, about).unwrap_or_default();
        }
        let lives = |reader: &ProbeReference| {
            let row = world.probe(&ObjectKey::new(&reader.namespace, &reader.name));
            row.is_some_and(|row| row.reference.uid == reader.uid && !row.deleting)
        };
        let living = || known.readers.iter().filter(|reader| lives(reader));
        if living().next().is_none() {
            // The watches may be behind: an order, and so a part, may be known before the CkbProbe or the pod is.
            let until = row.seen + GRACE;
            return match known.readers.is_empty() && until > now {
                true => Judgement::Wait(until.min(now + SignedDuration::from_secs(2))),
                false => Judgement::Drop(Why::Unasked),
            };
        }
        let waiting = living().filter(|reader| !known.served.contains(&reader.uid));
        let waiting: Vec<_> = waiting.cloned().collect();
        match waiting.is_empty() {
            true => Judgement::Drop(Why::Merged),
            false => Judgement::For(about.clone(), waiting),
        }
    }
}

enum Judgement {
    Drop(Why),
    Wait(Timestamp),
    For(PartLabels, Vec<ProbeReference>),
}

impl Plan {
    fn ask_at(&mut self, at: Timestamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

impl PartId {
    /// Of a row.
    pub fn of(row: &PartEntry) -> Self {
        Self {
            name: row.name.clone(),
            uid: row.uid.clone(),
            version: row.version.clone(),
        }
    }
}

fn key(job: &Publish) -> ObjectKey {
    ObjectKey::new(&job.probe.namespace, job.object())
}

fn part(row: &PartEntry, pod: &PodReference) -> PartToMerge {
    PartToMerge {
        id: PartId::of(row),
        node: row.node.clone().unwrap_or_default(),
        pod: pod.clone(),
    }
}

/// The pod, and the CkbProbes that ask this of it. A part is only about what its own node has: a pod that runs there, or, where that
/// is gone already, one that its agent was told to measure.
fn readers(
    world: &World,
    node: &str,
    about: &PartLabels,
) -> Option<(PodReference, Vec<ProbeReference>)> {
    let asks = |probe: &&CkbProbeEntry| {
        let spec = probe.spec.as_ref();
        spec.is_ok_and(|spec| spec.asks == about.asks && has(&spec.spec, &about.probe))
    };
    let mut running = world.pods_on(node);
    if let Some(pod) = running.find(|pod| pod.reference.uid == about.pod) {
        let labels = pod.labels.map();
        let selects = |probe: &&CkbProbeEntry| {
            let spec = probe.spec.as_ref();
            spec.is_ok_and(|spec| spec.matches(&labels))
        };
        let probes = world.probes_in(&pod.reference.namespace);
        let probes = probes.filter(asks).filter(selects);
        let readers = probes.map(|probe| probe.reference.clone()).collect();
        return Some((pod.reference.clone(), readers));
    }
    let row = world.node_probe(node)?;
    let order = row.ordered();
    let ordered = order.iter().flat_map(|order| &order.assignments);
    let ordered = ordered.map(|one| (&one.probe, &one.pod, &one.asks));
    let reported = row.status.iter().flat_map(|status| &status.instances);
    let reported = reported.map(|one| (&one.probe, &one.pod, &one.asks));
    let mut named = ordered
        .chain(reported)
        .filter(|(_, pod, asked)| pod.uid == about.pod && **asked == about.asks);
    let (probe, pod, _) = named.next()?;
    let probe = world.probe(&ObjectKey::new(&probe.namespace, &probe.name))?;
    // A pod and its CkbProbe are of one namespace, whatever an agent says of them.
    let asked = asks(&probe) && pod.namespace == probe.reference.namespace;
    asked.then(|| (pod.clone(), vec![probe.reference.clone()]))
}

/// Whether a part of each pod that is measured for this CkbProbe is there.
fn complete(world: &World, key: &ObjectKey, job: &Publish) -> bool {
    let Some(Ok(spec)) = world.probe(key).map(|row| row.spec.as_ref()) else {
        return true;
    };
    let come: BTreeSet<&str> = job.parts.iter().map(|part| &*part.pod.uid).collect();
    world.selected(&key.namespace, spec).all(|pod| {
        let row = pod.node.as_deref().and_then(|node| world.node_probe(node));
        let order = row.and_then(|row| row.ordered());
        let mut assigned = order.iter().flat_map(|order| &order.assignments);
        let measured = assigned.any(|one| one.asks == job.asks && one.pod.uid == pod.reference.uid);
        !measured || come.contains(&*pod.reference.uid)
    })
}

/// The oldest profiles of those that have more than they keep.
fn crowded_out(world: &World) -> Vec<ProfileAction> {
    let owners: BTreeMap<&str, &CkbProbeEntry> = world
        .probes()
        .map(|probe| (&*probe.reference.uid, probe))
        .collect();
    let mut kept: BTreeMap<_, Vec<&ProfileEntry>> = BTreeMap::new();
    // What no CkbProbe owns is none of ours, or goes with the one that did.
    for row in world.shelf().profiles().filter(|row| !row.deleting) {
        let owner = row.owner.as_deref().and_then(|uid| owners.get(uid));
        if let Some((owner, mode)) = owner.copied().zip(row.mode)
            && owner.reference.namespace == row.key.namespace
        {
            let series = kept.entry((owner.key(), &*row.probe, mode));
            series.or_default().push(row);
        }
    }
    let mut jobs = Vec::new();
    for ((owner, probe, _), mut rows) in kept {
        let spec = world.probe(&owner).and_then(|row| row.spec.as_ref().ok());
        let Some(keep) = spec.map(|spec| keep(&spec.spec, probe)) else {
            continue;
        };
        // By the API server's clock: where `every` has become another, numbers begin anew.
        rows.sort_by_key(|row| Reverse((row.created, row.window)));
        jobs.extend(
            rows.into_iter()
                .skip(keep)
                .map(|row| ProfileAction::Remove {
                    key: row.key.clone(),
                    uid: row.uid.clone(),
                }),
        );
    }
    jobs
}

fn has(spec: &CkbProbeSpec, probe: &str) -> bool {
    spec.probes.iter().any(|one| one.name == probe)
}

/// How many profiles of each mode a probe keeps.
fn keep(spec: &CkbProbeSpec, probe: &str) -> usize {
    let mut named = spec.probes.iter().filter(|one| one.name == probe);
    let asked = named
        .next()
        .and_then(|one| Some(one.profile.as_ref()?.keep));
    asked
        .and_then(|keep| usize::try_from(keep).ok())
        .unwrap_or(KEEP)
}

#[cfg(test)]
mod tests;
