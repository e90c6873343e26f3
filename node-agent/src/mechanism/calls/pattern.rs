//! Functions by a pattern of their names.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_crds::Reason;

use super::{
    Counted, Matching,
    search::{Found, FoundSite, lack, stepped_sentence},
};
use crate::{
    kernel::{FamilyArgument, Payload},
    mechanism::{Coverage, Refusal},
    observe::{
        FirstInstruction, Function, FunctionCache, FunctionsError, ProcessId, find_functions,
    },
};

/// What a pattern found.
pub(super) struct Matched {
    groups: Vec<(Counted, Vec<FoundSite>)>,
    left_out: BTreeSet<String>,
    /// Returns must not be probed.
    go: bool,
}

impl From<FunctionsError> for Refusal {
    fn from(error: FunctionsError) -> Self {
        let reason = match error {
            FunctionsError::NoLibrary { .. }
            | FunctionsError::Stripped { .. }
            | FunctionsError::Nothing { .. } => Reason::SymbolNotFound,
            FunctionsError::Glob { .. } | FunctionsError::Search(_) => Reason::AttachFailed,
        };
        Self::new(reason, error.to_string())
    }
}

/// Looks for them, and refuses where there are too many.
pub(super) fn matching_functions(
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
    for Function {
        name,
        symbol,
        location,
        ..
    } in matches.found
    {
        if location.first_instruction == FirstInstruction::SingleStepped
            && !matching.include_single_stepped
        {
            left_out.insert(name);
            continue;
        }
        rows.entry(name).or_default().push(FoundSite {
            symbol,
            payload: Payload::Unknown,
            family: FamilyArgument::None,
            location,
        });
    }
    let group = |row: String| Counted {
        row,
        functions: Vec::new(),
        slow_threshold_ns: matching.slow_threshold_ns,
        cause: None,
        by_family: false,
        include_single_stepped: matching.include_single_stepped,
        arguments: matching.arguments.clone(),
        stacks: matching.stacks,
        found_by: Some((pattern.glob.clone(), pattern.library.clone())),
    };
    let rows = rows.into_iter();
    let matched = Matched {
        groups: rows.map(|(row, places)| (group(row), places)).collect(),
        left_out,
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

impl Matched {
    /// What is measured of it.
    pub(super) fn found(self) -> Found {
        let mut lacks = Vec::new();
        let sentence = stepped_sentence(&self.left_out, &[]).unwrap_or_default();
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
