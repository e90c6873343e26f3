//! Agent pods.

use k8s_openapi::jiff::Timestamp;

use super::{Phase, RawPod, pod::sentence, rows};
use crate::template::TEMPLATE_HASH;

/// An agent pod as the watch brings it.
pub type RawAgent = RawPod;

/// An agent pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AgentPod {
    /// The name of the pod.
    pub name: String,
    /// Tells it apart from a later one of the same name.
    pub uid: String,
    /// The NodeProbe that owns it; without one it is none of the operator's.
    pub owner: Option<Owner>,
    /// The hash of the template it was made from.
    pub template_hash: Option<String>,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// How far it is.
    pub phase: Phase,
    /// Whether it has its order, and answers.
    pub ready: bool,
    /// Since when its container runs.
    pub running_since: Option<Timestamp>,
    /// Why it cannot start, as the scheduler or the kubelet says it.
    pub trouble: Option<String>,
}

/// The NodeProbe that owns an agent pod.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Owner {
    /// Its name, which is the node's.
    pub name: String,
    /// The uid of the NodeProbe.
    pub uid: String,
}

impl From<RawAgent> for AgentPod {
    fn from(raw: RawAgent) -> Self {
        let meta = raw.metadata;
        let status = raw.status.unwrap_or_default();
        let phase = status.phase();
        let ended =
            || (phase == Phase::Finished).then(|| sentence(&status.reason, &status.message));
        Self {
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            owner: meta
                .owner_references
                .unwrap_or_default()
                .into_iter()
                .find(|owner| owner.kind == "NodeProbe" && owner.controller == Some(true))
                .map(|owner| Owner {
                    name: owner.name,
                    uid: owner.uid,
                }),
            template_hash: meta.annotations.unwrap_or_default().remove(TEMPLATE_HASH),
            deleting: meta.deletion_timestamp.is_some(),
            phase,
            ready: status.ready(),
            running_since: status
                .container_statuses
                .iter()
                .filter_map(|status| status.state.running.as_ref()?.started_at.as_ref())
                .map(|time| time.0)
                .max(),
            trouble: status
                .unscheduled()
                .or_else(|| status.stuck())
                .or_else(ended),
        }
    }
}

rows! {
    AgentPod by String: |row| row.name.clone(), uid;
}
