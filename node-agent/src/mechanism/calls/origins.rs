//! Where slow calls came from: a thread for each process that unwinds the stacks that were copied, as they come.
//!
//! Copies of stacks are the process's secrets: they are unwound where they lie and wiped at once, and nothing but the names of
//! functions leaves this module. Names are read from the target's files: where these do not answer, or take long to go through,
//! nobody waits for this thread but for a moment now and then, and slow calls are told without their stacks.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use ckb_probe_crds::Reason;

use super::super::{
    Refusal,
    stacks::{Callers, Reader, StacksError},
};
use crate::{
    governor,
    kernel::{
        AttachError,
        memory::{self, Reservation},
        stacks::SlowStacks,
    },
    observe::ProcessId,
};

/// How often it is looked for stacks. There is room for that many ([`SlowStacks::room`]) meanwhile.
const PACE: Duration = Duration::from_millis(50);

/// Who wants stacks waits no longer: it is the loop that serves all targets. All but those of the last moment are unwound by then.
const PATIENCE: Duration = Duration::from_millis(100);

/// Who was kept waiting for longer does not wait again for so long, so that no target takes more than a hundredth of that loop.
const PENALTY: Duration = Duration::from_secs(10);

/// Stacks of which nobody has asked for the calls: the oldest go.
const REMEMBERED: usize = 4096;

/// In the long run no more stacks are copied in a second than slow calls are written into the agent's log.
const PER_SECOND: f64 = 100.0;

/// What a copy costs the process: 3 µs by `make bench ROWS=slow-stacks`, where the machine is not slower than that one. What it does
/// cost is measured, and counts in the budget.
const COST: Duration = Duration::from_micros(5);

/// What unwinding takes of the agent's memory besides maps.
pub(in crate::mechanism) const BYTES: u64 = 4 << 20;

/// Why it cannot be told where slow calls came from.
#[derive(Debug, thiserror::Error)]
pub(in crate::mechanism) enum OriginsError {
    /// What the process has mapped cannot be read.
    #[error(transparent)]
    Stacks(#[from] StacksError),
    /// There is no thread to be had.
    #[error("no thread to unwind the stacks of slow calls: {0}")]
    Thread(#[source] io::Error),
}

/// The thread. Dropping it ends it.
pub(in crate::mechanism) struct Origins(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Somebody wants stacks, or none any more.
    wanted: Condvar,
    /// It was looked for them.
    looked: Condvar,
}

#[derive(Default)]
struct State {
    found: BTreeMap<u32, Callers>,
    /// How often somebody has wanted them.
    asked: u64,
    /// Of these, those that were looked for since.
    answered: u64,
    /// When somebody waited in vain.
    kept_waiting: Option<Instant>,
    /// Nobody wants any more, or nobody looks.
    over: bool,
}

impl State {
    /// How long it is waited for stacks that are not there yet.
    fn patience(&self, now: Instant) -> Duration {
        let failed = self.kept_waiting;
        let failed = failed.is_some_and(|at| now.saturating_duration_since(at) < PENALTY);
        // Or it has not come back from the time before: its files may never answer.
        match failed || self.answered < self.asked {
            true => Duration::ZERO,
            false => PATIENCE,
        }
    }
}

/// What took long and whose stacks are not all told.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::mechanism) struct PendingStacks {
    /// Those that are told without a stack though it was copied.
    pub stacks: u64,
    /// Those whose stacks end before the thread's beginning.
    pub frames: u64,
}

impl Origins {
    /// The same with the room that it takes of the agent's memory.
    pub(in crate::mechanism) fn of_process(
        process: ProcessId,
        stacks: SlowStacks,
        ratio: Option<f64>,
    ) -> Result<Self, Refusal> {
        let room = memory::budget().take(BYTES, memory::possible_cpus());
        let room = room.map_err(AttachError::from)?;
        Self::begin(process, stacks, ratio, room)
            .map_err(|error| Refusal::new(Reason::AttachFailed, error.to_string()))
    }

    /// Begins to look for copies of this process. `ratio`: what measuring may cost, per CPU time of the process; None: whatever it
    /// costs.
    pub(in crate::mechanism) fn begin(
        process: ProcessId,
        stacks: SlowStacks,
        ratio: Option<f64>,
        room: Reservation,
    ) -> Result<Self, OriginsError> {
        // What is mapped by now is read here, where the target's files are searched anyway: the first call is told with its stack.
        let reader = Reader::of(process)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            wanted: Condvar::new(),
            looked: Condvar::new(),
        });
        let end = End(Arc::clone(&shared));
        thread::Builder::new()
            .name("slow-stacks".to_string())
            .spawn(move || {
                // Until the slots are gone.
                let (_room, end) = (room, end);
                end.0.run(reader, stacks, ratio);
            })
            .map_err(OriginsError::Thread)?;
        Ok(Self(shared))
    }

    /// The callers of the calls that have these numbers, of those that are known.
    pub(in crate::mechanism) fn of(&self, numbers: &[u32]) -> HashMap<u32, Callers> {
        let mut state = self.0.state();
        if !numbers
            .iter()
            .all(|number| state.found.contains_key(number))
        {
            let patience = state.patience(Instant::now());
            state.asked += 1;
            let asked = state.asked;
            self.0.wanted.notify_one();
            let waits = |state: &mut State| state.answered < asked && !state.over;
            let waited = self.0.looked.wait_timeout_while(state, patience, waits);
            let timed_out;
            (state, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            if timed_out.timed_out() && patience > Duration::ZERO {
                state.kept_waiting = Some(Instant::now());
            }
        }
        let found = numbers.iter();
        found
            .filter_map(|number| Some((*number, state.found.remove(number)?)))
            .collect()
    }
}

impl Drop for Origins {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.wanted.notify_one();
    }
}

/// Says that it is over, also where the thread panics.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.looked.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut reader: Reader, mut stacks: SlowStacks, ratio: Option<f64>) {
        let mut allowance = Allowance::new(ratio, Instant::now());
        while let Some(asked) = self.wait() {
            reader.look_again();
            let mut found = Vec::new();
            stacks.take(|head, copy| found.push((head.stands_for, reader.callers(head, copy))));
            let given = stacks.give_back(allowance.now(Instant::now()));
            allowance.take(given);
            let mut state = self.state();
            state.found.extend(found);
            while state.found.len() > REMEMBERED {
                state.found.pop_first();
            }
            state.answered = asked;
            self.looked.notify_all();
        }
    }

    /// Waits until it is to be looked again, and tells how often that was asked for; None: it is over.
    fn wait(&self) -> Option<u64> {
        let idle = |state: &mut State| !state.over && state.answered == state.asked;
        let waited = self.wanted.wait_timeout_while(self.state(), PACE, idle);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        (!state.over).then_some(state.asked)
    }
}

/// How many stacks may still be copied.
#[derive(Debug)]
struct Allowance {
    /// None: as many as there is room for.
    per_second: Option<f64>,
    left: f64,
    looked: Instant,
}

impl Allowance {
    /// All slots are free at first.
    fn new(ratio: Option<f64>, now: Instant) -> Self {
        Self {
            per_second: ratio.map(|_| governor::frequency(PER_SECOND, COST, ratio, 1)),
            left: 0.0,
            looked: now,
        }
    }

    /// How many slots may be given back now.
    fn now(&mut self, now: Instant) -> u32 {
        let Some(per_second) = self.per_second else {
            return SlowStacks::room();
        };
        let more = now.saturating_duration_since(self.looked).as_secs_f64() * per_second;
        self.looked = now;
        self.left = (self.left + more).min(f64::from(SlowStacks::room()));
        self.left as u32
    }

    fn take(&mut self, given: u32) {
        if self.per_second.is_some() {
            self.left -= f64::from(given);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many stacks are copied in a minute in which slow calls never end.
    fn in_a_minute(ratio: Option<f64>) -> u32 {
        let begun = Instant::now();
        let mut allowance = Allowance::new(ratio, begun);
        let steps = 1..=60 * 20;
        let given = steps.map(|step| {
            let given = allowance.now(begun + PACE * step).min(SlowStacks::room());
            allowance.take(given);
            given
        });
        given.sum()
    }

    #[test]
    fn no_more_stacks_are_copied_than_slow_calls_are_written_and_half_of_the_budget_pays() {
        // 1 %, of which half pays 1,000 of 5 µs.
        assert!(in_a_minute(Some(0.01)).abs_diff(6_000) <= 1);
        // 0.02 %: 20 a second.
        assert!(in_a_minute(Some(0.0002)).abs_diff(1_200) <= 1);
        // Where it may cost whatever it costs, as many as there is room for.
        assert_eq!(in_a_minute(None), 60 * 20 * SlowStacks::room());
    }

    #[test]
    fn who_was_kept_waiting_does_not_wait_again_for_a_while() {
        let now = Instant::now();
        let mut state = State::default();
        assert_eq!(state.patience(now), PATIENCE);
        state.asked = 1;
        assert_eq!(state.patience(now), Duration::ZERO);
        state.kept_waiting = Some(now);
        state.answered = 1;
        assert_eq!(state.patience(now + PENALTY / 2), Duration::ZERO);
        assert_eq!(state.patience(now + PENALTY), PATIENCE);
    }

    #[test]
    fn what_is_not_used_is_saved_up_to_the_room_that_there_is() {
        let begun = Instant::now();
        let mut allowance = Allowance::new(Some(0.01), begun);
        let room = SlowStacks::room();
        assert_eq!(allowance.now(begun), 0);
        assert_eq!(allowance.now(begun + Duration::from_secs(60)), room);
        allowance.take(room);
        assert_eq!(allowance.now(begun + Duration::from_secs(60)), 0);
    }
}
