//! The probe kinds: what each needs attached. A new kind is a module here, a line in [`slots`], a module of the
//! same name in `ckb-probe-crds`, and a program where calls are not what it counts.

pub mod rocksdb;

use std::collections::BTreeSet;

use ckb_probe_crds::Probe;

use crate::probe::Payload;

/// One thing that is counted: an operation of a probe, and the functions whose calls count as it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The probe's name in the spec.
    pub probe: String,
    /// The operation.
    pub operation: &'static str,
    /// The functions, any of which may be missing from a binary.
    pub functions: &'static [Function],
    /// Calls that take at least this long are slow.
    pub slow_threshold_ns: u64,
}

/// A function, by its exact name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The symbol.
    pub symbol: &'static str,
    /// Where the size of its payload is found.
    pub payload: Payload,
}

impl Slot {
    /// Whether the payload of every function is known, so that a byte count means something.
    pub fn has_bytes(&self) -> bool {
        self.functions
            .iter()
            .all(|function| function.payload != Payload::Unknown)
    }
}

/// What the probes of a spec count, in their order.
pub fn slots(probes: &[Probe]) -> Vec<Slot> {
    probes
        .iter()
        .flat_map(|Probe { name, rocksdb }| {
            rocksdb
                .iter()
                .flat_map(move |kind| rocksdb::slots(name, kind))
        })
        .collect()
}

/// Every symbol that the slots look for.
pub fn symbols(slots: &[Slot]) -> BTreeSet<String> {
    slots
        .iter()
        .flat_map(|slot| slot.functions)
        .map(|function| function.symbol.to_string())
        .collect()
}
