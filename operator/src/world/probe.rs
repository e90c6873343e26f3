//! A CkbProbe, parsed.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_crds::{CaptureState, CkbProbeSpec, CkbProbeStatus, ProbeReference, Target};
use k8s_openapi::jiff::Timestamp;
use kube::core::{Selector, SelectorExt};
use serde_json::json;

use super::{ObjectKey, Raw, rows};
use crate::{
    hash::fnv1a,
    selector::{self, SelectorError},
};

/// A CkbProbe as the API has it.
#[derive(Clone, Debug, PartialEq)]
pub struct CkbProbeEntry {
    /// The CkbProbe, told apart from others of the same name.
    pub reference: ProbeReference,
    /// The generation of its spec.
    pub generation: i64,
    /// When it was created.
    pub created: Timestamp,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// Its spec, if it makes sense.
    pub spec: Result<ValidSpec, InvalidProbe>,
    /// Its status, if there is one that this version can read.
    pub status: Option<Box<CkbProbeStatus>>,
}

/// A spec that makes sense.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidSpec {
    /// As written, but that nobody is reported on too often.
    pub spec: CkbProbeSpec,
    /// Its selector, parsed.
    pub selector: Selector,
    /// A word for what it asks of its targets, which is the same for all that ask the same.
    pub asks: String,
    /// The length of what it asks, as JSON.
    pub bytes: usize,
}

/// Why a stored spec is of no use. The API server refuses nearly all of these; older versions' objects remain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProbe {
    /// There is none.
    #[error("the object has no spec")]
    Missing,
    /// It does not fit the schema of this version.
    #[error("the spec does not fit this version's schema: {0}")]
    Unreadable(String),
    /// There are so many others in its namespace that its spec is not kept.
    #[error(
        "this namespace has more than {0} CkbProbes, and the operator reads no more of them: delete some"
    )]
    Unread(usize),
    /// Its selector means nothing.
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

impl CkbProbeEntry {
    /// Whether it is to measure nothing for now.
    pub fn is_paused(&self) -> bool {
        self.spec.as_ref().is_ok_and(|spec| spec.spec.paused)
    }
}

impl ValidSpec {
    /// Reads the spec.
    pub fn parse(spec: Option<serde_json::Value>) -> Result<Self, InvalidProbe> {
        let spec = spec.ok_or(InvalidProbe::Missing)?;
        let spec: CkbProbeSpec = serde_json::from_value(spec)
            .map_err(|error| InvalidProbe::Unreadable(error.to_string()))?;
        Self::new(spec)
    }

    /// Checks what the types do not.
    pub fn new(spec: CkbProbeSpec) -> Result<Self, InvalidProbe> {
        let selector = selector::parse(&spec.target.selector)?;
        let asked = asked(&spec);
        Ok(Self {
            asks: format!("{:016x}", fnv1a(asked.as_bytes())),
            bytes: asked.len(),
            selector,
            spec,
        })
    }

    /// The same, reported on no more often than that.
    pub fn at_most_every(mut self, least: Duration) -> Self {
        if self.spec.report_interval.get() < least {
            self.spec.report_interval = least.into();
            let asked = asked(&self.spec);
            self.asks = format!("{:016x}", fnv1a(asked.as_bytes()));
            self.bytes = asked.len();
        }
        self
    }

    /// Whether a pod with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }
}

/// What is asked of every target, in one text. Which pods are targets, and until when, is no part of it.
fn asked(spec: &CkbProbeSpec) -> String {
    let CkbProbeSpec {
        target:
            Target {
                selector: _,
                container,
                executable,
            },
        overhead,
        report_interval,
        paused: _,
        detect_anomalies: _,
        duration: _,
        traces,
        probes,
    } = spec;
    json!([
        container,
        executable,
        overhead,
        report_interval,
        probes,
        traces
    ])
    .to_string()
}

impl CkbProbeEntry {
    /// When the probe's `duration` is over, in whole seconds as the API keeps times.
    pub fn expires(&self) -> Option<Timestamp> {
        let duration = self.spec.as_ref().ok()?.spec.duration?.get();
        let nanos = self.created.as_nanosecond() + i128::try_from(duration.as_nanos()).ok()?;
        let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
        Timestamp::from_second(seconds).ok()
    }

    /// Whether a profile of it is being taken for something that is not as usual, by its status.
    pub fn captures(&self, probe: &str) -> bool {
        self.captured().any(|name| name == probe)
    }

    /// The profiles of which that is so.
    fn captured(&self) -> impl Iterator<Item = &str> {
        let probes = self.status.iter().flat_map(|status| &status.probes);
        let captured = probes.filter(|probe| {
            let capture = probe.capture.as_ref();
            capture.is_some_and(|capture| capture.state == CaptureState::Capturing)
        });
        captured.map(|probe| probe.name.as_str())
    }

    /// Whether another version of it asks for the same: only its status is another, and captures what it did.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        let Self {
            reference,
            generation,
            created,
            deleting,
            spec,
            status: _,
        } = self;
        *reference == other.reference
            && *generation == other.generation
            && *created == other.created
            && *deleting == other.deleting
            && *spec == other.spec
            && self.captured().eq(other.captured())
    }

    /// Whether its spec was left where it is, for there are so many others.
    pub fn is_unread(&self) -> bool {
        matches!(self.spec, Err(InvalidProbe::Unread(_)))
    }

    /// Whether it is over.
    pub fn expired(&self, now: Timestamp) -> bool {
        self.expires().is_some_and(|expires| expires <= now)
    }
}

impl From<Raw> for CkbProbeEntry {
    fn from(raw: Raw) -> Self {
        let meta = raw.metadata;
        Self {
            reference: ProbeReference {
                namespace: meta.namespace.unwrap_or_default(),
                name: meta.name.unwrap_or_default(),
                uid: meta.uid.unwrap_or_default(),
            },
            generation: meta.generation.unwrap_or_default(),
            created: meta
                .creation_timestamp
                .map(|time| time.0)
                .unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            spec: ValidSpec::parse(raw.spec),
            status: raw
                .status
                .and_then(|status| serde_json::from_value(status).ok()),
        }
    }
}

rows! {
    CkbProbeEntry by ObjectKey: |row| ObjectKey::new(&row.reference.namespace, &row.reference.name), reference.uid;
}
