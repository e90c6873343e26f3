//! What a person must look at, the gravest first.

use ckb_probe_crds::{InstanceState, Reason};

use super::{health, targets, targets::Target};
use crate::world::{CkbProbeEntry, ValidSpec};

/// How many targets a message names.
const NAMED: usize = 3;

/// Something that is wrong with some targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemSummary {
    pub reason: Reason,
    pub message: String,
    /// Whether it keeps a probe from firing; otherwise something is missing of what is measured, or it costs too much.
    pub stops: bool,
}

/// The troubles of these targets, the gravest first.
pub fn of(probe: &CkbProbeEntry, spec: &ValidSpec, targets: &[Target]) -> Vec<ProblemSummary> {
    if targets.is_empty() {
        let message = format!(
            "no pod in namespace {} matches the selector {}: check target.selector against \
             kubectl get pods -n {0} --show-labels",
            probe.reference.namespace, spec.selector
        );
        return vec![ProblemSummary {
            reason: Reason::NoMatchingPods,
            message,
            stops: true,
        }];
    }
    health::ORDER
        .into_iter()
        .flat_map(|reason| {
            [
                staying(reason, spec, targets),
                // What a kernel does not support of what is measured otherwise is told by itself: see `support`.
                lacking(reason, spec, targets).filter(|_| reason != Reason::UnsupportedByKernel),
            ]
        })
        .flatten()
        .collect()
}

/// All of them in a few sentences: the reason of the first is that of the condition. An agent says in one message all
/// that it misses of a target, so several troubles may be told in the same words, which are told once.
pub fn told(troubles: &[ProblemSummary]) -> String {
    let mut sentences: Vec<String> = Vec::new();
    for (place, trouble) in troubles.iter().enumerate() {
        let ProblemSummary {
            reason, message, ..
        } = trouble;
        match place {
            0 => sentences.push(message.clone()),
            _ if sentences.contains(message) => {}
            _ => sentences.push(format!("{reason}: {message}")),
        }
    }
    sentences.join(". ")
}

/// That of the targets, or probes of them, that are not well for this reason.
fn staying(reason: Reason, spec: &ValidSpec, targets: &[Target]) -> Option<ProblemSummary> {
    let hit: Vec<_> = targets
        .iter()
        .flat_map(|target| target.problems.iter().map(move |problem| (target, problem)))
        .filter(|(_, problem)| problem.stays(reason))
        .collect();
    let messages = hit
        .iter()
        .map(|(target, problem)| (*target, problem.message.as_str()));
    let mut message = summary(messages)?;
    if reason == Reason::ExecutableNotFound {
        message += &format!(
            " (spec.target.executable is {:?}: it must be the base name of the process's executable)",
            spec.spec.target.executable
        );
    }
    Some(ProblemSummary {
        reason,
        message,
        stops: hit.iter().any(|(_, problem)| !problem.firing),
    })
}

/// That of the targets that are measured, but not as was asked for.
fn lacking(reason: Reason, spec: &ValidSpec, targets: &[Target]) -> Option<ProblemSummary> {
    let hit: Vec<_> = targets
        .iter()
        .filter(|target| target.state == InstanceState::Attached)
        .filter_map(|target| Some((target, target.report?)))
        .flat_map(|(target, report)| {
            let messages = health::lacking(&spec.spec, report, reason);
            messages.into_iter().map(move |message| (target, message))
        })
        .collect();
    let messages = hit
        .iter()
        .map(|(target, message)| (*target, message.as_str()));
    Some(ProblemSummary {
        reason,
        message: summary(messages)?,
        stops: false,
    })
}

/// The messages of the first few, each with the pod it is about.
pub fn summary<'a, 'b: 'a>(
    messages: impl IntoIterator<Item = (&'a Target<'b>, &'a str)>,
) -> Option<String> {
    let mut told: Vec<String> = Vec::new();
    for (target, message) in messages {
        let message = match message.contains(&*target.pod.reference.name) {
            true => message.to_owned(),
            false => format!("{}: {message}", targets::name(target.pod)),
        };
        // One agent's trouble is that of every target on its node.
        if !told.contains(&message) {
            told.push(message);
        }
    }
    told.sort();
    let more = told.len().saturating_sub(NAMED);
    told.truncate(NAMED);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    (!told.is_empty()).then(|| told.join("; "))
}

#[cfg(test)]
mod tests;
