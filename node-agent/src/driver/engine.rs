//! Carries out what [`crate::target::plan`] decides: attaches, reads, detaches. No API server here.

mod mailboxes;
mod orders;
mod processes;
mod scan;
mod session;
mod windows;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use ckb_probe_crds::Assignment;
use ckb_probe_traces::Counts;
use futures::{StreamExt, stream::FuturesUnordered};
use mailboxes::Mailbox;
pub use mailboxes::{Addressee, Delivery};
use scan::SEARCH;
use serde_json::Value;
pub use session::Session;

use super::{
    Clock, Tools,
    measured::{Measured, Renewal},
    view::View,
    workers::Errand,
};
use crate::{
    export::{exemplars::Exemplars, exporters::Exporters},
    kernel::CalibratedTier,
    mechanism::{Event, NodePolicy, Refusal},
    observe::{ContainerNames, Found, ObserveError, ProcessId},
    state::{
        instance::{EARLY_DEATH, Instance},
        slow_calls,
    },
    target::InstanceKey,
};

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
    /// Why processes were measured anew, of late.
    renewals: VecDeque<Renewal>,
}

/// So many are known.
const MOST_RENEWALS: usize = 16;

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
            renewals: VecDeque::new(),
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
}

fn views_on(
    views: &mut BTreeMap<InstanceKey, View>,
    process: ProcessId,
) -> impl Iterator<Item = &mut View> {
    let views = views.values_mut();
    views.filter(move |view| view.process() == Some(process))
}

#[cfg(test)]
mod tests;
