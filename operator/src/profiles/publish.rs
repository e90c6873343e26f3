//! Carries out what is planned: one thing at a time, one part in memory at a time.

use std::{collections::BTreeSet, sync::Arc};

use ckb_probe_crds::{CkbProbe, CkbProfile, CkbProfileSpec, PartLabels, ProfilePart, label};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::events::EventType,
};
use serde_json::json;
use strum::IntoStaticStr;

use super::{
    merge::{Merger, PartError},
    plan::{PartId, PartToMerge, ProfileAction, Publish, Why},
    push::Pusher,
    rows::owner,
};
use crate::{
    execute::{Events, RequestError, request, unless_gone},
    metrics::Metrics,
    notes::{Note, PROFILE_FAILED},
};

/// Owns profiles.
const FIELD_MANAGER: &str = "ckb-probe-operator-profiles";
/// The annotation of a profile with the uids of the parts in it: what is published twice counts once.
const MERGED: &str = "ckbprobe.dev/merged-parts";
/// So many of them are remembered: more targets have no CkbProbe's profile together, and the object stays small enough.
const MERGED_LIMIT: usize = 4096;

/// Why something could not be done.
#[allow(missing_docs, reason = "the texts name the fields")]
#[derive(Debug, thiserror::Error, IntoStaticStr)]
pub enum PublishError {
    /// The profile could not be read, to add to it.
    #[error("cannot read CkbProfile {profile}: {source}")]
    ReadProfile {
        /// Namespace and name.
        profile: String,
        source: RequestError,
    },
    /// A part could not be read.
    #[error("cannot read ProfilePart {part}: {source}")]
    ReadPart { part: String, source: RequestError },
    /// The profile could not be written.
    #[error("cannot write CkbProfile {profile}: {source}")]
    WriteProfile {
        /// Namespace and name.
        profile: String,
        source: RequestError,
    },
    /// The merging ended too early.
    #[strum(serialize = "MergeProfile")]
    #[error("cannot merge the parts of CkbProfile {profile}: {source}")]
    Merge {
        /// Namespace and name.
        profile: String,
        source: PartError,
    },
    /// A part or a profile could not be deleted.
    #[strum(serialize = "DeleteProfile")]
    #[error("cannot delete {what}: {source}")]
    Delete { what: String, source: RequestError },
}

impl PublishError {
    /// The word for the metric's label `reason`.
    pub fn reason(&self) -> &'static str {
        self.into()
    }
}

/// Carries out.
#[derive(Clone)]
pub struct Publisher {
    client: Client,
    namespace: Arc<str>,
    events: Events,
    metrics: Metrics,
    pusher: Option<Pusher>,
}

impl Publisher {
    /// One whose parts are in this namespace.
    pub fn new(
        client: Client,
        namespace: &str,
        events: Events,
        metrics: Metrics,
        pusher: Option<Pusher>,
    ) -> Self {
        Self {
            events,
            client,
            namespace: namespace.into(),
            metrics,
            pusher,
        }
    }

    /// Does it. A repeat does no harm.
    ///
    /// # Errors
    ///
    /// When the API server does not do what is asked.
    pub async fn run(&self, job: ProfileAction) -> Result<(), PublishError> {
        match job {
            ProfileAction::Publish(job) => self.publish(job).await,
            ProfileAction::Drop { part, why } => {
                let params = only(&part.uid, Some(&part.version));
                let deleted = request(self.parts().delete(&part.name, &params)).await;
                unless_gone(deleted).map_err(|source| PublishError::Delete {
                    what: format!("ProfilePart {}", part.name),
                    source,
                })?;
                if why != Why::Merged {
                    self.metrics.profiles.part_dropped(why.as_str());
                    tracing::warn!(part = %part.name, why = why.as_str(), "a part of a profile is dropped");
                }
                Ok(())
            }
            ProfileAction::Remove { key, uid } => {
                let profiles: Api<CkbProfile> =
                    Api::namespaced(self.client.clone(), &key.namespace);
                let params = only(&uid, None);
                let deleted = request(profiles.delete(&key.name, &params)).await;
                unless_gone(deleted).map_err(|source| PublishError::Delete {
                    what: format!("CkbProfile {key}"),
                    source,
                })
            }
        }
    }

    async fn publish(&self, job: Publish) -> Result<(), PublishError> {
        let object = job.object();
        let profile = format!("{}/{object}", job.probe.namespace);
        let api: Api<CkbProfile> = Api::namespaced(self.client.clone(), &job.probe.namespace);
        let found = request(api.get_opt(&object)).await;
        let found = found.map_err(|source| PublishError::ReadProfile {
            profile: profile.clone(),
            source,
        })?;
        let interrupted = |source| PublishError::Merge {
            profile: profile.clone(),
            source,
        };
        let mut merger = self.begin(&job, found).await.map_err(interrupted)?;
        let mut failures = BTreeSet::new();
        let mut added = 0;
        for part in &job.parts {
            if merger.merged().contains(&part.id.uid) {
                continue;
            }
            let Some(object) = self.part(&part.id).await? else {
                continue;
            };
            let about = object.metadata.labels.as_ref().and_then(PartLabels::read);
            if about != Some(PartLabels::of(&object.spec)) {
                self.metrics.profiles.part_dropped("Contradictory");
                failures.insert(format!(
                    "the agent on node {} sent a part that is not what its labels say",
                    part.node
                ));
                continue;
            }
            let failure = object.spec.failure.clone();
            let result;
            (merger, result) = add(merger, part, object).await.map_err(interrupted)?;
            let pod = &part.pod.name;
            match (result, failure) {
                (Err(error), _) => {
                    self.metrics.profiles.part_dropped("Malformed");
                    failures.insert(format!("the stacks of pod {pod} are of no use: {error}"));
                }
                (Ok(()), Some(failure)) => {
                    failures.insert(format!("there are no stacks of pod {pod}: {failure}"));
                }
                (Ok(()), None) => {}
            }
            added += 1;
        }
        if added > 0 && merger.has_stacks() {
            self.write(&api, &job, merger).await?;
            self.metrics.profiles.published(job.mode.as_str(), added);
        }
        self.tell(&job, failures).await;
        Ok(())
    }

    /// Where the window is published already, with that; what another CkbProbe of the name, or another question, has left is
    /// written over.
    async fn begin(&self, job: &Publish, found: Option<CkbProfile>) -> Result<Merger, PartError> {
        let ours = found.filter(|found| {
            let meta = &found.metadata;
            let asks = meta
                .labels
                .as_ref()
                .and_then(|labels| labels.get(label::ASKS));
            owner(meta.owner_references.as_deref().unwrap_or_default()).as_ref()
                == Some(&job.probe.uid)
                && asks == Some(&job.asks)
        });
        let Some(found) = ours else {
            return Ok(Merger::new(job.mode));
        };
        let annotations = found.metadata.annotations.unwrap_or_default();
        let merged = annotations.get(MERGED).map(String::as_str);
        let merged: BTreeSet<String> = merged
            .into_iter()
            .flat_map(|merged| merged.split(','))
            .map(str::to_owned)
            .collect();
        let (mode, spec) = (job.mode, found.spec);
        let resumed = blocking(move || Merger::resume(spec, merged)).await?;
        // Somebody may have written to it; what came now is worth more than nothing.
        Ok(resumed.unwrap_or_else(|error| {
            tracing::warn!(profile = %job.object(), %error, "a published profile cannot be added to, and is written anew");
            Merger::new(mode)
        }))
    }

    /// The part, unless it is gone, or another by now.
    async fn part(&self, id: &PartId) -> Result<Option<ProfilePart>, PublishError> {
        let found = request(self.parts().get_opt(&id.name)).await;
        let found = match found {
            // One that this version cannot read is dropped when it is old.
            Err(RequestError::Api(kube::Error::SerdeError(error))) => {
                tracing::warn!(part = %id.name, %error, "a part of a profile cannot be read");
                self.metrics.profiles.part_dropped("Malformed");
                return Ok(None);
            }
            found => found.map_err(|source| PublishError::ReadPart {
                part: id.name.clone(),
                source,
            })?,
        };
        Ok(found.filter(|part| {
            part.metadata.uid.as_ref() == Some(&id.uid)
                && part.metadata.resource_version.as_ref() == Some(&id.version)
        }))
    }

    async fn write(
        &self,
        api: &Api<CkbProfile>,
        job: &Publish,
        merger: Merger,
    ) -> Result<(), PublishError> {
        let object = job.object();
        let profile = format!("{}/{object}", job.probe.namespace);
        let merged: Vec<String> = merger.merged().iter().take(MERGED_LIMIT).cloned().collect();
        let (probe, name) = (job.probe.name.clone(), job.name.clone());
        let spec = blocking(move || merger.finish(&probe, &name)).await;
        let spec = spec.map_err(|source| PublishError::Merge {
            profile: profile.clone(),
            source,
        })?;
        let Some(spec) = spec else {
            return Ok(());
        };
        let patch = Patch::Apply(manifest(job, &merged, &spec));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = request(api.patch_metadata(&object, &params, &patch)).await;
        written.map_err(|source| PublishError::WriteProfile { profile, source })?;
        if let Some(pusher) = &self.pusher {
            pusher.offer(&job.probe.namespace, spec);
        }
        Ok(())
    }

    async fn tell(&self, job: &Publish, failures: BTreeSet<String>) {
        if failures.is_empty() {
            return;
        }
        let failures: Vec<String> = failures.into_iter().collect();
        let note = Note {
            type_: EventType::Warning,
            reason: PROFILE_FAILED,
            action: "Profile",
            text: format!(
                "{} of probe {}: {}",
                job.mode.as_str(),
                job.name,
                failures.join("; ")
            ),
        };
        self.events.of_probe(&job.probe, note).await;
    }

    fn parts(&self) -> Api<ProfilePart> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

fn manifest(job: &Publish, merged: &[String], spec: &CkbProfileSpec) -> serde_json::Value {
    let (merged, spec) = (merged.join(","), json!(spec));
    let bytes = spec.to_string().len() + merged.len();
    json!({
        "apiVersion": CkbProfile::api_version(&()),
        "kind": CkbProfile::kind(&()),
        "metadata": {
            "name": job.object(),
            "labels": {
                label::CKB_PROBE: job.probe.name,
                label::PROBE: job.name,
                label::MODE: job.mode.as_str(),
                label::WINDOW: job.window.to_string(),
                label::ASKS: job.asks,
                label::BYTES: bytes.to_string(),
            },
            "annotations": { MERGED: merged },
            "ownerReferences": [{
                "apiVersion": CkbProbe::api_version(&()),
                "kind": CkbProbe::kind(&()),
                "name": job.probe.name,
                "uid": job.probe.uid,
                "controller": true,
            }],
        },
        "spec": spec,
    })
}

/// Adds a part where it keeps nothing else waiting.
async fn add(
    mut merger: Merger,
    part: &PartToMerge,
    object: ProfilePart,
) -> Result<(Merger, Result<(), PartError>), PartError> {
    let part = part.clone();
    blocking(move || {
        let PartToMerge { id, node, pod } = part;
        let added = merger.add(&id.uid, &node, &pod, object.spec);
        (merger, added)
    })
    .await
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PartError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| PartError::Interrupted(error.to_string()))
}

fn only(uid: &str, version: Option<&str>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: version.map(str::to_owned),
        }),
        ..DeleteParams::default()
    }
}

#[cfg(test)]
mod tests;
