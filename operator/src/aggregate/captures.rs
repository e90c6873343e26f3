//! Profiles that are taken only while something is not as usual (`captureOnAnomaly`): whether one is taken now. The order of a node has
//! it as long as the status says so.

use std::time::Duration;

use ckb_probe_crds::{
    CaptureState, CaptureStatus, CkbProbeSpec, Probe, ProbeStatus, kinds::CaptureSpec,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::anomalies::Past;
use crate::world::{CkbProbeEntry, ValidSpec, World};

/// What an order, its agent and a sampler take besides the windows themselves, until the stacks are on their way.
const SLACK: Duration = Duration::from_secs(20);

/// How many profiles a status names.
const MAX_PROFILES: usize = 16;

/// How much of a sentence a status has room for.
const MAX_SENTENCE: usize = 512;

/// What is said of one that waits.
const WAITS: &str =
    "waits for an anomaly: stacks are sampled once a figure of another probe is not as usual";

/// What is said of one whose windows are taken.
const TAKEN: &str = "the windows of this anomaly are taken: it waits for the next one";

/// What is not as usual, if anything is, in a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unusual(Option<String>);

impl Unusual {
    /// What the past of a CkbProbe says.
    pub fn of(spec: &CkbProbeSpec, past: &Past) -> Self {
        Self(past.gravest(|name| {
            let probe = spec.probes.iter().find(|probe| probe.name == name)?;
            Some(probe.kind_spec()?.kind().descriptor())
        }))
    }
}

/// Puts into the status of a probe how far its capture has got, if it is one that waits for an anomaly.
pub fn tell(
    asked: &Probe,
    status: &mut ProbeStatus,
    probe: &CkbProbeEntry,
    unusual: &Unusual,
    world: &World,
    now: Timestamp,
) {
    let Some(profile) = asked.capture() else {
        return;
    };
    let before = known(probe, &asked.name);
    let mut capture = next(before, profile, unusual.0.as_deref(), now);
    if let Some(since) = &capture.since {
        let taken = world.shelf().since(&probe.reference, &asked.name, since.0);
        // Until profiles are listed they are taken to be those that they were.
        if let Some(mut taken) = taken {
            taken.truncate(MAX_PROFILES);
            capture.profiles = taken;
        }
    }
    let said = match capture.state {
        CaptureState::Waiting => WAITS,
        CaptureState::Captured => TAKEN,
        CaptureState::Capturing => "",
    };
    if status.message.is_empty() {
        said.clone_into(&mut status.message);
    }
    status.capture = Some(capture);
}

/// When captures that are under way are over.
pub fn deadlines<'a>(
    probe: &'a CkbProbeEntry,
    spec: &'a ValidSpec,
    now: Timestamp,
) -> impl Iterator<Item = Timestamp> + 'a {
    let ends = spec.spec.probes.iter().filter_map(|asked| {
        let capture = known(probe, &asked.name)?;
        let since = capture.since.as_ref()?.0;
        let Length { first, all } = length(asked.capture()?);
        (capture.state == CaptureState::Capturing).then_some([since + first, since + all])
    });
    ends.flatten().filter(move |end| *end > now)
}

/// What the status said of it last.
fn known<'a>(probe: &'a CkbProbeEntry, name: &str) -> Option<&'a CaptureStatus> {
    let mut probes = probe.status.iter().flat_map(|status| &status.probes);
    probes.find(|one| one.name == name)?.capture.as_ref()
}

/// How long it takes.
struct Length {
    /// Until the first window is there, however soon all is as usual again.
    first: Duration,
    /// Until all are, however long it is not.
    all: Duration,
}

/// Those of the windows that are kept: of an anomaly that lasts the first is not to go for the last.
fn length(profile: &CaptureSpec) -> Length {
    let window = profile.window.get();
    let first = SLACK.saturating_add(window);
    let Some(every) = profile.every else {
        return Length { first, all: first };
    };
    let every = every.get();
    Length {
        // They begin by the clock.
        first: first.saturating_add(every),
        all: first.saturating_add(every.saturating_mul(profile.keep)),
    }
}

/// How far it has got now.
fn next(
    before: Option<&CaptureStatus>,
    profile: &CaptureSpec,
    unusual: Option<&str>,
    now: Timestamp,
) -> CaptureStatus {
    let begun = || CaptureStatus {
        state: CaptureState::Capturing,
        // As the API server keeps a time: what is read back is what was said.
        since: Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now))),
        anomaly: unusual
            .unwrap_or_default()
            .chars()
            .take(MAX_SENTENCE)
            .collect(),
        profiles: Vec::new(),
    };
    let Some(before) = before else {
        return unusual.map_or_else(CaptureStatus::default, |_| begun());
    };
    let over = |length: Duration| {
        let since = before.since.as_ref();
        since.is_none_or(|since| since.0.checked_add(length).is_ok_and(|end| end <= now))
    };
    let Length { first, all } = length(profile);
    let state = match (before.state, unusual) {
        (CaptureState::Waiting, Some(_)) => return begun(),
        (CaptureState::Waiting | CaptureState::Captured, None) => CaptureState::Waiting,
        (CaptureState::Captured, Some(_)) => CaptureState::Captured,
        (CaptureState::Capturing, None) if over(first) => CaptureState::Waiting,
        (CaptureState::Capturing, Some(_)) if over(all) => CaptureState::Captured,
        (CaptureState::Capturing, _) => CaptureState::Capturing,
    };
    CaptureStatus {
        state,
        ..before.clone()
    }
}

#[cfg(test)]
mod tests;
