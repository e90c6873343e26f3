//! One program of the node, and all that have anything counted or told by it.
//!
//! What tasks belong to a target by is a **group**: several who ask may have the same, as two processes of one pod do. The
//! kernel counts for the group, while the subscription of any of them is open.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_common::counts::{
    CountKey, MAX_BUCKETS, MAX_TARGETS, OTHER_ROW, SUMS, Sums, TargetEntry, TargetKey, TargetTally,
    space,
};
use ckb_probe_crds::Name;

use crate::{
    kernel::{
        AttachError, Identity, Links, ReadError,
        counts::{CountProgram, Counter, SeenEvent, Tallied},
    },
    mechanism::shared::{Losses, NodeEvent, NodeProgram, Spent},
    share,
};

/// What a run takes that a program does not see of it: the kernel's way to it and back, and half of each reading of the clock.
const UNSEEN_NS: u64 = 60;

/// So often what was counted is read again, at most, where new rows came by meanwhile.
const READINGS: u32 = 8;

/// A loaded program, and whom it counts for.
pub struct Groups {
    // Declared first: links go before the maps that their programs write to.
    links: Option<Links>,
    counter: Counter,
    targets: BTreeMap<TargetKey, TrackedTarget>,
    /// The number of the newest target.
    newest: u32,
}

/// What tasks belong to a target by.
struct TrackedTarget {
    entry: TargetEntry,
    /// All keys, when there were so many.
    keys: Vec<CountKey>,
    known: u32,
    /// Of the pod that it is, or is in.
    namespace: String,
    /// Whether the kernel knows of it.
    is_open: bool,
    /// Whose it is, where that is by a process's number.
    process: Identity,
}

/// What belongs to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// By what tasks do.
    pub target: TargetKey,
    /// The pid namespace of those that do not; 0 for none.
    pub outside: u32,
}

/// One that asks.
pub struct Asker {
    target: TargetKey,
    process: Identity,
    wants: u32,
    /// What had been counted as it was opened; None while it is not.
    before: Option<Tallied>,
    /// What was counted while it was open before.
    gathered: Tallied,
}

impl Groups {
    /// Loads a program.
    pub fn load(program: &CountProgram) -> Result<Self, AttachError> {
        Ok(Self {
            links: None,
            counter: Counter::load(program)?,
            targets: BTreeMap::new(),
            newest: 0,
        })
    }

    /// Takes in one who asks about a process, and about what belongs to this.
    pub fn enroll(
        &mut self,
        Scope { target, outside }: Scope,
        process: Identity,
        namespace: &str,
        wants: u32,
    ) -> Result<Asker, AttachError> {
        if !self.targets.contains_key(&target) {
            if !share::may_take_one(self.namespaces(), namespace, MAX_TARGETS as usize) {
                return Err(AttachError::NoRoom(
                    "a node counts for 256 pods, of which one namespace has no more than it leaves to others",
                ));
            }
            let taken: BTreeSet<u32> = self.targets.values().map(|one| one.entry.slot).collect();
            let slot = (0..MAX_TARGETS)
                .find(|slot| !taken.contains(slot))
                .ok_or(AttachError::NoRoom("as many targets as there can be"))?;
            self.newest += 1;
            let entry = TargetEntry {
                id: self.newest,
                slot,
                wants: 0,
                outside,
                most_buckets: 0,
                payer: share::number_of(self.payers(), namespace),
            };
            self.counter.prepare(entry)?;
            let known = TrackedTarget {
                entry,
                keys: Vec::new(),
                known: u32::MAX,
                namespace: namespace.to_string(),
                is_open: false,
                process,
            };
            self.targets.insert(target, known);
            if let Err(error) = self.share_buckets() {
                self.targets.remove(&target);
                return Err(error.into());
            }
        }
        Ok(Asker {
            target,
            process,
            wants,
            before: None,
            gathered: Tallied::new(),
        })
    }

    fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.payers().map(|(namespace, _)| namespace)
    }

    /// Namespaces, with their numbers for their shares of the ring.
    fn payers(&self) -> impl Iterator<Item = (&str, u32)> + Clone {
        let targets = self.targets.values();
        targets.map(|one| (one.namespace.as_str(), one.entry.payer))
    }

    /// Has the namespaces share the buckets, and each of them its targets. What has one keeps it.
    fn share_buckets(&mut self) -> Result<(), ReadError> {
        let most = MAX_BUCKETS as usize;
        let namespaces: Vec<String> = self.namespaces().map(str::to_string).collect();
        let shares = share::of_each(namespaces.iter().map(String::as_str), most, most);
        for (key, target) in &mut self.targets {
            let share = shares.get(target.namespace.as_str());
            target.entry.most_buckets = share.copied().unwrap_or_default() as u32;
            if target.is_open {
                self.counter.open(*key, target.process, target.entry)?;
            }
        }
        Ok(())
    }

    /// What was counted for one, and how many names have no row of their own and are in that of the others, as far as anything was
    /// counted there for it.
    pub fn read(&mut self, asker: &Asker) -> Result<(Tallied, u64), ReadError> {
        let counted = self.counted(asker.target)?;
        let mut all = asker.gathered.clone();
        if let Some(before) = &asker.before {
            add(&mut all, since_then(counted, before));
        }
        let others = all.get(&(OTHER_ROW, 0));
        let folded = match self.targets.get(&asker.target) {
            Some(target) if others.is_some_and(|sums| *sums != [0; SUMS]) => {
                self.counter.folded(target.entry.slot)?.into()
            }
            _ => 0,
        };
        Ok((all, folded))
    }

    /// Tells the kernel of a group that these are open, of all groups. Who looks for targets in a space that has none finds none.
    fn admit<'a>(
        &mut self,
        target: TargetKey,
        open: impl Iterator<Item = &'a Asker>,
    ) -> Result<(), ReadError> {
        let (mut spaces, mut wants) = (0, None);
        let mut process = None;
        for asker in open {
            spaces |= asker.target.space;
            if asker.target == target {
                wants = Some(wants.unwrap_or_default() | asker.wants);
                process = Some(asker.process);
            }
        }
        self.counter.set_spaces(spaces)?;
        match (self.targets.get_mut(&target), wants.zip(process)) {
            (Some(known), Some((wants, process))) => {
                known.entry.wants = wants;
                known.is_open = true;
                known.process = process;
                self.counter.open(target, process, known.entry)
            }
            (known, _) => {
                if let Some(known) = known {
                    known.is_open = false;
                }
                self.counter.close(target)
            }
        }
    }

    /// What the kernel has counted for a group.
    fn counted(&mut self, target: TargetKey) -> Result<Tallied, ReadError> {
        let Some(target) = self.targets.get_mut(&target) else {
            return Ok(Tallied::new());
        };
        let mut counted = Tallied::new();
        for _ in 0..READINGS {
            let known = self.counter.keys(target.entry.slot)?;
            if known != target.known {
                target.keys = self.counter.known(target.entry.id)?;
                target.known = known;
            }
            counted = self.counter.read(&target.keys)?;
            // A bucket that came by meanwhile has a value that a sum has already.
            if self.counter.keys(target.entry.slot)? == known {
                break;
            }
        }
        Ok(counted)
    }

    fn tally(&self, target: TargetKey) -> Result<TargetTally, ReadError> {
        match self.targets.get(&target) {
            Some(target) => self.counter.tally(target.entry.slot),
            None => Ok(TargetTally::default()),
        }
    }
}

/// A process that somebody asks about: what is told of it finds room where nothing else does any more.
fn asked(process: Identity) -> TargetKey {
    TargetKey {
        space: space::ASKED,
        number: process.number,
    }
}

impl NodeProgram for Groups {
    type Subscriber = Asker;
    type Key = TargetKey;
    type Event = SeenEvent;

    const MAX_WAITING: usize = 1 << 14;
    const EVENTS_LOST: &'static str = "events";
    const SETTLE_NS: u64 = 40_000_000;

    fn key(asker: &Asker) -> TargetKey {
        asker.target
    }

    fn attach(&mut self) -> Result<(), AttachError> {
        self.links = Some(self.counter.attach()?);
        Ok(())
    }

    fn detach(&mut self) -> Option<Links> {
        self.links.take()
    }

    fn open(&mut self, asker: &mut Asker, others: &[&Asker]) -> Result<(), AttachError> {
        asker.before = Some(self.counted(asker.target)?);
        self.counter
            .open(asked(asker.process), asker.process, TargetEntry::default())?;
        let open = others.iter().copied().chain([&*asker]);
        Ok(self.admit(asker.target, open)?)
    }

    fn close(&mut self, asker: &mut Asker, others: &[&Asker]) -> Result<(), ReadError> {
        let before = asker.before.take();
        if !others
            .iter()
            .any(|other| other.process.number == asker.process.number)
        {
            self.counter.close(asked(asker.process))?;
        }
        self.admit(asker.target, others.iter().copied())?;
        let counted = self.counted(asker.target)?;
        if let Some(before) = before {
            add(&mut asker.gathered, since_then(counted, &before));
        }
        Ok(())
    }

    fn forget(&mut self, asker: Asker, others: &[&Asker]) -> Result<(), ReadError> {
        if others.iter().any(|other| other.target == asker.target) {
            return Ok(());
        }
        let target = self.targets.remove(&asker.target);
        let shared = self.share_buckets();
        let forgotten = target.map_or(Ok(()), |target| self.counter.forget(target.entry.id));
        forgotten.and(shared)
    }

    /// Nanoseconds: of each group on its behalf, and of those to find out that a task is nobody's.
    fn costs(&self) -> Result<Spent<TargetKey>, ReadError> {
        let nobody = self.counter.misses()?;
        let mut costs = vec![(None, nobody.time_ns + nobody.runs * UNSEEN_NS)];
        for (key, target) in &self.targets {
            let tally = self.counter.tally(target.entry.slot)?;
            costs.push((Some(*key), tally.time_ns + tally.runs * UNSEEN_NS));
        }
        Ok(costs)
    }

    fn lost(&mut self, asker: &Asker) -> Result<Losses, ReadError> {
        let tally = self.tally(asker.target)?;
        let counts = [
            ("counts", tally.counts_lost),
            (Self::EVENTS_LOST, tally.events_lost),
        ];
        Ok(counts
            .map(|(what, count)| (Name::Borrowed(what), count))
            .into())
    }

    fn drain(&mut self) -> Vec<NodeEvent<TargetKey, SeenEvent>> {
        let targets = self.targets.iter();
        let keys: BTreeMap<u32, TargetKey> = targets
            .map(|(key, target)| (target.entry.id, *key))
            .collect();
        let mut told = Vec::new();
        for seen in self.counter.events() {
            let Some(key) = keys.get(&seen.event.target) else {
                continue;
            };
            told.push(NodeEvent {
                key: Some(*key),
                time_ns: seen.event.time_ns,
                event: seen,
            });
        }
        told
    }
}

/// What was counted since then.
fn since_then(mut counted: Tallied, before: &Tallied) -> Tallied {
    for (key, sums) in &mut counted {
        for (sum, before) in sums.iter_mut().zip(before.get(key).unwrap_or(&NOTHING)) {
            *sum = sum.saturating_sub(*before);
        }
    }
    counted
}

const NOTHING: Sums = [0; SUMS];

fn add(to: &mut Tallied, more: Tallied) {
    for (key, sums) in more {
        let held = to.entry(key).or_insert(NOTHING);
        for (held, more) in held.iter_mut().zip(sums) {
            *held += more;
        }
    }
}
