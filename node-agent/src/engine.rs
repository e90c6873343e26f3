//! Carries out what [`target::plan`] decides: attaches, reads, detaches. No API server here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use ckb_probe_crds::{Assignment, InstanceReport, InstanceState, Reason};
use futures::{StreamExt, stream::FuturesUnordered};
use tracing::{info, warn};

use crate::{
    instance::{Coverage, Instance},
    kinds,
    observe::{self, Exit, ObserveError, ProcessId, Symbols, SymbolsError, find_symbols},
    probe::{AttachError, Calibration, DEFAULT_RING_BYTES, Plan, Probes, Site, SlowCall, Tier},
    target::{self, Action, Desired, InstanceKey, Observed},
};

/// Between two looks at /proc while some target has no process: at first, and at most.
const SEARCH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Between two looks at /proc while every target has one. Ends are told by the kernel, at once.
const STEADY: Duration = Duration::from_secs(5);

/// Between two attempts to attach to a process that could not be attached to: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Why a target has no probes.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The binary cannot be searched.
    #[error(transparent)]
    Symbols(#[from] SymbolsError),
    /// None of the functions is there.
    #[error("none of the functions asked for is in the executable{0}")]
    NoSymbol(String),
    /// The kernel refused.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The process is gone already.
    #[error(transparent)]
    Gone(#[from] ObserveError),
}

impl TargetError {
    fn reason(&self) -> Reason {
        match self {
            Self::NoSymbol(_) => Reason::SymbolNotFound,
            Self::Symbols(_) | Self::Attach(_) | Self::Gone(_) => Reason::AttachFailed,
        }
    }
}

/// Everything that is attached, and what it has counted.
pub struct Engine {
    tier: Tier,
    calibration: Calibration,
    clock: Clock,
    assignments: Vec<Assignment>,
    live: BTreeMap<InstanceKey, Live>,
    unmatched: Vec<Assignment>,
    next_scan: Instant,
    search_interval: Duration,
}

/// Time since the agent's start: what the pure part counts in.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// How to attach, and what the traps add to a call.
type Means = (Tier, u64);

struct Live {
    assignment: Assignment,
    instance: Instance,
    probing: Probing,
}

/// What is in place for a target.
enum Probing {
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
    /// Nothing, on purpose, until the order changes.
    Held { process: ProcessId },
}

impl Probing {
    fn process(&self) -> Option<ProcessId> {
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

impl Engine {
    /// An engine with nothing to do.
    pub fn new(tier: Tier, calibration: Calibration) -> Self {
        Self {
            tier,
            calibration,
            clock: Clock(Instant::now()),
            assignments: Vec::new(),
            live: BTreeMap::new(),
            unmatched: Vec::new(),
            next_scan: Instant::now(),
            search_interval: SEARCH.0,
        }
    }

    fn means(&self) -> Means {
        (self.tier, self.calibration.trap_ns)
    }

    /// What a probed call costs.
    pub fn calibration(&self) -> Calibration {
        self.calibration
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
        let means = self.means();
        for live in self.live.values_mut() {
            changed |= live.retry(means, self.clock);
        }
        self.schedule_scan(changed);
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
        let cost = Duration::from_nanos(self.calibration.cost_per_call_ns);
        let mut closed = false;
        for live in self.live.values_mut() {
            if self.clock.now() >= live.instance.window_ends() {
                live.close_window(self.clock, cost);
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
    pub fn slow_operations(&mut self) -> Vec<SlowOperation> {
        self.live
            .values_mut()
            .flat_map(Live::slow_operations)
            .collect()
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
                self.live.remove(&key);
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
                let means = self.means();
                if let Some(live) = self.live.get_mut(&key) {
                    live.attach(means, desired, self.clock, RETRY.0);
                }
            }
        }
    }

    /// Makes or updates the record of a target by its order.
    fn take_order(&mut self, key: InstanceKey, assignment: &Assignment) {
        let slots = || kinds::slots(&assignment.probes);
        let interval = assignment.report_interval.get();
        let overhead = || assignment.overhead.clone();
        match self.live.get_mut(&key) {
            None => {
                let now = self.clock.now();
                let live = Live {
                    instance: Instance::new(key.clone(), slots(), interval, overhead(), now),
                    assignment: assignment.clone(),
                    probing: Probing::Nothing,
                };
                self.live.insert(key, live);
            }
            Some(live) => {
                if !target::same_work(&live.assignment, assignment) {
                    live.read(self.clock);
                    live.instance.reconfigure(slots(), interval, overhead());
                    live.probing = Probing::Nothing;
                }
                live.assignment = assignment.clone();
            }
        }
    }
}

impl Live {
    fn attach(&mut self, means: Means, desired: Desired, clock: Clock, retry_after: Duration) {
        let Some(located) = desired.located.clone() else {
            return;
        };
        let process = located.process;
        if self.probing.process().is_some_and(|old| old != process) {
            self.lose(clock);
        }
        let key = &self.instance.key;
        let mut coverage = Coverage::default();
        match attach(means, &desired.assignment, process, &mut coverage) {
            Ok((probes, exit)) => {
                info!(
                    pod = %key.pod.name, namespace = %key.pod.namespace, container = %key.container,
                    probe = %key.probe.name, pid = process.pid, tier = means.0.as_str(), "attached"
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
    fn retry(&mut self, means: Means, clock: Clock) -> bool {
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
    fn lose(&mut self, clock: Clock) {
        self.read(clock);
        self.probing = Probing::Nothing;
        self.instance.process_gone(clock.now());
        let key = &self.instance.key;
        info!(pod = %key.pod.name, container = %key.container, "the process ended; waiting for its successor");
    }

    fn read(&mut self, clock: Clock) {
        if let Probing::Attached { probes, .. } = &mut self.probing {
            match probes.read() {
                Ok(reading) => self.instance.observe(&reading, clock.now()),
                Err(error) => warn!(%error, "cannot read what the kernel counted"),
            }
        }
    }

    fn close_window(&mut self, clock: Clock, cost: Duration) {
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

    fn slow_operations(&mut self) -> Vec<SlowOperation> {
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

/// Searches the process's binaries and attaches to what is there. `coverage` is filled as far as it is known.
fn attach(
    (tier, trap_ns): Means,
    assignment: &Assignment,
    process: ProcessId,
    coverage: &mut Coverage,
) -> Result<(Probes, Exit), TargetError> {
    // Before the search: a process that ends meanwhile is noticed.
    let exit = Exit::of(process)?;
    let slots = kinds::slots(&assignment.probes);
    let symbols = find_symbols(process, &kinds::symbols(&slots))?;
    *coverage = cover(&slots, &symbols);
    let plan = Plan {
        pid: process.pid,
        slots: u8::try_from(slots.len()).unwrap_or(u8::MAX),
        sites: sites(&slots, &symbols),
        ring_bytes: DEFAULT_RING_BYTES,
        trap_ns,
    };
    if plan.sites.is_empty() {
        return Err(TargetError::NoSymbol(coverage.sentence()));
    }
    Ok((Probes::attach(tier, &plan)?, exit))
}

/// What of the slots a binary can serve.
pub fn cover(slots: &[kinds::Slot], symbols: &Symbols) -> Coverage {
    let missing_operations = slots
        .iter()
        .filter(|slot| {
            !slot
                .functions
                .iter()
                .any(|function| symbols.found.contains_key(function.symbol))
        })
        .map(|slot| slot.operation.to_string())
        .collect();
    Coverage {
        missing_operations,
        missing_symbols: symbols.missing.iter().cloned().collect(),
        stripped: symbols.stripped,
    }
}

/// A site for each function that was found.
pub fn sites(slots: &[kinds::Slot], symbols: &Symbols) -> Vec<Site> {
    let mut sites = Vec::new();
    for (index, slot) in (0..=u8::MAX).zip(slots) {
        for function in slot.functions {
            if let Some(location) = symbols.found.get(function.symbol) {
                sites.push(Site {
                    symbol: function.symbol.to_string(),
                    binary: Arc::clone(&location.binary),
                    offset: location.offset,
                    slot: index,
                    payload: function.payload,
                    slow_threshold_ns: slot.slow_threshold_ns,
                });
            }
        }
    }
    sites
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
