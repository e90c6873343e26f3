//! The allocator of a process: where it is seen at work, unless the process [says by itself](said) what it allocates, and which functions are its own and
//! no callers of it.

use std::collections::BTreeSet;

use ckb_probe_symbols::elf::SiteError;

use super::{Call, StacksError, said};
use crate::{
    kernel::{
        CalibratedTier, LookedAt, Site,
        stacks::{Allocator, allocations},
    },
    mechanism::Refusal,
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
        "the process has no jemalloc 5.3 whose functions have names ({missing} is not there){}, nor the USDT probe otel_memory:alloc: what it \
         allocates is not seen; memory that it touches is, by the mode Memory",
        if *.stripped { ", and its executable has no symbol table" } else { "" }
    )]
    NotThere {
        /// What was looked for.
        missing: String,
        /// The executable has no symbol table.
        stripped: bool,
    },
    /// It says by itself what it allocates, in a way that cannot be read.
    #[error("the process says by itself what it allocates, and {0}")]
    Unreadable(Refusal),
    /// There is no attaching to where it does so.
    #[error(
        "the process says by itself what it allocates, and its probe otel_memory:{0} cannot be attached to: {1}"
    )]
    Refused(String, SiteError),
    /// It does so at too many places.
    #[error(
        "the process says by itself what it allocates and frees, at more than {most} places of its files, which is as many as are attached to: it is \
         not looked at, as a part would be told as all",
        most = said::PLACES
    )]
    Places,
}

/// What is known of the allocator, and what each time that it is met costs the process, in nanoseconds.
pub(super) fn find(
    process: ProcessId,
    means: &CalibratedTier,
) -> Result<(Allocator, u64), StacksError> {
    match said::find(process, means)? {
        Some(found) => Ok(found),
        None => jemalloc(process, means),
    }
}

fn jemalloc(process: ProcessId, means: &CalibratedTier) -> Result<(Allocator, u64), StacksError> {
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
        said: Vec::new(),
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

/// With what names end of which the compiler made another function.
const MADE_OF: [&str; 5] = [".constprop.", ".isra.", ".part.", ".cold", ".llvm."];

/// Frames between an allocator and where a process says what it does.
const SAYING: usize = 16;

/// Leaves of a stack those who ask the allocator. Where the process says what it does, whatever it calls for that is further in.
pub(super) fn leave_callers(calls: &mut Vec<Call>, said: bool) {
    let is_its_own = |call: &Call| is_its_own(&call.name);
    if said {
        let inner = calls.len().saturating_sub(SAYING);
        if let Some(asked) = calls[inner..].iter().position(is_its_own) {
            calls.truncate(inner + asked);
        }
    }
    while calls.last().is_some_and(is_its_own) {
        calls.pop();
    }
}

/// Whether a function is the allocator's own, or one by which a language asks it.
fn is_its_own(name: &str) -> bool {
    let made = MADE_OF.iter().filter_map(|end| name.find(end)).min();
    let name = &name[..made.unwrap_or(name.len())];
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
            "sdallocx.constprop.0",
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
    fn of_a_stack_those_are_left_who_ask_the_allocator() {
        let left = |names: &[&'static str], said| {
            let mut calls: Vec<Call> = names.iter().map(|name| Call::said(name)).collect();
            leave_callers(&mut calls, said);
            calls
                .iter()
                .map(|call| call.name.to_string())
                .collect::<Vec<_>>()
        };
        let stack = ["main", "caller", "malloc", "je_arena", "sample", "say"];
        assert_eq!(left(&stack, true), ["main", "caller"]);
        assert_eq!(left(&stack, false), stack);
        assert_eq!(left(&stack[..4], false), ["main", "caller"]);
        // Of one without such a name all of it is told.
        assert_eq!(
            left(&["main", "sample", "say"], true),
            ["main", "sample", "say"]
        );
        let far = [&["malloc"][..], &["handler"; SAYING], &["say"]].concat();
        assert_eq!(left(&far, true), far);
    }

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let said = NoAllocator::NotThere {
            missing: "f".into(),
            stripped: true,
        };
        let places = NoAllocator::Places.to_string();
        assert!(
            places.contains("at more than 64 places of its files"),
            "{places}"
        );
        assert_eq!(
            said.to_string(),
            "the process has no jemalloc 5.3 whose functions have names (f is not there), and its executable has no symbol table, nor the USDT probe \
             otel_memory:alloc: what it allocates is not seen; memory that it touches is, by the mode Memory"
        );
    }
}
