//! The spans of one process, as they are attached, read and told.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use ckb_probe_crds::Name;
use k8s_openapi::jiff::Timestamp;

use super::{
    super::{
        BeginContext, Event, Lost, Mechanism, Reading, Refusal, RowId, RowReading,
        calls::origins::{Origins, PendingStacks},
        shared::{Gated, OneGroup, Switch},
        stacks::Callers,
    },
    Decode, OPERATIONS, Operation, SeenPart, SeenSpan, SeenStack, SpanCalls, SpanReading,
    SpansConfig, end,
    search::{CallCost, Found},
};
use crate::{
    kernel::{
        AttachError, CalibratedTier, Links, ReadError,
        spans::{Span, SpanPlan, Spans},
    },
    observe,
};

/// A call that took less is not what made a span long, whatever the threshold.
const LEAST_STACK_NS: u64 = 100_000;

/// A hit is a nanosecond: calls of other threads cost less than those of the thread.
const HIT: Duration = Duration::from_nanos(1);

/// The spans of one process.
pub(super) struct SpanThreads {
    spans: Gated<Spans>,
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
    /// Loads the program for the functions that were found, and attaches nothing yet.
    pub(super) fn load(
        config: &SpansConfig,
        means: CalibratedTier,
        found: Found,
        context: &BeginContext<'_>,
    ) -> Result<Self, Refusal> {
        let plan = SpanPlan {
            pid: context.process.pid,
            sites: found.sites,
            roles: config.roles(),
            thread_name: config.thread_name.to_string(),
            names: config.names.to_string(),
            units: config.units.to_string(),
            by_family: config.by_family,
            threshold_ns: config.threshold_ns,
            trap_ns: means.calibration.trap_ns,
            stack_ns: config
                .stacks
                .then(|| (config.threshold_ns / 4).max(LEAST_STACK_NS)),
        };
        let mut spans = Spans::load(means.tier, &plan)?;
        let origins = match spans.take_slow_stacks() {
            Some(stacks) => Some(Origins::of_process(context.process, stacks, context.ratio)?),
            None => None,
        };
        Ok(Self {
            spans: Gated::of(context.first, spans),
            costs: found.costs,
            operations: config.operations,
            thread_name: config.thread_name,
            decode: config.decode.clone(),
            origins,
            untold: PendingStacks::default(),
            booted: observe::boot_time(),
            one_by_one: means.tier.detaches_one_by_one(),
        })
    }

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
            group: self.spans.group(),
            row: Some(numbered(end)),
            part: None,
            thread: span.thread,
            thread_name: self.thread_name.to_string(),
            weight: span.duration_ns,
            details: self.decode.event(&seen),
        }
    }
}

impl Switch for Spans {
    fn open(&mut self) -> Result<(), AttachError> {
        Spans::open(self)
    }

    fn close(&mut self) -> Result<Option<Links>, ReadError> {
        Spans::close(self)
    }
}

impl Mechanism for SpanThreads {
    fn costs(&self) -> &[Option<Duration>] {
        &[Some(HIT)]
    }

    fn one_group(&mut self) -> Option<&mut dyn OneGroup> {
        Some(&mut self.spans)
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
            groups: BTreeMap::from([(self.spans.group(), rows)]),
            lost: vec![Lost::of(self.spans.group(), self.lost(untold)?)],
            ..Reading::default()
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
