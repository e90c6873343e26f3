//! What the agent and the API server tell each other: orders, and reports.

pub mod parts;

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use ckb_probe_core::fit::{self, fit};
use ckb_probe_crds::{AgentStatus, NodeProbe, NodeProbeStatus};
use futures::{Stream, StreamExt};
use kube::{
    Api, Resource as _,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, ExponentialBackoff, watcher},
    },
};
use serde::Serialize;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tracing::{error, warn};

use super::pace::backpressure::Backpressure;
use crate::{export::reports::Reports, kernel::release_memory, text};

const FIELD_MANAGER: &str = "ckb-probe-agent";

/// Between two attempts to write a report: at first, and at most.
const WRITE_AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// Between two attempts to watch: at first, and at most. The default reaches a minute, and a CkbProbe deleted just
/// after an outage would be probed for so long.
const WATCH_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

/// The NodeProbe of this node as it changes; None while there is none. Errors of the watch are waited out:
/// the orders of before hold until there are new ones.
pub fn orders(api: Api<NodeProbe>, node: &str) -> impl Stream<Item = Option<NodeProbe>> + use<> {
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut listed = None;
    watcher(api, config)
        .backoff(ExponentialBackoff::from(backoff(WATCH_AGAIN)))
        .filter_map(move |event| {
            let order = match event {
                Ok(watcher::Event::Init) => {
                    listed = None;
                    None
                }
                Ok(watcher::Event::InitApply(order)) => {
                    listed = Some(order);
                    None
                }
                Ok(watcher::Event::InitDone) => Some(listed.take()),
                Ok(watcher::Event::Apply(order)) => Some(Some(order)),
                Ok(watcher::Event::Delete(_)) => Some(None),
                Err(error) => {
                    warn!(%error, "cannot watch the NodeProbe; the orders of before hold");
                    None
                }
            };
            std::future::ready(order)
        })
}

/// As many bytes as a report has at most. The API server takes 1.5 MiB, of which the orders take some.
const MOST_BYTES: usize = 1_000_000;

/// A report that is refused for its size is halved until it is taken, but not below this.
const LEAST_BYTES: usize = 32 << 10;

/// The same refusal is logged again after so long.
const SAY_AGAIN: Duration = Duration::from_secs(300);

/// As many characters of the API server's words as are handed on.
const MAX_WORDS: usize = 1_024;

/// A report as it is sent. The name goes along: server-side apply wants the whole identity.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    api_version: Cow<'a, str>,
    kind: Cow<'a, str>,
    metadata: Identity<'a>,
    status: &'a NodeProbeStatus,
}

#[derive(Debug, Serialize)]
struct Identity<'a> {
    name: &'a str,
}

/// Why a report was not written.
#[derive(Debug, PartialEq, Eq)]
enum WriteError {
    /// There is no NodeProbe any more: the watch will say so.
    Withdrawn,
    /// It is larger than the API server or its store takes.
    TooLarge,
    /// The API server will not have it, now or later: these are its words, and what to do.
    Refused(String),
    /// It may be taken if it is tried again.
    Passing,
}

impl WriteError {
    fn of(error: &kube::Error) -> Self {
        let kube::Error::Api(answer) = error else {
            return Self::Passing;
        };
        let words = answer.message.to_lowercase();
        let too_large = ["too large", "larger than max", "limit is"];
        let is_size = answer.code == 413 || too_large.iter().any(|known| words.contains(known));
        let what_to_do = match answer.code {
            404 => return Self::Withdrawn,
            400.. if is_size => return Self::TooLarge,
            401 | 403 => {
                "check that the agents' ServiceAccount may patch nodeprobes/status, and that no admission policy or webhook of \
                 the cluster forbids it"
            }
            400 | 405 | 406 | 415 | 422 => {
                "check that the CRDs are those of the agent's version (kubectl apply --server-side -f crds/generated), and that \
                 no webhook changes or forbids it"
            }
            // What the schema does not declare is an internal error where it is applied.
            500 if words.contains("field not declared") || words.contains("typed patch") => {
                "apply the CRDs of the agent's version: kubectl apply --server-side -f crds/generated"
            }
            _ => return Self::Passing,
        };
        let words: String = text::shown(&answer.message)
            .chars()
            .take(MAX_WORDS)
            .collect();
        Self::Refused(format!("{words} ({}): {what_to_do}", answer.code))
    }
}

/// How many reports were written, for the metrics.
#[derive(Debug, Default)]
pub struct Written {
    taken: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    cut: AtomicU64,
    bytes: AtomicU64,
    strain: Mutex<Backpressure>,
}

impl Written {
    /// How far apart reports are to be that are asked for at this interval.
    pub fn stretch(&self, interval: Duration) -> Duration {
        self.strain().stretch(interval)
    }

    /// How far apart any two are to be.
    pub fn apart(&self) -> Duration {
        self.strain().apart()
    }

    fn strain(&self) -> MutexGuard<'_, Backpressure> {
        // A number, which is whole whatever became of who wrote it.
        self.strain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many by now.
    pub fn count(&self) -> Reports {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Reports {
            written: of(&self.taken),
            refused: of(&self.refused),
            failed: of(&self.failed),
            cut: of(&self.cut),
            bytes: of(&self.bytes),
        }
    }
}

/// Writes reports, and knows how they were taken.
struct Writer {
    api: Api<NodeProbe>,
    node: String,
    written: Arc<Written>,
    /// As large as a report may be, of this generation of the orders.
    bytes: usize,
    generation: Option<i64>,
    said: Option<(String, Instant)>,
}

impl Writer {
    /// Writes it, as much of it as is taken; false where it is to be tried again after a while.
    async fn write(&mut self, status: NodeProbeStatus) -> bool {
        if self.generation != status.observed_generation {
            // Where the orders have become fewer there is more room.
            self.generation = status.observed_generation;
            self.bytes = MOST_BYTES;
        }
        let mut status = status;
        let instances = status.instances.iter_mut();
        for probe in instances.flat_map(|instance| &mut instance.probes) {
            probe.forget_distributions();
        }
        loop {
            let whole = fit::size(&status);
            status = fit(status, self.bytes);
            let bytes = fit::size(&status);
            let Err(error) = self.patch(&status).await else {
                count(&self.written.taken);
                count_if(&self.written.cut, bytes < whole);
                self.written.bytes.store(bytes as u64, Ordering::Relaxed);
                self.said = None;
                return true;
            };
            match WriteError::of(&error) {
                WriteError::Withdrawn => return true,
                WriteError::TooLarge if bytes.min(self.bytes) / 2 >= LEAST_BYTES => {
                    self.bytes = bytes.min(self.bytes) / 2;
                    warn!(%error, bytes, next = self.bytes, "the report is too large for the API server; leaving out more");
                }
                WriteError::TooLarge => {
                    let what_to_do = "the orders of this node take all of its NodeProbe: have fewer CkbProbes select its pods";
                    self.refused(status, format!("{error}: {what_to_do}")).await;
                    return true;
                }
                WriteError::Refused(why) => {
                    self.refused(status, why).await;
                    return true;
                }
                WriteError::Passing => {
                    count(&self.written.failed);
                    warn!(%error, "cannot write the report; trying again with the newest");
                    return false;
                }
            }
        }
    }

    /// Says that the report was refused: in the log, and, where the API server takes that much, in its place.
    async fn refused(&mut self, status: NodeProbeStatus, why: String) {
        count(&self.written.refused);
        let said = self
            .said
            .take_if(|(said, at)| *said != why || at.elapsed() > SAY_AGAIN);
        if said.is_some() || self.said.is_none() {
            error!(
                node = %self.node, %why,
                "the API server refuses this node's report: no CkbProbe is told what was measured here"
            );
            self.said = Some((why.clone(), Instant::now()));
        }
        let status = NodeProbeStatus {
            instances_omitted: 0,
            instances: Vec::new(),
            agent: AgentStatus {
                report_refused: Some(why),
                ..status.agent
            },
            ..status
        };
        // Refused too: then the log and the metric say it.
        let _ = self.patch(&status).await;
    }

    async fn patch(&self, status: &NodeProbeStatus) -> Result<NodeProbe, kube::Error> {
        let report = Report {
            api_version: NodeProbe::api_version(&()),
            kind: NodeProbe::kind(&()),
            metadata: Identity { name: &self.node },
            status,
        };
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        self.api
            .patch_status(&self.node, &parameters, &Patch::Apply(&report))
            .await
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn count_if(counter: &AtomicU64, so: bool) {
    counter.fetch_add(u64::from(so), Ordering::Relaxed);
}

/// Writes the latest report whenever there is a new one. A slow API server delays reports, never the engine; and how slow it is
/// says when the next one is [due](Written::stretch).
pub async fn write_reports(
    api: Api<NodeProbe>,
    node: String,
    mut latest: watch::Receiver<Option<NodeProbeStatus>>,
    written: Arc<Written>,
) {
    let mut writer = Writer {
        api,
        node,
        written,
        bytes: MOST_BYTES,
        generation: None,
        said: None,
    };
    let mut pauses = backoff(WRITE_AGAIN).build();
    while latest.changed().await.is_ok() {
        let begun = Instant::now();
        loop {
            let Some(status) = latest.borrow_and_update().clone() else {
                break;
            };
            if writer.write(status).await {
                pauses = backoff(WRITE_AGAIN).build();
                let bytes = writer.written.bytes.load(Ordering::Relaxed);
                writer.written.strain().note(begun.elapsed(), bytes);
                // What a report is made of and written from is half a megabyte with ten targets, which nobody needs until the next.
                release_memory();
                break;
            }
            sleep(pauses.next().unwrap_or(WRITE_AGAIN.1)).await;
        }
    }
}

/// Pauses from the first to the longest, doubled each time, and up to doubled again at random, so that the agents of
/// a cluster do not come back all at once.
fn backoff((first, longest): (Duration, Duration)) -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(first)
        .with_max_delay(longest)
        .without_max_times()
        .with_jitter()
}

#[cfg(test)]
mod tests;
