//! Where spans wait until a receiver took them, and the books of what became of each.
//!
//! **started = exported + dropped + queued, always.** What is under way counts as queued. A group is taken whole or dropped whole, before it is
//! queued: what waits is never given up for what comes. One request is under way at a time, and what a receiver may have taken is never
//! sent again: a request that was sent, and of which no answer came, is dropped as [`Cause::Unanswered`].

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use prost::Message;

use super::{
    answer::Outcome,
    backoff,
    group::{Group, Scope, request},
};

/// How much may wait, and how much goes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// About what all that waits may take, what is under way included, in bytes.
    pub queue_bytes: usize,
    /// A request that has so many spans takes no more.
    pub batch_spans: usize,
    /// Or so many bytes.
    pub batch_bytes: usize,
    /// A request that is smaller waits so long for more.
    pub linger: Duration,
}

impl Limits {
    /// For an agent that stays small, and is asked for spans four times a second.
    pub const DEFAULT: Self = Self {
        queue_bytes: 4 << 20,
        batch_spans: 2048,
        // Receivers take 4 MiB over gRPC unless they are told otherwise.
        batch_bytes: 1 << 20,
        linger: Duration::from_secs(1),
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Why spans were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The queue had no room.
    Full,
    /// The receiver will not have them.
    Refused,
    /// They were sent, and no answer came: they may have arrived.
    Unanswered,
    /// They still waited when whoever exports ended.
    Ended,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Full, Self::Refused, Self::Unanswered, Self::Ended];

    /// As metrics and messages name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
            Self::Ended => "ended",
        }
    }
}

/// What became of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All that there were.
    pub started: u64,
    /// Those that the receiver took.
    pub exported: u64,
    /// Those that were given up, by [`Cause`].
    pub dropped: [u64; Cause::ALL.len()],
    /// Those that wait, or are under way.
    pub queued: u64,
    /// Attempts that failed and were, or will be, made again.
    pub failures: u64,
    /// Calls and blocks that were not held back for what they are a part of, since too many waited: [`super::Nest::hurried`].
    pub hurried: u64,
}

impl Counts {
    /// Those that were given up for this.
    pub fn dropped_for(&self, cause: Cause) -> u64 {
        self.dropped[cause as usize]
    }

    /// All that were given up.
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// What holds always.
    pub fn add_up(&self) -> bool {
        self.started == self.exported + self.dropped_in_all() + self.queued
    }
}

/// What becomes of a group at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// There was no room for it.
    Dropped,
    /// It waits.
    Waits,
    /// It waits, and whoever sends should look now, and not when it meant to.
    Wakes,
}

/// What is sent at once.
#[derive(Debug)]
pub struct Batch {
    groups: Vec<Group>,
    spans: u64,
    bytes: usize,
}

impl Batch {
    /// How many spans it has.
    pub fn spans(&self) -> u64 {
        self.spans
    }

    /// As a request, written.
    pub fn request(&self, scope: &Scope) -> Vec<u8> {
        request(&self.groups, scope).encode_to_vec()
    }
}

/// What there is to do.
#[derive(Debug)]
pub enum Next {
    /// Send this, and say what came of it: [`Outbox::answered`].
    Send(Arc<Batch>),
    /// Nothing before this time, unless something comes.
    Wait(Duration),
    /// Nothing until something comes.
    Nothing,
}

/// What is taken out of the queue.
#[derive(Debug)]
enum Taken {
    /// It was sent, and no answer is known.
    UnderWay(Arc<Batch>),
    /// It was not taken, and is sent again at this time.
    Waits(Arc<Batch>, Duration),
}

/// Spans that wait to be exported. Times are since any one moment.
#[derive(Debug)]
pub struct Outbox {
    limits: Limits,
    waiting: VecDeque<(Group, Duration)>,
    waiting_spans: usize,
    bytes: usize,
    taken: Option<Taken>,
    failures_in_a_row: u32,
    counts: Counts,
    /// The same of each owner.
    owners: BTreeMap<u64, Counts>,
}

impl Outbox {
    /// An empty one.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            waiting_spans: 0,
            bytes: 0,
            taken: None,
            failures_in_a_row: 0,
            counts: Counts::default(),
            owners: BTreeMap::new(),
        }
    }

    /// What became of all that was ever offered.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What became of what was offered for this owner, since it was first.
    pub fn counts_of(&self, owner: u64) -> Counts {
        self.owners.get(&owner).copied().unwrap_or_default()
    }

    /// Forgets what it counted for an owner, who offers nothing any more.
    pub fn forget(&mut self, owner: u64) {
        self.owners.remove(&owner);
    }

    /// Enters a change for all, and for this owner where it is still known.
    fn enter(&mut self, owner: u64, change: impl Fn(&mut Counts)) {
        change(&mut self.counts);
        if let Some(counts) = self.owners.get_mut(&owner) {
            change(counts);
        }
    }

    /// About what it holds, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a group, or drops it where there is no room.
    pub fn offer(&mut self, group: Group, now: Duration) -> Offered {
        let (owner, spans) = (group.owner(), group.len());
        if spans == 0 {
            return Offered::Waits;
        }
        self.owners.entry(owner).or_default();
        let is_full = self.bytes + group.bytes() > self.limits.queue_bytes;
        self.enter(owner, |counts| {
            counts.started += spans as u64;
            match is_full {
                true => counts.dropped[Cause::Full as usize] += spans as u64,
                false => counts.queued += spans as u64,
            }
        });
        if is_full {
            return Offered::Dropped;
        }
        let (was_empty, was_due) = (self.waiting.is_empty(), self.is_full());
        self.bytes += group.bytes();
        self.waiting_spans += spans;
        self.waiting.push_back((group, now));
        match self.taken.is_none() && (was_empty || !was_due && self.is_full()) {
            true => Offered::Wakes,
            false => Offered::Waits,
        }
    }

    /// What there is to do now.
    pub fn next(&mut self, now: Duration) -> Next {
        match self.taken.take() {
            Some(Taken::UnderWay(batch)) => {
                self.taken = Some(Taken::UnderWay(batch));
                return Next::Nothing;
            }
            Some(Taken::Waits(batch, until)) if until > now => {
                self.taken = Some(Taken::Waits(batch, until));
                return Next::Wait(until);
            }
            Some(Taken::Waits(batch, _)) => return self.send(batch),
            None => {}
        }
        let Some((_, since)) = self.waiting.front() else {
            return Next::Nothing;
        };
        let due = *since + self.limits.linger;
        if due > now && !self.is_full() {
            return Next::Wait(due);
        }
        let batch = self.batch();
        self.send(Arc::new(batch))
    }

    fn send(&mut self, batch: Arc<Batch>) -> Next {
        self.taken = Some(Taken::UnderWay(Arc::clone(&batch)));
        Next::Send(batch)
    }

    /// Whether there is enough for a request.
    fn is_full(&self) -> bool {
        let under_way = match &self.taken {
            Some(Taken::UnderWay(batch) | Taken::Waits(batch, _)) => batch.bytes,
            None => 0,
        };
        self.waiting_spans >= self.limits.batch_spans
            || self.bytes - under_way >= self.limits.batch_bytes
    }

    /// Takes a request out of the queue: at least one group.
    fn batch(&mut self) -> Batch {
        let mut batch = Batch {
            groups: Vec::new(),
            spans: 0,
            bytes: 0,
        };
        while let Some((group, since)) = self.waiting.pop_front() {
            let spans = batch.spans + group.len() as u64;
            let bytes = batch.bytes + group.bytes();
            let fits = spans <= self.limits.batch_spans as u64 && bytes <= self.limits.batch_bytes;
            if !fits && !batch.groups.is_empty() {
                self.waiting.push_front((group, since));
                break;
            }
            self.waiting_spans -= group.len();
            batch.spans = spans;
            batch.bytes = bytes;
            batch.groups.push(group);
        }
        batch
    }

    /// What came of the request that is under way. `chance`, from 0 to 1, is what the time until the next attempt is drawn by.
    pub fn answered(&mut self, outcome: &Outcome, now: Duration, chance: f64) {
        let batch = match self.taken.take() {
            Some(Taken::UnderWay(batch)) => batch,
            // Nobody was asked.
            other => {
                self.taken = other;
                return;
            }
        };
        if let Outcome::Unsent | Outcome::TryAgain(_) = outcome {
            self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
            self.counts.failures += 1;
            let asked = match outcome {
                Outcome::TryAgain(asked) => *asked,
                _ => None,
            };
            let wait = backoff::wait(self.failures_in_a_row, asked, chance);
            self.taken = Some(Taken::Waits(batch, now + wait));
            return;
        }
        self.bytes -= batch.bytes;
        let (mut exported, cause) = match outcome {
            Outcome::Taken { rejected } => (batch.spans.saturating_sub(*rejected), Cause::Refused),
            Outcome::Refused => (0, Cause::Refused),
            Outcome::Unanswered | Outcome::Unsent | Outcome::TryAgain(_) => (0, Cause::Unanswered),
        };
        if cause == Cause::Refused {
            self.failures_in_a_row = 0;
        }
        // A receiver says how many it rejected, and not which: they are counted as the last ones.
        for group in &batch.groups {
            let taken = exported.min(group.len() as u64);
            exported -= taken;
            self.settle(group, taken, cause);
        }
    }

    /// A group waits no more: so many of it were taken, and the others dropped.
    fn settle(&mut self, group: &Group, taken: u64, cause: Cause) {
        let spans = group.len() as u64;
        self.enter(group.owner(), |counts| {
            counts.queued = counts.queued.saturating_sub(spans);
            counts.exported += taken;
            counts.dropped[cause as usize] += spans - taken;
        });
    }

    /// Nothing is to wait any more: what is there is sent as soon as it may be.
    pub fn hurry(&mut self) {
        self.limits.linger = Duration::ZERO;
    }

    /// Nobody sends any more: what waits is dropped, and of what is under way nobody will know.
    pub fn end(&mut self) {
        let taken = self.taken.take();
        let (cause, batch) = match &taken {
            Some(Taken::UnderWay(batch)) => (Cause::Unanswered, Some(batch)),
            Some(Taken::Waits(batch, _)) => (Cause::Ended, Some(batch)),
            None => (Cause::Ended, None),
        };
        for group in batch.iter().flat_map(|batch| &batch.groups) {
            self.settle(group, 0, cause);
        }
        for (group, _) in std::mem::take(&mut self.waiting) {
            self.settle(&group, 0, Cause::Ended);
        }
        (self.waiting_spans, self.bytes) = (0, 0);
        // What comes from now on finds no room.
        self.limits.queue_bytes = 0;
    }
}

#[cfg(test)]
mod tests;
