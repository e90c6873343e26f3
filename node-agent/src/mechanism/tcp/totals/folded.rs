//! What there is no room for, and so counts in `other`: how many rows and parts that is.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
};

use ckb_probe_crds::report::OTHER;

use super::row::RowTotals;

/// So many rows, and so many parts of all rows, are counted and no more: who meets ever new peers must not cost the agent ever
/// more memory.
pub const MOST: usize = 4096;

/// What was folded, each counted once however often it comes by.
#[derive(Debug, Default)]
pub struct Folded {
    /// Names need not be kept to be told from each other.
    hasher: RandomState,
    rows: BTreeSet<u64>,
    parts: BTreeMap<String, BTreeSet<u64>>,
}

impl Folded {
    /// This row is not told apart.
    pub fn row(&mut self, name: &str) {
        if self.rows.len() < MOST {
            self.rows.insert(self.hasher.hash_one(name));
        }
    }

    /// This part of a row is not.
    pub fn part(&mut self, row: &str, name: &str) {
        let known: usize = self.parts.values().map(BTreeSet::len).sum();
        if known < MOST {
            let parts = self.parts.entry(row.to_string()).or_default();
            parts.insert(self.hasher.hash_one(name));
        }
    }

    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    /// How many parts there are in this one: none but in that of the others.
    pub fn parts_of(&self, row: &RowTotals) -> u64 {
        let of_others = row.part.as_ref().is_some_and(|part| part.text == OTHER);
        let parts = self.parts.get(&row.row.text).filter(|_| of_others);
        parts.map_or(0, |parts| parts.len() as u64)
    }
}
