//! From a process and what is to be counted to probes in place.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ckb_probe_crds::Reason;

use crate::{
    kinds::{self, Function, Slot},
    observe::{
        self, FirstInstruction, Location, ObserveError, ProcessId, SymbolCache, Symbols,
        SymbolsError, find_symbols,
    },
    probe::{
        AttachError, Calibration, DEFAULT_RING_BYTES, FamilyArgument, Means, Plan, Probes, Site,
    },
};

/// What was found on the way to an attach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Operations none of whose functions was found.
    pub missing_operations: Vec<String>,
    /// Functions that were not found.
    pub missing_symbols: Vec<String>,
    /// The executable has no symbol table.
    pub stripped: bool,
    /// Operations none of whose functions is attached to, since the kernel would have to single-step them all.
    pub single_stepped_operations: Vec<String>,
    /// Functions that are not attached to for that reason.
    pub single_stepped_symbols: Vec<String>,
    /// Calls are counted and not timed.
    pub entry_only: bool,
}

/// Why a target has no probes.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The binary cannot be searched.
    #[error(transparent)]
    Symbols(#[from] SymbolsError),
    /// None of the functions is there.
    #[error("none of the functions asked for is in the executable{0}")]
    NoSymbol(String),
    /// More than the programs can tell apart.
    #[error(
        "{0} operations are asked for, and one CkbProbe can measure {MAX_SLOTS}: ask for fewer"
    )]
    TooMany(usize),
    /// All of the functions are there, and none is attached to.
    #[error("nothing that is asked for is measured{0}")]
    SingleStepped(String),
    /// The kernel refused.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The process is gone already.
    #[error(transparent)]
    Gone(#[from] ObserveError),
}

impl TargetError {
    /// The word for statuses and Events.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoSymbol(_) => Reason::SymbolNotFound,
            Self::SingleStepped(_) => Reason::SingleStepped,
            Self::TooMany(_) | Self::Symbols(_) | Self::Attach(_) | Self::Gone(_) => {
                Reason::AttachFailed
            }
        }
    }
}

/// What a target's calls are measured with: loaded for it, and attached to nothing yet.
pub struct Loaded {
    /// The programs.
    pub probes: Probes,
    /// What one call of each slot costs the target; None where nothing of it is attached to.
    pub costs: Vec<Option<Duration>>,
}

/// Slots are numbered by a byte.
const MAX_SLOTS: usize = 256;

/// Column families that are told apart, each for one operation, at most; CKB has 19, and some five operations on them.
const MAX_FAMILIES: u64 = 160;

/// What they may take of the kernel's memory.
const FAMILY_BYTES: u64 = 24 << 20;

/// What one takes on each CPU: its histogram and totals.
const FAMILY_BYTES_PER_CPU: u64 = 5 << 10;

/// Searches the process's binaries and loads what measures what is there. `coverage` is filled as far as it is known,
/// also when that fails.
pub fn load(
    means: Means,
    process: ProcessId,
    slots: &[Slot],
    cache: &mut SymbolCache,
    coverage: &mut Coverage,
) -> Result<Loaded, TargetError> {
    if slots.len() > MAX_SLOTS {
        return Err(TargetError::TooMany(slots.len()));
    }
    let symbols = find_symbols(process, &kinds::symbols(slots), cache)?;
    *coverage = cover(slots, &symbols);
    coverage.entry_only = means.returns_kill_confined && observe::is_confined(process);
    let sites: Vec<(Site, Duration)> = sites(means.calibration, slots, &symbols);
    if sites.is_empty() {
        return Err(match coverage.single_stepped_symbols[..] {
            [] => TargetError::NoSymbol(coverage.sentence()),
            _ => TargetError::SingleStepped(coverage.sentence()),
        });
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
        families: if slots.iter().any(|slot| slot.by_family) {
            families(observe::cpus())
        } else {
            0
        },
        entry_only: coverage.entry_only,
        ring_bytes: DEFAULT_RING_BYTES,
        trap_ns: means.calibration.trap_ns,
    };
    Ok(Loaded {
        probes: Probes::load(means.tier, &plan)?,
        costs,
    })
}

/// How many column families are told apart on a machine with so many CPUs.
fn families(cpus: u64) -> u32 {
    (FAMILY_BYTES / (FAMILY_BYTES_PER_CPU * cpus.max(1))).min(MAX_FAMILIES) as u32
}

/// What of the slots a binary can serve.
fn cover(slots: &[Slot], symbols: &Symbols) -> Coverage {
    let found = |function: &Function| symbols.found.get(&function.symbol);
    let operations = |lacking: &dyn Fn(&Slot) -> bool| {
        let lacking = slots.iter().filter(|slot| lacking(slot));
        lacking.map(|slot| slot.operation.to_string()).collect()
    };
    let missing = |slot: &Slot| {
        slot.functions
            .iter()
            .all(|function| found(function).is_none())
    };
    let left_out: Vec<_> = slots
        .iter()
        .flat_map(|slot| {
            let functions = slot.functions.iter();
            functions.filter(|function| {
                let mut locations = found(function).into_iter().flatten();
                locations.any(|location| is_left_out(slot, location))
            })
        })
        .map(|function| function.symbol.to_string())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let stepped = |slot: &Slot| {
        let locations = slot.functions.iter().filter_map(found).flatten();
        !missing(slot)
            && locations
                .into_iter()
                .all(|location| is_left_out(slot, location))
    };
    Coverage {
        missing_operations: operations(&missing),
        missing_symbols: symbols.missing.iter().map(ToString::to_string).collect(),
        stripped: symbols.stripped,
        single_stepped_operations: operations(&stepped),
        single_stepped_symbols: left_out,
        entry_only: false,
    }
}

fn is_left_out(slot: &Slot, location: &Location) -> bool {
    location.first_instruction == FirstInstruction::SingleStepped && !slot.include_single_stepped
}

/// A site for each function that is attached to, and what a call of it costs. One that has the names of two functions
/// of a slot is there once, or its calls would count twice.
fn sites(calibration: Calibration, slots: &[Slot], symbols: &Symbols) -> Vec<(Site, Duration)> {
    let mut sites = Vec::new();
    for (index, slot) in (0..=u8::MAX).zip(slots) {
        let mut seen = BTreeSet::new();
        for function in slot.functions {
            for location in symbols.found.get(&function.symbol).into_iter().flatten() {
                let place = (Arc::as_ptr(&location.binary), location.offset);
                if is_left_out(slot, location) || !seen.insert(place) {
                    continue;
                }
                let nanos = match location.first_instruction {
                    FirstInstruction::Emulated => calibration.cost_per_call_ns,
                    FirstInstruction::SingleStepped => calibration.single_step_cost_ns,
                };
                let site = Site {
                    symbol: function.symbol.to_string(),
                    binary: Arc::clone(&location.binary),
                    offset: location.offset,
                    slot: index,
                    payload: function.payload,
                    family: if slot.by_family {
                        function.family
                    } else {
                        FamilyArgument::None
                    },
                    cause: slot.cause.unwrap_or(0),
                    slow_threshold_ns: slot.slow_threshold_ns,
                };
                sites.push((site, Duration::from_nanos(nanos)));
            }
        }
    }
    sites
}

impl Coverage {
    /// What is missing, as the end of a message; empty when nothing is.
    pub fn sentence(&self) -> String {
        let mut sentence = String::new();
        if !self.missing_operations.is_empty() {
            let stripped = if self.stripped {
                "the binary is stripped (it has no symbol table): use a build that is not"
            } else {
                "the binary has a symbol table, but was built without them"
            };
            sentence += &format!(
                "; not measured: {}, since {} not found: {stripped}",
                self.missing_operations.join(", "),
                were(&self.missing_symbols)
            );
        }
        if !self.single_stepped_symbols.is_empty() {
            let operations = match &self.single_stepped_operations[..] {
                [] => String::new(),
                operations => format!(" (hence not measured: {})", operations.join(", ")),
            };
            sentence += &format!(
                "; {} left out{operations}, since the kernel would have to single-step the first instruction, at many \
                 times the cost: includeSingleStepped: true measures them all the same",
                were(&self.single_stepped_symbols)
            );
        }
        if self.entry_only {
            sentence += "; calls are counted and not timed, since on this kernel a probe at a function's return kills a \
                         process that is confined by seccomp, as this one is";
        }
        sentence
    }
}

fn were(symbols: &[String]) -> String {
    match symbols {
        [one] => format!("{one} was"),
        many => format!("{} were", many.join(", ")),
    }
}
