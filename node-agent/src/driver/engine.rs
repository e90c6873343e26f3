//! Carries out what [`target::plan`] decides: attaches, reads, detaches. No API server here.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use ckb_probe_crds::{Assignment, InstanceReport, InstanceState, Reason};
use futures::{StreamExt, stream::FuturesUnordered};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{
    Clock, Tools,
    measured::Measured,
    measurement::Total,
    view::{Stage, View},
};
use crate::{
    books::instance::{EARLY_DEATH, Instance, Terms},
    kernel::Means,
    kinds,
    mechanism::Refusal,
    observe::{self, ProcessId},
    target::{self, Action, Desired, InstanceKey, Observed},
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

    fn observed(&self) -> BTreeMap<InstanceKey, Observed> {
        let views = self.views.iter();
        views
            .map(|(key, view)| (key.clone(), view.observed()))
            .collect()
    }

    fn schedule_scan(&mut self, changed: bool) {
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
    fn carry_out(&mut self, action: Action, disturbed: &mut BTreeSet<ProcessId>) {
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

    /// Measures of a process what is asked of it now, or lets it go.
    fn settle(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        if let Some(measurement) = measured.and_then(Measured::measurement)
            && let Err(error) = measurement.stop()
        {
            warn!(%error, pid = process.pid, "what measured it goes on until it is replaced");
        }
        self.read_process(process);
        self.take_events(process);
        let tier = self.means().map_or("none", |means| means.tier.as_str());
        let mut views: Vec<&mut View> = views_on(&mut self.views, process).collect();
        if views.is_empty() {
            if let Some(measured) = self.processes.remove(&process) {
                self.tools.reaper.take(measured);
            }
            return;
        }
        let measured = match self.processes.entry(process) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(room) => match Measured::new(process) {
                Ok(measured) => room.insert(measured),
                Err(error) => {
                    let now = self.clock.now();
                    for view in views {
                        let message = error.to_string();
                        view.instance.failed(Reason::AttachFailed, message, now);
                        view.stage = Stage::Waiting;
                    }
                    return;
                }
            },
        };
        for view in &mut views {
            view.spent = Total::default();
        }
        let mut looking: Vec<(&mut Instance, usize)> = views
            .into_iter()
            .map(|view| {
                let others = match view.stage {
                    Stage::On { others, .. } => others,
                    Stage::Waiting | Stage::Held => 0,
                };
                (&mut view.instance, others)
            })
            .collect();
        measured.measure(&mut self.tools, &mut looking, self.clock);
        for (instance, _) in looking {
            let key = &instance.key;
            let report = instance.report(self.clock.now());
            if instance.is_attached() {
                info!(
                    pod = %key.pod.name, namespace = %key.pod.namespace, container = %key.container,
                    probe = %key.probe.name, pid = process.pid, tier, "attached"
                );
            } else if report.state == InstanceState::Failed {
                warn!(
                    pod = %key.pod.name, namespace = %key.pod.namespace, container = %key.container,
                    probe = %key.probe.name, pid = process.pid, error = %report.message, "cannot attach"
                );
            }
        }
    }

    /// Takes in what was counted of a process up to now.
    fn read_process(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        if let Some(measurement) = measured.and_then(Measured::measurement)
            && let Err(error) = measurement.read(self.clock.now())
        {
            warn!(%error, pid = process.pid, "cannot read what the kernel counted");
        }
        self.deliver(process);
    }

    /// Hands what was noted of a process to the books of all that look at it.
    fn deliver(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        let Some(measurement) = measured.and_then(Measured::measurement) else {
            return;
        };
        let entries = measurement.entries();
        if entries.is_empty() {
            return;
        }
        for view in views_on(&mut self.views, process) {
            for entry in &entries {
                view.instance.take(entry);
            }
        }
    }

    /// Takes the events of a process, for the books of all that look at it, and for whoever asks for the lines.
    fn take_events(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        let Some(measurement) = measured.and_then(Measured::measurement) else {
            return;
        };
        let events = measurement.events();
        if events.is_empty() {
            return;
        }
        for view in views_on(&mut self.views, process) {
            let key = view.instance.key.clone();
            for mut line in events.iter().flat_map(|event| view.instance.event(event)) {
                line["namespace"] = json!(key.pod.namespace);
                line["pod"] = json!(key.pod.name);
                line["container"] = json!(key.container);
                line["ckbprobe"] = json!(key.probe.name);
                self.undelivered.push(line);
            }
        }
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
