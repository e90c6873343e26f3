//! A process, measured once for all views of it.

use std::time::{Duration, Instant};

use ckb_probe_crds::{Breach, Overhead, Question};

use super::{
    Clock, Tools,
    measurement::{Begun, Measurement, MeasurementError, Running},
};
use crate::{
    books::instance::Instance,
    kinds::{Ask, Instrumented, instrument},
    mechanism::{LoadId, Opened, Refusal, Scene, calls, system_calls},
    observe::{Exit, ObserveError, ProcessId},
};

/// Between two attempts to find what was not found: at first, and at most. A process that has just begun maps its libraries
/// within milliseconds, and is looked at again as soon.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(60));

/// At most, as long as nothing at all was found in a young process: its loader is kept waiting, and a search costs little.
const BLIND: Duration = Duration::from_millis(20);

/// After so long a process is not young any more: what it has not mapped it lacks.
const YOUTH: Duration = Duration::from_secs(1);

/// A process that something is asked of.
pub struct Measured {
    /// Which.
    pub process: ProcessId,
    /// Tells of its end.
    pub exit: Exit,
    measurement: Option<Measurement>,
    questions: Vec<Question>,
    answers: Vec<Result<Opened, Refusal>>,
    retry: Option<Retry>,
    /// Whether the views know the answers.
    told: bool,
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

/// What all that ask may cost, together: as much as the most generous of them allows. Where anybody would rather have it
/// sampled, it is.
pub fn combined(overheads: &[&Overhead]) -> Overhead {
    let percent = overheads.iter().map(|one| one.max_percent);
    let sampled = overheads.iter().any(|one| one.on_breach == Breach::Sample);
    Overhead {
        max_percent: percent.fold(0.0, f64::max),
        on_breach: if sampled {
            Breach::Sample
        } else {
            Breach::Report
        },
    }
}

impl Measured {
    /// A process of which nothing is measured yet. The exit first: a process that ends during a search is noticed.
    pub fn new(process: ProcessId) -> Result<Self, ObserveError> {
        Ok(Self {
            process,
            exit: Exit::of(process)?,
            measurement: None,
            questions: Vec::new(),
            answers: Vec::new(),
            retry: None,
            told: false,
        })
    }

    /// Measures what these probes ask, in place of what was measured before, of which nothing is lost that was counted. Each
    /// view is told what became of its probes. What was there before is read, and its entries taken, by then.
    pub fn measure(
        &mut self,
        tools: &mut Tools,
        views: &mut [(&mut Instance, usize)],
        clock: Clock,
    ) {
        let overheads: Vec<Overhead> = views
            .iter()
            .map(|(instance, _)| instance.overhead().clone())
            .collect();
        let overhead = combined(&overheads.iter().collect::<Vec<_>>());
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
            let now = clock.now();
            for (instance, _) in views.iter_mut() {
                instance.suspend(now);
            }
            before.end();
            tools.reaper.take(before);
        }
        let now = self.begin(tools, &questions, &overhead, clock);
        // A process that has just begun is not said to lack what it has not had the time to map.
        self.told = self.measurement.is_some() || !self.is_young();
        if !self.told {
            return;
        }
        for (instance, others) in views.iter_mut() {
            let answers = instance.probes.iter().map(|book| {
                let mut all = self.questions.iter().zip(&self.answers);
                let own = all.find(|(question, _)| **question == book.probe.question);
                own.map_or_else(
                    || {
                        Err(Refusal::new(
                            ckb_probe_crds::Reason::AttachFailed,
                            "not asked",
                        ))
                    },
                    |(_, answer)| answer.clone(),
                )
            });
            let answers = answers.collect();
            instance.answered(self.process, *others, answers, now);
        }
    }

    /// Begins to measure, and says since when.
    fn begin(
        &mut self,
        tools: &mut Tools,
        questions: &[Instrumented],
        overhead: &Overhead,
        clock: Clock,
    ) -> Duration {
        let prepared = Prepared::of(tools, self.process, questions);
        let Prepared {
            mut answers,
            mechanisms,
        } = prepared;
        let Begun {
            measurement,
            refused,
            attached,
        } = Measurement::begin(self.process, mechanisms, overhead, &tools.reaper, || {
            clock.now()
        });
        for (loads, error) in refused {
            let refusal = Refusal::from(error);
            for answer in &mut answers {
                let strands = answer.as_ref().map(|opened| &opened.strands);
                if strands.is_ok_and(|all| all.iter().any(|one| loads.contains(&one.load))) {
                    *answer = Err(refusal.clone());
                }
            }
        }
        let asked: Vec<Question> = questions.iter().map(|one| one.question.clone()).collect();
        if asked != self.questions {
            self.retry = None;
        }
        self.questions = asked;
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
        attached
    }

    /// When it is to be tried again to find what was not found; None when all was.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry.map(|retry| retry.at)
    }

    /// Whether the next attempt is one of the quick ones after the process began.
    fn is_young(&self) -> bool {
        self.retry.is_some_and(|retry| retry.after < YOUTH)
    }

    /// Looks again for what was not found, if it is time. True when there is more to be measured than is, or to be told.
    pub fn finds_more(&mut self, tools: &mut Tools) -> bool {
        let Some(retry) = self.retry.filter(|retry| retry.at <= Instant::now()) else {
            return false;
        };
        self.retry = Some(retry.next(!self.told));
        if !self.told && !self.is_young() {
            return true;
        }
        let asks = self.questions.iter().enumerate();
        let (places, asks): (Vec<usize>, Vec<calls::Ask>) = asks
            .filter_map(|(place, question)| match instrument(question).ask() {
                Ask::Calls(ask) => Some((place, ask)),
                Ask::SystemCalls(_) | Ask::Own(_) => None,
            })
            .unzip();
        let first = LoadId::default();
        // What was refused for another reason than functions that are not there is tried again altogether, but not often.
        let mut others = (0..self.answers.len()).filter(|place| !places.contains(place));
        let may_pass =
            |place: usize| matches!(&self.answers[place], Err(refusal) if !refusal.is_lasting());
        if !self.is_young() && others.any(may_pass) {
            return true;
        }
        let Ok(means) = tools.means else {
            return false;
        };
        let Ok(found) = calls::search(means, self.process, &asks, first, &mut tools.found) else {
            return false;
        };
        let more =
            |(found, place): (&Result<Opened, Refusal>, usize)| match (found, &self.answers[place])
            {
                (Ok(found), Ok(held)) => found.coverage.lacks != held.coverage.lacks,
                (Ok(_), Err(_)) => true,
                (Err(_), _) => false,
            };
        found.answers.iter().zip(places).any(more)
    }

    /// What is measured, if anything is.
    pub fn measurement(&mut self) -> Option<&mut Measurement> {
        self.measurement.as_mut()
    }

    /// When [`Self::step`] is due again.
    pub fn next_step(&self) -> Option<Duration> {
        self.measurement.as_ref()?.next_step()
    }

    /// Keeps within the budget, if it is time. Nothing is measured any more where that fails.
    pub fn step(&mut self, tools: &Tools, clock: Clock) -> Result<(), MeasurementError> {
        let due = self.next_step().is_some_and(|step| step <= clock.now());
        let Some(measurement) = self.measurement.as_mut().filter(|_| due) else {
            return Ok(());
        };
        let result = measurement.step(&|| clock.now());
        if result.is_err() {
            if let Some(broken) = self.measurement.take() {
                tools.reaper.take(broken);
            }
            self.answers.clear();
            self.questions.clear();
            self.retry = Some(Retry::after(Duration::from_secs(1)));
        }
        result
    }

    /// Whether it must be measured anew from nothing, as [`Self::step`] failed, and it is time.
    pub fn is_broken(&self) -> bool {
        let due = self.retry.is_some_and(|retry| retry.at <= Instant::now());
        self.measurement.is_none() && self.questions.is_empty() && due
    }
}

/// What there is to be measured of a process.
struct Prepared {
    answers: Vec<Result<Opened, Refusal>>,
    mechanisms: Vec<Running>,
}

impl Prepared {
    fn of(tools: &mut Tools, process: ProcessId, questions: &[Instrumented]) -> Self {
        let mut answers: Vec<Option<Result<Opened, Refusal>>> = vec![None; questions.len()];
        let mut mechanisms = Vec::new();
        let mut first = LoadId::default();
        // All calls of functions together.
        let mut asks = Vec::new();
        let mut askers = Vec::new();
        let mut system_calls = Vec::new();
        let mut own = Vec::new();
        for (index, question) in questions.iter().enumerate() {
            match question.instrument.ask() {
                Ask::Calls(ask) => {
                    asks.push(ask);
                    askers.push(index);
                }
                Ask::SystemCalls(ask) => system_calls.push((index, ask)),
                Ask::Own(begin) => own.push((index, begin)),
            }
        }
        if !asks.is_empty() {
            let begun = calls::begin(&tools.means, process, &asks, first, &mut tools.found);
            for (index, answer) in askers.into_iter().zip(begun.answers) {
                answers[index] = Some(answer);
            }
            if let Some(calls) = begun.calls {
                let running = Running {
                    mechanism: Box::new(calls),
                    first,
                };
                first = first.offset(running.mechanism.costs().len());
                mechanisms.push(running);
            }
        }
        if !system_calls.is_empty() {
            let (askers, asks): (Vec<usize>, Vec<_>) = system_calls.into_iter().unzip();
            let begun = system_calls::begin(process, &asks, first, &mut tools.node);
            for (index, answer) in askers.into_iter().zip(begun.answers) {
                answers[index] = Some(answer);
            }
            if let Some(calls) = begun.calls {
                let running = Running {
                    mechanism: Box::new(calls),
                    first,
                };
                first = first.offset(running.mechanism.costs().len());
                mechanisms.push(running);
            }
        }
        for (index, begin) in own {
            let scene = Scene {
                process,
                first,
                node: &mut tools.node,
            };
            answers[index] = Some(begin.begin(scene).map(|(mechanism, opened)| {
                let running = Running { mechanism, first };
                first = first.offset(running.mechanism.costs().len());
                mechanisms.push(running);
                opened
            }));
        }
        Self {
            answers: answers.into_iter().flatten().collect(),
            mechanisms,
        }
    }
}

#[cfg(test)]
mod tests;
