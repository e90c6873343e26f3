//! One program of the node, and all that have anything counted or told by it.
//!
//! What tasks belong to a target by is a **group**: several who ask may have the same, as two processes of one pod do. The
//! kernel counts for the group, while the gate of any of them is open; who was let in when is kept here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ckb_probe_common::counts::{
    CountKey, MAX_TARGETS, OTHER_ROW, SUMS, Sums, TargetEntry, TargetKey, space,
};

use crate::{
    kernel::{
        AttachError, Links, ReadError,
        counts::{CountProgram, Counter, SeenEvent, Tallied},
    },
    observe,
};

/// Between two looks at what counting costs: whoever asks sooner is told what is known.
const SETTLE_NS: u64 = 40_000_000;

/// What a run takes that a program does not see of it: the kernel's way to it and back, and half of each reading of the clock.
const UNSEEN_NS: u64 = 60;

/// So often what was counted is read again, at most, where new rows came by meanwhile.
const READINGS: u32 = 8;

/// Events that wait for one who asked, at most.
const MOST_EVENTS: usize = 1 << 14;

/// Who has something counted.
pub type Asker = u64;

/// A loaded program. It is attached while any gate is open.
pub struct Shared {
    counter: Counter,
    links: Option<Links>,
    groups: BTreeMap<TargetKey, Group>,
    askers: BTreeMap<Asker, Asking>,
    last_target: u32,
    last_asker: Asker,
    settled_ns: u64,
    misses_ns: u64,
}

/// What tasks belong to a target by.
struct Group {
    entry: TargetEntry,
    /// All keys, when there were so many.
    keys: Vec<CountKey>,
    known: u32,
    /// What was shared out of its time.
    settled_ns: u64,
}

/// One that asks.
struct Asking {
    group: TargetKey,
    process: u32,
    wants: u32,
    /// Since when, and what had been counted by then.
    open: Option<(u64, Tallied)>,
    /// What was counted while it was open before.
    gathered: Tallied,
    /// What it is charged with.
    charged_ns: f64,
    events: VecDeque<SeenEvent>,
    events_dropped: u64,
    lost_before: Missed,
}

/// What could not be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// In no figure.
    pub counts: u64,
    /// Counted, and not told.
    pub events: u64,
}

impl Shared {
    /// Loads a program.
    pub fn load(program: &CountProgram) -> Result<Self, AttachError> {
        Ok(Self {
            counter: Counter::load(program)?,
            links: None,
            groups: BTreeMap::new(),
            askers: BTreeMap::new(),
            last_target: 0,
            last_asker: 0,
            settled_ns: 0,
            misses_ns: 0,
        })
    }

    /// Takes in one who asks about a process, and about what belongs to this. Its gate is shut.
    pub fn enroll(
        &mut self,
        group: TargetKey,
        process: u32,
        wants: u32,
    ) -> Result<Asker, AttachError> {
        if !self.groups.contains_key(&group) {
            let taken: BTreeSet<u32> = self.groups.values().map(|one| one.entry.slot).collect();
            let slot = (0..MAX_TARGETS)
                .find(|slot| !taken.contains(slot))
                .ok_or(AttachError::NoRoom("as many targets as there can be"))?;
            self.last_target += 1;
            let entry = TargetEntry {
                id: self.last_target,
                slot,
                wants: 0,
                padding: 0,
            };
            self.counter.prepare(entry)?;
            let settled_ns = cost_ns(self.counter.tally(slot)?);
            self.groups.insert(
                group,
                Group {
                    entry,
                    keys: Vec::new(),
                    known: u32::MAX,
                    settled_ns,
                },
            );
        }
        let lost_before = self.missed(group)?;
        self.last_asker += 1;
        self.askers.insert(
            self.last_asker,
            Asking {
                group,
                process,
                wants,
                open: None,
                gathered: Tallied::new(),
                charged_ns: 0.0,
                events: VecDeque::new(),
                events_dropped: 0,
                lost_before,
            },
        );
        Ok(self.last_asker)
    }

    /// Counts for this one from now on.
    pub fn open(&mut self, asker: Asker) -> Result<(), AttachError> {
        let Some(group) = self.askers.get(&asker).map(|asking| asking.group) else {
            return Ok(());
        };
        self.settle(true)?;
        self.hand_out();
        let counted = self.counted(group)?;
        if self.links.is_none() {
            self.links = Some(self.counter.attach()?);
            self.misses_ns = cost_of_misses_ns(&self.counter)?;
        }
        if let Some(asking) = self.askers.get_mut(&asker)
            && asking.open.is_none()
        {
            asking.open = Some((observe::monotonic().as_nanos() as u64, counted));
        }
        Ok(self.admit(group)?)
    }

    /// Counts for it no more. The links, if that was the last.
    pub fn close(&mut self, asker: Asker) -> Result<Option<Links>, ReadError> {
        let Some(group) = self.askers.get(&asker).map(|asking| asking.group) else {
            return Ok(None);
        };
        self.settle(true)?;
        let shut = |asking: &mut Asking| asking.open.take();
        let Some((since, before)) = self.askers.get_mut(&asker).and_then(shut) else {
            return Ok(None);
        };
        self.admit(group)?;
        let counted = self.counted(group)?;
        if let Some(asking) = self.askers.get_mut(&asker) {
            add(&mut asking.gathered, since_then(counted, &before));
            asking.open = Some((since, Tallied::new()));
        }
        // What was told up to now is still its own.
        self.hand_out();
        if let Some(asking) = self.askers.get_mut(&asker) {
            asking.open = None;
        }
        let any = self.askers.values().any(|asking| asking.open.is_some());
        Ok(if any { None } else { self.links.take() })
    }

    /// It asks no more. The links, if that was the last.
    pub fn leave(&mut self, asker: Asker) -> Result<Option<Links>, ReadError> {
        let links = self.close(asker);
        let Some(asking) = self.askers.remove(&asker) else {
            return links;
        };
        let group = asking.group;
        if !self.askers.values().any(|asking| asking.group == group)
            && let Some(group) = self.groups.remove(&group)
        {
            self.counter.forget(group.entry.id)?;
        }
        links
    }

    /// How many names have no row of their own and are in that of the others, as far as anything was counted there for it.
    pub fn folded(&self, asker: Asker, tallied: &Tallied) -> Result<u64, ReadError> {
        let others = tallied.get(&(OTHER_ROW, 0));
        let group = self.askers.get(&asker).map(|asking| asking.group);
        match group.and_then(|group| self.groups.get(&group)) {
            Some(group) if others.is_some_and(|sums| *sums != [0; SUMS]) => {
                Ok(self.counter.folded(group.entry.slot)?.into())
            }
            _ => Ok(0),
        }
    }

    /// What was counted for it, and what could not be.
    pub fn read(&mut self, asker: Asker) -> Result<(Tallied, Missed), ReadError> {
        let Some(group) = self.askers.get(&asker).map(|asking| asking.group) else {
            return Ok(Default::default());
        };
        let counted = self.counted(group)?;
        let missed = self.missed(group)?;
        self.hand_out();
        let Some(asking) = self.askers.get(&asker) else {
            return Ok(Default::default());
        };
        let mut all = asking.gathered.clone();
        if let Some((_, before)) = &asking.open {
            add(&mut all, since_then(counted, before));
        }
        let missed = Missed {
            counts: missed.counts - asking.lost_before.counts,
            events: missed.events - asking.lost_before.events + asking.events_dropped,
        };
        Ok((all, missed))
    }

    /// Takes what was told for it.
    pub fn events(&mut self, asker: Asker) -> Vec<SeenEvent> {
        self.hand_out();
        let asking = self.askers.get_mut(&asker);
        asking.map_or_else(Vec::new, |asking| {
            std::mem::take(&mut asking.events).into_iter().collect()
        })
    }

    /// Nanoseconds that it is charged with: those that were spent for what belongs to it, and its part of those that were spent
    /// to find out that nothing belongs to anybody.
    pub fn charged_ns(&mut self, asker: Asker) -> Result<u64, ReadError> {
        self.settle(false)?;
        // The ring is small, and this is asked for often.
        self.hand_out();
        let asking = self.askers.get(&asker);
        Ok(asking.map_or(0, |asking| asking.charged_ns as u64))
    }

    /// Tells the kernel who is measured.
    fn admit(&mut self, group: TargetKey) -> Result<(), ReadError> {
        let of_group = self.askers.values().filter(|asking| asking.group == group);
        let mut open = of_group.filter(|asking| asking.open.is_some()).peekable();
        let is_open = open.peek().is_some();
        let wants = open.fold(0, |wants, asking| wants | asking.wants);
        let mut processes: BTreeSet<u32> = BTreeSet::new();
        let mut spaces = 0;
        for asking in self.askers.values().filter(|asking| asking.open.is_some()) {
            spaces |= asking.group.space;
            processes.insert(asking.process);
        }
        // Who looks for targets in a space that has none finds none.
        self.counter.set_spaces(spaces)?;
        for asking in self.askers.values().filter(|asking| asking.group == group) {
            let asked = TargetKey {
                space: space::ASKED,
                number: asking.process,
            };
            if processes.contains(&asking.process) {
                self.counter.open(asked, TargetEntry::default())?;
            } else {
                self.counter.close(asked)?;
            }
        }
        match self.groups.get_mut(&group) {
            Some(known) if is_open => {
                known.entry.wants = wants;
                self.counter.open(group, known.entry)
            }
            _ => self.counter.close(group),
        }
    }

    /// What the kernel has counted for a group.
    fn counted(&mut self, group: TargetKey) -> Result<Tallied, ReadError> {
        let Some(group) = self.groups.get_mut(&group) else {
            return Ok(Tallied::new());
        };
        let mut counted = Tallied::new();
        for _ in 0..READINGS {
            let known = self.counter.keys(group.entry.slot)?;
            if known != group.known {
                group.keys = self.counter.known(group.entry.id)?;
                group.known = known;
            }
            counted = self.counter.read(&group.keys)?;
            // A bucket that came by meanwhile has a value that a sum has already.
            if self.counter.keys(group.entry.slot)? == known {
                break;
            }
        }
        Ok(counted)
    }

    fn missed(&self, group: TargetKey) -> Result<Missed, ReadError> {
        let Some(group) = self.groups.get(&group) else {
            return Ok(Missed::default());
        };
        let tally = self.counter.tally(group.entry.slot)?;
        Ok(Missed {
            counts: tally.counts_lost,
            events: tally.events_lost,
        })
    }

    /// Gives everybody what was told for them.
    fn hand_out(&mut self) {
        while let Some(seen) = self.counter.next_event() {
            let told = |group: &Group| group.entry.id == seen.event.target;
            let Some((key, _)) = self.groups.iter().find(|(_, group)| told(group)) else {
                continue;
            };
            for asking in self.askers.values_mut().filter(|one| one.group == *key) {
                let open = asking.open.as_ref();
                if open.is_none_or(|(since, _)| *since > seen.event.time_ns) {
                    continue;
                }
                if asking.events.len() < MOST_EVENTS {
                    asking.events.push_back(seen.clone());
                } else {
                    asking.events_dropped += 1;
                }
            }
        }
    }

    /// Shares out what it has cost since the last time: of a group among those that it was counted for, of what was nobody's
    /// among all.
    fn settle(&mut self, now: bool) -> Result<(), ReadError> {
        let time = observe::monotonic().as_nanos() as u64;
        if self.links.is_none() || (!now && time - self.settled_ns < SETTLE_NS) {
            return Ok(());
        }
        self.settled_ns = time;
        let misses = cost_of_misses_ns(&self.counter)?;
        let missed = misses.saturating_sub(std::mem::replace(&mut self.misses_ns, misses));
        let all = self
            .askers
            .values()
            .filter(|one| one.open.is_some())
            .count();
        for (key, group) in &mut self.groups {
            let spent = cost_ns(self.counter.tally(group.entry.slot)?);
            let spent = spent.saturating_sub(std::mem::replace(&mut group.settled_ns, spent));
            let open = |asking: &&mut Asking| asking.open.is_some() && asking.group == *key;
            let sharing = self.askers.values_mut().filter(open).count();
            for asking in self.askers.values_mut().filter(open) {
                asking.charged_ns += spent as f64 / sharing as f64 + missed as f64 / all as f64;
            }
        }
        Ok(())
    }
}

fn cost_ns(tally: ckb_probe_common::counts::TargetTally) -> u64 {
    tally.time_ns + tally.runs * UNSEEN_NS
}

fn cost_of_misses_ns(counter: &Counter) -> Result<u64, ReadError> {
    let misses = counter.misses()?;
    Ok(misses.time_ns + misses.runs * UNSEEN_NS)
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
