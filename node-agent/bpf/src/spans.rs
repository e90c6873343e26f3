//! What one thread of a process does between the beginning of a database transaction and its commit: the program `spans`, loaded
//! for one process.

use std::{thread, time::Duration};

pub use ckb_probe_common::spans::{OPERATIONS, Span, SpanCalls, SpanUsage, end, role};
use ckb_probe_common::{
    maximum_of,
    spans::{PARTS, SpanControl, SpanPart, SpanParts, SpanRow},
    stacks::{SLOT_PAGES, SLOW_SLOTS},
};
use ckb_probe_figures::Histogram;
use ckb_probe_symbols::text;
use zerocopy::FromBytes as _;

use super::{
    AttachError, Links, ReadError, Site, Tier,
    attachment::{Attachment, Control},
    btf::{self, Types},
    maps::GRACE,
    memory::Reservation,
    object::Object,
    programs,
    stacks::{self, SlowStacks},
    typed::{Counts, PerCpu, Ring, Values},
};

/// The program.
const SPANS: &str = "spans";

/// The ring for what is told: some 2,400 spans between two readings, and 800 where column families are told apart.
const RING_BYTES: u32 = 1 << 20;

/// What of a thread tells what it used, in the order of the program's `FIELDS`.
const FIELDS: [(&str, &str); 7] = [
    ("task_struct", "se.sum_exec_runtime"),
    ("task_struct", "se.exec_start"),
    ("task_struct", "sched_info.run_delay"),
    ("task_struct", "maj_flt"),
    ("task_struct", "nvcsw"),
    ("task_struct", "nivcsw"),
    ("task_struct", "min_flt"),
];

/// What to load for one process.
#[derive(Clone, Debug)]
pub struct SpanPlan {
    /// The process, in the host's pid namespace.
    pub pid: u32,
    /// The functions, each in the slot of its operation.
    pub sites: Vec<Site>,
    /// By slot: what its calls are to a span, one of [`role`].
    pub roles: [u8; OPERATIONS],
    /// The name of the thread.
    pub thread_name: String,
    /// The name of the column family whose keys are names of spans: no more than seven bytes.
    pub names: String,
    /// That of the one into which the units of a span are put, likewise.
    pub units: String,
    /// Whether the column families of operations are told apart, of sites that say where theirs is.
    pub by_family: bool,
    /// Spans that take at least so long are told one by one.
    pub threshold_ns: u64,
    /// Nanoseconds that the traps add to every call.
    pub trap_ns: u64,
    /// The stacks of what takes at least so long are copied: of each span that is told that of its longest call, or where none took so
    /// long, of its end. None: none are.
    pub stack_ns: Option<u64>,
}

/// By slot: how often a program was run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanHits {
    /// By calls of other threads.
    pub others: u64,
    /// By calls of the thread.
    pub own: u64,
}

/// What calls of a span are told apart by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The slot of the operation.
    pub slot: usize,
    /// The column family; None: that of none, or of one that is not told apart.
    pub family: Option<PartFamily>,
}

/// A column family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartFamily {
    /// RocksDB's number for it.
    pub id: u32,
    /// Its name there; empty where it could not be read.
    pub name: String,
}

/// What was counted of spans of one end, since the load; the longest since the reading before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanReading {
    /// How many spans ended like that.
    pub count: u64,
    /// How long they took together.
    pub sum_ns: u64,
    /// How long the longest took.
    pub max_ns: u64,
    /// By how long they took.
    pub histogram: Histogram,
    /// The name of the last that had one.
    pub name: Option<u64>,
    /// How many names were taken back.
    pub taken_back: u64,
    /// How many units were put.
    pub units: u64,
    /// Bytes of all keys and values that were put.
    pub bytes: u64,
    /// Those that should have been told and found no room.
    pub untold: u64,
    /// What the thread used meanwhile; None where this kernel does not tell.
    pub usage: Option<SpanUsage>,
    /// What of that was in the phase.
    pub phase: Option<SpanUsage>,
    /// The calls, by the number of their [`Part`].
    pub calls: Vec<SpanCalls>,
}

/// The program, loaded for one process. Dropping it detaches it.
pub struct Spans {
    // Declared first: links go before the maps that their programs write to.
    attachment: Attachment<SpanControl>,
    rows: Values<SpanRow>,
    calls: Values<SpanParts>,
    families: Values<SpanPart>,
    /// Those that there are, by their numbers: first the operations.
    parts: Vec<Part>,
    histograms: Values<ckb_probe_common::Histogram>,
    hits: PerCpu<[u64; 2]>,
    spans: Ring<Span>,
    tells_usage: bool,
    slow_stacks: Option<SlowStacks>,
    stacks_lost: PerCpu<u64>,
    copying: PerCpu<u64>,
    room: Option<Reservation>,
}

impl Counts for [u64; 2] {}

impl Control for SpanControl {
    fn switch(&mut self) -> (&mut u32, &mut u32) {
        (&mut self.open, &mut self.generation)
    }
}

impl Spans {
    /// Loads it, and attaches nothing yet.
    pub fn load(tier: Tier, plan: &SpanPlan) -> Result<Self, AttachError> {
        let fields = {
            let types = Types::read().ok();
            FIELDS.map(|(structure, field)| types.as_ref()?.field(structure, field))
        };
        let tells_usage = fields.iter().all(Option::is_some);
        let fields = btf::as_bytes(&fields.map(Option::unwrap_or_default));
        let copies = plan.stack_ns.map(|_| ());
        let copying = copies.map(|()| stacks::constants());
        let mut constants = vec![("USAGE_FIELDS", fields.as_slice())];
        let further = copying.iter().flatten();
        constants.extend(further.map(|(name, bytes)| (*name, bytes.as_slice())));
        let mut object = Object::load_with(
            programs::named(SPANS)?,
            &[
                ("SPANS", RING_BYTES),
                ("SLOTS", copies.map_or(1, |()| SLOW_SLOTS * SLOT_PAGES)),
                ("STACKS_LOST", copies.map_or(1, |()| OPERATIONS as u32)),
            ],
            &constants,
        )?;
        let slow_stacks = copies.map(|()| SlowStacks::of(&object)).transpose()?;
        let control = SpanControl {
            trap_ns: plan.trap_ns,
            stack_ns: plan.stack_ns.unwrap_or(u64::MAX),
            threshold_ns: plan.threshold_ns,
            thread_name: padded(&plan.thread_name),
            names: begin_of(&plan.names),
            units: begin_of(&plan.units),
            by_family: plan.by_family.into(),
            roles: plan.roles,
            ..SpanControl::default()
        };
        Ok(Self {
            attachment: Attachment::load(&mut object, tier, plan.pid, &plan.sites, control)?,
            rows: Values::take(&mut object, "ROWS")?,
            calls: Values::take(&mut object, "CALLS")?,
            families: Values::take(&mut object, "FAMILIES")?,
            parts: (0..OPERATIONS).map(Part::of_operation).collect(),
            histograms: Values::take(&mut object, "HISTOGRAMS")?,
            hits: PerCpu::take_for_batches(&mut object, "HITS")?,
            spans: Ring::take(&mut object, "SPANS")?,
            tells_usage,
            slow_stacks,
            stacks_lost: PerCpu::take(&mut object, "STACKS_LOST")?,
            copying: PerCpu::take(&mut object, "COPYING")?,
            room: object.take_room(),
        })
    }

    /// Attaches, and counts from then on: what is under way by then is no span.
    pub fn open(&mut self) -> Result<(), AttachError> {
        self.attachment.open()
    }

    /// Counts no more, and hands back the links: a span that is under way is counted as unseen when counting begins again.
    pub fn close(&mut self) -> Result<Option<Links>, ReadError> {
        self.attachment.close()
    }

    /// Counts no more, whatever is attached.
    pub fn stop(&mut self) -> Result<(), ReadError> {
        self.attachment.stop()
    }

    /// By slot: how often a program was run.
    pub fn hits(&self) -> Result<Vec<SpanHits>, ReadError> {
        let all = self.hits.first(OPERATIONS as u32)?.into_iter();
        let hits = all.map(|cpus| {
            let [others, own] = Counts::sum(cpus.into_iter());
            SpanHits { others, own }
        });
        Ok(hits.collect())
    }

    /// What was counted, by [`end`].
    pub fn read(&mut self) -> Result<Vec<SpanReading>, ReadError> {
        let epoch = self.attachment.control().epoch;
        self.attachment
            .tell(|control| control.epoch = epoch.wrapping_add(1))?;
        thread::sleep(GRACE);
        let all = (0..end::COUNT as u32)
            .map(|end| {
                // Before the histogram: a span that ends in between is in one that is read later.
                let row = self.rows.get(end)?;
                let calls = self.calls.get(end)?.0;
                let buckets = self.histograms.get(end)?.buckets;
                let mut histogram = Histogram::default();
                for (bucket, count) in (0..).zip(buckets).filter(|(_, count)| *count > 0) {
                    histogram.add(bucket, count);
                }
                let maxima = row.maxima.iter();
                let longest = maxima.filter_map(|maximum| maximum_of(epoch, *maximum));
                Ok(SpanReading {
                    count: row.count,
                    sum_ns: row.sum_ns,
                    max_ns: longest.max().unwrap_or_default(),
                    histogram,
                    name: (row.names > 0).then_some(row.name),
                    taken_back: row.taken_back,
                    untold: row.untold,
                    units: row.units,
                    bytes: row.bytes,
                    usage: self.tells_usage.then_some(row.usage),
                    phase: self.tells_usage.then_some(row.phase),
                    calls: calls.to_vec(),
                })
            })
            .collect();
        // Last: what calls were counted in was there before.
        self.learn_parts()?;
        all
    }

    /// What calls are told apart by, by the numbers that they have in readings; those that are not there have no calls.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Learns of those that have come.
    fn learn_parts(&mut self) -> Result<(), ReadError> {
        while self.parts.len() < PARTS {
            let part = self.families.get(self.parts.len() as u32)?;
            if part == SpanPart::default() {
                break;
            }
            self.parts.push(Part::of_family(&part));
        }
        Ok(())
    }

    /// Whether it is known what the thread used.
    pub fn tells_usage(&self) -> bool {
        self.tells_usage
    }

    /// Takes the spans that wait to be told, each with its calls by the number of their [`Part`].
    pub fn told(&mut self) -> Vec<(Span, Vec<SpanCalls>)> {
        let told = std::iter::from_fn(|| self.spans.next());
        let told = told.map(|(span, calls)| (span, calls_of(&calls))).collect();
        // What cannot be read now is known by its number until it can.
        let _ = self.learn_parts();
        told
    }

    /// The stacks, if they are copied: handed over once.
    pub fn take_slow_stacks(&mut self) -> Option<SlowStacks> {
        self.slow_stacks.take()
    }

    /// How many could not be copied.
    pub fn stacks_lost(&self) -> Result<u64, ReadError> {
        (0..self.stacks_lost.len())
            .map(|slot| self.stacks_lost.sum(slot))
            .sum()
    }

    /// What it has cost to copy them.
    pub fn copying(&self) -> Result<Duration, ReadError> {
        Ok(Duration::from_nanos(self.copying.sum(0)?))
    }

    /// Its maps are about to be gone: what takes their place may have their memory.
    pub fn leave(&mut self) {
        if let Some(room) = &mut self.room {
            room.leave();
        }
    }
}

impl Part {
    fn of_operation(slot: usize) -> Self {
        Self { slot, family: None }
    }

    fn of_family(part: &SpanPart) -> Self {
        Self {
            slot: part.slot as usize,
            family: Some(PartFamily {
                id: part.family,
                name: text::of_padded(&part.name),
            }),
        }
    }
}

fn calls_of(bytes: &[u8]) -> Vec<SpanCalls> {
    let each = bytes.chunks_exact(size_of::<SpanCalls>());
    each.filter_map(|one| SpanCalls::read_from_bytes(one).ok())
        .collect()
}

/// As the kernel has a thread's name.
fn padded(name: &str) -> [u8; 16] {
    let mut padded = [0; 16];
    for (to, byte) in padded.iter_mut().take(15).zip(name.bytes()) {
        *to = byte;
    }
    padded
}

/// A name with the NUL at its end, as a word, and which of its bytes matter.
fn begin_of(name: &str) -> [u64; 2] {
    let (mut word, mut mask) = ([0; 8], [0; 8]);
    let bytes = name.bytes().chain([0]);
    for ((to, matters), byte) in word.iter_mut().zip(&mut mask).zip(bytes) {
        (*to, *matters) = (byte, u8::MAX);
    }
    [word, mask].map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_compared_with_its_end() {
        let [word, mask] = begin_of("0");
        let same = |name: &[u8; 8]| u64::from_ne_bytes(*name) & mask == word;
        assert!(same(b"0\0\0\0\0\0\0\0"));
        assert!(same(b"0\0whatnot"[..8].try_into().unwrap()));
        assert!(!same(b"01\0\0\0\0\0\0"));
        assert!(!same(b"10\0\0\0\0\0\0"));
        assert_eq!(padded("verify_blocks"), *b"verify_blocks\0\0\0");
        assert_eq!(padded("sixteen-bytes-is"), *b"sixteen-bytes-i\0");
    }
}
