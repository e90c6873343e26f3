//! One process on a host without Kubernetes, as the command line measures it: an engine with one view, which no order changes.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use ckb_probe_crds::{
    Assignment, KindSpec, Overhead, PodReference, Probe, ProbeReference, Reason, Traces,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{
    super::measured::{Measured, UNANSWERED},
    Engine,
};
use crate::{
    export::{exporters::Exporters, metric_sink::MetricSink, span_sink::SpanSink},
    host::HostError,
    kernel::{CalibratedTier, Tier},
    mechanism::{Event, Refusal, profile::Finished},
    observe::Process,
    preflight::Unmeasurable,
    state::{instance::Instance, probe::ProbeState},
    target::{Action, Desired, InstanceKey, Located},
};

/// Who has nothing else to do looks so often whether something is done, and so many times: not by the clock, since this program
/// may be stopped for a while.
const WAIT: Duration = Duration::from_millis(1);
const WAITS: u32 = 60_000;

/// So many times where somebody waits to be let go.
const SOON: u32 = 10_000;

/// A process with probes in place. Dropping it detaches them.
pub struct Session {
    /// The process.
    pub process: Process,
    engine: Engine,
    key: InstanceKey,
    keeps_stacks: bool,
    /// Whether the process was measured anew, as it ran another file.
    renewed: bool,
}

impl Session {
    /// Attaches to whatever the process has of what is asked. To be called within a tokio runtime.
    pub fn attach(
        means: Result<CalibratedTier, Unmeasurable>,
        process: Process,
        question: KindSpec,
        overhead: Overhead,
        interval: Duration,
    ) -> Result<Self, HostError> {
        let probes = vec![Probe::new(question.kind().as_str(), question)];
        Self::attach_all(means, process, probes, overhead, interval)
    }

    /// The same of several questions, of which some may be refused, since the process or the kernel lacks what they need: [`Self::lacks`] says
    /// of which.
    pub fn attach_all(
        means: Result<CalibratedTier, Unmeasurable>,
        process: Process,
        probes: Vec<Probe>,
        overhead: Overhead,
        interval: Duration,
    ) -> Result<Self, HostError> {
        Self::begin(means, process, (probes, overhead), interval, false)
    }

    /// The same, for who takes windows of stacks by [`Self::stacks`].
    pub fn attach_with_stacks(
        means: Result<CalibratedTier, Unmeasurable>,
        process: Process,
        asked: (Vec<Probe>, Overhead),
        interval: Duration,
    ) -> Result<Self, HostError> {
        Self::begin(means, process, asked, interval, true)
    }

    fn begin(
        means: Result<CalibratedTier, Unmeasurable>,
        process: Process,
        (probes, overhead): (Vec<Probe>, Overhead),
        interval: Duration,
        keeps_stacks: bool,
    ) -> Result<Self, HostError> {
        let mut engine = Engine::new(means.map_err(Refusal::from));
        engine.tools.deadline = Duration::MAX;
        engine.tools.patience = WAIT * WAITS;
        let measured = Measured::new(process.id)?;
        engine.processes.insert(process.id, measured);
        let order = Assignment {
            probe: ProbeReference::default(),
            asks: String::new(),
            pod: PodReference::default(),
            containers: Vec::new(),
            executable: process.executable.clone(),
            report_interval: interval.into(),
            overhead,
            probes,
            // If there is an exporter at all.
            traces: Some(Traces::default()),
            expires_at: None,
        };
        let desired = Desired {
            assignment: order,
            located: Some(Located {
                process: process.id,
                others: 0,
            }),
        };
        let key = InstanceKey::default();
        let attach = Action::Attach(key.clone(), desired);
        engine.carry_out(attach, &mut BTreeSet::new());
        if let Some(view) = engine.views.get_mut(&key) {
            view.flow = None;
        }
        engine.settle(process.id);
        let mut session = Self {
            process,
            engine,
            key,
            keeps_stacks,
            renewed: false,
        };
        // A process that has just begun may not have mapped its libraries yet.
        session.turns_until(WAITS, |session| session.instance().is_answered());
        match session.refusal() {
            Some(refusal) => Err(refusal.clone().into()),
            None if session.instance().is_answered() => Ok(session),
            None => Err(Refusal::new(Reason::AttachFailed, UNANSWERED).into()),
        }
    }

    /// Takes its turns until this is so; false where it is not after so many of them.
    fn turns_until(&mut self, turns: u32, is_so: impl Fn(&Self) -> bool) -> bool {
        (0..turns).any(|_| {
            self.turn();
            let is_so = is_so(self);
            if !is_so {
                thread::sleep(WAIT);
            }
            is_so
        })
    }

    fn is_pending(&self) -> bool {
        let mut measured = self.engine.processes.values();
        measured.any(Measured::is_pending)
    }

    /// Takes off all that is attached, once what was counted is read, and waits until it is gone: for whoever does not keep it within its
    /// budget for a while. False where that does not come to its end: it goes on then.
    pub fn suspend(&mut self) -> Result<bool, HostError> {
        if !self.turns_until(SOON, |session| !session.is_pending()) {
            return Ok(false);
        }
        self.engine.suspend(self.process.id);
        for _ in 0..SOON {
            if self.engine.tools.reaper.is_idle() {
                return Ok(true);
            }
            thread::sleep(WAIT);
        }
        self.resume()?;
        Ok(false)
    }

    /// Attaches all of it again, where the process is there still. What it called meanwhile is in no count, and totals say so.
    pub fn resume(&mut self) -> Result<(), HostError> {
        let process = self.process.id;
        let has_ended = |one: &Measured| one.exit.has_ended();
        if self.engine.processes.get(&process).is_none_or(has_ended) {
            let now = self.now();
            for view in self.engine.views.values_mut() {
                view.instance_mut().process_gone(now);
            }
            return Ok(());
        }
        self.engine.settle(process);
        self.turns_until(WAITS, |session| !session.is_pending());
        self.step()?;
        match self.refusal() {
            Some(refusal) => Err(refusal.clone().into()),
            None => Ok(()),
        }
    }

    /// Why nothing is to be measured, if so.
    fn refusal(&self) -> Option<&Refusal> {
        let books = &self.instance().probes;
        let mut refusals = books.iter().filter_map(|book| book.refusal());
        // What one lacks keeps no other from anything.
        let goes_on = refusals.clone().count() < books.len();
        refusals.next().filter(|_| !goes_on)
    }

    /// Why the process was measured anew, each time since this was asked last, in sentences: nothing was attached to what it runs by now.
    pub fn told_renewals(&mut self) -> Vec<String> {
        let renewals = std::mem::take(&mut self.engine.renewals);
        self.renewed |= !renewals.is_empty();
        let pid = self.process.id.pid;
        let told = |renewal| {
            format!(
                "process {pid} {renewal}, which is measured anew: what it called until then is not counted"
            )
        };
        renewals.into_iter().map(told).collect()
    }

    fn look_for_renewal(&mut self) {
        self.engine.renew(self.process.id);
    }

    /// What was counted.
    pub fn instance(&self) -> &Instance {
        &self.engine.views[&self.key].instance
    }

    /// What could not be measured, as the end of a sentence; empty when all is.
    pub fn lacks(&self) -> String {
        self.lacking(|_| true)
    }

    /// The same without what [`Self::refused`] has.
    pub fn lacks_of_the_kernel(&self) -> String {
        self.lacking(|book| book.unsupported().is_some())
    }

    /// The questions that are not answered, and why, by their names; without those for which the kernel lacks something.
    pub fn refused(&self) -> Vec<(String, Refusal)> {
        let probes = self.instance().probes.iter();
        let refused = probes.filter(|book| book.unsupported().is_none());
        let named = |book: &ProbeState| Some((book.probe.name.clone(), book.refusal()?.clone()));
        refused.filter_map(named).collect()
    }

    fn lacking(&self, of: impl Fn(&ProbeState) -> bool) -> String {
        let probes = || self.instance().probes.iter();
        let refused = probes().filter(|book| of(book));
        let refused = refused.filter_map(|book| Some((&book.probe.name, book.refusal()?)));
        let refused = refused.enumerate().map(|(place, (name, refusal))| {
            let but = if place == 0 { "but" } else { "and" };
            format!(", {but} not {name}: {refusal}")
        });
        let whole = probes().filter(|book| book.refusal().is_none());
        let lacks = whole.filter_map(|book| Some(book.coverage()?.sentence.clone()));
        refused.chain(lacks).collect()
    }

    /// When [`Self::step`] is due again; None when it never is.
    pub fn next_step(&self) -> Option<Instant> {
        let soon = self.is_pending().then(|| Instant::now() + WAIT);
        soon.into_iter().chain(self.engine.next_step()).min()
    }

    /// Keeps within the budget, and looks again for what was not found.
    pub fn step(&mut self) -> Result<(), HostError> {
        self.turn();
        let mut measured = self.engine.processes.values();
        if measured.any(Measured::is_given_up) {
            let message = self.instance().report(self.now()).message;
            return Err(Refusal::new(Reason::AttachFailed, message).into());
        }
        // The program that it executes by now may lack what was asked.
        self.renewed |= !self.engine.renewals.is_empty();
        match self.refusal().filter(|_| self.renewed) {
            Some(refusal) => Err(refusal.clone().into()),
            None => Ok(()),
        }
    }

    fn turn(&mut self) {
        self.engine.step();
        // What attaches is waited for: it is known then when the slice ends.
        let Engine {
            processes, tools, ..
        } = &mut self.engine;
        for measured in processes.values_mut() {
            measured.measurement(tools);
        }
        self.engine.receive();
        if !self.keeps_stacks {
            // Nobody takes them here: whoever has them keeps a few, where nobody is to be told of them.
            self.engine.mailboxes.clear();
        }
    }

    /// Has nothing more be counted, since this is to end. Where the kernel itself remembers which calls are in flight, nothing tells of those that
    /// were left, or in which their threads ended: all that have begun and not ended are counted by this, and not timed.
    pub fn finish(&mut self) {
        let is_of_session = self
            .engine
            .means()
            .is_some_and(|means| means.tier == Tier::Session);
        let mut probes = self.instance().probes.iter();
        if is_of_session && probes.any(|book| book.probe.instrument.config().is_of_files()) {
            self.engine.stop(self.process.id);
        }
        self.engine.finish(self.process.id);
    }

    /// Takes the windows of stacks that are over, each with the name of the probe that asked.
    pub fn stacks(&mut self) -> Vec<(String, Finished)> {
        let finished = self.engine.finished().into_iter();
        finished.map(|one| (one.to.probe, one.finished)).collect()
    }

    /// Takes in what the kernel has counted up to now.
    pub fn read(&mut self) -> Result<(), HostError> {
        Ok(self.engine.try_read(self.process.id)?)
    }

    /// Ends an interval: what was counted in it becomes the instance's current window.
    pub fn close_interval(&mut self) -> Result<(), HostError> {
        self.read()?;
        self.engine.close_window(&self.key);
        self.look_for_renewal();
        Ok(())
    }

    /// Takes the events that the kernel has handed over since the last time, as lines of JSON.
    pub fn events(&mut self) -> Vec<Value> {
        let told = self.told_events().into_iter();
        told.map(|(_, line)| line).collect()
    }

    /// The same, each with what it is made of.
    pub fn told_events(&mut self) -> Vec<(Event, Value)> {
        self.engine.take_events(self.process.id);
        std::mem::take(&mut self.engine.told)
    }

    /// From now on has what takes a time exported as spans.
    pub fn export(&mut self, spans: SpanSink) {
        self.engine.spans = Exporters::of_one(spans);
    }

    /// Has all that was counted up to now exported as metrics.
    pub fn offer_to(&self, metrics: &mut MetricSink) {
        let exemplars = self.engine.exemplars();
        metrics.offer(self.now(), Timestamp::now(), [self.instance()], &exemplars);
    }

    /// Nothing is exported any more: whoever did it.
    pub fn end_export(&mut self) -> Exporters {
        self.engine.end_export()
    }

    /// Takes what the kernel has handed over, so that it has room: [`Self::told_events`] has it.
    pub fn drain(&mut self) {
        self.engine.take_events(self.process.id);
        self.look_for_renewal();
    }

    /// The time since it began, in which its books count.
    pub fn now(&self) -> Duration {
        self.engine.clock.now()
    }
}
