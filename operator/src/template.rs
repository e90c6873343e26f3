//! Agent pods, made from the template that the Helm chart renders.

use k8s_openapi::{
    api::core::v1::{
        Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod,
        PodSpec,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::hash::fnv1a;

/// The annotation that carries the hash of the template a pod was made from.
pub const TEMPLATE_HASH: &str = "ckbprobe.dev/template-hash";
/// The labels of every agent pod, by which they are watched.
pub const LABELS: [(&str, &str); 2] = [
    ("app.kubernetes.io/name", "ckb-probe"),
    ("app.kubernetes.io/component", "agent"),
];
const NAME_PREFIX: &str = "ckb-probe-agent-";
/// A pod's name is its host name too, which ends at 63 characters.
const NAME_LENGTH: usize = 63;

/// Why a text is no template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// It is no YAML, or no pod.
    #[error("the agent template is no v1 Pod: {0}")]
    Unreadable(#[from] serde_yaml::Error),
    /// The pod has no container.
    #[error("the agent template has no spec.containers")]
    NoContainers,
    /// The pod cannot be written as JSON.
    #[error("the agent template cannot be written as JSON: {0}")]
    Unwritable(#[from] serde_json::Error),
}

/// A pod to make agents from.
#[derive(Clone, Debug)]
pub struct AgentTemplate {
    metadata: ObjectMeta,
    spec: PodSpec,
    hash: String,
}

impl AgentTemplate {
    /// Reads a v1 Pod.
    pub fn parse(yaml: &str) -> Result<Self, TemplateError> {
        let pod: Pod = serde_yaml::from_str(yaml)?;
        // Not of the text: comments and the order of keys make no other pod.
        let hash = format!("{:016x}", fnv1a(serde_json::to_string(&pod)?.as_bytes()));
        let spec = pod.spec.unwrap_or_default();
        if spec.containers.is_empty() {
            return Err(TemplateError::NoContainers);
        }
        Ok(Self {
            metadata: pod.metadata,
            spec,
            hash,
        })
    }

    /// Tells this template from others.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The agent pod of a node, owned by its NodeProbe: what the template says, and where it is to run.
    pub fn pod(&self, node: &str, namespace: &str, owner: OwnerReference) -> Pod {
        let mut labels = self.metadata.labels.clone().unwrap_or_default();
        labels.extend(LABELS.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let mut annotations = self.metadata.annotations.clone().unwrap_or_default();
        annotations.insert(TEMPLATE_HASH.to_owned(), self.hash.clone());
        let mut spec = self.spec.clone();
        pin(&mut spec, node);
        Pod {
            metadata: ObjectMeta {
                name: Some(agent_name(node)),
                namespace: Some(namespace.to_owned()),
                labels: Some(labels),
                annotations: Some(annotations),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
            status: None,
        }
    }
}

/// Lets the pod run on this node only, through the scheduler, as a DaemonSet's controller does: taints, resources
/// and admission are honoured, and a pod that does not fit says why.
fn pin(spec: &mut PodSpec, node: &str) {
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    let required: &mut NodeSelector = affinity
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default();
    // The terms are alternatives; each must hold the node.
    if required.node_selector_terms.is_empty() {
        required
            .node_selector_terms
            .push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_fields = Some(vec![NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        }]);
    }
}

/// The name of a node's agent pod: the node's name in it when that fits, cut and hashed when it does not.
pub fn agent_name(node: &str) -> String {
    let name = format!("{NAME_PREFIX}{node}");
    if name.len() <= NAME_LENGTH {
        return name;
    }
    let hash = format!("-{:016x}", fnv1a(node.as_bytes()));
    let kept: String = name.chars().take(NAME_LENGTH - hash.len()).collect();
    format!("{}{hash}", kept.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests;
