//! System calls, by two programs for the whole node: attached while the gate of any target is open, since they cost every
//! process something.
//!
//! All that is asked of one process is one target of the tracer, and one group: what several ask for is traced once, and each is
//! shown what it asked for.

mod event;
mod tracer;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ckb_probe_crds::{Distribution, Figures, Name, Reason};
use tracer::Tracer;
pub(super) use tracer::{CALLS, time_of_a_call};

use super::{
    Accepted, BeginContext, Begun, Breakdown, Config, Event, GroupId, Lost, Mechanism, Reading,
    Refusal, RowId, RowReading, Subscription, identity, reason_of,
    shared::{Gated, Handle, OneGroup, Shared},
};
use crate::{
    kernel::{
        AttachError, Links, ReadError,
        syscalls::{OF_PROBES, SyscallOptions, SyscallReading},
    },
    observe::{self, Machine, ProcessId, syscall_name, syscall_number},
};

/// What a kind wants of the system calls of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct SyscallsConfig {
    /// Which; None: all.
    pub names: Option<Vec<String>>,
    /// Calls that take at least this long are slow.
    pub slow_threshold_ns: u64,
    /// But these.
    pub never_slow: &'static [&'static str],
    /// What is measured, in the kind's words.
    pub measures: Measures,
}

/// The names of what is measured of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measures {
    /// How long they took.
    pub duration: Name,
    /// How long the longest took.
    pub longest: Name,
    /// How many failed.
    pub errors: Name,
    /// How many were slow.
    pub slow: Name,
    /// How often the kernel broke one off, and made it again.
    pub restarts: Name,
}

/// Calls that had not ended as it was ceased to look: counted, and how long they took is not known.
const CUT: Name = Name::Borrowed(ckb_probe_crds::report::CUT);

/// The place of what is not told apart.
const OTHERS: u64 = u64::MAX;

/// The system calls of one process.
pub struct SystemCalls {
    handle: Gated<Handle<Tracer>>,
    process: ProcessId,
    costs: [Option<Duration>; 1],
    measures: Measures,
    never_slow: &'static [&'static str],
}

/// Makes the process a target of the node's tracer.
impl Config for SyscallsConfig {
    fn begin(asks: &[Self], context: BeginContext<'_>) -> Begun {
        let BeginContext {
            process,
            namespace,
            first: group,
            node,
            ..
        } = context;
        let wanted: Vec<Result<Option<BTreeSet<u32>>, Refusal>> = asks
            .iter()
            .map(|ask| numbers(ask.names.as_deref()))
            .collect();
        let good: Vec<(&SyscallsConfig, &Option<BTreeSet<u32>>)> = asks
            .iter()
            .zip(&wanted)
            .filter_map(|(ask, wanted)| Some((ask, wanted.as_ref().ok()?)))
            .collect();
        let refused = |refusal: &Refusal| {
            let all = wanted.iter();
            Begun::refused(all.map(|wanted| wanted.as_ref().err().unwrap_or(refusal).clone()))
        };
        let Some((first, _)) = good.first() else {
            let nothing = Refusal::new(Reason::AttachFailed, "no system call is asked for");
            return refused(&nothing);
        };
        let threshold = good.iter().map(|(ask, _)| ask.slow_threshold_ns).min();
        let threshold = threshold.unwrap_or(u64::MAX);
        let options = SyscallOptions {
            wanted: good
                .iter()
                .map(|(_, wanted)| (*wanted).clone())
                .try_fold(BTreeSet::new(), |all, wanted| Some(&all | &wanted?)),
            slow_threshold_ns: threshold,
            ..SyscallOptions::default()
        };
        let subscribed = node
            .shared(|| Tracer::load().map(Shared::of))
            .and_then(|tracer| {
                Handle::to(tracer, |tracer| {
                    tracer.add(identity(process), namespace, &options)
                })
            });
        let cost = |handle: &Handle<Tracer>| handle.lock().program.cost_of_hit();
        let calls = match subscribed {
            Ok(handle) => SystemCalls {
                costs: [Some(cost(&handle))],
                handle: Gated::of(group, handle),
                process,
                measures: first.measures.clone(),
                never_slow: first.never_slow,
            },
            Err(error) => return refused(&refusal(&error)),
        };
        let answers = asks.iter().zip(wanted);
        let answers = answers.map(|(ask, wanted)| Ok(opened(ask, wanted?, threshold, group)));
        Begun {
            answers: answers.collect(),
            mechanisms: vec![Box::new(calls)],
        }
    }
}

fn opened(
    ask: &SyscallsConfig,
    wanted: Option<BTreeSet<u32>>,
    threshold: u64,
    group: GroupId,
) -> Accepted {
    let mut omitted = BTreeSet::new();
    if ask.slow_threshold_ns > threshold {
        // Somebody else calls less slow: how many would be for this one, the kernel does not count.
        omitted.insert(ask.measures.slow.clone());
    }
    Accepted {
        subscriptions: vec![Subscription {
            group,
            row: None,
            parts: Breakdown::Some,
            blank: Figures::default(),
            only: wanted.map(|numbers| numbers.into_iter().map(u64::from).collect()),
            omitted,
            least_weight: ask.slow_threshold_ns,
            reports_stacks: false,
        }],
        ..Accepted::default()
    }
}

fn numbers(names: Option<&[String]>) -> Result<Option<BTreeSet<u32>>, Refusal> {
    let Some(names) = names else {
        return Ok(None);
    };
    let number = |name: &String| {
        if OF_PROBES.contains(&name.as_str()) {
            let sentence = format!(
                "{name} is not counted: the kernel serves probes by it, and the process does not ask for it"
            );
            return Err(Refusal::new(Reason::SymbolNotFound, sentence));
        }
        syscall_number(name).ok_or_else(|| {
            let machine = Machine::NATIVE.as_str();
            Refusal::new(
                Reason::SymbolNotFound,
                format!(
                    "there is no system call {name:?} on {machine}: their names are those of the manual pages, such as \
                     openat, pread64 or fdatasync"
                ),
            )
        })
    };
    names.iter().map(number).collect::<Result<_, _>>().map(Some)
}

fn refusal(error: &AttachError) -> Refusal {
    Refusal::new(
        reason_of(error),
        format!("system calls cannot be traced: {error}"),
    )
}

impl SystemCalls {
    fn is_never_slow(&self, number: Option<u32>) -> bool {
        let name = number.and_then(syscall_name);
        name.is_some_and(|name| self.never_slow.contains(&name))
    }

    fn rows(&self, seen: SyscallReading) -> Vec<RowReading> {
        let number = seen.number;
        let row = RowId {
            place: number.map_or(OTHERS, u64::from),
            number: number.map_or(OTHERS, u64::from),
            text: String::new(),
        };
        let told: u64 = seen.errors.iter().map(|(_, count)| count).sum();
        let mut own = Figures::default();
        let durations = Distribution {
            histogram: seen.histogram,
            sum: seen.sum_ns,
            unmeasured: seen.cut,
        };
        let slow = if self.is_never_slow(number) {
            0
        } else {
            seen.slow
        };
        let Measures {
            duration,
            longest,
            errors,
            slow: slow_name,
            restarts,
        } = &self.measures;
        own.distributions.insert(duration.clone(), durations);
        own.maxima.insert(longest.clone(), seen.max_ns);
        own.sums.insert(slow_name.clone(), slow);
        own.sums.insert(restarts.clone(), seen.restarts);
        own.sums
            .insert(errors.clone(), seen.failed.saturating_sub(told));
        let whole = RowReading {
            row: Some(row.clone()),
            part: None,
            figures: own,
            folded: 0,
        };
        let parts = seen.errors.into_iter().map(|(error, count)| RowReading {
            row: Some(row.clone()),
            part: Some(RowId {
                place: u64::from(error),
                number: u64::from(error),
                text: String::new(),
            }),
            figures: Figures {
                sums: BTreeMap::from([(errors.clone(), count)]),
                ..Figures::default()
            },
            folded: 0,
        });
        std::iter::once(whole).chain(parts).collect()
    }
}

impl Mechanism for SystemCalls {
    fn costs(&self) -> &[Option<Duration>] {
        &self.costs
    }

    fn one_group(&mut self) -> Option<&mut dyn OneGroup> {
        Some(&mut self.handle)
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        let bystanders = self.handle.charged()?;
        let hits = |tracer: &mut Tracer, target: &mut _| tracer.hits(*target, bystanders);
        let hits = self.handle.with(hits).transpose()?;
        Ok(vec![hits.unwrap_or_default()])
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        let read = |tracer: &mut Tracer, target: &mut _| tracer.read(*target);
        let Some(seen) = self.handle.with(read).transpose()? else {
            return Ok(Reading::default());
        };
        let mut lost = self.handle.lost()?;
        let cut = seen.calls.iter().map(|call| call.cut).sum();
        lost.insert(CUT, cut);
        let rows = seen.calls.into_iter();
        let rows = rows.flat_map(|call| self.rows(call)).collect();
        Ok(Reading {
            groups: BTreeMap::from([(self.handle.group(), rows)]),
            lost: vec![Lost::of(self.handle.group(), lost)],
            ..Reading::default()
        })
    }

    fn events(&mut self) -> Vec<Event> {
        let slow = self.handle.events();
        let booted = observe::boot_time();
        slow.iter()
            .filter_map(|call| self.event(call, booted))
            .collect()
    }

    fn end(&mut self) -> Option<Links> {
        self.handle.end()
    }
}

#[cfg(test)]
mod tests;
