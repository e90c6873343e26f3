//! Stacks of the threads of a process, counted: where the time goes on the CPU and off it, and what each thread does now.
//!
//! Nothing is run in the process and nothing of it is stopped. What is copied of a stack is seen by the unwinder only, is wiped at
//! once, and only functions' names leave this module.

mod allocations;
mod allocator;
mod gathered;
mod idle;
mod memory;
mod pace;
mod reader;
mod room;
mod said;
mod wait;

use std::{
    collections::HashMap,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use allocations::Allocations;
pub use allocator::NoAllocator;
use ckb_probe_profiles::ProfileMode;
pub use gathered::{
    Allocated, Call, CodeOrigin, OnCpu, Profile, Sample, State, TRUNCATED, Threads, folded,
};
use gathered::{Each, Gathered};
pub use memory::Touched;
use memory::Writes;
use pace::Pace;
pub use reader::Callers;
pub(super) use reader::Reader;
use room::StackRoom;

pub use crate::governor::ONE_IN;
use crate::{
    kernel::{
        AttachError, CalibratedTier, ReadError,
        memory::NoMemory,
        stacks::{FREED, MOVED, ON_CPU, Sampled, Stacks, allocations::TOLD_ALONE},
    },
    mechanism::Foreign,
    observe::{ProcessId, Resident, SymbolsError, cpu_time, resident, thread_time},
};

/// What a page fault costs that is no sample: `make bench ROWS=profile-bystander`.
const PASSED_OVER: Duration = Duration::from_nanos(100);

/// What a page fault brings in; a huge page is more, and counts as one.
pub const PAGE: u64 = 4096;

/// What the stacks of one mode take of the agent's memory besides maps, in a process with some thousands of different ones. It is taken
/// in advance by who asks for them in windows.
pub const BYTES_OF_A_MODE: u64 = 4 << 20;

/// Threads of which [`threads`] tells at most.
const THREAD_LIMIT: usize = 1 << 14;

/// How often a thread that ran while its stack was copied is tried again.
const ATTEMPTS: usize = 5;

/// The modes that sample for as long as a window lasts. As the command line has them, too.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum SamplerMode {
    /// Time on a CPU. Folded text counts samples.
    Cpu,
    /// Time that threads wait, and what for. Folded text counts microseconds.
    OffCpu,
    /// Memory that is touched for the first time. Folded text counts bytes.
    Memory,
    /// Memory that is allocated, and freed, by jemalloc, or as the process says it itself by `otel_memory:alloc` and `otel_memory:free`.
    /// Folded text counts bytes that are allocated.
    Allocations,
}

impl SamplerMode {
    /// That of a probe's mode, if it is one of them.
    pub fn of(mode: ProfileMode) -> Option<Self> {
        match mode {
            ProfileMode::Cpu => Some(Self::Cpu),
            ProfileMode::OffCpu => Some(Self::OffCpu),
            ProfileMode::Memory => Some(Self::Memory),
            ProfileMode::Allocations => Some(Self::Allocations),
            ProfileMode::Threads | ProfileMode::SlowCalls => None,
        }
    }
}

impl From<SamplerMode> for ProfileMode {
    fn from(mode: SamplerMode) -> Self {
        match mode {
            SamplerMode::Cpu => Self::Cpu,
            SamplerMode::OffCpu => Self::OffCpu,
            SamplerMode::Memory => Self::Memory,
            SamplerMode::Allocations => Self::Allocations,
        }
    }
}

/// Why stacks cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StacksError {
    /// No process goes by the number here that the kernel knows it by.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// The kernel refused.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// What was sampled cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its files cannot be searched.
    #[error(transparent)]
    Search(#[from] SymbolsError),
    /// It has no allocator that can be looked at.
    #[error(transparent)]
    Allocator(#[from] NoAllocator),
    /// No function of a process can be attached to here.
    #[error(
        "no function can be attached to on this node, so what the process allocates is not seen: ckb-probe preflight says why"
    )]
    NoTier,
    /// There is not as much memory as its tables take.
    #[error("there is no room for what its stacks are unwound by: {0}")]
    Memory(#[from] NoMemory),
    /// The process is gone, or not ours to look at.
    #[error("cannot read what process {pid} has mapped: {source}")]
    AddressSpace {
        /// The process id.
        pid: u32,
        /// The system's word.
        source: io::Error,
    },
}

/// Samples one process. Dropping it ends that.
pub struct StackSampler {
    process: ProcessId,
    stacks: Stacks,
    mode: SamplerMode,
    reader: Reader,
    gathered: Gathered,
    frequency: u32,
    pace: Pace,
    began: Instant,
    /// For how long it sampled, once it has stopped.
    took: Option<Duration>,
    passed: Instant,
    /// How often all threads were gone through.
    passes: u64,
    /// The process's CPU clock as it began, and as it was read the last time: whoever has ended has none.
    clock: Option<(Duration, Duration)>,
    /// What was there of its memory as it began.
    resident: Option<Resident>,
    writes: Writes,
    allocations: Allocations,
    paused: bool,
    /// The process's CPU clock as it was paused, or went on.
    turned: Duration,
    /// What it had cost by then.
    cost: Duration,
    /// What each time costs that it is met, beside what the program itself takes.
    each: Duration,
    /// The process says by itself what it allocates, and whether it also says what it frees.
    said: Option<bool>,
}

impl StackSampler {
    /// Begins to sample, so many times a second: of [`SamplerMode::Cpu`] each CPU, no more often than the kernel ticks; of
    /// [`SamplerMode::OffCpu`] all threads, whenever [`Self::step`] is called, which is to be no more often than [`Self::pace`] says by then.
    ///
    /// `means` is how functions are attached to, of which [`SamplerMode::Allocations`] has need.
    pub fn begin(
        process: ProcessId,
        mode: SamplerMode,
        frequency: u32,
        means: Option<&CalibratedTier>,
    ) -> Result<Self, StacksError> {
        Foreign::check()?;
        let reader = Reader::of(process)?.complete()?;
        let period = Duration::from_secs(1) / frequency.max(1);
        let sampled = match mode {
            SamplerMode::Cpu => Sampled::Running { period },
            SamplerMode::OffCpu => Sampled::All {
                skip_unchanged: true,
            },
            SamplerMode::Memory => Sampled::Faults { one_in: ONE_IN },
            SamplerMode::Allocations => Sampled::Allocations { one_in: ONE_IN },
        };
        let (allocator, each) = match mode {
            SamplerMode::Allocations => {
                let (allocator, each_ns) =
                    allocator::find(process, means.ok_or(StacksError::NoTier)?)?;
                (Some(allocator), Duration::from_nanos(each_ns))
            }
            SamplerMode::Memory => (None, PASSED_OVER),
            SamplerMode::Cpu | SamplerMode::OffCpu => (None, Duration::ZERO),
        };
        let process_identity = super::identity(process);
        let stacks = Stacks::begin_at(process_identity, sampled, allocator.as_ref())?;
        let now = Instant::now();
        Ok(Self {
            process,
            stacks,
            mode,
            reader,
            gathered: Gathered::within(StackRoom::with(BYTES_OF_A_MODE)),
            frequency,
            pace: Pace::of(frequency),
            began: now,
            took: None,
            passed: now,
            passes: 0,
            clock: cpu_time(process).ok().map(|now| (now, now)),
            resident: resident(process),
            writes: Writes::default(),
            allocations: Allocations::default(),
            paused: false,
            turned: cpu_time(process).unwrap_or_default(),
            cost: Duration::ZERO,
            each,
            said: allocator.and_then(|allocator| allocator.says_what_it_frees()),
        })
    }

    /// How long to wait from one step to the next.
    pub fn pace(&self) -> Duration {
        match self.mode {
            // There is room for eight samples of each CPU.
            SamplerMode::Cpu => (Duration::from_secs(2) / self.frequency.max(1))
                .clamp(Duration::from_millis(2), Duration::from_millis(20)),
            SamplerMode::OffCpu => self.pace.period(),
            SamplerMode::Memory | SamplerMode::Allocations => Duration::from_millis(10),
        }
    }

    /// Of how many page faults one is a sample from now on, of [`SamplerMode::Memory`].
    pub fn set_one_in(&mut self, one_in: u32) -> Result<(), ReadError> {
        self.stacks.set_one_in(one_in)
    }

    /// Takes what has come, or goes through all threads.
    pub fn step(&mut self) -> Result<(), StacksError> {
        self.look_at_clock();
        self.reader.look_again();
        let process = self.process;
        let Self {
            stacks,
            reader,
            gathered,
            writes,
            allocations,
            ..
        } = self;
        match self.mode {
            SamplerMode::Cpu | SamplerMode::Memory => stacks.samples(|head, stack| {
                if head.written == 0 || writes.copies(head, process) {
                    let stands_for = head.stands_for.into();
                    gathered.add(reader.key(head, stack, None), stands_for);
                }
            })?,
            SamplerMode::Allocations => {
                // Before the samples are taken: what is lost from here on is made up for the next time.
                let taken = stacks.taken()?;
                let mut samples = Vec::new();
                stacks.samples(|head, stack| {
                    let mut key = reader.key(head, stack, None);
                    key.frees = head.flags & FREED != 0;
                    samples.push(allocations::Sampled {
                        thread: head.thread,
                        key,
                        bytes: head.bytes,
                        beyond: (head.written != TOLD_ALONE).then_some(head.written),
                    });
                })?;
                allocations.gather(samples, taken.allocated, taken.lost, gathered);
            }
            SamplerMode::OffCpu => {
                let before = thread_time();
                let now = Instant::now();
                let waited = now.duration_since(self.passed).as_nanos();
                let waited = u64::try_from(waited).unwrap_or(u64::MAX);
                self.passed = now;
                self.passes += 1;
                reader.begin_pass();
                stacks.pass(|head, stack| {
                    if head.flags & ON_CPU == 0 {
                        gathered.add(reader.waiting(head, stack), waited);
                    }
                })?;
                self.pace.took(thread_time().saturating_sub(before));
            }
        }
        Ok(())
    }

    /// Looks at nothing until [`Self::resume`].
    pub fn pause(&mut self) -> Result<(), StacksError> {
        // Detaching takes the kernel a while, in which the process runs unseen.
        let seen = self.turn()?;
        self.stacks.stop();
        self.step()?;
        self.allocations.looked(seen, &mut self.gathered);
        self.paused = true;
        Ok(())
    }

    /// How much CPU time the process has used since it was paused, or went on.
    pub fn since_turned(&self) -> Duration {
        let now = cpu_time(self.process).unwrap_or(self.turned);
        now.saturating_sub(self.turned)
    }

    /// The same without what looking has cost it, from now on.
    fn turn(&mut self) -> Result<Duration, StacksError> {
        let since = self.since_turned();
        let (_, cost) = self.spent()?;
        let own = since.saturating_sub(cost.saturating_sub(self.cost));
        self.turned += since;
        self.cost = cost;
        Ok(own)
    }

    /// Whether it looks at nothing.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Goes on after a pause.
    pub fn resume(&mut self) -> Result<(), StacksError> {
        // So does attaching.
        self.stacks.resume()?;
        let unseen = self.turn()?;
        self.allocations.passed(unseen);
        self.paused = false;
        Ok(())
    }

    fn look_at_clock(&mut self) {
        if let Some((_, last)) = &mut self.clock {
            *last = cpu_time(self.process).unwrap_or(*last);
        }
    }

    /// How often the process was met by now, and what that has cost it; nothing runs at its expense where it waits.
    pub fn spent(&self) -> Result<(u64, Duration), ReadError> {
        let taken = self.stacks.taken()?;
        let passed_over = match self.mode {
            SamplerMode::Memory => (taken.met + taken.written).saturating_sub(taken.looks),
            SamplerMode::Allocations => taken.met,
            SamplerMode::Cpu | SamplerMode::OffCpu => 0,
        };
        let passed_over = self.each.as_secs_f64() * passed_over as f64;
        Ok((
            taken.met,
            taken.spent + Duration::from_secs_f64(passed_over),
        ))
    }

    /// Takes what has come, and no more after that. Waits for the target's files, where they do not answer.
    pub fn stop(&mut self) -> Result<(), StacksError> {
        if self.took.is_none() {
            self.stacks.stop();
            if self.mode != SamplerMode::OffCpu {
                self.step()?;
            }
            if self.mode == SamplerMode::Allocations {
                let since = self.turn()?;
                match self.paused {
                    true => self.allocations.passed(since),
                    false => self.allocations.looked(since, &mut self.gathered),
                }
            }
            self.took = Some(self.began.elapsed());
        }
        Ok(())
    }

    /// Ends, and says what was found.
    pub fn finish(mut self) -> Result<Profile, StacksError> {
        self.stop()?;
        let took = self.took.unwrap_or_default();
        let taken = self.stacks.taken()?;
        let (mut on_cpu, mut touched, mut allocated) = (None, None, None);
        let (rate, each) = match self.mode {
            SamplerMode::Cpu => {
                let ticking = taken.ticking.as_secs_f64();
                let rate = taken.looks as f64 / ticking.max(1e-9);
                let each = if rate > 0.0 { 1e9 / rate } else { 0.0 };
                on_cpu = self.clock.map(|(began, ended)| OnCpu {
                    clock: ended.saturating_sub(began),
                    sampled: Duration::from_nanos((each * self.gathered.sum() as f64) as u64),
                });
                let by_clock = on_cpu.map_or(each, |on_cpu| on_cpu.by_clock(each));
                (rate, Each::Nanoseconds(by_clock))
            }
            SamplerMode::OffCpu => {
                let rate = self.passes as f64 / took.as_secs_f64().max(1e-9);
                (rate, Each::Nanoseconds(1.0))
            }
            SamplerMode::Memory => {
                // Those that were lost, and chance, leave out some: how many there were in all is known.
                let seen = self.gathered.sum().max(1) as f64;
                let rate = taken.looks as f64 / took.as_secs_f64().max(1e-9);
                let pages = taken.met as f64 + self.writes.copied(taken.written);
                touched = Some(Touched {
                    bytes: (pages * PAGE as f64) as u64,
                    before: self.resident,
                    after: resident(self.process),
                });
                (rate, Each::Bytes(pages * PAGE as f64 / seen))
            }
            SamplerMode::Allocations => {
                let rate = taken.looks as f64 / took.as_secs_f64().max(1e-9);
                let seen = self.gathered.sums();
                let used = self.clock.map(|(began, ended)| ended.saturating_sub(began));
                let of_pauses = self
                    .allocations
                    .for_the_last_pause(used.unwrap_or_default());
                // Where all was seen, the allocator's own count is what there was.
                let all = |side: usize| match of_pauses {
                    None => taken.allocated[side] as f64,
                    Some(factor) => seen[side] as f64 * factor,
                };
                let known = match self.said {
                    Some(frees) => [true, frees && of_pauses.is_none()],
                    None => [true; 2],
                };
                let each = |side: usize| match known[side] {
                    true => all(side) / seen[side].max(1) as f64,
                    false => 0.0,
                };
                allocated = Some(Allocated {
                    bytes: all(0) as u64,
                    freed: known[1].then(|| all(1) as u64),
                    in_step: self.allocations.in_step(),
                    said: self.said.is_some(),
                });
                let each = Each::Allocated {
                    bytes: [each(0), each(1)],
                    said: self.said.is_some(),
                };
                (rate, each)
            }
        };
        let kernel = self.gathered.kernel_addresses();
        let names = self.stacks.names(&kernel)?;
        let names: HashMap<u64, Arc<str>> = kernel
            .into_iter()
            .zip(names.into_iter().map(Arc::from))
            .collect();
        let is_running = self.mode != SamplerMode::OffCpu;
        Ok(Profile {
            samples: self
                .gathered
                .samples(self.reader.names(), &names, is_running, each),
            frequency: rate,
            took,
            taken: self.gathered.taken,
            complete: self.gathered.complete,
            guessed: self.gathered.guessed,
            lost: taken.lost,
            left_out: taken.left_out,
            by_any_timer: self.stacks.is_by_any_timer(),
            on_cpu,
            touched,
            allocated,
        })
    }
}

/// What each thread of a process does now. None of them is stopped; those that run at the moment have no stack, nor have those for whose
/// there is no room.
pub fn threads(process: ProcessId) -> Result<Threads, StacksError> {
    let mut room = StackRoom::with(BYTES_OF_A_MODE);
    let mut left_out = 0;
    let mut reader = Reader::of(process)?.complete()?;
    let mut stacks = Stacks::begin(
        super::identity(process),
        Sampled::All {
            skip_unchanged: false,
        },
    )?;
    let mut found: HashMap<u32, gathered::Seen> = HashMap::new();
    for attempt in 1..=ATTEMPTS {
        let mut moved = false;
        left_out = 0;
        stacks.pass(|head, stack| {
            let known = found.get(&head.thread);
            if known.is_some_and(|known| !known.moved) {
                return;
            }
            if known.is_none() && found.len() >= THREAD_LIMIT {
                left_out += 1;
                return;
            }
            moved |= head.flags & MOVED != 0;
            let is_running = head.flags & ON_CPU != 0;
            let mut key = match is_running {
                true => reader.key(head, stack, None),
                false => reader.waiting(head, stack),
            };
            if !room.take(key.frames()) {
                let wait = key.wait.take();
                key = gathered::Key {
                    wait,
                    ..gathered::Key::of_thread(head.name)
                };
            }
            let seen = gathered::Seen {
                key,
                moved: head.flags & MOVED != 0,
                is_running,
                task_state: head.task_state,
                since: (head.arrived_ns > 0)
                    .then(|| head.reader_arrived_ns.saturating_sub(head.arrived_ns)),
            };
            if let Some(before) = found.insert(head.thread, seen) {
                room.give_back(before.key.frames());
            }
        })?;
        if !moved || attempt == ATTEMPTS {
            break;
        }
    }
    let mut kernel: Vec<u64> = found
        .values()
        .flat_map(|seen| seen.key.kernel.iter().copied())
        .collect();
    kernel.sort_unstable();
    kernel.dedup();
    let names = stacks.names(&kernel)?;
    let names: HashMap<u64, Arc<str>> = kernel
        .into_iter()
        .zip(names.into_iter().map(Arc::from))
        .collect();
    let mut states: Vec<State> = found
        .into_iter()
        .map(|(thread, seen)| seen.state(thread, reader.names(), &names))
        .collect();
    states.sort_by_key(|state| state.thread);
    Ok(Threads { states, left_out })
}
