//! Things that happen and are counted, or told one by one, rather than timed: by programs at tracepoints, loaded once for the
//! node however many ask.
//!
//! A kind says which program, how what it counts belongs to a target, and what its keys, sums and events mean ([`Decode`]).
//! The program finds the targets that a task belongs to by itself, counts for them in rows of a key each, and tells of what is
//! wanted through one ring. What it takes to find out that a task is nobody's, all who ask pay for in equal parts.

mod shared;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use ckb_probe_common::counts::{KEY_BYTES, OTHER_ROW, SUMS, TargetKey, of_distribution, space};
use ckb_probe_crds::{Figures, Histogram, report::OTHER};
use shared::{Groups, Scope};

use super::{
    Accepted, BeginContext, Detail, Event, Lost, Mechanism, OneBegun, Reading, Refusal, RowId,
    RowReading, Single, Subscription, identity, reason_of,
    shared::{Gated, Handle, OneGroup, Shared},
};
pub use crate::kernel::counts::CountProgram;
use crate::{
    kernel::{
        AttachError, Links, ReadError,
        counts::{SeenEvent, Tallied},
    },
    observe::{self, HeldNamespace, Namespaces, ProcessId},
    text,
};

/// What a kind wants counted and told.
#[derive(Clone, Debug)]
pub struct CountsConfig {
    /// By which program.
    pub program: &'static CountProgram,
    /// Of which tasks.
    pub belonging: Membership,
    /// What of it: bits that the program knows.
    pub wants: u32,
    /// Whether a part of the time would say as much of the rest. What happens once would not be seen: it is counted all of the
    /// time, and what that costs others have to make up for.
    pub sliced: bool,
    /// What it means.
    pub decode: Arc<dyn Decode>,
}

/// Which tasks belong to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The threads of the process.
    Process,
    /// Those of its pod: those in its network namespace, which all containers of a pod share. Where that is the host's, those
    /// in its pid namespace, which is its container; and where that is the host's too, itself and what descends from it.
    Pod,
}

/// What a kind makes of what its program counts and tells. Pure.
pub trait Decode: fmt::Debug + Send + Sync {
    /// The row of a key.
    fn raw(&self, key: &[u8; KEY_BYTES]) -> RowId;

    /// What was counted in a row.
    fn figures(&self, counted: &Counted) -> Figures;

    /// Something that was told; None where it is not wanted after all.
    fn event(&self, seen: &RawEvent<'_>) -> Option<DecodedEvent>;
}

/// What was counted in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The sums of the row.
    pub sums: [u64; SUMS],
    /// Its distributions. A value that found no room in one is in its sum all the same.
    pub distributions: BTreeMap<u32, Histogram>,
}

/// Something that a program told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent<'a> {
    /// What: the program's number for it.
    pub what: u32,
    /// The process, in the host's pid namespace.
    pub process: u32,
    /// Its name, NUL-padded.
    pub name: &'a [u8; 16],
    /// Whether it is the very process that is asked about.
    pub own: bool,
    /// What the program says of it.
    pub payload: &'a [u8],
}

/// An event, as far as the kind knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedEvent {
    /// Its row, as [`Decode::raw`] has it.
    pub row: [u8; KEY_BYTES],
    /// By what it comes before others.
    pub weight: u64,
    /// What is said of the event, by name.
    pub details: Vec<(&'static str, Detail)>,
}

impl Single for CountsConfig {
    fn begin_one(&self, context: BeginContext<'_>) -> Result<OneBegun, Refusal> {
        let target = target(self.belonging, context.process)?;
        let held = held(target, context.process)?;
        let program = self.program;
        let shared = context
            .node
            .shared_as(program.name, || Groups::load(program).map(Shared::of))
            .map_err(refusal)?;
        let handle = Handle::to(shared, |targets| {
            targets.enroll(
                target,
                identity(context.process),
                context.namespace,
                self.wants,
            )
        })
        .map_err(refusal)?;
        let opened = Accepted {
            subscriptions: vec![Subscription {
                group: context.first,
                ..Subscription::default()
            }],
            ..Accepted::default()
        };
        let counts = Counts {
            handle: Gated::of(context.first, handle),
            process: context.process,
            costs: [Some(if self.sliced { HIT } else { Duration::ZERO })],
            decode: self.decode.clone(),
            _held: held,
            places: BTreeMap::new(),
        };
        Ok((Box::new(counts), opened))
    }
}

/// By what tasks belong to a target.
fn target(belonging: Membership, process: ProcessId) -> Result<Scope, Refusal> {
    if belonging == Membership::Process {
        let target = TargetKey {
            space: space::PROCESS,
            number: process.pid,
        };
        return Ok(Scope { target, outside: 0 });
    }
    let host = Namespaces::of_host()?;
    let namespaces = Namespaces::of(process)?;
    Ok(pod(process.pid, namespaces, host))
}

/// The same, of a pod. Whoever is in its network and not in a pid namespace of its own is the host's: a plug-in that sets it up, or
/// somebody who looks into it; unless the target itself is like that.
fn pod(process: u32, own: Namespaces, host: Namespaces) -> Scope {
    let is_nested = own.process_ids != host.process_ids;
    let (space, number) = if own.network != host.network {
        (space::NETWORK, own.network)
    } else if is_nested {
        (space::PROCESS_IDS, own.process_ids)
    } else {
        (space::DESCENT, process)
    };
    let outside = if space == space::NETWORK && is_nested {
        host.process_ids
    } else {
        0
    };
    let target = TargetKey { space, number };
    Scope { target, outside }
}

/// The namespace that a target goes by, so that its number is no other's meanwhile.
fn held(of: Scope, process: ProcessId) -> Result<Option<HeldNamespace>, Refusal> {
    let name = match of.target.space {
        space::NETWORK => "net",
        space::PROCESS_IDS => "pid",
        _ => return Ok(None),
    };
    Ok(Some(HeldNamespace::of(process, name, of.target.number)?))
}

/// A kernel that lacks what the program needs lacks it for every target.
fn refusal(error: AttachError) -> Refusal {
    Refusal::new(reason_of(&error), error.to_string())
}

/// The programs measure what they take themselves: a hit is a nanosecond of it.
const HIT: Duration = Duration::from_nanos(1);

/// What is counted for one process.
struct Counts {
    handle: Gated<Handle<Groups>>,
    process: ProcessId,
    costs: [Option<Duration>; 1],
    decode: Arc<dyn Decode>,
    _held: Option<HeldNamespace>,
    /// Of the rows, in the order in which they came by.
    places: BTreeMap<[u8; KEY_BYTES], u64>,
}

impl Counts {
    fn is_sliced(&self) -> bool {
        self.costs == [Some(HIT)]
    }

    fn row(&mut self, key: [u8; KEY_BYTES]) -> RowId {
        let next = self.places.len() as u64;
        let place = *self.places.entry(key).or_insert(next);
        if key == OTHER_ROW {
            return RowId {
                place,
                number: 0,
                text: OTHER.to_string(),
            };
        }
        RowId {
            place,
            ..self.decode.raw(&key)
        }
    }

    fn event(&mut self, seen: &SeenEvent, booted: k8s_openapi::jiff::Timestamp) -> Option<Event> {
        let head = &seen.event;
        let told = self.decode.event(&RawEvent {
            what: head.what,
            process: head.process,
            name: &head.name,
            own: head.process == self.process.pid,
            payload: &seen.payload,
        })?;
        Some(Event {
            time: observe::since_boot(booted, head.time_ns),
            group: self.handle.group(),
            row: Some(self.row(told.row)),
            part: None,
            thread: head.process,
            thread_name: text::of_padded(&head.name),
            weight: told.weight,
            details: told.details,
        })
    }
}

impl Mechanism for Counts {
    fn costs(&self) -> &[Option<Duration>] {
        &self.costs
    }

    fn one_group(&mut self) -> Option<&mut dyn OneGroup> {
        Some(&mut self.handle)
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        let charged = self.handle.charged()?;
        Ok(vec![if self.is_sliced() { charged } else { 0 }])
    }

    fn fixed_cost(&self) -> Result<Duration, ReadError> {
        let charged = self.handle.charged()?;
        Ok(if self.is_sliced() {
            Duration::ZERO
        } else {
            Duration::from_nanos(charged)
        })
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        let read = |targets: &mut Groups, asker: &mut _| targets.read(asker);
        let read = self.handle.with(read).transpose()?;
        let (tallied, folded) = read.unwrap_or_default();
        let rows = rows(tallied).into_iter().map(|(key, counted)| RowReading {
            row: Some(self.row(key)),
            part: None,
            figures: self.decode.figures(&counted),
            folded: 0,
        });
        let rows = rows.collect();
        Ok(Reading {
            groups: BTreeMap::from([(self.handle.group(), rows)]),
            folded: BTreeMap::from([(self.handle.group(), folded)]),
            lost: vec![Lost::of(self.handle.group(), self.handle.lost()?)],
            ..Reading::default()
        })
    }

    fn events(&mut self) -> Vec<Event> {
        let seen = self.handle.events();
        // The wall clock may have been set since.
        let booted = observe::boot_time();
        seen.iter()
            .filter_map(|seen| self.event(seen, booted))
            .collect()
    }

    fn end(&mut self) -> Option<Links> {
        self.handle.end()
    }
}

/// What was counted, by row. The row of what found no room is there once it has something.
fn rows(tallied: Tallied) -> BTreeMap<[u8; KEY_BYTES], Counted> {
    let mut rows: BTreeMap<[u8; KEY_BYTES], Counted> = BTreeMap::new();
    for ((key, bucket), sums) in tallied {
        if key == OTHER_ROW && sums == [0; SUMS] {
            continue;
        }
        let row = rows.entry(key).or_default();
        match of_distribution(bucket) {
            None => row.sums = sums,
            Some((distribution, bucket)) => {
                let histogram = row.distributions.entry(distribution).or_default();
                histogram.add(bucket, sums[0]);
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests;
