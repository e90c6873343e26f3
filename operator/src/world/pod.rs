//! Pods that may be targets. Only the fields named here are ever read from the API's answer: a cluster's pods
//! are most of what a watch brings, and this is most of why the operator stays small.

use ckb_probe_crds::{Container, PodReference};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use super::{Labels, ObjectKey, rows};

/// A pod as the watch brings it.
pub type RawPod = kube::core::Object<PodSpec, PodStatus>;

/// Of `pod.spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    node_name: Option<String>,
    containers: Vec<ContainerSpec>,
    init_containers: Vec<ContainerSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerSpec {
    name: String,
    restart_policy: Option<String>,
}

/// Of `pod.status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub(super) phase: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) conditions: Vec<PodCondition>,
    pub(super) container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    name: String,
    #[serde(rename = "containerID")]
    container_id: Option<String>,
    pub(super) state: ContainerState,
    last_state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerState {
    pub(super) waiting: Option<Waiting>,
    pub(super) running: Option<Running>,
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Running {
    pub(super) started_at: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Terminated {
    reason: Option<String>,
    /// With `terminationMessagePolicy: FallbackToLogsOnError`, the end of the container's log.
    message: Option<String>,
}

/// How far a pod's life is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Phase {
    /// Not all of its containers have started.
    #[default]
    Pending,
    /// The pod runs.
    Running,
    /// Succeeded or failed: it will not run again.
    Finished,
}

/// A pod that may be a target.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TargetPod {
    /// The pod, told apart from others of the same name.
    pub reference: PodReference,
    /// When it was created.
    pub created: Timestamp,
    /// The labels of the pod.
    pub labels: Labels,
    /// The node it is bound to.
    pub node: Option<String>,
    /// How far it is.
    pub phase: Phase,
    /// What keeps it from running, as the scheduler or the kubelet says it.
    pub trouble: Option<String>,
    /// The containers that run as long as the pod does, in the order of the spec.
    pub containers: Vec<Container>,
}

impl From<RawPod> for TargetPod {
    fn from(raw: RawPod) -> Self {
        let RawPod {
            metadata: meta,
            spec,
            status,
            types: _,
        } = raw;
        let status = status.unwrap_or_default();
        Self {
            reference: PodReference {
                namespace: meta.namespace.unwrap_or_default(),
                name: meta.name.unwrap_or_default(),
                uid: meta.uid.unwrap_or_default(),
            },
            created: meta
                .creation_timestamp
                .map(|time| time.0)
                .unwrap_or_default(),
            labels: meta.labels.unwrap_or_default().into(),
            phase: status.phase(),
            trouble: status.unscheduled().or_else(|| status.waiting()),
            containers: lasting(&spec, &status),
            node: spec.node_name.filter(|node| !node.is_empty()),
        }
    }
}

/// The regular containers, and the init containers that restart (sidecars): the others end before the work begins.
fn lasting(spec: &PodSpec, status: &PodStatus) -> Vec<Container> {
    let sidecars = spec
        .init_containers
        .iter()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| (container, &status.init_container_statuses));
    let regular = spec
        .containers
        .iter()
        .map(|container| (container, &status.container_statuses));
    regular
        .chain(sidecars)
        .map(|(container, statuses)| Container {
            name: container.name.clone(),
            id: statuses
                .iter()
                .find(|status| status.name == container.name)
                .and_then(|status| bare_id(status.container_id.as_deref()?)),
        })
        .collect()
}

/// `containerd://abc` without its scheme.
fn bare_id(id: &str) -> Option<String> {
    let bare = id.split_once("://").map_or(id, |(_, bare)| bare);
    (!bare.is_empty()).then(|| bare.to_owned())
}

impl PodStatus {
    pub(super) fn phase(&self) -> Phase {
        match self.phase.as_deref() {
            Some("Running") => Phase::Running,
            Some("Succeeded" | "Failed") => Phase::Finished,
            _ => Phase::Pending,
        }
    }

    /// Whether the probes of its readiness succeed.
    pub(super) fn ready(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    /// Why the scheduler has found no node.
    pub(super) fn unscheduled(&self) -> Option<String> {
        let condition = self
            .conditions
            .iter()
            .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
        Some(sentence(&condition.reason, &condition.message))
    }

    /// Why the kubelet has not started a container.
    fn waiting(&self) -> Option<String> {
        self.container_statuses
            .iter()
            .chain(&self.init_container_statuses)
            .find_map(|status| {
                let waiting = status.state.waiting.as_ref()?;
                let why = sentence(&waiting.reason, &waiting.message);
                Some(format!("container {} waits: {why}", status.name))
            })
    }

    /// As [`Self::waiting`], but not for what is part of every start; and how the container ended, if it did.
    pub(super) fn stuck(&self) -> Option<String> {
        let started = |reason: &str| matches!(reason, "ContainerCreating" | "PodInitializing" | "");
        self.container_statuses.iter().find_map(|status| {
            let waiting = status.state.waiting.as_ref()?;
            let reason = waiting.reason.as_deref().unwrap_or_default();
            (!started(reason)).then(|| {
                let why = sentence(&waiting.reason, &waiting.message);
                match &status.last_state.terminated {
                    Some(end) => format!("{why}; it ended with {}", end.last_words()),
                    None => why,
                }
            })
        })
    }
}

impl Terminated {
    /// The reason, and the last line of the log. Without its time: the same end twice is to read the same.
    fn last_words(&self) -> String {
        let log = self.message.as_deref().unwrap_or_default();
        let line = log.trim_end().lines().next_back().unwrap_or_default();
        let undated = match line.split_once(' ') {
            Some((time, text)) if time.parse::<Timestamp>().is_ok() => text.trim_start(),
            _ => line,
        };
        sentence(&self.reason, &Some(undated.to_owned()))
    }
}

/// `Reason: message`, or whichever there is.
pub(super) fn sentence(reason: &Option<String>, message: &Option<String>) -> String {
    match (reason, message) {
        (Some(reason), Some(message)) if !message.is_empty() => format!("{reason}: {message}"),
        (Some(reason), _) => reason.clone(),
        (None, message) => message.clone().unwrap_or_default(),
    }
}

rows! {
    TargetPod by ObjectKey: |row| ObjectKey::new(&row.reference.namespace, &row.reference.name), reference.uid;
}
