//! The thread of a sampler: waits for a window, samples until it is over, and hands over what was found.
//!
//! Whatever the target does to hold it up (files that do not answer, threads without number), nobody waits for this thread.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use ckb_probe_crds::{ProfileCounts, ProfileMode, ProfileWindow, Reason};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};

use super::{
    super::stacks::{self, Reader, SamplerMode, StackSampler, StacksError},
    Failure, Finished, ProfileConfig,
    categorized::{CategorizedStacks, nanos},
    lacking,
    schedule::{Schedule, Upcoming, upcoming},
    shared::SharedSampler,
    slices::Slices,
};
use crate::{
    governor::{self, Thinned},
    kernel::CalibratedTier,
    observe::{self, Life, ProcessId},
};

/// However far the next window is, the clock may be set meanwhile.
const LOOK: Duration = Duration::from_secs(60);

/// How often it is looked what sampling costs.
const SPEND: Duration = Duration::from_millis(500);

/// What a sample costs the process before any was taken: some pages of its stack are copied.
const COST: Duration = Duration::from_micros(20);

/// So many samples tell what one costs.
const ENOUGH: u64 = 20;

/// Samples in windows, until nobody wants it any more or the process ends; `forget` is told whether that is so, and says whether it
/// may end.
pub(super) fn run(
    process: ProcessId,
    ask: &ProfileConfig,
    means: Option<CalibratedTier>,
    shared: &SharedSampler,
    forget: impl Fn(bool) -> bool,
) {
    let Ok(life) = Life::of(process) else {
        forget(true);
        return;
    };
    let mut thread = Thread {
        process,
        ask,
        means,
        shared,
        life,
        cost: COST,
        slices: Slices::default(),
    };
    let schedule = Schedule {
        every: ask.every,
        window: ask.window,
        occasional: ask.occasional,
    };
    let mut done = None;
    loop {
        if thread.life.is_over() {
            forget(true);
            return;
        }
        if shared.is_over() && forget(false) {
            return;
        }
        match upcoming(schedule, since_1970(), done) {
            None => shared.wait(LOOK),
            Some(next) if !next.begins.is_zero() => shared.wait(next.begins.min(LOOK)),
            Some(next) => {
                done = Some(next.number);
                thread.window(next);
            }
        }
    }
}

struct Thread<'a> {
    process: ProcessId,
    ask: &'a ProfileConfig,
    /// How functions are attached to; None: they are not.
    means: Option<CalibratedTier>,
    shared: &'a SharedSampler,
    life: Life,
    /// What a sample of those that run costs the process.
    cost: Duration,
    slices: Slices,
}

/// A mode that is sampled.
struct Sampling {
    mode: ProfileMode,
    sampler: Result<StackSampler, Failure>,
    next: Instant,
}

impl Thread<'_> {
    fn window(&mut self, window: Upcoming) {
        let began = since_1970();
        let window_of = |milliseconds| ProfileWindow {
            number: window.number,
            began_at: MicroTime(Timestamp::try_from(UNIX_EPOCH + began).unwrap_or_default()),
            milliseconds,
        };
        let start = Instant::now();
        self.shared.begins(true);
        // What is read of the process's files is for all of its modes.
        let _read = Reader::of(self.process);
        let mut all = self.begin();
        // Where others have a window of this number it ends when theirs do; else it lasts as long as is asked, from now on.
        let start = self.ask.every.map_or_else(Instant::now, |_| start);
        let end = start + window.lasts;
        let wanted = self.sample(&mut all, end);
        self.shared.begins(false);
        if !wanted {
            return;
        }
        let lasted = since_1970().saturating_sub(began);
        // What waits for the target's files comes first: nobody else waits for that.
        for one in &mut all {
            self.shared.begins(true);
            if let Ok(sampler) = &mut one.sampler
                && let Err(error) = sampler.stop()
            {
                one.fail(&error);
            }
        }
        self.shared.begins(false);
        for one in all {
            let mode = one.mode;
            let _told = one_at_a_time();
            let found = one.sampler.and_then(|sampler| {
                self.learn(mode, &sampler);
                sampler.finish().map_err(|error| Failure::from(&error))
            });
            let told = found.map(|found| {
                // Of what is waited for, idle pools are the most, and tell nothing.
                let found = match mode {
                    ProfileMode::OffCpu => found.with_idle_folded(),
                    _ => found,
                };
                let told = CategorizedStacks::sampled(mode, &found, began, "");
                let touched = found.touched.unwrap_or_default();
                let (before, after) = (touched.before, touched.after);
                let counts = ProfileCounts {
                    samples: found.taken,
                    complete: found.complete,
                    guessed: found.guessed,
                    lost: found.lost,
                    by_any_timer: found.by_any_timer,
                    millihertz: (found.frequency * 1e3) as u64,
                    cpu_microseconds: found.on_cpu.map(|on_cpu| micros(on_cpu.clock)),
                    sampled_microseconds: found.on_cpu.map(|on_cpu| micros(on_cpu.sampled)),
                    resident_before: before.map(|before| before.all),
                    resident_after: after.map(|after| after.all),
                    anonymous_before: before.map(|before| before.anonymous),
                    anonymous_after: after.map(|after| after.anonymous),
                    in_step: found.allocated.map_or(0, |allocated| allocated.in_step),
                };
                (window_of(millis(found.took)), counts, told)
            });
            self.tell(mode, window_of(millis(lasted)), told);
        }
        let others = self
            .ask
            .modes
            .iter()
            .filter(|mode| SamplerMode::of(**mode).is_none());
        for mode in others {
            let told = match lacking(*mode) {
                Some(why) => Err(Failure {
                    reason: Reason::UnsupportedByKernel,
                    why: why.to_string(),
                }),
                None => self.threads(window_of(0)),
            };
            self.tell(*mode, window_of(millis(lasted)), told);
        }
    }

    /// All samplers of a window.
    fn begin(&self) -> Vec<Sampling> {
        let ratio = self.shared.ratio();
        let modes = self.ask.modes.iter();
        let modes = modes.filter_map(|mode| Some((*mode, SamplerMode::of(*mode)?)));
        modes
            .map(|(mode, sampled)| {
                let frequency = match sampled {
                    // What it does not run in costs the process nothing; and page faults and allocations come as they come.
                    SamplerMode::OffCpu | SamplerMode::Memory | SamplerMode::Allocations => {
                        self.ask.passes
                    }
                    SamplerMode::Cpu => {
                        let asked = f64::from(self.ask.frequency);
                        let samplers = self.samplers();
                        governor::frequency(asked, self.cost, ratio, samplers).max(1.0) as u32
                    }
                };
                let means = self.means.as_ref();
                let sampler = StackSampler::begin(self.process, sampled, frequency, means);
                let pace = sampler.as_ref().map_or(LOOK, StackSampler::pace);
                Sampling {
                    mode,
                    sampler: sampler.map_err(|error| Failure::from(&error)),
                    next: Instant::now() + pace,
                }
            })
            .collect()
    }

    /// How many samplers share what the budget pays: those that run at the process's expense.
    fn samplers(&self) -> usize {
        let own = [
            ProfileMode::Cpu,
            ProfileMode::Memory,
            ProfileMode::Allocations,
        ];
        let modes = self.ask.modes.iter();
        modes.filter(|mode| own.contains(mode)).count() * self.shared.sharing()
    }

    /// Samples until the window is over, or the process is; false where nobody wants it any more.
    fn sample(&mut self, all: &mut [Sampling], end: Instant) -> bool {
        let mut spend = Instant::now() + SPEND;
        let mut spent = Duration::ZERO;
        let mut faults = Faults::of(self.process);
        self.slices.begin(self.process);
        loop {
            let now = Instant::now();
            let wanted = !self.shared.is_over();
            if now >= end || self.life.is_over() || !wanted {
                self.spend(all, &mut spent);
                return wanted;
            }
            for one in all.iter_mut().filter(|one| one.next <= now) {
                self.shared.begins(true);
                one.step(&self.life);
                if one.mode == ProfileMode::Allocations {
                    one.look(self);
                }
            }
            self.shared.begins(false);
            if spend <= now {
                self.spend(all, &mut spent);
                for one in all.iter().filter(|one| one.mode == ProfileMode::Memory) {
                    faults.look(self, one);
                }
                for one in all.iter_mut().filter(|one| one.mode == ProfileMode::Memory) {
                    one.set_one_in(faults.thinned.one_in);
                }
                spend = now + SPEND;
            }
            let next = all.iter().map(|one| one.next).min();
            let next = next.unwrap_or(end).min(end).min(spend);
            self.shared
                .wait(next.saturating_duration_since(Instant::now()));
        }
    }

    /// Tells what sampling has cost since it was told the last time.
    fn spend(&self, all: &[Sampling], before: &mut Duration) {
        let samplers = all.iter().filter_map(|one| one.sampler.as_ref().ok());
        let spent = samplers.filter_map(|sampler| Some(sampler.spent().ok()?.1));
        let spent: Duration = spent.sum();
        self.shared.spend(spent.saturating_sub(*before));
        *before = spent.max(*before);
    }

    /// What a sample has cost in this window is what one is taken to cost in the next.
    fn learn(&mut self, mode: ProfileMode, sampler: &StackSampler) {
        if mode == ProfileMode::Cpu
            && let Ok((met, spent)) = sampler.spent()
            && met >= ENOUGH
        {
            self.cost = Duration::from_nanos(nanos(spent) / met);
        }
    }

    /// What the threads do now.
    fn threads(
        &self,
        window: ProfileWindow,
    ) -> Result<(ProfileWindow, ProfileCounts, CategorizedStacks), Failure> {
        self.shared.begins(true);
        let threads = stacks::threads(self.process);
        self.shared.begins(false);
        let threads = threads.map_err(|error| Failure::from(&error))?;
        let _told = one_at_a_time();
        let told = CategorizedStacks::dumped(&threads.states, since_1970());
        let (samples, complete) = told.counts();
        let counts = ProfileCounts {
            samples,
            complete,
            lost: threads.left_out,
            ..ProfileCounts::default()
        };
        Ok((window, counts, told))
    }

    fn tell(
        &self,
        mode: ProfileMode,
        window: ProfileWindow,
        told: Result<(ProfileWindow, ProfileCounts, CategorizedStacks), Failure>,
    ) {
        // What this version has no windows of is told from the first moment on.
        if lacking(mode).is_none() {
            self.shared.fails(mode, told.as_ref().err().cloned());
        }
        let (finished, headings) = match told {
            Ok((window, counts, told)) => {
                let CategorizedStacks { profile, headings } = told;
                let finished = Finished {
                    mode,
                    window,
                    counts,
                    stacks: Ok(Arc::new(profile)),
                };
                (finished, headings)
            }
            Err(Failure { why, .. }) => {
                let finished = Finished {
                    mode,
                    window,
                    counts: ProfileCounts::default(),
                    stacks: Err(why),
                };
                (finished, BTreeMap::new())
            }
        };
        self.shared.finish(finished, &headings);
    }
}

/// How many page faults there are to be sampled of.
struct Faults {
    thinned: Thinned,
    spent: Duration,
    used: Duration,
}

impl Faults {
    fn of(process: ProcessId) -> Self {
        Self {
            thinned: Thinned::default(),
            spent: Duration::ZERO,
            used: observe::cpu_time(process).unwrap_or_default(),
        }
    }

    /// Looks what they have cost since the last time, and how many that pays.
    fn look(&mut self, thread: &Thread<'_>, faults: &Sampling) {
        let spent = faults.sampler.as_ref().ok();
        let Some((_, spent)) = spent.and_then(|sampler| sampler.spent().ok()) else {
            return;
        };
        let used = observe::cpu_time(thread.process).unwrap_or(self.used);
        self.thinned = self.thinned.next(
            spent.saturating_sub(self.spent),
            used.saturating_sub(self.used),
            thread.shared.ratio(),
            thread.samplers(),
        );
        (self.spent, self.used) = (spent, used);
    }
}

impl Sampling {
    fn set_one_in(&mut self, one_in: u32) {
        if let Ok(sampler) = &mut self.sampler
            && let Err(error) = sampler.set_one_in(one_in)
        {
            self.fail(&error.into());
        }
    }

    /// Looks, or not, as the budget pays.
    fn look(&mut self, thread: &mut Thread<'_>) {
        let (process, ratio) = (thread.process, thread.shared.ratio());
        let samplers = thread.samplers();
        if let Ok(sampler) = &mut self.sampler
            && let Err(error) = thread.slices.look(sampler, process, ratio, samplers)
        {
            self.fail(&error);
        }
    }

    fn step(&mut self, life: &Life) {
        let pace = match &mut self.sampler {
            Ok(sampler) => match sampler.step() {
                Ok(()) => sampler.pace(),
                // What was found until its end is told.
                Err(_) if life.is_over() => LOOK,
                Err(error) => {
                    self.fail(&error);
                    LOOK
                }
            },
            Err(_) => LOOK,
        };
        // Steps that were missed are not made up for.
        self.next = (self.next + pace).max(Instant::now());
    }

    fn fail(&mut self, error: &StacksError) {
        self.sampler = Err(Failure::from(error));
    }
}

/// Names and profiles are made of what was gathered for one mode of one process at a time, though windows end at the same moment of the
/// clock: for a while that takes several times the memory.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
