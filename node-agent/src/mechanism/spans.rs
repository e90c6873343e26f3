//! What one thread of a process does between the beginning of a database transaction and its commit, as one thing: a **span**.
//!
//! A kind says which functions begin and end a span, which calls it consists of, and by which keys it is named
//! ([`SpansConfig`]); and what all that means ([`Decode`]). Calls are seen by uprobes, as those of the mechanism `calls`, but add up
//! by span instead of by function. There is one group: a span of which some functions were attached and others
//! not would be told as less than it was.

mod search;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use ckb_probe_crds::{Figures, Name};
use k8s_openapi::jiff::Timestamp;

use super::{
    Accepted, BeginContext, Begun, Breakdown, Config, Detail, Event, GroupIds, Lost, Mechanism,
    OneBegun, Reading, Refusal, RowId, RowReading, Subscription,
    calls::origins::{Origins, PendingStacks},
    shared::{Gate, OneGroup},
    stacks::Callers,
};
use search::CallCost;

pub use crate::kernel::spans::{PartFamily, SpanCalls, SpanReading, SpanUsage, end, role};
use crate::{
    kernel::{
        AttachError, FamilyArgument, Links, ReadError,
        spans::{OPERATIONS, Span, SpanPlan, Spans},
    },
    observe::{self, SymbolName},
};

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
    /// Who called.
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

/// A call that took less is not what made a span long, whatever the threshold.
const LEAST_STACK_NS: u64 = 100_000;

/// A hit is a nanosecond: calls of other threads cost less than those of the thread.
const HIT: Duration = Duration::from_nanos(1);

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
        let plan = SpanPlan {
            pid: context.process.pid,
            sites: found.sites,
            roles: self.roles(),
            thread_name: self.thread_name.to_string(),
            names: self.names.to_string(),
            units: self.units.to_string(),
            by_family: self.by_family,
            threshold_ns: self.threshold_ns,
            trap_ns: means.calibration.trap_ns,
            stack_ns: self
                .stacks
                .then(|| (self.threshold_ns / 4).max(LEAST_STACK_NS)),
        };
        let mut spans = Spans::load(means.tier, &plan)?;
        let origins = match spans.take_slow_stacks() {
            Some(stacks) => Some(Origins::of_process(context.process, stacks, context.ratio)?),
            None => None,
        };
        let threads = SpanThreads {
            spans,
            gate: Gate::of(context.first),
            costs: found.costs,
            operations: self.operations,
            thread_name: self.thread_name,
            decode: self.decode.clone(),
            origins,
            untold: PendingStacks::default(),
            booted: observe::boot_time(),
            one_by_one: means.tier.detaches_one_by_one(),
        };
        let accepted = Accepted {
            subscriptions: vec![Subscription {
                group: context.first,
                parts: Breakdown::Some,
                ..Subscription::default()
            }],
            coverage: found.coverage,
        };
        Ok((Box::new(threads), accepted))
    }
}

/// The spans of one process.
struct SpanThreads {
    spans: Spans,
    gate: Gate,
    costs: [CallCost; OPERATIONS],
    operations: &'static [Operation],
    thread_name: &'static str,
    decode: Arc<dyn Decode>,
    /// Where what took long came from, if that is asked.
    origins: Option<Origins>,
    untold: PendingStacks,
    booted: Timestamp,
    one_by_one: bool,
}

/// The row of an end, and the part of an operation: their numbers stand for them.
fn numbered(number: usize) -> RowId {
    RowId {
        place: number as u64,
        number: number as u64,
        text: String::new(),
    }
}

impl SpanThreads {
    /// A row and its parts, if anything was counted there.
    fn rows(&self, end: usize, read: &SpanReading) -> Vec<RowReading> {
        if *read == SpanReading::default() || (read.count == 0 && end != end::BETWEEN) {
            return Vec::new();
        }
        let mut rows = vec![RowReading {
            row: Some(numbered(end)),
            figures: self.decode.figures(end, read),
            ..RowReading::default()
        }];
        let parts = self.parts(&read.calls);
        rows.extend(parts.filter_map(|(place, part)| {
            Some(RowReading {
                row: Some(numbered(end)),
                part: Some(RowId {
                    text: self.decode.part_name(part.operation, part.family),
                    ..numbered(place)
                }),
                figures: self.decode.operation(part.operation, part.calls)?,
                folded: 0,
            })
        }));
        rows
    }

    /// What could not be recorded.
    fn lost(&self, untold: u64) -> Result<BTreeMap<Name, u64>, ReadError> {
        let mut lost = BTreeMap::from([(Name::Borrowed("events"), untold)]);
        if self.origins.is_some() {
            let stacks = self.spans.stacks_lost()? + self.untold.stacks;
            lost.insert(Name::Borrowed("stacks"), stacks);
            lost.insert(Name::Borrowed("frames"), self.untold.frames);
        }
        Ok(lost)
    }

    /// What there are any calls of, by number.
    fn parts<'a>(&'a self, calls: &'a [SpanCalls]) -> impl Iterator<Item = (usize, SeenPart<'a>)> {
        let parts = self.spans.parts().iter().zip(calls).enumerate();
        parts
            .filter(|(_, (_, calls))| calls.calls > 0)
            .filter_map(|(place, (part, calls))| {
                let operation = self.operations.get(part.slot)?;
                let seen = SeenPart {
                    operation,
                    family: part.family.as_ref(),
                    calls: *calls,
                };
                Some((place, seen))
            })
    }

    /// `callers`: by the numbers of their copies.
    fn event(
        &self,
        (span, calls): &(Span, Vec<SpanCalls>),
        callers: &HashMap<u32, Arc<Callers>>,
    ) -> Event {
        let end = span.end as usize;
        let seen = SeenSpan {
            end,
            duration_ns: span.duration_ns,
            name: (span.names > 0).then_some(span.name),
            names: span.names,
            value: Some(span.value).filter(|value| value.iter().any(|byte| *byte != 0)),
            taken_back: span.taken_back,
            units: span.units,
            bytes: span.bytes,
            usage: self.spans.tells_usage().then_some(span.usage),
            phase: self.spans.tells_usage().then_some(span.phase),
            parts: self.parts(calls).map(|(_, part)| part).collect(),
            stack: callers.get(&span.stack).and_then(|callers| {
                Some(SeenStack {
                    operation: self.operations.get(span.stack_slot as usize)?,
                    callers: Arc::clone(callers),
                })
            }),
        };
        Event {
            time: observe::since_boot(self.booted, span.time_ns),
            group: self.gate.group(),
            row: Some(numbered(end)),
            part: None,
            thread: span.thread,
            thread_name: self.thread_name.to_string(),
            weight: span.duration_ns,
            details: self.decode.event(&seen),
        }
    }
}

impl OneGroup for SpanThreads {
    fn gate(&mut self) -> &mut Gate {
        &mut self.gate
    }

    fn open(&mut self) -> Result<(), AttachError> {
        self.spans.open()
    }

    fn close(&mut self) -> Result<Option<Links>, ReadError> {
        self.spans.close()
    }
}

impl Mechanism for SpanThreads {
    fn costs(&self) -> &[Option<Duration>] {
        &[Some(HIT)]
    }

    fn one_group(&mut self) -> Option<&mut dyn OneGroup> {
        Some(self)
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        let hits = self.spans.hits()?;
        let spent = self
            .costs
            .iter()
            .zip(hits)
            .map(|(cost, hits)| cost.spent(hits));
        Ok(vec![spent.sum()])
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        let read = self.spans.read()?;
        let untold = read.iter().map(|read| read.untold).sum();
        let rows = read.iter().enumerate();
        let rows = rows.flat_map(|(end, read)| self.rows(end, read)).collect();
        Ok(Reading {
            groups: BTreeMap::from([(self.gate.group(), rows)]),
            folded: BTreeMap::new(),
            lost: vec![Lost {
                groups: GroupIds::from([self.gate.group()]),
                counts: self.lost(untold)?,
            }],
            held_up: BTreeMap::new(),
        })
    }

    fn events(&mut self) -> Vec<Event> {
        // The wall clock may have been set since.
        self.booted = observe::boot_time();
        let told = self.spans.told();
        let mut callers = HashMap::new();
        if let Some(origins) = &self.origins {
            let numbers = told.iter().map(|(span, _)| span.stack);
            let numbers: Vec<u32> = numbers.filter(|number| *number > 0).collect();
            let found = origins.of(&numbers).into_iter();
            callers = found
                .map(|(number, callers)| (number, Arc::new(callers)))
                .collect();
            self.untold.stacks += (numbers.len() - callers.len()) as u64;
            let cut = callers.values().filter(|callers| !callers.complete);
            self.untold.frames += cut.count() as u64;
        }
        told.iter().map(|span| self.event(span, &callers)).collect()
    }

    fn fixed_cost(&self) -> Result<Duration, ReadError> {
        match self.origins {
            Some(_) => self.spans.copying(),
            None => Ok(Duration::ZERO),
        }
    }

    fn stop(&mut self) -> Result<(), ReadError> {
        self.spans.stop()
    }

    fn end(&mut self) -> Option<Links> {
        self.spans.leave();
        None
    }

    fn detaches_one_by_one(&self) -> bool {
        self.one_by_one
    }
}
