//! Beginning to measure a process: from what is asked to probes in place.

use std::time::Duration;

use ckb_probe_crds::Reason;

use super::{
    super::{
        Clock, Tools,
        measurement::{Begun, Measurement, Running},
        workers::Wanted,
    },
    Budget,
};
use crate::{
    kernel::memory,
    kinds::Instrumented,
    mechanism::{Answer, Batch, BeginContext, GroupId, Refusal},
    observe::{Libraries, ProcessId},
};

/// What began, of what was asked of a process.
pub(super) struct Fresh {
    pub(super) questions: Vec<Instrumented>,
    pub(super) answers: Vec<Answer>,
    pub(super) measurement: Option<Measurement>,
    /// What the process had mapped before anything was looked for in that, if it was.
    pub(super) libraries: Option<Libraries>,
    /// When that was done.
    pub(super) attached: Duration,
}

/// What nobody waits for any more.
const UNWANTED: &str = "what is asked has changed meanwhile";

impl Fresh {
    /// Looks, loads and attaches. Where nobody wants it any more by the time that it is to be attached, it is not: that would cost whoever is
    /// measured, and be taken off again.
    pub(super) fn begin(
        tools: &mut Tools,
        process: ProcessId,
        namespace: &str,
        questions: Vec<Instrumented>,
        (budget, owed): (Budget, f64),
        clock: Clock,
        wanted: &Wanted,
    ) -> Self {
        let mut configs = questions.iter().map(|one| one.instrument.config());
        let is_of_files = configs.any(|config| config.is_of_files());
        let libraries = is_of_files.then(|| Libraries::of(process));
        let prepare = || Prepared::of(tools, process, namespace, &questions, budget, wanted);
        let Prepared {
            answers,
            mechanisms,
            next: _,
        } = memory::on_behalf_of(Some(namespace.into()), prepare);
        if !wanted.is_wanted() {
            return Self::refused(questions, UNWANTED, clock.now());
        }
        let mut answers: Vec<_> = answers.into_iter().flatten().collect();
        let Begun {
            mut measurement,
            refused,
            attached,
        } = Measurement::begin(
            process,
            mechanisms,
            budget.allowance(),
            &tools.reaper,
            || clock.now(),
        );
        if let Some(measurement) = &mut measurement {
            measurement.owe(owed);
        }
        for (groups, error) in refused {
            let refusal = Refusal::from(error);
            for answer in &mut answers {
                let subscriptions = answer.as_ref().map(|opened| &opened.subscriptions);
                if subscriptions.is_ok_and(|all| all.iter().any(|one| groups.contains(&one.group)))
                {
                    *answer = Err(refusal.clone());
                }
            }
        }
        Self {
            questions,
            answers,
            measurement,
            libraries,
            attached,
        }
    }

    pub(super) fn refused(questions: Vec<Instrumented>, message: &str, now: Duration) -> Self {
        let refusal = Refusal::new(Reason::AttachFailed, message);
        Self {
            answers: vec![Err(refusal); questions.len()],
            questions,
            measurement: None,
            libraries: None,
            attached: now,
        }
    }
}

/// What there is to be measured of a process.
struct Prepared {
    /// In the order of the questions; None of what was not asked yet.
    answers: Vec<Option<Answer>>,
    mechanisms: Vec<Running>,
    /// Where the loads of the next mechanism begin.
    next: GroupId,
}

impl Prepared {
    fn of(
        tools: &mut Tools,
        process: ProcessId,
        namespace: &str,
        questions: &[Instrumented],
        budget: Budget,
        wanted: &Wanted,
    ) -> Self {
        let mut prepared = Self {
            answers: vec![None; questions.len()],
            mechanisms: Vec::new(),
            next: GroupId::default(),
        };
        let configs = questions.iter().enumerate().flat_map(|(place, one)| {
            let both = [Some(one.instrument.config()), one.instrument.beside()];
            both.into_iter()
                .flatten()
                .map(move |config| (place, config))
        });
        for batch in Batch::all(configs) {
            if !wanted.is_wanted() {
                break;
            }
            let places = batch.places.clone();
            let begun = batch.begin(BeginContext {
                process,
                namespace,
                first: prepared.next,
                ratio: budget.ratio(),
                node: &mut tools.node,
            });
            for (place, answer) in places.into_iter().zip(begun.answers) {
                match (&mut prepared.answers[place], answer) {
                    (unanswered @ None, answer) => *unanswered = Some(answer),
                    (Some(Ok(answered)), Ok(besides)) => {
                        answered.subscriptions.extend(besides.subscriptions);
                    }
                    // What is measured besides is not what was asked for.
                    (Some(_), _) => {}
                }
            }
            for mechanism in begun.mechanisms {
                let first = prepared.next;
                prepared.next = first.offset(mechanism.costs().len());
                prepared.mechanisms.push(Running { mechanism, first });
            }
        }
        prepared
    }
}
