//! One row of a group, and its parts.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    Figures,
    report::{MAX_PARTS, OTHER},
};

use super::super::accumulator::Accumulator;
use crate::{kinds::Instrument, mechanism::RowId};

/// One row.
#[derive(Clone, Debug, Default)]
pub struct RowState {
    /// All of it.
    pub all: Accumulator,
    /// Its parts, where they are told apart.
    pub parts: BTreeMap<String, Accumulator>,
    pub(super) names: BTreeMap<u64, String>,
    /// How many parts are not told apart, here and already by the mechanism.
    pub(super) folded: (u64, u64),
}

/// What was read of a row.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) all: Figures,
    pub(super) parts: BTreeMap<String, Figures>,
}

impl RowState {
    pub(super) fn observe(&mut self, seen: &Seen) -> bool {
        for (name, part) in &mut self.parts {
            match seen.parts.get(name) {
                Some(figures) => {
                    part.observe(figures);
                }
                None => part.vanished(),
            }
        }
        self.all.observe(&seen.all)
    }

    pub(super) fn vanished(&mut self) {
        for tally in std::iter::once(&mut self.all).chain(self.parts.values_mut()) {
            tally.vanished();
        }
    }

    /// What a part counts under.
    pub(super) fn part_name(
        &mut self,
        raw: Option<&RowId>,
        figures: &Figures,
        room: impl FnOnce(&Figures) -> bool,
        instrument: &dyn Instrument,
    ) -> String {
        let known = raw.and_then(|raw| self.names.get(&raw.place));
        if let Some(name) = known {
            return name.clone();
        }
        let own = raw.map_or_else(|| OTHER.to_string(), |raw| instrument.part(raw));
        let (name, folded) = with_room(own, &self.parts, MAX_PARTS, || room(figures));
        self.folded.0 += u64::from(folded);
        self.parts.entry(name.clone()).or_default();
        if let Some(raw) = raw {
            self.names.insert(raw.place, name.clone());
        }
        name
    }
}

/// The name, if it is known or there may be one more besides the one of the others, and there is `room`; otherwise theirs, and that it is so.
pub(super) fn with_room<T>(
    own: String,
    known: &BTreeMap<String, T>,
    most: usize,
    room: impl FnOnce() -> bool,
) -> (String, bool) {
    let named = known.keys().filter(|name| *name != OTHER).count();
    if own == OTHER || known.contains_key(&own) || named + 1 < most && room() {
        (own, false)
    } else {
        (OTHER.to_string(), true)
    }
}
