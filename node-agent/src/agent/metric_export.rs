//! When an agent exports its figures, besides being asked for them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ckb_probe_traces::{Counts, Limits, Settings};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;
use tracing::{error, info};

use crate::{
    driver::{
        engine::Engine,
        workers::{Errand, Outcome},
    },
    export::metric_sink::MetricSink,
};

/// What is written is some megabytes, which nobody waits for.
pub(super) struct MetricExport {
    sink: Arc<Mutex<MetricSink>>,
    interval: Duration,
    next: Instant,
    /// One at a time.
    under_way: Option<Errand<()>>,
    counts: Counts,
}

impl MetricExport {
    /// Begins to export. Where that cannot be, everything is measured all the same.
    pub(super) fn start(to: Settings, interval: Duration, node: &str) -> Option<Self> {
        let receiver = to.receiver();
        let who = vec![
            ("service.name".into(), "ckb-probe".into()),
            ("service.instance.id".into(), node.into()),
            ("k8s.node.name".into(), node.into()),
        ];
        match MetricSink::start(to, Limits::DEFAULT, who) {
            Ok(sink) => {
                info!(receiver, "figures are exported");
                Some(Self {
                    sink: Arc::new(Mutex::new(sink)),
                    interval,
                    next: Instant::now() + interval,
                    under_way: None,
                    counts: Counts::default(),
                })
            }
            Err(error) => {
                error!(receiver, %error, "no figures are exported");
                None
            }
        }
    }

    /// When they are next.
    pub(super) fn due(&self) -> Instant {
        self.next
    }

    /// Exports what has been read. What is still being written of the last time comes first: figures of this time are then in the next.
    pub(super) fn export(&mut self, engine: &Engine) {
        self.next = Instant::now() + self.interval;
        let is_under_way = |one: &Errand<()>| one.outcome() == Outcome::UnderWay;
        self.under_way = self.under_way.take().filter(is_under_way);
        if self.under_way.is_some() {
            return;
        }
        let (now, instances) = engine.instances();
        let (exemplars, sink) = (engine.exemplars(), Arc::clone(&self.sink));
        let time = Timestamp::now();
        self.under_way = Some(engine.aside(move || {
            let instances = instances.iter().map(|instance| &**instance);
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            sink.offer(now, time, instances, &exemplars);
        }));
    }

    /// What became of all points up to now; or up to the last time that was asked, while some are being written.
    pub(super) fn counts(&mut self) -> Counts {
        if let Ok(sink) = self.sink.try_lock() {
            self.counts = sink.counts();
        }
        self.counts
    }

    /// Sends what there is, for no longer than this, and says what became of all; None where the last are still being written.
    pub(super) fn end(self, within: Duration) -> Option<String> {
        let sink = Arc::into_inner(self.sink)?.into_inner();
        Some(sink.unwrap_or_else(PoisonError::into_inner).end(within))
    }
}
