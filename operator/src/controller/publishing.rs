//! Profiles beside everything else: what is planned is done one at a time, and takes no more than a part of the time.

use std::{collections::VecDeque, future::pending};

use futures::future::LocalBoxFuture;
use k8s_openapi::jiff::Timestamp;
use tokio::time::{Duration, Instant};

use super::instant;
use crate::{
    desired::{Desired, View},
    metrics::Metrics,
    profiles::{
        plan::{Plan, ProfileAction, PublishPlanner},
        publish::{PublishError, Publisher},
    },
    world::World,
};

/// It is planned anew no more often.
const PACE: Duration = Duration::from_secs(1);
/// After work it rests for so many times as long as that took: nodes and statuses come first, whatever agents send.
const REST: u32 = 2;
/// But no longer: a process that was stopped meanwhile, or an API server that was slow, took no time of anybody's.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// What fails otherwise than in publishing, is left alone for so long.
const AGAIN: Duration = Duration::from_secs(10);

type Done = (ProfileAction, Instant, Result<(), PublishError>);

/// What is to be done about profiles.
pub struct Publishing {
    publisher: Publisher,
    desk: PublishPlanner,
    jobs: VecDeque<ProfileAction>,
    running: Option<LocalBoxFuture<'static, Done>>,
    /// Nothing is begun before.
    rest: Instant,
    /// When it is to be planned anew.
    due: Option<Instant>,
}

impl Publishing {
    /// Nothing yet.
    pub fn new(publisher: Publisher) -> Self {
        Self {
            publisher,
            desk: PublishPlanner::default(),
            jobs: VecDeque::new(),
            running: None,
            rest: Instant::now(),
            due: None,
        }
    }

    /// Begins anew, and drops what runs.
    pub fn forget(&mut self) {
        self.desk.forget();
        self.jobs.clear();
        self.running = None;
        self.due = Some(Instant::now());
    }

    /// There is news of what plans are made of.
    pub fn touch(&mut self) {
        let soon = Instant::now() + PACE;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// Begins the next thing that is to be done.
    pub fn dispatch(&mut self, view: View<'_>, desired: &Desired) {
        let View { world, now, .. } = view;
        let begun = Instant::now();
        if !world.shelf().synced() || self.running.is_some() || self.rest > begun {
            return;
        }
        if self.jobs.is_empty() && self.due.is_some_and(|due| due <= begun) {
            let Plan { jobs, next } = self.desk.plan(view, desired);
            self.jobs = jobs.into();
            // Whatever was published, there is something to be deleted then.
            let after = (!self.jobs.is_empty()).then(|| begun + PACE);
            let next = next.map(|next| instant(next, now).max(begun + PACE));
            self.due = after.into_iter().chain(next).min();
        }
        let Some(job) = self.jobs.pop_front() else {
            return;
        };
        let publisher = self.publisher.clone();
        self.running = Some(Box::pin(async move {
            let result = publisher.run(job.clone()).await;
            (job, begun, result)
        }));
    }

    /// Waits for what runs, for ever where nothing does.
    pub async fn done(&mut self) -> Done {
        match &mut self.running {
            Some(running) => running.await,
            None => pending().await,
        }
    }

    /// Notes what came of it.
    pub fn finish(&mut self, (job, begun, result): Done, metrics: &Metrics, now: Timestamp) {
        self.running = None;
        let ended = Instant::now();
        let took = ended - begun;
        if let ProfileAction::Publish(job) = &job {
            metrics.reconciled("CkbProfile", took);
            self.rest = ended + (took * REST).min(LONGEST_REST);
            match &result {
                Ok(()) => self.desk.published(job),
                Err(_) => drop(self.desk.failed(job, now)),
            }
        } else if result.is_err() {
            self.jobs.clear();
            self.rest = ended + AGAIN;
        }
        if let Err(error) = result {
            metrics.failed(error.reason());
            tracing::warn!(%error, "failed");
        }
    }

    /// When there will be something to do without any news.
    pub fn wake(&self, world: &World) -> Option<Instant> {
        if !world.shelf().synced() || self.running.is_some() {
            return None;
        }
        let due = match self.jobs.is_empty() {
            true => self.due?,
            false => self.rest,
        };
        Some(due.max(self.rest))
    }
}
