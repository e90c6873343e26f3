//! The agent: takes its orders from the NodeProbe of its node, and writes its report there.

mod exchange;
mod metric_export;
mod pace;
mod tasks;
mod work;

use std::{collections::BTreeMap, future::pending, io::stdout, sync::Arc, time::Duration};

use ckb_probe_crds::AgentStatus;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use kube::Client;
use metric_export::MetricExport;
pub use pace::FLOOR as REPORT_FLOOR;
use pace::{News, Pace};
use serde_json::json;
use tasks::Tasks;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep_until},
};
use tracing::{error, info, warn};
use work::Work;

use crate::{
    alarm::Alarm,
    driver::engine::Engine,
    export::exporters::Exporters,
    kernel::{CalibratedTier, Execs, Tier, memory},
    lines::Lines,
    mechanism::{NodePolicy, Refusal},
    observe,
    preflight::{Preflight, preflight},
    server::{self, Pulse, Server, ServerError},
};

/// How often the ring buffers of slow calls are emptied: a thousand slow calls fit in between.
const DRAIN: Duration = Duration::from_millis(250);

/// So long the engine waits for a look at /proc, which goes on beside it where it takes longer.
const PATIENCE: Duration = Duration::from_millis(20);

/// Who the agent is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node it runs on, and so the name of its NodeProbe.
    pub node: String,
    /// The namespace of its NodeProbe.
    pub namespace: String,
    /// Its own pod, for the report.
    pub pod: String,
    /// Where it is asked for metrics and for signs of life.
    pub server: server::Settings,
    /// The one way to attach that may be used, for tests; the best that works, when unset.
    pub tier: Option<Tier>,
    /// What measuring may cost any process, in percent of its CPU time, whatever is asked; unset: what is asked.
    pub max_overhead_percent: Option<f64>,
    /// What it may cost any of them besides, in percent of one core, whatever is asked; unset: what is asked.
    pub max_overhead_floor: Option<f64>,
    /// What may be looked at beyond the targets, whatever is asked.
    pub policy: NodePolicy,
    /// No two reports are closer together: [`REPORT_FLOOR`] but in tests.
    pub report_floor: Duration,
    /// Where traces may go, by the names that orders have for it.
    pub traces: BTreeMap<String, ckb_probe_traces::Settings>,
    /// Where figures go besides `/metrics`, if anywhere, and how often.
    pub figures: Option<(ckb_probe_traces::Settings, Duration)>,
    /// How many bytes of memory it may take, for tests; what its cgroup says, when unset.
    pub memory_limit: Option<u64>,
}

/// The agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody could ask it anything.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Signals cannot be caught.
    #[error("cannot wait for signals: {0}")]
    Signal(#[source] std::io::Error),
    /// Nothing can be printed.
    #[error("cannot begin to print: {0}")]
    Lines(#[source] std::io::Error),
    /// It cannot be woken when something is due.
    #[error("cannot wait for a time: {0}")]
    Alarm(#[source] std::io::Error),
    /// A task that must run for ever ended.
    #[error("the task {0} ended")]
    TaskEnded(&'static str),
}

/// Runs until SIGTERM or SIGINT, and detaches everything before it returns.
pub async fn run(client: Client, settings: Settings) -> Result<(), AgentError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(AgentError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(AgentError::Signal)?;

    limit_memory(settings.memory_limit);
    let preflight = preflight(settings.tier);
    let about = about(&settings, &preflight);
    log(&preflight);

    let server = Server::open(&settings.server, client.clone()).await?;
    let pulse = Arc::new(Pulse::default());
    let (serving, mut wanted) = server.serve(Arc::clone(&pulse))?;
    let (mut tasks, mut exchange) = Tasks::start(serving, &client, &settings);
    tell_exporters(&settings.traces);
    let spans = Exporters::new(settings.traces, settings.node.clone());
    let figures = settings
        .figures
        .and_then(|(to, interval)| MetricExport::start(to, interval, &settings.node));
    let unread = |count| {
        let why = "the log was not read: they are counted, and the status lists the weightiest";
        json!({ "time": format!("{:.6}", Timestamp::now()), "linesLeftOut": count, "why": why })
            .to_string()
    };
    let mut work = Work {
        lines: Lines::to(stdout(), unread).map_err(AgentError::Lines)?,
        metrics: figures,
        pace: Pace::new(Instant::now(), settings.report_floor),
        written: Arc::clone(&exchange.written),
        parts: Arc::clone(&exchange.parts),
        engine: Engine::new(preflight.means.map_err(Refusal::from))
            .with_ceiling(settings.max_overhead_percent)
            .with_floor(settings.max_overhead_floor)
            .with_policy(settings.policy)
            .with_spans(spans)
            .with_patience(PATIENCE),
        assignments: Vec::new(),
        in_force: 0,
        about,
        order: None,
        carried_out: None,
        rendering: None,
        ordered: false,
    };
    let mut execs = watch_execs();
    let mut drain = Instant::now() + DRAIN;
    let alarm = Alarm::new().map_err(AgentError::Alarm)?;
    loop {
        let rendering = work.is_rendering();
        let scan = work.engine.next_scan().into();
        let window = work.engine.next_window().map(Instant::from);
        let figures = work.metrics.as_ref().map(MetricExport::due);
        let step = alarm.at(work.engine.next_step());
        let changed = tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            task = tasks.ended() => return Err(AgentError::TaskEnded(task)),
            Some(order) = exchange.orders.recv() => {
                work.take(order);
                false
            }
            Some(metrics) = wanted.recv(), if !rendering => work.render(metrics),
            () = pulse.wanted() => false,
            () = work.engine.process_ended() => work.engine.reconcile(),
            pids = next_execs(&mut execs) => work.engine.execs(&pids),
            woken = step => {
                woken.map_err(AgentError::Alarm)?;
                work.engine.step()
            }
            () = work.engine.news() => work.engine.receive(),
            () = sleep_until(scan), if work.ordered => work.expire(Timestamp::now()) | work.engine.reconcile(),
            () = until(window) => work.close_windows(),
            () = until(work.due()) => false,
            () = until(figures) => work.export_metrics(),
            () = sleep_until(drain), if window.is_some() || work.engine.has_mailboxes() => {
                drain = Instant::now() + DRAIN;
                work.drain();
                work.expire(Timestamp::now())
            }
        };
        pulse.beat(work.ordered);
        if work.carries_out() || changed {
            work.pace.note(News::Standing);
        }
        if work.due().is_some_and(|due| due <= Instant::now()) {
            exchange.reports.send_replace(Some(work.report()));
        }
    }
    work.end().await;
    Ok(())
}

/// What is measured must fit into this memory, or into what the cgroup allows.
fn limit_memory(limit: Option<u64>) {
    match limit.or_else(observe::memory_limit) {
        Some(bytes) => {
            memory::budget().limit(bytes);
            let megabytes = bytes >> 20;
            info!(megabytes, "what is measured must fit into this memory");
        }
        None => info!("no limit of memory is known: whatever is asked is measured"),
    }
}

fn tell_exporters(exporters: &BTreeMap<String, ckb_probe_traces::Settings>) {
    for (exporter, to) in exporters {
        let receiver = to.receiver();
        info!(
            exporter,
            receiver, "traces are exported where a CkbProbe asks for it"
        );
    }
}

fn about(settings: &Settings, preflight: &Preflight) -> AgentStatus {
    let Preflight { checks, means } = preflight;
    let (tier, cost_per_call_ns, single_step_cost_ns) = match means {
        Ok(CalibratedTier {
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
        ceiling_millipercent: settings
            .max_overhead_percent
            .map(|percent| (percent * 1000.0).round() as u64),
        preflight: checks.clone(),
        failure: means.as_ref().err().map(ToString::to_string),
        report_refused: None,
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

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
