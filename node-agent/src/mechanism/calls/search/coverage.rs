//! What is lacking of what was asked for, by reason and in words.

use std::collections::BTreeSet;

use ckb_probe_crds::{Lack, Reason};

use super::places::{is_left_out, places};
use crate::{
    mechanism::{
        Coverage,
        calls::{Counted, Function},
    },
    observe::Symbols,
};

/// What a status lists of what is lacking for one reason.
const MAX_ITEMS: usize = 64;

pub(super) const CONFINED: &str = "; calls are counted and not timed, since on this kernel a probe at a function's return kills a \
                        process that is confined by seccomp, as this one is";

pub(super) const GO: &str = "; calls are counted and not timed, since Go moves its stacks, and a probe at a return would break the process";

/// What of it a binary cannot serve.
pub(super) fn cover(all: &[Counted], symbols: &Symbols) -> Coverage {
    let found = |function: &Function| symbols.found.get(&function.symbol);
    let missing = |counted: &&Counted| counted.functions.iter().all(|one| found(one).is_none());
    let rows = |lacking: &dyn Fn(&&Counted) -> bool| -> Vec<String> {
        let lacking = all.iter().filter(|counted| lacking(counted));
        lacking.map(|counted| counted.row.clone()).collect()
    };
    let stepped = |counted: &&Counted| !missing(counted) && places(counted, symbols).is_empty();
    let left_out: BTreeSet<String> = all
        .iter()
        .flat_map(|counted| {
            let functions = counted.functions.iter();
            functions.filter(|function| {
                let mut locations = found(function).into_iter().flatten();
                locations.any(|location| is_left_out(counted, location))
            })
        })
        .map(|function| function.symbol.to_string())
        .collect();
    let missing_symbols: BTreeSet<String> = all
        .iter()
        .flat_map(|counted| &counted.functions)
        .filter(|function| found(function).is_none())
        .map(|function| function.symbol.to_string())
        .collect();
    // One that has another function is measured.
    let of_missing_rows: BTreeSet<String> = all
        .iter()
        .filter(missing)
        .flat_map(|counted| &counted.functions)
        .map(|function| function.symbol.to_string())
        .collect();
    let missing_rows = rows(&missing);
    let sentence = [
        missing_sentence(&missing_rows, &of_missing_rows, symbols.stripped),
        stepped_sentence(&left_out, &rows(&stepped)),
    ];
    let lacks = [
        (
            Reason::SymbolNotFound,
            !missing_rows.is_empty(),
            missing_rows.clone(),
        ),
        (
            Reason::SingleStepped,
            !left_out.is_empty(),
            left_out.into_iter().collect(),
        ),
    ];
    let told = lacks.into_iter().filter(|(_, lacks, _)| *lacks);
    Coverage {
        lacks: told.map(|(reason, _, items)| lack(reason, items)).collect(),
        sentence: sentence.into_iter().flatten().collect(),
        may_grow: !missing_symbols.is_empty(),
    }
}

pub(in crate::mechanism::calls) fn lack(reason: Reason, mut items: Vec<String>) -> Lack {
    items.truncate(MAX_ITEMS);
    Lack { reason, items }
}

fn missing_sentence(rows: &[String], symbols: &BTreeSet<String>, stripped: bool) -> Option<String> {
    let why = if stripped {
        "the binary is stripped (it has no symbol table): use a build that is not"
    } else {
        "the binary has a symbol table, but was built without them"
    };
    (!rows.is_empty()).then(|| {
        format!(
            "; not measured: {}, since {} not found: {why}",
            rows.join(", "),
            were(symbols)
        )
    })
}

pub(in crate::mechanism::calls) fn stepped_sentence(
    left_out: &BTreeSet<String>,
    rows: &[String],
) -> Option<String> {
    let hence = match rows {
        [] => String::new(),
        rows => format!(" (hence not measured: {})", rows.join(", ")),
    };
    (!left_out.is_empty()).then(|| {
        format!(
            "; {} left out{hence}, since the kernel would have to single-step the first instruction, at many times the \
             cost: includeSingleStepped: true measures them all the same",
            were(left_out)
        )
    })
}

fn were(symbols: &BTreeSet<String>) -> String {
    let symbols: Vec<&str> = symbols.iter().map(String::as_str).collect();
    match symbols[..] {
        [one] => format!("{one} was"),
        _ => format!("{} were", symbols.join(", ")),
    }
}
