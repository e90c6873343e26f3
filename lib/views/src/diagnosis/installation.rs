//! What all CkbProbes need: the API server, the resources, the operator, and rights.

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ContainerStatus, Pod},
    },
    jiff::SignedDuration,
};

use super::{
    Finding, Mark, Place,
    cluster::{Answer, Right, Snapshot},
};
use crate::VERSION;

/// What the chart installs.
const RESOURCES: [&str; 4] = ["ckbprobes", "ckbprofiles", "nodeprobes", "profileparts"];

/// What installs it.
const INSTALL: &str = "helm upgrade --install ckb-probe charts/ckb-probe --namespace ckb-probe";

/// The label in which the chart says the version.
const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// A Lease may be late by so much beyond its own duration: clocks differ.
const CLOCKS: SignedDuration = SignedDuration::from_secs(15);

/// Whether the API server answers.
pub(super) fn server(found: &Snapshot) -> Vec<Finding> {
    let place = Place::Cluster;
    vec![match &found.server {
        Answer::Known(version) => Finding::passed(
            place,
            format!("the API server answers: Kubernetes {version}"),
        ),
        // It answered, if only that.
        Answer::Forbidden => Finding::passed(place, "the API server answers"),
        Answer::Failed(why) => Finding::failed(place, why.clone())
            .next("kubectl cluster-info")
            .see("the-cluster-and-the-installation"),
        Answer::Unasked => return Vec::new(),
    }]
}

/// Whether it knows the resources.
pub(super) fn crds(found: &Snapshot) -> Vec<Finding> {
    let place = Place::Crd;
    let served = match &found.resources {
        Answer::Known(served) => served,
        Answer::Forbidden | Answer::Unasked => {
            return vec![Finding::warning(
                place,
                "you may not ask which resources the API server has",
            )];
        }
        Answer::Failed(why) => {
            let text = format!("the API server does not tell which resources it has: {why}");
            return vec![
                Finding::failed(place, text).next("kubectl api-resources --api-group ckbprobe.dev"),
            ];
        }
    };
    let missing: Vec<&str> = RESOURCES
        .into_iter()
        .filter(|wanted| !served.iter().any(|one| one == wanted))
        .collect();
    if missing.is_empty() {
        return vec![Finding::passed(
            place,
            "the API server has the resources of ckbprobe.dev/v1alpha1",
        )];
    }
    let text = format!(
        "the API server has no {}: ckb-probe is not installed there, or only a part of it",
        missing.join(", ")
    );
    vec![
        Finding::failed(place, text)
            .next(INSTALL)
            .see("the-cluster-and-the-installation"),
    ]
}

/// Whether an operator works.
pub(super) fn operator(found: &Snapshot) -> Vec<Finding> {
    let place = Place::Operator;
    let deployments = match &found.operators {
        Answer::Known(deployments) => deployments,
        Answer::Forbidden | Answer::Unasked => {
            let text = "you may not list Deployments: whether an operator runs shows in the answers of CkbProbes alone";
            return vec![Finding::warning(place, text)];
        }
        Answer::Failed(why) => {
            return vec![Finding::failed(
                place,
                format!("Deployments cannot be listed: {why}"),
            )];
        }
    };
    let Some(deployment) = deployments.first() else {
        let text = "no operator is installed: there is no Deployment with the labels app.kubernetes.io/name=ckb-probe and \
                    app.kubernetes.io/component=operator";
        let finding = Finding::failed(place, text).next(INSTALL);
        return vec![finding.see("the-cluster-and-the-installation")];
    };
    let replicas = replicas(found, deployment);
    let runs = replicas.mark != Mark::Failed;
    let mut findings = vec![replicas];
    // Nobody wonders that one who does not run does not work.
    findings.extend(lease(found, deployment).filter(|_| runs));
    findings.extend(scope(found, deployment));
    if deployments.len() > 1 {
        let names: Vec<String> = deployments.iter().map(name).collect();
        let text = format!(
            "{} operators are installed, and each answers all CkbProbes: {}",
            names.len(),
            names.join(", ")
        );
        findings.push(
            Finding::warning(place, text)
                .next("helm list -A")
                .see("the-cluster-and-the-installation"),
        );
    }
    let version = version(deployment);
    if version != VERSION {
        let text =
            format!("the operator is of version {version}, and this command line of {VERSION}");
        findings.push(Finding::warning(place, text));
    }
    findings
}

fn replicas(found: &Snapshot, deployment: &Deployment) -> Finding {
    let place = Place::Operator;
    let name = name(deployment);
    let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
    let bare = deployment.metadata.name.as_deref().unwrap_or_default();
    let spec = deployment.spec.as_ref();
    let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.as_ref();
    let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
    if wanted == 0 {
        return Finding::failed(
            place,
            format!("Deployment {name} has 0 replicas: no operator is to run"),
        )
        .next(format!(
            "kubectl -n {namespace} scale deployment {bare} --replicas 1"
        ))
        .see("the-cluster-and-the-installation");
    }
    if ready == 0 {
        let pods = found.operator_pods.known().into_iter().flatten();
        let trouble = pods.filter_map(trouble).next();
        let trouble = trouble.map_or_else(String::new, |why| format!(": {why}"));
        return Finding::failed(
            place,
            format!("of Deployment {name} 0 of {wanted} replicas are ready{trouble}"),
        )
        .next(format!("kubectl -n {namespace} describe deployment {bare}"))
        .next(format!("kubectl -n {namespace} logs deployment/{bare}"))
        .see("when-there-is-no-status-at-all");
    }
    Finding::passed(
        place,
        format!("of Deployment {name} {ready} of {wanted} replicas are ready"),
    )
}

/// Whether a replica works, which is the one that holds the Lease.
fn lease(found: &Snapshot, deployment: &Deployment) -> Option<Finding> {
    let place = Place::Operator;
    let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
    let command = format!("kubectl -n {namespace} get lease ckb-probe-operator -o yaml");
    let held = match &found.lease {
        Answer::Known(Some(lease)) => lease.spec.as_ref()?,
        Answer::Known(None) => {
            let text = "no operator has taken the Lease ckb-probe-operator yet";
            let finding = Finding::failed(place, text).next(command);
            return Some(finding.see("when-there-is-no-status-at-all"));
        }
        Answer::Forbidden | Answer::Failed(_) | Answer::Unasked => return None,
    };
    let holder = held.holder_identity.as_deref().unwrap_or_default();
    let renewed = held.renew_time.as_ref()?.0;
    let lasts = SignedDuration::from_secs(held.lease_duration_seconds.unwrap_or(15).into());
    let age = found.now.duration_since(renewed);
    if holder.is_empty() {
        let text = "no operator works: nobody holds the Lease ckb-probe-operator";
        let finding = Finding::failed(place, text).next(command);
        return Some(finding.see("when-there-is-no-status-at-all"));
    }
    if age > lasts.checked_add(CLOCKS).unwrap_or(SignedDuration::MAX) {
        let text = format!(
            "no operator works: the Lease ckb-probe-operator was last renewed {} s ago, by {holder:?}",
            age.as_secs()
        );
        let finding = Finding::failed(place, text).next(command);
        return Some(finding.see("when-there-is-no-status-at-all"));
    }
    Some(Finding::passed(
        place,
        format!("{holder} works: it holds the Lease"),
    ))
}

/// Whether it serves the namespace that is asked about.
fn scope(found: &Snapshot, deployment: &Deployment) -> Option<Finding> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let mut variables = pod
        .containers
        .iter()
        .flat_map(|one| one.env.iter().flatten());
    let watched = variables
        .find(|one| one.name == "WATCH_NAMESPACE")?
        .value
        .as_deref()?;
    let asked = found.namespace.as_deref()?;
    (watched != asked).then(|| {
        let text = format!("the operator serves namespace {watched} alone, and not {asked}");
        Finding::failed(Place::Operator, text)
            .next("helm upgrade ckb-probe charts/ckb-probe --reset-then-reuse-values --set operator.watchNamespace=")
            .see("when-there-is-no-status-at-all")
    })
}

/// What people and programs may do.
pub(super) fn rights(found: &Snapshot) -> Vec<Finding> {
    let place = Place::Rbac;
    let mut findings = Vec::new();
    for right in &found.rights {
        let Right {
            who,
            what,
            namespace,
            without,
            needed,
            granted,
        } = right;
        let within = match namespace.is_empty() {
            true => String::new(),
            false => format!(" in namespace {namespace}"),
        };
        if *granted == Some(false) {
            let text = format!("{who} may not {what}{within}: {without}");
            let finding = match needed {
                true => Finding::failed(place, text),
                false => Finding::warning(place, text),
            };
            let (verb, resource) = what.split_once(' ').unwrap_or((what, ""));
            let scope = match namespace.is_empty() {
                true => "-A".to_owned(),
                false => format!("-n {namespace}"),
            };
            let account = match who.split_once("ServiceAccount ") {
                Some((_, account)) => {
                    format!(" --as system:serviceaccount:{}", account.replace('/', ":"))
                }
                None => String::new(),
            };
            findings.push(
                finding
                    .next(format!(
                        "kubectl auth can-i {verb} {resource} {scope}{account}"
                    ))
                    .see("rights"),
            );
        }
    }
    let (granted, unknown) = found
        .rights
        .iter()
        .fold((0, 0), |(granted, unknown), one| match one.granted {
            Some(true) => (granted + 1, unknown),
            Some(false) => (granted, unknown),
            None => (granted, unknown + 1),
        });
    if findings.is_empty() && granted > 0 {
        let unknown = match unknown {
            0 => String::new(),
            _ => format!(", and of {unknown} you may not ask"),
        };
        let text = format!(
            "you and the operator have the rights that this takes: {granted} looked at{unknown}"
        );
        findings.push(Finding::passed(place, text));
    }
    findings
}

/// The version of an operator: its label, or else its image's tag.
pub(super) fn version(deployment: &Deployment) -> String {
    let labels = deployment.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(VERSION_LABEL));
    label.map_or_else(|| "unknown".to_owned(), Clone::clone)
}

fn name(deployment: &Deployment) -> String {
    let meta = &deployment.metadata;
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}

/// What keeps a pod from being ready, as the scheduler or the kubelet says it.
pub(super) fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.iter().flatten();
    let unscheduled = conditions
        .filter(|one| one.type_ == "PodScheduled" && one.status == "False")
        .filter_map(|one| one.message.clone())
        .next();
    let mut containers = status.container_statuses.iter().flatten();
    let sentence = |reason: &Option<String>, message: &Option<String>| {
        let words = [reason, message].map(|text| text.as_deref().unwrap_or_default().trim());
        let told: Vec<&str> = words.into_iter().filter(|text| !text.is_empty()).collect();
        (!told.is_empty()).then(|| told.join(": "))
    };
    let of_container = |one: &ContainerStatus| {
        let ended = one
            .last_state
            .as_ref()
            .and_then(|last| last.terminated.as_ref());
        let ended = ended.or(one.state.as_ref()?.terminated.as_ref());
        let ended = ended.map(|ended| {
            let log = sentence(&ended.reason, &ended.message).unwrap_or_default();
            let log = log.lines().last().unwrap_or_default();
            format!("; it ended with {}: {log}", ended.exit_code)
        });
        let waits = one.state.as_ref()?.waiting.as_ref();
        let waits = waits.and_then(|waits| sentence(&waits.reason, &waits.message));
        match (waits, ended) {
            (None, None) => None,
            (waits, ended) => Some(format!(
                "{}{}",
                waits.unwrap_or_else(|| "it does not run".to_owned()),
                ended.unwrap_or_default()
            )),
        }
    };
    unscheduled.or_else(|| containers.find_map(|one| (!one.ready).then(|| of_container(one))?))
}
