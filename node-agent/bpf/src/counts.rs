//! Programs that count and tell on behalf of some of the node's processes: loaded once, and told who they are. What they
//! agree on with `ebpf/programs` is in `ckb_probe_common::counts`.

use std::collections::BTreeMap;

use ckb_probe_common::counts::{
    CountEvent, CountKey, KEY_BYTES, KnownTarget, Misses, OTHER_ROW, Sums, TargetEntry, TargetKey,
    TargetKeys, TargetTally,
};

use super::{
    AttachError, Identity, Links, ReadError, btf,
    btf::Types,
    memory::Reservation,
    object::Object,
    programs,
    tracing::Tracepoints,
    typed::{Counts, PerCpu, SharedRing, Table, Values},
};

/// The ring for what is told: some thousands of events between two readings, of which a namespace has half.
const RING_BYTES: u32 = 1 << 20;

/// What tells targets apart, in the order of the program's `field`.
const TARGET_FIELDS: [(&str, &str); 10] = [
    ("task_struct", "tgid"),
    ("task_struct", "real_parent"),
    ("task_struct", "nsproxy"),
    ("nsproxy", "net_ns"),
    ("task_struct", "thread_pid"),
    ("net", "ns.inum"),
    ("pid_namespace", "ns.inum"),
    ("pid", "level"),
    ("pid", "numbers"),
    ("upid", "ns"),
];

/// A program that counts and tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CountProgram {
    /// The name of its folder.
    pub name: &'static str,
    /// Its functions, each with the tracepoint that it is for.
    pub tracepoints: &'static [(&'static str, &'static str)],
    /// What it reads of the kernel's structures: each with the way to the field, in the order of its static `FIELDS`.
    pub fields: &'static [(&'static str, &'static str)],
}

/// What was counted in the rows of a target, by row, and by bucket of its distributions (see [`CountKey::bucket`]).
pub type Tallied = BTreeMap<([u8; KEY_BYTES], u32), Sums>;

/// Something that was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenEvent {
    /// When, what, and of whom.
    pub event: CountEvent,
    /// What it says.
    pub payload: Vec<u8>,
}

/// A program, loaded. Dropping it frees its maps; what was attached goes with its links.
pub struct Counter {
    tracepoints: Tracepoints,
    spaces: Values<u32>,
    targets: Table<TargetKey, KnownTarget>,
    tallies: PerCpu<TargetTally>,
    misses: PerCpu<Misses>,
    counts: Table<CountKey, Sums>,
    folded: Table<CountKey, u8>,
    keys: Values<TargetKeys>,
    events: SharedRing<CountEvent>,
    _room: Option<Reservation>,
}

impl Counter {
    /// Loads it, and attaches nothing yet.
    pub fn load(program: &CountProgram) -> Result<Self, AttachError> {
        let types = Types::read()?;
        let fields = btf::as_bytes(&types.fields(program.fields)?);
        let target_fields = btf::as_bytes(&types.fields(&TARGET_FIELDS)?);
        let mut object = Object::load_with(
            programs::named(program.name)?,
            &[("EVENTS", RING_BYTES)],
            &[
                ("FIELDS", &fields),
                ("TARGET_FIELDS", &target_fields),
                ("IDENTITY", &Identity::fields(&types)?),
            ],
        )?;
        let tracepoints = Tracepoints::load(&object, &types, program.tracepoints)?;
        Ok(Self {
            tracepoints,
            spaces: Values::take(&mut object, "SPACES")?,
            targets: Table::take(&mut object, "TARGETS")?,
            tallies: PerCpu::take(&mut object, "TALLIES")?,
            misses: PerCpu::take(&mut object, "MISSES")?,
            counts: Table::take(&mut object, "COUNTS")?,
            folded: Table::take(&mut object, "FOLDED")?,
            keys: Values::take(&mut object, "KEYS")?,
            events: SharedRing::take(&mut object, "EVENTS")?,
            _room: object.take_room(),
        })
    }

    /// Attaches it to all of its tracepoints.
    pub fn attach(&self) -> Result<Links, AttachError> {
        self.tracepoints.attach()
    }

    /// Looks for targets in these spaces from now on.
    pub fn set_spaces(&mut self, spaces: u32) -> Result<(), ReadError> {
        self.spaces.set(0, spaces)
    }

    /// Makes room for a target that was not there before.
    pub fn prepare(&mut self, entry: TargetEntry) -> Result<(), ReadError> {
        self.keys.set(entry.slot, TargetKeys::default())?;
        let other = CountKey {
            target: entry.id,
            bucket: 0,
            key: OTHER_ROW,
        };
        self.counts.insert(other, Sums::default())
    }

    /// Counts for this target from now on, or wants something else of it; where its key is a process's, of this process.
    pub fn open(
        &mut self,
        key: TargetKey,
        process: Identity,
        entry: TargetEntry,
    ) -> Result<(), ReadError> {
        let known = KnownTarget {
            entry,
            since_ns: process.since_ns,
        };
        self.targets.insert(key, known)
    }

    /// Counts for it no more. What was counted stays.
    pub fn close(&mut self, key: TargetKey) -> Result<(), ReadError> {
        self.targets.remove(key)
    }

    /// Forgets the rows of a target that nobody asks about any more.
    pub fn forget(&mut self, target: u32) -> Result<(), ReadError> {
        for key in self.known(target)? {
            self.counts.remove(key)?;
        }
        for key in self.folded.keys()? {
            if key.target == target {
                self.folded.remove(key)?;
            }
        }
        Ok(())
    }

    /// What counting for the target of a slot has taken, since the load.
    pub fn tally(&self, slot: u32) -> Result<TargetTally, ReadError> {
        self.tallies.sum(slot)
    }

    /// What everybody who is no target has taken, since the load.
    pub fn misses(&self) -> Result<Misses, ReadError> {
        self.misses.sum(0)
    }

    /// About how many keys the target of a slot has: another number where there are others.
    pub fn keys(&self, slot: u32) -> Result<u32, ReadError> {
        Ok(self.keys.get(slot)?.all)
    }

    /// How many names of the target of a slot have no row of their own; no more than `MAX_FOLDED`.
    pub fn folded(&self, slot: u32) -> Result<u32, ReadError> {
        Ok(self.keys.get(slot)?.folded)
    }

    /// The keys of a target, found among those of all; rows before buckets.
    pub fn known(&self, target: u32) -> Result<Vec<CountKey>, ReadError> {
        let mut found = self.counts.keys()?;
        found.retain(|key| key.target == target);
        found.sort();
        Ok(found)
    }

    /// What was counted under these keys, read in their order.
    pub fn read(&self, keys: &[CountKey]) -> Result<Tallied, ReadError> {
        let read = keys.iter();
        read.map(|key| Ok(((key.key, key.bucket), self.counts.get(*key)?)))
            .collect()
    }

    /// Takes the events that wait.
    pub fn events(&mut self) -> Vec<SeenEvent> {
        let events = self.events.drain(|event| event.payer.into());
        let seen = events.into_iter().map(|(event, mut payload)| {
            payload.truncate(event.length.into());
            SeenEvent { event, payload }
        });
        seen.collect()
    }
}

impl Counts for TargetTally {}
impl Counts for Misses {}

#[cfg(test)]
mod tests;
