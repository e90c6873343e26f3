//! What one namespace, one pod and one node may take of the installation, and how it is said that more is asked.

use crate::world::TargetPod;

/// What a namespace and a pod may take. Whoever installs ckb-probe sets it; within a namespace the oldest CkbProbes are
/// served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// CkbProbes of one namespace that are measured at the same time.
    pub ckb_probes_per_namespace: usize,
    /// Targets of all CkbProbes of one namespace together: a pod that three of them select counts three times.
    pub targets_per_namespace: usize,
    /// CkbProbes that measure one pod.
    pub ckb_probes_per_target: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ckb_probes_per_namespace: 500,
            targets_per_namespace: 10_000,
            ckb_probes_per_target: 128,
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
