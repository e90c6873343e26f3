//! A process, measured once for all views of it.

mod accounts;
mod completeness;
mod fresh;
mod renewal;
mod state;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use accounts::AccountFiles;
use ckb_probe_core::contention::Accounts;
use ckb_probe_crds::{Breach, Overhead, Reason};
use completeness::{Completeness, Retry};
use fresh::Fresh;
pub use renewal::Renewal;
use renewal::Renewals;
use state::{Attempt, Happened, State};

use super::{
    Clock, Tools,
    measurement::{Allowance, Measurement, MeasurementError},
    workers::Wanted,
};
use crate::{
    kernel::memory,
    kinds::Instrumented,
    mechanism::{Answer, Batch, Refusal},
    observe::{self, Exit, ObserveError, ProcessId},
    state::{self as books, TimedFact, instance::Instance},
};

/// What is said of who keeps everybody waiting.
pub const UNANSWERED: &str = "the file system that the executable or its libraries are on, or the kernel, has not answered for 5 s: \
                          it is measured as soon as that answers; see whether the volume's server is alive";

const TOO_MANY: &str = "file systems that do not answer, or the kernel, hold up too much of the agent already: it is tried again; see which volumes \
                        of this node's pods have lost their servers";

/// A process that something is asked of.
pub struct Measured {
    /// The process.
    pub process: ProcessId,
    /// Tells of its end.
    pub exit: Exit,
    /// The namespace of its pod, once something was asked of it.
    namespace: Arc<str>,
    state: State,
    /// CPU-seconds that measuring it cost too much, by the last measurement that is over.
    owed: f64,
    /// What was noted of it before it went away to attach: whatever becomes of it there, that is known.
    noted: Vec<TimedFact>,
    /// Whether what was attached to is what it runs.
    renewals: Renewals,
    /// What its container waits for.
    accounts: AccountFiles,
}

/// What came of what was being done for a process.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Nothing that concerns its views.
    Nothing,
    /// Its views know more.
    Answered,
    /// It is to be measured anew.
    Again,
    /// What was attached cannot be any more, and why: it is to be read and [given up](Measured::give_up).
    Broken(String),
    /// The same, of what went with the thread that attached it: it was read last at that time, and cannot be any more.
    Gone(String, Duration),
}

/// What all that ask of a process may cost it, together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Percent of its CPU time: as much as the most generous of them allows, and no more than the ceiling.
    pub percent: f64,
    /// What sampling keeps it below: that where anybody would rather have it sampled, and else the ceiling, if there is one.
    pub sampled: Option<f64>,
    /// Percent of one core that are granted besides: as much as the most generous allows, within what the installation grants.
    pub floor: f64,
}

impl Budget {
    /// What sampling keeps it below, per CPU time of the process.
    pub fn ratio(self) -> Option<f64> {
        self.sampled.map(|percent| percent / 100.0)
    }

    /// The same, with what is granted besides.
    pub fn allowance(self) -> Option<Allowance> {
        let floor = self.floor;
        self.sampled.map(|percent| Allowance { percent, floor })
    }
}

/// The budget of all that ask, below this ceiling and within this floor, which are nobody's who asks.
pub fn combined(overheads: &[&Overhead], ceiling: Option<f64>, floor: Option<f64>) -> Budget {
    let percent = overheads.iter().map(|one| one.max_percent);
    let greatest = percent.fold(0.0, f64::max);
    let percent = ceiling.map_or(greatest, |ceiling| greatest.min(ceiling));
    let asked = overheads.iter().map(|one| one.floor).fold(0.0, f64::max);
    let sampled = overheads.iter().any(|one| one.on_breach == Breach::Sample);
    Budget {
        percent,
        sampled: if sampled { Some(percent) } else { ceiling },
        floor: asked.min(floor.unwrap_or(f64::INFINITY)),
    }
}

/// Lets through what there is memory for, to keep books of it.
fn within_memory() -> impl FnMut(Answer) -> Answer {
    let account = memory::budget();
    let mut left = account.left_for_the_payer();
    move |answer| {
        let opened = answer?;
        let needed = books::bytes(&opened.subscriptions);
        left = left.checked_sub(needed).ok_or_else(|| {
            let refusal = account.refusal(needed, left, memory::possible_cpus());
            let message =
                format!("to keep count of this for one CkbProbe more does not fit: {refusal}");
            Refusal::new(Reason::MemoryLimit, message)
        })?;
        Ok(opened)
    }
}

impl Measured {
    /// A process of which nothing is measured yet. The exit first: a process that ends during a search is noticed.
    pub fn new(process: ProcessId) -> Result<Self, ObserveError> {
        Ok(Self {
            process,
            exit: Exit::of(process)?,
            namespace: Arc::default(),
            state: State::NEW,
            owed: 0.0,
            noted: Vec::new(),
            renewals: Renewals::default(),
            accounts: AccountFiles::default(),
        })
    }

    /// What its container has waited for up to now; None until that can be read.
    pub fn accounts(&mut self) -> Option<Accounts> {
        self.accounts.read()
    }

    /// Measures what these probes ask, in place of what was measured before, of which nothing is lost that was counted: what was
    /// there is read, and its entries taken, by then. The views are told what became of their probes when that
    /// [arrives](Self::arrive).
    pub fn ask(&mut self, tools: &Tools, views: &mut [(&mut Instance, usize)], clock: Clock) {
        self.renewals.asked(self.process);
        // Those of one process are all of its pod.
        if let Some((instance, _)) = views.first() {
            self.namespace = instance.key.pod.namespace.as_str().into();
        }
        let overheads: Vec<Overhead> = views
            .iter()
            .map(|(instance, _)| instance.overhead().clone())
            .collect();
        let budget = combined(
            &overheads.iter().collect::<Vec<_>>(),
            tools.ceiling,
            tools.floor,
        );
        for (instance, _) in views.iter_mut() {
            instance.budget_percent = budget.percent;
        }
        let mut questions: Vec<Instrumented> = Vec::new();
        for (instance, _) in views.iter() {
            for book in &instance.probes {
                let known = |one: &Instrumented| one.question == book.probe.question;
                if !questions.iter().any(known) {
                    questions.push(book.probe.clone());
                }
            }
        }
        self.suspend(tools, views, clock);
        if tools.are_held_up(&self.namespace) {
            let now = clock.now();
            self.state.refuse(Fresh::refused(questions, TOO_MANY, now));
            return self.tell(views, now);
        }
        self.accounts
            .open(&tools.workers, &self.namespace, self.process);
        let (mut all, process, asked) = (tools.clone(), self.process, questions.clone());
        let namespace = Arc::clone(&self.namespace);
        let owed = self.owed;
        let begin = move |wanted: &Wanted| {
            let budget = (budget, owed);
            Fresh::begin(&mut all, process, &namespace, asked, budget, clock, wanted)
        };
        let errand = tools.workers.start_wanted(&self.namespace, begin);
        self.state.start(&questions, errand);
    }

    /// Lets go of what measures it, of which all that was counted is read. Until it is [asked](Self::ask) anew, and that answered, it is a
    /// gap, which the views are told of then.
    pub fn suspend(&mut self, tools: &Tools, views: &mut [(&mut Instance, usize)], clock: Clock) {
        if let Some(mut before) = self.state.release() {
            let since = before.stopped().unwrap_or_else(|| clock.now());
            for (instance, _) in views.iter_mut() {
                instance.suspend(since);
            }
            self.owed = before.debt();
            before.end();
            tools.reaper.take(before);
        }
    }

    /// Takes what was being done, if it is done, and tells the views where they are to know.
    pub fn arrive(
        &mut self,
        tools: &Tools,
        views: &mut [(&mut Instance, usize)],
        clock: Clock,
    ) -> Arrival {
        match self.state.poll(tools.deadline) {
            Happened::Nothing => Arrival::Nothing,
            Happened::Answered(attached) => {
                self.tell(views, attached);
                Arrival::Answered
            }
            Happened::StartsLate => {
                self.refuse(views, UNANSWERED, clock);
                Arrival::Answered
            }
            Happened::AttachesLate(read) => {
                // What was counted since then can't be read.
                for (instance, _) in views.iter_mut() {
                    instance.failed(Reason::AttachFailed, UNANSWERED.to_string(), read);
                }
                Arrival::Answered
            }
            Happened::StartLost => {
                self.refuse(views, "the search for its functions failed", clock);
                Arrival::Answered
            }
            Happened::Outdated(gone) => {
                tools.reaper.take(gone);
                Arrival::Again
            }
            Happened::Failed(error) => Arrival::Broken(error),
            Happened::Gone(read) => Arrival::Gone("what attached it has failed".to_string(), read),
        }
    }

    /// Tells the views what became of what they ask.
    fn tell(&self, views: &mut [(&mut Instance, usize)], attached: Duration) {
        let State::Answered(answered) = &self.state else {
            return;
        };
        if !answered.is_told() {
            return;
        }
        let payer = Some(Arc::clone(&self.namespace));
        let mut within = memory::on_behalf_of(payer, within_memory);
        for (instance, others) in views.iter_mut() {
            let answers = instance.probes.iter().map(|book| {
                let mut all = answered.questions.iter().zip(&answered.answers);
                let own = all.find(|(asked, _)| asked.question == book.probe.question);
                own.map_or_else(
                    || Err(Refusal::new(Reason::AttachFailed, "not asked")),
                    |(_, answer)| within(answer.clone()),
                )
            });
            let answers = answers.collect();
            instance.answered(self.process, *others, answers, attached);
        }
    }

    fn refuse(&self, views: &mut [(&mut Instance, usize)], message: &str, clock: Clock) {
        let refusal = Refusal::new(Reason::AttachFailed, message);
        for (instance, others) in views.iter_mut() {
            let answers = vec![Err(refusal.clone()); instance.probes.len()];
            instance.answered(self.process, *others, answers, clock.now());
        }
    }

    /// Whether nothing can be asked of it now, as it is being begun, or attaches for longer than anybody waits. It is to be asked
    /// [again](Arrival::Again) then.
    pub fn is_busy(
        &mut self,
        tools: &Tools,
        views: &mut [(&mut Instance, usize)],
        clock: Clock,
    ) -> bool {
        self.state.fetch(tools.patience);
        let is_late = self.state.outdate();
        if is_late == Some(true) {
            // Some of them may be new.
            self.refuse(views, UNANSWERED, clock);
        }
        is_late.is_some()
    }

    /// Whether something is being done that [arrives](Self::arrive) in time.
    pub fn is_pending(&self) -> bool {
        self.state.is_pending()
    }

    /// Whether it was [given up](Self::give_up), and is not asked anew yet.
    pub fn is_given_up(&self) -> bool {
        matches!(self.state, State::Idle(Some(_)))
    }

    /// Whether its measurement is away, and may be back before its views are told that it is not.
    pub fn is_away(&self) -> bool {
        self.state.is_away()
    }

    /// When the views are to be told that what is being done takes too long.
    pub fn deadline(&self, tools: &Tools) -> Option<Instant> {
        self.state.late_at(tools.deadline)
    }

    /// Whether what is measured goes on as it is, though something else is asked, since no more can be begun now: it would be lost
    /// for file systems that are none of its own. Who is new is told so; it is asked [again](Self::look_again) when that is over.
    pub fn goes_on(
        &mut self,
        tools: &Tools,
        views: &mut [(&mut Instance, usize)],
        clock: Clock,
    ) -> bool {
        if views.is_empty() || !tools.are_held_up(&self.namespace) || !self.state.hold_up() {
            return false;
        }
        let mut new: Vec<_> = views
            .iter_mut()
            .filter(|(view, _)| !view.is_answered())
            .map(|(view, others)| (&mut **view, *others))
            .collect();
        self.refuse(&mut new, TOO_MANY, clock);
        true
    }

    /// When it is to be tried again to find what was not found, or to ask from nothing; None when all was found, or something is
    /// being done.
    pub fn retry_at(&self) -> Option<Instant> {
        self.state.retry_at()
    }

    /// Looks again for what was not found, if it is time. True when all is to be asked anew; where there is more to be measured
    /// than is, [`Self::arrive`] will say so.
    pub fn look_again(&mut self, tools: &Tools) -> bool {
        match self.state.retry(tools.are_held_up(&self.namespace)) {
            None => false,
            Some(Attempt::Ask) => true,
            Some(Attempt::Look(retry)) => self.search(tools, retry),
        }
    }

    fn search(&mut self, tools: &Tools, retry: Retry) -> bool {
        let State::Answered(answered) = &mut self.state else {
            return false;
        };
        let configs = answered.questions.iter();
        // What is measured besides has no answer of its own, and is not looked for.
        let configs = configs.map(|one| one.instrument.config()).enumerate();
        let (mut searches, mut may_pass) = (Vec::new(), false);
        for batch in Batch::all(configs) {
            let places = batch.places.iter();
            let answers = places.map(|place| answered.answers[*place].clone());
            let answers: Vec<Answer> = answers.collect();
            let refused = |answer: &Answer| answer.as_ref().is_err_and(|error| !error.is_lasting());
            let refused = answers.iter().any(refused);
            match batch.search(answers, self.process, &tools.node) {
                Some(search) => searches.push(search),
                None => may_pass |= refused,
            }
        }
        // Where nothing is looked for, all is tried again altogether, but not often.
        if !retry.is_young() && may_pass {
            return true;
        }
        if !searches.is_empty() {
            let search = move || searches.into_iter().any(|search| search());
            let errand = tools.workers.start_for(&self.namespace, search);
            answered.completeness = Completeness::Looking(retry, errand);
        }
        false
    }

    /// Since when another process has the number of this one, as the time since boot, where it has ended and nobody was told yet: programs that
    /// go by the number count what that one does.
    pub fn successor(&self) -> Option<Duration> {
        self.exit
            .has_ended()
            .then(|| observe::successor(self.process))?
    }

    /// Whether it runs another file by now than what was attached to.
    pub fn renewal(&mut self, tools: &Tools) -> Option<Renewal> {
        if self.exit.has_ended() {
            return None;
        }
        let mapped = match &self.state {
            State::Answered(answered) => answered.libraries.as_ref(),
            State::Idle(_) | State::Starting(_) => None,
        };
        let start = |look| tools.workers.start_for(&self.namespace, look);
        self.renewals.of(self.process, mapped, start)
    }

    /// Whether it is being looked what it has mapped.
    pub fn looks_for_a_renewal(&self) -> bool {
        self.renewals.are_looked_for()
    }

    /// What is measured, if anything is, and is at hand or back soon.
    pub fn measurement(&mut self, tools: &Tools) -> Option<&mut Measurement> {
        self.state.fetch(tools.patience);
        self.state.measurement()
    }

    /// What was noted of it since the last time; what is noted while it attaches waits until it is back.
    pub fn entries(&mut self) -> Vec<TimedFact> {
        let mut entries = std::mem::take(&mut self.noted);
        let measurement = self.state.measurement();
        entries.extend(measurement.into_iter().flat_map(Measurement::entries));
        entries
    }

    /// When [`Self::step`] is due again.
    pub fn next_step(&self) -> Option<Duration> {
        self.state.attached()?.next_step()
    }

    fn due(&mut self, clock: Clock) -> Option<&mut Measurement> {
        let due = self.next_step().is_some_and(|step| step <= clock.now());
        self.state.measurement().filter(|_| due)
    }

    /// Keeps within the budget, if it is time. Where that fails it is time to [give up](Self::give_up), once what was counted is
    /// read. While it attaches, the measurement is away.
    pub fn step(&mut self, tools: &Tools, clock: Clock) -> Result<(), MeasurementError> {
        if self.successor().is_some() {
            return Ok(());
        }
        let Some(measurement) = self.due(clock) else {
            return Ok(());
        };
        if !measurement.decide(&|| clock.now())? {
            return Ok(());
        }
        let (read, noted) = (measurement.read_at(), measurement.entries());
        self.noted.extend(noted);
        self.state.attach(read, |mut measurement| {
            tools.workers.start_for(&self.namespace, move || {
                let result = measurement.attach(&|| clock.now());
                (measurement, result)
            })
        });
        Ok(())
    }

    /// Measures nothing any more, until [`Self::look_again`] says that it is time to begin anew.
    pub fn give_up(&mut self, tools: &Tools) {
        let given_up = self.state.give_up();
        if let Some(measurement) = &given_up {
            self.owed = measurement.debt();
        }
        tools.reaper.take(given_up);
    }
}

#[cfg(test)]
mod tests;
