//! What a person must look at, the gravest first.

use ckb_probe_crds::{InstanceReport, InstanceState, Reason};

use super::{targets, targets::Target};
use crate::world::{ProbeRow, ValidSpec};

/// How many targets a message names.
const NAMED: usize = 3;

/// From the gravest on.
const ORDER: [Reason; 11] = [
    Reason::AgentUnavailable,
    Reason::AgentSilent,
    Reason::PreflightFailed,
    Reason::TargetDied,
    Reason::AttachFailed,
    Reason::ExecutableNotFound,
    Reason::SymbolNotFound,
    Reason::SingleStepped,
    Reason::EntryOnly,
    Reason::OverBudget,
    Reason::Silent,
];

/// Something that is wrong with some targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub reason: Reason,
    pub message: String,
    /// Whether it keeps a target from firing; otherwise something is missing of what is measured.
    pub stops: bool,
}

/// The troubles of these targets, the gravest first.
pub fn of(probe: &ProbeRow, spec: &ValidSpec, targets: &[Target]) -> Vec<Trouble> {
    if targets.is_empty() {
        let message = format!(
            "no pod in namespace {} matches the selector {}: check target.selector against \
             kubectl get pods -n {0} --show-labels",
            probe.reference.namespace, spec.selector
        );
        return vec![Trouble {
            reason: Reason::NoMatchingPods,
            message,
            stops: true,
        }];
    }
    ORDER
        .into_iter()
        .flat_map(|reason| [stopped(reason, spec, targets), lacking(reason, targets)])
        .flatten()
        .collect()
}

/// All of them in a few sentences: the reason of the first is that of the condition. An agent says in one message all
/// that it misses of a target, so several troubles may be told in the same words, which are told once.
pub fn told(troubles: &[Trouble]) -> String {
    let mut sentences: Vec<String> = Vec::new();
    for (place, trouble) in troubles.iter().enumerate() {
        let Trouble {
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

/// That of the targets that this reason keeps from firing.
fn stopped(reason: Reason, spec: &ValidSpec, targets: &[Target]) -> Option<Trouble> {
    let hit = targets
        .iter()
        .filter(|target| stopping(target) == Some(reason));
    let mut message = summary(hit)?;
    if reason == Reason::ExecutableNotFound {
        message += &format!(
            " (spec.target.executable is {:?}: it must be the base name of the process's executable)",
            spec.spec.target.executable
        );
    }
    Some(Trouble {
        reason,
        message,
        stops: true,
    })
}

/// That of the targets that are measured, but not as was asked for.
fn lacking(reason: Reason, targets: &[Target]) -> Option<Trouble> {
    let hit = targets
        .iter()
        .filter(|target| target.state == InstanceState::Attached && stopping(target).is_none())
        .filter(|target| target.report.is_some_and(|report| lacks(report, reason)));
    Some(Trouble {
        reason,
        message: summary(hit)?,
        stops: false,
    })
}

/// Whether something is missing of what an agent measures, for this reason.
fn lacks(report: &InstanceReport, reason: Reason) -> bool {
    match reason {
        Reason::SymbolNotFound => !report.missing_operations.is_empty(),
        Reason::SingleStepped => !report.single_stepped_symbols.is_empty(),
        Reason::EntryOnly => report.entry_only,
        _ => false,
    }
}

/// What keeps a target from firing, if it will not pass by itself.
pub fn stopping(target: &Target) -> Option<Reason> {
    match (target.state, target.reason) {
        (InstanceState::Attached, Reason::OverBudget | Reason::Silent) => Some(target.reason),
        (InstanceState::Attached, _) => None,
        (
            InstanceState::Failed,
            Reason::ExecutableNotFound
            | Reason::SymbolNotFound
            | Reason::SingleStepped
            | Reason::PreflightFailed
            | Reason::AgentUnavailable
            | Reason::AgentSilent,
        ) => Some(target.reason),
        (InstanceState::Failed, _) => Some(Reason::AttachFailed),
        (InstanceState::Detached, Reason::OverBudget | Reason::TargetDied) => Some(target.reason),
        (InstanceState::Detached, _) => None,
        // A container that is known is between two processes, which passes; one that is not may never come.
        (InstanceState::Waiting, Reason::ExecutableNotFound) => {
            target.container.is_none().then_some(target.reason)
        }
        (InstanceState::Waiting, _) => None,
    }
}

/// The messages of the first few, each with the pod it is about.
pub fn summary<'a, 'b: 'a>(targets: impl IntoIterator<Item = &'a Target<'b>>) -> Option<String> {
    let mut messages: Vec<String> = Vec::new();
    for target in targets {
        let message = match target.message.contains(&*target.pod.reference.name) {
            true => target.message.clone(),
            false => format!("{}: {}", targets::name(target.pod), target.message),
        };
        // One agent's trouble is that of every target on its node.
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    messages.sort();
    let more = messages.len().saturating_sub(NAMED);
    messages.truncate(NAMED);
    if more > 0 {
        messages.push(format!("and {more} more"));
    }
    (!messages.is_empty()).then(|| messages.join("; "))
}

#[cfg(test)]
mod tests;
