//! What a process is at, and how it comes from there to somewhere else. No books here: whoever asks tells the views.
//!
//! | it is | and then | it is |
//! | --- | --- | --- |
//! | idle: nothing is measured | it is asked, or its time comes | starting |
//! | starting: a worker looks, loads and attaches | that is done | answered |
//! | | that takes too long | starting, late: the views are told |
//! | | something else is asked | starting, outdated: what comes of it is let go, and it is asked anew |
//! | | the worker fails | idle for a second |
//! | answered, nothing or something attached | it is asked | starting; what was attached is let go |
//! | | it is asked while too much is held up | as it was, held up: asked anew in time |
//! | answered, and something lacks | its time comes | looking |
//! | looking: a worker does | there is more | outdated: asked anew, once nothing attaches |
//! | answered, attached | a slice, or another plan, is due | attaching |
//! | attaching: a worker has the measurement | that is done | attached |
//! | | that takes too long | attaching, late: the views are told that it is over |
//! | | it is done late | nothing attached, outdated |
//! | | the kernel refuses | failed: read, and given up |
//! | | the worker fails | idle for a second |
//! | anything | it is given up | idle for a second |

use std::{
    mem,
    time::{Duration, Instant},
};

use super::{
    super::{
        measurement::{Measurement, MeasurementError},
        workers::{Errand, Outcome},
    },
    Fresh,
    completeness::{Completeness, Retry, YOUTH},
};
use crate::{kinds::Instrumented, mechanism::Answer, observe::Libraries};

/// What a process is at.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each process, and most of them are answered"
)]
pub enum State {
    /// Nothing is measured of it. It is asked from nothing then, if that was in vain before.
    Idle(Option<Instant>),
    /// What is asked is looked for, loaded and attached.
    Starting(Starting),
    /// It is known what becomes of what is asked.
    Answered(Answered),
}

/// A question that a worker has begun with.
pub struct Starting {
    pending: Pending<Fresh>,
    /// Something else is asked by now.
    outdated: bool,
    /// How often the same was tried before.
    retry: Option<Retry>,
}

/// What became of what is asked.
pub struct Answered {
    /// What was asked.
    pub questions: Vec<Instrumented>,
    /// In the same order.
    pub answers: Vec<Answer>,
    /// What measures it.
    pub probes: Probes,
    /// What it had mapped as that was looked for, if files were.
    pub libraries: Option<Libraries>,
    /// Whether that is to stay so.
    pub completeness: Completeness,
}

/// What measures a process.
pub enum Probes {
    /// Nothing could be attached. The views are not told so while the process is so young that it has had no time to map anything.
    None {
        /// Whether the views know.
        told: bool,
    },
    /// It is attached.
    Attached(Measurement),
    /// It attaches what it decided to. It was read last at that time.
    Attaching(Pending<Back>, Duration),
    /// It could not be attached any more. What it has counted can be read.
    Failed(Measurement, MeasurementError),
}

/// A measurement that has attached something, or tried to.
pub type Back = (Measurement, Result<(), MeasurementError>);

/// What a worker is doing.
pub struct Pending<T> {
    errand: Errand<T>,
    /// The views know that it takes too long.
    late: bool,
}

/// What has happened to a process.
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, and taken apart at once"
)]
pub enum Happened {
    /// Nothing that anybody need know.
    Nothing,
    /// What was asked is answered, since then.
    Answered(Duration),
    /// What is asked takes too long.
    StartsLate,
    /// It takes too long to attach, since it was read.
    AttachesLate(Duration),
    /// Nobody will answer.
    StartLost,
    /// It is to be asked anew; this is let go.
    Outdated(Option<Measurement>),
    /// What was attached cannot be any more.
    Failed(String),
    /// It went with the worker that attached it, since it was read.
    Gone(Duration),
}

/// What is to be tried again.
pub enum Attempt {
    /// To ask all of it.
    Ask,
    /// To find what was not found.
    Look(Retry),
}

impl<T> Pending<T> {
    fn new(errand: Errand<T>) -> Self {
        Self {
            errand,
            late: false,
        }
    }

    /// Whether it takes too long as of now.
    fn turns_late(&mut self, deadline: Duration) -> bool {
        let turns = !self.late && self.errand.lasts() >= deadline;
        self.late |= turns;
        turns
    }

    /// When it will, unless it has.
    fn late_at(&self, deadline: Duration) -> Option<Instant> {
        let left = deadline.saturating_sub(self.errand.lasts());
        Instant::now().checked_add(left).filter(|_| !self.late)
    }
}

impl From<Back> for Probes {
    fn from((measurement, attached): Back) -> Self {
        match attached {
            Ok(()) => Self::Attached(measurement),
            Err(error) => Self::Failed(measurement, error),
        }
    }
}

impl Answered {
    fn begun(fresh: Fresh, retry: Option<Retry>) -> Self {
        let lacks = |answer: &Answer| match answer {
            Ok(opened) => opened.coverage.may_grow,
            Err(refusal) => !refusal.is_lasting(),
        };
        let lacking = fresh.answers.iter().any(lacks);
        let retry = lacking.then(|| retry.unwrap_or_else(Retry::first));
        Self {
            questions: fresh.questions,
            answers: fresh.answers,
            libraries: fresh.libraries,
            probes: match fresh.measurement {
                Some(measurement) => Probes::Attached(measurement),
                // A process that has just begun is not said to lack what it has not had the time to map.
                None => Probes::None {
                    told: !retry.is_some_and(|retry| retry.is_young()),
                },
            },
            completeness: retry.map_or(Completeness::Complete, Completeness::Lacking),
        }
    }

    /// Whether the views are to know the answers.
    pub fn is_told(&self) -> bool {
        !matches!(self.probes, Probes::None { told: false })
    }

    /// Takes what was found, if that is done.
    fn look(&mut self) {
        if let Completeness::Looking(retry, search) = &self.completeness {
            let retry = *retry;
            self.completeness = match search.outcome() {
                Outcome::Done(true) => Completeness::Outdated(Some(retry)),
                Outcome::Done(false) | Outcome::Lost => Completeness::Lacking(retry),
                Outcome::UnderWay => return,
            };
        }
    }
}

impl State {
    /// Nothing was asked yet.
    pub const NEW: Self = Self::Idle(None);

    /// A worker begins with what is asked. What was measured before is [let go](Self::release) by then.
    pub fn start(&mut self, questions: &[Instrumented], errand: Errand<Fresh>) {
        let retry = match self {
            Self::Answered(before) if is_same(&before.questions, questions) => {
                before.completeness.retry()
            }
            _ => None,
        };
        *self = Self::Starting(Starting {
            pending: Pending::new(errand),
            outdated: false,
            retry,
        });
    }

    /// Nobody begins with what is asked, while too much is held up.
    pub fn refuse(&mut self, fresh: Fresh) {
        *self = Self::Answered(Answered {
            probes: Probes::None { told: true },
            completeness: Completeness::HeldUp(Retry::held_up()),
            ..Answered::begun(fresh, None)
        });
    }

    /// What is measured goes on, and is asked anew once less is held up. False: nothing is.
    pub fn hold_up(&mut self) -> bool {
        let is_at_hand = self.measurement().is_some();
        if let Self::Answered(answered) = self
            && is_at_hand
        {
            answered.completeness = Completeness::HeldUp(Retry::held_up());
        }
        is_at_hand
    }

    /// Something else is asked. None: it can be asked now; else it will be in time, and this says whether that is late already.
    pub fn outdate(&mut self) -> Option<bool> {
        match self {
            Self::Starting(starting) => {
                starting.outdated = true;
                starting.pending.errand.let_go();
                Some(starting.pending.late)
            }
            Self::Answered(Answered {
                probes: Probes::Attaching(pending, _),
                completeness,
                ..
            }) => {
                *completeness = Completeness::Outdated(completeness.retry());
                Some(pending.late)
            }
            Self::Idle(_) | Self::Answered(_) => None,
        }
    }

    /// Has a worker attach what the measurement decided to. It was read last at that time.
    pub fn attach(&mut self, read: Duration, begin: impl FnOnce(Measurement) -> Errand<Back>) {
        if let Some(measurement) = self.release()
            && let Self::Answered(answered) = self
        {
            answered.probes = Probes::Attaching(Pending::new(begin(measurement)), read);
        }
    }

    /// Takes what was being done, if it is done, or has been under way for too long.
    pub fn poll(&mut self, deadline: Duration) -> Happened {
        match self {
            Self::Idle(_) => Happened::Nothing,
            Self::Starting(_) => self.poll_start(deadline),
            Self::Answered(_) => self.poll_probes(deadline),
        }
    }

    fn poll_start(&mut self, deadline: Duration) -> Happened {
        let Self::Starting(starting) = self else {
            return Happened::Nothing;
        };
        let (outdated, retry) = (starting.outdated, starting.retry);
        match starting.pending.errand.outcome() {
            Outcome::UnderWay if starting.pending.turns_late(deadline) => Happened::StartsLate,
            Outcome::UnderWay => Happened::Nothing,
            Outcome::Done(fresh) if outdated => self.anew(fresh.measurement),
            Outcome::Lost if outdated => self.anew(None),
            Outcome::Done(fresh) => {
                let attached = fresh.attached;
                *self = Self::Answered(Answered::begun(fresh, retry));
                Happened::Answered(attached)
            }
            Outcome::Lost => {
                self.give_up();
                Happened::StartLost
            }
        }
    }

    fn poll_probes(&mut self, deadline: Duration) -> Happened {
        let Self::Answered(answered) = self else {
            return Happened::Nothing;
        };
        answered.look();
        if let Probes::Attaching(pending, read) = &mut answered.probes {
            let (late, read) = (pending.late, *read);
            match pending.errand.outcome() {
                Outcome::UnderWay if pending.turns_late(deadline) => {
                    return Happened::AttachesLate(read);
                }
                Outcome::UnderWay => return Happened::Nothing,
                // It was told to be over.
                Outcome::Done((measurement, _)) if late => return self.anew(Some(measurement)),
                Outcome::Done(back) => answered.probes = back.into(),
                Outcome::Lost => {
                    self.give_up();
                    return Happened::Gone(read);
                }
            }
        }
        match (&answered.probes, &answered.completeness) {
            (Probes::Failed(_, error), _) => Happened::Failed(error.to_string()),
            (_, Completeness::Outdated(_)) => Happened::Outdated(None),
            _ => Happened::Nothing,
        }
    }

    /// It is asked anew: at once, by whoever is told so, and else in time.
    fn anew(&mut self, gone: Option<Measurement>) -> Happened {
        *self = Self::Idle(Some(Instant::now()));
        Happened::Outdated(gone)
    }

    fn probes(&self) -> Option<&Probes> {
        match self {
            Self::Answered(answered) => Some(&answered.probes),
            Self::Idle(_) | Self::Starting(_) => None,
        }
    }

    fn probes_mut(&mut self) -> Option<&mut Probes> {
        match self {
            Self::Answered(answered) => Some(&mut answered.probes),
            Self::Idle(_) | Self::Starting(_) => None,
        }
    }

    /// Waits for a measurement that attaches, until it has done so for this time.
    pub fn fetch(&mut self, patience: Duration) {
        if let Some(probes) = self.probes_mut()
            && let Probes::Attaching(pending, _) = probes
            && !pending.late
            && let Outcome::Done(back) = pending.errand.within(patience)
        {
            *probes = back.into();
        }
    }

    /// What is measured, if it is at hand.
    pub fn measurement(&mut self) -> Option<&mut Measurement> {
        match self.probes_mut()? {
            Probes::Attached(measurement) | Probes::Failed(measurement, _) => Some(measurement),
            Probes::None { .. } | Probes::Attaching(..) => None,
        }
    }

    /// What is measured, if that goes well.
    pub fn attached(&self) -> Option<&Measurement> {
        match self.probes()? {
            Probes::Attached(measurement) => Some(measurement),
            _ => None,
        }
    }

    /// Whether the measurement is away, and may be back before the views are told that it is not.
    pub fn is_away(&self) -> bool {
        matches!(self.probes(), Some(Probes::Attaching(pending, _)) if !pending.late)
    }

    /// Lets go of what is measured, and is not asked for any more as it is.
    pub fn release(&mut self) -> Option<Measurement> {
        let probes = self.probes_mut()?;
        match mem::replace(probes, Probes::None { told: true }) {
            Probes::Attached(measurement) | Probes::Failed(measurement, _) => Some(measurement),
            Probes::None { .. } | Probes::Attaching(..) => None,
        }
    }

    /// Measures nothing, for a second.
    pub fn give_up(&mut self) -> Option<Measurement> {
        let released = self.release();
        *self = Self::Idle(Some(Instant::now() + YOUTH));
        released
    }

    /// What is to be tried again, if it is time for that.
    pub fn retry(&mut self, is_stuck: bool) -> Option<Attempt> {
        let is_due = self.retry_at().is_some_and(|at| at <= Instant::now());
        let answered = match self {
            _ if !is_due => return None,
            Self::Answered(answered) => answered,
            Self::Idle(_) | Self::Starting(_) => return Some(Attempt::Ask),
        };
        let retry = answered.completeness.retry()?.next(!answered.is_told());
        let is_held_up = matches!(answered.completeness, Completeness::HeldUp(_));
        answered.completeness = match is_held_up {
            true => Completeness::HeldUp(retry),
            false => Completeness::Lacking(retry),
        };
        if is_stuck {
            return None;
        }
        // Now it is time to say what it lacks.
        let is_over = !answered.is_told() && !retry.is_young();
        Some(match is_held_up || is_over {
            true => Attempt::Ask,
            false => Attempt::Look(retry),
        })
    }

    /// When it is due to look again for what is lacking, or to ask from nothing; None while something is being done.
    pub fn retry_at(&self) -> Option<Instant> {
        match self {
            Self::Idle(at) => *at,
            Self::Starting(_) => None,
            Self::Answered(answered) => match answered.probes {
                Probes::Attaching(..) => None,
                _ => answered.completeness.retry_at(),
            },
        }
    }

    /// Whether something is being done.
    pub fn is_pending(&self) -> bool {
        match self {
            Self::Idle(_) => false,
            Self::Starting(_) => true,
            Self::Answered(answered) => {
                let attaches = matches!(answered.probes, Probes::Attaching(..));
                attaches || matches!(answered.completeness, Completeness::Looking(..))
            }
        }
    }

    /// When the views are to be told that what is being done takes too long, where that is so after this time.
    pub fn late_at(&self, deadline: Duration) -> Option<Instant> {
        match self {
            Self::Starting(starting) => starting.pending.late_at(deadline),
            _ => match self.probes()? {
                Probes::Attaching(pending, _) => pending.late_at(deadline),
                _ => None,
            },
        }
    }
}

/// Whether the same is asked.
fn is_same(before: &[Instrumented], now: &[Instrumented]) -> bool {
    let before = before.iter().map(|one| &one.question);
    before.eq(now.iter().map(|one| &one.question))
}
