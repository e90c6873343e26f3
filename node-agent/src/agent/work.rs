//! What the agent does between two of its reports: with orders, with requests for metrics, and with what was measured.

use std::{sync::Arc, time::Duration};

use ckb_probe_crds::{AgentStatus, Assignment, NodeProbe, NodeProbeStatus};
use ckb_probe_traces::Signal;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::{
    exchange::{Written, parts::Queue},
    metric_export::MetricExport,
    pace::{News, Pace},
};
use crate::{
    driver::{
        engine::Engine,
        workers::{Errand, Outcome},
    },
    export::{exposition, metrics, span_metrics},
    lines::{LAST_LINES, Lines},
    server::MetricsRequest,
};

/// At its end the agent waits no longer for windows of stacks to be written. It is killed after five seconds.
const LAST_PARTS: Duration = Duration::from_secs(2);

/// Nor for spans to be exported.
const LAST_SPANS: Duration = Duration::from_secs(1);

/// What the agent has in hand: its orders, what it measures for them, and what it has to say of it.
pub(super) struct Work {
    /// What happens to targets, for the agent's log.
    pub(super) lines: Lines,
    pub(super) metrics: Option<MetricExport>,
    pub(super) pace: Pace,
    pub(super) written: Arc<Written>,
    pub(super) parts: Arc<Queue>,
    pub(super) engine: Engine,
    /// The whole order, with what has expired: a clock that was ahead for a moment is right again.
    pub(super) assignments: Vec<Assignment>,
    /// So many of them had not expired when the engine was last told.
    pub(super) in_force: usize,
    pub(super) about: AgentStatus,
    pub(super) order: Option<OrderId>,
    /// The order that the engine has carried out: which a report answers.
    pub(super) carried_out: Option<OrderId>,
    /// One at a time, however many want metrics: each takes as much memory as all that is told.
    pub(super) rendering: Option<Errand<()>>,
    pub(super) ordered: bool,
}

/// The uid and generation of a NodeProbe: a report changes the object too, but only these make a new order.
type OrderId = (String, i64);

impl Work {
    pub(super) fn take(&mut self, order: Option<NodeProbe>) {
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
    pub(super) fn carries_out(&mut self) -> bool {
        let is_new = self.carried_out != self.order && !self.engine.is_looking();
        if is_new {
            self.carried_out = self.order.clone();
        }
        is_new
    }

    /// Answers with the text of `/metrics`, which is made where nobody waits for it. False: nothing changed.
    pub(super) fn render(&mut self, request: MetricsRequest) -> bool {
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
    pub(super) fn export_metrics(&mut self) -> bool {
        let Some(metrics) = &mut self.metrics else {
            return false;
        };
        self.engine.read();
        metrics.export(&self.engine);
        false
    }

    /// Whether metrics are being rendered; [`Engine::news`] tells of the end.
    pub(super) fn is_rendering(&mut self) -> bool {
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
    pub(super) fn expire(&mut self, now: Timestamp) -> bool {
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

    pub(super) fn drain(&mut self) {
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
    pub(super) fn close_windows(&mut self) -> bool {
        if self.engine.close_windows() {
            self.pace.note(News::Figures);
        }
        self.engine.stands_otherwise()
    }

    /// When a report is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let asked = self.interval();
        let kept = asked.map(|asked| self.written.stretch(asked));
        self.pace.due(kept, self.written.apart())
    }

    pub(super) fn report(&mut self) -> NodeProbeStatus {
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

    /// Hands over what there is, and detaches everything.
    pub(super) async fn end(mut self) {
        self.drain();
        self.lines.flush(LAST_LINES);
        self.hand_over().await;
        for said in self.engine.end_export().end(LAST_SPANS) {
            info!("{said}");
        }
        if let Some(said) = self.metrics.and_then(|metrics| metrics.end(LAST_SPANS)) {
            info!("{said}");
        }
        info!("detaching everything");
        self.engine.end();
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
pub(super) fn current(
    assignments: &[Assignment],
    now: Timestamp,
) -> impl Iterator<Item = &Assignment> {
    let lasts = move |assignment: &&Assignment| match &assignment.expires_at {
        Some(Time(end)) => *end > now,
        None => true,
    };
    assignments.iter().filter(lasts)
}
