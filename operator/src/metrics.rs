//! The operator's own metrics.

use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder, core::Collector,
};

use crate::world::ObjectKey;

mod profiles;

pub use profiles::ProfileMetrics;

/// Seconds: a reconcile is a few requests to the API server.
const BUCKETS: [f64; 13] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Every metric, registered once.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    durations: HistogramVec,
    merges: Histogram,
    errors: IntCounterVec,
    untold: IntCounter,
    leader: IntGauge,
    probes: IntGauge,
    targets: IntGauge,
    node_probes: IntGauge,
    anomalies: IntGaugeVec,
    /// The metrics of profiles.
    pub profiles: ProfileMetrics,
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "ckb_probe_reconcile_duration_seconds",
                "How long bringing one node, or the status of one CkbProbe, in order took.",
            )
            .buckets(BUCKETS.to_vec()),
            &["kind"],
        )?;
        let merges = Histogram::with_opts(
            HistogramOpts::new(
                "ckb_probe_merge_duration_seconds",
                "How long making the status of one CkbProbe out of agents' reports took, until it was handed over to be written.",
            )
            .buckets(BUCKETS.to_vec()),
        )?;
        let errors = IntCounterVec::new(
            Opts::new(
                "ckb_probe_reconcile_errors_total",
                "Failures to read from or write to the API server, by what failed.",
            ),
            &["reason"],
        )?;
        let untold = IntCounter::new(
            "ckb_probe_operator_events_dropped_total",
            "Events of CkbProbes and NodeProbes that were not written, for one had had too many.",
        )?;
        let gauge = |name: &str, help: &str| IntGauge::new(name, help);
        let metrics = Self {
            leader: gauge(
                "ckb_probe_operator_leader",
                "1 when this replica leads, 0 when it stands by.",
            )?,
            probes: gauge("ckb_probe_operator_ckbprobes", "CkbProbes that are served.")?,
            targets: gauge(
                "ckb_probe_operator_targets",
                "Entries of the agents' orders: each a pod and what is asked of it.",
            )?,
            node_probes: gauge(
                "ckb_probe_operator_nodeprobes",
                "Nodes that are to have an agent.",
            )?,
            anomalies: IntGaugeVec::new(
                Opts::new(
                    "ckb_probe_anomalies",
                    "Figures of a CkbProbe that are not as they usually are; not there while there is none.",
                ),
                &["namespace", "ckbprobe"],
            )?,
            profiles: ProfileMetrics::new(&registry)?,
            registry,
            durations,
            merges,
            errors,
            untold,
        };
        let all: [Box<dyn Collector>; 9] = [
            Box::new(metrics.durations.clone()),
            Box::new(metrics.merges.clone()),
            Box::new(metrics.errors.clone()),
            Box::new(metrics.untold.clone()),
            Box::new(metrics.anomalies.clone()),
            Box::new(metrics.leader.clone()),
            Box::new(metrics.probes.clone()),
            Box::new(metrics.targets.clone()),
            Box::new(metrics.node_probes.clone()),
        ];
        for one in all {
            metrics.registry.register(one)?;
        }
        Ok(metrics)
    }

    /// One object of this kind took so long.
    pub fn reconciled(&self, kind: &str, took: Duration) {
        self.durations
            .with_label_values(&[kind])
            .observe(took.as_secs_f64());
    }

    /// A status that is to be written was made within so long.
    pub fn merged(&self, took: Duration) {
        self.merges.observe(took.as_secs_f64());
    }

    /// Something failed.
    pub fn failed(&self, reason: &str) {
        self.errors.with_label_values(&[reason]).inc();
    }

    /// An Event of a CkbProbe was not written, for it has had too many.
    pub fn dropped_event(&self) {
        self.untold.inc();
    }

    /// Whether this replica leads.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// How much there is to look after.
    pub fn set_extent(&self, probes: usize, targets: usize, node_probes: usize) {
        self.probes.set(probes as i64);
        self.targets.set(targets as i64);
        self.node_probes.set(node_probes as i64);
    }

    /// So many figures of a CkbProbe are not as they usually are.
    pub fn set_anomalies(&self, probe: &ObjectKey, anomalies: usize) {
        let labels = [&*probe.namespace, &*probe.name];
        match anomalies {
            // There was none before, or there is none any more: either is well.
            0 => drop(self.anomalies.remove_label_values(&labels)),
            _ => self
                .anomalies
                .with_label_values(&labels)
                .set(anomalies as i64),
        }
    }

    /// In the text format of Prometheus.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
