//! Programs that count and tell on behalf of some of the node's processes: loaded once, and told who they are. What they
//! agree on with `ebpf/programs` is in `ckb_probe_common::counts`.

use std::collections::BTreeMap;

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use ckb_probe_common::counts::{
    CountEvent, CountKey, KEY_BYTES, Misses, OTHER_ROW, Sums, TargetEntry, TargetKey, TargetKeys,
    TargetTally,
};

use super::{
    AttachError, Links, ReadError, btf,
    btf::Types,
    maps::{absent, error, walk_error},
    memory::Reservation,
    object::Object,
    pod::pod,
    programs,
    tracing::Tracepoints,
    walk::Walk,
};

/// The ring for what is told: some thousands of events between two readings.
const RING_BYTES: u32 = 512 << 10;

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

pod! {
    KeyOfTarget(TargetKey);
    EntryOfTarget(TargetEntry);
    TallyValue(TargetTally);
    MissesValue(Misses);
    KeysValue(TargetKeys);
    CountKeyValue(CountKey);
}

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
    spaces: Array<MapData, u32>,
    targets: HashMap<MapData, KeyOfTarget, EntryOfTarget>,
    tallies: PerCpuArray<MapData, TallyValue>,
    misses: PerCpuArray<MapData, MissesValue>,
    walk: Walk<CountKeyValue, Sums>,
    counts: HashMap<MapData, CountKeyValue, Sums>,
    folded_walk: Walk<CountKeyValue, u8>,
    folded: HashMap<MapData, CountKeyValue, u8>,
    keys: Array<MapData, KeysValue>,
    events: RingBuf<MapData>,
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
            &[("FIELDS", &fields), ("TARGET_FIELDS", &target_fields)],
        )?;
        let tracepoints = Tracepoints::load(&object, &types, program.tracepoints)?;
        let mut ring: Array<MapData, u32> = object.take_map("RING")?;
        ring.set(0, RING_BYTES, 0).map_err(error("RING"))?;
        Ok(Self {
            tracepoints,
            spaces: object.take_map("SPACES")?,
            targets: object.take_map("TARGETS")?,
            tallies: object.take_map("TALLIES")?,
            misses: object.take_map("MISSES")?,
            walk: object.walk("COUNTS")?,
            counts: object.take_map("COUNTS")?,
            folded_walk: object.walk("FOLDED")?,
            folded: object.take_map("FOLDED")?,
            keys: object.take_map("KEYS")?,
            events: object.take_map("EVENTS")?,
            _room: object.take_room(),
        })
    }

    /// Attaches it to all of its tracepoints.
    pub fn attach(&self) -> Result<Links, AttachError> {
        self.tracepoints.attach()
    }

    /// Looks for targets in these spaces from now on.
    pub fn set_spaces(&mut self, spaces: u32) -> Result<(), ReadError> {
        self.spaces.set(0, spaces, 0).map_err(error("SPACES"))
    }

    /// Makes room for a target that was not there before.
    pub fn prepare(&mut self, entry: TargetEntry) -> Result<(), ReadError> {
        let none = KeysValue(TargetKeys::default());
        self.keys.set(entry.slot, none, 0).map_err(error("KEYS"))?;
        let other = CountKeyValue(CountKey {
            target: entry.id,
            bucket: 0,
            key: OTHER_ROW,
        });
        let nothing = Sums::default();
        self.counts
            .insert(other, nothing, 0)
            .map_err(error("COUNTS"))
    }

    /// Counts for this target from now on, or wants something else of it.
    pub fn open(&mut self, key: TargetKey, entry: TargetEntry) -> Result<(), ReadError> {
        self.targets
            .insert(KeyOfTarget(key), EntryOfTarget(entry), 0)
            .map_err(error("TARGETS"))
    }

    /// Counts for it no more. What was counted stays.
    pub fn close(&mut self, key: TargetKey) -> Result<(), ReadError> {
        absent(self.targets.remove(&KeyOfTarget(key)), "TARGETS")
    }

    /// Forgets the rows of a target that nobody asks about any more.
    pub fn forget(&mut self, target: u32) -> Result<(), ReadError> {
        for key in self.known(target)? {
            absent(self.counts.remove(&CountKeyValue(key)), "COUNTS")?;
        }
        for key in self.folded_walk.keys().map_err(walk_error("FOLDED"))? {
            if key.0.target == target {
                absent(self.folded.remove(&key), "FOLDED")?;
            }
        }
        Ok(())
    }

    /// What counting for the target of a slot has taken, since the load.
    pub fn tally(&self, slot: u32) -> Result<TargetTally, ReadError> {
        let cpus = self.tallies.get(&slot, 0).map_err(error("TALLIES"))?;
        let mut sum = TargetTally::default();
        for TallyValue(cpu) in cpus.iter() {
            sum.runs += cpu.runs;
            sum.time_ns += cpu.time_ns;
            sum.counts_lost += cpu.counts_lost;
            sum.events_lost += cpu.events_lost;
        }
        Ok(sum)
    }

    /// What everybody who is no target has taken, since the load.
    pub fn misses(&self) -> Result<Misses, ReadError> {
        let cpus = self.misses.get(&0, 0).map_err(error("MISSES"))?;
        let mut sum = Misses::default();
        for MissesValue(cpu) in cpus.iter() {
            sum.runs += cpu.runs;
            sum.time_ns += cpu.time_ns;
        }
        Ok(sum)
    }

    /// About how many keys the target of a slot has: another number where there are others.
    pub fn keys(&self, slot: u32) -> Result<u32, ReadError> {
        let keys = self.keys.get(&slot, 0).map_err(error("KEYS"))?;
        Ok(keys.0.all)
    }

    /// How many names of the target of a slot have no row of their own; no more than `MAX_FOLDED`.
    pub fn folded(&self, slot: u32) -> Result<u32, ReadError> {
        let keys = self.keys.get(&slot, 0).map_err(error("KEYS"))?;
        Ok(keys.0.folded)
    }

    /// The keys of a target, found among those of all; rows before buckets.
    pub fn known(&self, target: u32) -> Result<Vec<CountKey>, ReadError> {
        let mut found = Vec::new();
        for CountKeyValue(key) in self.walk.keys().map_err(walk_error("COUNTS"))? {
            if key.target == target {
                found.push(key);
            }
        }
        found.sort();
        Ok(found)
    }

    /// What was counted under these keys, read in their order.
    pub fn read(&self, keys: &[CountKey]) -> Result<Tallied, ReadError> {
        let read = keys.iter().map(|key| {
            let sums = self.counts.get(&CountKeyValue(*key), 0);
            Ok(((key.key, key.bucket), sums.map_err(error("COUNTS"))?))
        });
        read.collect()
    }

    /// Takes the next event that waits.
    pub fn next_event(&mut self) -> Option<SeenEvent> {
        loop {
            let item = self.events.next()?;
            let Some((head, payload)) = item.split_at_checked(size_of::<CountEvent>()) else {
                continue;
            };
            // SAFETY: long enough, and a CountEvent is integers only; read_unaligned relies on no alignment.
            let event = unsafe { head.as_ptr().cast::<CountEvent>().read_unaligned() };
            let length = payload.len().min(event.length as usize);
            return Some(SeenEvent {
                event,
                payload: payload[..length].to_vec(),
            });
        }
    }
}
