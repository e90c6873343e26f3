//! Intervals without the totals of their rows: these are half of what a line takes to read, and of those that follow each other in a segment
//! the last alone is wanted.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_crds::{Contention, EventReport, Figures, IntervalFigures};
use serde::Deserialize;

use crate::record::{Interval, ProbeInterval, Row};

/// As [`Interval`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinInterval {
    at: u64,
    milliseconds: u64,
    #[serde(default)]
    cost: Option<u64>,
    #[serde(default)]
    floor: Option<u64>,
    #[serde(default)]
    contention: Option<Contention>,
    #[serde(default)]
    contention_unknown: BTreeMap<String, u64>,
    #[serde(default)]
    own_cpu: u64,
    #[serde(default)]
    renewed: u64,
    #[serde(default)]
    probes: Vec<ThinProbe>,
}

/// As [`ProbeInterval`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThinProbe {
    name: String,
    #[serde(default)]
    unmeasured: Option<String>,
    #[serde(default)]
    lost: BTreeMap<String, u64>,
    #[serde(default)]
    rows: Vec<ThinRow>,
    #[serde(default)]
    events: Vec<EventReport>,
}

/// As [`Row`], without its total.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThinRow {
    key: String,
    #[serde(default)]
    window: IntervalFigures,
    #[serde(default)]
    unseen: u64,
    #[serde(default)]
    unseen_last: u64,
    #[serde(default)]
    parts: Vec<Self>,
}

impl From<ThinInterval> for Interval {
    fn from(thin: ThinInterval) -> Self {
        let ThinInterval {
            at,
            milliseconds,
            cost,
            floor,
            contention,
            contention_unknown,
            own_cpu,
            renewed,
            probes,
        } = thin;
        Self {
            at,
            milliseconds,
            cost,
            floor,
            contention,
            contention_unknown,
            own_cpu,
            renewed,
            probes: probes.into_iter().map(ProbeInterval::from).collect(),
        }
    }
}

impl From<ThinProbe> for ProbeInterval {
    fn from(thin: ThinProbe) -> Self {
        let ThinProbe {
            name,
            unmeasured,
            lost,
            rows,
            events,
        } = thin;
        Self {
            name,
            unmeasured,
            lost,
            rows: rows.into_iter().map(Row::from).collect(),
            events,
        }
    }
}

impl From<ThinRow> for Row {
    fn from(thin: ThinRow) -> Self {
        let ThinRow {
            key,
            window,
            unseen,
            unseen_last,
            parts,
        } = thin;
        Self {
            key,
            total: Figures::default(),
            window,
            unseen,
            unseen_last,
            parts: parts.into_iter().map(Self::from).collect(),
        }
    }
}

/// Probes, rows and parts whose totals are known from a later line.
#[derive(Default)]
pub struct Known(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl Known {
    /// Whether all that is in this interval is among them.
    pub fn has(&self, interval: &Interval) -> bool {
        interval.probes.iter().all(|probe| {
            let known = self.0.get(&probe.name);
            probe.rows.iter().all(|row| {
                let known = known.and_then(|rows| rows.get(&row.key));
                known.is_some_and(|known| row.parts.iter().all(|part| known.contains(&part.key)))
            })
        })
    }

    /// Its totals were read.
    pub fn add(&mut self, interval: &Interval) {
        for probe in &interval.probes {
            let rows = self.0.entry(probe.name.clone()).or_default();
            for row in &probe.rows {
                let parts = rows.entry(row.key.clone()).or_default();
                parts.extend(row.parts.iter().map(|part| part.key.clone()));
            }
        }
    }
}
