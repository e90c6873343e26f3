//! Windows of stacks, on their way to the operator: each as an object of its own, in the operator's namespace.

mod slots;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use backon::BackoffBuilder as _;
use ckb_probe_crds::{
    PPROF_LIMIT, PartLabels, ProfilePart, ProfilePartSpec, WINDOWS_KEPT, part_name,
};
use ckb_probe_profiles::{Profile, Stack, Stacks};
use k8s_openapi::ByteString;
use kube::{Api, api::PostParams};
use slots::Slots;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tracing::{debug, error, warn};

use super::{FIELD_MANAGER, MAX_WORDS, WRITE_AGAIN, backoff, count};
use crate::{
    driver::{engine::Delivery, workers::Workers},
    export::reports::ProfileParts,
    text,
};

/// So many wait at most; of more, the oldest of the namespace that has most of them are given up.
const MOST: usize = WINDOWS_KEPT;

/// And so many different stacks in all of them.
const MOST_STACKS: usize = 200_000;

/// Between two attempts to find a slot from which the operator has taken the part away: at first, and at most.
const FREE_AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// The same, where it takes none away.
const UNREAD_AGAIN: Duration = Duration::from_secs(60);

/// A window for which no slot was free in this time is given up: the operator would drop it for its age.
const OLDEST: Duration = Duration::from_secs(600);

/// The API server's own troubles pass, but one that it has with one window may not: that is given up after so many attempts.
const MOST_FAILURES: u32 = 10;

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

/// The oldest of the namespace whose windows weigh most: what one has much of is not kept at the expense of others.
fn excess(waiting: &VecDeque<Delivery>, weight: impl Fn(&Delivery) -> usize) -> Option<usize> {
    let namespace = |one: &Delivery| one.to.pod.namespace.clone();
    let mut held: BTreeMap<String, usize> = BTreeMap::new();
    for one in waiting {
        *held.entry(namespace(one)).or_default() += weight(one);
    }
    let most = held.into_iter().max_by_key(|(_, weight)| *weight)?.0;
    waiting.iter().position(|one| namespace(one) == most)
}

impl Queue {
    /// Has a window written, when those before are. Never waits.
    pub fn put(&self, delivery: Delivery) {
        let mut waiting = self.waiting();
        waiting.push_back(delivery);
        let mut held: usize = waiting.iter().map(stacks).sum();
        while waiting.len() > MOST || (held > MOST_STACKS && waiting.len() > 1) {
            let Some(Delivery { to, finished }) =
                excess(&waiting, |one| 1 + stacks(one)).and_then(|place| waiting.remove(place))
            else {
                break;
            };
            held -= finished.stacks.map_or(0, |profile| profile.stacks.len());
            count(&self.dropped);
            warn!(
                pod = %to.pod.name, namespace = %to.pod.namespace, probe = %to.probe, mode = finished.mode.as_str(),
                window = finished.window.number,
                "too many windows of stacks wait for the API server: the oldest of the namespace with most of them is given up"
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

/// Writes windows one after the other. A slow API server has them wait, and never the engine; so does an operator that does not take
/// them away.
pub async fn write_parts(api: Api<ProfilePart>, node: String, queue: Arc<Queue>) {
    let mut slots = Slots::from(fastrand::u8(..));
    let workers = Workers::default();
    loop {
        let delivery = queue.next().await;
        // To fold and to pack it takes its time. Not by tokio's own threads: where there can be none, it panics.
        let Some(spec) = workers.done(move || part(&delivery)).await else {
            count(&queue.dropped);
            error!("a window of stacks cannot be written: packing it failed");
            continue;
        };
        write(&api, &node, &mut slots, spec, &queue).await;
    }
}

/// Writes it to a slot that is free: what stands in another is for the operator to take, and is not written over.
async fn write(
    api: &Api<ProfilePart>,
    node: &str,
    slots: &mut Slots,
    spec: ProfilePartSpec,
    queue: &Queue,
) {
    let labels = PartLabels::of(&spec).to_map();
    let mut part = ProfilePart::new("", spec);
    part.metadata.labels = Some(labels);
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let begun = Instant::now();
    let mut slot = slots.choose(begun);
    let mut pauses = backoff(WRITE_AGAIN).build();
    let mut searches = backoff(FREE_AGAIN).build();
    let (mut failures, mut may_be_there) = (0, false);
    loop {
        let name = part_name(node, slot);
        part.metadata.name = Some(name.clone());
        let error = match api.create(&parameters, &part).await {
            Ok(_) => None,
            Err(error) => Some((PartError::of(&error), error)),
        };
        match error {
            // The attempt before was taken after all.
            Some((PartError::Taken, _)) if may_be_there => {}
            None => {}
            Some((PartError::Taken, _)) => {
                if begun.elapsed() >= OLDEST {
                    count(&queue.dropped);
                    warn!(%name, "the operator takes no parts of profiles away: a window of stacks is given up");
                    return;
                }
                let is_unread = slots.taken(slot, Instant::now());
                debug!(%name, is_unread, "the part before is still there");
                sleep(match is_unread {
                    true => UNREAD_AGAIN,
                    false => searches.next().unwrap_or(FREE_AGAIN.1),
                })
                .await;
                slot = slots.choose(Instant::now());
                continue;
            }
            Some((PartError::Refused, error)) => {
                count(&queue.refused);
                error!(
                    %name, %error,
                    "the API server refuses a window of stacks, which is given up: check that the CRD profileparts is that of the agent's \
                     version, and that the agents' ServiceAccount may create profileparts in the operator's namespace"
                );
                return;
            }
            Some((kind @ (PartError::Broken | PartError::Passing), error)) => {
                count(&queue.failed);
                failures += u32::from(kind == PartError::Broken);
                if failures >= MOST_FAILURES {
                    count(&queue.dropped);
                    error!(%name, %error, failures, "a window of stacks cannot be written, and is given up");
                    return;
                }
                warn!(%name, %error, "cannot write a window of stacks; trying again");
                // What the API server says no to was not taken.
                may_be_there |= !matches!(&error, kube::Error::Api(answer) if answer.code < 500);
                sleep(pauses.next().unwrap_or(WRITE_AGAIN.1)).await;
                continue;
            }
        }
        slots.written(slot, Instant::now());
        count(&queue.written);
        let ProfilePartSpec { pod, mode, .. } = &part.spec;
        debug!(%name, pod = %pod.name, mode = mode.as_str(), "a window of stacks was written");
        return;
    }
}

/// Why a part was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartError {
    /// The slot has one already.
    Taken,
    /// It will not be taken, now or later.
    Refused,
    /// The API server itself stumbles over it, and may do so again.
    Broken,
    /// It may be taken if it is tried again.
    Passing,
}

impl PartError {
    fn of(error: &kube::Error) -> Self {
        let kube::Error::Api(answer) = error else {
            return Self::Passing;
        };
        match answer.code {
            409 if answer.reason == "AlreadyExists" => Self::Taken,
            // What passes by itself: a conflict, too many requests, and that it is away.
            408 | 409 | 429 => Self::Passing,
            400..=499 => Self::Refused,
            500 => Self::Broken,
            _ => Self::Passing,
        }
    }
}

#[cfg(test)]
mod tests;
