//! How things are measured: one implementation of one trait for each way. A kind says what it wants of which mechanism; a
//! mechanism attaches, counts and hands over, and knows no kind.
//!
//! What is measured of a process is divided into **groups**: what can be attached and left alone by itself, and so what the
//! governor decides about. A group has one row (an operation, a function) or as many as come by (system calls, peers).

pub mod block_io;
pub mod calls;
mod config;
pub mod counts;
mod event;
pub mod health;
pub mod kernel_functions;
pub mod node;
pub mod profile;
pub mod shared;
pub mod spans;
pub mod stacks;
pub mod syscalls;
pub mod tcp;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::mpsc::Receiver,
    time::Duration,
};

use ckb_probe_crds::{Figures, Lack, Name, Reason};
pub use config::{
    Answer, Batch, BeginContext, Begun, CollectorConfig, Config, OneBegun, Search, Single,
};
pub(crate) use event::listed;
pub use event::{DURATION, Detail, Event, Keyed, MOST_WEIGHT, OperationTime, short_name};
pub use node::{Foreign, Node, NodePolicy};
use profile::Finished;
use shared::OneGroup;

use crate::{
    kernel::{AttachError, Identity, Links, ReadError},
    observe::{ObserveError, ProcessId, SymbolsError},
};

/// How the programs in the kernel know a process.
fn identity(process: ProcessId) -> Identity {
    Identity::new(process.pid, process.start_ticks)
}

/// A group of one process, numbered as its measurement begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);

impl GroupId {
    /// As an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The one that comes so many after it.
    #[must_use]
    pub fn offset(self, by: usize) -> Self {
        Self(self.0.saturating_add(u16::try_from(by).unwrap_or(u16::MAX)))
    }
}

/// Some groups of a process.
pub type GroupIds = BTreeSet<GroupId>;

/// What is measured as one group on behalf of one probe: as the books know it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subscription {
    /// The group. Probes that ask the same have the same.
    pub group: GroupId,
    /// Its row, where it has just one.
    pub row: Option<String>,
    /// Whether rows have parts.
    pub parts: Breakdown,
    /// A row before anything was counted: what is known of it.
    pub blank: Figures,
    /// The places of the rows that were asked for, of those that come by; None: all.
    pub only: Option<BTreeSet<u64>>,
    /// Measures that are counted as somebody else asked, and are not this probe's.
    pub omitted: BTreeSet<Name>,
    /// Events of less weight are somebody else's.
    pub least_weight: u64,
    /// Whether its events are told with who called.
    pub reports_stacks: bool,
}

impl Subscription {
    /// Whether this row was asked for.
    pub fn has(&self, row: Option<&RowId>) -> bool {
        match (&self.only, row) {
            (Some(only), Some(row)) => only.contains(&row.place),
            _ => true,
        }
    }

    /// Whether this counts as a part of a row.
    pub fn has_part(&self, part: Option<&RowId>) -> bool {
        match self.parts {
            Breakdown::None => false,
            Breakdown::All => true,
            Breakdown::Some => part.is_some(),
        }
    }

    /// What of these figures was asked for.
    pub fn own<'a>(&self, figures: &'a Figures) -> Cow<'a, Figures> {
        if self.omitted.is_empty() {
            return Cow::Borrowed(figures);
        }
        let mut own = figures.clone();
        own.sums.retain(|name, _| !self.omitted.contains(name));
        Cow::Owned(own)
    }
}

/// How the parts of a row make it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Breakdown {
    /// There are none.
    #[default]
    None,
    /// Whatever is counted is of some part: what is not known to be of one is a part by itself.
    All,
    /// Some of what is counted is of a part.
    Some,
}

/// What became of a question on a process.
#[derive(Clone, Debug, Default)]
pub struct Accepted {
    /// What is measured for it.
    pub subscriptions: Vec<Subscription>,
    /// What of it is not, or not fully.
    pub coverage: Coverage,
}

/// What is not measured of what was asked for, though the rest is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// By reason.
    pub lacks: Vec<Lack>,
    /// The same in words, as the end of a sentence; empty when nothing is lacking.
    pub sentence: String,
    /// More may be found when it is looked for again: a process that has just begun has not mapped its libraries yet.
    pub may_grow: bool,
}

/// Why a question is not answered on a process.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{message}")]
pub struct Refusal {
    /// The word for statuses and Events.
    pub reason: Reason,
    /// What happened and what to do.
    pub message: String,
    /// What of it is lacking.
    pub lacks: Vec<Lack>,
}

impl Refusal {
    /// Nothing is lacking in particular.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            lacks: Vec::new(),
        }
    }

    /// Whether it stands for as long as the kernel runs and the same is asked: to try again costs, and finds nothing.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self.reason,
            Reason::UnsupportedByKernel
                | Reason::KindNotAdmitted
                | Reason::TooManyMatches
                | Reason::MemoryLimit
        )
    }
}

macro_rules! attach_failed {
    ($($error:ty),*) => {$(
        impl From<$error> for Refusal {
            fn from(error: $error) -> Self {
                Self::new(Reason::AttachFailed, error.to_string())
            }
        }
    )*};
}

attach_failed!(ReadError, ObserveError, SymbolsError);

impl From<AttachError> for Refusal {
    fn from(error: AttachError) -> Self {
        let reason = match error {
            AttachError::NoMemory(_) => Reason::MemoryLimit,
            _ => Reason::AttachFailed,
        };
        Self::new(reason, error.to_string())
    }
}

/// The word for what a mechanism needs of the kernel and was refused: only where the kernel lacks it is it not tried again.
fn reason_of(error: &AttachError) -> Reason {
    if error.is_lasting() {
        Reason::UnsupportedByKernel
    } else {
        Reason::AttachFailed
    }
}

/// What stands for a row or a part of one where it is counted, before its kind gives it a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowId {
    /// Tells it from others of the same group (or row): one place is one row for as long as the group lasts.
    pub place: u64,
    /// Its number, if it has one.
    pub number: u64,
    /// Its text, if it has one.
    pub text: String,
}

/// What was counted in a row, or a part of it, since the mechanism was begun; maxima since the reading before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowReading {
    /// Which row; None where the group has just one.
    pub row: Option<RowId>,
    /// Which part of it; None for what belongs to no part.
    pub part: Option<RowId>,
    /// What was counted. Nothing is in two readings at once: a row is the sum of its parts and of the rest.
    pub figures: Figures,
    /// How many parts of the row are in this reading since there was no room to tell them apart.
    pub folded: u64,
}

/// What was counted, by group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The rows of each group. A group that was not read now is not there.
    pub groups: BTreeMap<GroupId, Vec<RowReading>>,
    /// How many rows of a group are in its row `other` since the mechanism has no room to tell them apart; none where it is not
    /// there.
    pub folded: BTreeMap<GroupId, u64>,
    /// Groups of which something is not seen for now.
    pub unseen: BTreeMap<GroupId, Unseen>,
    /// What could not be recorded since the mechanism was begun, each with the groups that it may have been of.
    pub lost: Vec<Lost>,
}

/// What of a group is not seen for now, though it is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// The word for why.
    pub reason: Reason,
    /// What it is.
    pub items: Vec<String>,
    /// Why, as a sentence.
    pub why: String,
    /// Whether that is all that is asked.
    pub all: bool,
}

/// What could not be recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The groups of the mechanism.
    pub groups: GroupIds,
    /// How many, by what.
    pub counts: BTreeMap<Name, u64>,
}

impl Lost {
    /// Of one group.
    pub fn of(group: GroupId, counts: BTreeMap<Name, u64>) -> Self {
        Self {
            groups: GroupIds::from([group]),
            counts,
        }
    }
}

impl Reading {
    /// Adds what another mechanism read.
    pub fn extend(&mut self, other: Self) {
        self.groups.extend(other.groups);
        self.folded.extend(other.folded);
        self.unseen.extend(other.unseen);
        self.lost.extend(other.lost);
    }
}

/// A group that is hit where another one is, for which the kernel traps anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedTrap {
    /// The group whose hits cost less.
    pub group: GroupId,
    /// The group that makes the kernel trap there anyway.
    pub other: GroupId,
    /// What a hit of it costs while the other one is attached.
    pub cost: Duration,
}

/// What is foreseen of a mechanism's groups before any of them was attached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Foreseen {
    /// How often a second each of them is hit, on the wall, in the order of the groups: None where nobody knows, as of all that are beyond the last.
    pub rates: Vec<Option<f64>>,
    /// How long they take to come and go.
    pub edge: Duration,
}

/// A way to measure, at work on one process. Dropping it ends that.
pub trait Mechanism: Send {
    /// What one hit of each of its groups costs the target, in the order of the groups; None where nothing is there to be
    /// attached to.
    fn costs(&self) -> &[Option<Duration>];

    /// What of that is known before they are attached: what is too busy to be is not attached to find that out.
    fn foreseen(&self) -> Foreseen {
        Foreseen::default()
    }

    /// The groups whose hits cost less while another one is attached too.
    fn beside(&self) -> Vec<SharedTrap> {
        Vec::new()
    }

    /// Attaches these groups for good, in place of those that were so before, whose links it hands back: nothing of a group
    /// that is in both is missed or counted twice. Others' groups may be among them, and do not matter.
    /// One that has nothing to attach, or has [`OneGroup`], need not say so.
    fn attach(&mut self, groups: &GroupIds) -> Result<Option<Links>, AttachError> {
        match self.one_group() {
            Some(one) => one.attach_load(groups),
            None => Ok(None),
        }
    }

    /// Begins a slice of these groups: attaches, and then counts.
    fn open_slice(&mut self, groups: &GroupIds) -> Result<(), AttachError> {
        match self.one_group() {
            Some(one) => one.open_load(groups),
            None => Ok(()),
        }
    }

    /// Ends a slice: counts no more, and hands back the links.
    fn close_slice(&mut self) -> Result<Option<Links>, ReadError> {
        match self.one_group() {
            Some(one) => one.close_load(),
            None => Ok(None),
        }
    }

    /// How it counts and ceases to, where it has one group, which counts or does not.
    fn one_group(&mut self) -> Option<&mut dyn OneGroup> {
        None
    }

    /// About how many hits each of its groups has had while it was counted: cheap, and asked for twenty times a second.
    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        Ok(vec![0; self.costs().len()])
    }

    /// What it has cost since it was begun besides the hits of its groups: what nobody can switch off for a while and have the
    /// rest of it mean anything. Cheap, and asked for as often.
    fn fixed_cost(&self) -> Result<Duration, ReadError> {
        Ok(Duration::ZERO)
    }

    /// CPU-seconds per second that measuring its process may cost at the most on its account, whatever the process's budget is: it is run for
    /// others too, who are not asked. None: the budget is enough.
    fn node_share(&self) -> Option<f64> {
        None
    }

    /// What was counted.
    fn read(&mut self) -> Result<Reading, ReadError>;

    /// Takes the events that wait.
    fn events(&mut self) -> Vec<Event> {
        Vec::new()
    }

    /// Where what it finishes comes from that is more than figures, and of which group that is: asked for once, after it was begun.
    /// What the process's end finishes comes yet, also where the mechanism is gone by then.
    fn profiles(&mut self) -> Option<(GroupId, Receiver<Finished>)> {
        None
    }

    /// Counts and tells nothing from now on, so that what is read and taken then agrees: another is about to take its place.
    fn stop(&mut self) -> Result<(), ReadError> {
        Ok(())
    }

    /// Gives back what only one can have at a time of one process, before another is begun there: it measures no more.
    fn end(&mut self) -> Option<Links> {
        None
    }

    /// Whether the kernel waits after each site that it detaches, so that the last of them costs until then.
    fn detaches_one_by_one(&self) -> bool {
        false
    }
}
