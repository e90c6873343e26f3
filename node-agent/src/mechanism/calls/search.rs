//! What of the functions that are asked for a process has, and where.

mod coverage;
mod places;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use ckb_probe_crds::Reason;
use coverage::{CONFINED, GO, cover};
pub(super) use coverage::{lack, stepped_sentence};
pub(super) use places::FoundSite;
use places::places;

use super::{
    Caches, CallsConfig, Counted, FileNames, Kept, Measures, Sought, nothing, origins,
    pattern::{Matched, sought_functions},
    usdt::matching_probes,
};
use crate::{
    kernel::{
        self, CalibratedTier, Calibration, CallSizes, DEFAULT_RING_BYTES, FamilyArgument, FileIo,
        KeptArguments, Role, Site, memory,
    },
    mechanism::{Accepted, Breakdown, Coverage, GroupId, Refusal, Subscription},
    observe::{
        self, FirstInstruction, Location, ProcessId, SymbolName, Symbols, SymbolsError,
        find_symbols,
    },
};

/// Slots are numbered by a byte.
const MAX_SLOTS: usize = 256;

/// Places that are attached to in all, of one process: a file can have as many functions of a name as it likes, and each name
/// may be asked for in many slots.
const MAX_SITES: usize = 1024;

/// What telling a text costs beside a hit that is only counted, in tenths of what that costs: so it was measured with texts of 2,048 bytes (docs/usdt.md).
const TELLING_TENTHS: u64 = 11;

/// What was found of all that is asked.
pub struct Searched {
    /// In the order of the questions.
    pub answers: Vec<Result<Accepted, Refusal>>,
    /// What is counted, each in a slot of its own.
    pub slots: Vec<(Counted, Measures)>,
    /// Where, and what a call costs there.
    pub sites: Vec<(Site, Duration)>,
    /// Those that have each of their sites in common with one that came before, and what a call costs beside that one.
    pub beside: BTreeMap<u8, (u8, Duration)>,
    /// Something is measured of a program that is written in Go.
    go: bool,
    /// Answers of which nothing is ever timed.
    never_timed: BTreeSet<usize>,
    /// Whether the kernel tells what calls read and write.
    tells_files: bool,
    /// How many column families are told apart, if any are.
    pub families: u32,
    /// What there is of memory.
    pub bounds: Bounds,
}

/// What the maps may take of memory.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// For so many CPUs.
    pub cpus: u32,
    /// So many bytes.
    pub bytes: u64,
}

impl Bounds {
    /// Those of this machine, and of what this process has left.
    fn now() -> Self {
        Self {
            cpus: memory::possible_cpus(),
            bytes: memory::budget().left_for_a_target(),
        }
    }
}

impl From<&SymbolsError> for Refusal {
    fn from(error: &SymbolsError) -> Self {
        Self::new(Reason::AttachFailed, error.to_string())
    }
}

/// Looks for the functions. Fails where the executable cannot be searched.
pub fn search(
    means: CalibratedTier,
    process: ProcessId,
    asks: &[CallsConfig],
    first: GroupId,
    caches: &Caches,
) -> Result<Searched, SymbolsError> {
    let names = names(asks);
    let symbols = if names.is_empty() {
        Symbols::default()
    } else {
        find_symbols(process, &names, &caches.symbols)?
    };
    let mut searched = Searched::nothing(
        kernel::tells_file_io(),
        super::families(memory::possible_cpus()),
        Bounds::now(),
    );
    let found = asks.iter().map(|ask| {
        let found = match &ask.sought {
            Sought::Listed(counted) => {
                let counted = together(counted, asks);
                listed(&counted, &symbols)
            }
            Sought::Matching(matching) => {
                let matched = sought_functions(process, matching, &caches.functions);
                matched.map(Matched::found)
            }
            Sought::Usdt(pattern) => matching_probes(process, pattern, &caches.usdt),
        };
        (ask, found)
    });
    let found: Vec<_> = found.collect();
    let confined = means.returns_kill_confined && observe::is_confined(process);
    searched.take_all(found, confined, means.calibration, first);
    Ok(searched)
}

/// What ends as a function returns is refused where returns must not be touched: nothing would end it.
fn without_returns(found: Result<Found, Refusal>, why: Option<&str>) -> Result<Found, Refusal> {
    let found = found?;
    match why {
        Some(why) if found.ends_at_return() => Err(Refusal::new(
            Reason::EntryOnly,
            format!(
                "what is asked ends at the return of a function, and {why}: name in to what is called next, and leave toReturn out"
            ),
        )),
        _ => Ok(found),
    }
}

/// What is to be counted, told apart by column family where anybody has it so: what is counted once is counted for all.
fn together(own: &[Counted], asks: &[CallsConfig]) -> Vec<Counted> {
    let by_family = |counted: &Counted| {
        let wanted = Counted {
            by_family: true,
            ..counted.clone()
        };
        let mut asks = asks.iter();
        let asked = asks.any(|ask| ask.sought.listed().contains(&wanted));
        if asked { wanted } else { counted.clone() }
    };
    own.iter().map(by_family).collect()
}

/// The answer without what only others have told apart.
fn as_asked(mut opened: Accepted, sought: &Sought) -> Accepted {
    for subscription in &mut opened.subscriptions {
        let own = |one: &&Counted| subscription.row.as_ref() == Some(&one.row);
        let mut listed = sought.listed().iter();
        if listed.find(own).is_some_and(|one| !one.by_family) {
            subscription.parts = Breakdown::None;
        }
    }
    opened
}

fn names(asks: &[CallsConfig]) -> BTreeSet<SymbolName> {
    let counted = asks.iter().flat_map(|ask| ask.sought.listed());
    let functions = counted.flat_map(|counted| &counted.functions);
    functions.map(|function| function.symbol).collect()
}

/// What was found for one question.
pub(super) struct Found {
    pub(super) groups: Vec<(Counted, Vec<FoundSite>)>,
    pub(super) coverage: Coverage,
    /// Returns must not be probed, as the program is written in Go.
    pub(super) go: bool,
}

impl Found {
    /// Whether anything ends as a function returns.
    fn ends_at_return(&self) -> bool {
        let sites = self.groups.iter().flat_map(|(_, sites)| sites);
        let mut hits = sites.filter_map(|site| site.hit);
        hits.any(|hit| hit.role == Role::EndsAtReturn)
    }
}

/// Functions that have names.
fn listed(all: &[Counted], symbols: &Symbols) -> Result<Found, Refusal> {
    let groups: Vec<_> = all
        .iter()
        .map(|counted| (counted.clone(), places(counted, symbols)))
        .filter(|(_, places)| !places.is_empty())
        .collect();
    let coverage = cover(all, symbols);
    if groups.is_empty() {
        let stepped = coverage
            .lacks
            .iter()
            .any(|lack| lack.reason == Reason::SingleStepped);
        return Err(if stepped {
            nothing(
                Reason::SingleStepped,
                "nothing that is asked for is measured",
                &coverage,
            )
        } else {
            nothing(
                Reason::SymbolNotFound,
                "none of the functions asked for is in the executable",
                &coverage,
            )
        });
    }
    Ok(Found {
        groups,
        coverage,
        go: false,
    })
}

impl Searched {
    /// Before anything is found.
    fn nothing(tells_files: bool, families: u32, bounds: Bounds) -> Self {
        Self {
            answers: Vec::new(),
            slots: Vec::new(),
            sites: Vec::new(),
            beside: BTreeMap::new(),
            go: false,
            never_timed: BTreeSet::new(),
            tells_files,
            families,
            bounds,
        }
    }

    /// Answers all questions by what was found for them. Whether returns must not be touched is known of all of the process only then.
    fn take_all(
        &mut self,
        found: Vec<(&CallsConfig, Result<Found, Refusal>)>,
        confined: bool,
        calibration: Calibration,
        first: GroupId,
    ) {
        let go = |found: &Result<Found, Refusal>| found.as_ref().is_ok_and(|found| found.go);
        let why = match confined {
            true => Some(
                "on this kernel a probe there kills a process that is confined by seccomp, as this one is",
            ),
            false => {
                let go = found.iter().any(|(_, found)| go(found));
                go.then_some("the process has code in Go, which moves its stacks and which a probe there would break")
            }
        };
        for (ask, found) in found {
            self.take(without_returns(found, why), ask, calibration, first);
        }
        self.tell_entry_only(confined);
    }

    /// Answers a question by what was found for it.
    fn take(
        &mut self,
        found: Result<Found, Refusal>,
        ask: &CallsConfig,
        calibration: Calibration,
        first: GroupId,
    ) {
        let go = found.as_ref().is_ok_and(|found| found.go);
        let answer = found.and_then(|found| self.answer(found, &ask.measures, calibration, first));
        self.go |= go && answer.is_ok();
        let is_met = match &ask.sought {
            Sought::Usdt(_) => true,
            Sought::Matching(matching) => matching.span.is_some(),
            Sought::Listed(_) => false,
        };
        if is_met {
            self.never_timed.insert(self.answers.len());
        }
        let answer = answer.map(|opened| as_asked(opened, &ask.sought));
        self.answers.push(answer);
    }

    /// Where returns must not be touched, has calls be counted and not timed, and says so of all that is measured: what holds for one
    /// is taken to hold for all of the process, since a return that is touched by mistake kills it. What is refused is neither.
    fn tell_entry_only(&mut self, confined: bool) {
        if !self.go && !confined {
            return;
        }
        for (site, _) in &mut self.sites {
            site.entry_only = true;
        }
        // Nothing is known of what was read until a call ends.
        let slots = self.slots.iter_mut();
        let untold = slots.flat_map(|(counted, _)| {
            let files = mem::take(&mut counted.files);
            files.sums(FileIo::default()).map(|(name, _)| name)
        });
        let untold: BTreeSet<_> = untold.collect();
        let accepted = self
            .answers
            .iter_mut()
            .filter_map(|answer| answer.as_mut().ok());
        for subscription in accepted.flat_map(|accepted| &mut accepted.subscriptions) {
            subscription
                .blank
                .sums
                .retain(|name, _| !untold.contains(name));
        }
        let timed = self.answers.iter_mut().enumerate();
        let timed = timed.filter(|(place, _)| !self.never_timed.contains(place));
        for Accepted { coverage, .. } in timed.filter_map(|(_, answer)| answer.as_mut().ok()) {
            coverage.lacks.push(lack(Reason::EntryOnly, Vec::new()));
            coverage.sentence += if self.go { GO } else { CONFINED };
        }
    }

    /// Takes up what was found for a question, wholly or not at all.
    fn answer(
        &mut self,
        found: Found,
        measures: &Measures,
        calibration: Calibration,
        first: GroupId,
    ) -> Result<Accepted, Refusal> {
        let (slots, sites) = (self.slots.len(), self.sites.len());
        let opened = self.take_up(found, measures, calibration, first);
        let opened = opened.and_then(|opened| self.is_within_bounds().map(|()| opened));
        if opened.is_err() {
            self.slots.truncate(slots);
            self.sites.truncate(sites);
            self.beside.retain(|slot, _| usize::from(*slot) < slots);
        }
        opened
    }

    /// The column families that there is to be room for.
    pub fn families(&self) -> u32 {
        let parted = self.slots.iter().any(|(counted, _)| counted.by_family);
        if parted { self.families } else { 0 }
    }

    /// Whether any slow calls are told with their stacks.
    pub fn reports_stacks(&self) -> bool {
        self.sites.iter().any(|(site, _)| site.stacks)
    }

    fn is_within_bounds(&self) -> Result<(), Refusal> {
        let Bounds { cpus, bytes } = self.bounds;
        let told_apart = self
            .slots
            .iter()
            .filter(|(counted, _)| counted.by.is_some());
        let sizes = CallSizes {
            slots: self.slots.len() as u32,
            hits: match self.sites.iter().any(|(site, _)| site.hit.is_some()) {
                true => self.sites.len() as u32,
                false => 0,
            },
            told_apart: told_apart.count() as u32,
            spans: self.slots.iter().any(|(counted, _)| counted.span.is_some()),
            parents: self.slots.iter().any(|(counted, _)| {
                counted
                    .span
                    .as_ref()
                    .is_some_and(|span| span.parent.is_some())
            }),
            payloads: self
                .slots
                .iter()
                .any(|(counted, _)| counted.payload.is_some()),
            families: self.families(),
            keeps: self.sites.iter().any(|(site, _)| site.arguments.is_some()),
            stacks: self.reports_stacks(),
            file_io: self.sites.iter().any(|(site, _)| site.files.any()),
            ring_bytes: DEFAULT_RING_BYTES,
        };
        let unwinding = if sizes.stacks { origins::BYTES } else { 0 };
        let needed = sizes.bytes(cpus) + unwinding;
        if needed <= bytes {
            return Ok(());
        }
        let refusal = memory::budget().refusal(needed, bytes, cpus);
        Err(Refusal::new(
            Reason::MemoryLimit,
            format!("with this, measuring the calls of the process does not fit: {refusal}"),
        ))
    }

    fn take_up(
        &mut self,
        Found {
            groups, coverage, ..
        }: Found,
        measures: &Measures,
        calibration: Calibration,
        first: GroupId,
    ) -> Result<Accepted, Refusal> {
        let mut subscriptions = Vec::new();
        for (mut counted, places) in groups {
            if !self.tells_files {
                counted.files = FileNames::default();
            }
            let row = counted.row.clone();
            let parts = if counted.by_family || counted.by.is_some() {
                Breakdown::All
            } else {
                Breakdown::None
            };
            let reports_stacks = counted.stacks && counted.slow_threshold_ns < u64::MAX;
            let blank = measures.figures(Default::default(), counted.told());
            let slot = self.slot(counted, measures, places, calibration)?;
            subscriptions.push(Subscription {
                group: first.offset(usize::from(slot)),
                row: Some(row),
                parts,
                blank,
                reports_stacks,
                ..Subscription::default()
            });
        }
        Ok(Accepted {
            subscriptions,
            coverage,
        })
    }

    /// The slot that counts this: one that does already, or a new one.
    fn slot(
        &mut self,
        counted: Counted,
        measures: &Measures,
        places: Vec<FoundSite>,
        calibration: Calibration,
    ) -> Result<u8, Refusal> {
        let same = |(other, names): &(Counted, Measures)| *other == counted && names == measures;
        if let Some(known) = self.slots.iter().position(same) {
            return Ok(known as u8);
        }
        if self.slots.len() == MAX_SLOTS {
            return Err(Refusal::new(
                Reason::AttachFailed,
                format!(
                    "all that is asked of the process comes to more than the {MAX_SLOTS} operations and functions that \
                     can be told apart: ask for fewer"
                ),
            ));
        }
        let sites = self.sites.len() + places.len();
        if sites > MAX_SITES {
            return Err(Refusal::new(
                Reason::TooManyMatches,
                format!(
                    "what is asked of the process is in {sites} places of its files or more ({} of {}), and no more than \
                     {MAX_SITES} are attached to in all: ask for fewer functions",
                    places.len(),
                    counted.row,
                ),
            ));
        }
        let telling_ns = match counted.payload {
            Some(_) => calibration.counted_cost_ns * TELLING_TENTHS / 10,
            None => 0,
        };
        let slot = self.slots.len() as u8;
        if let Some(other) = (0..slot).find(|other| self.traps_all(*other, &places)) {
            let further = Duration::from_nanos(calibration.further_cost_ns + telling_ns);
            self.beside.insert(slot, (other, further));
        }
        let texts = (0..).zip(&counted.arguments);
        let texts = texts.filter(|(_, kept)| **kept == Kept::String);
        let texts = texts.fold(0_u8, |bits, (index, _)| bits | 1 << index);
        for FoundSite {
            symbol,
            payload,
            family,
            location,
            semaphore,
            entry_only,
            hit,
        } in places
        {
            let stepped = calibration
                .single_step_cost_ns
                .saturating_sub(calibration.cost_per_call_ns);
            let nanos = match (entry_only, location.first_instruction) {
                (true, FirstInstruction::Emulated) => calibration.counted_cost_ns,
                (true, FirstInstruction::SingleStepped) => calibration.counted_cost_ns + stepped,
                (false, FirstInstruction::Emulated) => calibration.cost_per_call_ns,
                (false, FirstInstruction::SingleStepped) => calibration.single_step_cost_ns,
            };
            let site = Site {
                symbol,
                binary: location.binary,
                offset: location.offset,
                slot,
                payload,
                family: if counted.by_family {
                    family
                } else {
                    FamilyArgument::None
                },
                cause: counted.cause.map_or(0, |cause| cause.number),
                slow_threshold_ns: counted.slow_threshold_ns,
                arguments: (!counted.arguments.is_empty()).then_some(KeptArguments { texts }),
                stacks: counted.stacks,
                files: counted.files.asked(),
                entry_only,
                semaphore,
                hit,
            };
            self.sites
                .push((site, Duration::from_nanos(nanos + telling_ns)));
        }
        self.slots.push((counted, measures.clone()));
        Ok(slot)
    }

    /// Whether the kernel traps at each of these places for that slot already.
    fn traps_all(&self, slot: u8, places: &[FoundSite]) -> bool {
        let same = |site: &Site, at: &Location| {
            site.slot == slot && site.offset == at.offset && Arc::ptr_eq(&site.binary, &at.binary)
        };
        // At an entry that is trapped for another, the return is not: who wants that is beside nobody.
        let traps = |place: &FoundSite| {
            let mut sites = self.sites.iter().map(|(site, _)| site);
            sites.any(|site| same(site, &place.location) && (place.entry_only || !site.entry_only))
        };
        places.iter().all(traps)
    }
}

#[cfg(test)]
mod tests;
