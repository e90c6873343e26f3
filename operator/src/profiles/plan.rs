//! What to do about parts and profiles, as plain data.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ckb_probe_crds::{CkbProbeSpec, PartLabels, PodReference, ProbeReference, ProfileMode};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

mod crowded;
mod readers;
mod timely;
mod turns;

use crowded::crowded_out;
use readers::Readers;
use timely::is_timely;
use turns::{Due, Step, Turns};

use super::rows::PartEntry;
use crate::{
    desired::{Desired, View},
    world::{ObjectKey, World},
};

/// After the first part of a window has come, the others are waited for so long.
pub const GRACE: SignedDuration = SignedDuration::from_secs(30);
/// No part waits longer.
pub const OLDEST: SignedDuration = SignedDuration::from_secs(600);

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

/// What windows follow each other in: one mode of one probe of a CkbProbe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Series {
    probe: ObjectKey,
    name: String,
    mode: ProfileMode,
}

impl Publish {
    fn series(&self) -> Series {
        Series {
            probe: ObjectKey::new(&self.probe.namespace, &self.probe.name),
            name: self.name.clone(),
            mode: self.mode,
        }
    }

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
    /// There can be no window of that number by now.
    Untimely,
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
    turns: Turns,
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

    /// What is to be done: parts that are of no use go, and each namespace in turn has a window published or its oldest profiles
    /// deleted. Of a series that has more profiles than it keeps, those go as soon as the next window is there, so that there are
    /// never many more of them, however much is to be published.
    pub fn plan(&mut self, view: View<'_>, desired: &Desired) -> Plan {
        let View { world, limits, now } = view;
        let mut plan = Plan::default();
        let mut readers = Readers::new(view, desired);
        let mut groups: BTreeMap<Group, (ProbeReference, Found<'_>)> = BTreeMap::new();
        let mut known = std::mem::take(&mut self.parts);
        for row in world.shelf().parts() {
            let id = PartId::of(row);
            let mut part = known.remove(&id).unwrap_or_default();
            match judge(row, &mut part, &mut readers, world, now) {
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
        let due = self.due(groups, &readers, now, &mut plan);
        self.failed
            .retain(|_, (_, at)| *at + OLDEST > now && *at < now + OLDEST);
        let mut crowded = crowded_out(world, limits.profile_bytes_per_namespace);
        let mut waiting: BTreeMap<String, VecDeque<Step>> = BTreeMap::new();
        for (namespace, due) in due {
            for (series, job) in self.turns.of_nodes(&namespace, due) {
                let mut step = Step::from([ProfileAction::Publish(job)]);
                step.extend(crowded.remove(&series).into_iter().flatten());
                waiting
                    .entry(namespace.clone())
                    .or_default()
                    .push_back(step);
            }
        }
        // These make room, and take little time.
        for (series, step) in crowded {
            let steps = waiting.entry(series.probe.namespace).or_default();
            steps.push_front(step);
        }
        let steps = self.turns.of_namespaces(waiting);
        plan.jobs.extend(steps.into_iter().flatten());
        let nodes = world.shelf().parts().filter_map(|row| row.node.as_deref());
        let nodes: BTreeSet<&str> = nodes.collect();
        self.turns.retain(|node| nodes.contains(node));
        plan
    }

    /// What is to be published by now, by namespace.
    fn due(
        &self,
        groups: BTreeMap<Group, (ProbeReference, Found<'_>)>,
        readers: &Readers<'_>,
        now: Timestamp,
        plan: &mut Plan,
    ) -> BTreeMap<String, Vec<Due>> {
        let mut all: BTreeMap<String, Vec<Due>> = BTreeMap::new();
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
            let failed = self.failed.get(&self::key(&job)).map(|(_, at)| *at);
            let due = match failed.is_some_and(|at| at > now) || first + GRACE <= now {
                true => first,
                false if readers.complete(&key, &job) => first,
                false => first + GRACE,
            };
            let due = failed.map_or(due, |at| due.max(at));
            if due > now {
                plan.ask_at(due);
                continue;
            }
            let namespace = all.entry(key.namespace).or_default();
            namespace.push(Due { job, first });
        }
        all
    }
}

fn judge(
    row: &PartEntry,
    known: &mut Known,
    readers: &mut Readers<'_>,
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
        (known.pod, known.readers) = readers.of(node, about).unwrap_or_default();
        let is_timely = |reader: &ProbeReference| {
            let probe = world.probe(&ObjectKey::new(&reader.namespace, &reader.name));
            let spec = probe.and_then(|row| row.spec.as_ref().ok());
            spec.is_some_and(|spec| is_timely(&spec.spec, about, row.written))
        };
        if !known.readers.is_empty() && !known.readers.iter().any(is_timely) {
            known.readers.clear();
            return Judgement::Drop(Why::Untimely);
        }
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

fn has(spec: &CkbProbeSpec, probe: &str) -> bool {
    spec.probes.iter().any(|one| one.name == probe)
}

#[cfg(test)]
mod tests;
