//! The agent: takes its orders from the NodeProbe of its node, and writes its report there.

mod exchange;

use std::{future::pending, io::Write as _, net::SocketAddr, pin::pin, time::Duration};

use ckb_probe_crds::{AgentStatus, Assignment, NodeProbe, NodeProbeStatus};
use exchange::{orders, write_reports};
use futures::StreamExt;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};
use kube::{Api, Client};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tracing::{error, info, warn};

use crate::{
    driver::engine::Engine,
    export::metrics,
    kernel::{Execs, Means, Tier},
    mechanism::Refusal,
    observe,
    preflight::{Preflight, preflight},
    server::{self, Inquiry, Question},
};

/// How often the ring buffers of slow calls are emptied: a thousand slow calls fit in between.
const DRAIN: Duration = Duration::from_millis(250);

/// Who the agent is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node it runs on, and so the name of its NodeProbe.
    pub node: String,
    /// The namespace of its NodeProbe.
    pub namespace: String,
    /// Its own pod, for the report.
    pub pod: String,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub address: SocketAddr,
    /// The one way to attach that may be used, for tests; the best that works, when unset.
    pub tier: Option<Tier>,
}

/// The agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The address is taken or not allowed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// The system's word.
        source: std::io::Error,
    },
    /// Signals cannot be caught.
    #[error("cannot wait for signals: {0}")]
    Signal(#[source] std::io::Error),
    /// A task that must run for ever ended.
    #[error("the task {0} ended")]
    TaskEnded(&'static str),
}

/// Runs until SIGTERM or SIGINT, and detaches everything before it returns.
pub async fn run(client: Client, settings: Settings) -> Result<(), AgentError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(AgentError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(AgentError::Signal)?;

    let preflight = preflight(settings.tier);
    let about = about(&settings, &preflight);
    log(&preflight);

    let address = settings.address;
    let listener = server::bind(address)
        .await
        .map_err(|source| AgentError::Listen { address, source })?;
    let (inquiries, mut asked) = mpsc::channel(16);
    let mut server = tokio::spawn(server::serve(listener, inquiries));

    let api: Api<NodeProbe> = Api::namespaced(client, &settings.namespace);
    let (reports, latest) = watch::channel(None);
    let mut writer = tokio::spawn(write_reports(api.clone(), settings.node.clone(), latest));
    let mut orders = pin!(orders(api, &settings.node));

    let mut work = Work {
        reported: Instant::now(),
        engine: Engine::new(preflight.means.map_err(Refusal::from)),
        assignments: Vec::new(),
        about,
        order: None,
        ordered: false,
    };
    let mut execs = watch_execs();
    let mut drain = Instant::now() + DRAIN;
    loop {
        let scan = work.engine.next_scan().into();
        let window = work.engine.next_window().map(Instant::from);
        let step = work.engine.next_step().map(Instant::from);
        let changed = tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = ended(&mut server) => return Err(AgentError::TaskEnded("server")),
            _ = ended(&mut writer) => return Err(AgentError::TaskEnded("reports")),
            order = orders.next() => match order {
                Some(order) => work.take(order),
                None => return Err(AgentError::TaskEnded("orders")),
            },
            Some(inquiry) = asked.recv() => work.answer(inquiry),
            () = work.engine.process_ended() => work.engine.reconcile(),
            pids = next_execs(&mut execs) => work.engine.execs(&pids),
            () = until(step) => work.engine.step(),
            () = sleep_until(scan), if work.ordered => work.engine.reconcile(),
            () = until(window) => work.engine.close_windows(),
            () = until(work.heartbeat()) => true,
            () = sleep_until(drain), if window.is_some() => {
                drain = Instant::now() + DRAIN;
                work.drain();
                work.expire()
            }
        };
        if changed {
            reports.send_replace(Some(work.report()));
        }
    }
    work.drain();
    info!("detaching everything");
    Ok(())
}

struct Work {
    reported: Instant,
    engine: Engine,
    assignments: Vec<Assignment>,
    about: AgentStatus,
    order: Option<OrderId>,
    ordered: bool,
}

/// The uid and generation of a NodeProbe: a report changes the object too, but only these make a new order.
type OrderId = (String, i64);

impl Work {
    fn take(&mut self, order: Option<NodeProbe>) -> bool {
        self.ordered = true;
        let (id, assignments) = taken_apart(order);
        if id == self.order {
            return false;
        }
        self.order = id;
        self.engine.assign(current(&assignments, Timestamp::now()));
        self.assignments = assignments;
        // The report says which generation it answers.
        true
    }

    fn answer(&mut self, (question, answer): Inquiry) -> bool {
        let text = match question {
            Question::Healthy => Ok("ok\n".to_string()),
            Question::Ready if self.ordered => Ok("ok\n".to_string()),
            Question::Ready => {
                Err("no orders seen yet: is the API server reachable?\n".to_string())
            }
            Question::Metrics => {
                self.engine.read();
                let (now, instances) = self.engine.instances();
                metrics::render(self.engine.means(), now, instances)
                    .map_err(|error| format!("cannot render the metrics: {error}\n"))
            }
        };
        // Whoever asked may have gone.
        let _ = answer.send(text);
        false
    }

    /// Detaches what has expired, also while no operator is there to withdraw it. True when something had.
    fn expire(&mut self) -> bool {
        let current = current(&self.assignments, Timestamp::now());
        let expired = current.len() < self.assignments.len();
        if expired {
            self.engine.assign(current.clone());
            self.assignments = current;
        }
        expired
    }

    fn drain(&mut self) {
        let mut out = std::io::stdout().lock();
        for line in self.engine.events() {
            // Nobody reads: the status still lists the weightiest.
            let _ = writeln!(out, "{line}");
        }
    }

    fn heartbeat(&self) -> Option<Instant> {
        heartbeat(self.reported, &self.assignments)
    }

    fn report(&mut self) -> NodeProbeStatus {
        self.reported = Instant::now();
        NodeProbeStatus {
            observed_generation: self.order.as_ref().map(|(_, generation)| *generation),
            reported_at: Some(MicroTime(Timestamp::now())),
            agent: self.about.clone(),
            instances: self.engine.reports(),
        }
    }
}

fn about(settings: &Settings, preflight: &Preflight) -> AgentStatus {
    let Preflight { checks, means } = preflight;
    let (tier, cost_per_call_ns, single_step_cost_ns) = match means {
        Ok(Means {
            tier, calibration, ..
        }) => (
            tier.as_str(),
            calibration.cost_per_call_ns,
            calibration.single_step_cost_ns,
        ),
        Err(_) => ("", 0, 0),
    };
    AgentStatus {
        pod: settings.pod.clone(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        kernel: observe::kernel_release(),
        tier: tier.to_string(),
        cost_per_call_ns,
        single_step_cost_ns,
        preflight: checks.clone(),
        failure: means.as_ref().err().map(ToString::to_string),
        started_at: Some(MicroTime(Timestamp::now())),
    }
}

fn log(preflight: &Preflight) {
    for check in &preflight.checks {
        if check.passed {
            info!(check = check.name, "{}", check.detail);
        } else {
            warn!(check = check.name, "{}", check.detail);
        }
    }
    match &preflight.means {
        Ok(means) => info!(tier = means.tier.as_str(), "this node can be measured"),
        Err(failure) => error!(%failure, "no function can be measured on this node"),
    }
}

/// The watch for new processes. Without it they are found by looking at /proc from time to time.
fn watch_execs() -> Option<Execs> {
    Execs::watch()
        .inspect_err(|error| {
            warn!(%error, "new processes are not told of; looking for them from time to time");
        })
        .ok()
}

async fn next_execs(execs: &mut Option<Execs>) -> Vec<u32> {
    let Some(watch) = execs else {
        return pending().await;
    };
    match watch.next().await {
        Ok(pids) => pids,
        Err(error) => {
            warn!(%error, "new processes are not told of any more; looking for them from time to time");
            *execs = None;
            Vec::new()
        }
    }
}

/// An order's identity, and what it says. There is no order, and so nothing to do, while there is no NodeProbe.
fn taken_apart(order: Option<NodeProbe>) -> (Option<OrderId>, Vec<Assignment>) {
    let Some(NodeProbe { metadata, spec, .. }) = order else {
        return (None, Vec::new());
    };
    let id = (
        metadata.uid.unwrap_or_default(),
        metadata.generation.unwrap_or_default(),
    );
    (Some(id), spec.assignments)
}

/// When a report is due even if nothing happens: a target without a process ends no interval, and an agent that says
/// nothing for three of them counts as silent.
fn heartbeat(reported: Instant, assignments: &[Assignment]) -> Option<Instant> {
    let intervals = assignments.iter();
    let shortest = intervals.map(|order| order.report_interval.get()).min()?;
    Some(reported + shortest)
}

/// The orders that have not expired.
fn current(assignments: &[Assignment], now: Timestamp) -> Vec<Assignment> {
    let lasts = |assignment: &&Assignment| match &assignment.expires_at {
        Some(Time(end)) => *end > now,
        None => true,
    };
    assignments.iter().filter(lasts).cloned().collect()
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

async fn ended(task: &mut JoinHandle<()>) {
    if let Err(error) = task.await {
        warn!(%error, "a task failed");
    }
}

#[cfg(test)]
mod tests;
