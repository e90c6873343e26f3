//! Looks for the processes that orders are about, and has the orders carried out with what was found.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use ckb_probe_crds::Assignment;
use tracing::warn;

use super::{
    super::{
        view::{Stage, View},
        workers::Outcome,
    },
    Engine,
};
use crate::{
    observe::{Found, ObserveError, Process, ProcessId, Search},
    target::{self, InstanceKey},
};

/// Between two looks at /proc while some target has no process: at first, and at most.
pub(super) const SEARCH: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(1));

/// Between two looks at /proc while every target has one. Ends are told by the kernel, at once.
const STEADY: Duration = Duration::from_secs(5);

impl Engine {
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
    pub(super) fn scanned(&mut self, outcome: Outcome<Result<Found, ObserveError>>) -> bool {
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
        let executed = measured.into_iter().filter(|one| self.renew(*one));
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

    /// When [`Self::reconcile`] is due again.
    pub fn next_scan(&self) -> Instant {
        self.next_scan
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
