//! Whatever comes in whatever order: by a mechanism that is slow, hangs, fails, or dies at its work.

use std::{
    process::{Child, Command},
    sync::mpsc::{Receiver, Sender},
    thread,
};

use proptest::{collection::vec, prelude::*};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use super::*;
use crate::driver::played::{Act, Cue, Play, Script, hold_up, ourselves, sampled};

/// However slow the machine is.
const SOON: Duration = Duration::from_secs(60);

/// Some views of some processes.
struct Scene {
    engine: Engine,
    script: Arc<Script>,
    cues: Receiver<Cue>,
    pending: Vec<Cue>,
    held: Vec<Sender<()>>,
    /// What is asked last, by whom.
    asked: BTreeMap<String, u64>,
    runtime: Runtime,
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

impl Scene {
    /// To be called within the runtime.
    fn new(runtime: Runtime) -> Self {
        let (script, cues) = Script::new();
        let nothing = Refusal::new(Reason::PreflightFailed, "nothing can be measured here");
        let mut engine = Engine::new(Err(nothing));
        engine.tools.patience = Duration::ZERO;
        Self {
            engine,
            script,
            cues,
            pending: Vec::new(),
            held: Vec::new(),
            asked: BTreeMap::new(),
            runtime,
        }
    }

    /// Somebody looks at this process, or asks it for something else.
    fn ask(&mut self, name: &str, process: ProcessId, asks: u64) {
        let key = known(order(name, name)).instance.key.clone();
        let probes = vec![self.script.probe(asks)];
        self.asked.insert(name.to_string(), asks);
        if let Some(view) = self.engine.views.get_mut(&key) {
            if view.stage != Stage::Waiting {
                self.engine.read_process(process);
                self.engine.take_events(process);
            }
        } else {
            self.engine
                .views
                .insert(key.clone(), known(order(name, name)));
        }
        let view = self.engine.views.get_mut(&key).unwrap();
        view.stage = Stage::On { process, others: 0 };
        view.instance_mut()
            .reconfigure(probes, sampled(Duration::ZERO));
        self.engine.settle(process);
    }

    fn leave(&mut self, name: &str, process: ProcessId) {
        let key = known(order(name, name)).instance.key.clone();
        self.asked.remove(name);
        self.engine.break_off(&key);
        self.engine.settle(process);
    }

    /// Its end is seen.
    fn end(&mut self, process: ProcessId) {
        let on = views_on(&mut self.engine.views, process);
        let on: Vec<InstanceKey> = on.map(|view| view.instance.key.clone()).collect();
        for key in on {
            self.engine.lose(&key);
        }
        self.engine.settle(process);
    }

    /// Time goes by, in which targets call what is measured.
    fn turn(&mut self) {
        self.engine.clock.0 -= Duration::from_millis(10);
        self.script.calls(1_000);
        self.engine.step();
    }

    fn hurry(&mut self) {
        self.engine.processes.values_mut().for_each(Measured::hurry);
    }

    /// What workers wait for.
    fn pending(&mut self) -> &mut Vec<Cue> {
        self.pending.extend(self.cues.try_iter());
        &mut self.pending
    }

    /// Says what comes of something that a worker waits for, and waits for what that leads to, if it leads to anything.
    fn answer(&mut self, which: usize, play: Play) {
        let pending = self.pending();
        if pending.is_empty() {
            return;
        }
        pending.swap_remove(which % pending.len()).play(play);
        for _ in 0..20 {
            let news = timeout(Duration::from_micros(200), self.engine.news());
            let is_done = self.runtime.block_on(news).is_ok();
            let before = self.pending.len();
            if is_done || self.pending().len() > before {
                break;
            }
        }
    }

    fn view(&self, name: &str) -> &Instance {
        let mut views = self.engine.views.values();
        let view = views.find(|view| view.instance.key.probe.name == name);
        &view.unwrap().instance
    }

    /// Everything works from now on: until all is measured that is asked.
    fn settle(&mut self) {
        self.script.let_go();
        self.pending().clear();
        self.held.clear();
        let end = Instant::now() + SOON;
        let is_settled = |engine: &Engine| {
            let mut views = engine.views.values();
            engine.processes.values().all(Measured::is_settled)
                && views.all(|view| view.instance.is_answered() && view.instance.is_attached())
        };
        while !is_settled(&self.engine) {
            assert!(Instant::now() < end, "something is forgotten");
            self.hurry();
            self.engine.receive();
            self.engine.step();
            thread::yield_now();
        }
    }

    /// How often a target was seen to call what is asked, in all.
    fn samples(&self, name: &str) -> u64 {
        let probes = self.view(name).probes.iter();
        let rows = probes.flat_map(|probe| probe.series.iter().flat_map(|one| one.rows.values()));
        rows.map(|row| row.all.samples).sum()
    }

    /// The same, as it was read.
    fn read(&self) -> u64 {
        let lives = self.script.lives();
        let own = lives.iter().filter(|life| life.asks < 10);
        own.map(|life| life.read()).sum()
    }
}

/// What comes.
#[derive(Clone, Debug)]
enum Happens {
    /// One asks for something else.
    Ask(u64),
    /// Another asks for that.
    Join(u64),
    /// It goes.
    Leave,
    /// Time goes by.
    Turn,
    Receive,
    Read,
    CloseWindows,
    /// A worker comes back.
    Answer(usize, Play),
    /// Nobody waits any longer for what workers do.
    Late,
    /// It is time to try again.
    Due,
    /// The process ends, and one like it begins.
    Exit,
    /// File systems of others hold up too much.
    HoldUp,
    /// They do not any more.
    Free,
}

fn happens() -> impl Strategy<Value = Happens> {
    let play = prop_oneof![
        6 => Just(Play::Works),
        2 => Just(Play::Lacks),
        2 => Just(Play::Fails),
        1 => Just(Play::Panics),
    ];
    prop_oneof![
        2 => (1..4_u64).prop_map(Happens::Ask),
        1 => (11..13_u64).prop_map(Happens::Join),
        1 => Just(Happens::Leave),
        8 => Just(Happens::Turn),
        4 => Just(Happens::Receive),
        2 => Just(Happens::Read),
        1 => Just(Happens::CloseWindows),
        8 => (any::<usize>(), play).prop_map(|(which, play)| Happens::Answer(which, play)),
        1 => Just(Happens::Late),
        2 => Just(Happens::Due),
        1 => Just(Happens::Exit),
        1 => Just(Happens::HoldUp),
        1 => Just(Happens::Free),
    ]
}

impl Scene {
    fn takes(&mut self, what: Happens, process: ProcessId) {
        match what {
            Happens::Ask(asks) => self.ask("one", process, asks),
            Happens::Join(asks) => self.ask("other", process, asks),
            Happens::Leave => self.leave("other", process),
            Happens::Turn => self.turn(),
            Happens::Receive => drop(self.engine.receive()),
            Happens::Read => self.engine.read(),
            Happens::CloseWindows => {
                self.engine.clock.0 -= Duration::from_secs(10);
                self.engine.close_windows();
            }
            Happens::Answer(which, play) => self.answer(which, play),
            Happens::Late => {
                self.engine.tools.deadline = Duration::ZERO;
                self.engine.receive();
                self.engine.tools.deadline = SOON;
            }
            Happens::Due => {
                self.hurry();
                self.engine.step();
            }
            Happens::Exit => {
                self.end(process);
                for (name, asks) in self.asked.clone() {
                    self.ask(&name, process, asks);
                }
            }
            Happens::HoldUp => self.held.extend(hold_up(&self.engine.tools.workers)),
            Happens::Free => self.held.clear(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_time: 120_000, ..ProptestConfig::default() })]

    #[test]
    fn no_question_is_forgotten_no_count_is_lost_and_all_is_handed_back(what in vec(happens(), 1..80)) {
        let runtime = runtime();
        let handle = runtime.handle().clone();
        let _entered = handle.enter();
        let process = ourselves();
        let mut scene = Scene::new(runtime);
        scene.ask("one", process, 1);
        for what in what {
            scene.takes(what, process);
        }
        scene.settle();
        let mut asked: Vec<u64> = scene.asked.values().copied().collect();
        asked.sort_unstable();
        let end = Instant::now() + SOON;
        // What is let go goes in its time.
        while scene.script.alive() != asked {
            prop_assert!(Instant::now() < end, "{:?}, and asked is {asked:?}", scene.script.alive());
            thread::yield_now();
        }
        let before = scene.read();
        while scene.read() == before {
            prop_assert!(Instant::now() < end, "nothing is counted any more");
            scene.turn();
            scene.engine.receive();
            scene.engine.read();
        }
        scene.end(process);
        prop_assert_eq!(scene.samples("one"), scene.read());
        while !scene.script.alive().is_empty() {
            prop_assert!(Instant::now() < end, "it is kept");
            thread::yield_now();
        }
        prop_assert!(scene.engine.processes.is_empty());
    }
}

struct Sleeper(Child);

impl Sleeper {
    fn start() -> (Self, ProcessId) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let id = crate::observe::process(child.id(), |_| true)
            .unwrap()
            .unwrap()
            .id;
        (Self(child), id)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Until a worker is about to do that to this process, and waits; whatever else waits goes on.
fn hangs(scene: &mut Scene, process: ProcessId, act: Act) -> Cue {
    let end = Instant::now() + SOON;
    loop {
        assert!(Instant::now() < end, "it never comes to {act:?}");
        scene.hurry();
        scene.engine.receive();
        scene.turn();
        for cue in std::mem::take(scene.pending()) {
            if (cue.process, cue.act) == (process, act) {
                return cue;
            }
            cue.play(Play::Lacks);
        }
    }
}

#[test]
fn one_that_hangs_delays_no_other() {
    let runtime = runtime();
    let handle = runtime.handle().clone();
    let _entered = handle.enter();
    let ((_sleeper, hanging), other) = (Sleeper::start(), ourselves());
    for act in [Act::Begin, Act::Attach, Act::Change, Act::Search] {
        let mut scene = Scene::new(self::runtime());
        scene.ask("hangs", hanging, 1);
        let cue = hangs(&mut scene, hanging, act);
        // All that may happen to one, while the other does.
        scene.ask("other", other, 2);
        for each in [Act::Begin, Act::Attach, Act::Change, Act::Search] {
            hangs(&mut scene, other, each).play(Play::Lacks);
        }
        let before = scene.samples("other");
        scene.ask("other", other, 3);
        let end = Instant::now() + SOON;
        while scene.samples("other") == before {
            assert!(Instant::now() < end, "nothing is counted any more: {act:?}");
            hangs(&mut scene, other, Act::Change).play(Play::Works);
            scene.engine.read();
        }
        scene.end(other);
        // One that hangs is let go all the same.
        scene.end(hanging);
        assert!(scene.engine.processes.is_empty());
        drop(cue);
        scene.script.let_go();
        scene.pending().clear();
        let end = Instant::now() + SOON;
        while !scene.script.alive().is_empty() {
            assert!(Instant::now() < end, "it is kept: {act:?}");
            thread::yield_now();
        }
    }
}
