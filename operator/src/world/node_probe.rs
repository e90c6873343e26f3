//! A NodeProbe, parsed, with the time at which its agent was last heard.

use std::{borrow::Cow, collections::BTreeSet};

use ckb_probe_crds::{
    InstanceReport, NodeProbeSpec, NodeProbeStatus, PodReference, ProbeReference, ProbeReport,
    RowReport,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::runtime::watcher::Event;

use super::{
    ObjectKey, Raw, Row as _, Table,
    packed::{Packed, PackedReport, Rows},
    rows,
};

/// A NodeProbe as the API has it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeProbeEntry {
    /// The node's name, which is its own.
    pub node: String,
    /// Tells it apart from a later one of the same name.
    pub uid: String,
    /// The generation of its spec.
    pub generation: i64,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// The order as it came; in the index it is in `order`.
    pub spec: Option<NodeProbeSpec>,
    /// The order; unset when this version cannot read it.
    pub order: Option<Packed<NodeProbeSpec>>,
    /// The report; unset when there is none, or none that this version can read. In the index, what its instances say of
    /// their probes is in `packed`.
    pub status: Option<NodeProbeStatus>,
    /// Why there is a report that this version cannot read.
    pub unreadable: Option<String>,
    /// That, of each instance.
    pub packed: Vec<PackedReport>,
    /// When the report was made, by this process's clock: the arrival of the newest one, or the time written
    /// in it when it was there already.
    pub heard: Option<Timestamp>,
    /// How far apart its reports came lately: at their farthest, less what has been forgotten of it since.
    pub gap: SignedDuration,
}

/// What was reported of a target. The rows of its probes are nine tenths of it, and are taken out of where they are kept only to be looked
/// at: those of all targets of a CkbProbe at once are several times what an operator may take.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// What it says; without rows where these are kept elsewhere.
    pub instance: InstanceReport,
    rows: Option<&'a Packed<Rows>>,
}

impl Report<'_> {
    /// Hands over each probe of it with its rows.
    pub fn each_probe(&self, mut each: impl FnMut(&ProbeReport, &[RowReport])) {
        let probes = &self.instance.probes;
        match self.rows.map(Packed::open) {
            Some(rows) => probes
                .iter()
                .zip(&rows)
                .for_each(|(one, rows)| each(one, rows)),
            None => probes.iter().for_each(|probe| each(probe, &probe.rows)),
        }
    }
}

impl NodeProbeEntry {
    /// What it says is to be measured, taken out of where it is kept; None when this version cannot read it.
    pub fn ordered(&self) -> Option<Cow<'_, NodeProbeSpec>> {
        let kept = || Some(Cow::Owned(self.order.as_ref()?.open()));
        self.spec.as_ref().map(Cow::Borrowed).or_else(kept)
    }

    /// Whether this is its order.
    pub fn orders(&self, spec: &NodeProbeSpec) -> bool {
        match &self.order {
            Some(order) => *order == Packed::of(spec),
            None => self.spec.as_ref() == Some(spec),
        }
    }

    /// The CkbProbes and the pods that are named in the order or in the report.
    pub fn named(&self) -> (BTreeSet<ObjectKey>, BTreeSet<ObjectKey>) {
        let probe = |probe: &ProbeReference| ObjectKey::new(&probe.namespace, &probe.name);
        let pod = |pod: &PodReference| ObjectKey::new(&pod.namespace, &pod.name);
        let order = self.ordered();
        let ordered = order.iter().flat_map(|order| &order.assignments);
        let ordered = ordered.map(|one| (&one.probe, &one.pod));
        ordered
            .chain(self.reported())
            .map(|(a, b)| (probe(a), pod(b)))
            .unzip()
    }

    fn reported(&self) -> impl Iterator<Item = (&ProbeReference, &PodReference)> {
        let instances = self.status.iter().flat_map(|status| &status.instances);
        instances.map(|one| (&one.probe, &one.pod))
    }

    /// Whether another version of it names the same ones.
    pub fn names_the_same(&self, other: &Self) -> bool {
        let ordered = self.spec == other.spec && self.order == other.order;
        ordered && self.reported().eq(other.reported())
    }

    /// Whether another version of it has the same order, to be carried out by the same agent.
    pub fn orders_the_same(&self, other: &Self) -> bool {
        let same = self.uid == other.uid && self.deleting == other.deleting;
        same && self.spec == other.spec && self.order == other.order
    }

    /// Whether the agent has taken up the newest order.
    pub fn observed(&self) -> bool {
        let observed = self.status.as_ref().and_then(|s| s.observed_generation);
        observed.is_some_and(|observed| observed >= self.generation)
    }

    /// What was reported of a pod for a CkbProbe, by their uids; or else for another one that asks this.
    pub fn reports(&self, probe: &str, asks: Option<&str>, pod: &str) -> Vec<Report<'_>> {
        let own = |report: &InstanceReport| report.probe.uid == probe;
        let instances = self.status.iter().flat_map(|status| &status.instances);
        let packed = self.packed.iter().map(Some).chain(std::iter::repeat(None));
        let mut reports: Vec<_> = instances
            .zip(packed)
            .filter(|(report, _)| report.pod.uid == pod)
            .filter(|(report, _)| own(report) || asks == Some(&report.asks))
            .collect();
        if reports.iter().any(|(report, _)| own(report)) {
            reports.retain(|(report, _)| own(report));
        }
        // Of the processes, or else of the lack of one.
        if reports.iter().any(|(report, _)| report.container.is_some()) {
            reports.retain(|(report, _)| report.container.is_some());
        } else {
            reports.truncate(1);
        }
        let opened = reports.into_iter().map(|(report, packed)| {
            let mut instance = report.clone();
            if let Some(packed) = packed {
                instance.probes = packed.probes.open();
            }
            Report {
                instance,
                rows: packed.map(|packed| &packed.rows),
            }
        });
        opened.collect()
    }

    /// Makes what was ordered and reported small, to be kept.
    fn pack(&mut self) {
        if let Some(spec) = self.spec.take() {
            self.order = Some(Packed::of(&spec));
        }
        if self.packed.is_empty() {
            let instances = self
                .status
                .iter_mut()
                .flat_map(|status| &mut status.instances);
            self.packed = instances
                .map(|instance| PackedReport::of(std::mem::take(&mut instance.probes)))
                .collect();
        }
    }

    fn reported_at(&self) -> Option<Timestamp> {
        Some(self.status.as_ref()?.reported_at.as_ref()?.0)
    }
}

impl From<Raw> for NodeProbeEntry {
    fn from(raw: Raw) -> Self {
        let meta = raw.metadata;
        let status = raw.status.map(serde_json::from_value).transpose();
        let unreadable = status.as_ref().err().map(ToString::to_string);
        Self {
            node: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            spec: raw.spec.and_then(|spec| serde_json::from_value(spec).ok()),
            order: None,
            status: status.unwrap_or_default(),
            unreadable,
            packed: Vec::new(),
            heard: None,
            gap: SignedDuration::ZERO,
        }
    }
}

rows! {
    NodeProbeEntry by String: |row| row.node.clone(), uid;
}

/// Dates each report by this process's clock, since the agents' clocks may be off. A report that was there when
/// this process first looked is dated by what is written in it, but never later than now. `deaf` is when none could be heard.
pub fn hear(
    known: &Table<NodeProbeEntry>,
    event: Event<NodeProbeEntry>,
    deaf: Option<Timestamp>,
    now: Timestamp,
) -> Event<NodeProbeEntry> {
    let date = |mut row: NodeProbeEntry| {
        let before = known.get(&row.node).filter(|before| before.same(&row));
        let news = match (row.reported_at(), before) {
            (None, _) => None,
            (Some(at), None) => Some(at.min(now)),
            (Some(at), Some(before)) if before.reported_at() == Some(at) => before.heard,
            (Some(_), Some(_)) => Some(now),
        };
        if let Some(before) = before {
            let since = before.heard.max(deaf).filter(|_| news != before.heard);
            row.gap = match news.zip(since) {
                Some((news, since)) => news.duration_since(since).max(before.gap * 7 / 8),
                None => before.gap,
            };
        }
        row.heard = news;
        row.pack();
        row
    };
    match event {
        Event::Apply(row) => Event::Apply(date(row)),
        Event::InitApply(row) => Event::InitApply(date(row)),
        event @ (Event::Delete(_) | Event::Init | Event::InitDone) => event,
    }
}
