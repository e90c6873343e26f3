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

/// The part of the time that the budget is to be enough for: slices are neither rare nor all of the time.
const SHARE: f64 = 0.5;

/// Slices before the others go, of which it is known how long they are; the first few are not, as it is found out what they cost.
const SETTLING: usize = 3;
const BEFORE: usize = 5;

/// So often it is looked what is due, however long that takes.
const TURNS: u32 = 100_000;

/// So many times as long, or as rare, is as it was: what is attached anew takes longer beside others that go, which the plan
/// allows for.
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

/// How long they are, and how long it is from one to the next: medians, in CPU time of the target.
fn medians(slices: &[Seen]) -> (Duration, Duration) {
    let median = |mut all: Vec<Duration>| {
        all.sort_unstable();
        all[all.len() / 2]
    };
    let pairs = slices.windows(2);
    (
        median(slices.iter().map(|one| one.ended - one.began).collect()),
        median(pairs.map(|pair| pair[1].began - pair[0].began).collect()),
    )
}

/// Three rounds at the most: a slice may be drawn four times as long as others, and this machine may be busy with other tests. What
/// kept others waiting would do so in each of them.
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
    let mut turns = 0;
    let mut go_on = |target: &mut Target, others: &mut Vec<Target>| {
        turns += 1;
        assert!(
            turns < TURNS,
            "{:?}, next {:?} at {:?}, of {percent} %",
            target.slices,
            target.measured.next_step(),
            clock.now()
        );
        target.turn(&tools, clock);
        for other in others {
            other.turn(&tools, clock);
        }
        sleep(Duration::from_millis(1));
    };
    while target.slices.len() < SETTLING + BEFORE {
        go_on(&mut target, &mut others);
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
        go_on(&mut target, &mut others);
    }
    let (lasted, used) = (began.elapsed(), target.used() - used);
    let meanwhile = target.slices.len();
    // The one that was open then, if there was none before.
    while target.slices.is_empty() {
        go_on(&mut target, &mut others);
    }
    let (length, apart) = medians(&before);
    let longest = target.slices.iter().map(|one| one.ended - one.began).max();
    let longest = longest.unwrap();
    println!(
        "a budget of {percent:.0} %; {OTHERS} targets were gone after {lasted:?}, of which another used {used:?}; its slices were \
         {length:?} long and {apart:?} apart; meanwhile there were {meanwhile}, the longest {longest:?}"
    );
    let rarest = apart.mul_f64(MOST) * (meanwhile as u32 + 1);
    longest < length.mul_f64(MOST) && used < rarest
}
