//! Report intervals: their ends, and what is reported then.

use std::{collections::BTreeSet, time::Instant};

use ckb_probe_crds::{Assignment, InstanceReport, InstanceState, Reason};
use tracing::warn;

use super::{
    super::{
        measured::Measured,
        view::{Stage, View},
    },
    Engine,
};
use crate::{observe::ProcessId, target::InstanceKey};

impl Engine {
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
            self.renew(process);
        }
        if !due.is_empty() {
            // Rows have come, or gone.
            self.account_for_books(None);
        }
        !due.is_empty()
    }

    /// Ends a view's interval: what was counted in it becomes its current window.
    pub(super) fn close_window(&mut self, key: &InstanceKey) {
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
                let percent = view.instance.budget_percent;
                view.instance_mut().budget_used = view.minute.used(now, &total, percent);
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
