//! What one thread of a process does between the beginning of a database transaction and its commit, as one thing: a **span**.
//!
//! A kind says which functions begin and end a span, which calls it consists of, and by which keys it is named
//! ([`SpansConfig`]); and what all that means ([`Decode`]). Calls are seen by uprobes, as those of the mechanism `calls`, but add up
//! by span instead of by function. There is one group: a span of which some functions were attached and others
//! not would be told as less than it was.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use ckb_probe_crds::{Figures, Lack, Name, Reason};
use k8s_openapi::jiff::Timestamp;

use super::{
    Accepted, BeginContext, Breakdown, Coverage, Detail, Event, GroupIds, Lost, Mechanism,
    OneBegun, Reading, Refusal, RowId, RowReading, Single, Subscription, calls,
    shared::{Gate, OneGroup},
};
pub use crate::kernel::spans::{SpanCalls, SpanReading, SpanUsage, end, role};
use crate::{
    kernel::{
        AttachError, CalibratedTier, FamilyArgument, Links, Payload, ReadError, Site, Tier,
        spans::{OPERATIONS, Span, SpanHits, SpanPlan, Spans},
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
    pub family: &'static str,
    /// Spans that take at least so long are told one by one.
    pub threshold_ns: u64,
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
    /// Whether functions are attached to whose first instruction the kernel must single-step: where calls are rare.
    pub include_single_stepped: bool,
}

/// What a kind makes of spans. Pure.
pub trait Decode: fmt::Debug + Send + Sync {
    /// What was counted of all spans of an [`end`], but for their operations.
    fn figures(&self, end: usize, read: &SpanReading) -> Figures;

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
    /// How many names were taken back.
    pub taken_back: u32,
    /// What the thread used meanwhile; None where this kernel does not tell.
    pub usage: Option<SpanUsage>,
    /// What it consisted of, as far as there was anything.
    pub operations: Vec<(&'a Operation, SpanCalls)>,
}

/// A hit is a nanosecond: calls of other threads cost less than those of the thread.
const HIT: Duration = Duration::from_nanos(1);

impl Single for SpansConfig {
    fn begin_one(&self, context: BeginContext<'_>) -> Result<OneBegun, Refusal> {
        let means = context.node.tier.clone()?;
        let found = self.find(means, &context)?;
        let plan = SpanPlan {
            pid: context.process.pid,
            sites: found.sites,
            roles: self.roles(),
            thread_name: self.thread_name.to_string(),
            family: self.family.to_string(),
            threshold_ns: self.threshold_ns,
            trap_ns: means.calibration.trap_ns,
        };
        let spans = Spans::load(means.tier, &plan)?;
        let threads = SpanThreads {
            spans,
            gate: Gate::of(context.first),
            costs: found.costs,
            operations: self.operations,
            thread_name: self.thread_name,
            decode: self.decode.clone(),
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

impl SpansConfig {
    /// Where the functions are. Those without which there are no spans must be there.
    fn find(&self, means: CalibratedTier, context: &BeginContext<'_>) -> Result<Found, Refusal> {
        let asked = [self.asked()];
        let found = &context.node.found;
        let searched = calls::search(means, context.process, &asked, context.first, found);
        let calls::Searched {
            mut answers,
            slots,
            sites,
            ..
        } = searched.map_err(|error| Refusal::from(&error))?;
        let coverage = match answers.pop() {
            Some(Ok(accepted)) => accepted.coverage,
            Some(Err(refusal)) => return Err(refusal),
            None => Coverage::default(),
        };
        if sites.iter().any(|(site, _)| site.entry_only) {
            return Err(Refusal {
                reason: Reason::EntryOnly,
                message: "spans end at the return of a function, and on this kernel a probe there kills a process that is \
                          confined by seccomp, as this one is"
                    .to_string(),
                lacks: coverage.lacks,
            });
        }
        let mut costs = [CallCost::default(); OPERATIONS];
        let mut placed: Vec<Site> = Vec::new();
        for (site, cost) in sites {
            let row = slots
                .get(usize::from(site.slot))
                .map(|(counted, _)| &counted.row);
            let mut names = self.operations.iter();
            let Some(slot) =
                names.position(|operation| Some(operation.name) == row.map(String::as_str))
            else {
                continue;
            };
            let entry_only = matches!(self.operations[slot].role, role::BEGIN | role::DROP);
            costs[slot] = costs[slot].max(CallCost::of(means, cost, entry_only));
            placed.push(Site {
                slot: slot as u8,
                entry_only,
                ..site
            });
        }
        self.has_what_it_takes(&placed, &coverage)?;
        Ok(Found {
            sites: placed,
            costs,
            coverage,
        })
    }

    fn has_what_it_takes(&self, sites: &[Site], coverage: &Coverage) -> Result<(), Refusal> {
        let is_there = |slot: usize| sites.iter().any(|site| usize::from(site.slot) == slot);
        let needed = |operation: &Operation| {
            matches!(operation.role, role::BEGIN | role::COMMIT | role::PUT)
        };
        let operations = self.operations.iter().enumerate();
        let missing = operations.filter(|(slot, one)| needed(one) && !is_there(*slot));
        let missing: Vec<String> = missing.map(|(_, one)| one.name.to_string()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Refusal {
            reason: Reason::SymbolNotFound,
            message: format!(
                "the executable lacks functions by which it begins, names and ends what is measured ({}){}",
                missing.join(", "),
                coverage.sentence
            ),
            lacks: vec![Lack {
                reason: Reason::SymbolNotFound,
                items: missing,
            }],
        })
    }

    /// The functions, as the mechanism `calls` looks for them.
    fn asked(&self) -> calls::CallsConfig {
        let counted = self.operations.iter().map(|operation| calls::Counted {
            row: operation.name.to_string(),
            functions: operation
                .functions
                .iter()
                .map(|symbol| calls::Function {
                    symbol: *symbol,
                    payload: Payload::Unknown,
                    family: FamilyArgument::None,
                })
                .collect(),
            slow_threshold_ns: u64::MAX,
            cause: None,
            by_family: false,
            by: None,
            span: None,
            include_single_stepped: operation.include_single_stepped,
            arguments: Vec::new(),
            stacks: false,
            found_by: None,
        });
        calls::CallsConfig {
            measures: calls::Measures::Counted(Name::Borrowed("calls")),
            sought: calls::Sought::Listed(counted.collect()),
        }
    }

    fn roles(&self) -> [u8; OPERATIONS] {
        let mut roles = [role::TIMED; OPERATIONS];
        for (role, operation) in roles.iter_mut().zip(self.operations) {
            *role = operation.role;
        }
        roles
    }
}

/// What was found of the functions.
struct Found {
    sites: Vec<Site>,
    costs: [CallCost; OPERATIONS],
    coverage: Coverage,
}

/// What a call of an operation costs, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct CallCost {
    own: u64,
    others: u64,
}

impl CallCost {
    fn of(means: CalibratedTier, cost: Duration, entry_only: bool) -> Self {
        let cost = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        let calibration = means.calibration;
        // What the kernel's single step takes is there in any case.
        let stepped = cost.saturating_sub(calibration.cost_per_call_ns);
        let entry = calibration.counted_cost_ns.saturating_add(stepped);
        // A session is not called at the return of who it said no to; of a pair, the other half is.
        let others = match means.tier {
            Tier::Session => entry,
            Tier::UprobeMulti | Tier::PerfEvent => cost,
        };
        match entry_only {
            true => Self {
                own: entry,
                others: entry,
            },
            false => Self { own: cost, others },
        }
    }

    fn spent(self, hits: SpanHits) -> u64 {
        let own = self.own.saturating_mul(hits.own);
        own.saturating_add(self.others.saturating_mul(hits.others))
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
        let operations = self.operations.iter().zip(read.operations).enumerate();
        rows.extend(
            operations
                .filter(|(_, (_, calls))| calls.calls > 0)
                .filter_map(|(slot, (operation, calls))| {
                    Some(RowReading {
                        row: Some(numbered(end)),
                        part: Some(RowId {
                            text: operation.name.to_string(),
                            ..numbered(slot)
                        }),
                        figures: self.decode.operation(operation, calls)?,
                        folded: 0,
                    })
                }),
        );
        rows
    }

    fn event(&self, span: &Span) -> Event {
        let end = span.end as usize;
        let operations = self.operations.iter().zip(span.operations);
        let seen = SeenSpan {
            end,
            duration_ns: span.duration_ns,
            name: (span.names > 0).then_some(span.name),
            names: span.names,
            taken_back: span.taken_back,
            usage: self.spans.tells_usage().then_some(span.usage),
            operations: operations.filter(|(_, calls)| calls.calls > 0).collect(),
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
                counts: BTreeMap::from([(Name::Borrowed("events"), untold)]),
            }],
            held_up: BTreeMap::new(),
        })
    }

    fn events(&mut self) -> Vec<Event> {
        // The wall clock may have been set since.
        self.booted = observe::boot_time();
        let told = self.spans.told();
        told.iter().map(|span| self.event(span)).collect()
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
