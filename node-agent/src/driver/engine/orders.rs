//! What orders mean for the views, and for the processes that they look at.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ckb_probe_crds::{Assignment, Reason};
use tracing::{info, warn};

use super::{
    super::{
        log_limiter::LogLimiter,
        measurement::{Minute, Total},
        view::{Stage, View},
    },
    Engine,
};
use crate::{
    kinds,
    observe::ProcessId,
    state::instance::{Instance, Terms},
    target::{self, Action, Desired, InstanceKey, Located, Observed},
};

impl Engine {
    /// Whoever asks what somebody else asked of the same pod before goes on with those books: of several CkbProbes that ask the
    /// same the order names one, and when that one goes, or asks for something else, another.
    pub(super) fn inherit(&mut self) {
        let is_new = |order: &&Assignment| {
            let own = |key: &InstanceKey| key.probe == order.probe && key.pod == order.pod;
            !order.asks.is_empty() && !self.views.keys().any(own)
        };
        let heirs = self.assignments.iter().filter(is_new).flat_map(|order| {
            let books = self.views.iter().filter(move |(key, view)| {
                key.pod == order.pod && view.assignment.asks == order.asks
            });
            books.map(move |(_, view)| view.handed_to(order.clone()))
        });
        let heirs: Vec<View> = heirs.collect();
        for view in heirs {
            self.views.insert(view.instance.key.clone(), view);
        }
    }

    pub(super) fn observed(&self) -> BTreeMap<InstanceKey, Observed> {
        let views = self.views.iter();
        views
            .map(|(key, view)| (key.clone(), view.observed()))
            .collect()
    }

    /// The processes that views are on, of which /proc does not tell now, and which have not ended: only the kernel's word says
    /// that, and an agent that is out of descriptors must not take them for gone.
    pub(super) fn held(&self, unreadable: &BTreeSet<u32>) -> BTreeMap<InstanceKey, Located> {
        let held = self.views.iter().filter_map(|(key, view)| {
            let Stage::On { process, others } = view.stage else {
                return None;
            };
            let measured = self.processes.get(&process)?;
            let holds = unreadable.contains(&process.pid) && !measured.exit.has_ended();
            holds.then(|| (key.clone(), Located { process, others }))
        });
        held.collect()
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
                self.break_off(&key);
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
    pub(super) fn lose(&mut self, key: &InstanceKey) -> Option<ProcessId> {
        let process = self.views.get(key)?.process()?;
        self.read_process(process);
        self.take_events(process);
        let now = self.clock.now();
        let view = self.views.get_mut(key)?;
        view.instance_mut().process_gone(now);
        view.stage = Stage::Waiting;
        match view.instance.may_be_killing() {
            None => {
                info!(pod = %key.pod.name, container = %key.container, "the process ended; waiting for its successor");
            }
            Some(message) => {
                warn!(pod = %key.pod.name, %message, "left alone");
                view.instance_mut()
                    .detached(Reason::TargetDied, message, now);
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
            profile_window: self.profile_window,
        };
        let probes = kinds::instrumented(&assignment.probes);
        let Some(view) = self.views.get(&key) else {
            let now = self.clock.now();
            let view = View {
                instance: Arc::new(Instance::new(key.clone(), probes, terms, now)),
                assignment: assignment.clone(),
                stage: Stage::Waiting,
                spent: Total::default(),
                minute: Minute::default(),
                accounts: None,
                flow: Some(LogLimiter::new(now)),
                told: None,
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
        view.instance_mut().reconfigure(probes, terms);
        if view.stage == Stage::Held {
            view.stage = Stage::Waiting;
        }
        process
    }
}
