//! One target of the engine: its record, and the probes in place for it.

use std::time::{Duration, Instant};

use ckb_probe_crds::{Assignment, Reason};
use tracing::{info, warn};

use super::RETRY;
use crate::{
    attach::{Coverage, TargetError, attach},
    instance::Instance,
    kinds,
    observe::{self, Exit, ProcessId},
    probe::{Means, Probes, SlowCall},
    target::{Desired, InstanceKey},
};

/// Time since the agent's start: what the pure part counts in.
#[derive(Clone, Copy)]
pub(super) struct Clock(pub(super) Instant);

impl Clock {
    pub(super) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// A target that there is an order for.
pub(super) struct Live {
    pub(super) assignment: Assignment,
    pub(super) instance: Instance,
    pub(super) probing: Probing,
}

/// What is in place for a target.
pub(super) enum Probing {
    /// Nothing: it has no process.
    Nothing,
    /// Probes.
    Attached {
        probes: Box<Probes>,
        process: ProcessId,
        exit: Exit,
    },
    /// Nothing: the attach failed. It is tried again, on the same process, ever more rarely.
    Failed {
        desired: Box<Desired>,
        process: ProcessId,
        retry_at: Instant,
        retry_after: Duration,
    },
    /// Nothing, on purpose, until the order changes or the process is another.
    Held { process: ProcessId },
}

impl Probing {
    pub(super) fn process(&self) -> Option<ProcessId> {
        match self {
            Self::Nothing => None,
            Self::Attached { process, .. }
            | Self::Failed { process, .. }
            | Self::Held { process } => Some(*process),
        }
    }
}

/// A slow call, and whose it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowOperation {
    /// The target.
    pub key: InstanceKey,
    /// The operation.
    pub operation: &'static str,
    /// What the kernel saw.
    pub call: SlowCall,
}

impl Live {
    pub(super) fn attach(
        &mut self,
        means: Means,
        desired: Desired,
        clock: Clock,
        retry_after: Duration,
    ) {
        let Some(located) = desired.located.clone() else {
            return;
        };
        let process = located.process;
        if self.probing.process().is_some_and(|old| old != process) {
            self.lose(clock);
        }
        let key = &self.instance.key;
        let mut coverage = Coverage::default();
        let slots = kinds::slots(&desired.assignment.probes);
        // The exit first: a process that ends during the search is noticed.
        let result = Exit::of(process)
            .map_err(TargetError::from)
            .and_then(|exit| Ok((attach(means, process, &slots, &mut coverage)?, exit)));
        match result {
            Ok((probes, exit)) => {
                info!(
                    pod = %key.pod.name, namespace = %key.pod.namespace, container = %key.container,
                    probe = %key.probe.name, pid = process.pid, tier = means.tier.as_str(), "attached"
                );
                let cpu = observe::cpu_time(process).ok();
                self.instance
                    .attached(process, located.others, coverage, cpu, clock.now());
                self.probing = Probing::Attached {
                    probes: Box::new(probes),
                    process,
                    exit,
                };
            }
            Err(error) => {
                warn!(
                    pod = %key.pod.name, namespace = %key.pod.namespace, container = %key.container,
                    probe = %key.probe.name, pid = process.pid, %error, ?retry_after, "cannot attach"
                );
                self.instance
                    .failed(error.reason(), error.to_string(), coverage);
                self.probing = Probing::Failed {
                    desired: Box::new(desired),
                    process,
                    retry_at: Instant::now() + retry_after,
                    retry_after,
                };
            }
        }
    }

    /// Tries a failed attach again when its time has come. True when it tried.
    pub(super) fn retry(&mut self, means: Means, clock: Clock) -> bool {
        match &self.probing {
            Probing::Failed {
                desired,
                retry_at,
                retry_after,
                ..
            } if *retry_at <= Instant::now() => {
                let (desired, after) = (Desired::clone(desired), (*retry_after * 2).min(RETRY.1));
                self.attach(means, desired, clock, after);
                true
            }
            _ => false,
        }
    }

    /// The process is gone. Its maps are not: what it did up to its end is counted.
    pub(super) fn lose(&mut self, clock: Clock) {
        self.read(clock);
        self.probing = Probing::Nothing;
        self.instance.process_gone(clock.now());
        let key = &self.instance.key;
        info!(pod = %key.pod.name, container = %key.container, "the process ended; waiting for its successor");
    }

    pub(super) fn read(&mut self, clock: Clock) {
        if let Probing::Attached { probes, .. } = &mut self.probing {
            match probes.read() {
                Ok(reading) => self.instance.observe(&reading, clock.now()),
                Err(error) => warn!(%error, "cannot read what the kernel counted"),
            }
        }
    }

    pub(super) fn close_window(&mut self, clock: Clock, cost: Duration) {
        self.read(clock);
        let process = self.probing.process();
        let cpu = process.and_then(|process| observe::cpu_time(process).ok());
        self.instance.close_window(clock.now(), cpu, cost);
        if let (Some(message), Some(process)) = (self.instance.must_detach(), process) {
            warn!(pod = %self.instance.key.pod.name, %message, "over budget");
            self.instance.detached(Reason::OverBudget, message);
            self.probing = Probing::Held { process };
        }
    }

    pub(super) fn slow_operations(&mut self) -> Vec<SlowOperation> {
        let Probing::Attached { probes, .. } = &mut self.probing else {
            return Vec::new();
        };
        let operation = |call: &SlowCall| {
            let series = self.instance.series.get(call.slot as usize)?;
            Some(series.slot.operation)
        };
        probes
            .slow_calls()
            .into_iter()
            .filter_map(|call| {
                Some(SlowOperation {
                    key: self.instance.key.clone(),
                    operation: operation(&call)?,
                    call,
                })
            })
            .collect()
    }
}
