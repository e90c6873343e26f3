//! Many targets are let go of at once, by the tier that takes longest for it: nobody else's slices become longer or fewer for that.
//!
//! What a slice sees is in proportion to the CPU time that its target uses in it, and so is what passes between two slices. That
//! is what is compared: on a busy machine everything takes longer, and the target does as much less.

use std::thread::sleep;

use ckb_probe_agent::{
    driver::{
        Clock, Tools,
        measured::{Arrival, Measured},
    },
    kernel::Tier,
    kinds::Instrumented,
    observe::{self, ProcessId},
    state::{
        Fact,
        instance::{EARLY_DEATH, Instance, Terms},
    },
    target::InstanceKey,
};

use super::*;

const OTHERS: u32 = 7;

/// What is asked of each of them; and of the one that is looked at, whose slices come the sooner the less there is to attach.
const OPERATIONS: [Operation; 3] = [Operation::Get, Operation::Write, Operation::Put];
const OPERATION: [Operation; 1] = [Operation::Get];

/// About as often the fixture calls it in a second.
const CALLS_PER_SECOND: f64 = 9_000.0;

/// The part of the time that the budget is to be enough for: slices are neither rare nor all of the time. What calls cost here, and what
/// the target uses itself, is known to a factor of two: with half of the time some were measured all of the time.
const SHARE: f64 = 0.25;

/// Slices before the others go, of which it is known how long they are; the first few are not, as it is found out what they cost.
const SETTLING: usize = 3;
const BEFORE: usize = 10;

/// So many times as long as others some are drawn.
const LONG: u32 = 4;

/// So long a target is waited for, in all.
const PATIENT: Duration = Duration::from_secs(60);

/// So many times as long as the longest, or as rare, is as it was: what is attached anew takes longer beside others that go, which the
/// plan allows for.
const MOST: f64 = 3.0;

/// A slice that has ended, in CPU time of the target.
#[derive(Clone, Copy, Debug)]
struct Seen {
    began: Duration,
    ended: Duration,
}

struct Target {
    process: ProcessId,
    measured: Measured,
    instance: Instance,
    resumed: Option<Duration>,
    slices: Vec<Seen>,
}

impl Target {
    fn of(
        container: &Container,
        (operations, percent): (&[Operation], f64),
        tools: &Tools,
        clock: Clock,
    ) -> Self {
        let process = process(container);
        let kind = RocksDbProbe {
            operations: operations.to_vec(),
            ..RocksDbProbe::default()
        };
        let terms = Terms {
            interval: Duration::from_secs(10),
            overhead: Overhead {
                max_percent: percent,
                on_breach: Breach::Sample,
                ..Overhead::default()
            },
            early_death: EARLY_DEATH,
            profile_window: ckb_probe_agent::state::slow_calls::WINDOW,
        };
        let probes = vec![Instrumented::new("storage", kind)];
        let mut target = Self {
            process,
            measured: Measured::new(process).unwrap(),
            instance: Instance::new(InstanceKey::default(), probes, terms, clock.now()),
            resumed: None,
            slices: Vec::new(),
        };
        let mut views = [(&mut target.instance, 0)];
        target.measured.ask(tools, &mut views, clock);
        while target.measured.arrive(tools, &mut views, clock) != Arrival::Answered {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(target.instance.is_attached());
        target
    }

    fn used(&self) -> Duration {
        observe::cpu_time(self.process).unwrap()
    }

    /// Does what is due, and notes the slices that have ended.
    fn turn(&mut self, tools: &Tools, clock: Clock) {
        let mut views = [(&mut self.instance, 0)];
        let arrival = self.measured.arrive(tools, &mut views, clock);
        assert_eq!(arrival, Arrival::Nothing);
        self.measured.step(tools, clock).unwrap();
        let used = self.used();
        let Some(measurement) = self.measured.measurement(tools) else {
            return;
        };
        for entry in measurement.entries() {
            match entry.fact {
                Fact::SliceBegan { .. } => self.resumed = Some(used),
                Fact::SliceEnded { .. } => {
                    let began = self.resumed.take();
                    self.slices
                        .extend(began.map(|began| Seen { began, ended: used }));
                }
                _ => {}
            }
        }
    }
}

fn process(container: &Container) -> ProcessId {
    let process = observe::process(container.pid(), |_| true).unwrap();
    process.unwrap().id
}

/// How long the longest of such is: of a few slices none may be one that is drawn [`LONG`] times as long as others.
fn usual(slices: &[Seen]) -> Duration {
    let mut lengths: Vec<Duration> = slices.iter().map(|one| one.ended - one.began).collect();
    lengths.sort_unstable();
    longest(slices).max(lengths[lengths.len() / 2] * LONG)
}

/// How long the longest is.
fn longest(slices: &[Seen]) -> Duration {
    let lengths = slices.iter().map(|one| one.ended - one.began);
    lengths.max().unwrap_or_default()
}

/// How long it is from one to the next, as the median has it.
fn apart(slices: &[Seen]) -> Duration {
    let pairs = slices.windows(2);
    let mut all: Vec<Duration> = pairs.map(|pair| pair[1].began - pair[0].began).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

/// Three rounds at the most: this machine may be busy with other tests. What kept others waiting would do so in each of them.
#[tokio::test]
async fn while_many_targets_go_the_slices_of_another_keep_their_length() {
    let mut rounds = (0..3).map(|_| round());
    assert!(rounds.any(|kept| kept), "in none of three rounds");
}

/// Whether slices are as long and as many while others are let go of.
fn round() -> bool {
    let tools = Tools::new(means(Some(Tier::PerfEvent)));
    let cost = tools
        .node
        .tier
        .clone()
        .unwrap()
        .calibration
        .cost_per_call_ns;
    let folder = Folder::new();
    let program = folder.compile("cc", FIXTURE, "detached", &[]);
    // It calls nothing before it is told to.
    let quiet = folder.compile("cc", "paced.c", "quiet", &[]);
    let file = folder.path("times");
    let arguments = [file.to_str().unwrap(), "1", "1"];
    let others =
        (1..=OTHERS).map(|number| Container::run_with(100 + number, &quiet, &arguments, None));
    let others: Vec<Container> = others.collect();
    let container = Container::run(100, &program);
    let clock = Clock::start();

    // What the calls cost is about so many times what the target uses itself.
    let (began, before) = (
        Instant::now(),
        observe::cpu_time(process(&container)).unwrap(),
    );
    sleep(Duration::from_secs(1));
    let used = observe::cpu_time(process(&container)).unwrap() - before;
    let own = used.as_secs_f64() / began.elapsed().as_secs_f64();
    let load = CALLS_PER_SECOND * cost as f64 / 1e9;
    let percent = 100.0 * SHARE * load / own;

    let others = others.iter();
    let mut others: Vec<Target> = others
        .map(|one| Target::of(one, (&OPERATIONS, percent), &tools, clock))
        .collect();
    let mut target = Target::of(&container, (&OPERATION, percent), &tools, clock);
    let begun = Instant::now();
    let go_on = |target: &mut Target, others: &mut Vec<Target>| {
        target.turn(&tools, clock);
        for other in others {
            other.turn(&tools, clock);
        }
        sleep(Duration::from_millis(1));
        let in_time = begun.elapsed() < PATIENT;
        if !in_time {
            println!(
                "with a budget of {percent:.0} % there are no more slices than {:?}",
                target.slices
            );
        }
        in_time
    };
    while target.slices.len() < SETTLING + BEFORE {
        if !go_on(&mut target, &mut others) {
            return false;
        }
    }
    let before = target.slices.split_off(SETTLING);
    target.slices.clear();
    let (began, used) = (Instant::now(), target.used());
    // As the engine lets go of a process.
    for other in others.drain(..) {
        tools.reaper.take(other.measured);
    }
    let gone = tools.reaper.take(());
    while gone.took().is_none() {
        if !go_on(&mut target, &mut others) {
            return false;
        }
    }
    let (lasted, used) = (began.elapsed(), target.used() - used);
    let meanwhile = target.slices.len();
    // The one that was open then, if there was none before.
    while target.slices.is_empty() {
        if !go_on(&mut target, &mut others) {
            return false;
        }
    }
    let (usual, apart) = (usual(&before), apart(&before));
    let longest = longest(&target.slices);
    println!(
        "a budget of {percent:.0} %; {OTHERS} targets were gone after {lasted:?}, of which another used {used:?}; its slices were up \
         to {usual:?} long and {apart:?} apart; meanwhile there were {meanwhile}, the longest {longest:?}"
    );
    let rarest = apart.mul_f64(MOST) * (meanwhile as u32 + 1);
    longest < usual.mul_f64(MOST) && used < rarest
}
