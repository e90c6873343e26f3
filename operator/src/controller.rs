//! The loop: news in, work out. It decides nothing itself; it asks the pure functions and runs their answers.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{FutureExt, Stream, StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use k8s_openapi::jiff::Timestamp;
use tokio::{
    sync::watch,
    time::{Duration, Instant, sleep_until},
};

use crate::{
    aggregate::{aggregate, next_change, same},
    desired::{desired, next_expiry},
    election::Leadership,
    execute::{ExecuteError, Executor, Report},
    metrics::Metrics,
    notes::{notes, preflight},
    plan::{Action, plan},
    queue::{Key, Queue},
    watch::WatchError,
    world::{Change, ObjectKey, ProbeRow, Touched, World},
};

/// Objects that are worked on at the same time.
const CONCURRENCY: usize = 16;
/// News that are taken in before work is looked for.
const BATCH: usize = 256;
/// Never sleep longer: the wall clock, by which probes expire, may be set.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Keeps nodes and statuses in order, as long as this replica leads.
pub struct Controller {
    world: World,
    queue: Queue,
    plan: BTreeMap<String, Vec<Action>>,
    /// What was last done on nodes for which there was something to do. It is not done again at once only because
    /// the watches have yet to tell of it.
    attempted: BTreeMap<String, Vec<Action>>,
    replan: bool,
    expiry: Option<Timestamp>,
    running: FuturesUnordered<LocalBoxFuture<'static, Done>>,
    leading: bool,
    /// When the election last found the API server away.
    unanswered: Option<Instant>,
    /// Whether a watch is broken, as far as is known.
    broken: bool,
    executor: Executor,
    leadership: watch::Receiver<Leadership>,
    metrics: Metrics,
    ready: Arc<AtomicBool>,
}

/// Work that ended.
struct Done {
    key: Key,
    started: Instant,
    /// The CkbProbe whose status was written, if one was.
    result: Result<Option<ProbeRow>, ExecuteError>,
    /// It must not be done often.
    hold: bool,
}

impl Controller {
    /// One that works through this executor while `leadership` lets it. `ready` is set once the caches are complete.
    pub fn new(
        executor: Executor,
        leadership: watch::Receiver<Leadership>,
        metrics: Metrics,
        ready: Arc<AtomicBool>,
    ) -> Self {
        Self {
            world: World::default(),
            queue: Queue::default(),
            plan: BTreeMap::new(),
            attempted: BTreeMap::new(),
            replan: true,
            expiry: None,
            running: FuturesUnordered::new(),
            leading: false,
            unanswered: None,
            broken: false,
            executor,
            leadership,
            metrics,
            ready,
        }
    }

    /// Runs until the watches or the election end, which they do not.
    pub async fn run(mut self, changes: impl Stream<Item = Result<Change, WatchError>>) {
        let mut changes = std::pin::pin!(changes);
        loop {
            self.follow_leadership();
            if self.leading && self.world.synced() {
                self.dispatch();
            }
            let wake = self.wake();
            tokio::select! {
                change = changes.next() => match change {
                    Some(change) => self.take_in(change, changes.as_mut()),
                    None => return,
                },
                Some(done) = self.running.next(), if !self.running.is_empty() => self.finish(done),
                changed = self.leadership.changed() => if changed.is_err() { return },
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Stops everything at once when the lease is lost, and looks at everything anew when it is gained.
    fn follow_leadership(&mut self) {
        let leadership = *self.leadership.borrow_and_update();
        if leadership.unanswered > self.unanswered {
            self.unanswered = leadership.unanswered;
            self.apply(Change::Deaf);
        }
        let leading = leadership.leads(Instant::now());
        if leading == self.leading {
            return;
        }
        self.leading = leading;
        self.metrics.set_leader(leading);
        self.running.clear();
        self.queue.clear();
        self.attempted.clear();
        self.replan = true;
        let touched = self.world.everything();
        self.touch(touched);
    }

    /// Takes in one piece of news, and all that have come meanwhile.
    fn take_in(
        &mut self,
        first: Result<Change, WatchError>,
        mut more: Pin<&mut impl Stream<Item = Result<Change, WatchError>>>,
    ) {
        let mut next = Some(first);
        for _ in 0..BATCH {
            match next {
                Some(Ok(change)) => {
                    self.broken = false;
                    self.apply(change);
                }
                Some(Err(error)) => self.watch_failed(&error),
                None => break,
            }
            next = more.next().now_or_never().flatten();
        }
        if self.world.synced() && !self.ready.swap(true, Ordering::Relaxed) {
            tracing::info!("the caches are complete");
        }
    }

    fn watch_failed(&mut self, error: &WatchError) {
        if !std::mem::replace(&mut self.broken, true) {
            tracing::warn!(%error, "waiting for the API server");
        }
        self.metrics.failed("Watch");
        self.apply(Change::Deaf);
    }

    fn apply(&mut self, change: Change) {
        let touched = self.world.apply(change, Timestamp::now());
        self.touch(touched);
    }

    fn touch(&mut self, touched: Touched) {
        let Touched {
            probes,
            agents,
            fleet,
        } = touched;
        self.replan |= fleet;
        let now = Instant::now();
        let probes = probes.into_iter().map(Key::Probe);
        for key in probes.chain(agents.into_iter().map(Key::Agent)) {
            self.queue.add(key, now);
        }
    }

    /// Starts the work that is due.
    fn dispatch(&mut self) {
        let now = Timestamp::now();
        if self.replan || self.expiry.is_some_and(|expiry| expiry <= now) {
            self.plan(now);
        }
        let room = CONCURRENCY.saturating_sub(self.running.len());
        for key in self.queue.take(Instant::now(), room) {
            match &key {
                Key::Node(node) => match self.plan.get(node) {
                    Some(actions) => self.start_node(node.clone(), actions.clone()),
                    None => {
                        self.attempted.remove(node);
                        self.queue.done(&key, false, Instant::now());
                    }
                },
                Key::Probe(probe) => self.start_probe(&key, probe, now),
                Key::Agent(node) => self.start_agent(&key, node),
            }
        }
    }

    /// Asks anew what is to be done on which node.
    fn plan(&mut self, now: Timestamp) {
        let desired = desired(&self.world, now);
        self.plan = plan(&desired, &self.world, self.executor.template_hash());
        self.replan = false;
        self.expiry = next_expiry(&self.world, now);
        let targets = desired.values().map(|order| order.assignments.len()).sum();
        self.metrics
            .set_extent(self.world.probes().count(), targets, desired.len());
        let now = Instant::now();
        for (node, actions) in &self.plan {
            if self.attempted.get(node) != Some(actions) {
                self.queue.add(Key::Node(node.clone()), now);
            }
        }
    }

    /// Carries a node's actions out, one after the other.
    fn start_node(&mut self, node: String, actions: Vec<Action>) {
        let hold = actions.iter().any(Action::is_respawn);
        self.attempted.insert(node.clone(), actions.clone());
        let key = Key::Node(node);
        let executor = self.executor.clone();
        let started = Instant::now();
        self.running.push(Box::pin(async move {
            let mut result = Ok(None);
            for action in actions {
                tracing::info!(%key, action = action.name(), "acting");
                if let Err(error) = executor.execute(action).await {
                    result = Err(error);
                    break;
                }
            }
            Done {
                key,
                started,
                result,
                hold,
            }
        }));
    }

    /// Writes a CkbProbe's status, if it is another than what the API has.
    fn start_probe(&mut self, key: &Key, probe: &ObjectKey, now: Timestamp) {
        let Some(row) = self.world.probe(probe).filter(|row| !row.deleting) else {
            self.queue.done(key, false, Instant::now());
            return;
        };
        let status = aggregate(row, &self.world, now);
        let change = next_change(row, &self.world, now);
        let unchanged = row.status.as_ref().is_some_and(|old| same(old, &status));
        let report = Report {
            probe: row.reference.clone(),
            notes: notes(row.status.as_ref(), &status),
            status,
        };
        if let Some(change) = change {
            self.queue.add(key.clone(), instant(change, now));
        }
        if unchanged {
            self.queue.done(key, false, Instant::now());
            return;
        }
        let executor = self.executor.clone();
        let started = Instant::now();
        let key = key.clone();
        self.running.push(Box::pin(async move {
            let result = executor.report(report).await;
            Done {
                key,
                started,
                result,
                hold: false,
            }
        }));
    }

    /// Tells what an agent found to stand in the way of measuring. What was told already is not told again: the API
    /// server knows.
    fn start_agent(&mut self, key: &Key, node: &str) {
        let row = self.world.node_probe(node).filter(|row| !row.deleting);
        let told = row.and_then(|row| Some((row, preflight(&row.status.as_ref()?.agent))));
        let Some((row, notes)) = told.filter(|(_, notes)| !notes.is_empty()) else {
            self.queue.done(key, false, Instant::now());
            return;
        };
        let executor = self.executor.clone();
        let started = Instant::now();
        let (key, node, uid) = (key.clone(), row.node.clone(), row.uid.clone());
        self.running.push(Box::pin(async move {
            let result = executor.tell(&node, &uid, notes).await;
            Done {
                key,
                started,
                result: result.map(|()| None),
                hold: false,
            }
        }));
    }

    /// Decides when the object is looked at again.
    fn finish(&mut self, done: Done) {
        let Done {
            key,
            started,
            result,
            hold,
        } = done;
        let now = Instant::now();
        self.metrics.reconciled(key.kind(), now - started);
        let written = match result {
            Ok(written) => written,
            Err(error) => {
                self.metrics.failed(error.reason());
                let delay = self.queue.again(&key, now);
                tracing::warn!(%key, %error, retry_in = ?delay, "failed");
                return;
            }
        };
        match &key {
            Key::Node(_) if hold => self.queue.hold(&key, now),
            Key::Node(_) => self.queue.settle(&key, now),
            Key::Probe(_) | Key::Agent(_) => self.queue.done(&key, true, now),
        }
        if let Some(written) = written {
            let touched = self.world.confirm(written);
            self.touch(touched);
        }
    }

    /// When there will be something to do without any news.
    fn wake(&self) -> Instant {
        let now = Instant::now();
        let longest = now + LONGEST_SLEEP;
        if !self.leading || !self.world.synced() {
            return longest;
        }
        let due = self
            .queue
            .next_due()
            .filter(|_| self.running.len() < CONCURRENCY);
        let wall = Timestamp::now();
        let expiry = self.expiry.map(|expiry| instant(expiry, wall));
        let lease = self.leadership.borrow().until;
        [due, expiry, lease]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(longest)
            .min(longest)
    }
}

/// The instant of a time of day, and a little more so that it has passed.
fn instant(at: Timestamp, now: Timestamp) -> Instant {
    let ahead = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    Instant::now() + ahead.min(LONGEST_SLEEP * 1440) + Duration::from_millis(5)
}

#[cfg(test)]
mod tests;
