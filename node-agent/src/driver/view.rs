//! A target on behalf of one CkbProbe, and what it is at.

use ckb_probe_crds::Assignment;

use super::measurement::Total;
use crate::{books::instance::Instance, observe::ProcessId, target::Observed};

/// A target that there is an order for.
pub struct View {
    /// The order.
    pub assignment: Assignment,
    /// Its books.
    pub instance: Instance,
    /// What it is at.
    pub stage: Stage,
    /// What measuring its process had cost when its last interval ended.
    pub spent: Total,
}

/// What a view is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has no process.
    Waiting,
    /// It is one of those that look at this process.
    On {
        /// Which.
        process: ProcessId,
        /// How many others of its container run the same executable.
        others: usize,
    },
    /// It looks at nothing, on purpose, until the order changes.
    Held,
}

impl View {
    /// Its process.
    pub fn process(&self) -> Option<ProcessId> {
        match self.stage {
            Stage::On { process, .. } => Some(process),
            Stage::Waiting | Stage::Held => None,
        }
    }

    /// What is in place for it.
    pub fn observed(&self) -> Observed {
        Observed {
            assignment: self.assignment.clone(),
            process: self.process(),
            held: self.stage == Stage::Held,
        }
    }
}
