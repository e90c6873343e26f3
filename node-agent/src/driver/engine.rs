//! Carries out what [`target::plan`] decides: attaches, reads, detaches. No API server here.

mod mailboxes;
mod orders;
mod processes;
mod session;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use ckb_probe_crds::{Assignment, InstanceReport, InstanceState, Reason};
use ckb_probe_traces::Counts;
use futures::{StreamExt, stream::FuturesUnordered};
use mailboxes::Mailbox;
pub use mailboxes::{Addressee, Delivery};
use serde_json::Value;
pub use session::Session;
use tracing::warn;

use super::{
    Clock, Tools,
    measured::Measured,
    view::{Stage, View},
    workers::{Errand, Outcome},
};
use crate::{
    export::{exemplars::Exemplars, exporters::Exporters},
    kernel::CalibratedTier,
    mechanism::{Event, NodePolicy, Refusal},
    observe::{ContainerNames, Found, ObserveError, Process, ProcessId, Search},
    state::{
        instance::{EARLY_DEATH, Instance},
        slow_calls,
    },
    target::{self, InstanceKey},
};

/// Between two looks at /proc while some target has no process: at first, and at most.
const SEARCH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Between two looks at /proc while every target has one. Ends are told by the kernel, at once.
const STEADY: Duration = Duration::from_secs(5);

/// At its end the agent waits no longer for what it has attached: then it goes with the agent's process.
const LAST: Duration = Duration::from_secs(25);

/// Everything that is attached, and what it has counted.
pub struct Engine {
    tools: Tools,
    clock: Clock,
    early_death: Duration,
    profile_window: Duration,
    assignments: Vec<Assignment>,
    views: BTreeMap<InstanceKey, View>,
    processes: BTreeMap<ProcessId, Measured>,
    unmatched: Vec<Assignment>,
    /// Whether a view stands otherwise than it was reported to, as of the end of its interval.
    news: bool,
    /// Events that nobody has asked for yet, as lines of JSON.
    undelivered: Vec<Value>,
    /// Where events go as spans, if anywhere.
    spans: Exporters,
    /// The same of views whose every event is delivered, each with what it is made of.
    told: Vec<(Event, Value)>,
    mailboxes: Vec<Mailbox>,
    /// What was gathered for those that ask no more.
    broken_off: Vec<Delivery>,
    next_scan: Instant,
    search_interval: Duration,
    /// How often /proc was searched.
    searches: u64,
    /// The look at /proc that is under way, and whether it is to be followed by another, since something is asked that it may have
    /// missed.
    scan: Option<(Errand<Result<Found, ObserveError>>, bool)>,
    /// What containers were found to be called.
    names: Arc<ContainerNames>,
    /// How long a look at /proc is waited for.
    patience: Duration,
}

impl Engine {
    /// An engine with nothing to do.
    pub fn new(means: Result<CalibratedTier, Refusal>) -> Self {
        Self {
            tools: Tools::new(means),
            clock: Clock::start(),
            early_death: EARLY_DEATH,
            profile_window: slow_calls::WINDOW,
            assignments: Vec::new(),
            views: BTreeMap::new(),
            processes: BTreeMap::new(),
            unmatched: Vec::new(),
            news: false,
            undelivered: Vec::new(),
            spans: Exporters::default(),
            told: Vec::new(),
            mailboxes: Vec::new(),
            broken_off: Vec::new(),
            next_scan: Instant::now(),
            search_interval: SEARCH.0,
            searches: 0,
            scan: None,
            names: Arc::default(),
            patience: Duration::MAX,
        }
    }

    /// Waits no longer than this for a look at /proc: what it finds is taken by [`Self::receive`] then.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Has what takes a time exported as spans.
    #[must_use]
    pub fn with_spans(self, spans: Exporters) -> Self {
        Self { spans, ..self }
    }

    /// What became of all spans up to now, by each exporter.
    pub fn span_counts(&self) -> BTreeMap<String, Counts> {
        self.spans.counts()
    }

    /// Which traces stand for what is in the metrics.
    pub fn exemplars(&self) -> Arc<Exemplars> {
        self.spans.exemplars()
    }

    /// Nothing is exported any more: whoever did it.
    pub fn end_export(&mut self) -> Exporters {
        std::mem::take(&mut self.spans)
    }

    /// Takes a target for killed by its probes when it dies within this time of an attach, instead of [`EARLY_DEATH`].
    #[must_use]
    pub fn with_early_death(self, early_death: Duration) -> Self {
        Self {
            early_death,
            ..self
        }
    }

    /// Gathers slow calls for so long with who called them, instead of [`slow_calls::WINDOW`].
    #[must_use]
    pub fn with_profile_window(self, profile_window: Duration) -> Self {
        Self {
            profile_window,
            ..self
        }
    }

    /// Lets measuring cost no process more than this percentage of its CPU time, whatever is asked.
    #[must_use]
    pub fn with_ceiling(mut self, percent: Option<f64>) -> Self {
        self.tools.ceiling = percent;
        self
    }

    /// Lets measuring cost each process no more than this percentage of one core besides, whatever is asked.
    #[must_use]
    pub fn with_floor(mut self, percent: Option<f64>) -> Self {
        self.tools.floor = percent;
        self
    }

    /// Lets no more be looked at beyond the targets than that, whatever is asked.
    #[must_use]
    pub fn with_policy(mut self, policy: NodePolicy) -> Self {
        self.tools.node = self.tools.node.with_policy(policy);
        self
    }

    /// Lets go of everything, and waits until that is gone; though not for ever, where the kernel or a file system does not answer.
    pub fn end(mut self) {
        for (_, measured) in std::mem::take(&mut self.processes) {
            self.tools.reaper.take(measured);
        }
        let gone = self.tools.reaper.take(());
        let end = Instant::now() + LAST;
        while gone.took().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How it measures.
    pub fn means(&self) -> Option<CalibratedTier> {
        self.tools.node.tier.as_ref().ok().copied()
    }

    /// The targets, and the time to look at them with.
    pub fn instances(&self) -> (Duration, Vec<Arc<Instance>>) {
        let views = self.views.values();
        let instances = views.map(|view| Arc::clone(&view.instance));
        (self.clock.now(), instances.collect())
    }

    /// Has this done beside all else.
    pub fn aside(&self, work: impl FnOnce() + Send + 'static) -> Errand<()> {
        self.tools.workers.start(work)
    }

    /// Takes new orders, and carries them out. True when anything changed.
    pub fn assign(&mut self, assignments: Vec<Assignment>) -> bool {
        let named = assignments.iter().filter_map(|one| one.traces.as_ref());
        for traces in named {
            self.spans.begin(&traces.exporter);
        }
        self.assignments = assignments;
        self.search_interval = SEARCH.0;
        self.reconcile()
    }

    /// Looks for processes and attaches, detaches and forgets as the orders ask. True when anything changed; where looking takes
    /// longer than anybody waits, [`Self::receive`] says so.
    pub fn reconcile(&mut self) -> bool {
        match &mut self.scan {
            Some((_, again)) => {
                *again = true;
                false
            }
            None => self.scan(),
        }
    }

    fn scan(&mut self) -> bool {
        let search = search_for(&self.assignments);
        if search.executables.is_empty() {
            return self.carry_out_orders(&Found::default());
        }
        self.searches += 1;
        let names = Arc::clone(&self.names);
        let look = move || search.processes(&names);
        let scan = self.tools.workers.start(look);
        // Nobody looks a second time meanwhile.
        self.next_scan = Instant::now() + STEADY;
        let outcome = scan.within(self.patience);
        self.scan = Some((scan, false));
        self.scanned(outcome)
    }

    /// Takes what a look at /proc has found, if it is done.
    fn scanned(&mut self, outcome: Outcome<Result<Found, ObserveError>>) -> bool {
        let found = match outcome {
            Outcome::UnderWay => return false,
            Outcome::Done(found) => found.map_err(|error| error.to_string()),
            Outcome::Lost => Err("the thread that looked has failed".to_string()),
        };
        let again = self.scan.take().is_some_and(|(_, again)| again);
        let changed = match found {
            Ok(found) => self.carry_out_orders(&found),
            Err(error) => {
                warn!(%error, "cannot look for processes; trying again");
                // Whoever waits for the end of a process would be back at once.
                std::thread::sleep(SEARCH.0);
                self.next_scan = Instant::now() + SEARCH.1;
                return false;
            }
        };
        if again {
            return self.scan() || changed;
        }
        changed
    }

    /// Attaches, detaches and forgets as the orders ask, where these are the processes. True when anything changed.
    fn carry_out_orders(&mut self, found: &Found) -> bool {
        let Found {
            processes,
            unreadable,
        } = found;
        self.inherit();
        let mut desired = target::locate(&self.assignments, processes, self.views.keys());
        target::hold(&mut desired, self.held(unreadable));
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

    /// Whether a look at /proc is under way: the orders are not carried out as long.
    pub fn is_looking(&self) -> bool {
        self.scan.is_some()
    }

    /// How often it has searched /proc for processes.
    pub fn searches(&self) -> u64 {
        self.searches
    }

    /// Processes called exec. True when one of them is measured or was waited for, and anything changed.
    ///
    /// Whatever others execute, and by what name: /proc is searched only for the sake of a target that has no process.
    pub fn execs(&mut self, pids: &[u32]) -> bool {
        let measured = self.processes.keys();
        let measured: Vec<ProcessId> = measured
            .filter(|process| pids.contains(&process.pid))
            .copied()
            .collect();
        let executed = measured.into_iter().filter(|one| self.executed(*one));
        let again = executed.count() > 0;
        // Its name may be another's, too.
        let changed = again && self.reconcile();
        self.awaited(pids) || changed || again
    }

    /// The same of those that were waited for.
    fn awaited(&mut self, pids: &[u32]) -> bool {
        let is_waiting = |key: &InstanceKey| {
            let view = self.views.get(key);
            view.is_none_or(|view| view.stage == Stage::Waiting)
        };
        let awaits = |order: &&Assignment| target::keys_of(order).any(|key| is_waiting(&key));
        let awaiting: Vec<&Assignment> = self.assignments.iter().filter(awaits).collect();
        if awaiting.is_empty() {
            return false;
        }
        let search = search_for(awaiting.iter().copied());
        let waited_for = |process: Process| {
            let mut keys = awaiting
                .iter()
                .filter_map(|one| target::key_of(one, &process));
            keys.any(|key| is_waiting(&key))
        };
        let mut processes = pids
            .iter()
            .filter_map(|pid| search.process(*pid, &self.names).ok()?);
        processes.any(waited_for) && self.reconcile()
    }

    /// When [`Self::step`] is due again; None when it never is.
    pub fn next_step(&self) -> Option<Instant> {
        let measured = self.processes.values();
        let steps = measured.clone().filter_map(Measured::next_step);
        let steps = steps.map(|step| self.clock.0 + step);
        let steps = steps.chain(measured.clone().filter_map(Measured::retry_at));
        let late = measured.filter_map(|one| one.deadline(&self.tools));
        steps.chain(late).min()
    }

    /// Keeps every target within its budget, and looks again for what was not found. True when anything changed that a
    /// report would say.
    pub fn step(&mut self) -> bool {
        let received = self.receive();
        let mut disturbed = Vec::new();
        let mut broken = Vec::new();
        for (process, measured) in &mut self.processes {
            if let Err(error) = measured.step(&self.tools, self.clock) {
                broken.push((*process, error.to_string()));
            } else if measured.look_again(&self.tools) {
                disturbed.push(*process);
            }
        }
        let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
        for process in processes {
            self.deliver(process);
        }
        for (process, error) in &broken {
            self.give_up(*process, error, None);
        }
        for process in &disturbed {
            self.settle(*process);
        }
        received || !disturbed.is_empty() || !broken.is_empty()
    }

    /// Waits until something is done that nobody waits for, and that [`Self::receive`] takes.
    pub async fn news(&self) {
        self.tools.workers.any_done().await;
    }

    /// When [`Self::reconcile`] is due again.
    pub fn next_scan(&self) -> Instant {
        self.next_scan
    }

    /// Waits until the process of some target ends; for ever when there is none.
    pub async fn process_ended(&self) {
        if self.scan.is_some() {
            // What it finds comes first; an end is still one then.
            return std::future::pending().await;
        }
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
        let over = self.views.values().filter(|view| is_over(view));
        let on: BTreeSet<ProcessId> = over.filter_map(View::process).collect();
        for process in &on {
            self.read_process(*process);
        }
        // What attaches at the moment is read when it has.
        let due: Vec<InstanceKey> = self
            .views
            .iter()
            .filter(|(_, view)| is_over(view) && !self.is_away(view))
            .map(|(key, _)| key.clone())
            .collect();
        let mut disturbed = BTreeSet::new();
        for key in &due {
            disturbed.extend(self.close_interval(key));
        }
        for process in disturbed {
            self.settle(process);
        }
        for process in on {
            // Where nobody told of it, or so soon that it was not to be measured anew.
            self.executed(process);
        }
        if !due.is_empty() {
            // Rows have come, or gone.
            self.account_for_books(None);
        }
        !due.is_empty()
    }

    /// Ends a view's interval: what was counted in it becomes its current window.
    fn close_window(&mut self, key: &InstanceKey) {
        let Some(view) = self.views.get_mut(key) else {
            return;
        };
        let now = self.clock.now();
        let process = view.process();
        let mut measured = process.and_then(|process| self.processes.get_mut(&process));
        let accounts = measured.as_mut().and_then(|one| one.accounts());
        let before = std::mem::replace(&mut view.accounts, accounts);
        view.instance_mut().contention = accounts.zip(before).map(|(now, then)| now.since(&then));
        match measured.and_then(|one| one.measurement(&self.tools)) {
            Some(measurement) => {
                let total = measurement.total(now);
                let ratio = total.ratio_since(&view.spent);
                let own = total.part_since(&view.spent, &view.instance.loads());
                view.instance_mut().floor_ratio = total.floor_since(&view.spent);
                view.instance_mut().own_ratio = own;
                view.spent = total;
                view.instance_mut().close_interval(now, ratio);
            }
            None => {
                view.instance_mut().own_ratio = None;
                view.instance_mut().close_interval(now, None);
            }
        }
        self.news |= view.told != Some(view.instance.stands(now));
    }

    /// Ends a view's interval. The process, if the view has to let it go.
    fn close_interval(&mut self, key: &InstanceKey) -> Option<ProcessId> {
        self.close_window(key);
        let now = self.clock.now();
        let view = self.views.get_mut(key)?;
        let process = view.process();
        let message = view.instance.must_detach()?;
        warn!(pod = %key.pod.name, %message, "over budget");
        view.instance_mut()
            .detached(Reason::OverBudget, message, now);
        view.stage = Stage::Held;
        process
    }

    /// Whether an interval ended with a target that stands otherwise than the last report says.
    pub fn stands_otherwise(&self) -> bool {
        self.news
    }

    /// When the next report interval ends; None without targets.
    pub fn next_window(&self) -> Option<Instant> {
        let views = self.views.values().filter(|view| !self.is_away(view));
        let ends = views.map(|view| view.instance.window_ends());
        ends.min().map(|end| self.clock.0 + end)
    }

    fn is_away(&self, view: &View) -> bool {
        let process = view.process();
        let measured = process.and_then(|process| self.processes.get(&process));
        measured.is_some_and(Measured::is_away)
    }

    /// Takes the events that the kernel has handed over since the last time, each as a line of JSON.
    pub fn events(&mut self) -> Vec<Value> {
        let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
        for process in processes {
            self.take_events(process);
        }
        std::mem::take(&mut self.undelivered)
    }

    /// These of [`Self::events`]'s lines were not written.
    pub fn leave_out(&mut self, lines: &[Value]) {
        for line in lines {
            let mut views = self.views.iter_mut();
            let view = views.find(|(key, _)| {
                line["ckbprobe"] == key.probe.name
                    && line["namespace"] == key.pod.namespace
                    && line["pod"] == key.pod.name
                    && line["container"] == key.container
            });
            if let Some((_, view)) = view {
                view.instance_mut().leave_out(line);
            }
        }
    }

    /// The state of every target, and of every order that has none.
    pub fn reports(&mut self) -> Vec<InstanceReport> {
        let now = self.clock.now();
        self.news = false;
        for view in self.views.values_mut() {
            view.told = Some(view.instance.stands(now));
        }
        self.spans.tick();
        self.spans.keep(|key| self.views.get(key)?.exporter());
        let spans = &self.spans;
        let known = self.views.iter().map(|(key, view)| InstanceReport {
            asks: view.assignment.asks.clone(),
            spans: view.exporter().map(|name| spans.report(name, key)),
            ..view.instance.report(now)
        });
        let unmatched = self.unmatched.iter().map(|assignment| InstanceReport {
            probe: assignment.probe.clone(),
            asks: assignment.asks.clone(),
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

/// What these orders are about.
fn search_for<'a>(orders: impl IntoIterator<Item = &'a Assignment>) -> Search {
    let mut search = Search::default();
    for order in orders {
        search.executables.insert(order.executable.clone());
        search.pods.insert(order.pod.uid.clone());
        let ids = order.containers.iter().filter_map(|one| one.id.clone());
        search.containers.extend(ids);
    }
    search
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

#[cfg(test)]
mod tests;
