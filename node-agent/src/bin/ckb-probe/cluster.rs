//! Profiles that are in a cluster.

use ckb_probe_crds::CkbProfile;
use ckb_probe_k8s::client::{ClientError, client};
use kube::{Api, Config, ResourceExt, api::ListParams};

/// So many names are told of what there is instead.
const NAMES: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("cannot find a cluster: {0}. It is that of KUBECONFIG, or of ~/.kube/config")]
    Config(#[from] kube::config::InferConfigError),
    #[error("cannot connect to the cluster: {0}")]
    Client(#[from] ClientError),
    #[error(
        "{0:?} is no name of a CkbProfile: with --from-cluster say NAMESPACE/NAME, as kubectl get ckbprofiles -A lists them"
    )]
    Name(String),
    #[error("there is no CkbProfile {name} in namespace {namespace}{instead}")]
    Missing {
        namespace: String,
        name: String,
        instead: String,
    },
    #[error(
        "the API server has no CkbProfiles: ckb-probe is not installed there, or an older version of it"
    )]
    NotInstalled,
    #[error(
        "you may not read CkbProfiles in namespace {namespace}: {source}. The cluster's role view has that right where the chart has rbac.aggregate"
    )]
    Forbidden {
        namespace: String,
        source: Box<kube::Error>,
    },
    #[error("cannot read CkbProfile {namespace}/{name}: {source}")]
    Request {
        namespace: String,
        name: String,
        source: Box<kube::Error>,
    },
}

/// The stacks of a CkbProfile, NAMESPACE/NAME, or NAME in the namespace of the kubeconfig's context.
pub async fn pprof(reference: &str) -> Result<Vec<u8>, ClusterError> {
    let config = Config::infer().await?;
    let (namespace, name) = match reference.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => (config.default_namespace.clone(), reference.to_owned()),
    };
    if !is_name(&namespace) || !is_name(&name) {
        return Err(ClusterError::Name(reference.to_owned()));
    }
    let api: Api<CkbProfile> = Api::namespaced(client(config)?, &namespace);
    match api.get_opt(&name).await {
        Ok(Some(profile)) => Ok(profile.spec.pprof.0),
        Ok(None) => Err(missing(&api, namespace, name).await),
        Err(error) => Err(refused(error, namespace, name)),
    }
}

/// What there is instead.
async fn missing(api: &Api<CkbProfile>, namespace: String, name: String) -> ClusterError {
    let newest_last = |profile: &kube::core::PartialObjectMeta<CkbProfile>| {
        profile.creation_timestamp().map(|time| time.0)
    };
    let mut profiles = match api.list_metadata(&ListParams::default()).await {
        Ok(profiles) => profiles.items,
        // Nothing is served under that path.
        Err(kube::Error::Api(status)) if status.code == 404 => return ClusterError::NotInstalled,
        Err(error) => return refused(error, namespace, name),
    };
    profiles.sort_by_key(newest_last);
    let names: Vec<String> = profiles.iter().rev().map(ResourceExt::name_any).collect();
    let more = names.len().saturating_sub(NAMES);
    let listed = names[..names.len().min(NAMES)].join(", ");
    let instead = match (names.is_empty(), more) {
        (true, _) => ", and no other: a CkbProbe with a probe of the kind profile makes them, when its first window is over".to_owned(),
        (false, 0) => format!(": it has {listed}"),
        (false, more) => format!(": it has {listed}, and {more} more"),
    };
    ClusterError::Missing {
        namespace,
        name,
        instead,
    }
}

fn refused(error: kube::Error, namespace: String, name: String) -> ClusterError {
    let source = Box::new(error);
    match &*source {
        kube::Error::Api(status) if status.code == 403 => {
            ClusterError::Forbidden { namespace, source }
        }
        _ => ClusterError::Request {
            namespace,
            name,
            source,
        },
    }
}

/// What can be a part of a path without being another path.
fn is_name(text: &str) -> bool {
    let fits =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let mut bytes = text.bytes();
    text.len() <= 253 && text.bytes().all(fits) && ends(bytes.next()) && ends(text.bytes().last())
}
