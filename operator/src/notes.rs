//! What a person would want to read in `kubectl describe`: of a CkbProbe the transitions from one status to the next, of
//! a NodeProbe what stands in the way of measuring on its node.

use ckb_probe_crds::{AgentStatus, CkbProbeStatus, EventStatus, InstanceStatus, Reason, condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::EventType;

use crate::aggregate::is_notable;

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
/// Something happened to a target that whoever runs it wants to know, in its kind's words.
pub const OBSERVED: &str = "Observed";
/// What was wrong is not any more.
pub const RECOVERED: &str = "Recovered";

/// There are stacks of something that is not as usual.
pub const CAPTURED: &str = "Captured";

/// Stacks of a window are missing, or could not be published.
pub const PROFILE_FAILED: &str = "ProfileFailed";

/// The checks without which nothing is measured, or not all of it. The other ones tell only which way of attaching a
/// node has, and one that is slower measures all the same.
const NEEDED: [&str; 3] = ["Capabilities", "Lockdown", "SeccompReturn"];

/// What stands in the way of measuring on a node, by what its agent found before it attached anything.
pub fn preflight(agent: &AgentStatus) -> Vec<Note> {
    let note = |action, text| Note {
        type_: EventType::Warning,
        reason: Reason::PreflightFailed.as_str(),
        action,
        text,
    };
    let failure = agent.failure.iter().map(|failure| {
        let text = format!("on this node nothing can be measured: {failure}");
        note("Preflight", text)
    });
    let failed = NEEDED.into_iter().filter_map(|name| {
        let check = agent.preflight.iter().find(|check| check.name == name)?;
        (!check.passed).then(|| note(name, format!("{name}: {}", check.detail)))
    });
    failure.chain(failed).collect()
}

/// What happened between two statuses of one CkbProbe. The same status twice gives nothing.
pub fn notes(old: Option<&CkbProbeStatus>, new: &CkbProbeStatus) -> Vec<Note> {
    let mut notes = Vec::new();
    notes.extend(trouble(old, new));
    notes.extend(unsupported(old, new));
    notes.extend(budget(old, new));
    notes.extend(unhealthy(old, new));
    notes.extend(attached(old, new));
    notes.extend(halted(old, new));
    notes.extend(restarted(old, new));
    notes.extend(died(old, new));
    notes.extend(observed(old, new));
    notes.extend(captured(old, new));
    notes
}

/// What a condition says, in its own words.
fn of_condition(type_: EventType, action: &'static str, is: &Condition) -> Option<Note> {
    Some(Note {
        type_,
        reason: known(&is.reason)?,
        action,
        text: is.message.clone(),
    })
}

/// Degraded became true, for another reason than before, or false.
fn trouble(old: Option<&CkbProbeStatus>, new: &CkbProbeStatus) -> Option<Note> {
    let before = old.and_then(|old| find(old, condition::DEGRADED));
    let after = find(new, condition::DEGRADED)?;
    let was = before.filter(|c| c.status == "True").map(|c| &*c.reason);
    let is = (after.status == "True").then_some(&*after.reason);
    match (was, is) {
        // Told of each target, and also when something graver is the condition's reason.
        (_, Some(reason)) if reason == Reason::TargetDied.as_str() => None,
        (was, Some(reason)) if was != Some(reason) => {
            of_condition(EventType::Warning, "Probe", after)
        }
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

/// Supported became false while Degraded speaks of something else, or of nothing.
fn unsupported(old: Option<&CkbProbeStatus>, new: &CkbProbeStatus) -> Option<Note> {
    let lacking = |status| find(status, condition::SUPPORTED).filter(|c| c.status == "False");
    let is = lacking(new)?;
    let said = find(new, condition::DEGRADED)
        .is_some_and(|degraded| degraded.status == "True" && degraded.reason == is.reason);
    let news = old.and_then(lacking).is_none() && !said;
    of_condition(EventType::Warning, "Probe", is).filter(|_| news)
}

/// TargetsHealthy became false, or is so for another reason.
fn unhealthy(old: Option<&CkbProbeStatus>, new: &CkbProbeStatus) -> Option<Note> {
    let ill = |status| find(status, condition::TARGETS_HEALTHY).filter(|c| c.status == "False");
    let is = ill(new)?;
    let before = old.and_then(ill);
    let news = before.is_none_or(|before| before.reason != is.reason);
    of_condition(EventType::Warning, "Measure", is).filter(|_| news)
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
    of_condition(EventType::Normal, "Detach", halt).filter(|_| news)
}

/// A target died within seconds of each attach, and is left alone.
fn died<'a>(
    old: Option<&'a CkbProbeStatus>,
    new: &'a CkbProbeStatus,
) -> impl Iterator<Item = Note> + 'a {
    let dead = |instance: &&InstanceStatus| instance.reason == Reason::TargetDied;
    let known = move |now: &InstanceStatus| {
        let before = old.map_or(&[][..], |old| &old.instances);
        before
            .iter()
            .filter(dead)
            .any(|was| was.pod == now.pod && was.container == now.container)
    };
    let news = new.instances.iter().filter(dead);
    news.filter(move |now| !known(now)).map(|now| Note {
        type_: EventType::Warning,
        reason: Reason::TargetDied.as_str(),
        action: "Detach",
        text: format!("pod {}: {}", now.pod, now.message),
    })
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

/// What happened to a target that is notable, each time once.
fn observed<'a>(
    old: Option<&'a CkbProbeStatus>,
    new: &'a CkbProbeStatus,
) -> impl Iterator<Item = Note> + 'a {
    let events = |status: &'a CkbProbeStatus| status.probes.iter().flat_map(|one| &one.events);
    let before: Vec<&EventStatus> = old.into_iter().flat_map(events).collect();
    events(new)
        .filter(move |event| is_notable(&event.details) && !before.contains(event))
        .map(|event| Note {
            type_: EventType::Warning,
            reason: OBSERVED,
            action: "Measure",
            text: format!(
                "pod {} container {}: {}: {}",
                event.pod, event.container, event.row, event.text
            ),
        })
}

/// Profiles of an anomaly are there that were not yet: those of one window may come one after the other.
fn captured<'a>(
    old: Option<&'a CkbProbeStatus>,
    new: &'a CkbProbeStatus,
) -> impl Iterator<Item = Note> + 'a {
    let told = move |name: &str, since| {
        let probes = old.into_iter().flat_map(|old| &old.probes);
        let mut known = probes.filter(|probe| probe.name == name);
        let capture = known.next().and_then(|probe| probe.capture.as_ref());
        let same = capture.filter(|one| one.since.as_ref() == since);
        same.map_or(&[][..], |one| &one.profiles)
    };
    new.probes.iter().filter_map(move |probe| {
        let capture = probe.capture.as_ref()?;
        let told = told(&probe.name, capture.since.as_ref());
        let profiles = capture.profiles.iter().map(String::as_str);
        let news: Vec<&str> = profiles
            .filter(|name| told.iter().all(|told| told != name))
            .collect();
        let text = match news[..] {
            [] => return None,
            [one] => format!("CkbProfile {one} shows"),
            [..] => format!("CkbProfiles {} show", news.join(", ")),
        };
        Some(Note {
            type_: EventType::Normal,
            reason: CAPTURED,
            action: "Profile",
            text: format!("{text} what ran then: {}", capture.anomaly),
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
    Reason::from_word(reason).map(Reason::as_str)
}

#[cfg(test)]
mod tests;
