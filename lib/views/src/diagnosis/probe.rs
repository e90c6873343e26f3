//! One CkbProbe: which of the places its answer names, and how it is at those that it does not.

use std::collections::BTreeSet;

use ckb_probe_crds::{
    CkbProbe, CkbProbeStatus, InstanceState, NodeProbe, Reason, condition, display_nanos,
};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::Condition,
    jiff::{SignedDuration, Timestamp},
};

use super::{
    Finding, Mark, Place,
    cluster::Snapshot,
    installation::{trouble, version},
    reasons::{self, Where},
};
use crate::{cost, selector};

/// Places of which an answer tells, in their order.
const PLACES: [Place; 8] = [
    Place::CkbProbe,
    Place::Pods,
    Place::Agent,
    Place::Node,
    Place::Process,
    Place::Symbols,
    Place::Kernel,
    Place::Figures,
];

/// An operator that works answers in that time.
const ANSWERED: SignedDuration = SignedDuration::from_secs(10);

/// So many pods are named that have the same to say.
const NAMED: usize = 3;

/// Something that an answer says is not as it should be.
struct Problem {
    place: Place,
    mark: Mark,
    reason: Reason,
    message: String,
    pods: Vec<String>,
    node: String,
}

/// What is found of a CkbProbe.
pub(super) fn of(found: &Snapshot, probe: &CkbProbe) -> Vec<Finding> {
    let namespace = probe.metadata.namespace.as_deref().unwrap_or_default();
    let name = probe.metadata.name.as_deref().unwrap_or_default();
    let subject = format!("{namespace}/{name}");
    let about = |finding: Finding| finding.about(&subject);
    let status = match answered(found, probe) {
        Ok(status) => status,
        Err(finding) => return vec![about(*finding)],
    };
    let problems = problems(status);
    let attached = status.targets.attached > 0;
    let mut findings = Vec::new();
    for place in PLACES {
        let here = problems.iter().filter(|one| one.place == place);
        let told: Vec<Finding> = here.map(|one| tell(found, namespace, name, one)).collect();
        let stuck = !told.is_empty() && !attached;
        if told.is_empty() {
            findings.extend(well(found, probe, status, place).map(about));
        }
        findings.extend(told.into_iter().map(about));
        if place == Place::CkbProbe {
            findings.extend(compared(probe, namespace, name).map(about));
        }
        findings.extend(besides(found, status, place).into_iter().map(about));
        // Nothing got any further.
        if stuck {
            break;
        }
    }
    findings
}

/// The operator's answer to what is asked now.
fn answered<'a>(found: &Snapshot, probe: &'a CkbProbe) -> Result<&'a CkbProbeStatus, Box<Finding>> {
    let generation = probe.metadata.generation;
    let status = probe.status.as_ref();
    if let Some(status) = status.filter(|status| status.observed_generation == generation) {
        return Ok(status);
    }
    let age = asked_since(probe).map_or(SignedDuration::MAX, |time| found.now.duration_since(time));
    let place = Place::CkbProbe;
    Err(Box::new(
        match status.and_then(|one| one.observed_generation) {
            _ if age < ANSWERED => {
                Finding::warning(place, "the operator has yet to answer what is asked now")
            }
            None => {
                let text = format!("the operator has not answered it, for {} s", age.as_secs());
                unanswered(found, Finding::failed(place, text))
            }
            Some(old) => {
                let text = format!(
                    "the operator has answered generation {old}, and not what is asked now, generation {}",
                    generation.unwrap_or_default()
                );
                unanswered(found, Finding::failed(place, text))
            }
        },
    ))
}

/// Since when it asks what it asks now, by what the API server notes of changes that are none of its status.
fn asked_since(probe: &CkbProbe) -> Option<Timestamp> {
    let meta = &probe.metadata;
    let changes = meta.managed_fields.iter().flatten();
    let own = changes.filter(|one| one.subresource.as_deref().is_none_or(str::is_empty));
    let times = own.filter_map(|one| one.time.as_ref());
    times
        .chain(&meta.creation_timestamp)
        .map(|time| time.0)
        .max()
}

fn unanswered(found: &Snapshot, finding: Finding) -> Finding {
    let system = found.system().unwrap_or("ckb-probe");
    finding
        .next(format!("kubectl -n {system} get deployment,lease"))
        .next(format!(
            "kubectl -n {system} logs -l app.kubernetes.io/component=operator"
        ))
        .see("when-there-is-no-status-at-all")
}

/// All that the answer says is wrong: of targets, and of the CkbProbe where no target says it.
fn problems(status: &CkbProbeStatus) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    for instance in &status.instances {
        let Some(place) = reasons::place(instance.reason) else {
            continue;
        };
        let same = |known: &&mut Problem| {
            known.reason == instance.reason && known.message == instance.message
        };
        if let Some(known) = problems.iter_mut().find(same) {
            known.pods.push(instance.pod.clone());
            continue;
        }
        let harmless =
            instance.state == InstanceState::Attached && instance.reason != Reason::Silent;
        problems.push(Problem {
            place,
            mark: match reasons::passes(instance.reason) || harmless {
                true => Mark::Warning,
                false => Mark::Failed,
            },
            reason: instance.reason,
            message: instance.message.clone(),
            pods: vec![instance.pod.clone()],
            node: instance.node.clone().unwrap_or_default(),
        });
    }
    let ready = condition(status, condition::READY);
    let fires = ready.is_some_and(|one| one.status == "True");
    for (type_, bad) in [
        (condition::READY, "False"),
        (condition::DEGRADED, "True"),
        (condition::SUPPORTED, "False"),
        (condition::WITHIN_BUDGET, "False"),
        (condition::TARGETS_HEALTHY, "False"),
    ] {
        let Some(told) = condition(status, type_).filter(|one| one.status == bad) else {
            continue;
        };
        let Some(reason) = Reason::from_word(&told.reason) else {
            continue;
        };
        let known = problems.iter().any(|one| one.reason == reason);
        let Some(place) = reasons::place(reason).filter(|_| !known) else {
            continue;
        };
        let grave = matches!(type_, condition::READY | condition::DEGRADED) && !fires;
        problems.push(Problem {
            place,
            mark: match grave && !reasons::passes(reason) {
                true => Mark::Failed,
                false => Mark::Warning,
            },
            reason,
            message: told.message.clone(),
            pods: Vec::new(),
            node: String::new(),
        });
    }
    problems
}

fn tell(found: &Snapshot, namespace: &str, name: &str, problem: &Problem) -> Finding {
    let Problem {
        place,
        mark,
        reason,
        message,
        pods,
        node,
    } = problem;
    let at = Where {
        namespace,
        name,
        system: found.system().unwrap_or("ckb-probe"),
        pod: pods.first().map_or("POD", String::as_str),
        node,
    };
    let named = pods.iter().take(NAMED).map(String::as_str);
    let named: Vec<&str> = named.collect();
    let whose = match (named.is_empty(), pods.len().saturating_sub(NAMED)) {
        (true, _) => String::new(),
        // The message says it.
        (false, 0) if named.iter().all(|pod| message.contains(pod)) => String::new(),
        (false, 0) => format!("{}: ", named.join(", ")),
        (false, more) => format!("{} and {more} more: ", named.join(", ")),
    };
    let mut finding = Finding {
        reason: Some(*reason),
        ..Finding::new(*place, *mark, format!("{whose}{message}"))
    };
    finding.next = vec![reasons::next(*reason, &at)];
    finding.see(&reasons::anchor(*reason))
}

/// That `cost` has it paused by turns, or was killed while it had.
fn compared(probe: &CkbProbe, namespace: &str, name: &str) -> Option<Finding> {
    let found = probe.metadata.annotations.as_ref()?.get(cost::FOUND)?;
    let paused = if found == "true" {
        "paused"
    } else {
        "not paused"
    };
    let text = format!(
        "`kubectl ckbprobe cost` pauses it by turns; it was {paused} before. Where nobody runs that any more, it was killed, and has to be put back"
    );
    let restore = format!("kubectl ckbprobe cost {name} -n {namespace} --restore");
    Some(Finding::warning(Place::CkbProbe, text).next(restore))
}

/// What is said where nothing is wrong.
fn well(
    found: &Snapshot,
    probe: &CkbProbe,
    status: &CkbProbeStatus,
    place: Place,
) -> Option<Finding> {
    let matched = status.targets.matched;
    let text = match place {
        Place::CkbProbe => "the operator has answered what is asked now".to_owned(),
        Place::Pods => {
            let selector = selector::written(&probe.spec.target.selector);
            let pods: BTreeSet<&str> = status.instances.iter().map(|one| &*one.pod).collect();
            match status.instances_omitted {
                0 if pods.len() == 1 => format!("1 pod of {selector} runs"),
                0 => format!("{} pods of {selector} run", pods.len()),
                _ => format!("pods of {selector} run, with {matched} targets"),
            }
        }
        Place::Agent => {
            let last = status.last_report_time.as_ref()?;
            let age = found.now.duration_since(last.0).as_secs().max(0);
            format!("the agents report: the last report is {age} s old")
        }
        Place::Node => return nodes_well(found, status),
        Place::Process if matched == 1 => "the process is there".to_owned(),
        Place::Process => format!("the processes of {matched} targets are there"),
        Place::Symbols => "what is asked for is in the binaries".to_owned(),
        Place::Kernel => {
            let summary = status.support.summary.as_deref()?;
            format!("the kernels support {summary} probes in full")
        }
        Place::Figures => {
            let cost = status.overhead.summary.as_deref();
            let cost = cost.map_or_else(String::new, |cost| {
                format!("; it costs {cost} of the CPU time")
            });
            format!("{}{cost}", status.headline)
        }
        Place::Cluster | Place::Crd | Place::Operator | Place::Rbac => return None,
    };
    Some(Finding::passed(place, text))
}

fn nodes_well(found: &Snapshot, status: &CkbProbeStatus) -> Option<Finding> {
    let orders = orders(found, status);
    let each = orders.iter().filter_map(|order| {
        let agent = &order.status.as_ref()?.agent;
        let cost = display_nanos(agent.cost_per_call_ns);
        let name = order.metadata.name.as_deref()?;
        Some(format!(
            "{name}: Linux {}, attaches by {}, a probed call costs {cost}",
            agent.kernel, agent.tier
        ))
    });
    let each: Vec<String> = each.take(NAMED).collect();
    let more = match orders.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} nodes more"),
    };
    (!each.is_empty()).then(|| Finding::passed(Place::Node, each.join("; ") + &more))
}

/// What the CkbProbe's own answer does not tell of a place.
fn besides(found: &Snapshot, status: &CkbProbeStatus, place: Place) -> Vec<Finding> {
    match place {
        Place::Agent => agents(found, status),
        Place::Node => nodes(found, status),
        Place::Figures => figures(status),
        _ => Vec::new(),
    }
}

/// Agents that are not of the operator's version, or whose pods are in trouble.
fn agents(found: &Snapshot, status: &CkbProbeStatus) -> Vec<Finding> {
    let place = Place::Agent;
    let system = found.system().unwrap_or("ckb-probe");
    let mut findings = Vec::new();
    for order in orders(found, status) {
        let Some(agent) = order.status.as_ref().map(|status| &status.agent) else {
            continue;
        };
        let operators = found.operators.known();
        let operator = operators.and_then(|all| all.first()).map(version);
        if let Some(operator) = operator.filter(|one| *one != agent.version) {
            let node = order.metadata.name.as_deref().unwrap_or_default();
            let text = format!(
                "the agent on {node} is of version {}, and the operator of {operator}: it is replaced when the others are ready",
                agent.version
            );
            findings.push(
                Finding::warning(place, text)
                    .next(format!("kubectl -n {system} get nodeprobes -o wide"))
                    .see("the-cluster-and-the-installation"),
            );
        }
        let pods = found.agents.known().into_iter().flatten();
        let mut own = pods.filter(|pod| pod.metadata.name.as_deref() == Some(&agent.pod));
        let reason = own.next().filter(|pod| !is_ready(pod)).and_then(trouble);
        let told = status.instances.iter().any(|one| {
            matches!(
                one.reason,
                Reason::AgentUnavailable | Reason::AgentSilent | Reason::AgentStarting
            )
        });
        if let Some(reason) = reason.filter(|_| !told) {
            let text = format!("pod {system}/{} is not ready: {reason}", agent.pod);
            findings.push(
                Finding::warning(place, text)
                    .next(format!("kubectl -n {system} describe pod {}", agent.pod))
                    .see("agentunavailable"),
            );
        }
    }
    findings
}

/// Nodes that are not Ready, and what stands in the way of measuring them as well as could be.
fn nodes(found: &Snapshot, status: &CkbProbeStatus) -> Vec<Finding> {
    let place = Place::Node;
    let mut findings = Vec::new();
    let names: BTreeSet<&str> = status
        .instances
        .iter()
        .filter_map(|one| one.node.as_deref())
        .collect();
    for node in found.nodes.known().into_iter().flatten() {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if names.contains(name) && !node_is_ready(node) {
            findings.push(
                Finding::warning(place, format!("node {name} is not Ready"))
                    .next(format!("kubectl describe node {name}"))
                    .see("agentsilent"),
            );
        }
    }
    let system = found.system().unwrap_or("ckb-probe");
    for order in orders(found, status) {
        let node = order.metadata.name.as_deref().unwrap_or_default();
        let agent = order.status.as_ref().map(|status| &status.agent);
        let measured = agent.filter(|agent| agent.failure.is_none());
        let checks = measured.into_iter().flat_map(|agent| &agent.preflight);
        for check in checks.filter(|check| !check.passed) {
            findings.push(
                Finding::warning(place, format!("{node}: {}: {}", check.name, check.detail))
                    .next(format!("kubectl -n {system} describe nodeprobe {node}"))
                    .see("preflightfailed"),
            );
        }
    }
    findings
}

/// What is missing from the figures, and from traces.
fn figures(status: &CkbProbeStatus) -> Vec<Finding> {
    let place = Place::Figures;
    let mut findings = Vec::new();
    for probe in &status.probes {
        let missing = probe.lost.get("calls").copied().unwrap_or_default();
        if missing > 0 {
            let text = format!(
                "probe {}: {missing} calls are missing from all figures",
                probe.name
            );
            findings.push(Finding::warning(place, text));
        }
    }
    let traces = status.traces.as_ref().map(|spans| &spans.message);
    if let Some(message) = traces.filter(|message| !message.is_empty()) {
        findings.push(Finding::warning(place, format!("traces: {message}")));
    }
    findings
}

/// The orders of the nodes of a CkbProbe's targets.
fn orders<'a>(found: &'a Snapshot, status: &CkbProbeStatus) -> Vec<&'a NodeProbe> {
    let names: BTreeSet<&str> = status
        .instances
        .iter()
        .filter_map(|one| one.node.as_deref())
        .collect();
    let orders = found.node_probes.known().into_iter().flatten();
    let own = |one: &&NodeProbe| {
        let name = one.metadata.name.as_deref();
        name.is_some_and(|name| names.contains(name))
    };
    orders.filter(own).collect()
}

fn condition<'a>(status: &'a CkbProbeStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|one| one.type_ == type_)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|one| &one.conditions).flatten();
    says_ready(conditions.map(|one| (&*one.type_, &*one.status)))
}

fn node_is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|one| &one.conditions).flatten();
    says_ready(conditions.map(|one| (&*one.type_, &*one.status)))
}

fn says_ready<'a>(mut conditions: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
    conditions.any(|condition| condition == ("Ready", "True"))
}
