//! What orders mean for the views, and for the processes that they look at.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use ckb_probe_crds::{Assignment, Reason};
use tracing::{info, warn};

use super::{
    super::{
        measurement::Total,
        view::{Stage, View},
    },
    Engine, SEARCH, STEADY,
};
use crate::{
    books::instance::{Instance, Terms},
    kinds,
    observe::ProcessId,
    target::{self, Action, Desired, InstanceKey, Observed},
};

impl Engine {
    pub(super) fn observed(&self) -> BTreeMap<InstanceKey, Observed> {
        let views = self.views.iter();
        views
            .map(|(key, view)| (key.clone(), view.observed()))
            .collect()
    }

    pub(super) fn schedule_scan(&mut self, changed: bool) {
        let waits = |view: &View| view.stage == Stage::Waiting;
        let searching = !self.unmatched.is_empty() || self.views.values().any(waits);
        self.search_interval = match (searching, changed) {
            (true, false) => (self.search_interval * 3 / 2).min(SEARCH.1),
            _ => SEARCH.0,
        };
        let interval = if searching {
            self.search_interval
        } else {
            STEADY
        };
        self.next_scan = Instant::now() + interval;
    }

    /// Carries out a step. The processes of which something else is asked afterwards are `disturbed`.
    pub(super) fn carry_out(&mut self, action: Action, disturbed: &mut BTreeSet<ProcessId>) {
        match action {
            Action::Forget(key) => {
                let process = self.views.get(&key).and_then(View::process);
                disturbed.extend(process);
                if let Some(process) = process {
                    self.take_events(process);
                }
                self.views.remove(&key);
                info!(pod = %key.pod.name, container = %key.container, probe = %key.probe.name, "detached: no longer asked for");
            }
            Action::Lose(key) => disturbed.extend(self.lose(&key)),
            Action::Await(key, desired) => {
                disturbed.extend(self.take_order(key, &desired.assignment))
            }
            Action::Attach(key, desired) => {
                let Desired {
                    assignment,
                    located: Some(located),
                } = desired
                else {
                    return;
                };
                disturbed.extend(self.take_order(key.clone(), &assignment));
                let before = self.views.get(&key).and_then(View::process);
                if before.is_some_and(|before| before != located.process) {
                    disturbed.extend(self.lose(&key));
                }
                if let Some(view) = self.views.get_mut(&key)
                    && !(view.stage == Stage::Held && before.is_some())
                {
                    view.stage = Stage::On {
                        process: located.process,
                        others: located.others,
                    };
                    disturbed.insert(located.process);
                }
            }
        }
    }

    /// The process of a view is gone. Its maps are not: what it did up to its end is counted.
    fn lose(&mut self, key: &InstanceKey) -> Option<ProcessId> {
        let process = self.views.get(key)?.process()?;
        self.read_process(process);
        self.take_events(process);
        let now = self.clock.now();
        let view = self.views.get_mut(key)?;
        view.instance.process_gone(now);
        view.stage = Stage::Waiting;
        match view.instance.may_be_killing() {
            None => {
                info!(pod = %key.pod.name, container = %key.container, "the process ended; waiting for its successor");
            }
            Some(message) => {
                warn!(pod = %key.pod.name, %message, "left alone");
                view.instance.detached(Reason::TargetDied, message, now);
                view.stage = Stage::Held;
            }
        }
        Some(process)
    }

    /// Makes or updates the record of a target by its order. The process of which it asks something else now.
    fn take_order(&mut self, key: InstanceKey, assignment: &Assignment) -> Option<ProcessId> {
        let terms = Terms {
            interval: assignment.report_interval.get(),
            overhead: assignment.overhead.clone(),
            early_death: self.early_death,
        };
        let probes = kinds::instrumented(&assignment.probes);
        let Some(view) = self.views.get(&key) else {
            let now = self.clock.now();
            let view = View {
                instance: Instance::new(key.clone(), probes, terms, now),
                assignment: assignment.clone(),
                stage: Stage::Waiting,
                spent: Total::default(),
            };
            self.views.insert(key, view);
            return None;
        };
        let process = view.process();
        let changed = !target::same_work(&view.assignment, assignment);
        if let Some(process) = process.filter(|_| changed) {
            self.read_process(process);
            self.take_events(process);
        }
        let view = self.views.get_mut(&key)?;
        view.assignment = assignment.clone();
        if !changed {
            return None;
        }
        view.instance.reconfigure(probes, terms);
        if view.stage == Stage::Held {
            view.stage = Stage::Waiting;
        }
        process
    }
}
