//! The agent's loop, with orders of ours and without an API server.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ckb_probe_agent::{
    driver::engine::{Delivery, Engine},
    export::{
        exporters::Exporters,
        exposition::{self, Format},
        metric_sink::MetricSink,
        metrics,
    },
    kernel::{CalibratedTier, Execs, Tier},
    mechanism::Refusal,
    preflight::preflight,
    state::instance::Instance,
};
use ckb_probe_crds::{
    Assignment, Breach, DEFAULT_EXPORTER, InstanceReport, InstanceState, Overhead, PodReference,
    Probe, ProbeReference, Reason,
    kinds::rocksdb::{Operation, RocksDbProbe},
};
use ckb_probe_traces::{Counts, Settings};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::time::sleep_until;

use super::Container;

pub struct Agent {
    engine: Engine,
    /// How many intervals have ended.
    pub windows: u64,
    told: Option<Execs>,
    /// Of how many execs it was told.
    pub execs: usize,
    /// How often it searched /proc for them.
    pub searches_for_execs: u64,
}

/// The means of this machine, or those by a tier.
pub fn means(tier: Option<Tier>) -> Result<CalibratedTier, Refusal> {
    /// Each is tried once, and one after the other: two that calibrate at a time in one process count each other's calls.
    static MEANS: Mutex<BTreeMap<Option<Tier>, Result<CalibratedTier, Refusal>>> =
        Mutex::new(BTreeMap::new());
    let mut known = MEANS.lock().unwrap();
    let tried = known.entry(tier);
    tried
        .or_insert_with(|| preflight(tier).means.map_err(Refusal::from))
        .clone()
}

/// The same, measured all of the time, whatever it costs.
pub fn without_budget(order: Assignment) -> Assignment {
    Assignment {
        overhead: Overhead {
            max_percent: 50.0,
            on_breach: Breach::Report,
            ..Overhead::default()
        },
        ..order
    }
}

impl Agent {
    pub fn start() -> Self {
        Self {
            // As in a storm: no look at /proc is ever done as soon as somebody wants it.
            engine: Engine::new(means(None)).with_patience(Duration::ZERO),
            windows: 0,
            told: None,
            execs: 0,
            searches_for_execs: 0,
        }
    }

    /// It is told of every exec on this machine, as agents are.
    pub fn told_of_execs(self) -> Self {
        Self {
            told: Some(Execs::watch().unwrap()),
            ..self
        }
    }

    /// It gathers slow calls for so long.
    pub fn gathering(self, window: Duration) -> Self {
        Self {
            engine: self.engine.with_profile_window(window),
            ..self
        }
    }

    /// It exports to this receiver what orders ask for.
    pub fn exporting(self, endpoint: &str) -> Self {
        self.exporting_by(&[(DEFAULT_EXPORTER, endpoint)])
    }

    /// It has these exporters, each to a receiver.
    pub fn exporting_by(self, exporters: &[(&str, &str)]) -> Self {
        let settings = exporters.iter().map(|(name, endpoint)| {
            let settings = Settings::new(Some(endpoint), &|_| None).unwrap();
            (name.to_string(), settings.unwrap())
        });
        let spans = Exporters::new(settings.collect(), "node0".to_string());
        Self {
            engine: self.engine.with_spans(spans),
            ..self
        }
    }

    /// The page of metrics of its targets.
    pub fn page(&mut self, format: Format) -> String {
        self.engine.read();
        let (now, instances) = self.engine.instances();
        let instances = instances.iter().map(|instance| &**instance);
        let exemplars = self.engine.exemplars();
        let families = metrics::families(self.engine.means(), now, instances, &exemplars);
        exposition::page(&families, format).unwrap()
    }

    /// Exports what its targets have counted, and says what the page of metrics has of the same, and the targets.
    pub fn export(&mut self, to: &mut MetricSink) -> (String, Vec<Arc<Instance>>) {
        self.engine.read();
        let (now, instances) = self.engine.instances();
        let each = || instances.iter().map(|instance| &**instance);
        let exemplars = self.engine.exemplars();
        to.offer(now, Timestamp::now(), each(), &exemplars);
        let families = metrics::families(None, now, each(), &exemplars);
        (
            exposition::page(&families, Format::Text).unwrap(),
            instances,
        )
    }

    /// What became of all spans.
    pub fn span_counts(&self) -> Counts {
        self.span_counts_by(DEFAULT_EXPORTER)
    }

    /// What became of those that went by this exporter.
    pub fn span_counts_by(&self, exporter: &str) -> Counts {
        self.engine.span_counts()[exporter]
    }

    /// Has it measure the calls in these, as a budget allows that makes it do that in slices.
    pub fn order(&mut self, containers: &[&Container]) {
        self.order_besides(containers, None);
    }

    /// The same, and in a container that never runs it, this executable.
    pub fn order_besides(&mut self, containers: &[&Container], absent: Option<&str>) {
        let orders = containers.iter().map(|one| order(&one.id, &one.executable));
        let none = "0".repeat(64);
        let absent = absent.map(|executable| order(&none, executable));
        self.assign(orders.chain(absent).collect());
    }

    /// Gives it these orders.
    pub fn assign(&mut self, orders: Vec<Assignment>) {
        self.engine.assign(orders);
    }

    /// Goes on until this is so.
    pub async fn until(&mut self, patience: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + patience;
        while !done(self) {
            assert!(Instant::now() < end, "{:#?}", self.engine.reports());
            self.turn().await;
        }
    }

    async fn turn(&mut self) {
        let engine = &mut self.engine;
        let (scan, window, step) = (engine.next_scan(), engine.next_window(), engine.next_step());
        let told = &mut self.told;
        let execs = async move {
            match told {
                Some(told) => told.next().await.unwrap(),
                None => pending().await,
            }
        };
        tokio::select! {
            pids = execs => {
                self.execs += pids.len();
                let before = engine.searches();
                engine.execs(&pids);
                self.searches_for_execs += engine.searches() - before;
            }
            () = engine.process_ended() => { engine.reconcile(); }
            () = engine.news() => { engine.receive(); }
            () = until(step) => { engine.step(); }
            () = until(Some(scan)) => { engine.reconcile(); }
            () = until(window) => self.windows += u64::from(engine.close_windows()),
        }
    }

    /// What was finished since the last time.
    pub fn finished(&mut self) -> Vec<Delivery> {
        self.engine.finished()
    }

    /// The lines of what happened since the last time.
    pub fn events(&mut self) -> Vec<Value> {
        self.engine.events()
    }

    fn report(&mut self, of: &Container) -> InstanceReport {
        let reports = self.engine.reports().into_iter();
        let mut reports = reports.filter(|report| report.pod.name == of.id);
        reports.next().unwrap_or_default()
    }

    /// What it says of the container on behalf of the CkbProbe of this name.
    pub fn report_to(&mut self, probe: &str, of: &Container) -> Option<InstanceReport> {
        let mut reports = self.engine.reports().into_iter();
        reports.find(|report| report.pod.name == of.id && report.probe.name == probe)
    }

    pub fn state(&mut self, of: &Container) -> (InstanceState, Reason) {
        let report = self.report(of);
        (report.state, report.reason.unwrap_or(Reason::Attaching))
    }

    pub fn message(&mut self, of: &Container) -> String {
        self.report(of).message
    }

    pub fn gap(&mut self, of: &Container) -> Duration {
        Duration::from_millis(self.report(of).gap_milliseconds)
    }

    /// How often it searched /proc, for whatever reason.
    pub fn searches(&self) -> u64 {
        self.engine.searches()
    }

    /// How many calls were counted up to now.
    pub fn samples_of_now(&mut self, of: &Container) -> u64 {
        self.engine.read();
        self.samples(of)
    }

    /// How many were when that was read last.
    pub fn samples(&mut self, of: &Container) -> u64 {
        let report = self.report(of);
        let rows = report.probes.iter().flat_map(|probe| &probe.rows);
        let counts = rows.map(|row| row.total.distributions.values().map(|one| one.count()));
        counts.flatten().sum()
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => pending().await,
    }
}

/// What it has it measure in a container, where it is asked for calls.
pub fn order(container: &str, executable: &str) -> Assignment {
    let calls = RocksDbProbe {
        operations: vec![Operation::Get],
        ..RocksDbProbe::default()
    };
    let probes = vec![Probe::new("storage", calls.into())];
    order_of("silence", container, executable, probes)
}

/// What the CkbProbe of this name asks of a container.
pub fn order_of(name: &str, container: &str, executable: &str, probes: Vec<Probe>) -> Assignment {
    Assignment {
        probe: ProbeReference {
            namespace: "tests".to_string(),
            name: name.to_string(),
            uid: name.to_string(),
        },
        pod: PodReference {
            namespace: "tests".to_string(),
            name: container.to_string(),
            uid: format!("uid-{container}"),
        },
        containers: vec![ckb_probe_crds::Container {
            name: "target".to_string(),
            id: Some(container.to_string()),
        }],
        executable: executable.to_string(),
        report_interval: Duration::from_secs(1).into(),
        overhead: Overhead {
            max_percent: 20.0,
            on_breach: Breach::Sample,
            ..Overhead::default()
        },
        probes,
        traces: None,
        asks: String::new(),
        expires_at: None,
    }
}
