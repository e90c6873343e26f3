//! The watches that feed the index. Each resumes by itself, with capped and jittered waits.

use std::time::Duration;

use backon::ExponentialBuilder;
use ckb_probe_crds::{CkbProbe, CkbProfile, NodeProbe, ProfilePart};
use futures::{
    Stream, StreamExt,
    stream::{BoxStream, select_all},
};
use k8s_openapi::api::core::v1;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicResourceScope, NamespaceResourceScope, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        watcher::{self, Config, Event, ExponentialBackoff, watcher},
    },
};
use serde::Deserialize;

use crate::{
    profiles::rows::News,
    template::LABELS,
    world::{Change, Node, Raw, RawAgent, RawPod},
};

/// Objects are listed in pages of this many, so that a large cluster's list is never in memory as a whole.
const PAGE: u32 = 100;

/// What a watch failed on.
#[derive(Debug, thiserror::Error)]
#[error("the watch on {kind} failed: {source}")]
pub struct WatchError {
    /// The plural name.
    pub kind: &'static str,
    /// What the client says.
    pub source: watcher::Error,
}

impl WatchError {
    /// Whether what is measured goes on without this watch: agents are heard all the same.
    pub fn is_of_profiles(&self) -> bool {
        [PARTS, PROFILES].contains(&self.kind)
    }
}

/// The plural names of what is watched for its metadata only.
const PARTS: &str = "profileparts";
const PROFILES: &str = "ckbprofiles";

/// Where to look.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The operator's own namespace.
    pub own: String,
    /// The namespace whose CkbProbes are served; unset: all.
    pub watched: Option<String>,
}

/// News of everything, for ever. Pods of all namespaces are watched at once: they are trimmed while they are read,
/// and finished ones do not leave the API server.
pub fn changes(
    client: &Client,
    scope: &Scope,
) -> impl Stream<Item = Result<Change, WatchError>> + use<> {
    let watched = scope.watched.as_deref();
    let all = Config::default().page_size(PAGE);
    let unfinished = all
        .clone()
        .fields("status.phase!=Succeeded,status.phase!=Failed");
    let agents = all.clone().labels(
        &LABELS
            .map(|(key, value)| format!("{key}={value}"))
            .join(","),
    );
    let own = Some(&*scope.own);
    let ckb_probes = trimmed::<Raw, CkbProbe>(client, watched);
    let pods = trimmed::<RawPod, v1::Pod>(client, watched);
    let nodes = trimmed::<RawNode, v1::Node>(client, None);
    let node_probes = trimmed::<Raw, NodeProbe>(client, own);
    let agent_pods = trimmed::<RawAgent, v1::Pod>(client, own);
    let parts = metadata::<ProfilePart>(client, own);
    let profiles = metadata::<CkbProfile>(client, watched);
    let part = |event| Change::Profiles(News::Part(event));
    let profile = |event| Change::Profiles(News::Profile(event));
    select_all([
        watch("ckbprobes", ckb_probes, all.clone(), Change::Probe),
        watch("pods", pods, unfinished, Change::Pod),
        watch("nodes", nodes, all.clone(), Change::Node),
        watch("nodeprobes", node_probes, all.clone(), Change::NodeProbe),
        watch("agent pods", agent_pods, agents, Change::Agent),
        watch(PARTS, parts, all.clone(), part),
        watch(PROFILES, profiles, all, profile),
    ])
}

/// Objects of `Kind`, of which nothing is read but what is in `Raw`.
fn trimmed<Raw, Kind>(client: &Client, namespace: Option<&str>) -> Api<Raw>
where
    Raw: kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    Kind: kube::Resource<DynamicType = ()>,
{
    let resource = ApiResource::erase::<Kind>(&());
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// The metadata of objects of `Kind`: stacks stay where they are.
fn metadata<Kind>(client: &Client, namespace: Option<&str>) -> Api<PartialObjectMeta<Kind>>
where
    Kind: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// What a watch tells, as rows, for ever.
fn watch<Raw, Row>(
    kind: &'static str,
    api: Api<Raw>,
    config: Config,
    change: fn(Event<Row>) -> Change,
) -> BoxStream<'static, Result<Change, WatchError>>
where
    Raw: kube::Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
    Row: From<Raw> + 'static,
{
    watcher(api, config)
        .backoff(backoff())
        .map(move |event| match event {
            Ok(event) => Ok(change(rows(event))),
            Err(source) => Err(WatchError { kind, source }),
        })
        .boxed()
}

fn rows<Raw, Row: From<Raw>>(event: Event<Raw>) -> Event<Row> {
    match event {
        Event::Apply(raw) => Event::Apply(raw.into()),
        Event::Delete(raw) => Event::Delete(raw.into()),
        Event::Init => Event::Init,
        Event::InitApply(raw) => Event::InitApply(raw.into()),
        Event::InitDone => Event::InitDone,
    }
}

/// Short enough that an API server that is back is noticed soon: a watch whose resource version has expired meanwhile waits
/// twice, and the jitter may double each wait.
fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(2))
        .without_max_times()
        .with_jitter()
        .into()
}

type RawNode = kube::core::Object<Option<NodeSpec>, NodeStatus>;

/// Of `node.spec`: nothing.
#[derive(Clone, Debug, Deserialize)]
struct NodeSpec {}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    conditions: Vec<NodeCondition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl From<RawNode> for Node {
    fn from(raw: RawNode) -> Self {
        let conditions = raw.status.unwrap_or_default().conditions;
        Self {
            name: raw.metadata.name.unwrap_or_default(),
            ready: conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        }
    }
}
