//! What was sampled, as it is handed on: stacks with their names, and how they divide by part of CKB. Pure.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_profiles::{
    Frame, Profile, ProfileMode, Stack, Window, categories::category, names::shorten,
};

use super::{
    super::stacks::{self, Call, CodeOrigin, State},
    Weighed,
};

/// Stacks, and what part of them belongs to which category.
#[derive(Clone, Debug)]
pub struct CategorizedStacks {
    /// The stacks.
    pub profile: Profile,
    pub(super) headings: BTreeMap<&'static str, Weighed>,
}

impl CategorizedStacks {
    fn of(mode: ProfileMode) -> Self {
        Self {
            profile: Profile::of(mode),
            headings: BTreeMap::new(),
        }
    }

    /// What was sampled of a process in a window that began then; `target` is what the process is called in each stack.
    pub fn sampled(
        mode: ProfileMode,
        sampled: &stacks::Profile,
        began: Duration,
        target: &str,
    ) -> Self {
        let mut told = Self::of(mode);
        for sample in &sampled.samples {
            let time = nanos(sample.time);
            let weights: &[u64] = match mode {
                ProfileMode::Cpu => &[sample.count, time],
                ProfileMode::Memory => &[sample.memory / stacks::PAGE, sample.memory],
                ProfileMode::Allocations => &[sample.memory, sample.freed],
                ProfileMode::OffCpu | ProfileMode::Threads | ProfileMode::SlowCalls => &[time],
            };
            let wait = sample.calls.last();
            let wait = wait.filter(|_| mode == ProfileMode::OffCpu);
            let stack = Stack {
                thread: &sample.thread,
                target,
                wait: wait.map_or("", |call| call.name.trim_matches(['[', ']'])),
                weights,
                ..Stack::default()
            };
            let weight = weights.get(mode.shown()).copied().unwrap_or_default();
            told.add(
                mode,
                &sample.calls,
                stack,
                sample.count,
                [weight, sample.freed],
            );
        }
        told.profile.window = Window {
            start_ns: nanos(began),
            duration_ns: nanos(sampled.took),
        };
        told.profile.period = match mode {
            // Of memory it varies with how much there is to see.
            ProfileMode::Memory | ProfileMode::Allocations => 0,
            _ if sampled.frequency > 0.0 => (1e9 / sampled.frequency) as u64,
            _ => 0,
        };
        told
    }

    /// What threads did at a moment.
    pub(super) fn dumped(threads: &[State], at: Duration) -> Self {
        let mut told = Self::of(ProfileMode::Threads);
        for thread in threads {
            let since = thread.since.map_or(0, nanos);
            let wait = thread.wait.as_deref().unwrap_or_default();
            let stack = Stack {
                thread: &thread.name,
                state: thread.state,
                wait: wait.trim_matches(['[', ']']),
                weights: &[1, since],
                ..Stack::default()
            };
            // They come from the innermost on.
            let calls: Vec<Call> = thread.calls.iter().rev().cloned().collect();
            told.add(ProfileMode::Threads, &calls, stack, 1, [1, 0]);
        }
        told.profile.window.start_ns = nanos(at);
        told
    }

    fn add(
        &mut self,
        mode: ProfileMode,
        calls: &[Call],
        stack: Stack<'_>,
        count: u64,
        [weight, freed]: [u64; 2],
    ) {
        let names: Vec<String> = calls.iter().map(|call| shorten(&call.name)).collect();
        let frames = calls.iter().zip(&names);
        let frames = frames.map(|(call, name)| match call.place {
            CodeOrigin::Kernel => Frame::kernel(name),
            CodeOrigin::User | CodeOrigin::Said => Frame::user(name, &call.file),
        });
        let stack = Stack {
            frames: frames.collect(),
            ..stack
        };
        let of = category(&stack).as_str();
        let seen = self.headings.entry(of).or_insert(Weighed {
            mode,
            weight: 0,
            freed: 0,
            samples: 0,
            complete: 0,
        });
        seen.weight = seen.weight.saturating_add(weight);
        seen.freed = seen.freed.saturating_add(freed);
        seen.samples += count;
        seen.complete += if is_whole(calls) { count } else { 0 };
        self.profile.stacks.add(&stack);
    }

    /// How many stacks there are, and how many of them are whole.
    pub(super) fn counts(&self) -> (u64, u64) {
        let all = self.headings.values();
        all.fold((0, 0), |(samples, complete), one| {
            (samples + one.samples, complete + one.complete)
        })
    }
}

fn is_whole(calls: &[Call]) -> bool {
    let first = calls.first();
    first.is_none_or(|call| call.place != CodeOrigin::Said || &*call.name != stacks::TRUNCATED)
}

/// In nanoseconds, or as many as there can be.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
