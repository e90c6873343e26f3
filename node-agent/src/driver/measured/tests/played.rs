//! What a process is at, and what becomes of it: by a mechanism that is slow, hangs, fails, or dies at its work.

use std::{
    sync::{Arc, mpsc::Receiver},
    time::{Duration, Instant},
};

use ckb_probe_crds::{InstanceReport, InstanceState};

use super::super::{
    super::played::{Act, Cue, Play, Script, hold_up, ourselves, sampled},
    state::{Answered, Probes},
    *,
};
use crate::{
    state::{Fact, instance::EARLY_DEATH},
    target::InstanceKey,
};

/// However slow the machine is.
const SOON: Duration = Duration::from_secs(60);

/// A process that one view looks at.
struct Scene {
    script: Arc<Script>,
    cues: Receiver<Cue>,
    tools: Tools,
    clock: Clock,
    measured: Measured,
    view: Instance,
}

impl Scene {
    fn new() -> Self {
        let (script, cues) = Script::new();
        let clock = Clock::start();
        let view = Instance::new(
            InstanceKey::default(),
            vec![],
            sampled(EARLY_DEATH),
            clock.now(),
        );
        Self {
            script,
            cues,
            tools: Tools::new(Err(Refusal::new(Reason::PreflightFailed, "not here"))),
            clock,
            measured: Measured::new(ourselves()).unwrap(),
            view,
        }
    }

    /// Asks for this, and begins with it.
    fn ask(&mut self, asks: u64) {
        let probes = vec![self.script.probe(asks)];
        self.view.reconfigure(probes, sampled(EARLY_DEATH));
        let mut views = [(&mut self.view, 0)];
        self.measured.ask(&self.tools, &mut views, self.clock);
    }

    /// One that attached to all that it was asked, or lacks some of it.
    fn attached(begins: Play) -> Self {
        let mut scene = Self::new();
        scene.ask(1);
        scene.cue(Act::Begin).play(begins);
        scene.cue(Act::Attach).play(Play::Works);
        assert_eq!(scene.arrival(), Arrival::Answered);
        assert_eq!(scene.report().state, InstanceState::Attached);
        scene
    }

    /// The next thing that a worker is about to do.
    fn cue(&self, act: Act) -> Cue {
        let cue = self.cues.recv_timeout(SOON).unwrap();
        assert_eq!((cue.act, cue.process), (act, self.measured.process));
        cue
    }

    fn arrive(&mut self) -> Arrival {
        let mut views = [(&mut self.view, 0)];
        self.measured.arrive(&self.tools, &mut views, self.clock)
    }

    /// What arrives next.
    fn arrival(&mut self) -> Arrival {
        let end = Instant::now() + SOON;
        loop {
            match self.arrive() {
                Arrival::Nothing => assert!(Instant::now() < end, "nothing arrives"),
                other => return other,
            }
            std::thread::yield_now();
        }
    }

    /// Nothing arrives, however often it is looked.
    fn nothing_arrives(&mut self) {
        for _ in 0..10 {
            assert_eq!(self.arrive(), Arrival::Nothing);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Time goes by, in which what is measured is called.
    fn turn(&mut self) {
        self.clock.0 -= Duration::from_millis(10);
        self.script.calls(1_000);
        self.measured.step(&self.tools, self.clock).unwrap();
    }

    /// Has it attach what it decides to.
    fn attaches(&mut self) -> Cue {
        while !self.measured.is_away() {
            self.turn();
        }
        self.cue(Act::Change)
    }

    fn report(&self) -> InstanceReport {
        self.view.report(self.clock.now())
    }

    /// What is measured, once what attached is back.
    fn fetch(&mut self) -> &mut Measurement {
        self.tools.patience = Duration::MAX;
        self.measured.measurement(&self.tools).unwrap()
    }

    fn read(&mut self) {
        self.fetch();
        let now = self.clock.now();
        self.fetch().read(now).unwrap();
    }

    fn give_up(&mut self, since: Duration) {
        self.measured.give_up(&self.tools);
        let reason = Reason::AttachFailed;
        self.view.failed(reason, "given up".to_string(), since);
    }
}

#[tokio::test]
async fn each_question_is_answered_once() {
    let mut scene = Scene::attached(Play::Works);
    scene.nothing_arrives();
    scene.ask(2);
    scene.cue(Act::Begin).play(Play::Fails);
    assert_eq!(scene.arrival(), Arrival::Answered);
    scene.nothing_arrives();
    assert!(scene.measured.state.measurement().is_none());
}

#[tokio::test]
async fn what_is_begun_and_not_asked_any_more_is_let_go_and_asked_anew() {
    for plays in [Play::Works, Play::Panics] {
        let mut scene = Scene::new();
        scene.ask(1);
        let begins = scene.cue(Act::Begin);
        let mut views = [(&mut scene.view, 0)];
        assert!(
            scene
                .measured
                .is_busy(&scene.tools, &mut views, scene.clock)
        );
        // What was loaded meanwhile is not attached: whoever is measured would pay for it. (It would wait for its cue here.)
        begins.play(plays);
        assert_eq!(scene.arrival(), Arrival::Again);
        assert_eq!(
            scene.script.lives().len(),
            usize::from(plays == Play::Works)
        );
        assert!(scene.script.alive().is_empty());
        assert!(!scene.view.is_answered());
        // Whoever is told does so at once; who is not, in time.
        assert!(scene.measured.look_again(&scene.tools));
    }
}

#[tokio::test]
async fn what_is_given_up_while_it_begins_is_not_attached() {
    let mut scene = Scene::new();
    scene.ask(1);
    let begins = scene.cue(Act::Begin);
    let Scene {
        measured, script, ..
    } = scene;
    drop(measured);
    begins.play(Play::Works);
    let end = Instant::now() + SOON;
    // It is loaded, and gone without a cue to attach, for which it would wait.
    while script.lives().is_empty() || !script.alive().is_empty() {
        assert!(Instant::now() < end, "it is kept");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn what_begins_late_is_told_once_and_measured_after_all() {
    let mut scene = Scene::new();
    scene.tools.deadline = Duration::ZERO;
    scene.ask(1);
    let begins = scene.cue(Act::Begin);
    assert_eq!(scene.arrival(), Arrival::Answered);
    assert_eq!(scene.report().state, InstanceState::Failed);
    assert_eq!(scene.report().message, UNANSWERED);
    assert_eq!(scene.measured.deadline(&scene.tools), None);
    scene.nothing_arrives();
    begins.play(Play::Works);
    scene.cue(Act::Attach).play(Play::Works);
    assert_eq!(scene.arrival(), Arrival::Answered);
    assert_eq!(scene.report().state, InstanceState::Attached);
}

#[tokio::test]
async fn what_attaches_late_is_told_once_and_let_go_when_it_is_back() {
    let mut scene = Scene::attached(Play::Works);
    let attaches = scene.attaches();
    scene.tools.deadline = Duration::ZERO;
    assert_eq!(scene.arrival(), Arrival::Answered);
    assert_eq!(scene.report().message, UNANSWERED);
    assert!(!scene.measured.is_away());
    scene.nothing_arrives();
    attaches.play(Play::Works);
    assert_eq!(scene.arrival(), Arrival::Again);
    let end = Instant::now() + SOON;
    while !scene.script.alive().is_empty() {
        assert!(Instant::now() < end, "it is kept");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn what_a_search_finds_while_something_attaches_is_asked_for_once_that_is_back() {
    let mut scene = Scene::attached(Play::Lacks);
    scene.measured.hurry();
    assert!(!scene.measured.look_again(&scene.tools));
    let search = scene.cue(Act::Search);
    let attaches = scene.attaches();
    search.play(Play::Works);
    scene.nothing_arrives();
    attaches.play(Play::Works);
    assert_eq!(scene.arrival(), Arrival::Again);
    assert!(scene.measured.state.measurement().is_some());
}

#[tokio::test]
async fn what_is_searched_in_vain_is_searched_again() {
    for plays in [Play::Fails, Play::Panics] {
        let mut scene = Scene::attached(Play::Lacks);
        for _ in 0..3 {
            scene.measured.hurry();
            assert!(!scene.measured.look_again(&scene.tools));
            assert_eq!(scene.measured.retry_at(), None);
            scene.cue(Act::Search).play(plays);
            let end = Instant::now() + SOON;
            while scene.measured.retry_at().is_none() {
                assert_eq!(scene.arrive(), Arrival::Nothing);
                assert!(Instant::now() < end, "it is not searched again");
            }
        }
    }
}

#[tokio::test]
async fn what_goes_with_the_thread_that_attaches_it_was_read_last_before() {
    for deadline in [SOON, Duration::ZERO] {
        let mut scene = Scene::attached(Play::Works);
        let attaches = scene.attaches();
        let State::Answered(Answered {
            probes: Probes::Attaching(_, read),
            ..
        }) = &scene.measured.state
        else {
            unreachable!("it attaches");
        };
        let read = *read;
        // Its views may have been told that it takes too long: that is over, too.
        scene.tools.deadline = deadline;
        if deadline.is_zero() {
            assert_eq!(scene.arrival(), Arrival::Answered);
        }
        attaches.play(Play::Panics);
        let Arrival::Gone(_, since) = scene.arrival() else {
            unreachable!("it is gone");
        };
        assert_eq!(since, read);
        scene.give_up(since);
        scene.nothing_arrives();
        scene.measured.hurry();
        assert!(scene.measured.look_again(&scene.tools));
    }
}

#[tokio::test]
async fn what_failed_to_attach_is_told_until_it_is_given_up() {
    let mut scene = Scene::attached(Play::Works);
    scene.attaches().play(Play::Fails);
    let Arrival::Broken(error) = scene.arrival() else {
        unreachable!("it is broken");
    };
    assert!(error.contains("not now"), "{error}");
    // It is left alone meanwhile.
    assert_eq!(scene.measured.next_step(), None);
    scene.give_up(scene.clock.now());
    scene.nothing_arrives();
    assert!(!scene.measured.look_again(&scene.tools));
    scene.measured.hurry();
    assert!(scene.measured.look_again(&scene.tools));
}

#[tokio::test]
async fn what_failed_to_attach_and_was_replaced_breaks_nothing_of_what_replaced_it() {
    let mut scene = Scene::attached(Play::Works);
    scene.attaches().play(Play::Fails);
    scene.fetch();
    scene.ask(2);
    scene.nothing_arrives();
    scene.cue(Act::Begin).play(Play::Works);
    scene.cue(Act::Attach).play(Play::Works);
    assert_eq!(scene.arrival(), Arrival::Answered);
    scene.nothing_arrives();
    assert_eq!(scene.report().state, InstanceState::Attached);
}

#[tokio::test]
async fn who_asks_first_while_too_much_is_held_up_is_told_so_and_asked_for_later() {
    let mut scene = Scene::new();
    let held = hold_up(&scene.tools.workers);
    scene.ask(1);
    assert_eq!(scene.report().state, InstanceState::Failed);
    assert_eq!(scene.report().message, TOO_MANY);
    scene.measured.hurry();
    assert!(!scene.measured.look_again(&scene.tools));
    drop(held);
    while scene.tools.workers.are_stuck("") {
        std::thread::yield_now();
    }
    scene.measured.hurry();
    assert!(scene.measured.look_again(&scene.tools));
}

#[tokio::test]
async fn all_that_is_noted_is_handed_over_once_whatever_attaches_meanwhile() {
    let mut scene = Scene::attached(Play::Works);
    let (mut facts, mut away) = (Vec::new(), 0);
    while away < 20 {
        scene.read();
        scene.turn();
        if scene.measured.is_away() {
            // What was noted before is there already.
            facts.extend(scene.measured.entries());
            assert_eq!(scene.measured.entries(), []);
            scene.cue(Act::Change).play(Play::Works);
            away += 1;
        }
    }
    scene.read();
    facts.extend(scene.measured.entries());
    assert!(facts.is_sorted_by_key(|fact| fact.at));
    let reads = facts
        .iter()
        .filter(|fact| matches!(fact.fact, Fact::Read(_)));
    let reads = reads.count() as u64;
    assert_eq!(reads, scene.script.lives()[0].reads());
    // It is recorded from the start, and then not, and is again.
    let mut recorded = true;
    for fact in &facts {
        match &fact.fact {
            Fact::Paused(groups) if !groups.is_empty() => {
                assert!(std::mem::replace(&mut recorded, false));
            }
            Fact::Resumed(groups) if !groups.is_empty() => {
                assert!(!std::mem::replace(&mut recorded, true));
            }
            _ => {}
        }
    }
}

impl Measured {
    /// It is time to try again, if it will be.
    pub(in crate::driver) fn hurry(&mut self) {
        let now = Instant::now();
        match &mut self.state {
            State::Idle(Some(at)) => *at = now,
            State::Answered(Answered {
                completeness: Completeness::Lacking(retry) | Completeness::HeldUp(retry),
                ..
            }) => retry.at = now,
            State::Idle(None) | State::Starting(_) | State::Answered(_) => {}
        }
    }

    /// Whether what was asked last is measured, all of it, and nothing else is about to be.
    pub(in crate::driver) fn is_settled(&self) -> bool {
        matches!(
            self.state,
            State::Answered(Answered {
                probes: Probes::Attached(_),
                completeness: Completeness::Complete,
                ..
            })
        )
    }
}
