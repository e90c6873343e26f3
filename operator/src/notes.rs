//! What a person would want to read in `kubectl describe`: the transitions from one status to the next.

use ckb_probe_crds::{CkbProbeStatus, Reason, condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::EventType;

/// One Event to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Normal or Warning.
    pub type_: EventType,
    /// The CamelCase word.
    pub reason: &'static str,
    /// What was done or seen.
    pub action: &'static str,
    /// The sentence.
    pub text: String,
}

/// Every target is attached that was not before.
pub const ATTACHED: &str = "Attached";
/// A target's process was found anew.
pub const TARGET_RESTARTED: &str = "TargetRestarted";
/// What was wrong is not any more.
pub const RECOVERED: &str = "Recovered";

/// What happened between two statuses of one CkbProbe. The same status twice gives nothing.
pub fn notes(old: Option<&CkbProbeStatus>, new: &CkbProbeStatus) -> Vec<Note> {
    let mut notes = Vec::new();
    notes.extend(trouble(old, new));
    notes.extend(budget(old, new));
    notes.extend(attached(old, new));
    notes.extend(halted(old, new));
    notes.extend(restarted(old, new));
    notes
}

/// Degraded became true, for another reason than before, or false.
fn trouble(old: Option<&CkbProbeStatus>, new: &CkbProbeStatus) -> Option<Note> {
    let before = old.and_then(|old| find(old, condition::DEGRADED));
    let after = find(new, condition::DEGRADED)?;
    let was = before.filter(|c| c.status == "True").map(|c| &*c.reason);
    let is = (after.status == "True").then_some(&*after.reason);
    match (was, is) {
        (was, Some(reason)) if was != Some(reason) => Some(Note {
            type_: EventType::Warning,
            reason: known(reason)?,
            action: "Probe",
            text: after.message.clone(),
        }),
        (Some(_), None) if halt_of(new).is_none() => Some(Note {
            type_: EventType::Normal,
            reason: RECOVERED,
            action: "Probe",
            text: format!(
                "what was wrong is over: {} targets attached",
                new.targets.summary
            ),
        }),
        _ => None,
    }
}

/// WithinBudget became false while Degraded speaks of something else.
fn budget(old: Option<&CkbProbeStatus>, new: &CkbProbeStatus) -> Option<Note> {
    let over = |status: &CkbProbeStatus| {
        find(status, condition::WITHIN_BUDGET).is_some_and(|c| c.status == "False")
    };
    let said = find(new, condition::DEGRADED)
        .is_some_and(|c| c.status == "True" && c.reason == Reason::OverBudget.as_str());
    let news = over(new) && !old.is_some_and(over) && !said;
    news.then(|| Note {
        type_: EventType::Warning,
        reason: Reason::OverBudget.as_str(),
        action: "Measure",
        text: find(new, condition::WITHIN_BUDGET)
            .map(|c| c.message.clone())
            .unwrap_or_default(),
    })
}

/// All targets are attached, and they were not, or were fewer.
fn attached(old: Option<&CkbProbeStatus>, new: &CkbProbeStatus) -> Option<Note> {
    let whole = |status: &CkbProbeStatus| {
        let targets = &status.targets;
        targets.matched > 0 && targets.attached == targets.matched
    };
    let before = old
        .filter(|old| whole(old))
        .map_or(0, |old| old.targets.attached);
    (whole(new) && new.targets.attached > before).then(|| Note {
        type_: EventType::Normal,
        reason: ATTACHED,
        action: "Attach",
        text: format!("{} targets attached", new.targets.summary),
    })
}

/// Paused, or over.
fn halted(old: Option<&CkbProbeStatus>, new: &CkbProbeStatus) -> Option<Note> {
    let halt = halt_of(new)?;
    let news = old.and_then(halt_of).map(|c| &c.reason) != Some(&halt.reason);
    Some(Note {
        type_: EventType::Normal,
        reason: known(&halt.reason)?,
        action: "Detach",
        text: halt.message.clone(),
    })
    .filter(|_| news)
}

fn restarted<'a>(
    old: Option<&'a CkbProbeStatus>,
    new: &'a CkbProbeStatus,
) -> impl Iterator<Item = Note> + 'a {
    let before = old.map_or(&[][..], |old| &old.instances);
    new.instances.iter().filter_map(|now| {
        let was = before
            .iter()
            .find(|was| was.pod == now.pod && was.container == now.container)?;
        (now.reattaches > was.reattaches).then(|| Note {
            type_: EventType::Normal,
            reason: TARGET_RESTARTED,
            action: "Attach",
            text: format!(
                "the process in pod {} container {} restarted and is attached again; {} s were not measured in all",
                now.pod,
                now.container.as_deref().unwrap_or_default(),
                now.gap_seconds
            ),
        })
    })
}

/// The Ready condition, when it says that probing was stopped on purpose.
fn halt_of(status: &CkbProbeStatus) -> Option<&Condition> {
    let on_purpose = [Reason::Paused.as_str(), Reason::Expired.as_str()];
    find(status, condition::READY).filter(|ready| on_purpose.contains(&&*ready.reason))
}

fn find<'a>(status: &'a CkbProbeStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|c| c.type_ == type_)
}

/// The reason's own spelling, if it is one of ours.
fn known(reason: &str) -> Option<&'static str> {
    let reason: Reason =
        serde_json::from_value(serde_json::Value::String(reason.to_owned())).ok()?;
    Some(reason.as_str())
}

#[cfg(test)]
mod tests;
