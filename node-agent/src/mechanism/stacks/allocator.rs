//! The allocator of a process: where it is seen at work, and which functions are its own and no callers of it.

use std::collections::BTreeSet;

use super::StacksError;
use crate::{
    kernel::{
        CalibratedTier, LookedAt, Site,
        stacks::{Allocator, allocations},
    },
    observe::{FirstInstruction, ProcessId, SymbolCache, SymbolName, find_symbols},
};

/// What jemalloc 5.3 calls the functions in which it is seen, with what they are among [`allocations`]: in Rust's crates, and by itself.
const FUNCTIONS: [[(SymbolName, u32); 4]; 2] = [
    [
        (
            SymbolName::Exact("_rjem_je_te_event_trigger"),
            allocations::STOPS,
        ),
        (
            SymbolName::Exact("_rjem_je_large_palloc"),
            allocations::ALLOCATES,
        ),
        (
            SymbolName::Exact("_rjem_je_large_ralloc"),
            allocations::GROWS,
        ),
        (
            SymbolName::Exact("_rjem_je_large_dalloc"),
            allocations::FREES,
        ),
    ],
    [
        (SymbolName::Exact("je_te_event_trigger"), allocations::STOPS),
        (SymbolName::Exact("je_large_palloc"), allocations::ALLOCATES),
        (SymbolName::Exact("je_large_ralloc"), allocations::GROWS),
        (SymbolName::Exact("je_large_dalloc"), allocations::FREES),
    ],
];

/// Why what a process allocates cannot be seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAllocator {
    /// It has another, or one without names.
    #[error(
        "the process has no jemalloc 5.3 whose functions have names ({missing} is not there){}: what it allocates is not seen; memory that it \
         touches is, by the mode Memory",
        if *.stripped { ", and its executable has no symbol table" } else { "" }
    )]
    NotThere {
        /// What was looked for.
        missing: String,
        /// The executable has no symbol table.
        stripped: bool,
    },
}

/// What is known of the allocator, and what each time that it is met costs the process, in nanoseconds.
pub(super) fn find(
    process: ProcessId,
    means: &CalibratedTier,
) -> Result<(Allocator, u64), StacksError> {
    let all = || FUNCTIONS.iter().flatten();
    let names: BTreeSet<SymbolName> = all().map(|(name, _)| *name).collect();
    let symbols = find_symbols(process, &names, &SymbolCache::default())?;
    let has = |functions: &&[(SymbolName, u32); 4]| {
        let mut names = functions.iter();
        names.all(|(name, _)| symbols.found.contains_key(name))
    };
    let Some(functions) = FUNCTIONS.iter().find(has) else {
        let mut missing = FUNCTIONS[0].iter();
        let missing = missing.find(|(name, _)| !symbols.found.contains_key(name));
        return Err(NoAllocator::NotThere {
            missing: missing.map_or_else(String::new, |(name, _)| name.to_string()),
            stripped: symbols.stripped,
        }
        .into());
    };
    let mut cost_ns = 0;
    let mut sites = Vec::new();
    for (name, role) in functions {
        for location in symbols.found.get(name).into_iter().flatten().take(1) {
            let steps = location.first_instruction == FirstInstruction::SingleStepped;
            let calibration = &means.calibration;
            let further = match steps {
                true => calibration
                    .single_step_cost_ns
                    .saturating_sub(calibration.cost_per_call_ns),
                false => 0,
            };
            cost_ns = cost_ns.max(calibration.counted_cost_ns + further);
            sites.push(Site {
                entry_only: true,
                hit: Some(LookedAt::default()),
                ..Site::plain(
                    name.as_str(),
                    location.binary.clone(),
                    location.offset,
                    *role as u8,
                )
            });
        }
    }
    let allocator = Allocator {
        tier: means.tier,
        sites,
    };
    Ok((allocator, cost_ns))
}

/// Functions of jemalloc's and of languages that hand on what they are asked for, by how they are called.
const ENTRANCES: [&str; 22] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "cfree",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "mallocx",
    "rallocx",
    "xallocx",
    "dallocx",
    "sdallocx",
    "do_rallocx",
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_realloc",
    "__rust_dealloc",
    "ifree",
    "isfree",
];

/// And how the names of others begin.
const BEGINNINGS: [&str; 9] = [
    "_rjem_",
    "je_",
    "operator new",
    "operator delete",
    "__rg_",
    "__rdl_",
    "tikv_jemallocator::",
    "<tikv_jemallocator::Jemalloc as ",
    "imalloc",
];

/// Whether a function is the allocator's own, or one by which a language asks it.
pub(super) fn is_its_own(name: &str) -> bool {
    let plain = name.rsplit("::").next().unwrap_or(name);
    ENTRANCES.contains(&plain) && (plain == name || plain.starts_with("__rust_"))
        || BEGINNINGS.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_and_what_hands_on_to_it_are_no_callers() {
        for name in [
            "_rjem_je_te_event_trigger",
            "je_large_palloc",
            "malloc",
            "do_rallocx",
            "__rust_alloc",
            "__rustc::__rust_realloc",
            "operator new",
            "<tikv_jemallocator::Jemalloc as core::alloc::global::GlobalAlloc>::alloc",
        ] {
            assert!(is_its_own(name), "{name}");
        }
        for name in [
            "rocksdb_free",
            "CRYPTO_malloc",
            "alloc::raw_vec::RawVecInner<A>::finish_grow",
            "ckb_chain::free",
            "jemalloc_user",
        ] {
            assert!(!is_its_own(name), "{name}");
        }
    }

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let said = NoAllocator::NotThere {
            missing: "f".into(),
            stripped: true,
        };
        assert_eq!(
            said.to_string(),
            "the process has no jemalloc 5.3 whose functions have names (f is not there), and its executable has no symbol table: what it \
             allocates is not seen; memory that it touches is, by the mode Memory"
        );
    }
}
