//! A process, measured once for all views of it.

mod errands;
mod fresh;

use std::{
    thread,
    time::{Duration, Instant},
};

use ckb_probe_crds::{Breach, KindSpec, Overhead, Reason};
pub use errands::Arrival;
use errands::{DEADLINE, Doing, TOO_MANY};
use fresh::Fresh;

use super::{
    Clock, Tools,
    measurement::{Measurement, MeasurementError},
    workers::{Errand, Outcome},
};
use crate::{
    kernel::memory,
    kinds::{Instrumented, instrument},
    mechanism::{Answer, Batch, Refusal},
    observe::{Exit, ObserveError, ProcessId},
    state::{self, TimedFact, instance::Instance},
};

/// Between two attempts to find what was not found: at first, and at most. A process that has just begun maps its libraries
/// within milliseconds, and is looked at again as soon.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(60));

/// At most, as long as nothing at all was found in a young process: its loader is kept waiting, and a search costs little.
const BLIND: Duration = Duration::from_millis(20);

/// Who has nothing else to do looks so often whether something is done, and so many times.
const WAIT: Duration = Duration::from_millis(1);
const WAITS: u32 = 60_000;

/// After so long a process is not young any more: what it has not mapped it lacks.
const YOUTH: Duration = Duration::from_secs(1);

/// What can't be asked while too much is held up is asked again after so long, and then less and less often.
const HELD_UP: Duration = Duration::from_secs(1);

/// A process that something is asked of.
pub struct Measured {
    /// The process.
    pub process: ProcessId,
    /// Tells of its end.
    pub exit: Exit,
    measurement: Option<Measurement>,
    /// What was noted of it before it went away to attach: whatever becomes of it there, that is known.
    noted: Vec<TimedFact>,
    questions: Vec<KindSpec>,
    answers: Vec<Answer>,
    retry: Option<Retry>,
    /// Whether the views know the answers.
    told: bool,
    errand: Option<Doing>,
    search: Option<Errand<bool>>,
    /// The views know that the errand takes too long.
    late: bool,
    /// Something else is asked since the errand began.
    again: bool,
    /// Something else is asked than is measured, and waits for [`Self::look_again`].
    held_up: bool,
    failure: Option<MeasurementError>,
    deadline: Duration,
}

#[derive(Clone, Copy)]
struct Retry {
    at: Instant,
    after: Duration,
    began: Instant,
}

impl Retry {
    fn first() -> Self {
        Self::after(RETRY.0)
    }

    fn after(after: Duration) -> Self {
        let now = Instant::now();
        Self {
            at: now + after,
            after,
            began: now,
        }
    }

    /// The next one; `blind` while nothing was found at all.
    fn next(self, blind: bool) -> Self {
        let doubled = (self.after * 2).min(RETRY.1);
        let after = match (blind, self.began.elapsed() < YOUTH) {
            (true, true) => doubled.min(BLIND),
            (true, false) => doubled.max(YOUTH),
            (false, _) => doubled,
        };
        Self {
            began: self.began,
            ..Self::after(after)
        }
    }
}

/// What all that ask of a process may cost it, together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Percent of its CPU time: as much as the most generous of them allows, and no more than the ceiling.
    pub percent: f64,
    /// What sampling keeps it below: that where anybody would rather have it sampled, and else the ceiling, if there is one.
    pub sampled: Option<f64>,
}

impl Budget {
    /// What sampling keeps it below, per CPU time of the process.
    pub fn ratio(self) -> Option<f64> {
        self.sampled.map(|percent| percent / 100.0)
    }
}

/// The budget of all that ask, below this ceiling, which is nobody's who asks.
pub fn combined(overheads: &[&Overhead], ceiling: Option<f64>) -> Budget {
    let percent = overheads.iter().map(|one| one.max_percent);
    let greatest = percent.fold(0.0, f64::max);
    let percent = ceiling.map_or(greatest, |ceiling| greatest.min(ceiling));
    let sampled = overheads.iter().any(|one| one.on_breach == Breach::Sample);
    Budget {
        percent,
        sampled: if sampled { Some(percent) } else { ceiling },
    }
}

/// Lets through what there is memory for, to keep books of it.
fn within_memory() -> impl FnMut(Answer) -> Answer {
    let account = memory::budget();
    let mut left = account.left();
    move |answer| {
        let opened = answer?;
        let needed = state::bytes(&opened.subscriptions);
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
            measurement: None,
            noted: Vec::new(),
            questions: Vec::new(),
            answers: Vec::new(),
            retry: None,
            told: false,
            errand: None,
            search: None,
            late: false,
            again: false,
            held_up: false,
            failure: None,
            deadline: DEADLINE,
        })
    }

    /// Measures what these probes ask, in place of what was measured before, of which nothing is lost that was counted: what was
    /// there is read, and its entries taken, by then. The views are told what became of their probes when that
    /// [arrives](Self::arrive).
    pub fn ask(&mut self, tools: &Tools, views: &mut [(&mut Instance, usize)], clock: Clock) {
        let overheads: Vec<Overhead> = views
            .iter()
            .map(|(instance, _)| instance.overhead().clone())
            .collect();
        let budget = combined(&overheads.iter().collect::<Vec<_>>(), tools.ceiling);
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
        if let Some(mut before) = self.measurement.take() {
            let since = before.stopped().unwrap_or_else(|| clock.now());
            for (instance, _) in views.iter_mut() {
                instance.suspend(since);
            }
            before.end();
            tools.reaper.take(before);
        }
        self.again = false;
        self.held_up = false;
        self.search = None;
        if tools.workers.are_stuck() {
            let fresh = Fresh::refused(&questions, TOO_MANY, clock.now());
            return self.take(fresh, views);
        }
        let (mut all, process) = (tools.clone(), self.process);
        let begin = move || Fresh::begin(&mut all, process, &questions, budget, clock);
        self.errand = Some(Doing::Beginning(tools.workers.start(begin)));
    }

    /// The same, for who has nothing else to do until it has arrived.
    pub fn measure(&mut self, tools: &Tools, views: &mut [(&mut Instance, usize)], clock: Clock) {
        // Not by the clock: this program may be stopped for a while.
        self.deadline = Duration::MAX;
        self.ask(tools, views, clock);
        for _ in 0..WAITS {
            if self.errand.is_none() || self.arrive(tools, views, clock) == Arrival::Answered {
                return;
            }
            thread::sleep(WAIT);
        }
        self.deadline = Duration::ZERO;
        self.arrive(tools, views, clock);
    }

    /// Takes what began, and tells the views.
    fn take(&mut self, fresh: Fresh, views: &mut [(&mut Instance, usize)]) {
        let Fresh {
            questions,
            answers,
            measurement,
            attached,
        } = fresh;
        if questions != self.questions {
            self.retry = None;
        }
        self.questions = questions;
        self.answers = answers;
        self.measurement = measurement;
        let lacking = self.answers.iter().any(|answer| match answer {
            Ok(opened) => opened.coverage.may_grow,
            Err(refusal) => !refusal.is_lasting(),
        });
        self.retry = match (lacking, self.retry) {
            (false, _) => None,
            (true, Some(retry)) => Some(retry),
            (true, None) => Some(Retry::first()),
        };
        // A process that has just begun is not said to lack what it has not had the time to map.
        self.told = self.measurement.is_some() || !self.is_young();
        if !self.told {
            return;
        }
        let mut within = within_memory();
        for (instance, others) in views.iter_mut() {
            let answers = instance.probes.iter().map(|book| {
                let mut all = self.questions.iter().zip(&self.answers);
                let own = all.find(|(question, _)| **question == book.probe.question);
                own.map_or_else(
                    || Err(Refusal::new(Reason::AttachFailed, "not asked")),
                    |(_, answer)| within(answer.clone()),
                )
            });
            let answers = answers.collect();
            instance.answered(self.process, *others, answers, attached);
        }
    }

    /// Whether what is measured goes on as it is, though something else is asked, since no more can be begun now: it would be lost
    /// for file systems that are none of its own. Who is new is told so; it is asked [again](Self::look_again) when that is over.
    pub fn goes_on(
        &mut self,
        tools: &Tools,
        views: &mut [(&mut Instance, usize)],
        clock: Clock,
    ) -> bool {
        if self.measurement.is_none() || views.is_empty() || !tools.workers.are_stuck() {
            return false;
        }
        let refusal = Refusal::new(Reason::AttachFailed, TOO_MANY);
        for (instance, others) in views.iter_mut().filter(|(view, _)| !view.is_answered()) {
            let answers = vec![Err(refusal.clone()); instance.probes.len()];
            instance.answered(self.process, *others, answers, clock.now());
        }
        self.held_up = true;
        self.again = false;
        self.retry = Some(Retry::after(HELD_UP));
        true
    }

    /// When it is to be tried again to find what was not found; None when all was, or it is being tried.
    pub fn retry_at(&self) -> Option<Instant> {
        let is_idle = self.errand.is_none() && self.search.is_none();
        self.retry.filter(|_| is_idle).map(|retry| retry.at)
    }

    /// Whether the next attempt is one of the quick ones after the process began.
    fn is_young(&self) -> bool {
        self.retry.is_some_and(|retry| retry.after < YOUTH)
    }

    /// Looks again for what was not found, if it is time. True when all is to be asked anew; where there is more to be measured
    /// than is, [`Self::arrive`] will say so.
    pub fn look_again(&mut self, tools: &Tools) -> bool {
        let due = self.retry_at().is_some_and(|at| at <= Instant::now());
        let Some(retry) = self.retry.filter(|_| due && !self.questions.is_empty()) else {
            return false;
        };
        self.retry = Some(retry.next(!self.told));
        if tools.workers.are_stuck() {
            return false;
        }
        if self.held_up {
            return true;
        }
        if !self.told && !self.is_young() {
            return true;
        }
        let configs = self.questions.iter();
        let configs = configs.map(|question| instrument(question).config());
        let (mut searches, mut may_pass) = (Vec::new(), false);
        for batch in Batch::all(configs) {
            let places = batch.places.iter();
            let answers: Vec<Answer> = places.map(|place| self.answers[*place].clone()).collect();
            let refused = |answer: &Answer| answer.as_ref().is_err_and(|error| !error.is_lasting());
            let refused = answers.iter().any(refused);
            match batch.search(answers, self.process, &tools.node) {
                Some(search) => searches.push(search),
                None => may_pass |= refused,
            }
        }
        // Where nothing is looked for, all is tried again altogether, but not often.
        if !self.is_young() && may_pass {
            return true;
        }
        if searches.is_empty() {
            return false;
        }
        let search = move || searches.into_iter().any(|search| search());
        self.search = Some(tools.workers.start(search));
        false
    }

    /// The same, for who has nothing else to do: whether there is more to be measured than is, or to be told.
    pub fn finds_more(&mut self, tools: &Tools) -> bool {
        if self.look_again(tools) {
            return true;
        }
        for _ in 0..WAITS {
            match self.search.as_ref().map(|search| search.within(WAIT)) {
                Some(Outcome::UnderWay) => thread::sleep(WAIT),
                found => {
                    self.search = None;
                    return found == Some(Outcome::Done(true));
                }
            }
        }
        false
    }

    /// What is measured, if anything is, and is at hand.
    pub fn measurement(&mut self) -> Option<&mut Measurement> {
        self.fetch();
        self.measurement.as_mut()
    }

    /// What was noted of it since the last time; what is noted while it attaches waits until it is back.
    pub fn entries(&mut self) -> Vec<TimedFact> {
        let mut entries = std::mem::take(&mut self.noted);
        let measurement = self.measurement.as_mut();
        entries.extend(measurement.into_iter().flat_map(Measurement::entries));
        entries
    }

    /// When [`Self::step`] is due again.
    pub fn next_step(&self) -> Option<Duration> {
        self.measurement.as_ref()?.next_step()
    }

    fn due(&mut self, clock: Clock) -> Option<&mut Measurement> {
        let due = self.next_step().is_some_and(|step| step <= clock.now());
        self.measurement.as_mut().filter(|_| due)
    }

    /// Keeps within the budget, if it is time. Where that fails it is time to [give up](Self::give_up), once what was counted is
    /// read. While it attaches, the measurement is away.
    pub fn step(&mut self, tools: &Tools, clock: Clock) -> Result<(), MeasurementError> {
        let Some(measurement) = self.due(clock) else {
            return Ok(());
        };
        if !measurement.decide(&|| clock.now())? {
            return Ok(());
        }
        let read = measurement.read_at();
        if let Some(mut measurement) = self.measurement.take() {
            self.noted.extend(measurement.entries());
            let attach = move || {
                let result = measurement.attach(&|| clock.now());
                (measurement, result)
            };
            self.errand = Some(Doing::Attaching(tools.workers.start(attach), read));
        }
        Ok(())
    }

    /// The same, for who has nothing else to do meanwhile.
    pub fn step_here(&mut self, clock: Clock) -> Result<(), MeasurementError> {
        match self.due(clock) {
            Some(measurement) => measurement.step(&|| clock.now()),
            None => Ok(()),
        }
    }

    /// Measures nothing any more, until [`Self::is_broken`] says that it is time to begin anew.
    pub fn give_up(&mut self, tools: &Tools) {
        if let Some(broken) = self.measurement.take() {
            tools.reaper.take(broken);
        }
        self.answers.clear();
        self.questions.clear();
        self.retry = Some(Retry::after(Duration::from_secs(1)));
    }

    /// Whether it must be measured anew from nothing, as it was given up, and it is time.
    pub fn is_broken(&self) -> bool {
        let due = self.retry_at().is_some_and(|at| at <= Instant::now());
        self.measurement.is_none() && self.questions.is_empty() && due
    }
}

#[cfg(test)]
mod tests;
