//! Carries out what [`target::plan`] decides: attaches, reads, detaches. No API server here.

mod live;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use ckb_probe_crds::{Assignment, InstanceReport, InstanceState, Reason};
use futures::{StreamExt, stream::FuturesUnordered};
use live::{Clock, Live, Probing, Tools};
use tracing::{info, warn};

use crate::{
    instance::{EARLY_DEATH, Instance, Terms},
    kinds,
    measurement::Reaper,
    observe::{self, SymbolCache},
    probe::Means,
    slow::SlowOperation,
    target::{self, Action, InstanceKey, Observed},
};

/// Between two looks at /proc while some target has no process: at first, and at most.
const SEARCH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Between two looks at /proc while every target has one. Ends are told by the kernel, at once.
const STEADY: Duration = Duration::from_secs(5);

/// Between two attempts to attach to a process that could not be attached to: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Everything that is attached, and what it has counted.
pub struct Engine {
    tools: Tools,
    clock: Clock,
    early_death: Duration,
    assignments: Vec<Assignment>,
    live: BTreeMap<InstanceKey, Live>,
    unmatched: Vec<Assignment>,
    /// Slow calls of targets that are forgotten, which nobody has asked for yet.
    undelivered: Vec<(InstanceKey, SlowOperation)>,
    next_scan: Instant,
    search_interval: Duration,
}

impl Engine {
    /// An engine with nothing to do.
    pub fn new(means: Means) -> Self {
        Self {
            tools: Tools {
                means,
                symbols: SymbolCache::default(),
                reaper: Reaper::start(),
            },
            clock: Clock(Instant::now()),
            early_death: EARLY_DEATH,
            assignments: Vec::new(),
            live: BTreeMap::new(),
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
    pub fn means(&self) -> Means {
        self.tools.means
    }

    /// The targets, and the time to look at them with.
    pub fn instances(&self) -> (Duration, impl Iterator<Item = &Instance>) {
        (
            self.clock.now(),
            self.live.values().map(|live| &live.instance),
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
        let desired = target::locate(&self.assignments, &processes, self.live.keys());
        let unmatched: Vec<Assignment> = target::unmatched(&self.assignments, &desired)
            .into_iter()
            .cloned()
            .collect();
        let actions = target::plan(&desired, &self.observed());
        let mut changed = !actions.is_empty() || unmatched != self.unmatched;
        self.unmatched = unmatched;
        for action in actions {
            self.carry_out(action);
        }
        for live in self.live.values_mut() {
            changed |= live.retry(&mut self.tools, self.clock);
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
        let steps = self.live.values().filter_map(Live::next_step);
        steps.min().map(|step| self.clock.0 + step)
    }

    /// Keeps every target within its budget. True when anything changed that a report would say.
    pub fn step(&mut self) -> bool {
        let mut changed = false;
        for live in self.live.values_mut() {
            changed |= live.step(self.clock);
        }
        changed
    }

    /// When [`Self::reconcile`] is due again.
    pub fn next_scan(&self) -> Instant {
        self.next_scan
    }

    /// Waits until the process of some target ends; for ever when there is none.
    pub async fn process_ended(&self) {
        let mut ends: FuturesUnordered<_> = self
            .live
            .values()
            .filter_map(|live| match &live.probing {
                Probing::Attached { exit, .. } => Some(exit.wait()),
                _ => None,
            })
            .collect();
        if ends.next().await.is_none() {
            std::future::pending().await
        }
    }

    /// Takes in what the kernel has counted up to now.
    pub fn read(&mut self) {
        for live in self.live.values_mut() {
            live.read(self.clock);
        }
    }

    /// Ends the report intervals that are over, and detaches who is over budget. True when any ended.
    pub fn close_windows(&mut self) -> bool {
        let mut closed = false;
        for live in self.live.values_mut() {
            if self.clock.now() >= live.instance.window_ends() {
                live.close_window(self.clock);
                closed = true;
            }
        }
        closed
    }

    /// When the next report interval ends; None without targets.
    pub fn next_window(&self) -> Option<Instant> {
        self.live
            .values()
            .map(|live| self.clock.0 + live.instance.window_ends())
            .min()
    }

    /// Takes the slow calls that the kernel has handed over since the last time.
    pub fn slow_operations(&mut self) -> Vec<(InstanceKey, SlowOperation)> {
        let mut all = std::mem::take(&mut self.undelivered);
        for (key, live) in &mut self.live {
            let slow = live.slow_operations();
            all.extend(slow.into_iter().map(|slow| (key.clone(), slow)));
        }
        all
    }

    /// The state of every target, and of every order that has none.
    pub fn reports(&self) -> Vec<InstanceReport> {
        let now = self.clock.now();
        let known = self.live.values().map(|live| live.instance.report(now));
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
        self.live
            .iter()
            .map(|(key, live)| {
                let observed = Observed {
                    assignment: live.assignment.clone(),
                    process: live.probing.process(),
                    held: matches!(live.probing, Probing::Held),
                };
                (key.clone(), observed)
            })
            .collect()
    }

    fn schedule_scan(&mut self, changed: bool) {
        let searching = !self.unmatched.is_empty()
            || self
                .live
                .values()
                .any(|live| matches!(live.probing, Probing::Nothing | Probing::Failed { .. }));
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

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Forget(key) => {
                if let Some(mut live) = self.live.remove(&key) {
                    let slow = live.slow_operations();
                    let slow = slow.into_iter().map(|slow| (key.clone(), slow));
                    self.undelivered.extend(slow);
                    self.tools.reaper.take(live.probing);
                }
                info!(pod = %key.pod.name, container = %key.container, probe = %key.probe.name, "detached: no longer asked for");
            }
            Action::Lose(key) => {
                if let Some(live) = self.live.get_mut(&key) {
                    live.lose(self.clock);
                }
            }
            Action::Await(key, desired) => self.take_order(key, &desired.assignment),
            Action::Attach(key, desired) => {
                self.take_order(key.clone(), &desired.assignment);
                if let Some(live) = self.live.get_mut(&key) {
                    live.attach(&mut self.tools, desired, self.clock, RETRY.0);
                }
            }
        }
    }

    /// Makes or updates the record of a target by its order.
    fn take_order(&mut self, key: InstanceKey, assignment: &Assignment) {
        let slots = || kinds::slots(&assignment.probes);
        let terms = Terms {
            interval: assignment.report_interval.get(),
            overhead: assignment.overhead.clone(),
            early_death: self.early_death,
        };
        match self.live.get_mut(&key) {
            None => {
                let now = self.clock.now();
                let live = Live {
                    instance: Instance::new(key.clone(), slots(), terms, now),
                    assignment: assignment.clone(),
                    probing: Probing::Nothing,
                    undelivered: Vec::new(),
                };
                self.live.insert(key, live);
            }
            Some(live) => {
                if !target::same_work(&live.assignment, assignment) {
                    live.read(self.clock);
                    live.instance.reconfigure(slots(), terms, self.clock.now());
                    drop(live.replace(Probing::Nothing));
                }
                live.assignment = assignment.clone();
            }
        }
    }
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
