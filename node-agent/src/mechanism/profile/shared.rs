//! Samplers, and who has them: they outlast the measurements that ask for them by a moment.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use ckb_probe_crds::{ProfileMode, Reason, report::OTHER};

use super::{Failure, Finished, ProfileConfig, Weighed, sampling};
use crate::{
    kernel::{CalibratedTier, memory},
    mechanism::Refusal,
    observe::{OwnThread, ProcessId, Standstill},
};

/// A sampler that nobody has goes on for so long: whoever measures the process anew asks for it again at once.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A thread that stands still in one thing for longer than this is held up by the target.
const HELD_UP: Duration = Duration::from_secs(5);

/// So many windows wait for somebody who is to be told of them.
const MOST_UNTOLD: usize = 8;

/// All samplers of the node.
#[derive(Default)]
pub(super) struct Registry {
    samplers: Vec<(ProcessId, ProfileConfig, Arc<SharedSampler>)>,
}

/// What a sampler's thread and those who have it share.
#[derive(Default)]
pub(super) struct SharedSampler {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Who has it, by number; the last one is the newest.
    holders: Vec<u64>,
    made: u64,
    /// Since when nobody does.
    left: Option<Instant>,
    /// Who is to be told of windows: also those that have gone, until others come.
    senders: Vec<(u64, Sender<Finished>)>,
    /// What was finished while nobody was to be told.
    untold: Vec<Finished>,
    totals: Totals,
    /// Of which modes there were no stacks in the last window.
    failures: BTreeMap<ProfileMode, Failure>,
    cost: Duration,
    /// What probing may cost, per CPU time of the process.
    ratio: Option<f64>,
    /// How many samplers the process has.
    sharing: usize,
    /// The thread, while it does what the target may hold it up in.
    busy: Option<Standstill>,
}

/// What was seen in all windows, and in the last of each mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) rows: BTreeMap<(ProfileMode, &'static str), Sums>,
    /// Stacks that were to be taken and could not be.
    pub(super) lost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) all: Weighed,
    pub(super) last: Weighed,
}

impl Totals {
    /// Adds a window's.
    pub(super) fn add(
        &mut self,
        mode: ProfileMode,
        headings: &BTreeMap<&'static str, Weighed>,
        lost: u64,
    ) {
        self.lost = self.lost.saturating_add(lost);
        for ((_, _), sums) in self.rows.iter_mut().filter(|((of, _), _)| *of == mode) {
            sums.last = nothing(mode);
        }
        if headings.is_empty() && !self.rows.keys().any(|(of, _)| *of == mode) {
            // It was looked, and that nothing was seen is told as well.
            let none = Sums {
                all: nothing(mode),
                last: nothing(mode),
            };
            self.rows.insert((mode, OTHER), none);
        }
        for (category, seen) in headings {
            let none = Sums {
                all: nothing(mode),
                last: nothing(mode),
            };
            let sums = self.rows.entry((mode, category)).or_insert(none);
            sums.all.weight = sums.all.weight.saturating_add(seen.weight);
            sums.all.freed = sums.all.freed.saturating_add(seen.freed);
            sums.all.samples += seen.samples;
            sums.all.complete += seen.complete;
            sums.last = *seen;
        }
    }

    /// What was added since.
    fn since(&self, earlier: &Self) -> Self {
        let rows = self.rows.iter().map(|(key, sums)| {
            let before = earlier.rows.get(key).map(|sums| sums.all);
            let before = before.unwrap_or(nothing(key.0));
            let all = Weighed {
                mode: key.0,
                weight: sums.all.weight.saturating_sub(before.weight),
                freed: sums.all.freed.saturating_sub(before.freed),
                samples: sums.all.samples.saturating_sub(before.samples),
                complete: sums.all.complete.saturating_sub(before.complete),
            };
            let last = sums.last;
            (*key, Sums { all, last })
        });
        Self {
            rows: rows.collect(),
            lost: self.lost.saturating_sub(earlier.lost),
        }
    }
}

fn nothing(mode: ProfileMode) -> Weighed {
    Weighed {
        mode,
        weight: 0,
        freed: 0,
        samples: 0,
        complete: 0,
    }
}

impl Registry {
    /// Has a sampler of this process and question: the one that there is, or a new one.
    pub(super) fn enroll(
        registry: &Arc<Mutex<Self>>,
        process: ProcessId,
        ask: &ProfileConfig,
        ratio: Option<f64>,
        means: Option<CalibratedTier>,
    ) -> Result<SamplerHandle, Refusal> {
        let mut all = registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = all.samplers.iter();
        let known = known.find(|(of, asked, _)| *of == process && asked == ask);
        if let Some((_, _, sampled)) = known {
            return Ok(SamplerHandle::of(sampled, ratio));
        }
        let sampled = Arc::<SharedSampler>::default();
        let enrolled = SamplerHandle::of(&sampled, ratio);
        let (own, of, asked) = (Arc::clone(registry), process, ask.clone());
        let shared = Arc::clone(&sampled);
        let thread = thread::Builder::new().name("profiles".to_string());
        let payer = memory::payer();
        let work = move || {
            memory::on_behalf_of(payer, || {
                sampling::run(of, &asked, means, &shared, |gone| {
                    Self::forget(&own, &shared, gone)
                });
            });
            shared.close();
        };
        thread.spawn(work).map_err(|error| {
            let message = format!("no thread to sample stacks on: {error}");
            Refusal::new(Reason::AttachFailed, message)
        })?;
        all.samplers.push((process, ask.clone(), sampled));
        all.count();
        Ok(enrolled)
    }

    /// Forgets a sampler that nobody has any more, or whose process is `gone`; false where somebody has it after all, who came
    /// meanwhile.
    fn forget(registry: &Mutex<Self>, over: &Arc<SharedSampler>, gone: bool) -> bool {
        let mut all = registry.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = gone || over.is_over();
        if forgotten {
            all.samplers
                .retain(|(_, _, sampled)| !Arc::ptr_eq(sampled, over));
            all.count();
        }
        forgotten
    }

    /// Tells each sampler how many its process has, which share what the budget pays.
    fn count(&self) {
        for (process, _, sampled) in &self.samplers {
            let own = self.samplers.iter().filter(|(of, _, _)| of == process);
            sampled.state().sharing = own.count();
        }
    }
}

impl State {
    /// For how long it goes on though nobody has it; for ever where somebody does.
    fn patience(&self, now: Instant) -> Duration {
        let left = self.left.map(|since| now.saturating_duration_since(since));
        left.map_or(Duration::MAX, |left| PATIENCE.saturating_sub(left))
    }
}

impl SharedSampler {
    fn state(&self) -> MutexGuard<'_, State> {
        // What it holds is right at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody has had it for [`PATIENCE`].
    pub(super) fn is_over(&self) -> bool {
        self.state().patience(Instant::now()).is_zero()
    }

    /// Waits for so long, and no longer than until somebody comes or goes.
    pub(super) fn wait(&self, time: Duration) {
        let state = self.state();
        let time = time.min(state.patience(Instant::now()));
        let waited = self.changed.wait_timeout(state, time);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The thread, which says so itself, begins something in which the target may hold it up, or, if not, what nobody does.
    pub(super) fn begins(&self, may_be_held_up: bool) {
        let busy = may_be_held_up.then(|| Standstill::of(OwnThread::current()));
        self.state().busy = busy;
    }

    /// Whether the target holds up its thread for so long: one that gets no CPU is not held up by the target.
    fn is_held_up(&self, patience: Duration) -> bool {
        let mut state = self.state();
        let busy = state.busy.as_mut();
        busy.is_some_and(|thread| thread.lasts() >= patience)
    }

    /// How many samplers of the process share that.
    pub(super) fn sharing(&self) -> usize {
        self.state().sharing.max(1)
    }

    /// What probing may cost.
    pub(super) fn ratio(&self) -> Option<f64> {
        self.state().ratio
    }

    /// Sampling has cost the process so much more.
    pub(super) fn spend(&self, cost: Duration) {
        self.state().cost += cost;
    }

    /// The last window of a mode had no stacks, or had some.
    pub(super) fn fails(&self, mode: ProfileMode, failure: Option<Failure>) {
        let failures = &mut self.state().failures;
        match failure {
            Some(failure) => failures.insert(mode, failure),
            None => failures.remove(&mode),
        };
    }

    /// Hands over a window that is over.
    pub(super) fn finish(&self, finished: Finished, headings: &BTreeMap<&'static str, Weighed>) {
        let mut state = self.state();
        let (mode, lost) = (finished.mode, finished.counts.lost);
        if finished.stacks.is_ok() {
            state.totals.add(mode, headings, lost);
        }
        state
            .senders
            .retain(|(_, sender)| sender.send(finished.clone()).is_ok());
        if state.senders.is_empty() {
            if state.untold.len() >= MOST_UNTOLD {
                state.untold.remove(0);
            }
            state.untold.push(finished);
        }
    }

    /// There will be no other window.
    fn close(&self) {
        self.state().senders.clear();
    }
}

/// Somebody who has a sampler.
pub(super) struct SamplerHandle {
    sampled: Arc<SharedSampler>,
    number: u64,
    /// What was there before.
    before: Totals,
    cost: Duration,
}

impl SamplerHandle {
    /// Has a sampler, for a measurement that may cost so much.
    pub(super) fn of(sampled: &Arc<SharedSampler>, ratio: Option<f64>) -> Self {
        let mut state = sampled.state();
        state.made += 1;
        let number = state.made;
        state.holders.push(number);
        state.left = None;
        state.ratio = ratio;
        let (before, cost) = (state.totals.clone(), state.cost);
        drop(state);
        sampled.changed.notify_all();
        Self {
            sampled: Arc::clone(sampled),
            number,
            before,
            cost,
        }
    }

    /// Where windows come from, from those on that nobody was told of.
    pub(super) fn receiver(&mut self) -> Receiver<Finished> {
        let (sender, receiver) = channel();
        let mut state = self.sampled.state();
        let State {
            holders,
            senders,
            untold,
            ..
        } = &mut *state;
        // Those that have gone are told no more: this one is, in their stead.
        senders.retain(|(of, _)| holders.contains(of) && *of != self.number);
        for finished in untold.drain(..) {
            // The receiver is at hand.
            let _ = sender.send(finished);
        }
        senders.push((self.number, sender));
        drop(state);
        receiver
    }

    /// What was seen since it came.
    pub(super) fn totals(&self) -> Totals {
        self.sampled.state().totals.since(&self.before)
    }

    /// Whether the target holds up its thread.
    pub(super) fn is_held_up(&self) -> bool {
        self.sampled.is_held_up(HELD_UP)
    }

    /// Of which modes there were no stacks in the last window, and why.
    pub(super) fn failures(&self) -> BTreeMap<ProfileMode, Failure> {
        self.sampled.state().failures.clone()
    }

    /// What sampling has cost the process since.
    pub(super) fn cost(&self) -> Duration {
        self.sampled.state().cost.saturating_sub(self.cost)
    }

    /// It is nobody's any more, if it is nobody else's. What is finished because the process ends is still told.
    pub(super) fn leave(&mut self) {
        let mut state = self.sampled.state();
        state.holders.retain(|holder| *holder != self.number);
        if state.holders.is_empty() && state.left.is_none() {
            state.left = Some(Instant::now());
        }
        drop(state);
        self.sampled.changed.notify_all();
    }
}

impl Drop for SamplerHandle {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
