//! Functions by a pattern of their names.

mod between;

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_crds::Reason;

use super::{
    Counted, Matching,
    search::{Found, FoundSite, lack, stepped_sentence},
};
use crate::{
    kernel::{FamilyArgument, Payload},
    mechanism::{Coverage, Refusal},
    observe::{Function, FunctionCache, FunctionsError, ProcessId, find_functions},
};

/// What a pattern found.
pub(super) struct Matched {
    groups: Vec<(Counted, Vec<FoundSite>)>,
    left_out: BTreeSet<String>,
    /// Rows that have others' calls, and what these are called.
    shared: BTreeMap<String, BTreeSet<String>>,
    /// Functions that have calls of a row, and are not in it.
    variants: Vec<String>,
    /// What is called by a name that matches, and is in no row.
    indirect: Vec<String>,
    /// Returns must not be probed.
    go: bool,
}

impl From<FunctionsError> for Refusal {
    fn from(error: FunctionsError) -> Self {
        let reason = match error {
            FunctionsError::NoLibrary { .. }
            | FunctionsError::Stripped { .. }
            | FunctionsError::Indirect { .. }
            | FunctionsError::Nothing { .. } => Reason::SymbolNotFound,
            FunctionsError::Glob { .. } | FunctionsError::Search(_) => Reason::AttachFailed,
        };
        Self::new(reason, error.to_string())
    }
}

/// Looks for what is asked: functions, or those from which to which time is measured.
pub(super) fn sought_functions(
    process: ProcessId,
    matching: &Matching,
    cache: &FunctionCache,
) -> Result<Matched, Refusal> {
    match &matching.span {
        None => matching_functions(process, matching, cache),
        Some(span) => between::spanning(matching, span, |one| {
            matching_functions(process, one, cache)
        }),
    }
}

/// Looks for them, and refuses where there are too many.
fn matching_functions(
    process: ProcessId,
    matching: &Matching,
    cache: &FunctionCache,
) -> Result<Matched, Refusal> {
    let pattern = &matching.pattern;
    let matches = find_functions(process, pattern, cache)?;
    if matches.total > pattern.limit {
        return Err(Refusal::new(
            Reason::TooManyMatches,
            format!(
                "{} matches {} functions, more than the limit of {}: for example {}; name fewer, or raise limit",
                pattern.glob,
                matches.total,
                pattern.limit,
                matches.sample.join(", ")
            ),
        ));
    }
    // Overloads have one name, and one row.
    let mut rows: BTreeMap<String, Vec<FoundSite>> = BTreeMap::new();
    let mut left_out = BTreeSet::new();
    let mut shared: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Function {
        name,
        symbol,
        location,
        others,
        ..
    } in matches.found
    {
        if location.is_left_out(matching.include_single_stepped) {
            left_out.insert(name);
            continue;
        }
        if !others.is_empty() {
            shared.entry(name.clone()).or_default().extend(others);
        }
        rows.entry(name).or_default().push(FoundSite {
            symbol,
            payload: Payload::Unknown,
            family: FamilyArgument::None,
            location,
            semaphore: None,
            entry_only: false,
            hit: None,
        });
    }
    let rows = rows.into_iter();
    let rows = rows.map(|(row, places)| (counted(row, matching), places));
    let matched = Matched {
        groups: rows.collect(),
        left_out,
        shared,
        variants: matches.variants,
        indirect: matches.indirect,
        go: matches.go,
    };
    if matched.groups.is_empty() {
        let sentence = stepped_sentence(&matched.left_out, &[]).unwrap_or_default();
        return Err(Refusal {
            lacks: vec![lack(
                Reason::SingleStepped,
                matched.left_out.into_iter().collect(),
            )],
            ..Refusal::new(
                Reason::SingleStepped,
                format!(
                    "nothing that matches {} is measured{sentence}",
                    pattern.glob
                ),
            )
        });
    }
    Ok(matched)
}

fn counted(row: String, matching: &Matching) -> Counted {
    let pattern = &matching.pattern;
    Counted {
        slow_threshold_ns: matching.slow_threshold_ns,
        span: matching.span.clone(),
        include_single_stepped: matching.include_single_stepped,
        arguments: matching.arguments.clone(),
        stacks: matching.stacks,
        found_by: Some((pattern.glob.clone(), pattern.library.clone())),
        ..Counted::plain(row, Vec::new())
    }
}

impl Matched {
    /// What is measured of it.
    pub(super) fn found(self) -> Found {
        let mut lacks = Vec::new();
        let sentences = [
            stepped_sentence(&self.left_out, &[]),
            shared_sentence(&self.shared),
            variants_sentence(&self.variants),
            indirect_sentence(&self.indirect),
        ];
        let sentence = sentences.into_iter().flatten().collect();
        if !self.left_out.is_empty() {
            let items = self.left_out.into_iter().collect();
            lacks.push(lack(Reason::SingleStepped, items));
        }
        Found {
            groups: self.groups,
            coverage: Coverage {
                lacks,
                sentence,
                may_grow: false,
            },
            go: self.go,
        }
    }
}

/// Names that a sentence has, of each sort.
const NAMED: usize = 5;

/// What has several names counts under one of them.
fn shared_sentence(shared: &BTreeMap<String, BTreeSet<String>>) -> Option<String> {
    let rows = shared.iter().map(|(row, others)| {
        let others: Vec<String> = others.iter().cloned().collect();
        let what = if others.len() == 1 { "name" } else { "names" };
        format!("{row} has also the {what} {}", listed(&others))
    });
    let rows: Vec<String> = rows.collect();
    (!rows.is_empty()).then(|| {
        format!(
            "; {}: the linker found one code for all of these, and their calls count together",
            listed(&rows)
        )
    })
}

/// What the compiler made of a function for some of its callers is another function.
fn variants_sentence(variants: &[String]) -> Option<String> {
    let are = if variants.len() == 1 { "is" } else { "are" };
    (!variants.is_empty()).then(|| {
        format!(
            "; for some callers there {are} also {}, not counted: a pattern with a dot finds such",
            listed(variants)
        )
    })
}

/// What the loader picks for the machine is called by another name.
fn indirect_sentence(indirect: &[String]) -> Option<String> {
    let are = if indirect.len() == 1 { "is" } else { "are" };
    (!indirect.is_empty()).then(|| {
        format!(
            "; {} {are} picked for the machine as the program begins, and what is called by then has another name: it is not counted",
            listed(indirect)
        )
    })
}

/// The first of them, and how many more there are.
fn listed(names: &[String]) -> String {
    let named = names.len().min(NAMED);
    let more = match names.len() - named {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", names[..named].join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_several_names_is_told_and_so_is_what_is_not_counted() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let one: BTreeMap<_, _> =
            [("a::f".to_string(), names(&["b::g"]).into_iter().collect())].into();
        assert_eq!(
            shared_sentence(&one).unwrap(),
            "; a::f has also the name b::g: the linker found one code for all of these, and their calls count together"
        );
        assert_eq!(shared_sentence(&BTreeMap::new()), None);
        assert_eq!(
            variants_sentence(&names(&["f.constprop.0"])).unwrap(),
            "; for some callers there is also f.constprop.0, not counted: a pattern with a dot finds such"
        );
        assert_eq!(
            variants_sentence(&names(&["f.1", "f.2", "f.3", "f.4", "f.5", "f.6", "f.7"])).unwrap(),
            "; for some callers there are also f.1, f.2, f.3, f.4, f.5 and 2 more, not counted: a pattern with a dot finds such"
        );
        assert_eq!(variants_sentence(&[]), None);
        assert_eq!(
            indirect_sentence(&names(&["memcpy", "strlen"])).unwrap(),
            "; memcpy, strlen are picked for the machine as the program begins, and what is called by then has another name: it is not counted"
        );
        assert_eq!(indirect_sentence(&[]), None);
    }
}
