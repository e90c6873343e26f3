//! Stacks in windows of time: sampled by a thread of its own for each process and question, unwound there, and handed over when a
//! window is over.
//!
//! What is measured of a process begins anew whenever something else is asked of it; a window that is under way does not: its
//! sampler goes on, and whoever asks the same within [`PATIENCE`] has it.

pub mod categorized;
mod sampling;
mod schedule;
mod shared;
mod slices;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, mpsc::Receiver},
    time::Duration,
};

pub use categorized::nanos;
use ckb_probe_crds::{
    Figures, Lack, Name, ProfileCounts, ProfileMode, ProfileWindow, Reason, report::OTHER,
};
use ckb_probe_profiles::Profile;
pub use shared::PATIENCE;
use shared::{Registry, SamplerHandle, Totals};

use super::{
    Accepted, BeginContext, Breakdown, Coverage, Lost, Mechanism, OneBegun, Reading, Refusal,
    RowId, RowReading, Single, Subscription, Unseen,
};
use crate::{
    kernel::{
        AttachError, Links, ReadError,
        memory::{self, Reservation},
        stacks::Stacks,
    },
    mechanism::{GroupId, stacks::StacksError},
};

/// What is asked of a process.
#[derive(Clone, Debug)]
pub struct ProfileConfig {
    /// What stacks are weighted by.
    pub modes: Vec<ProfileMode>,
    /// How often a second it is looked who runs.
    pub frequency: u32,
    /// And how often all threads are gone through.
    pub passes: u32,
    /// For how long.
    pub window: Duration,
    /// From the beginning of one window to that of the next; None: there is one.
    pub every: Option<Duration>,
    /// Whether it may be asked again, for another occasion: then one window alone has a number of its own, too.
    pub occasional: bool,
    /// Makes figures of what was seen.
    pub figures: fn(&Weighed) -> Figures,
}

/// Whose figures are made of it does not matter: the same windows have the same stacks.
impl PartialEq for ProfileConfig {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            modes,
            frequency,
            passes,
            window,
            every,
            occasional,
            figures: _,
        } = self;
        *modes == other.modes
            && *frequency == other.frequency
            && *passes == other.passes
            && *window == other.window
            && *every == other.every
            && *occasional == other.occasional
    }
}

/// What part of a window's stacks belongs to a category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighed {
    /// By what they are weighted.
    pub mode: ProfileMode,
    /// How much: nanoseconds, bytes, or threads.
    pub weight: u64,
    /// How many bytes were freed, where it is sampled who allocates.
    pub freed: u64,
    /// How many samples belong to it.
    pub samples: u64,
    /// Those of them that reach to where the thread began.
    pub complete: u64,
}

/// A window that is over.
#[derive(Clone)]
pub struct Finished {
    /// What its stacks are weighted by.
    pub mode: ProfileMode,
    /// When it was.
    pub window: ProfileWindow,
    /// How many there are.
    pub counts: ProfileCounts,
    /// They; or why there are none.
    pub stacks: Result<Arc<Profile>, String>,
}

/// Why there are no stacks of a mode in its last window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The word for it.
    pub(crate) reason: Reason,
    /// What happened, and to what.
    pub(crate) why: String,
}

impl From<&StacksError> for Failure {
    fn from(error: &StacksError) -> Self {
        let reason = match error {
            StacksError::Memory(_) | StacksError::Attach(AttachError::NoMemory(_)) => {
                Reason::MemoryLimit
            }
            StacksError::Allocator(_) => Reason::SymbolNotFound,
            StacksError::NoTier | StacksError::Foreign(_) => Reason::PreflightFailed,
            _ => Reason::AttachFailed,
        };
        Self {
            reason,
            why: error.to_string(),
        }
    }
}

/// Without the stacks.
impl fmt::Debug for Finished {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Finished")
            .field("mode", &self.mode)
            .field("window", &self.window)
            .field("counts", &self.counts)
            .field("failure", &self.stacks.as_ref().err())
            .finish_non_exhaustive()
    }
}

/// What cannot be sampled by this version, and what to do.
fn lacking(mode: ProfileMode) -> Option<&'static str> {
    match mode {
        ProfileMode::Cpu
        | ProfileMode::OffCpu
        | ProfileMode::Memory
        | ProfileMode::Allocations
        | ProfileMode::Threads => None,
        ProfileMode::SlowCalls => {
            Some("stacks of slow calls are those of the probes that list the calls")
        }
    }
}

impl Single for ProfileConfig {
    fn begin_one(&self, context: BeginContext<'_>) -> Result<OneBegun, Refusal> {
        let missing = self.modes.iter();
        let missing: Vec<(ProfileMode, &str)> = missing
            .filter_map(|mode| Some((*mode, lacking(*mode)?)))
            .collect();
        let lacks = match missing.is_empty() {
            true => Vec::new(),
            false => vec![Lack {
                reason: Reason::UnsupportedByKernel,
                items: missing
                    .iter()
                    .map(|(mode, _)| mode.as_str().to_string())
                    .collect(),
            }],
        };
        let words: Vec<String> = missing
            .iter()
            .map(|(mode, why)| format!("{}: {why}", mode.as_str()))
            .collect();
        if missing.len() == self.modes.len() {
            return Err(Refusal {
                lacks,
                ..Refusal::new(Reason::UnsupportedByKernel, words.join("; "))
            });
        }
        let room = reserve(&self.modes)?;
        let Ok(registry) = context
            .node
            .shared(|| Ok::<_, Refusal>(Registry::default()))
        else {
            return Err(Refusal::new(
                Reason::AttachFailed,
                "no registry of samplers",
            ));
        };
        let enrolled = {
            let means = context.node.tier.clone().ok();
            Registry::enroll(&registry, context.process, self, context.ratio, means)?
        };
        let opened = Accepted {
            subscriptions: vec![Subscription {
                group: context.first,
                parts: Breakdown::All,
                ..Subscription::default()
            }],
            coverage: Coverage {
                lacks,
                sentence: match words.is_empty() {
                    true => String::new(),
                    false => format!("; not {}", words.join("; ")),
                },
                may_grow: false,
            },
        };
        let profiles = Profiles {
            enrolled,
            group: context.first,
            figures: self.figures,
            sampled: self.modes.len() - missing.len(),
            costs: [Some(Duration::ZERO)],
            _room: room,
        };
        Ok((Box::new(profiles), opened))
    }
}

/// Room for these modes, and a look whether there is some for the maps of a window.
fn reserve(modes: &[ProfileMode]) -> Result<Reservation, Refusal> {
    let account = memory::budget();
    let cpus = memory::possible_cpus();
    let refused = |error: memory::NoMemory| {
        Refusal::new(
            Reason::MemoryLimit,
            format!("there is no room to sample stacks: {error}"),
        )
    };
    let room = account
        .take(modes.len() as u64 * super::stacks::BYTES_OF_A_MODE, cpus)
        .map_err(refused)?;
    let mut maps = 0;
    for mode in modes {
        let allocations = *mode == ProfileMode::Allocations;
        maps += Stacks::bytes(allocations || *mode == ProfileMode::Memory, allocations)?;
    }
    let left = account.left();
    if maps > left {
        return Err(refused(account.refusal(maps, left, cpus)));
    }
    Ok(room)
}

/// What is told where a sampler waits: it alone does.
const HELD_UP: &str = "no stacks are seen for now: whoever copies them waits for a page or a file of the target, most likely of a file system that \
                       does not answer";

/// A sampler, on behalf of one measurement.
struct Profiles {
    enrolled: SamplerHandle,
    group: GroupId,
    figures: fn(&Weighed) -> Figures,
    /// How many modes there are windows of.
    sampled: usize,
    costs: [Option<Duration>; 1],
    _room: Reservation,
}

impl Profiles {
    /// What it sees no stacks of for now.
    fn unseen(&self) -> Option<Unseen> {
        if self.enrolled.is_held_up() {
            return Some(Unseen {
                reason: Reason::AttachFailed,
                items: vec!["stacks".to_string()],
                why: HELD_UP.to_string(),
                all: false,
            });
        }
        let failures = self.enrolled.failures();
        let (_, gravest) = failures.first_key_value()?;
        let items: Vec<String> = failures
            .keys()
            .map(|mode| mode.as_str().to_string())
            .collect();
        Some(Unseen {
            reason: gravest.reason,
            why: format!(
                "no stacks of {} in the last window: {}",
                items.join(", "),
                gravest.why
            ),
            all: failures.len() >= self.sampled,
            items,
        })
    }
}

/// The sampler attaches and detaches by itself, as its windows begin and end.
impl Mechanism for Profiles {
    fn costs(&self) -> &[Option<Duration>] {
        &self.costs
    }

    fn fixed_cost(&self) -> Result<Duration, ReadError> {
        Ok(self.enrolled.cost())
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        let unseen = self.unseen().map(|unseen| (self.group, unseen));
        let Totals { rows, lost } = self.enrolled.totals();
        let rows = rows.into_iter().map(|((mode, category), weighed)| {
            let mut figures = (self.figures)(&weighed.all);
            figures.levels = (self.figures)(&weighed.last).levels;
            RowReading {
                row: Some(raw(mode as u64, mode.as_str())),
                part: Some(match category {
                    OTHER => raw(0, OTHER),
                    _ => raw(place(category), category),
                }),
                figures,
                folded: 0,
            }
        });
        Ok(Reading {
            groups: BTreeMap::from([(self.group, rows.collect())]),
            unseen: unseen.into_iter().collect(),
            lost: vec![Lost::of(
                self.group,
                [(Name::Borrowed("stacks"), lost)].into(),
            )],
            ..Reading::default()
        })
    }

    fn profiles(&mut self) -> Option<(GroupId, Receiver<Finished>)> {
        Some((self.group, self.enrolled.receiver()))
    }

    fn end(&mut self) -> Option<Links> {
        self.enrolled.leave();
        None
    }
}

fn raw(place: u64, text: &str) -> RowId {
    RowId {
        place,
        number: 0,
        text: text.to_string(),
    }
}

/// What tells headings apart, of which there are a few.
fn place(category: &str) -> u64 {
    let mut all = ckb_probe_profiles::categories::Category::ALL.iter();
    let place = all.position(|known| known.as_str() == category);
    1 + place.map_or(u64::MAX - 1, |place| place as u64)
}

#[cfg(test)]
mod tests;
