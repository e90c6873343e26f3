//! From a process and what is to be counted to probes in place.

use std::sync::Arc;

use ckb_probe_crds::Reason;

use crate::{
    kinds::{self, Slot},
    observe::{ObserveError, ProcessId, Symbols, SymbolsError, find_symbols},
    probe::{AttachError, DEFAULT_RING_BYTES, Means, Plan, Probes, Site},
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
            Self::Symbols(_) | Self::Attach(_) | Self::Gone(_) => Reason::AttachFailed,
        }
    }
}

/// Searches the process's binaries and attaches to what is there. `coverage` is filled as far as it is known, also
/// when the attach fails.
pub fn attach(
    means: Means,
    process: ProcessId,
    slots: &[Slot],
    coverage: &mut Coverage,
) -> Result<Probes, TargetError> {
    let symbols = find_symbols(process, &kinds::symbols(slots))?;
    *coverage = cover(slots, &symbols);
    let plan = Plan {
        pid: process.pid,
        slots: u8::try_from(slots.len()).unwrap_or(u8::MAX),
        sites: sites(slots, &symbols),
        ring_bytes: DEFAULT_RING_BYTES,
        trap_ns: means.calibration.trap_ns,
    };
    if plan.sites.is_empty() {
        return Err(TargetError::NoSymbol(coverage.sentence()));
    }
    Ok(Probes::attach(means.tier, &plan)?)
}

/// What of the slots a binary can serve.
fn cover(slots: &[Slot], symbols: &Symbols) -> Coverage {
    let missing_operations = slots
        .iter()
        .filter(|slot| {
            !slot
                .functions
                .iter()
                .any(|function| symbols.found.contains_key(function.symbol))
        })
        .map(|slot| slot.operation.to_string())
        .collect();
    Coverage {
        missing_operations,
        missing_symbols: symbols.missing.iter().cloned().collect(),
        stripped: symbols.stripped,
    }
}

/// A site for each function that was found.
fn sites(slots: &[Slot], symbols: &Symbols) -> Vec<Site> {
    let mut sites = Vec::new();
    for (index, slot) in (0..=u8::MAX).zip(slots) {
        for function in slot.functions {
            if let Some(location) = symbols.found.get(function.symbol) {
                sites.push(Site {
                    symbol: function.symbol.to_string(),
                    binary: Arc::clone(&location.binary),
                    offset: location.offset,
                    slot: index,
                    payload: function.payload,
                    slow_threshold_ns: slot.slow_threshold_ns,
                });
            }
        }
    }
    sites
}

impl Coverage {
    /// What is missing, as the end of a message; empty when nothing is.
    pub fn sentence(&self) -> String {
        if self.missing_operations.is_empty() {
            return String::new();
        }
        let stripped = if self.stripped {
            "the binary is stripped (it has no symbol table): use a build that is not"
        } else {
            "the binary has a symbol table, but was built without them"
        };
        format!(
            "; not measured: {}, since {} not found: {stripped}",
            self.missing_operations.join(", "),
            match &self.missing_symbols[..] {
                [one] => format!("{one} was"),
                many => format!("{} were", many.join(", ")),
            }
        )
    }
}
