//! Which of what took a time was within what: on one thread, what begins and ends within something else is a part of it. So is, on whatever
//! thread, what begins while something of the same key has begun and not ended.
//!
//! What is within is told first, since it ends first. So each waits for a while before it leaves, and then goes with all that it is
//! within, or that is within it. Pure: times are passed in.

mod parents;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    ids::{SpanId, TraceId},
    span::Span,
};

/// So long each waits for what it may be within.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Of more than these, the oldest wait no longer.
const MOST: usize = 2048;

/// What waits, with whatever it carries.
#[derive(Clone, Debug)]
pub struct Nest<T> {
    owners: BTreeMap<u64, Vec<Held<T>>>,
    count: usize,
    spans: BTreeMap<u64, u64>,
    hurried: u64,
}

/// By what is known what something may be within.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Within {
    /// Whose it is: spans are counted for them, and none is within another's.
    pub owner: u64,
    /// The number, on the host, of the thread in which it began and ended; None where these are two.
    pub thread: Option<u32>,
    /// What it has in common with others of any thread, where that is asked.
    pub key: Option<Key>,
}

/// What several have in common that have one cause, such as a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// What it is the number of, as whoever asks has named it.
    pub name: Arc<str>,
    /// The number.
    pub number: u64,
}

#[derive(Clone, Debug)]
struct Held<T> {
    since: Duration,
    within: Within,
    /// The root first, and what is known to be below it.
    spans: Vec<Span>,
    /// It was told what it is a part of: that is not to be found here.
    is_placed: bool,
    carried: T,
}

impl<T> Default for Nest<T> {
    fn default() -> Self {
        Self {
            owners: BTreeMap::new(),
            count: 0,
            spans: BTreeMap::new(),
            hurried: 0,
        }
    }
}

impl<T> Nest<T> {
    /// Takes the spans of one trace, the root first. One that has a parent already stays below that, in its trace.
    pub fn hold(&mut self, within: Within, spans: Vec<Span>, carried: T, now: Duration) {
        if spans.is_empty() {
            return;
        }
        self.count += 1;
        *self.spans.entry(within.owner).or_default() += spans.len() as u64;
        self.owners.entry(within.owner).or_default().push(Held {
            since: now,
            within,
            is_placed: spans[0].parent.is_some(),
            spans,
            carried,
        });
    }

    /// How many spans wait, of this owner.
    pub fn waiting_of(&self, owner: u64) -> u64 {
        self.spans.get(&owner).copied().unwrap_or_default()
    }

    /// How many spans wait.
    pub fn waiting(&self) -> u64 {
        self.spans.values().sum()
    }

    /// How many calls and blocks left before they had waited long enough, since there were too many: what they are a part of may be a trace by itself.
    pub fn hurried(&self) -> u64 {
        self.hurried
    }

    /// Those that waited long enough, and all that belongs to the same traces: each as it was taken, but for its trace and its root's parent.
    /// What is told later of the same time is a trace by itself.
    pub fn due(&mut self, now: Duration) -> Vec<(Vec<Span>, T)> {
        let mut all = self.release(|root, _| root + PATIENCE <= now);
        if self.count > MOST {
            let held = self.owners.values().flatten();
            let mut since: Vec<Duration> = held.map(|held| held.since).collect();
            // No more than are too many, each with what belongs to it: it may be within what was told after it.
            let (_, last, _) = since.select_nth_unstable(self.count - MOST - 1);
            let last = *last;
            let hurried = self.release(|_, oldest| oldest <= last);
            self.hurried += hurried.len() as u64;
            all.extend(hurried);
        }
        all
    }

    /// All of them.
    pub fn all(&mut self) -> Vec<(Vec<Span>, T)> {
        self.release(|_, _| true)
    }

    /// Lets those go of which it is so: since when the root of all that belongs together waits, and since when the oldest of it does.
    fn release(&mut self, is_due: impl Fn(Duration, Duration) -> bool) -> Vec<(Vec<Span>, T)> {
        let mut released = Vec::new();
        for (owner, all) in &mut self.owners {
            if !all.iter().any(|one| is_due(one.since, one.since)) {
                continue;
            }
            parents::outermost_first(all);
            let parents = parents::of(all);
            let roots: Vec<usize> = (0..all.len())
                .map(|index| parents::above(&parents, index).last().unwrap_or(index))
                .collect();
            let mut oldest: Vec<Duration> = all.iter().map(|one| one.since).collect();
            for (one, root) in all.iter().zip(&roots) {
                oldest[*root] = oldest[*root].min(one.since);
            }
            let place = |(index, root): (usize, &usize)| {
                let trace = all[*root].spans[0].trace;
                let parent = parents[index].map(|parent| all[parent].spans[0].id);
                is_due(all[*root].since, oldest[*root]).then_some((trace, parent))
            };
            let places: Vec<Option<(TraceId, Option<SpanId>)>> =
                roots.iter().enumerate().map(place).collect();
            let mut stays = Vec::new();
            for (mut one, place) in std::mem::take(all).into_iter().zip(places) {
                let Some((trace, parent)) = place else {
                    stays.push(one);
                    continue;
                };
                let waiting = self.spans.entry(*owner).or_default();
                *waiting = waiting.saturating_sub(one.spans.len() as u64);
                self.count -= 1;
                // The root of all that belongs together is what it was told to be a part of, if it was.
                one.spans[0].parent = parent.or(one.spans[0].parent);
                for span in &mut one.spans {
                    span.trace = trace;
                }
                released.push((one.spans, one.carried));
            }
            *all = stays;
        }
        self.owners.retain(|_, held| !held.is_empty());
        self.spans.retain(|_, spans| *spans > 0);
        released
    }
}

#[cfg(test)]
mod tests;
