//! Carries out what [`target::plan`] decides: attaches, reads, detaches. No API server here.

mod orders;
mod processes;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use ckb_probe_crds::{Assignment, InstanceReport, InstanceState, Reason};
use futures::{StreamExt, stream::FuturesUnordered};
use serde_json::Value;
use tracing::warn;

use super::{
    Clock, Tools,
    measured::Measured,
    view::{Stage, View},
};
use crate::{
    books::instance::{EARLY_DEATH, Instance},
    kernel::Means,
    mechanism::Refusal,
    observe::{self, ProcessId},
    target::{self, InstanceKey},
};

/// Between two looks at /proc while some target has no process: at first, and at most.
const SEARCH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Between two looks at /proc while every target has one. Ends are told by the kernel, at once.
const STEADY: Duration = Duration::from_secs(5);

/// Everything that is attached, and what it has counted.
pub struct Engine {
    tools: Tools,
    clock: Clock,
    early_death: Duration,
    assignments: Vec<Assignment>,
    views: BTreeMap<InstanceKey, View>,
    processes: BTreeMap<ProcessId, Measured>,
    unmatched: Vec<Assignment>,
    /// Events that nobody has asked for yet, as lines of JSON.
    undelivered: Vec<Value>,
    next_scan: Instant,
    search_interval: Duration,
}

impl Engine {
    /// An engine with nothing to do.
    pub fn new(means: Result<Means, Refusal>) -> Self {
        Self {
            tools: Tools::new(means),
            clock: Clock::start(),
            early_death: EARLY_DEATH,
            assignments: Vec::new(),
            views: BTreeMap::new(),
            processes: BTreeMap::new(),
            unmatched: Vec::new(),
            undelivered: Vec::new(),
            next_scan: Instant::now(),
            search_interval: SEARCH.0,
        }
    }

    /// Takes a target for killed by its probes when it dies within this time of an attach, instead of [`EARLY_DEATH`].
    #[must_use]
    pub fn with_early_death(self, early_death: Duration) -> Self {
        Self {
            early_death,
            ..self
        }
    }

    /// How it measures.
    pub fn means(&self) -> Option<Means> {
        self.tools.means.as_ref().ok().copied()
    }

    /// The targets, and the time to look at them with.
    pub fn instances(&self) -> (Duration, impl Iterator<Item = &Instance>) {
        (
            self.clock.now(),
            self.views.values().map(|view| &view.instance),
        )
    }

    /// Takes new orders, and carries them out. True when anything changed.
    pub fn assign(&mut self, assignments: Vec<Assignment>) -> bool {
        self.assignments = assignments;
        self.search_interval = SEARCH.0;
        self.reconcile()
    }

    /// Looks for processes and attaches, detaches and forgets as the orders ask. True when anything changed.
    pub fn reconcile(&mut self) -> bool {
        let wanted: BTreeSet<&str> = self
            .assignments
            .iter()
            .map(|assignment| assignment.executable.as_str())
            .collect();
        let processes = if wanted.is_empty() {
            Ok(Vec::new())
        } else {
            observe::processes(|executable| wanted.contains(executable))
        };
        let processes = match processes {
            Ok(processes) => processes,
            Err(error) => {
                warn!(%error, "cannot look for processes; trying again");
                // Whoever waits for the end of a process would be back at once.
                std::thread::sleep(SEARCH.0);
                self.next_scan = Instant::now() + SEARCH.1;
                return false;
            }
        };
        let desired = target::locate(&self.assignments, &processes, self.views.keys());
        let unmatched: Vec<Assignment> = target::unmatched(&self.assignments, &desired)
            .into_iter()
            .cloned()
            .collect();
        let actions = target::plan(&desired, &self.observed());
        let changed = !actions.is_empty() || unmatched != self.unmatched;
        self.unmatched = unmatched;
        let mut disturbed = BTreeSet::new();
        for action in actions {
            self.carry_out(action, &mut disturbed);
        }
        for process in disturbed {
            self.settle(process);
        }
        self.schedule_scan(changed);
        changed
    }

    /// Processes called exec. True when one of them was waited for, and anything changed.
    pub fn execs(&mut self, pids: &[u32]) -> bool {
        let waited_for = |executable: String| {
            let mut assignments = self.assignments.iter();
            assignments.any(|assignment| assignment.executable == executable)
        };
        let mut executables = pids.iter().filter_map(|pid| observe::executable_of(*pid));
        executables.any(waited_for) && self.reconcile()
    }

    /// When [`Self::step`] is due again; None when it never is.
    pub fn next_step(&self) -> Option<Instant> {
        let measured = self.processes.values();
        let steps = measured.clone().filter_map(Measured::next_step);
        let steps = steps.map(|step| self.clock.0 + step);
        steps.chain(measured.filter_map(Measured::retry_at)).min()
    }

    /// Keeps every target within its budget, and looks again for what was not found. True when anything changed that a
    /// report would say.
    pub fn step(&mut self) -> bool {
        let mut disturbed = Vec::new();
        let mut broken = Vec::new();
        for (process, measured) in &mut self.processes {
            if let Err(error) = measured.step(&self.tools, self.clock) {
                broken.push((*process, error.to_string()));
            } else if measured.is_broken() || measured.finds_more(&mut self.tools) {
                disturbed.push(*process);
            }
        }
        let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
        for process in processes {
            self.deliver(process);
        }
        for (process, error) in &broken {
            // Most likely the process is about to be seen to have ended.
            let message = format!(
                "cannot keep process {} within the budget: {error}",
                process.pid
            );
            warn!(pid = process.pid, %message, "detached");
            let now = self.clock.now();
            for view in views_on(&mut self.views, *process) {
                let instance = &mut view.instance;
                instance.failed(Reason::AttachFailed, message.clone(), now);
            }
        }
        for process in &disturbed {
            self.settle(*process);
        }
        !disturbed.is_empty() || !broken.is_empty()
    }

    /// When [`Self::reconcile`] is due again.
    pub fn next_scan(&self) -> Instant {
        self.next_scan
    }

    /// Waits until the process of some target ends; for ever when there is none.
    pub async fn process_ended(&self) {
        let measured = self.processes.values();
        let mut ends: FuturesUnordered<_> = measured.map(|one| one.exit.wait()).collect();
        if ends.next().await.is_none() {
            std::future::pending().await
        }
    }

    /// Takes in what the kernel has counted up to now.
    pub fn read(&mut self) {
        let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
        for process in processes {
            self.read_process(process);
        }
    }

    /// Ends the report intervals that are over, and detaches who is over budget. True when any ended.
    pub fn close_windows(&mut self) -> bool {
        let now = self.clock.now();
        let is_over = |view: &View| view.instance.window_ends() <= now;
        let due: Vec<InstanceKey> = self
            .views
            .iter()
            .filter(|(_, view)| is_over(view))
            .map(|(key, _)| key.clone())
            .collect();
        let on: BTreeSet<ProcessId> = due
            .iter()
            .filter_map(|key| self.views.get(key)?.process())
            .collect();
        for process in &on {
            self.read_process(*process);
        }
        let mut disturbed = BTreeSet::new();
        for key in &due {
            disturbed.extend(self.close_window(key));
        }
        for process in disturbed {
            self.settle(process);
        }
        !due.is_empty()
    }

    /// Ends a view's interval. The process, if the view has to let it go.
    fn close_window(&mut self, key: &InstanceKey) -> Option<ProcessId> {
        let view = self.views.get_mut(key)?;
        let now = self.clock.now();
        let process = view.process();
        let measured = process.and_then(|process| self.processes.get_mut(&process));
        match measured.and_then(Measured::measurement) {
            Some(measurement) => {
                let total = measurement.total(now);
                let ratio = total.ratio_since(view.spent);
                view.spent = total;
                let sampled = |series: &crate::books::series::Series| {
                    series.live && measurement.is_sampled(series.strand.load)
                };
                view.instance.close_window(now, ratio, sampled);
            }
            None => view.instance.close_window(now, None, |_| false),
        }
        let message = view.instance.must_detach()?;
        warn!(pod = %key.pod.name, %message, "over budget");
        view.instance.detached(Reason::OverBudget, message, now);
        view.stage = Stage::Held;
        process
    }

    /// When the next report interval ends; None without targets.
    pub fn next_window(&self) -> Option<Instant> {
        let ends = self.views.values().map(|view| view.instance.window_ends());
        ends.min().map(|end| self.clock.0 + end)
    }

    /// Takes the events that the kernel has handed over since the last time, each as a line of JSON.
    pub fn events(&mut self) -> Vec<Value> {
        let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
        for process in processes {
            self.take_events(process);
        }
        std::mem::take(&mut self.undelivered)
    }

    /// The state of every target, and of every order that has none.
    pub fn reports(&self) -> Vec<InstanceReport> {
        let now = self.clock.now();
        let known = self.views.values().map(|view| view.instance.report(now));
        let unmatched = self.unmatched.iter().map(|assignment| InstanceReport {
            probe: assignment.probe.clone(),
            pod: assignment.pod.clone(),
            state: InstanceState::Waiting,
            reason: Some(Reason::ExecutableNotFound),
            message: format!(
                "no process in {} runs an executable named {}",
                containers(assignment),
                assignment.executable
            ),
            ..InstanceReport::default()
        });
        known.chain(unmatched).collect()
    }
}

fn views_on(
    views: &mut BTreeMap<InstanceKey, View>,
    process: ProcessId,
) -> impl Iterator<Item = &mut View> {
    let views = views.values_mut();
    views.filter(move |view| view.process() == Some(process))
}

fn containers(assignment: &Assignment) -> String {
    let names: Vec<&str> = assignment
        .containers
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    match names[..] {
        [one] => format!("container {one}"),
        _ => format!("containers {}", names.join(", ")),
    }
}
