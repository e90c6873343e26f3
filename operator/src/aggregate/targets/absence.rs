//! Why nothing is known of a target: its pod cannot have a process, or its agent says nothing.

use ckb_probe_crds::{InstanceState, Reason};
use k8s_openapi::jiff::Timestamp;

use super::{agent_of, last_sign, name, node, patience};
use crate::{
    desired::containers,
    template::agent_name,
    world::{NodeProbeEntry, Phase, TargetPod, ValidSpec, World},
};

/// Why no agent could find a process in this pod, whatever it did.
pub fn absent(spec: &ValidSpec, pod: &TargetPod, world: &World) -> Option<(Reason, String)> {
    let pod_name = name(pod);
    let trouble = || match &pod.trouble {
        Some(trouble) => format!(": {trouble}"),
        None => String::new(),
    };
    let Some(node) = &pod.node else {
        let message = format!("{pod_name} is on no node yet{}", trouble());
        return Some((Reason::PodNotRunning, message));
    };
    if containers(spec, pod).is_empty() {
        let wanted = spec.spec.target.container.as_deref().unwrap_or_default();
        let there: Vec<_> = pod.containers.iter().map(|c| c.name.as_str()).collect();
        let message = format!(
            "{pod_name} has no container {wanted:?}, which spec.target.container asks for; it has {}",
            there.join(", ")
        );
        return Some((Reason::ExecutableNotFound, message));
    }
    if world.node(node).is_none() {
        let message = format!("{pod_name} is on node {node}, which is not there");
        return Some((Reason::PodNotRunning, message));
    }
    (pod.phase == Phase::Pending).then(|| {
        let message = format!("{pod_name} has not started on node {node}{}", trouble());
        (Reason::PodNotRunning, message)
    })
}

/// Why there is no word from the agent.
pub fn silence(
    spec: &ValidSpec,
    pod: &TargetPod,
    row: Option<&NodeProbeEntry>,
    world: &World,
    now: Timestamp,
) -> (InstanceState, Reason, String) {
    let node = node(pod);
    let agent_name = agent_name(node);
    let Some(agent) = agent_of(node, world) else {
        let message = format!("agent pod {agent_name} for node {node} is being created");
        return (InstanceState::Waiting, Reason::AgentStarting, message);
    };
    let unready = match world.node(node) {
        Some(node) if !node.ready => format!("; node {} is not Ready", node.name),
        _ => String::new(),
    };
    if agent.deleting {
        let message = format!("agent pod {agent_name} on node {node} is being replaced{unready}");
        return (InstanceState::Waiting, Reason::AgentStarting, message);
    }
    if let Some(trouble) = &agent.trouble {
        let message =
            format!("agent pod {agent_name} for node {node} cannot start: {trouble}{unready}");
        return (InstanceState::Failed, Reason::AgentUnavailable, message);
    }
    if let Some(why) = row.and_then(|row| row.unreadable.as_deref()) {
        let message = format!(
            "the report of node {node} is not one that this operator can read: {why}. Are operator, agents and CRDs of one \
             version?{unready}"
        );
        return (InstanceState::Failed, Reason::ReportRefused, message);
    }
    let last = row.and_then(|row| last_sign(row, Some(agent), world));
    let overdue = |since: &Timestamp| now.duration_since(*since) > patience(spec, row);
    match last.filter(overdue) {
        Some(since) => {
            let message = format!(
                "agent pod {agent_name} on node {node} has not reported since {since:.0}: see its logs{unready}"
            );
            (InstanceState::Failed, Reason::AgentSilent, message)
        }
        None => {
            let message = format!("agent pod {agent_name} on node {node} is starting{unready}");
            (InstanceState::Waiting, Reason::AgentStarting, message)
        }
    }
}
