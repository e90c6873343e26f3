//! A NodeProbe, parsed, with the time at which its agent was last heard.

use std::collections::BTreeSet;

use ckb_probe_crds::{NodeProbeSpec, NodeProbeStatus, ProbeReference};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;

use super::{ObjectKey, Raw, Row, Table};

/// A NodeProbe as the API has it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeProbeRow {
    /// The node's name, which is its own.
    pub node: String,
    /// Tells it apart from a later one of the same name.
    pub uid: String,
    /// The generation of its spec.
    pub generation: i64,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// The order; unset when this version cannot read it.
    pub spec: Option<NodeProbeSpec>,
    /// The report; unset when there is none, or none that this version can read.
    pub status: Option<NodeProbeStatus>,
    /// When the report was made, by this process's clock: the arrival of the newest one, or the time written
    /// in it when it was there already.
    pub heard: Option<Timestamp>,
}

impl NodeProbeRow {
    /// The CkbProbes that are named in the order or in the report.
    pub fn probes(&self) -> BTreeSet<ObjectKey> {
        let key = |probe: &ProbeReference| ObjectKey::new(&probe.namespace, &probe.name);
        let ordered = self.spec.iter().flat_map(|spec| &spec.assignments);
        let reported = self.status.iter().flat_map(|status| &status.instances);
        ordered
            .map(|assignment| key(&assignment.probe))
            .chain(reported.map(|instance| key(&instance.probe)))
            .collect()
    }

    /// Whether the agent has taken up the newest order.
    pub fn observed(&self) -> bool {
        let observed = self.status.as_ref().and_then(|s| s.observed_generation);
        observed.is_some_and(|observed| observed >= self.generation)
    }

    fn reported_at(&self) -> Option<Timestamp> {
        Some(self.status.as_ref()?.reported_at.as_ref()?.0)
    }
}

impl From<Raw> for NodeProbeRow {
    fn from(raw: Raw) -> Self {
        let meta = raw.metadata;
        Self {
            node: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            spec: raw.spec.and_then(|spec| serde_json::from_value(spec).ok()),
            status: raw
                .status
                .and_then(|status| serde_json::from_value(status).ok()),
            heard: None,
        }
    }
}

impl Row for NodeProbeRow {
    type Key = String;

    fn key(&self) -> String {
        self.node.clone()
    }

    fn same(&self, other: &Self) -> bool {
        self.uid == other.uid
    }
}

/// Dates each report by this process's clock, since the agents' clocks may be off. A report that was there when
/// this process first looked is dated by what is written in it, but never later than now.
pub fn hear(
    known: &Table<NodeProbeRow>,
    event: Event<NodeProbeRow>,
    now: Timestamp,
) -> Event<NodeProbeRow> {
    let date = |mut row: NodeProbeRow| {
        let before = known.get(&row.node).filter(|before| before.same(&row));
        row.heard = match (row.reported_at(), before) {
            (None, _) => None,
            (Some(at), None) => Some(at.min(now)),
            (Some(at), Some(before)) if before.reported_at() == Some(at) => before.heard,
            (Some(_), Some(_)) => Some(now),
        };
        row
    };
    match event {
        Event::Apply(row) => Event::Apply(date(row)),
        Event::InitApply(row) => Event::InitApply(date(row)),
        event @ (Event::Delete(_) | Event::Init | Event::InitDone) => event,
    }
}
