//! Which functions are seen most.

#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{Frame, Stacks};

/// A function, and how much of a sample type was seen in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// What it is called.
    pub name: String,
    /// The file that it is in, or nothing.
    pub module: String,
    /// What was seen while itself ran or waited.
    pub itself: u64,
    /// What was seen while it was on the stack. A stack on which it is twice counts once.
    pub total: u64,
}

/// The functions that are seen most, by two orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Top {
    /// By what was seen of themselves. Those of which nothing was seen are not there.
    pub by_self: Vec<Function>,
    /// By what was seen below them too.
    pub by_total: Vec<Function>,
    /// Of how much.
    pub of: u64,
}

/// So many functions that are seen most of a sample type.
pub fn top(stacks: &Stacks, place: usize, count: usize) -> Top {
    let mut sums: BTreeMap<Frame, [u64; 2]> = BTreeMap::new();
    let mut of = 0_u64;
    for stack in stacks.iter() {
        let weight = stack.weights.get(place).copied().unwrap_or_default();
        of = of.saturating_add(weight);
        // Folded stacks are one function, which is their first.
        let frames = match stack.frames.first() {
            Some(first) if first.name == crate::PRUNED => &stack.frames[..1],
            _ => &stack.frames[..],
        };
        for frame in frames.iter().collect::<BTreeSet<_>>() {
            let [_, total] = sums.entry(*frame).or_default();
            *total = total.saturating_add(weight);
        }
        if let Some(last) = frames.last() {
            let [itself, _] = sums.entry(*last).or_default();
            *itself = itself.saturating_add(weight);
        }
    }
    let functions = sums.into_iter().filter(|(_, [_, total])| *total > 0);
    let mut functions: Vec<Function> = functions
        .map(|(frame, [itself, total])| Function {
            name: frame.name.to_owned(),
            module: frame.module.to_owned(),
            itself,
            total,
        })
        .collect();
    // Both orders are stable: equals stay in the order of their names.
    functions.sort_by_key(|function| Reverse(function.total));
    let by_total = functions.iter().take(count).cloned().collect();
    functions.retain(|function| function.itself > 0);
    functions.sort_by_key(|function| Reverse(function.itself));
    functions.truncate(count);
    Top {
        by_self: functions,
        by_total,
        of,
    }
}
