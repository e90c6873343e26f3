//! What of all that is asked the kernels of the targets' nodes support. That one does not is nobody's fault, and does not pass by
//! itself: it keeps nothing else from being ready, and is told apart from what is wrong.

use ckb_probe_crds::{InstanceState, Probe, Reason, SupportStatus, condition};
use k8s_openapi::jiff::Timestamp;

use super::{
    conditions::{Answer, no, unknown, yes},
    halted, health,
    summaries::summary,
    targets::Target,
};
use crate::world::{CkbProbeEntry, ValidSpec};

/// How many probes are supported, and why the others are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Support {
    asked: u32,
    known: Known,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Known {
    /// No agent has told of any target yet.
    #[default]
    Nothing,
    /// All that is asked is supported by every kernel that is known.
    All,
    /// Only so many are supported by every kernel, for this reason and in this sentence.
    Some(u32, Reason, String),
}

/// What is known of one probe on one target.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Conditions {
    Supported,
    /// Not at all, or not in full.
    Lacking(String),
    Open,
}

impl Support {
    /// That of these targets.
    pub fn of(probe: &CkbProbeEntry, spec: &ValidSpec, targets: &[Target], now: Timestamp) -> Self {
        let asked = asked(spec, targets);
        let known = match halted(probe, spec, now) {
            Some(_) => Known::Nothing,
            None => known(probe, spec, &asked, targets),
        };
        let asked = asked.len() as u32;
        Self { asked, known }
    }

    /// Whether something that is asked is known to be too much for a kernel.
    pub fn is_lacking(&self) -> bool {
        matches!(self.known, Known::Some(..))
    }

    /// What to add to a sentence that says that all is well.
    pub fn remark(&self) -> String {
        match &self.known {
            Known::Some(supported, ..) => {
                format!("; {}: see Supported", counted(*supported, self.asked))
            }
            Known::Nothing | Known::All => String::new(),
        }
    }

    /// The condition.
    pub fn answer(&self) -> Answer {
        match &self.known {
            Known::Nothing => unknown(
                Reason::Attaching,
                "no agent has told yet what its node's kernel supports of what is asked",
            ),
            Known::All => yes(Reason::Done, counted(self.asked, self.asked)),
            Known::Some(_, reason, sentence) => no(*reason, &**sentence),
        }
    }

    /// The counts.
    pub fn status(&self) -> SupportStatus {
        let supported = match &self.known {
            Known::Nothing => None,
            Known::All => Some(self.asked),
            Known::Some(supported, ..) => Some(*supported),
        };
        SupportStatus {
            asked: self.asked,
            supported,
            summary: supported.map(|supported| format!("{supported}/{}", self.asked)),
        }
    }
}

fn counted(supported: u32, asked: u32) -> String {
    format!("the kernels of the targets' nodes support {supported}/{asked} probes in full")
}

/// The probes of the spec, but for those that wait on all targets: nobody has tried these.
fn asked<'a>(spec: &'a ValidSpec, targets: &[Target]) -> Vec<&'a Probe> {
    let tried = |probe: &&Probe| {
        let mut reports = targets.iter().filter_map(|target| target.report);
        probe.capture().is_none() || reports.any(|report| !health::waits(report, probe))
    };
    spec.spec.probes.iter().filter(tried).collect()
}

fn known(probe: &CkbProbeEntry, spec: &ValidSpec, probes: &[&Probe], targets: &[Target]) -> Known {
    let lacking: Vec<_> = targets
        .iter()
        .flat_map(|target| why(spec, target).into_iter().map(move |why| (target, why)))
        .collect();
    if let Some(why) = summary(lacking.iter().map(|(target, why)| (*target, why.as_str()))) {
        let everywhere = |probe: &&&Probe| {
            let mut verdicts = targets.iter().map(|target| verdict(target, probe));
            verdicts.all(|verdict| !matches!(verdict, Conditions::Lacking(_)))
        };
        let supported = probes.iter().filter(everywhere).count() as u32;
        let reason = match lacking.iter().all(|(target, _)| is_unfit(target)) {
            true => Reason::PreflightFailed,
            false => Reason::UnsupportedByKernel,
        };
        let sentence = format!("{}: {why}", counted(supported, probes.len() as u32));
        return Known::Some(supported, reason, sentence);
    }
    let is_open = |target: &&Target| {
        // What comes and goes with what is not as usual leaves nothing open.
        let lasting = probes.iter().filter(|probe| probe.capture().is_none());
        let mut verdicts = lasting.map(|probe| verdict(target, probe));
        verdicts.any(|verdict| verdict == Conditions::Open)
    };
    let (open, told): (Vec<_>, Vec<_>) = targets.iter().partition(is_open);
    // A kernel does not change while a process restarts.
    let restarts = open.iter().any(|target| target.report.is_some());
    before(probe)
        .filter(|_| restarts)
        .unwrap_or(match told.is_empty() {
            true => Known::Nothing,
            false => Known::All,
        })
}

/// Nothing is measured on the target's node, whatever is asked.
fn is_unfit(target: &Target) -> bool {
    target.reason == Reason::PreflightFailed
}

fn verdict(target: &Target, probe: &Probe) -> Conditions {
    if is_unfit(target) {
        return Conditions::Lacking(target.message.clone());
    }
    let report = target.report;
    let Some(reported) = report.and_then(|report| health::reported(report, probe)) else {
        return Conditions::Open;
    };
    if health::is_unsupported(reported) || reported.lacks(Reason::UnsupportedByKernel) {
        return Conditions::Lacking(match reported.message.is_empty() {
            true => Reason::UnsupportedByKernel.to_string(),
            false => reported.message.clone(),
        });
    }
    match reported.state {
        InstanceState::Attached | InstanceState::Failed => Conditions::Supported,
        InstanceState::Waiting | InstanceState::Detached => Conditions::Open,
    }
}

/// Why a target is not measured in full, each sentence with the probes that it is about.
fn why(spec: &ValidSpec, target: &Target) -> Vec<String> {
    let lacking = spec.spec.probes.iter().filter_map(|probe| {
        let Conditions::Lacking(why) = verdict(target, probe) else {
            return None;
        };
        Some((probe, why))
    });
    health::told(&spec.spec, lacking)
}

/// What was told last, if the same was asked.
fn before(probe: &CkbProbeEntry) -> Option<Known> {
    let status = probe.status.as_ref()?;
    let mut conditions = status.conditions.iter();
    let told = conditions.find(|told| {
        let same = told.observed_generation == Some(probe.generation);
        told.type_ == condition::SUPPORTED && same
    })?;
    let supported = status.support.supported?;
    Some(match told.status.as_str() {
        "True" => Known::All,
        _ => Known::Some(
            supported,
            Reason::from_word(&told.reason)?,
            told.message.clone(),
        ),
    })
}

#[cfg(test)]
mod tests;
