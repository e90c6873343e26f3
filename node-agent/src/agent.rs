//! The agent: takes its orders from the NodeProbe of its node, and writes its report there.

mod exchange;
mod metric_export;
mod pace;

use std::{
    collections::BTreeMap, future::pending, io::stdout, pin::pin, sync::Arc, time::Duration,
};

use ckb_probe_crds::{AgentStatus, Assignment, NodeProbe, NodeProbeStatus, ProfilePart};
use ckb_probe_traces::Signal;
use exchange::{
    Written, orders,
    parts::{Queue, write_parts},
    write_reports,
};
use futures::StreamExt;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};
use kube::{Api, Client};
use metric_export::MetricExport;
pub use pace::FLOOR as REPORT_FLOOR;
use pace::{News, Pace};
use serde_json::{Value, json};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tracing::{error, info, warn};

use crate::{
    alarm::Alarm,
    driver::{
        engine::Engine,
        workers::{Errand, Outcome},
    },
    export::{exporters::Exporters, exposition, metrics, span_metrics},
    kernel::{CalibratedTier, Execs, Tier, memory},
    lines::{LAST_LINES, Lines},
    mechanism::{NodePolicy, Refusal},
    observe,
    preflight::{Preflight, preflight},
    server::{self, MetricsRequest, Pulse, Server, ServerError},
};

/// How often the ring buffers of slow calls are emptied: a thousand slow calls fit in between.
const DRAIN: Duration = Duration::from_millis(250);

/// So long the engine waits for a look at /proc, which goes on beside it where it takes longer.
const PATIENCE: Duration = Duration::from_millis(20);

/// At its end the agent waits no longer for windows of stacks to be written. It is killed after five seconds.
const LAST_PARTS: Duration = Duration::from_secs(2);

/// Nor for spans to be exported.
const LAST_SPANS: Duration = Duration::from_secs(1);

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

    match settings.memory_limit.or_else(observe::memory_limit) {
        Some(bytes) => {
            memory::budget().limit(bytes);
            let megabytes = bytes >> 20;
            info!(megabytes, "what is measured must fit into this memory");
        }
        None => info!("no limit of memory is known: whatever is asked is measured"),
    }
    let preflight = preflight(settings.tier);
    let about = about(&settings, &preflight);
    log(&preflight);

    let server = Server::open(&settings.server, client.clone()).await?;
    let pulse = Arc::new(Pulse::default());
    let (serving, mut wanted) = server.serve(Arc::clone(&pulse))?;
    let mut server = tokio::spawn(serving);

    let parts = Arc::new(Queue::default());
    let api: Api<ProfilePart> = Api::namespaced(client.clone(), &settings.namespace);
    let node = settings.node.clone();
    let mut parts_writer = tokio::spawn(write_parts(api, node, Arc::clone(&parts)));
    let api: Api<NodeProbe> = Api::namespaced(client, &settings.namespace);
    let (reports, latest) = watch::channel(None);
    let written = Arc::new(Written::default());
    let mut writer = tokio::spawn(write_reports(
        api.clone(),
        settings.node.clone(),
        latest,
        Arc::clone(&written),
    ));
    // In a task of its own: what is measured wakes the loop often, and that is nothing to the watch.
    let watch = orders(api, &settings.node);
    let (order, mut orders) = mpsc::channel(1);
    let mut watcher = tokio::spawn(async move {
        let mut watch = pin!(watch);
        while let Some(changed) = watch.next().await
            && order.send(changed).await.is_ok()
        {}
    });

    for (exporter, to) in &settings.traces {
        let receiver = to.receiver();
        info!(
            exporter,
            receiver, "traces are exported where a CkbProbe asks for it"
        );
    }
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
        written,
        parts,
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
            _ = ended(&mut server) => return Err(AgentError::TaskEnded("server")),
            _ = ended(&mut writer) => return Err(AgentError::TaskEnded("reports")),
            _ = ended(&mut parts_writer) => return Err(AgentError::TaskEnded("profile parts")),
            _ = ended(&mut watcher) => return Err(AgentError::TaskEnded("orders")),
            Some(order) = orders.recv() => {
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
            reports.send_replace(Some(work.report()));
        }
    }
    work.drain();
    work.lines.flush(LAST_LINES);
    work.hand_over().await;
    for said in work.engine.end_export().end(LAST_SPANS) {
        info!("{said}");
    }
    if let Some(said) = work.metrics.and_then(|metrics| metrics.end(LAST_SPANS)) {
        info!("{said}");
    }
    info!("detaching everything");
    work.engine.end();
    Ok(())
}

struct Work {
    /// What happens to targets, for the agent's log.
    lines: Lines,
    metrics: Option<MetricExport>,
    pace: Pace,
    written: Arc<Written>,
    parts: Arc<Queue>,
    engine: Engine,
    /// The whole order, with what has expired: a clock that was ahead for a moment is right again.
    assignments: Vec<Assignment>,
    /// So many of them had not expired when the engine was last told.
    in_force: usize,
    about: AgentStatus,
    order: Option<OrderId>,
    /// The order that the engine has carried out: which a report answers.
    carried_out: Option<OrderId>,
    /// One at a time, however many want metrics: each takes as much memory as all that is told.
    rendering: Option<Errand<()>>,
    ordered: bool,
}

/// The uid and generation of a NodeProbe: a report changes the object too, but only these make a new order.
type OrderId = (String, i64);

impl Work {
    fn take(&mut self, order: Option<NodeProbe>) {
        self.ordered = true;
        let (id, assignments) = taken_apart(order);
        if id == self.order {
            return;
        }
        self.order = id;
        self.assignments = assignments;
        self.assign(Timestamp::now());
    }

    /// Notes it when the last order is carried out. True when that is new: the report says which generation it answers.
    fn carries_out(&mut self) -> bool {
        let is_new = self.carried_out != self.order && !self.engine.is_looking();
        if is_new {
            self.carried_out = self.order.clone();
        }
        is_new
    }

    /// Answers with the text of `/metrics`, which is made where nobody waits for it. False: nothing changed.
    fn render(&mut self, request: MetricsRequest) -> bool {
        self.engine.read();
        let (now, instances) = self.engine.instances();
        let means = self.engine.means();
        let (reports, parts) = (self.written.count(), self.parts.count());
        let spans = self.engine.span_counts();
        let points = self.metrics.as_mut().map(MetricExport::counts);
        let exemplars = self.engine.exemplars();
        self.rendering = Some(self.engine.aside(move || {
            let instances = instances.iter().map(|instance| &**instance);
            let mut families = metrics::families(means, now, instances, &exemplars);
            families.extend(reports.families());
            families.extend(parts.families());
            let spans = spans.iter();
            let spans = spans.map(|(name, counts)| (Some(name.as_str()), *counts));
            let spans: Vec<_> = spans.collect();
            families.extend(span_metrics::families(Signal::Traces, &spans));
            let points: Vec<_> = points.iter().map(|counts| (None, *counts)).collect();
            families.extend(span_metrics::families(Signal::Metrics, &points));
            let text = exposition::page(&families, request.format);
            let text = text.map_err(|error| format!("cannot render the metrics: {error}\n"));
            // Whoever asked may have gone.
            let _ = request.answer.send(text);
        }));
        false
    }

    /// Exports what was counted up to now, beside all else. False: nothing changed.
    fn export_metrics(&mut self) -> bool {
        let Some(metrics) = &mut self.metrics else {
            return false;
        };
        self.engine.read();
        metrics.export(&self.engine);
        false
    }

    /// Whether metrics are being rendered; [`Engine::news`] tells of the end.
    fn is_rendering(&mut self) -> bool {
        let is_under_way = |one: &Errand<()>| one.outcome() == Outcome::UnderWay;
        self.rendering = self.rendering.take().filter(is_under_way);
        self.rendering.is_some()
    }

    fn assign(&mut self, now: Timestamp) {
        let current: Vec<_> = current(&self.assignments, now).cloned().collect();
        self.in_force = current.len();
        self.engine.assign(current);
    }

    /// Detaches what has expired, also while no operator is there to withdraw it; and attaches what has not after all, where the
    /// clock was set back. True when there was something.
    fn expire(&mut self, now: Timestamp) -> bool {
        // What expires later is in force whenever what expires earlier is: as many are the same.
        let differs = current(&self.assignments, now).count() != self.in_force;
        if differs {
            self.assign(now);
        }
        differs
    }

    /// The node's interval: the shortest that anybody asks for whose order is in force.
    fn interval(&self) -> Option<Duration> {
        let current = current(&self.assignments, Timestamp::now());
        current.map(|order| order.report_interval.get()).min()
    }

    fn drain(&mut self) {
        let lines = self.engine.events().into_iter();
        let unread = lines.filter(|line| !self.lines.offer(format!("{line}\n").into_bytes()));
        let unread: Vec<Value> = unread.collect();
        // The status still lists the weightiest.
        self.engine.leave_out(&unread);
        for delivery in self.engine.finished() {
            self.parts.put(delivery);
        }
    }

    /// Has what was gathered up to now written, as far as the API server takes it at once.
    async fn hand_over(&mut self) {
        for delivery in self.engine.last() {
            self.parts.put(delivery);
        }
        if timeout(LAST_PARTS, self.parts.rest()).await.is_err() {
            warn!(
                "some windows of stacks were not written: the API server did not take them in time"
            );
        }
    }

    /// Ends the intervals that are over. False: what is new is no reason to write a report before it is due, unless it is noted
    /// here that a target stands otherwise than was told.
    fn close_windows(&mut self) -> bool {
        if self.engine.close_windows() {
            self.pace.note(News::Figures);
        }
        self.engine.stands_otherwise()
    }

    /// When a report is due.
    fn due(&self) -> Option<Instant> {
        let asked = self.interval();
        let kept = asked.map(|asked| self.written.stretch(asked));
        self.pace.due(kept, self.written.apart())
    }

    fn report(&mut self) -> NodeProbeStatus {
        self.pace.written(Instant::now());
        let asked = self.interval();
        let kept = asked.map(|asked| self.written.stretch(asked));
        NodeProbeStatus {
            observed_generation: self.carried_out.as_ref().map(|(_, generation)| *generation),
            reported_at: Some(MicroTime(Timestamp::now())),
            report_interval: kept.filter(|_| kept > asked).map(Into::into),
            agent: self.about.clone(),
            instances: self.engine.reports(),
            instances_omitted: 0,
        }
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

/// The orders that have not expired.
fn current(assignments: &[Assignment], now: Timestamp) -> impl Iterator<Item = &Assignment> {
    let lasts = move |assignment: &&Assignment| match &assignment.expires_at {
        Some(Time(end)) => *end > now,
        None => true,
    };
    assignments.iter().filter(lasts)
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
