//! What else the functions are called that match, and what else is called so: who reads a row should know of both.
//!
//! Linkers merge functions that have the same code, and compilers make variants of a function for some of its callers. Neither
//! is told by the name that matches.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::Named;
use crate::{
    demangle::{Form, demangle, form, plain, without_variant},
    glob::Glob,
    text,
};

/// What is noted of names takes no more of memory than this. Those of CKB take a tenth of it.
const BYTES_LIMIT: usize = 4 << 20;

/// So many variants are listed.
const VARIANT_LIMIT: usize = 64;

/// Names beside those that match, so far.
#[derive(Default)]
pub(super) struct OtherNames {
    /// Where more than one symbol says that a function is.
    shared: HashSet<u64>,
    /// The symbols there.
    symbols: BTreeMap<u64, BTreeSet<String>>,
    variants: BTreeSet<String>,
    bytes: usize,
}

impl OtherNames {
    /// Notes which places have several names, of one symbol table.
    pub(super) fn look_at(&mut self, functions: &[Named]) {
        let mut places: Vec<(u64, u32)> = functions
            .iter()
            .map(|(name, _, offset)| (*offset, *name))
            .collect();
        places.sort_unstable();
        places.dedup();
        let shared = places.windows(2).filter_map(|two| match two {
            [(one, _), (other, _)] if one == other => Some(*one),
            _ => None,
        });
        self.shared.extend(shared);
    }

    /// Notes a symbol.
    pub(super) fn take(&mut self, symbol: &str, offset: u64) {
        if self.shared.contains(&offset) && self.has_room(symbol) {
            let known = self.symbols.entry(offset).or_default();
            known.insert(symbol.to_string());
        }
    }

    /// Notes a variant, if the function that it is one of matches.
    pub(super) fn take_variant(&mut self, symbol: &str, glob: &Glob) {
        if form(symbol) != Form::Clone || self.variants.len() == VARIANT_LIMIT {
            return;
        }
        let whole = without_variant(symbol);
        let plain = plain(whole);
        let name = demangle(whole).unwrap_or_else(|| plain.to_string());
        if glob.matches(&name) || glob.matches(plain) {
            let variant = symbol.strip_prefix(whole).unwrap_or_default();
            self.variants
                .insert(text::shown(&format!("{name}{variant}")));
        }
    }

    fn has_room(&mut self, symbol: &str) -> bool {
        let has_room = self.bytes + symbol.len() <= BYTES_LIMIT;
        if has_room {
            self.bytes += symbol.len();
        }
        has_room
    }

    /// What else the function is called that is there.
    pub(super) fn of(&self, offset: u64, name: &str) -> Vec<String> {
        let symbols = self.symbols.get(&offset).into_iter().flatten();
        let names = symbols.filter(|symbol| form(symbol) != Form::Fragment);
        let names = names.map(|symbol| {
            let name = demangle(symbol).unwrap_or_else(|| plain(symbol).to_string());
            text::shown(&name)
        });
        let names: BTreeSet<String> = names.filter(|other| other != name).collect();
        names.into_iter().collect()
    }

    /// Variants of functions that match: in no figure of theirs.
    pub(super) fn into_variants(self) -> Vec<String> {
        self.variants.into_iter().collect()
    }
}
