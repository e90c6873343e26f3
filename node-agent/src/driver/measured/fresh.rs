//! Beginning to measure a process: from what is asked to probes in place.

use std::time::Duration;

use ckb_probe_crds::{KindSpec, Reason};

use super::{
    super::{
        Clock, Tools,
        measurement::{Begun, Measurement, Running},
    },
    Budget,
};
use crate::{
    kinds::{CollectorConfig, Instrumented},
    mechanism::{Accepted, BeginContext, GroupId, Mechanism, Refusal, calls, syscalls},
    observe::ProcessId,
};

/// What began, of what was asked of a process.
pub(super) struct Fresh {
    pub(super) questions: Vec<KindSpec>,
    pub(super) answers: Vec<Result<Accepted, Refusal>>,
    pub(super) measurement: Option<Measurement>,
    /// When that was done.
    pub(super) attached: Duration,
}

impl Fresh {
    pub(super) fn begin(
        tools: &mut Tools,
        process: ProcessId,
        questions: &[Instrumented],
        budget: Budget,
        clock: Clock,
    ) -> Self {
        let Prepared {
            answers,
            mechanisms,
            next: _,
        } = Prepared::of(tools, process, questions, budget);
        let mut answers: Vec<_> = answers.into_iter().flatten().collect();
        let Begun {
            measurement,
            refused,
            attached,
        } = Measurement::begin(process, mechanisms, budget.sampled, &tools.reaper, || {
            clock.now()
        });
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
            questions: asked(questions),
            answers,
            measurement,
            attached,
        }
    }

    pub(super) fn refused(questions: &[Instrumented], message: &str, now: Duration) -> Self {
        let refusal = Refusal::new(Reason::AttachFailed, message);
        Self {
            questions: asked(questions),
            answers: vec![Err(refusal); questions.len()],
            measurement: None,
            attached: now,
        }
    }
}

fn asked(questions: &[Instrumented]) -> Vec<KindSpec> {
    questions.iter().map(|one| one.question.clone()).collect()
}

/// What there is to be measured of a process.
struct Prepared {
    /// In the order of the questions; None of what was not asked yet.
    answers: Vec<Option<Result<Accepted, Refusal>>>,
    mechanisms: Vec<Running>,
    /// Where the loads of the next mechanism begin.
    next: GroupId,
}

impl Prepared {
    fn of(
        tools: &mut Tools,
        process: ProcessId,
        questions: &[Instrumented],
        budget: Budget,
    ) -> Self {
        let mut prepared = Self {
            answers: vec![None; questions.len()],
            mechanisms: Vec::new(),
            next: GroupId::default(),
        };
        // All calls of functions together, and all system calls.
        let (mut calls, mut syscall_configs, mut own) = (Vec::new(), Vec::new(), Vec::new());
        for (index, question) in questions.iter().enumerate() {
            match question.instrument.config() {
                CollectorConfig::Calls(ask) => calls.push((index, ask)),
                CollectorConfig::Syscalls(ask) => syscall_configs.push((index, ask)),
                CollectorConfig::Own(begin) => own.push((index, begin)),
            }
        }
        if !calls.is_empty() {
            let (askers, asks): (Vec<usize>, Vec<_>) = calls.into_iter().unzip();
            let begun = calls::begin(
                &tools.means,
                process,
                &asks,
                prepared.next,
                &tools.found,
                budget.ratio(),
            );
            prepared.answer(askers, begun.answers);
            prepared.run(begun.calls);
        }
        if !syscall_configs.is_empty() {
            let (askers, asks): (Vec<usize>, Vec<_>) = syscall_configs.into_iter().unzip();
            let begun = syscalls::begin(process, &asks, prepared.next, &mut tools.node);
            prepared.answer(askers, begun.answers);
            prepared.run(begun.calls);
        }
        for (index, begin) in own {
            let scene = BeginContext {
                process,
                first: prepared.next,
                ratio: budget.ratio(),
                node: &mut tools.node,
            };
            let answer = begin.begin(scene).map(|(mechanism, opened)| {
                prepared.add(mechanism);
                opened
            });
            prepared.answers[index] = Some(answer);
        }
        prepared
    }

    fn answer(&mut self, askers: Vec<usize>, answers: Vec<Result<Accepted, Refusal>>) {
        for (index, answer) in askers.into_iter().zip(answers) {
            self.answers[index] = Some(answer);
        }
    }

    fn run(&mut self, mechanism: Option<impl Mechanism + 'static>) {
        if let Some(mechanism) = mechanism {
            self.add(Box::new(mechanism));
        }
    }

    fn add(&mut self, mechanism: Box<dyn Mechanism>) {
        let first = self.next;
        self.next = first.offset(mechanism.costs().len());
        self.mechanisms.push(Running { mechanism, first });
    }
}
