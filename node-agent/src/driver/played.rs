//! A mechanism that is played: it does what a test says, when the test says so, and keeps account of what it has counted.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use ckb_probe_crds::{Name, Reason, kinds::rocksdb::RocksDbProbe};

use crate::{
    kernel::{AttachError, Links, ReadError},
    kinds::{Instrument, Instrumented},
    mechanism::{
        Accepted, Answer, BeginContext, Begun, CollectorConfig, Config, Coverage, GroupId,
        GroupIds, Mechanism, Node, Reading, Refusal, RowReading, Search, Subscription,
    },
    observe::{self, ProcessId},
};

use super::workers::Workers;

/// What a worker is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// To look, and to load.
    Begin,
    /// To attach for the first time.
    Attach,
    /// To attach for a slice, or by another plan.
    Change,
    /// To look again.
    Search,
}

/// What comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    /// All that is asked; when it is looked again, more than before.
    Works,
    /// The same, and there may be more later.
    Lacks,
    /// Nothing.
    Fails,
    /// Its thread dies.
    Panics,
}

/// A worker that waits for a test to say what comes of what it does. Dropped, it works.
#[derive(Debug)]
pub struct Cue {
    pub act: Act,
    pub process: ProcessId,
    answer: Sender<Play>,
}

impl Cue {
    pub fn play(self, play: Play) {
        // Whoever has given it up does not wait any more.
        let _ = self.answer.send(play);
    }
}

/// What is played, and by whom.
pub struct Script {
    cues: Mutex<Option<Sender<Cue>>>,
    lives: Mutex<Vec<Arc<Life>>>,
    loop_thread: ThreadId,
}

impl fmt::Debug for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Script")
    }
}

/// What a mechanism has done.
pub struct Life {
    pub process: ProcessId,
    pub asks: u64,
    always: AtomicBool,
    sliced: AtomicBool,
    stopped: AtomicBool,
    over: AtomicBool,
    counted: AtomicU64,
    reads: AtomicU64,
    /// As of when the loop read it last: what a worker reads while it attaches is told only where that comes back.
    read: AtomicU64,
}

impl Life {
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub fn read(&self) -> u64 {
        self.read.load(Ordering::SeqCst)
    }

    /// How often it was read, by whomever.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    fn calls(&self, count: u64) {
        let attached = self.always.load(Ordering::SeqCst) || self.sliced.load(Ordering::SeqCst);
        if attached && !self.stopped.load(Ordering::SeqCst) && !self.is_over() {
            self.counted.fetch_add(count, Ordering::SeqCst);
        }
    }
}

impl Script {
    /// One of which this thread says what comes of each act.
    pub fn new() -> (Arc<Self>, Receiver<Cue>) {
        let (cues, receiver) = channel();
        let script = Self {
            cues: Mutex::new(Some(cues)),
            lives: Mutex::default(),
            loop_thread: thread::current().id(),
        };
        (Arc::new(script), receiver)
    }

    /// From now on everything works, and at once.
    pub fn let_go(&self) {
        *self.cues.lock().unwrap() = None;
    }

    /// All mechanisms that there were.
    pub fn lives(&self) -> MutexGuard<'_, Vec<Arc<Life>>> {
        self.lives.lock().unwrap()
    }

    /// Those that are still there, by what they were asked.
    pub fn alive(&self) -> Vec<u64> {
        let lives = self.lives();
        let mut alive: Vec<u64> = lives
            .iter()
            .filter(|life| !life.is_over())
            .map(|life| life.asks)
            .collect();
        alive.sort_unstable();
        alive
    }

    /// The targets call so often what is measured.
    pub fn calls(&self, count: u64) {
        self.lives().iter().for_each(|life| life.calls(count));
    }

    /// A probe that asks for this.
    pub fn probe(self: &Arc<Self>, asks: u64) -> Instrumented {
        let question = RocksDbProbe {
            slow_threshold: Duration::from_millis(asks).into(),
            ..RocksDbProbe::default()
        };
        Instrumented {
            name: "played".to_string(),
            question: question.into(),
            instrument: Arc::new(self.part(asks)),
        }
    }

    fn part(self: &Arc<Self>, asks: u64) -> Part {
        Part {
            script: Arc::clone(self),
            asks,
        }
    }

    fn act(&self, act: Act, process: ProcessId) -> Play {
        let (answer, played) = channel();
        let cue = Cue {
            act,
            process,
            answer,
        };
        let told = self.cues.lock().unwrap().as_ref().map(|to| to.send(cue));
        let play = match told {
            Some(Ok(())) => played.recv().unwrap_or(Play::Works),
            _ => Play::Works,
        };
        assert_ne!(play, Play::Panics, "on purpose");
        play
    }
}

#[derive(Clone, Debug)]
struct Part {
    script: Arc<Script>,
    asks: u64,
}

impl Instrument for Part {
    fn config(&self) -> CollectorConfig {
        self.clone().into()
    }
}

impl Config for Part {
    fn begin(configs: &[Self], context: BeginContext<'_>) -> Begun {
        let play = configs[0].script.act(Act::Begin, context.process);
        Begun::each(configs, context, |part, context| {
            if play == Play::Fails {
                return Err(Refusal::new(Reason::AttachFailed, "not now"));
            }
            let life = Arc::new(Life {
                process: context.process,
                asks: part.asks,
                always: AtomicBool::new(false),
                sliced: AtomicBool::new(false),
                stopped: AtomicBool::new(false),
                over: AtomicBool::new(false),
                counted: AtomicU64::new(0),
                reads: AtomicU64::new(0),
                read: AtomicU64::new(0),
            });
            part.script.lives().push(Arc::clone(&life));
            let accepted = Accepted {
                subscriptions: vec![Subscription {
                    group: context.first,
                    row: Some("calls".to_string()),
                    ..Subscription::default()
                }],
                coverage: Coverage {
                    may_grow: play == Play::Lacks,
                    ..Coverage::default()
                },
            };
            let actor = Actor {
                script: Arc::clone(&part.script),
                life,
                first: context.first,
                is_new: true,
            };
            Ok((Box::new(actor), accepted))
        })
    }

    fn search(all: Vec<Self>, _: Vec<Answer>, process: ProcessId, _: &Node) -> Option<Search> {
        let script = Arc::clone(&all[0].script);
        Some(Box::new(move || {
            script.act(Act::Search, process) == Play::Works
        }))
    }
}

/// This process.
pub fn ourselves() -> ProcessId {
    let pid = std::process::id();
    observe::process(pid, |_| true).unwrap().unwrap().id
}

/// Has workers be held up by file systems that do not answer, until what it returns is dropped.
pub fn hold_up(workers: &Workers) -> Vec<Sender<()>> {
    let mut releases = Vec::new();
    while !workers.are_stuck() {
        let (release, held) = channel();
        drop(workers.start(move || held.recv().is_err()));
        releases.push(release);
    }
    releases
}

const COSTS: [Option<Duration>; 1] = [Some(Duration::from_micros(1))];

/// A mechanism with one group, each of whose hits costs a microsecond.
struct Actor {
    script: Arc<Script>,
    life: Arc<Life>,
    first: GroupId,
    is_new: bool,
}

impl Actor {
    fn act(&self, act: Act) -> Result<(), AttachError> {
        match self.script.act(act, self.life.process) {
            Play::Fails => Err(AttachError::NoUprobePmu(std::io::Error::other("not now"))),
            _ => Ok(()),
        }
    }

    fn counted(&self) -> u64 {
        self.life.counted.load(Ordering::SeqCst)
    }
}

impl Mechanism for Actor {
    fn costs(&self) -> &[Option<Duration>] {
        &COSTS
    }

    fn attach(&mut self, groups: &GroupIds) -> Result<Option<Links>, AttachError> {
        let act = match std::mem::take(&mut self.is_new) {
            true => Act::Attach,
            false => Act::Change,
        };
        self.act(act)?;
        let always = groups.contains(&self.first);
        self.life.always.store(always, Ordering::SeqCst);
        Ok(None)
    }

    fn open_slice(&mut self, _: &GroupIds) -> Result<(), AttachError> {
        self.act(Act::Change)?;
        self.life.sliced.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn close_slice(&mut self) -> Result<Option<Links>, ReadError> {
        self.life.sliced.store(false, Ordering::SeqCst);
        Ok(None)
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        Ok(vec![self.counted()])
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        let counted = self.counted();
        self.life.reads.fetch_add(1, Ordering::SeqCst);
        if thread::current().id() == self.script.loop_thread {
            self.life.read.store(counted, Ordering::SeqCst);
        }
        let mut row = RowReading::default();
        row.figures.sums.insert(Name::Borrowed("hits"), counted);
        Ok(Reading {
            groups: [(self.first, vec![row])].into(),
            ..Reading::default()
        })
    }

    fn stop(&mut self) -> Result<(), ReadError> {
        self.life.stopped.store(true, Ordering::SeqCst);
        Ok(())
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.life.over.store(true, Ordering::SeqCst);
    }
}
