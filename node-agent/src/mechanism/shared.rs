//! A program that runs once for the node, and all that subscribed to it: attached with the first handle that opens, detached
//! with the last that closes.
//!
//! Such a program costs every process something, also those that nobody measures: that is its **bystander cost**, which the open
//! subscriptions pay in equal shares. What it tells of one by one waits for each handle in a queue of its own.

mod gate;
mod split;

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ckb_probe_crds::Name;
pub use gate::{Gate, Gated, OneGroup, Switch};
use split::CostSplit;
use tracing::warn;

use crate::{
    kernel::{AttachError, Links, ReadError},
    observe,
};

/// What could not be recorded, by what.
pub type Losses = BTreeMap<Name, u64>;

/// What was spent by now on behalf of each key; under None: on bystanders.
pub type Spent<K> = Vec<(Option<K>, u64)>;

/// A program that is loaded once for the node, however many subscribe to it.
pub trait NodeProgram {
    /// What the program knows a subscriber by.
    type Subscriber;
    /// Tells apart whom costs and events are for. Several subscribers may have the same.
    type Key: Copy + Ord;
    /// What is told one by one.
    type Event: Clone;

    /// Events that wait for one subscriber, at most. Where the queue is full the newest is dropped, and counts as lost.
    const MAX_WAITING: usize;
    /// As what events count that were dropped.
    const EVENTS_LOST: &'static str;
    /// Between two looks at what it costs, where looking costs: whoever asks sooner is told what is known.
    const SETTLE_NS: u64 = 0;

    /// Whom the subscriber's costs and events are for.
    fn key(subscriber: &Self::Subscriber) -> Self::Key;

    /// Attaches: the first handle is about to open.
    fn attach(&mut self) -> Result<(), AttachError>;

    /// Hands back the links, if there are any: dropping them detaches.
    fn detach(&mut self) -> Option<Links>;

    /// Counts for this one from now on, beside the others that are open.
    fn open(
        &mut self,
        subscriber: &mut Self::Subscriber,
        others: &[&Self::Subscriber],
    ) -> Result<(), AttachError>;

    /// Counts for this one no more, but for the others that are open. Also called where opening failed half-way.
    fn close(
        &mut self,
        subscriber: &mut Self::Subscriber,
        others: &[&Self::Subscriber],
    ) -> Result<(), ReadError>;

    /// Frees what this one had; the others still subscribe.
    fn forget(
        &mut self,
        subscriber: Self::Subscriber,
        others: &[&Self::Subscriber],
    ) -> Result<(), ReadError>;

    /// What it has cost since it was loaded, in a unit of its own.
    fn costs(&self) -> Result<Spent<Self::Key>, ReadError>;

    /// What of this subscriber's could not be recorded since the program was loaded, as far as it is known whose it was.
    fn lost(&mut self, subscriber: &Self::Subscriber) -> Result<Losses, ReadError>;

    /// Takes what it told since the last time.
    fn drain(&mut self) -> Vec<NodeEvent<Self::Key, Self::Event>>;

    /// The time of the clock that events are stamped by.
    fn now_ns(&self) -> u64 {
        observe::monotonic().as_nanos() as u64
    }
}

/// An event, and whom it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent<K, E> {
    /// None: everybody whose handle was open.
    pub key: Option<K>,
    /// When it happened.
    pub time_ns: u64,
    /// The event, as the program has it.
    pub event: E,
}

/// A program, and its subscribers.
pub struct Shared<P: NodeProgram> {
    /// The program.
    pub program: P,
    subscribers: BTreeMap<SubscriberId, Subscriber<P>>,
    /// The number of the newest subscriber.
    newest: u64,
    splits: BTreeMap<Option<P::Key>, CostSplit>,
    settled_ns: u64,
}

/// The number of a subscriber: no later one has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SubscriberId(u64);

/// What is kept for a subscriber.
struct Subscriber<P: NodeProgram> {
    known: P::Subscriber,
    state: State,
    /// Its share of the costs while it was open.
    charged: u64,
    waiting: Vec<P::Event>,
    /// Up to the last time that it was closed, and what was dropped of its queue.
    lost: Losses,
}

/// Whether costs, losses and events are a subscriber's.
enum State {
    /// Not open yet.
    Fresh,
    Open {
        since_ns: u64,
        /// What the program had lost by then.
        lost_before: Losses,
    },
    /// What happened between these times may still be on its way.
    Closed { since_ns: u64, until_ns: u64 },
}

impl<P: NodeProgram> Subscriber<P> {
    fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    fn was_open_at(&self, time_ns: u64) -> bool {
        match self.state {
            State::Fresh => false,
            State::Open { since_ns, .. } => since_ns <= time_ns,
            State::Closed { since_ns, until_ns } => (since_ns..=until_ns).contains(&time_ns),
        }
    }

    /// Closes it. What was lost, as far as that is known now, was lost to it.
    fn close(&mut self, until_ns: u64, lost: &Losses) {
        if let State::Open {
            since_ns,
            lost_before,
        } = mem::replace(&mut self.state, State::Fresh)
        {
            add(&mut self.lost, since(lost, &lost_before));
            self.state = State::Closed { since_ns, until_ns };
        }
    }

    fn tell(&mut self, event: &P::Event) {
        if self.waiting.len() < P::MAX_WAITING {
            self.waiting.push(event.clone());
        } else {
            *self.lost.entry(Name::Borrowed(P::EVENTS_LOST)).or_default() += 1;
        }
    }
}

fn since<'a>(lost: &'a Losses, before: &'a Losses) -> impl Iterator<Item = (Name, u64)> + 'a {
    lost.iter().map(|(what, count)| {
        let before = before.get(what).copied().unwrap_or_default();
        (what.clone(), count.saturating_sub(before))
    })
}

fn add(to: &mut Losses, more: impl Iterator<Item = (Name, u64)>) {
    for (what, count) in more {
        *to.entry(what).or_default() += count;
    }
}

impl<P: NodeProgram> Shared<P> {
    /// A program that nobody has subscribed to yet.
    pub fn of(program: P) -> Self {
        Self {
            program,
            subscribers: BTreeMap::new(),
            newest: 0,
            splits: BTreeMap::new(),
            settled_ns: 0,
        }
    }

    /// What the program knows all subscribers by.
    pub fn subscribers(&mut self) -> impl Iterator<Item = &mut P::Subscriber> {
        self.subscribers.values_mut().map(|one| &mut one.known)
    }

    fn subscribe(&mut self, known: P::Subscriber) -> SubscriberId {
        self.newest += 1;
        let id = SubscriberId(self.newest);
        let subscriber = Subscriber {
            known,
            state: State::Fresh,
            charged: 0,
            waiting: Vec::new(),
            lost: Losses::new(),
        };
        self.subscribers.insert(id, subscriber);
        id
    }

    fn open(&mut self, id: SubscriberId) -> Result<(), AttachError> {
        if self.subscribers.get(&id).is_none_or(Subscriber::is_open) {
            return Ok(());
        }
        // What it cost and told before is the others'.
        self.settle()?;
        self.deliver();
        let is_first = !self.is_attached();
        let opened = self.admit(id, is_first);
        if opened.is_err() && is_first {
            drop(self.program.detach());
        }
        opened
    }

    fn admit(&mut self, id: SubscriberId, is_first: bool) -> Result<(), AttachError> {
        let since_ns = self.program.now_ns();
        if is_first {
            self.program.attach()?;
        }
        let Some((program, own, others)) = self.parts(id) else {
            return Ok(());
        };
        let lost_before = program.lost(&own.known)?;
        if let Err(error) = program.open(&mut own.known, &others) {
            // It may have begun to.
            if let Err(error) = program.close(&mut own.known, &others) {
                warn!(%error, "a program of the node may count for somebody who did not subscribe");
            }
            return Err(error);
        }
        own.state = State::Open {
            since_ns,
            lost_before,
        };
        Ok(())
    }

    /// Closes and, where that was the last one, detaches, also where something cannot be read any more.
    fn close(&mut self, id: SubscriberId) -> Result<Option<Links>, ReadError> {
        if !self.subscribers.get(&id).is_some_and(Subscriber::is_open) {
            return Ok(None);
        }
        let settled = self.settle();
        let Some((program, own, others)) = self.parts(id) else {
            return Ok(None);
        };
        let closed = program.close(&mut own.known, &others);
        let lost = program.lost(&own.known);
        own.close(program.now_ns(), lost.as_ref().unwrap_or(&Losses::new()));
        let links = match self.is_attached() {
            true => None,
            false => self.program.detach(),
        };
        settled.and(closed).and(lost.map(|_| links))
    }

    /// Closes it for good: the links, if it was the last one, and whether all that it had is free again.
    fn unsubscribe(&mut self, id: SubscriberId) -> (Option<Links>, Result<(), ReadError>) {
        let closed = self.close(id);
        let Some(own) = self.subscribers.remove(&id) else {
            return (None, Ok(()));
        };
        let others: Vec<&P::Subscriber> = self.subscribers.values().map(|one| &one.known).collect();
        let key = P::key(&own.known);
        if !others.iter().any(|other| P::key(other) == key) {
            self.splits.remove(&Some(key));
        }
        let forgotten = self.program.forget(own.known, &others);
        match closed {
            Ok(links) => (links, forgotten),
            Err(error) => (None, Err(error)),
        }
    }

    /// Whether any handle is open, and so the program attached.
    fn is_attached(&self) -> bool {
        self.subscribers.values().any(Subscriber::is_open)
    }

    /// The program, one subscriber, and what is known of the others that are open.
    #[expect(clippy::type_complexity, reason = "three borrows of one struct")]
    fn parts(
        &mut self,
        id: SubscriberId,
    ) -> Option<(&mut P, &mut Subscriber<P>, Vec<&P::Subscriber>)> {
        let (mut own, mut others) = (None, Vec::new());
        for (other, subscriber) in &mut self.subscribers {
            if *other == id {
                own = Some(subscriber);
            } else if subscriber.is_open() {
                others.push(&subscriber.known);
            }
        }
        own.map(|own| (&mut self.program, own, others))
    }

    /// Charges those that are open with what the program has cost since the last time: of a key among those that have it, of
    /// bystanders among all.
    fn settle(&mut self) -> Result<(), ReadError> {
        self.settled_ns = self.program.now_ns();
        for (key, total) in self.program.costs()? {
            let payers = self.subscribers.values_mut().filter(|one| one.is_open());
            let payers = payers.filter(|one| key.is_none_or(|key| P::key(&one.known) == key));
            let payers = payers.map(|one| &mut one.charged).collect();
            self.splits.entry(key).or_default().settle(total, payers);
        }
        Ok(())
    }

    /// Gives everybody what was told for them.
    fn deliver(&mut self) {
        for told in self.program.drain() {
            let addressees = self.subscribers.values_mut().filter(|one| {
                let is_for = |key| P::key(&one.known) == key;
                told.key.is_none_or(is_for) && one.was_open_at(told.time_ns)
            });
            for one in addressees {
                one.tell(&told.event);
            }
        }
    }

    fn charged(&mut self, id: SubscriberId) -> Result<u64, ReadError> {
        // Asked for often, so that the kernel's room for events lasts.
        self.deliver();
        let since = self.program.now_ns().saturating_sub(self.settled_ns);
        if self.is_attached() && since >= P::SETTLE_NS {
            self.settle()?;
        }
        Ok(self.subscribers.get(&id).map_or(0, |own| own.charged))
    }

    fn events(&mut self, id: SubscriberId) -> Vec<P::Event> {
        self.deliver();
        let own = self.subscribers.get_mut(&id);
        own.map_or_else(Vec::new, |own| mem::take(&mut own.waiting))
    }

    fn lost(&mut self, id: SubscriberId) -> Result<Losses, ReadError> {
        self.deliver();
        let Some((program, own, _)) = self.parts(id) else {
            return Ok(Losses::new());
        };
        let mut lost = own.lost.clone();
        // Also where nothing was lost: that is known, too.
        let now = program.lost(&own.known)?;
        match &own.state {
            State::Open { lost_before, .. } => add(&mut lost, since(&now, lost_before)),
            State::Fresh | State::Closed { .. } => add(&mut lost, since(&now, &now)),
        }
        Ok(lost)
    }
}

/// What one subscriber has of a program. Dropping it ends that.
pub struct Handle<P: NodeProgram> {
    shared: Arc<Mutex<Shared<P>>>,
    id: SubscriberId,
}

impl<P: NodeProgram> Handle<P> {
    /// One more, which is not open yet, of whom `admit` has the program know.
    pub fn to<E>(
        shared: Arc<Mutex<Shared<P>>>,
        admit: impl FnOnce(&mut P) -> Result<P::Subscriber, E>,
    ) -> Result<Self, E> {
        let id = {
            let mut shared = lock(&shared);
            let known = admit(&mut shared.program)?;
            shared.subscribe(known)
        };
        Ok(Self { shared, id })
    }

    /// The program, and all who subscribed to it.
    pub fn lock(&self) -> MutexGuard<'_, Shared<P>> {
        lock(&self.shared)
    }

    /// Looks at the program, and at what it knows this subscriber by; None once that has ended.
    pub fn with<T>(&self, look: impl FnOnce(&mut P, &mut P::Subscriber) -> T) -> Option<T> {
        let mut shared = self.lock();
        let Shared {
            program,
            subscribers,
            ..
        } = &mut *shared;
        let own = subscribers.get_mut(&self.id)?;
        Some(look(program, &mut own.known))
    }

    /// Counts from now on. The first one attaches.
    pub fn open(&self) -> Result<(), AttachError> {
        self.lock().open(self.id)
    }

    /// Counts no more. The last one hands back the links.
    pub fn close(&self) -> Result<Option<Links>, ReadError> {
        self.lock().close(self.id)
    }

    /// Its share of what the program has cost while it was open.
    pub fn charged(&self) -> Result<u64, ReadError> {
        self.lock().charged(self.id)
    }

    /// Takes what was told for it while it was open.
    pub fn events(&self) -> Vec<P::Event> {
        self.lock().events(self.id)
    }

    /// What could not be recorded while it was open.
    pub fn lost(&self) -> Result<Losses, ReadError> {
        self.lock().lost(self.id)
    }

    /// Closes it for good. The last one hands back the links.
    pub fn end(&self) -> Option<Links> {
        let (links, ended) = self.lock().unsubscribe(self.id);
        if let Err(error) = ended {
            warn!(%error, "a handle to a program of the node did not end as it should");
        }
        links
    }
}

impl<P: NodeProgram> Switch for Handle<P> {
    fn open(&mut self) -> Result<(), AttachError> {
        Handle::open(self)
    }

    fn close(&mut self) -> Result<Option<Links>, ReadError> {
        Handle::close(self)
    }
}

impl<P: NodeProgram> Drop for Handle<P> {
    fn drop(&mut self) {
        // The lock is free by then: the kernel takes its time to detach.
        drop(self.end());
    }
}

fn lock<P: NodeProgram>(shared: &Mutex<Shared<P>>) -> MutexGuard<'_, Shared<P>> {
    // What it holds is right at any time.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
