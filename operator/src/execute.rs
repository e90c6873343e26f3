//! Carries actions out. The only place that writes to the API, the Lease aside.

use std::{sync::Arc, time::Duration};

use ckb_probe_crds::{CkbProbe, CkbProbeStatus, NodeProbe, ProbeReference};
use either::Either;
use k8s_openapi::{
    api::core::v1::{ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::ApiResource,
    runtime::{
        events::{Event as KubeEvent, Recorder, Reporter},
        watcher::Event,
    },
};
use serde_json::json;

use crate::{
    notes::Note,
    plan::Action,
    template::AgentTemplate,
    world::{AgentPod, Change, NodeProbeRow, ProbeRow, Raw, RawAgent},
};

/// Owns NodeProbes' specs.
const FIELD_MANAGER: &str = "ckb-probe-operator";
/// Owns CkbProbes' statuses.
const STATUS_MANAGER: &str = "ckb-probe-operator-status";
/// No request may take longer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What events.k8s.io takes as a note, in bytes.
const NOTE_LENGTH: usize = 1024;

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The NodeProbe could not be written.
    #[error("cannot apply NodeProbe {node}: {source}")]
    ApplyNodeProbe {
        /// The node.
        node: String,
        /// Why.
        source: RequestError,
    },
    /// The NodeProbe could not be deleted.
    #[error("cannot delete NodeProbe {node}: {source}")]
    DeleteNodeProbe {
        /// The node.
        node: String,
        /// Why.
        source: RequestError,
    },
    /// The agent pod could not be created.
    #[error("cannot create the agent pod for node {node}: {source}")]
    CreateAgent {
        /// The node.
        node: String,
        /// Why.
        source: RequestError,
    },
    /// The agent pod could not be deleted.
    #[error("cannot delete agent pod {pod}: {source}")]
    DeleteAgent {
        /// The pod.
        pod: String,
        /// Why.
        source: RequestError,
    },
    /// The status could not be written.
    #[error("cannot write the status of CkbProbe {probe}: {source}")]
    WriteStatus {
        /// Namespace and name.
        probe: String,
        /// Why.
        source: RequestError,
    },
}

impl ExecuteError {
    /// The word for the metric's label `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ApplyNodeProbe { .. } => "ApplyNodeProbe",
            Self::DeleteNodeProbe { .. } => "DeleteNodeProbe",
            Self::CreateAgent { .. } => "CreateAgent",
            Self::DeleteAgent { .. } => "DeleteAgent",
            Self::WriteStatus { .. } => "WriteStatus",
        }
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The API server said so, or could not be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// There was no answer.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

impl RequestError {
    /// The object is not there.
    fn is_gone(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 404)
    }
}

/// A status to write, and what to tell about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Of which CkbProbe.
    pub probe: ProbeReference,
    /// Its new status.
    pub status: CkbProbeStatus,
    /// The Events.
    pub notes: Vec<Note>,
}

/// Carries actions out.
#[derive(Clone)]
pub struct Executor {
    client: Client,
    namespace: Arc<str>,
    template: Arc<AgentTemplate>,
    recorder: Recorder,
}

impl Executor {
    /// One that works in this namespace, and signs Events with this name.
    pub fn new(
        client: Client,
        namespace: String,
        identity: String,
        template: AgentTemplate,
    ) -> Self {
        let reporter = Reporter {
            controller: FIELD_MANAGER.to_owned(),
            instance: Some(identity),
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            namespace: namespace.into(),
            template: template.into(),
        }
    }

    /// The template's hash, for the plan.
    pub fn template_hash(&self) -> &str {
        self.template.hash()
    }

    /// Does it, and says what the API now has.
    pub async fn execute(&self, action: Action) -> Result<Change, ExecuteError> {
        match action {
            Action::ApplyNodeProbe { node, spec } => self
                .apply_node_probe(&node, &spec)
                .await
                .map_err(|source| ExecuteError::ApplyNodeProbe { node, source }),
            Action::DeleteNodeProbe { node, uid } => self
                .delete_node_probe(&node, &uid)
                .await
                .map_err(|source| ExecuteError::DeleteNodeProbe { node, source }),
            Action::CreateAgent { node, owner } => self
                .create_agent(&node, owner)
                .await
                .map_err(|source| ExecuteError::CreateAgent { node, source }),
            Action::DeleteAgent { pod, uid, why: _ } => self
                .delete_agent(&pod, &uid)
                .await
                .map_err(|source| ExecuteError::DeleteAgent { pod, source }),
        }
    }

    async fn apply_node_probe(
        &self,
        node: &str,
        spec: &ckb_probe_crds::NodeProbeSpec,
    ) -> Result<Change, RequestError> {
        let patch = Patch::Apply(json!({
            "apiVersion": NodeProbe::api_version(&()),
            "kind": NodeProbe::kind(&()),
            "metadata": { "name": node },
            "spec": spec,
        }));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let applied: Raw = request(self.node_probes().patch(node, &params, &patch)).await?;
        Ok(Change::NodeProbe(Event::Apply(applied.into())))
    }

    async fn delete_node_probe(&self, node: &str, uid: &str) -> Result<Change, RequestError> {
        let gone = NodeProbeRow {
            node: node.to_owned(),
            uid: uid.to_owned(),
            generation: 0,
            deleting: true,
            spec: None,
            status: None,
            heard: None,
        };
        let event = match request(self.node_probes().delete(node, &only(uid))).await {
            Ok(Either::Left(deleting)) if deleting.metadata.finalizers.is_some() => {
                Event::Apply(deleting.into())
            }
            Ok(_) => Event::Delete(gone),
            Err(error) if error.is_gone() => Event::Delete(gone),
            Err(error) => return Err(error),
        };
        Ok(Change::NodeProbe(event))
    }

    async fn create_agent(&self, node: &str, owner: String) -> Result<Change, RequestError> {
        let owner = OwnerReference {
            api_version: NodeProbe::api_version(&()).into_owned(),
            kind: NodeProbe::kind(&()).into_owned(),
            name: node.to_owned(),
            uid: owner,
            controller: Some(true),
            block_owner_deletion: None,
        };
        let pod = self.template.pod(node, &self.namespace, owner);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let created = request(pods.create(&params, &pod)).await?;
        let row = AgentPod::created(&created.metadata);
        Ok(Change::Agent(Event::Apply(row)))
    }

    async fn delete_agent(&self, pod: &str, uid: &str) -> Result<Change, RequestError> {
        let resource = ApiResource::erase::<Pod>(&());
        let pods: Api<RawAgent> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let gone = AgentPod {
            name: pod.to_owned(),
            uid: uid.to_owned(),
            ..AgentPod::default()
        };
        let event = match request(pods.delete(pod, &only(uid))).await {
            Ok(Either::Left(deleting)) => Event::Apply(AgentPod {
                deleting: true,
                ..deleting.into()
            }),
            Ok(Either::Right(_)) => Event::Delete(gone),
            Err(error) if error.is_gone() => Event::Delete(gone),
            Err(error) => return Err(error),
        };
        Ok(Change::Agent(event))
    }

    /// Writes a status and then tells what it means. A CkbProbe that is gone needs neither.
    pub async fn report(&self, report: Report) -> Result<Option<Change>, ExecuteError> {
        let Report {
            probe,
            status,
            notes,
        } = report;
        let written = match self.write_status(&probe, &status).await {
            Ok(written) => written,
            Err(error) if error.is_gone() => return Ok(None),
            Err(source) => {
                let probe = format!("{}/{}", probe.namespace, probe.name);
                return Err(ExecuteError::WriteStatus { probe, source });
            }
        };
        for note in notes {
            self.publish(&probe, note).await;
        }
        Ok(Some(Change::Probe(Event::Apply(written))))
    }

    async fn write_status(
        &self,
        probe: &ProbeReference,
        status: &CkbProbeStatus,
    ) -> Result<ProbeRow, RequestError> {
        let resource = ApiResource::erase::<CkbProbe>(&());
        let api: Api<Raw> = Api::namespaced_with(self.client.clone(), &probe.namespace, &resource);
        let patch = Patch::Apply(json!({
            "apiVersion": CkbProbe::api_version(&()),
            "kind": CkbProbe::kind(&()),
            "metadata": { "name": probe.name, "uid": probe.uid },
            "status": status,
        }));
        let params = PatchParams::apply(STATUS_MANAGER).force();
        let written = request(api.patch_status(&probe.name, &params, &patch)).await?;
        Ok(written.into())
    }

    /// An Event that cannot be written is lost, with a line in the log: the status says the same, and lasts.
    async fn publish(&self, probe: &ProbeReference, note: Note) {
        let regarding = ObjectReference {
            api_version: Some(CkbProbe::api_version(&()).into_owned()),
            kind: Some(CkbProbe::kind(&()).into_owned()),
            namespace: Some(probe.namespace.clone()),
            name: Some(probe.name.clone()),
            uid: Some(probe.uid.clone()),
            ..ObjectReference::default()
        };
        let Note {
            type_,
            reason,
            action,
            text,
        } = note;
        let event = KubeEvent {
            type_,
            reason: reason.to_owned(),
            note: Some(cut(&text, NOTE_LENGTH)),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = request(self.recorder.publish(&event, &regarding)).await {
            tracing::warn!(%error, probe = %probe.name, namespace = %probe.namespace, reason, "cannot write an Event");
        }
    }

    fn node_probes(&self) -> Api<Raw> {
        let resource = ApiResource::erase::<NodeProbe>(&());
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }
}

fn only(uid: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

async fn request<T>(
    future: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, RequestError> {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(RequestError::Timeout),
    }
}

/// The text, cut to at most so many bytes between two characters.
fn cut(text: &str, bytes: usize) -> String {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
