//! A CkbProbe that is paused and not, by turns, and left as it was found.
//!
//! How it was found is in an annotation as long as it is not: whoever is killed between two turns leaves it there, and `--restore` reads it.

use ckb_probe_crds::CkbProbe;
use ckb_probe_views::{cost::FOUND, presets::MANAGER};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::LOOK;
use crate::VerbError;

/// So often it is tried, where the API server does not answer or somebody else writes.
const TRIES: u32 = 5;

/// A CkbProbe that is being compared.
pub struct Held<'a> {
    api: &'a Api<CkbProbe>,
    name: &'a str,
    /// What `spec.paused` was.
    found: bool,
    /// What it was last set to.
    set: bool,
    /// The generation that this made.
    pub generation: Option<i64>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Restored {
    /// `spec.paused` is what it was found as.
    To(bool),
    /// Somebody else set it meanwhile, and it is left at that.
    Left(bool),
}

impl<'a> Held<'a> {
    /// Notes how it was found, and has it measured. One that is noted of is somebody's already.
    pub async fn take(api: &'a Api<CkbProbe>, name: &'a str) -> Result<Self, VerbError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let probe = get(api, name).await?;
            let found = probe.spec.paused;
            if let Some(paused) = probe.annotations().get(FOUND) {
                let namespace = probe.namespace().unwrap_or_default();
                return Err(VerbError::Compared {
                    subject: format!("{namespace}/{name}"),
                    paused: paused.clone(),
                    restore: format!("kubectl ckbprobe cost {name} -n {namespace} --restore"),
                });
            }
            // Of two that read the same one alone comes through.
            let version = probe.metadata.resource_version;
            let change = json!({
                "metadata": { "annotations": { FOUND: found.to_string() }, "resourceVersion": version },
                "spec": { "paused": false },
            });
            match patch(api, name, &change).await {
                Ok(taken) => {
                    return Ok(Self {
                        api,
                        name,
                        found,
                        set: false,
                        generation: taken.metadata.generation,
                    });
                }
                Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => {}
                Err(error) => return Err(failed(api, name, error)),
            }
        }
    }

    /// Pauses it, or not any more.
    pub async fn pause(&mut self, paused: bool) -> Result<(), VerbError> {
        self.set = paused;
        let change = json!({ "spec": { "paused": paused } });
        let turned = patch(self.api, self.name, &change).await;
        let turned = turned.map_err(|error| failed(self.api, self.name, error))?;
        self.generation = turned.metadata.generation;
        Ok(())
    }

    /// Leaves it as it was found.
    pub async fn release(self) -> Result<Restored, VerbError> {
        restore(self.api, self.name, self.found, Some(self.set)).await
    }
}

/// Does what one that was killed could not; None where there is nothing to be done.
pub async fn release(api: &Api<CkbProbe>, name: &str) -> Result<Option<Restored>, VerbError> {
    let probe = get(api, name).await?;
    let Some(found) = probe.annotations().get(FOUND) else {
        return Ok(None);
    };
    restore(api, name, found == "true", None).await.map(Some)
}

/// Puts `spec.paused` back, unless it is not what was set last, and takes the note away.
async fn restore(
    api: &Api<CkbProbe>,
    name: &str,
    found: bool,
    set: Option<bool>,
) -> Result<Restored, VerbError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let done = async {
            let probe = api.get(name).await?;
            let now = probe.spec.paused;
            let ours = set.is_none_or(|set| set == now);
            let mut change = json!({ "metadata": {
                "annotations": { FOUND: Value::Null },
                "resourceVersion": probe.metadata.resource_version,
            } });
            if ours {
                change["spec"] = json!({ "paused": found });
            }
            patch(api, name, &change).await?;
            Ok(match ours {
                true => Restored::To(found),
                false => Restored::Left(now),
            })
        };
        match done.await {
            Ok(restored) => return Ok(restored),
            Err(error) if tries >= TRIES => return Err(failed(api, name, error)),
            // Nothing is to be left as it was.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                return Ok(Restored::Left(found));
            }
            Err(_) => sleep(LOOK).await,
        }
    }
}

async fn get(api: &Api<CkbProbe>, name: &str) -> Result<CkbProbe, VerbError> {
    let got = api.get(name).await;
    got.map_err(|error| {
        let namespace = api.namespace().unwrap_or_default();
        VerbError::request(format!("read CkbProbe {name}"), namespace, error)
    })
}

async fn patch(api: &Api<CkbProbe>, name: &str, change: &Value) -> Result<CkbProbe, kube::Error> {
    let parameters = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    api.patch(name, &parameters, &Patch::Merge(change)).await
}

fn failed(api: &Api<CkbProbe>, name: &str, error: kube::Error) -> VerbError {
    let namespace = api.namespace().unwrap_or_default();
    VerbError::request(format!("pause CkbProbe {name}"), namespace, error)
}
