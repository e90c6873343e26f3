//! What is done for a process where nobody waits for it, and what becomes of that.

use std::time::{Duration, Instant};

use ckb_probe_crds::Reason;

use super::{
    super::{
        Clock, Tools,
        measurement::{Measurement, MeasurementError},
        workers::{Errand, Outcome},
    },
    Fresh, Measured, Retry, YOUTH,
};
use crate::{mechanism::Refusal, state::instance::Instance};

/// The kernel and the file systems of a target have so long to answer before its views are told that they do not. What is being
/// done goes on, and where it comes to its end after all, it is measured.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);

/// So long is waited for a measurement that attaches, by who wants to read it.
const PATIENCE: Duration = Duration::from_millis(100);

const UNANSWERED: &str = "the file system that the executable or its libraries are on, or the kernel, has not answered for 5 s: \
                          it is measured as soon as that answers; see whether the volume's server is alive";

pub(super) const TOO_MANY: &str = "file systems that do not answer hold up too much of the agent already: it is tried again; see which volumes \
                        of this node's pods have lost their servers";

/// What is done where nobody waits for it.
pub(super) enum Doing {
    /// What is asked is looked for, loaded and attached.
    Beginning(Errand<Fresh>),
    /// The measurement attaches what it decided to. It was read last at that time.
    Attaching(
        Errand<(Measurement, Result<(), MeasurementError>)>,
        Duration,
    ),
}

impl Doing {
    pub(super) fn lasts(&self) -> Duration {
        match self {
            Self::Beginning(errand) => errand.lasts(),
            Self::Attaching(errand, _) => errand.lasts(),
        }
    }
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

impl Measured {
    /// Takes what was being done, if it is done, and tells the views where they are to know.
    pub fn arrive(
        &mut self,
        tools: &Tools,
        views: &mut [(&mut Instance, usize)],
        clock: Clock,
    ) -> Arrival {
        if let Some(search) = self.search.take() {
            match search.outcome() {
                Outcome::Done(true) if self.errand.is_none() => return Arrival::Again,
                // Once what attaches is back.
                Outcome::Done(more) => self.again |= more,
                Outcome::Lost => {}
                Outcome::UnderWay => self.search = Some(search),
            }
        }
        match self.errand.take() {
            None => {}
            Some(Doing::Beginning(errand)) => match errand.outcome() {
                Outcome::Done(fresh) if self.again => {
                    tools.reaper.take(fresh.measurement);
                    self.late = false;
                }
                Outcome::Done(fresh) => {
                    self.late = false;
                    self.take(fresh, views);
                    return Arrival::Answered;
                }
                Outcome::Lost => {
                    self.late = false;
                    self.answers.clear();
                    self.questions.clear();
                    self.retry = Some(Retry::after(YOUTH));
                    return self.refuse(views, "the search for its functions failed", clock);
                }
                Outcome::UnderWay => self.errand = Some(Doing::Beginning(errand)),
            },
            Some(Doing::Attaching(errand, read)) => match errand.outcome() {
                Outcome::Done((measurement, _)) if self.late => {
                    // It was told to be over.
                    tools.reaper.take(measurement);
                    self.late = false;
                    self.again = true;
                }
                Outcome::Done((measurement, result)) => {
                    self.measurement = Some(measurement);
                    self.failure = result.err();
                }
                Outcome::Lost => {
                    self.late = false;
                    return Arrival::Gone("what attached it has failed".to_string(), read);
                }
                Outcome::UnderWay => self.errand = Some(Doing::Attaching(errand, read)),
            },
        }
        if let Some(failure) = self.failure.take() {
            return Arrival::Broken(failure.to_string());
        }
        match &self.errand {
            None if self.again => Arrival::Again,
            Some(doing) if !self.late && doing.lasts() >= self.deadline => {
                self.late = true;
                match doing {
                    Doing::Beginning(_) => self.refuse(views, UNANSWERED, clock),
                    Doing::Attaching(_, read) => {
                        // What was counted since then can't be read.
                        for (instance, _) in views.iter_mut() {
                            instance.failed(Reason::AttachFailed, UNANSWERED.to_string(), *read);
                        }
                        Arrival::Answered
                    }
                }
            }
            _ => Arrival::Nothing,
        }
    }

    fn refuse(
        &mut self,
        views: &mut [(&mut Instance, usize)],
        message: &str,
        clock: Clock,
    ) -> Arrival {
        let refusal = Refusal::new(Reason::AttachFailed, message);
        for (instance, others) in views.iter_mut() {
            let answers = vec![Err(refusal.clone()); instance.probes.len()];
            instance.answered(self.process, *others, answers, clock.now());
        }
        self.told = true;
        Arrival::Answered
    }

    /// Whether nothing can be asked of it now, as it is being begun, or attaches for longer than anybody waits. It is to be asked
    /// [again](Arrival::Again) then.
    pub fn is_busy(&mut self, views: &mut [(&mut Instance, usize)], clock: Clock) -> bool {
        self.fetch();
        let is_busy = self.errand.is_some();
        self.again |= is_busy;
        if is_busy && self.late {
            // Some of them may be new.
            self.refuse(views, UNANSWERED, clock);
        }
        is_busy
    }

    /// Whether its measurement is away, and may be back before its views are told that it is not.
    pub fn is_away(&self) -> bool {
        matches!(self.errand, Some(Doing::Attaching(..))) && !self.late
    }

    /// Waits for a measurement that attaches, though not for long.
    pub fn fetch(&mut self) {
        let Some(Doing::Attaching(errand, _)) = &self.errand else {
            return;
        };
        if self.late {
            return;
        }
        if let Outcome::Done((measurement, result)) = errand.within(PATIENCE) {
            self.errand = None;
            self.measurement = Some(measurement);
            self.failure = result.err();
        }
    }

    /// When the views are to be told that what is being done takes too long.
    pub fn deadline(&self) -> Option<Instant> {
        let doing = self.errand.as_ref().filter(|_| !self.late)?;
        Instant::now().checked_add(self.deadline.saturating_sub(doing.lasts()))
    }
}
