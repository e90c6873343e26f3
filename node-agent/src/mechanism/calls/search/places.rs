//! Where what is counted is in the files of a process.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    kernel::{FamilyArgument, LookedAt, Payload},
    mechanism::calls::Counted,
    observe::{Location, Symbols},
};

/// A function that is attached to.
pub(in crate::mechanism::calls) struct FoundSite {
    pub(in crate::mechanism::calls) symbol: String,
    pub(in crate::mechanism::calls) payload: Payload,
    pub(in crate::mechanism::calls) family: FamilyArgument,
    pub(in crate::mechanism::calls) location: Location,
    /// The offset of the counter in the file that whoever attaches must raise.
    pub(in crate::mechanism::calls) semaphore: Option<u64>,
    /// It is counted as it is met: no function begins there that would return.
    pub(in crate::mechanism::calls) entry_only: bool,
    /// What is looked at as it is met, beyond that it is.
    pub(in crate::mechanism::calls) hit: Option<LookedAt>,
}

impl FoundSite {
    /// Whether the other one is at the same place.
    pub(in crate::mechanism::calls) fn is_at(&self, other: &Self) -> bool {
        self.location.offset == other.location.offset
            && Arc::ptr_eq(&self.location.binary, &other.location.binary)
    }
}

/// Where the functions are that are attached to. A place that has the names of two functions is there once, or its calls would
/// count twice.
pub(super) fn places(counted: &Counted, symbols: &Symbols) -> Vec<FoundSite> {
    let mut seen = BTreeMap::new();
    for function in &counted.functions {
        for location in symbols.found.get(&function.symbol).into_iter().flatten() {
            if !is_left_out(counted, location) {
                let place = (Arc::as_ptr(&location.binary), location.offset);
                seen.entry(place).or_insert_with(|| FoundSite {
                    symbol: function.symbol.to_string(),
                    payload: function.payload,
                    family: function.family,
                    location: location.clone(),
                    semaphore: None,
                    entry_only: false,
                    hit: None,
                });
            }
        }
    }
    let mut places: Vec<FoundSite> = seen.into_values().collect();
    places.sort_by_key(|place| place.location.offset);
    places
}

pub(super) fn is_left_out(counted: &Counted, location: &Location) -> bool {
    location.is_left_out(counted.include_single_stepped)
}
