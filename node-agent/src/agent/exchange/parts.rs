//! Windows of stacks, on their way to the operator: each as an object of its own, in the operator's namespace.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use backon::BackoffBuilder as _;
use ckb_probe_crds::{PPROF_LIMIT, PartLabels, ProfilePart, ProfilePartSpec, part_name};
use ckb_probe_profiles::{Profile, Stack, Stacks};
use k8s_openapi::ByteString;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use tokio::{sync::Notify, time::sleep};
use tracing::{debug, error, warn};

use super::{FIELD_MANAGER, MAX_WORDS, WRITE_AGAIN, backoff, count};
use crate::{driver::engine::Delivery, export::reports::ProfileParts, text};

/// So many wait at most; of more, the oldest are given up.
const MOST: usize = 64;

/// And so many different stacks in all of them.
const MOST_STACKS: usize = 200_000;

/// Windows that wait to be written.
#[derive(Default)]
pub struct Queue {
    waiting: Mutex<VecDeque<Delivery>>,
    came: Notify,
    /// One of them is being written.
    busy: AtomicBool,
    rested: Notify,
    written: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

fn stacks(delivery: &Delivery) -> usize {
    let stacks = delivery.finished.stacks.as_ref();
    stacks.map_or(0, |profile| profile.stacks.len())
}

impl Queue {
    /// Has a window written, when those before are. Never waits.
    pub fn put(&self, delivery: Delivery) {
        let mut waiting = self.waiting();
        waiting.push_back(delivery);
        let mut held: usize = waiting.iter().map(stacks).sum();
        while waiting.len() > MOST || (held > MOST_STACKS && waiting.len() > 1) {
            let Some(Delivery { to, finished }) = waiting.pop_front() else {
                break;
            };
            held -= finished.stacks.map_or(0, |profile| profile.stacks.len());
            count(&self.dropped);
            warn!(
                pod = %to.pod.name, namespace = %to.pod.namespace, probe = %to.probe, mode = finished.mode.as_str(),
                window = finished.window.number,
                "too many windows of stacks wait for the API server: the oldest is given up"
            );
        }
        drop(waiting);
        self.came.notify_one();
    }

    /// What became of them by now.
    pub fn count(&self) -> ProfileParts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ProfileParts {
            written: of(&self.written),
            refused: of(&self.refused),
            failed: of(&self.failed),
            dropped: of(&self.dropped),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Delivery>> {
        // Nothing panics while it is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all of them are written, or given up.
    pub async fn rest(&self) {
        while !self.is_at_rest() {
            self.rested.notified().await;
        }
    }

    fn is_at_rest(&self) -> bool {
        self.waiting().is_empty() && !self.busy.load(Ordering::Relaxed)
    }

    fn pop(&self) -> Option<Delivery> {
        let mut waiting = self.waiting();
        let next = waiting.pop_front();
        // Before anybody sees that none waits.
        self.busy.store(next.is_some(), Ordering::Relaxed);
        next
    }

    /// What is to be written next. The one before is done with.
    async fn next(&self) -> Delivery {
        loop {
            match self.pop() {
                Some(delivery) => return delivery,
                None => {
                    self.rested.notify_one();
                    self.came.notified().await;
                }
            }
        }
    }
}

/// What the operator is told of a window: its stacks, as large as an object may be.
fn part(delivery: &Delivery) -> ProfilePartSpec {
    let Delivery { to, finished } = delivery;
    let target = format!("{}/{}/{}", to.pod.namespace, to.pod.name, to.container);
    let written = finished.stacks.as_ref().map(|profile| {
        let all = &profile.stacks;
        let mut stacks = Stacks::new(all.types().to_vec(), all.shown());
        for stack in all.iter() {
            stacks.add(&Stack {
                target: &target,
                ..stack
            });
        }
        let Profile { window, period, .. } = **profile;
        let profile = Profile {
            stacks,
            window,
            period,
        };
        ByteString(profile.prune(PPROF_LIMIT).bytes)
    });
    let (pprof, failure) = match written {
        Ok(pprof) => (Some(pprof), None),
        Err(why) => (
            None,
            Some(text::shown(why).chars().take(MAX_WORDS).collect()),
        ),
    };
    ProfilePartSpec {
        asks: to.asks.clone(),
        probe: to.probe.clone(),
        pod: to.pod.clone(),
        container: to.container.clone(),
        mode: finished.mode,
        window: finished.window.clone(),
        counts: finished.counts.clone(),
        pprof,
        failure,
    }
}

/// Writes windows one after the other. A slow API server has them wait, and never the engine.
pub async fn write_parts(api: Api<ProfilePart>, node: String, queue: Arc<Queue>) {
    // Of an agent that was restarted the last ones may still be there. There are as many slots as a byte has values.
    let mut slot = fastrand::u8(..);
    loop {
        let delivery = queue.next().await;
        // To fold and to pack it takes its time.
        let Ok(spec) = tokio::task::spawn_blocking(move || part(&delivery)).await else {
            count(&queue.dropped);
            error!("a window of stacks cannot be written: packing it failed");
            continue;
        };
        slot = slot.wrapping_add(1);
        write(&api, &part_name(&node, slot), spec, &queue).await;
    }
}

async fn write(api: &Api<ProfilePart>, name: &str, spec: ProfilePartSpec, queue: &Queue) {
    let labels = PartLabels::of(&spec).to_map();
    let mut part = ProfilePart::new(name, spec);
    part.metadata.labels = Some(labels);
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let mut pauses = backoff(WRITE_AGAIN).build();
    loop {
        let error = match api.patch(name, &parameters, &Patch::Apply(&part)).await {
            Ok(_) => {
                count(&queue.written);
                let ProfilePartSpec { pod, mode, .. } = &part.spec;
                debug!(%name, pod = %pod.name, mode = mode.as_str(), "a window of stacks was written");
                return;
            }
            Err(error) => error,
        };
        if is_refused(&error) {
            count(&queue.refused);
            error!(
                %name, %error,
                "the API server refuses a window of stacks, which is given up: check that the CRD profileparts is that of the agent's \
                 version, and that the agents' ServiceAccount may create and patch profileparts in the operator's namespace"
            );
            return;
        }
        count(&queue.failed);
        warn!(%name, %error, "cannot write a window of stacks; trying again");
        sleep(pauses.next().unwrap_or(WRITE_AGAIN.1)).await;
    }
}

/// Whether it will not be taken, now or later.
fn is_refused(error: &kube::Error) -> bool {
    let kube::Error::Api(answer) = error else {
        return false;
    };
    // What passes by itself: a conflict, too many requests, and the API server's own troubles.
    matches!(answer.code, 400..=499) && !matches!(answer.code, 408 | 409 | 429)
}

#[cfg(test)]
mod tests;
