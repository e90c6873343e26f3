//! What of the functions that are asked for a process has, and where.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ckb_probe_crds::{Lack, Reason};

use super::{
    Ask, Caches, Counted, Function, Kept, Measures, Sought, nothing, pattern::matching_functions,
};
use crate::{
    kernel::{Calibration, FamilyArgument, KeptArguments, Means, Payload, Site},
    mechanism::{Coverage, LoadId, Opened, Parts, Refusal, Strand},
    observe::{
        self, FirstInstruction, Location, ProcessId, SymbolName, Symbols, SymbolsError,
        find_symbols,
    },
};

/// Slots are numbered by a byte.
const MAX_SLOTS: usize = 256;

/// What a status lists of what is lacking for one reason.
const MAX_ITEMS: usize = 64;

pub(super) const CONFINED: &str = "; calls are counted and not timed, since on this kernel a probe at a function's return kills a \
                        process that is confined by seccomp, as this one is";

/// What was found of all that is asked.
pub struct Searched {
    /// In the order of the questions.
    pub answers: Vec<Result<Opened, Refusal>>,
    /// What is counted, each in a slot of its own.
    pub slots: Vec<(Counted, Measures)>,
    /// Where, and what a call costs there.
    pub sites: Vec<(Site, Duration)>,
    /// Calls are to be counted and not timed.
    pub entry_only: bool,
}

impl From<&SymbolsError> for Refusal {
    fn from(error: &SymbolsError) -> Self {
        Self::new(Reason::AttachFailed, error.to_string())
    }
}

/// Looks for the functions. Fails where the executable cannot be searched.
pub fn search(
    means: Means,
    process: ProcessId,
    asks: &[Ask],
    first: LoadId,
    caches: &mut Caches,
) -> Result<Searched, SymbolsError> {
    let names = names(asks);
    let symbols = if names.is_empty() {
        Symbols::default()
    } else {
        find_symbols(process, &names, &mut caches.symbols)?
    };
    let mut searched = Searched {
        answers: Vec::new(),
        slots: Vec::new(),
        sites: Vec::new(),
        entry_only: means.returns_kill_confined && observe::is_confined(process),
    };
    for ask in asks {
        let found = match &ask.sought {
            Sought::Listed(counted) => listed(counted, &symbols, searched.entry_only),
            Sought::Matching(matching) => {
                let found = matching_functions(process, matching, &mut caches.functions);
                found.map(|found| {
                    searched.entry_only |= found.go;
                    found.found(searched.entry_only)
                })
            }
        };
        let answer =
            found.and_then(|found| searched.answer(found, &ask.measures, means.calibration, first));
        searched.answers.push(answer);
    }
    Ok(searched)
}

fn names(asks: &[Ask]) -> BTreeSet<SymbolName> {
    let counted = asks.iter().flat_map(|ask| match &ask.sought {
        Sought::Listed(counted) => &counted[..],
        Sought::Matching(_) => &[],
    });
    let functions = counted.flat_map(|counted| &counted.functions);
    functions.map(|function| function.symbol).collect()
}

/// What was found for one question.
pub(super) struct Found {
    pub(super) loads: Vec<(Counted, Vec<Place>)>,
    pub(super) coverage: Coverage,
}

/// A function that is attached to.
pub(super) struct Place {
    pub(super) symbol: String,
    pub(super) payload: Payload,
    pub(super) family: FamilyArgument,
    pub(super) location: Location,
}

/// Functions that have names.
fn listed(all: &[Counted], symbols: &Symbols, entry_only: bool) -> Result<Found, Refusal> {
    let loads: Vec<_> = all
        .iter()
        .map(|counted| (counted.clone(), places(counted, symbols)))
        .filter(|(_, places)| !places.is_empty())
        .collect();
    let coverage = cover(all, symbols, entry_only);
    if loads.is_empty() {
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
    Ok(Found { loads, coverage })
}

impl Searched {
    fn answer(
        &mut self,
        Found { loads, coverage }: Found,
        measures: &Measures,
        calibration: Calibration,
        first: LoadId,
    ) -> Result<Opened, Refusal> {
        let mut strands = Vec::new();
        for (counted, places) in loads {
            let row = counted.row.clone();
            let parts = if counted.by_family {
                Parts::All
            } else {
                Parts::None
            };
            let blank = measures.figures(Default::default(), counted.has_bytes());
            let slot = self.slot(counted, measures, places, calibration)?;
            strands.push(Strand {
                load: first.offset(usize::from(slot)),
                row: Some(row),
                parts,
                blank,
                ..Strand::default()
            });
        }
        Ok(Opened { strands, coverage })
    }

    /// The slot that counts this: one that does already, or a new one.
    fn slot(
        &mut self,
        counted: Counted,
        measures: &Measures,
        places: Vec<Place>,
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
        let slot = self.slots.len() as u8;
        let texts = (0..).zip(&counted.arguments);
        let texts = texts.filter(|(_, kept)| **kept == Kept::String);
        let texts = texts.fold(0_u8, |bits, (index, _)| bits | 1 << index);
        for Place {
            symbol,
            payload,
            family,
            location,
        } in places
        {
            let nanos = match location.first_instruction {
                FirstInstruction::Emulated => calibration.cost_per_call_ns,
                FirstInstruction::SingleStepped => calibration.single_step_cost_ns,
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
            };
            self.sites.push((site, Duration::from_nanos(nanos)));
        }
        self.slots.push((counted, measures.clone()));
        Ok(slot)
    }
}

/// Where the functions are that are attached to. A place that has the names of two functions is there once, or its calls would
/// count twice.
fn places(counted: &Counted, symbols: &Symbols) -> Vec<Place> {
    let mut seen = BTreeMap::new();
    for function in &counted.functions {
        for location in symbols.found.get(&function.symbol).into_iter().flatten() {
            if !is_left_out(counted, location) {
                let place = (Arc::as_ptr(&location.binary), location.offset);
                seen.entry(place).or_insert_with(|| Place {
                    symbol: function.symbol.to_string(),
                    payload: function.payload,
                    family: function.family,
                    location: location.clone(),
                });
            }
        }
    }
    let mut places: Vec<Place> = seen.into_values().collect();
    places.sort_by_key(|place| place.location.offset);
    places
}

fn is_left_out(counted: &Counted, location: &Location) -> bool {
    location.first_instruction == FirstInstruction::SingleStepped && !counted.include_single_stepped
}

/// What of it a binary cannot serve.
fn cover(all: &[Counted], symbols: &Symbols, entry_only: bool) -> Coverage {
    let found = |function: &Function| symbols.found.get(&function.symbol);
    let missing = |counted: &&Counted| counted.functions.iter().all(|one| found(one).is_none());
    let rows = |lacking: &dyn Fn(&&Counted) -> bool| -> Vec<String> {
        let lacking = all.iter().filter(|counted| lacking(counted));
        lacking.map(|counted| counted.row.clone()).collect()
    };
    let stepped = |counted: &&Counted| !missing(counted) && places(counted, symbols).is_empty();
    let left_out: BTreeSet<String> = all
        .iter()
        .flat_map(|counted| {
            let functions = counted.functions.iter();
            functions.filter(|function| {
                let mut locations = found(function).into_iter().flatten();
                locations.any(|location| is_left_out(counted, location))
            })
        })
        .map(|function| function.symbol.to_string())
        .collect();
    let missing_symbols: BTreeSet<String> = all
        .iter()
        .flat_map(|counted| &counted.functions)
        .filter(|function| found(function).is_none())
        .map(|function| function.symbol.to_string())
        .collect();
    let missing_rows = rows(&missing);
    let sentence = [
        missing_sentence(&missing_rows, &missing_symbols, symbols.stripped),
        stepped_sentence(&left_out, &rows(&stepped)),
        entry_only.then(|| CONFINED.to_string()),
    ];
    let lacks = [
        (
            Reason::SymbolNotFound,
            !missing_rows.is_empty(),
            missing_rows.clone(),
        ),
        (
            Reason::SingleStepped,
            !left_out.is_empty(),
            left_out.into_iter().collect(),
        ),
        (Reason::EntryOnly, entry_only, Vec::new()),
    ];
    let told = lacks.into_iter().filter(|(_, lacks, _)| *lacks);
    Coverage {
        lacks: told.map(|(reason, _, items)| lack(reason, items)).collect(),
        sentence: sentence.into_iter().flatten().collect(),
        may_grow: !missing_symbols.is_empty(),
    }
}

pub(super) fn lack(reason: Reason, mut items: Vec<String>) -> Lack {
    items.truncate(MAX_ITEMS);
    Lack { reason, items }
}

fn missing_sentence(rows: &[String], symbols: &BTreeSet<String>, stripped: bool) -> Option<String> {
    let why = if stripped {
        "the binary is stripped (it has no symbol table): use a build that is not"
    } else {
        "the binary has a symbol table, but was built without them"
    };
    (!rows.is_empty()).then(|| {
        format!(
            "; not measured: {}, since {} not found: {why}",
            rows.join(", "),
            were(symbols)
        )
    })
}

pub(super) fn stepped_sentence(left_out: &BTreeSet<String>, rows: &[String]) -> Option<String> {
    let hence = match rows {
        [] => String::new(),
        rows => format!(" (hence not measured: {})", rows.join(", ")),
    };
    (!left_out.is_empty()).then(|| {
        format!(
            "; {} left out{hence}, since the kernel would have to single-step the first instruction, at many times the \
             cost: includeSingleStepped: true measures them all the same",
            were(left_out)
        )
    })
}

fn were(symbols: &BTreeSet<String>) -> String {
    let symbols: Vec<&str> = symbols.iter().map(String::as_str).collect();
    match symbols[..] {
        [one] => format!("{one} was"),
        _ => format!("{} were", symbols.join(", ")),
    }
}

#[cfg(test)]
mod tests;
