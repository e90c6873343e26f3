//! The API server itself says what is wrong with a CkbProbe, and accepts what is not.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::prelude::*;
use crate::{failure, fixture::repository};

/// An object that must be refused, and the sentence that must say why.
#[derive(Deserialize)]
struct Refused {
    name: String,
    object: serde_json::Value,
    sentence: String,
}

/// An object that must be accepted.
#[derive(Deserialize)]
struct Accepted {
    name: String,
    object: serde_json::Value,
}

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let refused: Vec<Refused> = read("refused.yaml")?;
    let mut as_told = 0;
    for case in &refused {
        match create(scene, &case.object).await {
            Err(said) if said.contains(&case.sentence) => as_told += 1,
            outcome => {
                let said = outcome.err().unwrap_or("accepted".to_string());
                let expected = format!("refused with {:?}", case.sentence);
                complain(&case.name, &expected, &said);
            }
        }
    }
    let all = refused.len();
    scene.equal("objects refused with the right sentence", as_told, all);

    let accepted: Vec<Accepted> = read("accepted.yaml")?;
    let mut as_told = 0;
    for case in &accepted {
        match create(scene, &case.object).await {
            Ok(()) => as_told += 1,
            Err(said) => complain(&case.name, "accepted", &said),
        }
    }
    scene.equal("objects accepted", as_told, accepted.len());
    Ok(())
}

fn read<T: DeserializeOwned>(name: &str) -> Result<Vec<T>> {
    let path = repository().join("tests/refusals").join(name);
    let what = path.display().to_string();
    let cases = serde_yaml::from_str(&failure::read(&path)?);
    let cases: Vec<T> = cases.map_err(Failure::format(what.clone()))?;
    expect(!cases.is_empty(), format!("cases in {what}"), || "none")?;
    Ok(cases)
}

/// Has the API server judge an object as if it were to be created; its own words when it refuses.
async fn create(scene: &Scene<'_>, object: &serde_json::Value) -> std::result::Result<(), String> {
    let object: DynamicObject = match serde_json::from_value(object.clone()) {
        Ok(object) => object,
        Err(error) => return Err(format!("not even an object: {error}")),
    };
    let resource = ApiResource::erase::<ckb_probe_crds::CkbProbe>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(scene.cluster.client.clone(), &scene.namespace, &resource);
    let parameters = PostParams {
        dry_run: true,
        field_manager: None,
    };
    match api.create(&parameters, &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => Err(error.to_string()),
    }
}

fn complain(name: &str, expected: &str, got: &str) {
    crate::note!("{name}: expected {expected}; got {got}");
}
