//! How much is kept of CkbProbes: of each namespace the specs of so many. Anybody who may edit a namespace can make objects without
//! end, each with a spec of many kilobytes; of what is beyond, only the name, the age and the status are.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::runtime::watcher::Event;

use super::{CkbProbeEntry, InvalidProbe, ObjectKey, Row as _};

/// What is taken of what CkbProbes ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// None is reported on more often.
    pub min_report_interval: Duration,
    /// Of a namespace the specs of so many are kept.
    pub specs_per_namespace: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            min_report_interval: Duration::ZERO,
            specs_per_namespace: usize::MAX,
        }
    }
}

/// Whose specs are kept.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    bounds: Bounds,
    /// Names of CkbProbes, by namespace.
    read: BTreeMap<String, BTreeSet<String>>,
}

impl Reading {
    pub fn within(bounds: Bounds) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    /// As much as is kept of it. A CkbProbe is taken as if it asked for reports no more often than may be: so the order, and how long
    /// its agent may be silent, are of one interval, and CkbProbes that differ in no more ask the same.
    pub fn trim(&mut self, event: Event<CkbProbeEntry>) -> Event<CkbProbeEntry> {
        match event {
            Event::Apply(row) => Event::Apply(self.row(row)),
            Event::InitApply(row) => Event::InitApply(self.row(row)),
            event @ (Event::Delete(_) | Event::Init | Event::InitDone) => event,
        }
    }

    fn row(&mut self, mut row: CkbProbeEntry) -> CkbProbeEntry {
        let most = self.bounds.specs_per_namespace;
        let key = row.key();
        let read = self.read.entry(key.namespace).or_default();
        row.spec = match read.contains(&key.name) || read.len() < most {
            true => {
                read.insert(key.name);
                let least = self.bounds.min_report_interval;
                row.spec.map(|spec| spec.at_most_every(least))
            }
            false => Err(InvalidProbe::Unread(most)),
        };
        row
    }

    /// It is gone. Returns whether another may be read in its place that could not be until now.
    pub fn gone(&mut self, key: &ObjectKey) -> bool {
        let Some(read) = self.read.get_mut(&key.namespace) else {
            return false;
        };
        let was_full = read.len() >= self.bounds.specs_per_namespace;
        let makes_room = read.remove(&key.name) && was_full;
        if read.is_empty() {
            self.read.remove(&key.namespace);
        }
        makes_room
    }

    /// Whether another CkbProbe of the namespace may be read.
    pub fn has_room(&self, namespace: &str) -> bool {
        let read = self.read.get(namespace).map_or(0, BTreeSet::len);
        read < self.bounds.specs_per_namespace
    }
}
