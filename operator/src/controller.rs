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
    aggregate::{Past, aggregate, next_change, same},
    desired::{Stale, View},
    election::Leadership,
    execute::{ExecuteError, Executor, Report},
    limits::Limits,
    metrics::Metrics,
    notes::{notes, preflight},
    plan::Action,
    profiles::publish::Publisher,
    queue::{Key, Queue},
    watch::WatchError,
    world::{Change, CkbProbeEntry, ObjectKey, Touched, World},
};

mod planner;
mod publishing;
mod timing;
mod told;

use planner::Planner;
use publishing::Publishing;
use timing::{LASTING, LONGEST_SLEEP, instant, pace, was_away};
use told::StatusWrites;

/// Objects that are worked on at the same time.
const CONCURRENCY: usize = 16;
/// News that are taken in before work is looked for.
const BATCH: usize = 256;
/// Keeps nodes and statuses in order, as long as this replica leads.
pub struct Controller {
    world: World,
    queue: Queue,
    planner: Planner,
    publishing: Publishing,
    told: StatusWrites,
    /// What the figures of each CkbProbe were.
    pasts: BTreeMap<ObjectKey, Past>,
    /// What making a status took lately.
    effort: Duration,
    running: FuturesUnordered<LocalBoxFuture<'static, Done>>,
    leading: bool,
    /// When the election last found the API server away.
    unanswered: Option<Instant>,
    /// Whether a watch is broken, as far as is known.
    broken: bool,
    executor: Executor,
    limits: Limits,
    leadership: watch::Receiver<Leadership>,
    metrics: Metrics,
    ready: Arc<AtomicBool>,
    /// The wall clock.
    wall: fn() -> Timestamp,
}

/// Work that ended.
struct Done {
    key: Key,
    started: Instant,
    /// The CkbProbe whose status was written, if one was.
    result: Result<Option<CkbProbeEntry>, ExecuteError>,
    /// It must not be done often.
    hold: bool,
}

impl Controller {
    /// One that works through this executor, within the limits, while `leadership` lets it. `ready` is set once the caches
    /// are complete.
    pub fn new(
        executor: Executor,
        publisher: Publisher,
        limits: Limits,
        leadership: watch::Receiver<Leadership>,
        metrics: Metrics,
        ready: Arc<AtomicBool>,
    ) -> Self {
        Self {
            world: World::new(limits.bounds()),
            queue: Queue::default(),
            planner: Planner::default(),
            publishing: Publishing::new(publisher),
            told: StatusWrites::default(),
            pasts: BTreeMap::new(),
            effort: Duration::ZERO,
            running: FuturesUnordered::new(),
            leading: false,
            unanswered: None,
            broken: false,
            executor,
            limits,
            leadership,
            metrics,
            ready,
            wall: Timestamp::now,
        }
    }

    /// Runs until the watches or the election end, which they do not.
    pub async fn run(mut self, changes: impl Stream<Item = Result<Change, WatchError>>) {
        let mut changes = std::pin::pin!(changes);
        loop {
            let begun = (self.wall)();
            self.follow_leadership();
            if self.leading && self.world.synced() {
                self.dispatch();
                let view = View {
                    world: &self.world,
                    limits: &self.limits,
                    now: begun,
                };
                self.publishing.dispatch(view, self.planner.desired());
            }
            let wake = self.wake();
            let meant = wake - Instant::now();
            tokio::select! {
                change = changes.next() => match change {
                    Some(change) => self.take_in(change, changes.as_mut()),
                    None => return,
                },
                Some(done) = self.running.next(), if !self.running.is_empty() => self.finish(done),
                done = self.publishing.done() => self.publishing.finish(done, &self.metrics, (self.wall)()),
                changed = self.leadership.changed() => if changed.is_err() { return },
                () = sleep_until(wake) => {}
            }
            if was_away(begun, meant, (self.wall)()) {
                self.apply(Change::WatchFailed);
            }
        }
    }

    /// Stops everything at once when the lease is lost, and looks at everything anew when it is gained.
    fn follow_leadership(&mut self) {
        let leadership = *self.leadership.borrow_and_update();
        if leadership.unanswered > self.unanswered {
            self.unanswered = leadership.unanswered;
            self.apply(Change::WatchFailed);
        }
        let leading = leadership.leads(Instant::now());
        if leading == self.leading {
            return;
        }
        self.leading = leading;
        self.metrics.set_leader(leading);
        self.running.clear();
        self.queue.clear();
        self.planner.forget();
        self.publishing.forget();
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
        // Where the resources of profiles are not installed, or not ours to read, agents are heard all the same.
        if !error.is_of_profiles() {
            self.apply(Change::WatchFailed);
        }
    }

    fn apply(&mut self, change: Change) {
        if matches!(change, Change::Profiles(_) | Change::Probe(_)) {
            self.publishing.touch();
        }
        let touched = self.world.apply(change, (self.wall)());
        self.touch(touched);
    }

    fn touch(&mut self, touched: Touched) {
        let Touched {
            probes,
            agents,
            nodes,
            namespaces,
            fleet,
        } = touched;
        self.planner.touch(fleet, Stale { nodes, namespaces });
        let now = Instant::now();
        let probes = probes.into_iter().map(Key::Probe);
        for key in probes.chain(agents.into_iter().map(Key::Agent)) {
            self.queue.add(key, now);
        }
    }

    /// Starts the work that is due.
    fn dispatch(&mut self) {
        let now = (self.wall)();
        self.plan(now);
        for key in self.planner.freed(&self.world) {
            self.queue.add(key, Instant::now());
        }
        let room = CONCURRENCY.saturating_sub(self.running.len());
        for key in self.queue.take(Instant::now(), room) {
            match &key {
                Key::Node(node) => match self.planner.attempt(node, &self.world) {
                    Some(actions) => self.start_node(key, actions),
                    None => self.queue.done(&key, false, Instant::now()),
                },
                Key::Probe(probe) => self.start_probe(&key, probe, now),
                Key::Agent(node) => self.start_agent(&key, node),
            }
        }
    }

    /// Plans anew what is out of date.
    fn plan(&mut self, now: Timestamp) {
        let view = View {
            world: &self.world,
            limits: &self.limits,
            now,
        };
        let Some(keys) = self.planner.plan(view, self.executor.template_hash()) else {
            return;
        };
        let (probes, desired) = (self.world.probe_count(), self.planner.desired());
        self.metrics
            .set_extent(probes, desired.targets(), desired.orders());
        let now = Instant::now();
        for key in keys {
            self.queue.add(key, now);
        }
    }

    /// Carries a node's actions out, one after the other.
    fn start_node(&mut self, key: Key, actions: Vec<Action>) {
        let hold = actions.iter().any(Action::is_respawn);
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
            self.told.remove(probe);
            self.pasts.remove(probe);
            self.metrics.set_anomalies(probe, 0);
            self.queue.done(key, false, Instant::now());
            return;
        };
        let begun = Instant::now();
        let left_out = self.planner.desired().left_out(probe);
        let past = self.pasts.entry(probe.clone()).or_default();
        let status = aggregate(row, &self.world, left_out.as_ref(), past, now);
        self.metrics.set_anomalies(probe, past.count());
        let change = next_change(row, &self.world, now);
        // A mean of the last few, as long as it lasts.
        self.effort = (self.effort * 7 + begun.elapsed()) / 8;
        // The answer to a status that is written has the spec.
        let unread = self.world.may_be_read(row);
        let unchanged = !unread && row.status.as_ref().is_some_and(|old| same(old, &status));
        let wait = self.told.wait(row, &status, begun);
        let report = Report {
            probe: row.reference.clone(),
            notes: notes(row.status.as_deref(), &status),
            status,
        };
        for at in change.map(|at| instant(at, now)).into_iter().chain(wait) {
            self.queue.add(key.clone(), at);
        }
        if unchanged || wait.is_some() {
            let now = Instant::now();
            self.queue.done(key, false, now);
            self.queue.rest(key, now + self.pace());
            return;
        }
        self.metrics.merged(begun.elapsed());
        let executor = self.executor.clone();
        let key = key.clone();
        self.running.push(Box::pin(async move {
            let result = executor.report(report).await;
            Done {
                key,
                started: begun,
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
                let delay = self.queue.again(&key, now);
                if error.is_conflict() && delay < LASTING {
                    tracing::debug!(%key, %error, retry_in = ?delay, "another was faster");
                    return;
                }
                self.metrics.failed(error.reason());
                tracing::warn!(%key, %error, retry_in = ?delay, "failed");
                return;
            }
        };
        match &key {
            Key::Node(_) if hold => self.queue.hold(&key, now),
            Key::Node(_) => self.queue.complete(&key, now),
            Key::Probe(_) | Key::Agent(_) => self.queue.done(&key, true, now),
        }
        if let Key::Probe(probe) = &key {
            self.told.note(probe, now);
            self.queue.rest(&key, now + self.pace());
        }
        if let Some(written) = written {
            let touched = self.world.confirm(written, (self.wall)());
            self.touch(touched);
        }
    }

    /// How long a CkbProbe that was looked at waits for the others.
    fn pace(&self) -> Duration {
        let probes = u32::try_from(self.world.probe_count()).unwrap_or(u32::MAX);
        pace(self.effort, probes)
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
        let wall = (self.wall)();
        let expiry = self.planner.expiry();
        let expiry = expiry.map(|expiry| instant(expiry, wall));
        let lease = self.leadership.borrow().until;
        let publishing = self.publishing.wake(&self.world);
        [due, expiry, lease, publishing]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(longest)
            .min(longest)
    }
}

#[cfg(test)]
mod tests;
