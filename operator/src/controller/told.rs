//! When each CkbProbe was last told something.
//!
//! Fifty agents report at fifty moments of one report interval, and a status that is written again for each of them costs the API
//! server more than all of their reports. Figures are of an interval, and so are told once in an interval; how things stand is
//! told as soon as it changes.

use std::collections::BTreeMap;

use ckb_probe_crds::CkbProbeStatus;
use tokio::time::Instant;

use crate::{
    aggregate::same_but_figures,
    world::{CkbProbeEntry, ObjectKey, Row},
};

/// By CkbProbe, when its status was last written by this process.
#[derive(Debug, Default)]
pub struct StatusWrites(BTreeMap<ObjectKey, Instant>);

impl StatusWrites {
    /// It was told just now.
    pub fn note(&mut self, probe: &ObjectKey, now: Instant) {
        self.0.insert(probe.clone(), now);
    }

    /// Forgets a CkbProbe that is gone.
    pub fn remove(&mut self, probe: &ObjectKey) {
        self.0.remove(probe);
    }

    /// Until when this status waits: where it has nothing new but figures, until an interval has passed.
    pub fn wait(
        &self,
        row: &CkbProbeEntry,
        status: &CkbProbeStatus,
        now: Instant,
    ) -> Option<Instant> {
        let (told, spec) = (self.0.get(&row.key())?, row.spec.as_ref().ok()?);
        let next = *told + spec.spec.report_interval.get();
        let figures = row.status.as_ref();
        let figures = figures.is_some_and(|known| same_but_figures(known, status));
        (figures && next > now).then_some(next)
    }
}
