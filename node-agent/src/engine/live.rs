//! One target of the engine: its record, and the probes in place for it.

use std::time::{Duration, Instant};

use ckb_probe_crds::{Assignment, Reason};
use tracing::{info, warn};

use super::RETRY;
use crate::{
    attach::{Coverage, TargetError},
    instance::Instance,
    kinds,
    measurement::{Measurement, Reaper},
    observe::{self, Exit, ProcessId, SymbolCache},
    probe::Means,
    slow::{self, SlowOperation},
    target::{Desired, Located},
};

/// Time since the agent's start: what the pure part counts in.
#[derive(Clone, Copy)]
pub(super) struct Clock(pub(super) Instant);

impl Clock {
    pub(super) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// What attaching takes.
pub(super) struct Tools {
    pub(super) means: Means,
    pub(super) symbols: SymbolCache,
    pub(super) reaper: Reaper,
}

/// A target that there is an order for.
pub(super) struct Live {
    pub(super) assignment: Assignment,
    pub(super) instance: Instance,
    pub(super) probing: Probing,
    /// Slow calls of probes that are gone, which nobody has asked for yet.
    pub(super) undelivered: Vec<SlowOperation>,
}

/// What is in place for a target.
pub(super) enum Probing {
    /// Nothing: it has no process.
    Nothing,
    /// Probes.
    Attached {
        measurement: Box<Measurement>,
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
    /// Nothing, on purpose, until the order changes.
    Held,
}

impl Probing {
    pub(super) fn process(&self) -> Option<ProcessId> {
        match self {
            Self::Nothing | Self::Held => None,
            Self::Attached { process, .. } | Self::Failed { process, .. } => Some(*process),
        }
    }
}

impl Live {
    pub(super) fn attach(
        &mut self,
        tools: &mut Tools,
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
        let means = tools.means;
        let result = Exit::of(process)
            .map_err(TargetError::from)
            .and_then(|exit| {
                let (measurement, now) = Measurement::begin(
                    means,
                    process,
                    &slots,
                    &desired.assignment.overhead,
                    &mut tools.symbols,
                    &mut coverage,
                    &tools.reaper,
                    || clock.now(),
                )?;
                Ok((measurement, now, exit))
            });
        match result {
            Ok((measurement, now, exit)) => {
                info!(
                    pod = %key.pod.name, namespace = %key.pod.namespace, container = %key.container,
                    probe = %key.probe.name, pid = process.pid, tier = means.tier.as_str(), "attached"
                );
                self.instance
                    .attached(process, located.others, coverage, now);
                self.probing = Probing::Attached {
                    measurement: Box::new(measurement),
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
    pub(super) fn retry(&mut self, tools: &mut Tools, clock: Clock) -> bool {
        match &self.probing {
            Probing::Failed {
                desired,
                retry_at,
                retry_after,
                ..
            } if *retry_at <= Instant::now() => {
                let (desired, after) = (Desired::clone(desired), (*retry_after * 2).min(RETRY.1));
                self.attach(tools, desired, clock, after);
                true
            }
            _ => false,
        }
    }

    /// The process is gone. Its maps are not: what it did up to its end is counted.
    pub(super) fn lose(&mut self, clock: Clock) {
        self.read(clock);
        drop(self.replace(Probing::Nothing));
        self.instance.process_gone(clock.now());
        let key = &self.instance.key;
        match self.instance.may_be_killing() {
            None => {
                info!(pod = %key.pod.name, container = %key.container, "the process ended; waiting for its successor");
            }
            Some(message) => {
                warn!(pod = %key.pod.name, %message, "left alone");
                self.instance.detached(Reason::TargetDied, message);
                self.probing = Probing::Held;
            }
        }
    }

    pub(super) fn read(&mut self, clock: Clock) {
        if let Probing::Attached { measurement, .. } = &mut self.probing
            && let Err(error) = measurement.read(&mut self.instance, clock.now())
        {
            warn!(%error, "cannot read what the kernel counted");
        }
    }

    /// When [`Self::step`] is due again, as the time since the agent's start.
    pub(super) fn next_step(&self) -> Option<Duration> {
        match &self.probing {
            Probing::Attached { measurement, .. } => measurement.next_step(),
            _ => None,
        }
    }

    /// Keeps within the budget. True when it had to give up.
    pub(super) fn step(&mut self, clock: Clock) -> bool {
        let Probing::Attached {
            measurement,
            process,
            ..
        } = &mut self.probing
        else {
            return false;
        };
        if measurement
            .next_step()
            .is_none_or(|step| step > clock.now())
        {
            return false;
        }
        let Err(error) = measurement.step(&mut self.instance, &|| clock.now()) else {
            return false;
        };
        // Most likely the process is about to be seen to have ended.
        let message = format!(
            "cannot keep process {} within the budget: {error}",
            process.pid
        );
        warn!(pod = %self.instance.key.pod.name, %message, "detached");
        let desired = Desired {
            assignment: self.assignment.clone(),
            located: Some(Located {
                process: *process,
                others: 0,
            }),
        };
        self.instance
            .failed(Reason::AttachFailed, message, Coverage::default());
        let failed = Probing::Failed {
            desired: Box::new(desired),
            process: *process,
            retry_at: Instant::now() + RETRY.0,
            retry_after: RETRY.0,
        };
        drop(self.replace(failed));
        true
    }

    pub(super) fn close_window(&mut self, clock: Clock) {
        self.read(clock);
        let now = clock.now();
        match &mut self.probing {
            Probing::Attached { measurement, .. } => {
                let ratio = measurement.overhead_ratio(now);
                let is_sampled = |slot| measurement.is_sampled(slot);
                self.instance.close_window(now, ratio, is_sampled);
            }
            _ => self.instance.close_window(now, None, |_| false),
        }
        if let Some(message) = self.instance.must_detach() {
            warn!(pod = %self.instance.key.pod.name, %message, "over budget");
            self.instance.detached(Reason::OverBudget, message);
            drop(self.replace(Probing::Held));
        }
    }

    pub(super) fn slow_operations(&mut self) -> Vec<SlowOperation> {
        if let Probing::Attached { measurement, .. } = &mut self.probing {
            let slow = slow::take(measurement, &mut self.instance, observe::boot_time());
            self.undelivered.extend(slow);
        }
        std::mem::take(&mut self.undelivered)
    }

    /// Puts something else in place, and hands back what was. Slow calls that wait in its ring buffer are kept.
    pub(super) fn replace(&mut self, probing: Probing) -> Probing {
        self.undelivered = self.slow_operations();
        std::mem::replace(&mut self.probing, probing)
    }
}
