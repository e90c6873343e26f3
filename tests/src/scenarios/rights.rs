//! What the accounts of operator and agent may do, asked of the API server: all that it serves, verb by verb.

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams, discovery::Discovery};

use super::prelude::*;

const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// What is asked for besides what the API server lists: what reads secrets of running pods, or becomes somebody else.
const MORE: [(&str, &str, &str); 4] = [
    ("", "pods", "exec"),
    ("", "pods", "log"),
    ("", "pods", "portforward"),
    ("", "serviceaccounts", "token"),
];

/// So many questions at a time.
const AT_ONCE: usize = 16;

/// What every account may do: ask who it is, and what it may.
const EVERYBODYS: [&str; 3] = [
    "create authentication.k8s.io/selfsubjectreviews",
    "create authorization.k8s.io/selfsubjectaccessreviews",
    "create authorization.k8s.io/selfsubjectrulesreviews",
];

/// In any namespace of users.
const OPERATOR: [&str; 5] = [
    "list watch ckbprobe.dev/ckbprobes",
    "patch ckbprobe.dev/ckbprobes/status",
    "get list watch create patch delete ckbprobe.dev/ckbprofiles",
    "list watch /pods",
    "create patch events.k8s.io/events",
];

/// Of what belongs to no namespace.
const OPERATOR_NODES: &str = "list watch /nodes";

/// In its own namespace besides.
const OPERATOR_AT_HOME: [&str; 4] = [
    "list watch create patch delete ckbprobe.dev/nodeprobes",
    "get list watch delete ckbprobe.dev/profileparts",
    "create delete /pods",
    "get create update coordination.k8s.io/leases",
];

const AGENT_AT_HOME: [&str; 3] = [
    "list watch ckbprobe.dev/nodeprobes",
    "patch ckbprobe.dev/nodeprobes/status",
    "create ckbprobe.dev/profileparts",
];

/// What may be done with what.
type Rights = BTreeSet<String>;

fn rights<'a>(lines: impl IntoIterator<Item = &'a str>) -> Rights {
    let mut all = Rights::new();
    for line in lines {
        let (verbs, resource) = line.rsplit_once(' ').unwrap_or_default();
        all.extend(verbs.split(' ').map(|verb| format!("{verb} {resource}")));
    }
    all
}

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let served = served(scene).await?;
    scene.figure(
        "resources that are asked about",
        served.len(),
        "",
        Bound::AtLeast(50.0),
    );
    let nobody = rights([]);
    let everywhere = rights(OPERATOR.into_iter().chain([OPERATOR_NODES]));
    let mut at_home = rights(OPERATOR_AT_HOME);
    at_home.extend(everywhere.iter().cloned());
    for (account, namespace, expected) in [
        ("operator", scene.namespace.clone(), everywhere),
        ("operator", SYSTEM.to_string(), at_home),
        ("agent", scene.namespace.clone(), nobody),
        ("agent", SYSTEM.to_string(), rights(AGENT_AT_HOME)),
    ] {
        let found = may(scene, account, &namespace, &served).await?;
        let listed = |all: std::collections::btree_set::Difference<'_, String>| -> usize {
            let all: Vec<&String> = all.collect();
            if !all.is_empty() {
                crate::note!("{account} in {namespace}: {all:?}");
            }
            all.len()
        };
        let home = match namespace == SYSTEM {
            true => "its own namespace",
            false => "another namespace",
        };
        let row = |what: &str| format!("rights of the {account} in {home} that it should {what}");
        scene.equal(
            &row("have and has not"),
            listed(expected.difference(&found)),
            0,
        );
        scene.equal(
            &row("not have and has"),
            listed(found.difference(&expected)),
            0,
        );
    }
    Ok(())
}

/// All resources, each by group, name and subresource.
async fn served(scene: &Scene<'_>) -> Result<BTreeSet<(String, String, String)>> {
    let discovery = Discovery::new(scene.cluster.client.clone()).run().await?;
    let mut served = BTreeSet::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let named = |part: &str| {
                (
                    resource.group.clone(),
                    resource.plural.clone(),
                    part.to_string(),
                )
            };
            served.insert(named(""));
            for (part, _) in capabilities.subresources {
                let part = part
                    .plural
                    .rsplit('/')
                    .next()
                    .unwrap_or_default()
                    .to_string();
                served.insert(named(&part));
            }
        }
    }
    let more = MORE.into_iter();
    served.extend(more.map(|(group, name, part)| (group.into(), name.into(), part.into())));
    Ok(served)
}

/// What an account may do in a namespace, but for what everybody may.
async fn may(
    scene: &Scene<'_>,
    account: &str,
    namespace: &str,
    served: &BTreeSet<(String, String, String)>,
) -> Result<Rights> {
    let api = Api::<SubjectAccessReview>::all(scene.cluster.client.clone());
    let questions = served
        .iter()
        .flat_map(|resource| VERBS.map(|verb| (verb, resource)));
    let answers = stream::iter(questions).map(|(verb, (group, resource, part))| {
        let api = &api;
        async move {
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(format!(
                        "system:serviceaccount:{SYSTEM}:ckb-probe-{account}"
                    )),
                    groups: Some(vec![
                        "system:serviceaccounts".to_string(),
                        format!("system:serviceaccounts:{SYSTEM}"),
                        "system:authenticated".to_string(),
                    ]),
                    resource_attributes: Some(ResourceAttributes {
                        namespace: Some(namespace.to_string()),
                        verb: Some(verb.to_string()),
                        group: Some(group.clone()),
                        resource: Some(resource.clone()),
                        subresource: (!part.is_empty()).then(|| part.clone()),
                        ..ResourceAttributes::default()
                    }),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            let answer = api.create(&PostParams::default(), &review).await?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            let slash = if part.is_empty() { "" } else { "/" };
            Ok::<_, Failure>(allowed.then(|| format!("{verb} {group}/{resource}{slash}{part}")))
        }
    });
    let answers: Vec<Result<Option<String>>> = answers.buffer_unordered(AT_ONCE).collect().await;
    let mut all = Rights::new();
    for answer in answers {
        all.extend(answer?);
    }
    all.retain(|right| !EVERYBODYS.contains(&right.as_str()));
    Ok(all)
}
