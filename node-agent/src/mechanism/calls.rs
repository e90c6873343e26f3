//! Calls of a process's own functions, by uprobes: from what is to be counted to probes in place.
//!
//! All that is asked of one process is one object and one set of links: the kernel traps once for all programs on a site, and
//! detaches once. What two questions have in common is counted once.

mod ask;
mod events;
mod operand;
pub(super) mod origins;
mod pattern;
mod search;
mod usdt;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

pub use ask::{
    Beside, CallsConfig, Cause, Counted, FileNames, Function, Kept, Matching, Measures, Numbered,
    Read, Sought, Span, Told, UsdtPattern,
};
use ckb_probe_crds::{Distribution, Figures, Name, Reason, report::CUT};
use events::emitted;
pub(super) use events::slow_call;
use k8s_openapi::jiff::Timestamp;
pub(super) use operand::operand as usdt_operand;
use origins::{Origins, PendingStacks};
pub use search::{Searched, search};

use super::{
    Answer, BeginContext, Begun, Config, Event, GroupId, GroupIds, Lost, Mechanism, Node, Reading,
    Refusal, RowId, RowReading, Search, SharedTrap,
};
use crate::{
    kernel::{
        AttachError, Calibration, DEFAULT_RING_BYTES, Links, Plan, Probes, ReadError, SlotReading,
        Slots, Tier,
    },
    observe::{self, FunctionCache, ProcessId, SymbolCache, UsdtCache},
};

/// Column families that are told apart, each for one operation, at most; CKB has 19, and some five operations on them.
const MAX_FAMILIES: u64 = 160;

/// What they may take of the kernel's memory.
const FAMILY_BYTES: u64 = 24 << 20;

/// What one takes on each CPU: its histogram and totals.
const FAMILY_BYTES_PER_CPU: u64 = 5 << 10;

/// The probes on one process, loaded for it.
pub struct Calls {
    process: ProcessId,
    probes: Probes,
    /// The group of the first slot.
    first: GroupId,
    slots: Vec<Slot>,
    costs: Vec<Option<Duration>>,
    beside: BTreeMap<u8, (u8, Duration)>,
    causes: Vec<Cause>,
    booted: Timestamp,
    one_by_one: bool,
    /// Where slow calls came from, if that is asked.
    origins: Option<Origins>,
    /// By slot: slow calls of which that is not known all the same, and those of which it is known in part.
    untold: Vec<PendingStacks>,
    /// By slot: slow times that began with a text that is no `traceparent`.
    misplaced: Vec<u64>,
    /// By slot: texts that were emitted and have no spans.
    malformed: Vec<u64>,
}

/// What is counted in one place.
#[derive(Clone, Debug, PartialEq)]
struct Slot {
    measures: Measures,
    told: Told,
    /// Beside which slot's writes its own are told.
    written_beside: Option<(Beside, usize)>,
    arguments: Vec<Kept>,
    stacks: bool,
    /// From where to where it is, of what does not end where it began.
    span: Option<Span>,
}

/// What was found in files.
#[derive(Default)]
pub struct Caches {
    /// Functions that are asked for by name.
    pub symbols: SymbolCache,
    /// Functions that are asked for by pattern.
    pub functions: FunctionCache,
    /// USDT probes.
    pub usdt: UsdtCache,
}

impl Config for CallsConfig {
    fn begin(asks: &[Self], context: BeginContext<'_>) -> Begun {
        let BeginContext {
            process,
            first,
            ratio,
            node,
            ..
        } = context;
        let refused = |refusal: Refusal| Begun::refused(vec![refusal; asks.len()]);
        let means = match &node.tier {
            Ok(tier) => *tier,
            Err(refusal) => return refused(refusal.clone()),
        };
        let searched = match search(means, process, asks, first, &node.found) {
            Ok(searched) => searched,
            Err(error) => return refused(Refusal::from(&error)),
        };
        let families = searched.families();
        let Searched {
            mut answers,
            slots,
            sites,
            beside,
            ..
        } = searched;
        if sites.is_empty() {
            return Begun {
                answers,
                mechanisms: Vec::new(),
            };
        }
        let mut costs = vec![None; slots.len()];
        for (site, cost) in &sites {
            let slot: &mut Option<Duration> = &mut costs[usize::from(site.slot)];
            *slot = (*slot).max(Some(*cost));
        }
        let plan = Plan {
            pid: process.pid,
            slots: slots.len() as u32,
            sites: sites.into_iter().map(|(site, _)| site).collect(),
            families,
            ring_bytes: DEFAULT_RING_BYTES,
            trap_ns: means.calibration.trap_ns,
            // Functions that are listed by name do not call each other, or seldom.
            inner_ns: match slots.iter().any(|(one, _)| one.found_by.is_some()) {
                true => inner_costs(&means.calibration, &costs, &beside),
                false => Vec::new(),
            },
        };
        let mut causes: Vec<Cause> = slots.iter().filter_map(|(one, _)| one.cause).collect();
        causes.sort_by_key(|cause| cause.number);
        causes.dedup();
        let rows: Vec<String> = slots.iter().map(|(one, _)| one.row.clone()).collect();
        let written_beside = |counted: &Counted| {
            let beside = counted.files.beside?;
            Some((beside, rows.iter().position(|row| row == beside.row)?))
        };
        let loaded = load(means.tier, &plan, process, ratio);
        let mut mechanisms: Vec<Box<dyn Mechanism>> = Vec::new();
        match loaded {
            Ok((probes, origins)) => mechanisms.push(Box::new(Calls {
                process,
                probes,
                origins,
                untold: vec![PendingStacks::default(); slots.len()],
                misplaced: vec![0; slots.len()],
                malformed: vec![0; slots.len()],
                first,
                slots: slots
                    .into_iter()
                    .map(|(counted, measures)| Slot {
                        told: counted.told(),
                        written_beside: written_beside(&counted),
                        arguments: counted.arguments,
                        stacks: counted.stacks,
                        span: counted.span,
                        measures,
                    })
                    .collect(),
                costs,
                beside,
                causes,
                booted: observe::boot_time(),
                one_by_one: means.tier.detaches_one_by_one(),
            })),
            Err(refusal) => {
                for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
                    *answer = Err(refusal.clone());
                }
            }
        }
        Begun {
            answers,
            mechanisms,
        }
    }

    fn is_of_files() -> bool {
        true
    }

    fn search(
        asks: Vec<Self>,
        held: Vec<Answer>,
        process: ProcessId,
        node: &Node,
    ) -> Option<Search> {
        let (tier, caches) = (node.tier.clone(), Arc::clone(&node.found));
        Some(Box::new(move || {
            let Ok(tier) = tier else {
                return false;
            };
            let Ok(found) = search(tier, process, &asks, GroupId::default(), &caches) else {
                return false;
            };
            found.answers.iter().zip(&held).any(|pair| match pair {
                (Ok(found), Ok(held)) => found.coverage.lacks != held.coverage.lacks,
                (Ok(_), Err(_)) => true,
                (Err(_), _) => false,
            })
        }))
    }
}

/// Loads the probes, and begins to unwind the stacks that they are to copy.
fn load(
    tier: Tier,
    plan: &Plan,
    process: ProcessId,
    ratio: Option<f64>,
) -> Result<(Probes, Option<Origins>), Refusal> {
    let mut probes = Probes::load(tier, plan)?;
    let origins = match probes.take_slow_stacks() {
        Some(stacks) => Some(Origins::of_process(process, stacks, ratio)?),
        None => None,
    };
    Ok((probes, origins))
}

/// By slot: what a call adds to one in which it is made, in nanoseconds.
fn inner_costs(
    calibration: &Calibration,
    costs: &[Option<Duration>],
    beside: &BTreeMap<u8, (u8, Duration)>,
) -> Vec<u32> {
    let alone = u128::from(calibration.cost_per_call_ns.max(1));
    let inner = u128::from(calibration.inner_ns);
    let of = |(slot, cost): (u8, &Option<Duration>)| {
        let nanos = match beside.get(&slot) {
            Some((_, further)) => inner * further.as_nanos() / alone,
            // What is more than a call usually costs is the kernel's single step.
            None => inner + cost.map_or(0, |cost| cost.as_nanos().saturating_sub(alone)),
        };
        u32::try_from(nanos).unwrap_or(u32::MAX)
    };
    (0..).zip(costs).map(of).collect()
}

/// How many column families are told apart on a machine with so many CPUs.
fn families(cpus: u32) -> u32 {
    (FAMILY_BYTES / (FAMILY_BYTES_PER_CPU * u64::from(cpus.max(1)))).min(MAX_FAMILIES) as u32
}

impl Measures {
    /// What was counted in one place.
    pub fn figures(&self, seen: SlotReading, told: Told) -> Figures {
        let mut figures = Figures::default();
        let count = seen.histogram.count() + seen.untimed;
        let (duration, longest, slow) = match self {
            Self::Counted(counted) => {
                figures.sums.insert(counted.clone(), count);
                return figures;
            }
            Self::Timed {
                duration,
                longest,
                bytes,
                slow,
            } => {
                if told.bytes {
                    figures.sums.insert(bytes.clone(), seen.bytes);
                }
                figures.sums.extend(told.files.sums(seen.files));
                (duration, longest, slow)
            }
            Self::Spanned {
                hits,
                duration,
                longest,
                slow,
                unended,
                unbegun,
            } => {
                // Those that were cut off are told by their own name.
                let ended_unseen = seen.untimed.saturating_sub(seen.cut);
                let told = [(unended, ended_unseen), (unbegun, seen.unbegun)];
                let hits = hits.iter().map(|name| (name, count));
                let told = hits.chain(told);
                let told = told.map(|(name, number)| (name.clone(), number));
                figures.sums.extend(told);
                (duration, longest, slow)
            }
        };
        let durations = Distribution {
            histogram: seen.histogram,
            sum: seen.sum_ns,
            unmeasured: seen.untimed,
        };
        figures.distributions.insert(duration.clone(), durations);
        figures.maxima.insert(longest.clone(), seen.max_ns);
        figures.sums.insert(slow.clone(), seen.slow);
        figures
    }
}

impl Calls {
    fn slots_of(&self, groups: &GroupIds) -> Slots {
        slots_of(self.first, self.slots.len(), groups)
    }
}

impl Mechanism for Calls {
    fn costs(&self) -> &[Option<Duration>] {
        &self.costs
    }

    fn beside(&self) -> Vec<SharedTrap> {
        let group = |slot: u8| self.first.offset(usize::from(slot));
        let beside = self.beside.iter();
        let beside = beside.map(|(slot, (other, cost))| SharedTrap {
            group: group(*slot),
            other: group(*other),
            cost: *cost,
        });
        beside.collect()
    }

    fn attach(&mut self, groups: &GroupIds) -> Result<Option<Links>, AttachError> {
        self.probes.attach(&self.slots_of(groups))
    }

    fn open_slice(&mut self, groups: &GroupIds) -> Result<(), AttachError> {
        self.probes.open_slice(&self.slots_of(groups))
    }

    fn close_slice(&mut self) -> Result<Option<Links>, ReadError> {
        self.probes.close_slice()
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        self.probes.hits()
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        let process = self.process;
        self.probes
            .forget_ended(|threads| observe::ended_threads(process, threads))?;
        let seen = self.probes.read()?;
        let mut reading = Reading::default();
        let mut cut = vec![0; self.slots.len()];
        let families = seen.families.iter();
        let families = families.map(|family| (family.slot as usize, family.reading.cut));
        let own = seen.slots.iter().map(|own| own.cut).enumerate();
        for (slot, more) in own.chain(families) {
            if let Some(cut) = cut.get_mut(slot) {
                *cut += more;
            }
        }
        let written = seen.slots.iter().map(|own| own.files.written_bytes);
        let written: Vec<u64> = written.collect();
        for (index, (slot, own)) in self.slots.iter().zip(seen.slots).enumerate() {
            let mut figures = slot.measures.figures(own, slot.told);
            if let Some((beside, other)) = slot.written_beside {
                let sums = beside.sums(written[index], written[other]);
                figures.sums.extend(sums);
            }
            let own = RowReading {
                figures,
                folded: [&seen.families_folded, &seen.values_folded]
                    .into_iter()
                    .filter_map(|folded| folded.get(index))
                    .sum(),
                ..RowReading::default()
            };
            reading.groups.insert(self.first.offset(index), vec![own]);
        }
        for (place, family) in (0..).zip(seen.families) {
            let index = family.slot as usize;
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            let part = RowReading {
                row: None,
                part: Some(RowId {
                    place,
                    number: u64::from(family.id),
                    text: family.name,
                }),
                figures: slot.measures.figures(family.reading, slot.told),
                folded: 0,
            };
            let rows = reading.groups.entry(self.first.offset(index)).or_default();
            rows.push(part);
        }
        for value in seen.values {
            let index = value.value.slot as usize;
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            let part = RowReading {
                row: None,
                part: Some(RowId {
                    place: u64::from(value.place),
                    number: 0,
                    text: operand::told(&value.value),
                }),
                figures: slot.measures.figures(value.reading, slot.told),
                folded: 0,
            };
            let rows = reading.groups.entry(self.first.offset(index)).or_default();
            rows.push(part);
        }
        let counts = [("calls", seen.calls_lost), ("sizes", seen.sizes_lost)];
        let groups = (0..self.slots.len()).map(|slot| self.first.offset(slot));
        reading.lost = vec![Lost {
            groups: groups.collect(),
            counts: counts
                .into_iter()
                .map(|(what, count)| (Name::Borrowed(what), count))
                .collect(),
        }];
        let texts = (seen.unread.iter().zip(&self.misplaced))
            .zip(seen.payloads_lost.iter().zip(&self.malformed));
        let of_each = lost_of_each(self.first, seen.events_lost, cut).zip(texts);
        reading.lost.extend(of_each.map(|(mut lost, texts)| {
            let ((unread, misplaced), (payloads, malformed)) = texts;
            let counts = [
                ("arguments", *unread),
                ("traceparents", *misplaced),
                ("payloads", payloads.full),
                ("unreadPayloads", payloads.unread),
                ("longPayloads", payloads.long),
                ("malformedPayloads", *malformed),
            ];
            let counts = counts.into_iter().filter(|(_, count)| *count > 0);
            let counts = counts.map(|(what, count)| (Name::Borrowed(what), count));
            lost.counts.extend(counts);
            lost
        }));
        if self.origins.is_some() {
            let lost = self.probes.stacks_lost()?;
            let lost = lost.into_iter().zip(&self.untold).enumerate();
            reading.lost.extend(lost.map(|(slot, (lost, untold))| {
                Lost::of(
                    self.first.offset(slot),
                    BTreeMap::from([
                        (Name::Borrowed("stacks"), lost + untold.stacks),
                        (Name::Borrowed("frames"), untold.frames),
                    ]),
                )
            }));
        }
        Ok(reading)
    }

    fn fixed_cost(&self) -> Result<Duration, ReadError> {
        match self.origins {
            Some(_) => self.probes.copying(),
            None => Ok(Duration::ZERO),
        }
    }

    fn stop(&mut self) -> Result<(), ReadError> {
        self.probes.stop()
    }

    fn events(&mut self) -> Vec<Event> {
        // The wall clock may have been set since.
        self.booted = observe::boot_time();
        let calls = self.probes.slow_calls();
        let mut callers = HashMap::new();
        if let Some(origins) = &self.origins {
            let numbers = calls.iter().map(|seen| seen.call.stack);
            let numbers: Vec<u32> = numbers.filter(|number| *number > 0).collect();
            callers = origins.of(&numbers);
        }
        let mut events: Vec<Event> = calls
            .iter()
            .filter_map(|call| self.event(call, &mut callers))
            .collect();
        for seen in self.probes.payloads() {
            let slot = seen.head.slot as usize;
            match emitted(&seen, self.first.offset(slot), self.booted) {
                Some(event) => events.push(event),
                None => {
                    if let Some(malformed) = self.malformed.get_mut(slot) {
                        *malformed += 1;
                    }
                }
            }
        }
        events
    }

    fn end(&mut self) -> Option<Links> {
        self.probes.leave();
        None
    }

    fn detaches_one_by_one(&self) -> bool {
        self.one_by_one
    }
}

/// The slots of these groups, of so many of which each has the group that follows the one before.
pub(super) fn slots_of(first: GroupId, slots: usize, groups: &GroupIds) -> Slots {
    (0..slots)
        .filter(|slot| groups.contains(&first.offset(*slot)))
        .filter_map(|slot| u8::try_from(slot).ok())
        .collect()
}

/// Events that were lost and calls that were cut, each of the group that it was of: a ring buffer is everybody's, but what was asked
/// for is not.
pub(super) fn lost_of_each(
    first: GroupId,
    events: Vec<u64>,
    cut: Vec<u64>,
) -> impl Iterator<Item = Lost> {
    let both = events.into_iter().zip(cut).enumerate();
    both.map(move |(slot, (events, cut))| {
        Lost::of(
            first.offset(slot),
            BTreeMap::from([
                (Name::Borrowed("events"), events),
                (Name::Borrowed(CUT), cut),
            ]),
        )
    })
}

/// Why nothing that was asked for is there.
fn nothing(reason: Reason, message: &str, coverage: &super::Coverage) -> Refusal {
    Refusal {
        reason,
        message: format!("{message}{}", coverage.sentence),
        lacks: coverage.lacks.clone(),
    }
}
