//! All that a diagnosis looks at, as the API server tells it to whoever asks.

use std::fmt::Debug;

use ckb_probe_crds::{CkbProbe, NodeProbe};
use ckb_probe_views::diagnosis::cluster::{Answer, Right, Snapshot};
use futures::future::join_all;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        authorization::v1::{
            ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
            SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
        },
        coordination::v1::Lease,
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
};
use serde::de::DeserializeOwned;

use crate::error::sentence;

const GROUP: &str = "ckbprobe.dev";
const VERSION: &str = "ckbprobe.dev/v1alpha1";

/// The labels that the chart gives to what it installs.
const OPERATORS: &str = "app.kubernetes.io/name=ckb-probe,app.kubernetes.io/component=operator";
const AGENTS: &str = "app.kubernetes.io/name=ckb-probe,app.kubernetes.io/component=agent";

const LEASE: &str = "ckb-probe-operator";

/// What is asked about.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The namespace; None: all.
    pub namespace: Option<String>,
    /// The CkbProbe; None: all.
    pub name: Option<String>,
    /// The namespace of the installation, for whoever may not look for it.
    pub system: String,
}

/// Looks at all of it.
pub async fn snapshot(client: &Client, asked: &Asked) -> Snapshot {
    let mut found = Snapshot {
        now: Timestamp::now(),
        namespace: asked.namespace.clone(),
        name: asked.name.clone(),
        server: answer(
            client
                .apiserver_version()
                .await
                .map(|info| info.git_version),
        ),
        ..Snapshot::default()
    };
    if matches!(found.server, Answer::Failed(_)) {
        return found;
    }
    found.resources = resources(client).await;
    let lists = (
        everywhere::<Deployment>(client, &asked.system, OPERATORS),
        everywhere::<NodeProbe>(client, &asked.system, ""),
        everywhere::<Pod>(client, &asked.system, OPERATORS),
        everywhere::<Pod>(client, &asked.system, AGENTS),
        list::<Node>(Api::all(client.clone()), ""),
        probes(client, asked),
    );
    (
        found.operators,
        found.node_probes,
        found.operator_pods,
        found.agents,
        found.nodes,
        found.probes,
    ) = futures::join!(lists.0, lists.1, lists.2, lists.3, lists.4, lists.5);
    let system = found.system().unwrap_or(&asked.system).to_owned();
    let lease: Api<Lease> = Api::namespaced(client.clone(), &system);
    found.lease = answer(lease.get_opt(LEASE).await);
    found.rights = rights(client, &found, asked, &system).await;
    found
}

/// What is served of the group: nothing, where nobody installed it.
async fn resources(client: &Client) -> Answer<Vec<String>> {
    match client.list_api_group_resources(VERSION).await {
        Ok(list) => Answer::Known(list.resources.into_iter().map(|one| one.name).collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Answer::Known(Vec::new()),
        Err(error) => answer(Err(error)),
    }
}

async fn probes(client: &Client, asked: &Asked) -> Answer<Vec<CkbProbe>> {
    let api = match &asked.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    list(api, "").await
}

/// In all namespaces; for whoever may not, in that of the installation.
async fn everywhere<K>(client: &Client, system: &str, labels: &str) -> Answer<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    match list(Api::all(client.clone()), labels).await {
        Answer::Forbidden => list(Api::namespaced(client.clone(), system), labels).await,
        answer => answer,
    }
}

async fn list<K>(api: Api<K>, labels: &str) -> Answer<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let parameters = ListParams::default().labels(labels);
    match api.list(&parameters).await {
        Ok(list) => Answer::Known(list.items),
        // Of a resource that is not served there is nothing.
        Err(kube::Error::Api(status)) if status.code == 404 => Answer::Known(Vec::new()),
        Err(error) => answer(Err(error)),
    }
}

fn answer<T>(result: Result<T, kube::Error>) -> Answer<T> {
    match result {
        Ok(found) => Answer::Known(found),
        Err(kube::Error::Api(status)) if status.code == 403 => Answer::Forbidden,
        Err(error) => Answer::Failed(sentence(&error)),
    }
}

/// A right that is looked at: who needs it, and for what.
struct Needed {
    /// The account, `namespace/name`; None: whoever asks.
    account: Option<String>,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    namespace: String,
    without: &'static str,
    needed: bool,
}

async fn rights(client: &Client, found: &Snapshot, asked: &Asked, system: &str) -> Vec<Right> {
    let namespace = asked.namespace.clone().unwrap_or_default();
    let own = |verb, resource, without, needed| Needed {
        account: None,
        verb,
        group: GROUP,
        resource,
        subresource: "",
        namespace: namespace.clone(),
        without,
        needed,
    };
    let mut all = vec![own(
        "list",
        "ckbprobes",
        "what is asked and answered cannot be seen",
        true,
    )];
    all.push(Needed {
        namespace: system.to_owned(),
        ..own(
            "list",
            "nodeprobes",
            "what agents say of their nodes is not looked at here",
            false,
        )
    });
    if let Some(account) = operator_account(found) {
        let of = |verb, group, resource, subresource, namespace: &str, without| Needed {
            account: Some(format!("{system}/{account}")),
            verb,
            group,
            resource,
            subresource,
            namespace: namespace.to_owned(),
            without,
            needed: true,
        };
        all.extend([
            of(
                "watch",
                GROUP,
                "ckbprobes",
                "",
                &namespace,
                "it sees no CkbProbe",
            ),
            of(
                "patch",
                GROUP,
                "ckbprobes",
                "status",
                &namespace,
                "it can answer none",
            ),
            of("watch", "", "pods", "", &namespace, "it finds no target"),
            of("watch", "", "nodes", "", "", "it knows of no node"),
            of(
                "create",
                GROUP,
                "nodeprobes",
                "",
                system,
                "no agent gets an order",
            ),
            of("create", "", "pods", "", system, "no agent is started"),
        ]);
    }
    if let Some(account) = agent_account(found) {
        all.push(Needed {
            account: Some(format!("{system}/{account}")),
            subresource: "status",
            namespace: system.to_owned(),
            ..own("patch", "nodeprobes", "no agent can report", true)
        });
    }
    join_all(all.into_iter().map(|one| granted(client, one))).await
}

fn operator_account(found: &Snapshot) -> Option<String> {
    let deployment = found.operators.known()?.first()?;
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.service_account_name.clone()
}

fn agent_account(found: &Snapshot) -> Option<String> {
    let pod = found.agents.known()?.first()?;
    pod.spec.as_ref()?.service_account_name.clone()
}

async fn granted(client: &Client, needed: Needed) -> Right {
    let Needed {
        account,
        verb,
        group,
        resource,
        subresource,
        namespace,
        without,
        needed,
    } = needed;
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let attributes = ResourceAttributes {
        verb: text(verb),
        group: text(group),
        resource: text(resource),
        subresource: text(subresource),
        namespace: text(&namespace),
        ..ResourceAttributes::default()
    };
    let status = match &account {
        None => of_oneself(client, attributes).await,
        Some(account) => of_account(client, account, attributes).await,
    };
    let mut what = format!("{verb} {resource}");
    if !group.is_empty() {
        what = format!("{what}.{group}");
    }
    if !subresource.is_empty() {
        what = format!("{what}/{subresource}");
    }
    Right {
        who: match account {
            None => "you".to_owned(),
            Some(account) => format!("the ServiceAccount {account}"),
        },
        what,
        namespace,
        without: without.to_owned(),
        needed,
        granted: status.map(|status| status.allowed),
    }
}

async fn of_oneself(
    client: &Client,
    attributes: ResourceAttributes,
) -> Option<SubjectAccessReviewStatus> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answered = api.create(&PostParams::default(), &review).await;
    answered.ok()?.status
}

/// For whoever may ask that of others; None for those who may not.
async fn of_account(
    client: &Client,
    account: &str,
    attributes: ResourceAttributes,
) -> Option<SubjectAccessReviewStatus> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!(
                "system:serviceaccount:{}",
                account.replace('/', ":")
            )),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let answered = api.create(&PostParams::default(), &review).await;
    answered.ok()?.status
}
