//! What to look at next: keys with the time at which they are due.
//!
//! A key is worked on by one at a time. One that failed waits, longer each time and never the same; the others do
//! not wait for it. One that was done may be paced, so that a burst of news becomes one piece of work.

use std::collections::BTreeMap;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::{Duration, Instant};

use crate::world::ObjectKey;

/// The first wait after a failure, before jitter.
const MIN_DELAY: Duration = Duration::from_millis(250);
/// The longest wait, before jitter.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// A thing that was last done over this long ago is done as if for the first time.
const CALM: Duration = Duration::from_secs(600);
/// At most one write of a status in this time.
const STATUS_PACE: Duration = Duration::from_secs(1);

/// An object to bring in order.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Key {
    /// The NodeProbe and the agent pod of a node.
    Node(String),
    /// The status of a CkbProbe.
    Probe(ObjectKey),
    /// What the agent of a node found out about it.
    Agent(String),
}

impl Key {
    /// The word for logs and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Node(_) => "node",
            Self::Probe(_) => "probe",
            Self::Agent(_) => "agent",
        }
    }

    fn pace(&self) -> Duration {
        match self {
            Self::Node(_) | Self::Agent(_) => Duration::ZERO,
            Self::Probe(_) => STATUS_PACE,
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Probe(key) => write!(f, "CkbProbe {key}"),
            Self::Agent(node) => write!(f, "agent of node {node}"),
        }
    }
}

#[derive(Debug)]
struct Item {
    due: Option<Instant>,
    not_before: Option<Instant>,
    running: bool,
    /// Since the last success.
    backoff: Option<ExponentialBackoff>,
    /// Outlasts successes, for work that succeeds but does not last.
    churn: Option<(Instant, ExponentialBackoff)>,
}

impl Item {
    /// When it may be taken.
    fn ready(&self) -> Option<Instant> {
        let due = self.due.filter(|_| !self.running)?;
        Some(due.max(self.not_before.unwrap_or(due)))
    }
}

/// Keys to work on.
#[derive(Debug, Default)]
pub struct Queue {
    items: BTreeMap<Key, Item>,
}

impl Queue {
    /// Work is due on this key at `at`, or earlier if that was known.
    pub fn add(&mut self, key: Key, at: Instant) {
        let item = self.items.entry(key).or_insert(Item {
            due: None,
            not_before: None,
            running: false,
            backoff: None,
            churn: None,
        });
        item.due = Some(item.due.map_or(at, |due| due.min(at)));
    }

    /// The keys that may be worked on now, those that wait longest first, at most `limit`. Each must be handed back
    /// with [`Self::done`], [`Self::complete`], [`Self::again`] or [`Self::hold`].
    pub fn take(&mut self, now: Instant, limit: usize) -> Vec<Key> {
        self.items.retain(|_, item| {
            let resting = item.not_before.is_some_and(|at| at > now);
            let churns = item.churn.as_ref().is_some_and(|(at, _)| now - *at < CALM);
            item.due.is_some() || item.running || item.backoff.is_some() || resting || churns
        });
        let mut ready: Vec<(Instant, &Key)> = self
            .items
            .iter()
            .filter_map(|(key, item)| Some((item.ready()?, key)))
            .filter(|(at, _)| *at <= now)
            .collect();
        // In a burst a thousand may be ready, of which a few are taken.
        if ready.len() > limit && limit > 0 {
            ready.select_nth_unstable(limit - 1);
        }
        ready.truncate(limit);
        ready.sort_unstable();
        let keys: Vec<Key> = ready.into_iter().map(|(_, key)| key.clone()).collect();
        for key in &keys {
            if let Some(item) = self.items.get_mut(key) {
                item.running = true;
                item.due = None;
            }
        }
        keys
    }

    /// There is nothing left to do. `wrote` says whether the API was written to: only that is paced.
    pub fn done(&mut self, key: &Key, wrote: bool, now: Instant) {
        if let Some(item) = self.items.get_mut(key) {
            item.running = false;
            item.backoff = None;
            item.not_before = wrote.then(|| now + key.pace());
        }
    }

    /// What comes next on this key waits until then at the least.
    pub fn rest(&mut self, key: &Key, until: Instant) {
        if let Some(item) = self.items.get_mut(key) {
            let not_before = item.not_before.map_or(until, |other| other.max(until));
            item.not_before = Some(not_before);
        }
    }

    /// The work failed, or must be done again: it is due after a wait, which is returned.
    pub fn again(&mut self, key: &Key, now: Instant) -> Duration {
        let Some(item) = self.items.get_mut(key) else {
            return Duration::ZERO;
        };
        let delay = item
            .backoff
            .get_or_insert_with(backoff)
            .next()
            .unwrap_or(MAX_DELAY);
        item.running = false;
        item.not_before = Some(now + delay);
        item.due = Some(now + delay);
        delay
    }

    /// The work is done, and the watches will tell what came of it. Should they not, it is due again after a wait,
    /// longer each time until [`Self::done`]; news make it due at once.
    pub fn complete(&mut self, key: &Key, now: Instant) {
        if let Some(item) = self.items.get_mut(key) {
            let delay = item.backoff.get_or_insert_with(backoff).next();
            let again = now + delay.unwrap_or(MAX_DELAY);
            item.running = false;
            item.not_before = None;
            item.due = Some(item.due.map_or(again, |due| due.min(again)));
        }
    }

    /// The work is done, but is of a sort that should not be done often: what comes next on this key waits,
    /// longer each time until it has been calm for a while.
    pub fn hold(&mut self, key: &Key, now: Instant) {
        if let Some(item) = self.items.get_mut(key) {
            let lately = item.churn.take().filter(|(at, _)| now - *at < CALM);
            let mut waits = lately.map_or_else(backoff, |(_, waits)| waits);
            let again = now + waits.next().unwrap_or(MAX_DELAY);
            item.churn = Some((now, waits));
            item.running = false;
            item.backoff = None;
            item.not_before = Some(again);
            item.due = Some(again);
        }
    }

    /// Forgets everything: waits, failures, and what is being worked on.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// When the next key may be taken.
    pub fn next_due(&self) -> Option<Instant> {
        self.items.values().filter_map(Item::ready).min()
    }
}

fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(MIN_DELAY)
        .with_max_delay(MAX_DELAY)
        .without_max_times()
        .with_jitter()
        .build()
}

#[cfg(test)]
mod tests;
