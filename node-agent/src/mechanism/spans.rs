//! What one thread of a process does between the beginning of a database transaction and its commit, as one thing: a **span**.
//!
//! A kind says which functions begin and end a span, which calls it consists of, and by which keys it is named
//! ([`SpansConfig`]); and what all that means ([`Decode`]). Calls are seen by uprobes, as those of the mechanism `calls`, but add up
//! by span instead of by function. There is one group: a span of which some functions were attached and others
//! not would be told as less than it was.

mod search;
mod threads;

use std::{fmt, sync::Arc};

use ckb_probe_crds::Figures;

use super::{
    Accepted, BeginContext, Begun, Breakdown, Config, Detail, OneBegun, Refusal, Subscription,
    stacks::Callers,
};
use threads::SpanThreads;

pub use crate::kernel::spans::{
    OPERATIONS, PartFamily, SpanCalls, SpanReading, SpanUsage, end, role,
};
use crate::{kernel::FamilyArgument, observe::SymbolName};

/// What a kind wants of the spans of a process.
#[derive(Clone, Debug)]
pub struct SpansConfig {
    /// Whose spans: the name of the thread, of no more than 15 bytes.
    pub thread_name: &'static str,
    /// What they consist of: no more than [`OPERATIONS`].
    pub operations: &'static [Operation],
    /// The column family whose keys of eight bytes are names of spans: a name of no more than seven bytes.
    pub names: &'static str,
    /// The one into which the units of a span are put, likewise.
    pub units: &'static str,
    /// Whether operations are told apart by column family.
    pub by_family: bool,
    /// Spans that take at least so long are told one by one.
    pub threshold_ns: u64,
    /// Whether they are told with their stacks.
    pub stacks: bool,
    /// What it means.
    pub decode: Arc<dyn Decode>,
}

/// An operation that spans consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The name of the operation.
    pub name: &'static str,
    /// One of [`role`].
    pub role: u8,
    /// The functions, any of which may be missing from a binary.
    pub functions: &'static [SymbolName],
    /// Which of their arguments is the column family.
    pub family: FamilyArgument,
    /// Whether functions are attached to whose first instruction the kernel must single-step: where calls are rare.
    pub include_single_stepped: bool,
}

/// What a kind makes of spans. Pure.
pub trait Decode: fmt::Debug + Send + Sync {
    /// What was counted of all spans of an [`end`], but for their operations. Calls of operations without column families are in
    /// the place of the operation.
    fn figures(&self, end: usize, read: &SpanReading) -> Figures;

    /// What an operation is called as a part of a row, on a column family where these are told apart.
    fn part_name(&self, operation: &Operation, family: Option<&PartFamily>) -> String;

    /// The figures of an operation of theirs; None where it is no part of a row.
    fn operation(&self, operation: &Operation, calls: SpanCalls) -> Option<Figures>;

    /// What is said of one span.
    fn event(&self, span: &SeenSpan<'_>) -> Vec<(&'static str, Detail)>;
}

/// A span that is told by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenSpan<'a> {
    /// How it ended: one of [`end`].
    pub end: usize,
    /// How long it took.
    pub duration_ns: u64,
    /// Its last name, if it has any.
    pub name: Option<u64>,
    /// How many names it was given.
    pub names: u32,
    /// What was put under that name, where that had 32 bytes.
    pub value: Option<[u8; 32]>,
    /// How many names were taken back.
    pub taken_back: u32,
    /// How many units were put.
    pub units: u32,
    /// Bytes of all keys and values that were put.
    pub bytes: u64,
    /// What the thread used meanwhile; None where this kernel does not tell.
    pub usage: Option<SpanUsage>,
    /// What of that was in the phase.
    pub phase: Option<SpanUsage>,
    /// What it consisted of, as far as there was anything.
    pub parts: Vec<SeenPart<'a>>,
    /// Who called what took longest in it, where that is known.
    pub stack: Option<SeenStack<'a>>,
}

/// The stack of a call in a span, as it returned.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenStack<'a> {
    /// The call: the longest, or where none was long the last.
    pub operation: &'a Operation,
    /// The callers of that call, from the innermost on.
    pub callers: Arc<Callers>,
}

/// A part of a span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeenPart<'a> {
    /// The operation.
    pub operation: &'a Operation,
    /// The column family, where these are told apart and it has one.
    pub family: Option<&'a PartFamily>,
    /// Its calls.
    pub calls: SpanCalls,
}

impl Config for SpansConfig {
    fn begin(configs: &[Self], context: BeginContext<'_>) -> Begun {
        let sets = Set::all(configs);
        let lowest: Vec<Self> = sets.iter().map(|set| set.lowest.clone()).collect();
        let Begun {
            answers,
            mechanisms,
        } = Begun::each(&lowest, context, Self::begin_one);
        let own = |(place, config): (usize, &Self)| {
            let of = sets.iter().position(|set| set.places.contains(&place));
            let answer = of.and_then(|of| answers.get(of)).cloned();
            answer.map(|answer| answer.map(|accepted| config.own(accepted)))
        };
        Begun {
            answers: configs.iter().enumerate().filter_map(own).collect(),
            mechanisms,
        }
    }
}

/// Those that differ in their thresholds alone, and in whether they want stacks: one attaches for all of them, and tells what any of
/// them wants to know.
struct Set {
    places: Vec<usize>,
    /// The one with the lowest threshold.
    lowest: SpansConfig,
}

impl Set {
    fn all(configs: &[SpansConfig]) -> Vec<Self> {
        let mut sets: Vec<Self> = Vec::new();
        for (place, config) in configs.iter().enumerate() {
            match sets.iter_mut().find(|set| set.lowest.is_like(config)) {
                Some(set) => {
                    set.places.push(place);
                    let stacks = set.lowest.stacks || config.stacks;
                    if config.threshold_ns < set.lowest.threshold_ns {
                        set.lowest = config.clone();
                    }
                    set.lowest.stacks = stacks;
                }
                None => sets.push(Self {
                    places: vec![place],
                    lowest: config.clone(),
                }),
            }
        }
        sets
    }
}

impl SpansConfig {
    /// Whether the same is asked but for the threshold.
    fn is_like(&self, other: &Self) -> bool {
        let key = |one: &Self| {
            (
                one.thread_name,
                one.operations,
                one.names,
                one.units,
                one.by_family,
            )
        };
        key(self) == key(other)
    }

    /// What was accepted for all that are alike, as this one asked.
    fn own(&self, mut accepted: Accepted) -> Accepted {
        for subscription in &mut accepted.subscriptions {
            // The weight of a span is its duration.
            subscription.least_weight = self.threshold_ns;
            subscription.reports_stacks = self.stacks;
        }
        accepted
    }

    fn begin_one(&self, context: BeginContext<'_>) -> Result<OneBegun, Refusal> {
        let means = context.node.tier.clone()?;
        let found = self.find(means, &context)?;
        let coverage = found.coverage.clone();
        let threads = SpanThreads::load(self, means, found, &context)?;
        let accepted = Accepted {
            subscriptions: vec![Subscription {
                group: context.first,
                parts: Breakdown::Some,
                ..Subscription::default()
            }],
            coverage,
        };
        Ok((Box::new(threads), accepted))
    }
}
