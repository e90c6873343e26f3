//! Agents that are made up: their pods run as soon as the operator has made them, and they report on their orders.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ckb_probe_crds::{
    AgentStatus, Assignment, Distribution, Figures, Histogram, InstanceReport, InstanceState,
    IntervalFigures, Kind, NodeProbe, NodeProbeStatus, Probe, ProbeReport, Reason, RowReport,
};
use futures::StreamExt as _;
use k8s_openapi::{
    api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp,
};
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{Patch, PatchParams},
    core::ApiResource,
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{
    REPORT,
    orders::{Ignored, Orders},
};
use crate::cluster::{AGENTS, SYSTEM};

/// What is measured of each target of the large cluster.
pub const OPERATIONS: [&str; 5] = ["Get", "TxnGet", "TxnPut", "TxnCommit", "Write"];

/// How agents yield to a slow API server: their own code. Their crate would bring its BPF programs along.
#[path = "../../../node-agent/src/agent/pace/backpressure.rs"]
mod backpressure;

use backpressure::Backpressure;

/// An agent whose report was not taken tries again after so long, as it does.
const AGAIN: Duration = Duration::from_secs(1);

/// What agents report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// The agent reports nothing.
    Nothing,
    /// What they said before, so often.
    TheSame(Duration),
    /// New figures, so often.
    More(Duration),
}

/// All agents. They end with this process.
pub struct Agents {
    say: watch::Sender<Say>,
    said: Arc<Said>,
}

/// What came of it.
#[derive(Default)]
struct Said {
    bytes: AtomicU64,
    /// Reports that are being written.
    under_way: AtomicU64,
    /// How long each took that was taken.
    took: Mutex<Vec<Duration>>,
    /// By agent: when the first and the last was begun that is counted, and how many.
    begun: Mutex<BTreeMap<u32, (Instant, Instant, u32)>>,
}

/// An object of which nothing is read but that it is there.
type Written = kube::core::Object<Ignored, Ignored>;

/// One of them.
struct Agent {
    index: u32,
    client: Client,
    orders: Orders,
    node: String,
    say: watch::Receiver<Say>,
    said: Arc<Said>,
    rows: usize,
}

impl Agents {
    /// One for each order, from now on, that tells so many rows of each probe of kind `functions`. They say nothing at first.
    pub fn start(client: Client, orders: Orders, rows: usize) -> Self {
        let agents = Self {
            say: watch::Sender::new(Say::Nothing),
            said: Arc::default(),
        };
        tokio::spawn(run_pods(client.clone()));
        let (say, said) = (agents.say.subscribe(), agents.said.clone());
        tokio::spawn(async move {
            let mut news = orders.news();
            let mut known = BTreeSet::new();
            loop {
                for node in orders.nodes() {
                    if known.insert(node.clone()) {
                        let agent = Agent {
                            index: known.len() as u32,
                            client: client.clone(),
                            orders: orders.clone(),
                            node,
                            say: say.clone(),
                            said: said.clone(),
                            rows,
                        };
                        tokio::spawn(agent.run());
                    }
                }
                if news.changed().await.is_err() {
                    return;
                }
                // Many come at a time.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        agents
    }

    /// From now on they say this.
    pub fn say(&self, say: Say) {
        self.say.send_replace(say);
    }

    /// How long each report took that was taken since this was last asked.
    pub fn took(&self) -> Vec<Duration> {
        let mut took = self
            .said
            .took
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut took)
    }

    /// How many seconds apart the reports of each agent were begun that has begun two since this was last asked: a mean.
    pub fn paces(&self) -> Vec<f64> {
        let begun = &self.said.begun;
        let begun = std::mem::take(&mut *begun.lock().unwrap_or_else(PoisonError::into_inner));
        let several = begun.into_values().filter(|(.., count)| *count > 1);
        let mean = |(first, last, count): (Instant, Instant, u32)| {
            (last - first).as_secs_f64() / f64::from(count - 1)
        };
        several.map(mean).collect()
    }

    /// Reports that are being written now.
    pub fn under_way(&self) -> u64 {
        self.said.under_way.load(Ordering::Relaxed)
    }

    /// How long the last report was.
    pub fn bytes(&self) -> u64 {
        self.said.bytes.load(Ordering::Relaxed)
    }
}

impl Said {
    fn begins(&self, agent: u32, now: Instant) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, last, count) = begun.entry(agent).or_insert((now, now, 0));
        (*last, *count) = (now, *count + 1);
    }
}

impl Agent {
    /// Reports, each agent at a moment of its own, and less often while the API server is slow: as the agents do it.
    async fn run(mut self) {
        let moment = f64::from(self.index.wrapping_mul(2_654_435_761) >> 22) / 1024.0;
        let mut strain = Backpressure::default();
        let mut due = Instant::now() + REPORT.mul_f64(moment);
        let mut round = 1;
        loop {
            tokio::select! {
                () = sleep_until(due) => {}
                changed = self.say.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    due = due.min(Instant::now() + REPORT.mul_f64(moment));
                    continue;
                }
            }
            let (asked, more) = match *self.say.borrow() {
                Say::Nothing => {
                    due += REPORT;
                    continue;
                }
                Say::TheSame(every) => (every, 0),
                Say::More(every) => (every, 1),
            };
            round += more;
            let kept = strain.stretch(asked);
            let begun = Instant::now();
            self.said.under_way.fetch_add(1, Ordering::Relaxed);
            self.said.begins(self.index, begun);
            while !self.report(round, kept).await {
                sleep(AGAIN).await;
            }
            self.said.under_way.fetch_sub(1, Ordering::Relaxed);
            let took = begun.elapsed();
            strain.note(took, self.said.bytes.load(Ordering::Relaxed));
            let mut all = self
                .said
                .took
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            all.push(took);
            drop(all);
            due = (due + strain.stretch(asked)).max(Instant::now());
        }
    }

    /// False when it was not taken.
    async fn report(&self, round: u64, kept: Duration) -> bool {
        let Some((generation, order)) = self.orders.of(&self.node) else {
            return true;
        };
        let status = NodeProbeStatus {
            instances_omitted: 0,
            observed_generation: Some(generation),
            reported_at: Some(MicroTime(Timestamp::now())),
            report_interval: (kept > REPORT).then_some(kept.into()),
            agent: AgentStatus {
                pod: format!("ckb-probe-agent-{}", self.node),
                version: "0.1.0".to_string(),
                kernel: "6.18.0".to_string(),
                tier: "session".to_string(),
                cost_per_call_ns: 900,
                single_step_cost_ns: 19_000,
                ..AgentStatus::default()
            },
            instances: order
                .assignments
                .iter()
                .zip(0..)
                .map(|(assignment, index)| instance(assignment, self.rows, index, round))
                .collect(),
        };
        // As the agent does it.
        let report = json!({
            "apiVersion": NodeProbe::api_version(&()),
            "kind": NodeProbe::kind(&()),
            "metadata": { "name": self.node },
            "status": status,
        });
        // The answer, which is longer than the report, is of no interest to an agent.
        let resource = ApiResource::erase::<NodeProbe>(&());
        let api: Api<Written> = Api::namespaced_with(self.client.clone(), SYSTEM, &resource);
        let parameters = PatchParams::apply("ckb-probe-agent").force();
        let patch = Patch::Apply(&report);
        let written = api.patch_status(&self.node, &parameters, &patch).await;
        // Of one, for it takes as long as to write it.
        if self.index == 1 {
            let bytes = report.to_string().len();
            self.said.bytes.store(bytes as u64, Ordering::Relaxed);
        }
        written.is_ok()
    }
}

fn instance(assignment: &Assignment, rows: usize, index: u64, round: u64) -> InstanceReport {
    InstanceReport {
        probe: assignment.probe.clone(),
        asks: assignment.asks.clone(),
        pod: assignment.pod.clone(),
        container: assignment.containers.first().map(|one| one.name.clone()),
        pid: Some(1000 + index as u32),
        state: InstanceState::Attached,
        reason: Some(Reason::Firing),
        message: "measuring the process".to_string(),
        firing: true,
        overhead_millipercent: Some(400 + (index * 7 + round) % 90),
        probes: assignment
            .probes
            .iter()
            .map(|probe| probe_report(probe, rows, index, round))
            .collect(),
        ..InstanceReport::default()
    }
}

fn probe_report(probe: &Probe, rows: usize, index: u64, round: u64) -> ProbeReport {
    let kind = probe.kind_spec().map(|spec| spec.kind());
    let keys: Vec<String> = match kind {
        Some(Kind::Rocksdb) => OPERATIONS.iter().map(|one| one.to_string()).collect(),
        Some(Kind::Functions) => (0..rows).map(function).collect(),
        _ => Vec::new(),
    };
    let keys = keys.iter().zip(0..);
    ProbeReport {
        name: probe.name.clone(),
        kind: kind
            .map(|kind| kind.as_str().to_string())
            .unwrap_or_default(),
        state: InstanceState::Attached,
        reason: Some(Reason::Firing),
        firing: true,
        rows: keys
            .map(|(key, number)| row(key, number, index, round))
            .collect(),
        ..ProbeReport::default()
    }
}

/// The name of one that is measured.
fn function(number: usize) -> String {
    format!("ckb_chain::verify::ConsumeUnverifiedBlocks::step_{number:03}")
}

/// Calls from a microsecond to a few milliseconds: some forty buckets of an interval. Of all since the beginning an agent tells how
/// many they were.
fn row(operation: &str, number: u32, index: u64, round: u64) -> RowReport {
    let first = 150 + 10 * (number % 5);
    let figures = |buckets: u32, times: u64| {
        // As if by chance: what is regular takes less room than what is measured.
        let chance = |bucket: u32| {
            let seed = bucket + 1_000 * number + 10_000 * index as u32 + 100_000 * round as u32;
            (seed.wrapping_mul(2_654_435_761) >> 16) % 997
        };
        let count = |bucket: u32| 1 + u64::from(chance(bucket)) * times;
        let histogram: Histogram = (first..first + buckets)
            .map(|one| (one, count(one)))
            .collect();
        let calls = histogram.count();
        Figures {
            sums: [("bytes".into(), calls * 120), ("slow".into(), calls / 1000)].into(),
            maxima: [("duration".into(), 3_000_000 + index * 1000)].into(),
            distributions: [(
                "duration".into(),
                Distribution {
                    histogram,
                    sum: calls * 9_000,
                    unmeasured: 0,
                },
            )]
            .into(),
            ..Figures::default()
        }
    };
    let mut total = figures(60, round);
    total.forget_distribution();
    RowReport {
        key: operation.to_string(),
        total,
        window: IntervalFigures {
            milliseconds: 10_000,
            recorded_milliseconds: 9_200,
            samples: 18_000 + round,
            figures: figures(40, 1 + (round + index) % 9),
        },
        parts: Vec::new(),
    }
}

/// Each agent pod runs once the operator has made it.
async fn run_pods(client: Client) {
    let api: Api<Pod> = Api::namespaced(client, SYSTEM);
    let agents = watcher::Config::default().labels(AGENTS);
    let run = |pod: watcher::Result<Pod>| {
        let api = api.clone();
        async move {
            // What fails is tried again.
            let Ok(pod) = pod else { return };
            let phase = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            if phase == Some("Running") {
                return;
            }
            let status = json!({ "status": {
                "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True" }],
                "containerStatuses": [{
                    "name": "agent",
                    "image": "registry.local/ckb-probe/ckb-probe:dev",
                    "imageID": "",
                    "ready": true,
                    "restartCount": 0,
                    "state": { "running": { "startedAt": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string() } },
                }],
            } });
            // One that is gone again needs none.
            let _ = api
                .patch_status(
                    &pod.name_any(),
                    &PatchParams::default(),
                    &Patch::Merge(&status),
                )
                .await;
        }
    };
    let seen = watcher(api.clone(), agents)
        .default_backoff()
        .applied_objects()
        .for_each_concurrent(16, run);
    seen.await;
}
