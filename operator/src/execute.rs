//! Carries actions out. The only place that writes to the API, the Lease aside.

use std::{sync::Arc, time::Duration};

use ckb_probe_crds::{CkbProbe, CkbProbeStatus, NodeProbe, NodeProbeSpec, ProbeReference};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::ApiResource,
};
use serde_json::json;
use strum::IntoStaticStr;

use crate::{
    notes::Note,
    plan::Action,
    template::{AgentTemplate, agent_name},
    world::{CkbProbeEntry, Raw},
};

mod events;
mod quota;

pub use events::Events;

/// Owns NodeProbes' specs.
const FIELD_MANAGER: &str = "ckb-probe-operator";
/// Owns CkbProbes' statuses.
const STATUS_MANAGER: &str = "ckb-probe-operator-status";
/// No request may take longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why an action failed.
#[allow(missing_docs, reason = "the texts name the fields")]
#[derive(Debug, thiserror::Error, IntoStaticStr)]
pub enum ExecuteError {
    /// The Deployment that is to own NodeProbes could not be read.
    #[error("cannot read Deployment {deployment}, which is to own NodeProbes: {source}")]
    ReadOwner {
        deployment: String,
        source: RequestError,
    },
    /// The NodeProbe could not be written.
    #[error("cannot apply NodeProbe {node}: {source}")]
    ApplyNodeProbe { node: String, source: RequestError },
    /// The NodeProbe could not be deleted.
    #[error("cannot delete NodeProbe {node}: {source}")]
    DeleteNodeProbe { node: String, source: RequestError },
    /// The agent pod could not be created.
    #[error("cannot create the agent pod for node {node}: {source}")]
    CreateAgent { node: String, source: RequestError },
    /// The agent pod could not be deleted.
    #[error("cannot delete agent pod {pod}: {source}")]
    DeleteAgent { pod: String, source: RequestError },
    /// What an agent found out about its node could not be told.
    #[error("cannot write an Event of NodeProbe {node}: {source}")]
    WriteEvent { node: String, source: RequestError },
    /// The status could not be written.
    #[error("cannot write the status of CkbProbe {probe}: {source}")]
    WriteStatus {
        /// Namespace and name.
        probe: String,
        source: RequestError,
    },
}

impl ExecuteError {
    /// Whether another was faster: the object has changed meanwhile, and what is written next rests on what it is now.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::ApplyNodeProbe { source, .. } | Self::WriteStatus { source, .. } => {
                source.is_conflict()
            }
            Self::ReadOwner { .. }
            | Self::DeleteNodeProbe { .. }
            | Self::CreateAgent { .. }
            | Self::DeleteAgent { .. }
            | Self::WriteEvent { .. } => false,
        }
    }

    /// The word for the metric's label `reason`.
    pub fn reason(&self) -> &'static str {
        self.into()
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
    pub(crate) fn is_gone(&self) -> bool {
        self.is_status(404)
    }

    /// The object is there already, or is another than was meant.
    pub(crate) fn is_conflict(&self) -> bool {
        self.is_status(409)
    }

    pub(crate) fn is_status(&self, code: u16) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == code)
    }
}

/// A status to write, and what to tell about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Of which CkbProbe.
    pub probe: ProbeReference,
    /// The status to write.
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
    owner: Option<Arc<str>>,
    events: Events,
}

impl Executor {
    /// One that works in this namespace. NodeProbes will belong to the Deployment `owner` of the same namespace, if there is one.
    pub fn new(
        client: Client,
        namespace: String,
        events: Events,
        template: AgentTemplate,
        owner: Option<String>,
    ) -> Self {
        Self {
            events,
            client,
            namespace: namespace.into(),
            template: template.into(),
            owner: owner.map(Into::into),
        }
    }

    /// The template's hash, for the plan.
    pub fn template_hash(&self) -> &str {
        self.template.hash()
    }

    /// Does it. What came of it is for the watches to tell: an answer may be older than what they told already.
    pub async fn execute(&self, action: Action) -> Result<(), ExecuteError> {
        match action {
            Action::ApplyNodeProbe { node, spec } => {
                let owner = self.owner().await?;
                self.apply_node_probe(&node, &spec, owner)
                    .await
                    .map_err(|source| ExecuteError::ApplyNodeProbe { node, source })
            }
            Action::DeleteNodeProbe { node, uid } => {
                let deleted = request(self.node_probes().delete(&node, &only(&uid))).await;
                unless_gone(deleted)
                    .map_err(|source| ExecuteError::DeleteNodeProbe { node, source })
            }
            Action::CreateAgent { node, owner } => self
                .create_agent(&node, owner)
                .await
                .map_err(|source| ExecuteError::CreateAgent { node, source }),
            Action::DeleteAgent { pod, uid, why: _ } => {
                let deleted = request(self.pods().delete(&pod, &only(&uid))).await;
                unless_gone(deleted).map_err(|source| ExecuteError::DeleteAgent { pod, source })
            }
        }
    }

    /// Who owns NodeProbes. Read anew each time: a Deployment that is gone must get no more of them, and one that
    /// was made again has another uid.
    async fn owner(&self) -> Result<Option<OwnerReference>, ExecuteError> {
        let Some(name) = &self.owner else {
            return Ok(None);
        };
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = request(deployments.get_metadata(name)).await;
        let deployment = found.map_err(|source| ExecuteError::ReadOwner {
            deployment: name.to_string(),
            source,
        })?;
        Ok(deployment.owner_ref(&()))
    }

    async fn apply_node_probe(
        &self,
        node: &str,
        spec: &NodeProbeSpec,
        owner: Option<OwnerReference>,
    ) -> Result<(), RequestError> {
        let owners: Vec<OwnerReference> = owner.into_iter().collect();
        let patch = Patch::Apply(json!({
            "apiVersion": NodeProbe::api_version(&()),
            "kind": NodeProbe::kind(&()),
            "metadata": { "name": node, "ownerReferences": owners },
            "spec": spec,
        }));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        request(self.node_probes().patch(node, &params, &patch)).await?;
        Ok(())
    }

    async fn create_agent(&self, node: &str, owner: String) -> Result<(), RequestError> {
        let owner = OwnerReference {
            api_version: NodeProbe::api_version(&()).into_owned(),
            kind: NodeProbe::kind(&()).into_owned(),
            name: node.to_owned(),
            uid: owner,
            controller: Some(true),
            block_owner_deletion: None,
        };
        let uid = owner.uid.clone();
        let pod = self.template.pod(node, &self.namespace, owner);
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match request(self.pods().create(&params, &pod)).await {
            Err(error) if error.is_conflict() => self.expect_agent(node, &uid, error).await,
            created => created.map(drop),
        }
    }

    /// A pod of the agent's name that is there already is no fault where it is this node's agent, of which the watches have yet
    /// to tell, or an older one on its way out: `conflict` is one with anything else.
    async fn expect_agent(
        &self,
        node: &str,
        owner: &str,
        conflict: RequestError,
    ) -> Result<(), RequestError> {
        let name = agent_name(node);
        let Some(pod) = request(self.pods().get_metadata_opt(&name)).await? else {
            return Ok(());
        };
        let leaves = pod.metadata.deletion_timestamp.is_some();
        let mut owners = pod.metadata.owner_references.iter().flatten();
        if leaves || owners.any(|reference| reference.uid == owner) {
            return Ok(());
        }
        Err(conflict)
    }

    /// Writes a status, and then tells what it means. Returns the CkbProbe as it was then; one that is gone needs
    /// neither.
    pub async fn report(&self, report: Report) -> Result<Option<CkbProbeEntry>, ExecuteError> {
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
            self.events.of_probe(&probe, note).await;
        }
        Ok(Some(written))
    }

    /// Tells of a NodeProbe what stands in the way of measuring on its node; what was told before is not told again.
    pub async fn tell(&self, node: &str, uid: &str, notes: Vec<Note>) -> Result<(), ExecuteError> {
        for note in notes {
            let written = self.events.of_node_probe(node, uid, note).await;
            written.map_err(|source| ExecuteError::WriteEvent {
                node: node.to_owned(),
                source,
            })?;
        }
        Ok(())
    }

    async fn write_status(
        &self,
        probe: &ProbeReference,
        status: &CkbProbeStatus,
    ) -> Result<CkbProbeEntry, RequestError> {
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

    /// Untyped, so that one that an older version wrote can be replaced all the same.
    fn node_probes(&self) -> Api<Raw> {
        let resource = ApiResource::erase::<NodeProbe>(&());
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// What is gone need not be deleted; where a newer one has its name, the one that was meant is gone too.
pub(crate) fn unless_gone<T>(deleted: Result<T, RequestError>) -> Result<(), RequestError> {
    match deleted {
        Err(error) if !error.is_gone() && !error.is_conflict() => Err(error),
        _ => Ok(()),
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

pub(crate) async fn request<T>(
    future: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, RequestError> {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(RequestError::Timeout),
    }
}
