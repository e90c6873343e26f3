//! The probe kinds: what each needs attached. A new kind is a module here, a line in [`slots`], a module of the
//! same name in `ckb-probe-crds`, and a program where calls are not what it counts.

pub mod rocksdb;

use std::collections::BTreeSet;

use ckb_probe_crds::Probe;

use crate::{
    observe::SymbolName,
    probe::{FamilyArgument, Payload},
};

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
    /// What slow calls of others may be due to: its number among the causes, from 1. None: no cause.
    pub cause: Option<u8>,
    /// Whether its column families are told apart.
    pub by_family: bool,
    /// Whether functions are attached to whose first instruction the kernel must single-step.
    pub include_single_stepped: bool,
}

/// A function, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name.
    pub symbol: SymbolName,
    /// Where the size of its payload is found.
    pub payload: Payload,
    /// Where its column family is found.
    pub family: FamilyArgument,
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

/// What a column family is called, by its number and its name in the database.
pub fn family_name(id: u32, name: &str) -> String {
    rocksdb::family_name(id, name)
}

/// The operations whose numbers are set in `during`: bit n for cause n.
pub fn causes(during: u32) -> Vec<String> {
    rocksdb::causes()
        .filter(|(number, _)| during & (1 << number) != 0)
        .map(|(_, operation)| operation.to_string())
        .collect()
}

/// Every symbol that the slots look for.
pub fn symbols(slots: &[Slot]) -> BTreeSet<SymbolName> {
    slots
        .iter()
        .flat_map(|slot| slot.functions)
        .map(|function| function.symbol)
        .collect()
}
