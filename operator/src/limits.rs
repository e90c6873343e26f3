//! What one namespace, one pod and one node may take of the installation, and how it is said that more is asked.

mod exporters;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ckb_probe_crds::{CkbProbeSpec, Kind, Reason};

pub use self::exporters::AdmittedExporters;
use crate::world::{Bounds, TargetPod};

/// What a namespace and a pod may take. Whoever installs ckb-probe sets it; within a namespace the oldest CkbProbes are
/// served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits {
    /// CkbProbes of one namespace that are measured at the same time.
    pub ckb_probes_per_namespace: usize,
    /// Targets of all CkbProbes of one namespace together: a pod that three of them select counts three times.
    pub targets_per_namespace: usize,
    /// CkbProbes that measure one pod.
    pub ckb_probes_per_target: usize,
    /// Bytes that the CkbProfiles of one namespace take of the API server's store.
    pub profile_bytes_per_namespace: u64,
    /// No CkbProbe is reported on more often, whatever it asks.
    pub min_report_interval: Duration,
    /// What may be measured at all.
    pub kinds: AdmittedKinds,
    /// Where traces may go.
    pub exporters: AdmittedExporters,
}

/// The kinds of probes that are admitted. Some look at the whole node, which is not everybody's to see.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AdmittedKinds {
    /// A bit for each kind.
    everywhere: u32,
    /// Namespaces in which every kind is.
    all_in: Arc<BTreeSet<String>>,
}

impl Default for AdmittedKinds {
    /// Every kind that there is.
    fn default() -> Self {
        Self {
            everywhere: u32::MAX,
            all_in: Arc::default(),
        }
    }
}

impl AdmittedKinds {
    /// Those that are named, separated by commas.
    ///
    /// # Errors
    ///
    /// When one is not the name of a kind.
    pub fn parse(names: &str) -> Result<Self, String> {
        let mut everywhere = 0;
        for name in names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            let mut kinds = Kind::ALL.iter().filter(|kind| kind.as_str() == name);
            let Some(kind) = kinds.next() else {
                let known: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
                return Err(format!(
                    "{name} is no kind of probe: {} are",
                    known.join(", ")
                ));
            };
            everywhere |= bit(*kind);
        }
        Ok(Self {
            everywhere,
            ..Self::default()
        })
    }

    /// And every kind in these namespaces.
    #[must_use]
    pub fn and_all_in(self, namespaces: impl IntoIterator<Item = String>) -> Self {
        let named = namespaces.into_iter().filter(|name| !name.is_empty());
        Self {
            all_in: Arc::new(named.collect()),
            ..self
        }
    }

    /// The first kind of the spec's probes that is not admitted in this namespace.
    pub fn refused(&self, namespace: &str, spec: &CkbProbeSpec) -> Option<Kind> {
        if self.all_in.contains(namespace) {
            return None;
        }
        let kinds = spec
            .probes
            .iter()
            .filter_map(|probe| Some(probe.kind_spec()?.kind()));
        kinds
            .into_iter()
            .find(|kind| self.everywhere & bit(*kind) == 0)
    }
}

fn bit(kind: Kind) -> u32 {
    1 << kind as u32
}

/// Of paused ones and those that are over there may be more than are measured.
const SPECS_FOR_EACH: usize = 4;

impl Limits {
    /// What keeps the whole of such a CkbProbe from being measured in this namespace, whatever else is asked there.
    pub fn refused(&self, namespace: &str, spec: &CkbProbeSpec) -> Option<Limit> {
        let kind = self.kinds.refused(namespace, spec).map(Limit::Kind);
        let exporter = || {
            self.exporters
                .refuse(namespace, spec)
                .then_some(Limit::Exporter)
        };
        kind.or_else(exporter)
    }

    /// What is taken of what CkbProbes ask at all.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            min_report_interval: self.min_report_interval,
            specs_per_namespace: self.ckb_probes_per_namespace.saturating_mul(SPECS_FOR_EACH),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ckb_probes_per_namespace: 500,
            targets_per_namespace: 10_000,
            ckb_probes_per_target: 128,
            profile_bytes_per_namespace: 64 << 20,
            min_report_interval: Duration::from_secs(5),
            kinds: AdmittedKinds::default(),
            exporters: AdmittedExporters::default(),
        }
    }
}

/// A limit that something is beyond, with its value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    /// [`Limits::ckb_probes_per_namespace`].
    CkbProbesPerNamespace(usize),
    /// [`Limits::targets_per_namespace`].
    TargetsPerNamespace(usize),
    /// [`Limits::ckb_probes_per_target`].
    CkbProbesPerTarget(usize),
    /// Not in [`Limits::kinds`].
    Kind(Kind),
    /// The exporter that is named is not in [`Limits::exporters`] for this namespace.
    Exporter,
    /// Containers of one pod that are looked in. Nobody can raise it.
    Containers(usize),
    /// What the order of one node holds, with so many bytes and entries. Nobody can raise it.
    Order {
        /// Bytes of all entries.
        bytes: usize,
        /// Entries.
        entries: usize,
    },
}

impl Limit {
    /// The word for it in a status.
    pub fn reason(self) -> Reason {
        match self {
            Self::Kind(_) => Reason::KindNotAdmitted,
            Self::Exporter => Reason::ExporterNotAdmitted,
            Self::CkbProbesPerNamespace(_)
            | Self::TargetsPerNamespace(_)
            | Self::CkbProbesPerTarget(_)
            | Self::Containers(_)
            | Self::Order { .. } => Reason::LimitExceeded,
        }
    }

    /// Which limit it is that keeps this pod from being measured, and what to do about it.
    pub fn message(self, pod: &TargetPod) -> String {
        let namespace = &pod.reference.namespace;
        let name = format!("pod {namespace}/{}", pod.reference.name);
        let (value, what, limit) = match self {
            Self::CkbProbesPerNamespace(value) => (
                value,
                format!("CkbProbes of namespace {namespace}"),
                "ckbProbesPerNamespace",
            ),
            Self::TargetsPerNamespace(value) => (
                value,
                format!("targets of all CkbProbes of namespace {namespace} together"),
                "targetsPerNamespace",
            ),
            Self::CkbProbesPerTarget(value) => (
                value,
                "CkbProbes on one pod".to_owned(),
                "ckbProbesPerTarget",
            ),
            Self::Kind(kind) => {
                let kind = kind.as_str();
                return format!(
                    "{name} is not measured: this installation does not admit probes of the kind {kind}. Remove them from this \
                     CkbProbe, or ask whoever installed ckb-probe to add {kind} to kinds.admitted of its chart, or namespace \
                     {namespace} to kinds.allIn"
                );
            }
            Self::Exporter => {
                return format!(
                    "{name} is not measured: this installation has no exporter of the name in traces.exporter that namespace {namespace} \
                     may name. Leave it out for the default, name another, or ask whoever installed ckb-probe to add the namespace to \
                     otlp.exporters of its chart"
                );
            }
            Self::Containers(value) => {
                return format!(
                    "{name} is not measured: it has more than the {value} containers that are looked in: name one of them in \
                     target.container"
                );
            }
            Self::Order { bytes, entries } => {
                let node = pod.node.as_deref().unwrap_or_default();
                return format!(
                    "{name} is not measured: all that is asked of the pods on node {node} is more than the {entries} entries, or \
                     {bytes} bytes, that the order of a node holds, of which each namespace has an equal share. It is no setting: \
                     narrow target.selector, or let CkbProbes ask the same, which takes one entry for all of them"
                );
            }
        };
        format!(
            "{name} is not measured: more is asked than the {value} {what} that this installation admits, of which the oldest \
             CkbProbes come first. Delete or pause some, or ask whoever installed ckb-probe to raise limits.{limit} of its chart"
        )
    }
}
