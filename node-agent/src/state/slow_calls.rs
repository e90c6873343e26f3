//! Where the time of slow calls went, by who called them, in windows of the wall clock: those of all targets are of the same time
//! and can be added up. No clock, no I/O.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_crds::{ProfileCounts, ProfileMode, ProfileWindow, SLOW_CALLS_WINDOW};
use ckb_probe_profiles::{Frame, Profile, Stack, Window};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};

use crate::mechanism::{
    Event,
    profile::{Finished, nanos},
    short_name,
    stacks::TRUNCATED,
};

/// How long a window is.
pub const WINDOW: Duration = SLOW_CALLS_WINDOW;

/// So long after a window is over, all of its calls have been told of.
const LATE: Duration = Duration::from_secs(2);

/// What the stacks of one window may take of memory: what is lighter than the rest is folded.
const WINDOW_BYTES: usize = 2 << 20;

/// One that runs, and for a moment the one before it.
const MOST: usize = 2;

/// What all of it takes of memory, at most.
pub const BYTES: u64 = (MOST * WINDOW_BYTES) as u64;

/// What is gathered of one probe's slow calls, by the numbers of windows.
#[derive(Clone, Debug, Default)]
pub struct SlowCalls(BTreeMap<u64, Gathered>);

#[derive(Clone, Debug)]
struct Gathered {
    /// Since 1970.
    begins: Duration,
    lasts: Duration,
    profile: Profile,
    counts: ProfileCounts,
    weights: Weights,
    /// What was added since it was last looked what all of it takes.
    added: usize,
}

impl SlowCalls {
    /// Adds a slow call of this function, which stands for so many, to the window of this length in which it returned.
    pub fn add(&mut self, event: &Event, function: &str, stands_for: f64, window: Duration) {
        let every = window.max(Duration::from_nanos(1));
        let number = since_1970(event.time).as_nanos() / every.as_nanos();
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        let gathered = self.0.entry(number).or_insert_with(|| Gathered {
            begins: Duration::from_nanos(nanos(every).saturating_mul(number)),
            lasts: every,
            profile: Profile::of(ProfileMode::SlowCalls),
            counts: ProfileCounts::default(),
            weights: Weights::default(),
            added: 0,
        });
        gathered.add(event, function, stands_for);
        // Windows are taken as they end. If nobody does, or the clock leaps, there is room for so many.
        while self.0.len() > MOST {
            self.0.pop_first();
        }
    }

    /// Takes the windows that are over.
    pub fn take_over(&mut self, now: Timestamp) -> Vec<Finished> {
        let now = since_1970(now);
        // A window that is to begin later was begun before the clock was set back.
        let is_over =
            |one: &Gathered| one.begins + one.lasts + LATE <= now || one.begins > now + LATE;
        let all = self.0.iter().filter(|(_, one)| is_over(one));
        let over: Vec<u64> = all.map(|(number, _)| *number).collect();
        let over = over.into_iter();
        over.filter_map(|number| self.0.remove(&number)?.finished(number, now))
            .collect()
    }

    /// Takes all that there is, as it stands.
    pub fn take_all(&mut self, now: Timestamp) -> Vec<Finished> {
        let now = since_1970(now);
        let all = std::mem::take(&mut self.0).into_iter();
        all.filter_map(|(number, one)| one.finished(number, now))
            .collect()
    }
}

impl Gathered {
    fn add(&mut self, event: &Event, function: &str, stands_for: f64) {
        let Some(callers) = event.callers() else {
            self.counts.lost += 1;
            return;
        };
        self.counts.samples += 1;
        self.counts.complete += u64::from(callers.complete);
        self.counts.guessed += u64::from(callers.guessed);
        let weights = self.weights.of(event, stands_for);
        self.added += add(&mut self.profile, event, (function, ""), weights);
        if self.added > WINDOW_BYTES / 4 {
            self.added = 0;
            if self.profile.stacks.bytes() > WINDOW_BYTES / 4 * 3 {
                // By more than must be, so that it is not done for each stack that comes.
                self.profile.lighten_to(WINDOW_BYTES / 2);
            }
        }
    }

    /// Nothing, where no stack was told of.
    fn finished(mut self, number: u64, now: Duration) -> Option<Finished> {
        let lasted = now.saturating_sub(self.begins).min(self.lasts);
        self.profile.window = Window {
            start_ns: nanos(self.begins),
            duration_ns: nanos(lasted),
        };
        let began_at = Timestamp::UNIX_EPOCH.checked_add(self.begins);
        (self.counts.samples > 0).then(|| Finished {
            mode: ProfileMode::SlowCalls,
            window: ProfileWindow {
                number,
                began_at: MicroTime(began_at.unwrap_or_default()),
                milliseconds: nanos(lasted) / 1_000_000,
            },
            counts: self.counts,
            stacks: Ok(self.profile.into()),
        })
    }
}

/// Calls and nanoseconds that slow calls weigh in a profile, each of which stands for so many: those of a function that is measured in
/// slices were met there by chance, and others like them between.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weights {
    /// What is left over of a call goes to the next one: a profile counts whole ones.
    left: f64,
}

impl Weights {
    /// What this one weighs.
    pub fn of(&mut self, event: &Event, stands_for: f64) -> [u64; 2] {
        let calls = self.left + stands_for;
        self.left = calls.fract();
        [calls as u64, (event.weight as f64 * stands_for) as u64]
    }
}

/// Adds a slow call whose callers are known to a profile: the function that was slow, of this target, is the innermost. Returns about what
/// it takes of memory, at most.
pub fn add(
    profile: &mut Profile,
    event: &Event,
    (function, target): (&str, &str),
    weights: [u64; 2],
) -> usize {
    let Some(callers) = event.callers() else {
        return 0;
    };
    let mut frames: Vec<(String, &str)> = Vec::new();
    if !callers.complete {
        frames.push((TRUNCATED.to_string(), ""));
    }
    let calls = callers.calls.iter().rev();
    frames.extend(calls.map(|call| (short_name(&call.name), &*call.file)));
    frames.push((short_name(function), ""));
    let frames = frames.iter();
    let stack = Stack {
        frames: frames.map(|(name, file)| Frame::user(name, file)).collect(),
        thread: &event.thread_name,
        target,
        weights: &weights,
        ..Stack::default()
    };
    profile.stacks.add(&stack);
    stack.bytes()
}

fn since_1970(time: Timestamp) -> Duration {
    u64::try_from(time.as_nanosecond()).map_or(Duration::ZERO, Duration::from_nanos)
}

#[cfg(test)]
mod tests;
