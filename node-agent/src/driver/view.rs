//! A target on behalf of one CkbProbe, and what it is at.

use std::sync::Arc;

use ckb_probe_core::contention::Accounts;
use ckb_probe_crds::Assignment;

use super::{
    log_limiter::LogLimiter,
    measurement::{Minute, Total},
};
use crate::{
    observe::ProcessId,
    state::instance::{Instance, ReportedState},
    target::Observed,
};

/// A target that there is an order for.
pub struct View {
    /// The order.
    pub assignment: Assignment,
    /// What was counted of the target. Whoever renders it holds it for a moment: what changes meanwhile is a copy.
    pub instance: Arc<Instance>,
    /// What it is at.
    pub stage: Stage,
    /// What measuring its process had cost when its last interval ended.
    pub spent: Total,
    /// The same of the intervals of the last minute.
    pub minute: Minute,
    /// What its container had waited for then.
    pub accounts: Option<Accounts>,
    /// How many lines its events may be, and who it is in each; None: all are told as they are.
    pub flow: Option<LogLimiter>,
    /// How the last report says that it stands.
    pub told: Option<ReportedState>,
}

/// What a view is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has no process.
    Waiting,
    /// It is one of those that look at this process.
    On {
        /// The process.
        process: ProcessId,
        /// How many others of its container run the same executable.
        others: usize,
    },
    /// It looks at nothing, on purpose, until the order changes.
    Held,
}

impl View {
    /// What was counted of the target, to be changed.
    pub fn instance_mut(&mut self) -> &mut Instance {
        Arc::make_mut(&mut self.instance)
    }

    /// The exporter by which its traces are to go, if they are.
    pub fn exporter(&self) -> Option<&str> {
        let traces = self.assignment.traces.as_ref();
        traces.map(|traces| traces.exporter.as_str())
    }

    /// The process that is measured, if there is one.
    pub fn process(&self) -> Option<ProcessId> {
        match self.stage {
            Stage::On { process, .. } => Some(process),
            Stage::Waiting | Stage::Held => None,
        }
    }

    /// The same for the CkbProbe of this order, which asks the same.
    pub fn handed_to(&self, order: Assignment) -> Self {
        let mut instance = Instance::clone(&self.instance);
        instance.key.probe = order.probe.clone();
        Self {
            assignment: order,
            instance: Arc::new(instance),
            stage: self.stage,
            spent: self.spent.clone(),
            minute: self.minute.clone(),
            accounts: self.accounts,
            flow: self.flow.clone(),
            told: None,
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
