//! Each pod meets the strictest Pod Security level that it can, and what the chart's examples make is accepted.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, PodSpec},
};
use kube::{Api, api::PostParams};

use super::prelude::*;
use crate::fixture::repository;

/// The operator's Deployment, and its ConfigMap with the agent's pod.
const OPERATOR: &str = "ckb-probe-operator";

/// All that keeps an agent from the level *baseline*: each word is one thing that it cannot do without.
const AGAINST_BASELINE: &str = "violates PodSecurity \"baseline:latest\": non-default capabilities (container \"agent\" must not \
     include \"BPF\", \"DAC_READ_SEARCH\", \"PERFMON\", \"SYS_PTRACE\" in securityContext.capabilities.add), \
     host namespaces (hostPID=true)";

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let deployments = scene.cluster.api::<Deployment>(SYSTEM);
    let operator = deployments.get(OPERATOR).await?;
    let operator = operator.spec.and_then(|spec| spec.template.spec);
    let operator = judged(operator.ok_or_else(|| missing("the operator's pod"))?);
    let config = scene.cluster.api::<ConfigMap>(SYSTEM).get(OPERATOR).await?;
    let template = config
        .data
        .and_then(|mut data| data.remove("agent-pod.yaml"));
    let template = template.ok_or_else(|| missing("the agent's template"))?;
    let agent: Pod =
        serde_yaml::from_str(&template).map_err(Failure::format("the agent's template"))?;
    let mut agent = agent.spec.ok_or_else(|| missing("the agent's pod"))?;
    // Where the kernel is old the tests grant it; the chart by itself does not.
    for container in &mut agent.containers {
        let context = container.security_context.as_mut();
        let capabilities = context.and_then(|context| context.capabilities.as_mut());
        if let Some(added) = capabilities.and_then(|capabilities| capabilities.add.as_mut()) {
            added.retain(|capability| capability != "SYS_ADMIN");
        }
    }
    let agent = judged(agent);

    let restricted = namespace(scene, "restricted").await?;
    let baseline = namespace(scene, "baseline").await?;
    let privileged = namespace(scene, "privileged").await?;
    let accepted = |verdict: std::result::Result<(), String>| match verdict {
        Ok(()) => 1,
        Err(said) => {
            crate::note!("refused: {said}");
            0
        }
    };
    let operators = accepted(judge(scene, &restricted, &operator).await?);
    scene.equal("operators accepted at the level restricted", operators, 1);
    let agents = accepted(judge(scene, &privileged, &agent).await?);
    scene.equal("agents accepted at the level privileged", agents, 1);
    let said = judge(scene, &baseline, &agent)
        .await?
        .err()
        .unwrap_or_default();
    crate::note!("baseline: {said}");
    scene.equal(
        "agents refused at baseline for hostPID and the documented capabilities alone",
        said.ends_with(AGAINST_BASELINE),
        1,
    );
    examples(scene).await
}

/// What the chart makes of each example is judged by the API server as if it were to be created.
async fn examples(scene: &Scene<'_>) -> Result<()> {
    let chart = repository().join("charts/ckb-probe");
    let folder = chart.join("examples");
    let what = folder.display().to_string();
    let files = fs::read_dir(&folder).map_err(Failure::system(what.clone()))?;
    let (mut all, mut accepted) = (0, 0);
    for file in files {
        let values = file.map_err(Failure::system(what.clone()))?.path();
        let (chart, values) = (chart.to_string_lossy(), values.to_string_lossy());
        let arguments = [
            "template",
            "example",
            &*chart,
            "--namespace",
            &scene.namespace,
            "--values",
            &*values,
            // That of the Prometheus operator is not here.
            "--set",
            "crds.install=false,metrics.podMonitor.enabled=false",
        ];
        let objects = command("helm", &arguments, None).await?;
        all += 1;
        match scene.judged(&objects).await {
            Ok(_) => accepted += 1,
            Err(error) => crate::note!("{values}: {error}"),
        }
    }
    scene.equal(
        "examples of the chart that the API server accepts",
        accepted,
        all,
    );
    scene.figure("examples", all, "", Bound::AtLeast(2.0));
    Ok(())
}

/// A namespace of this level, in which pods can be judged.
async fn namespace(scene: &mut Scene<'_>, level: &str) -> Result<String> {
    let name = scene.another_namespace(level).await?;
    let label = json!({
        "metadata": { "labels": { "pod-security.kubernetes.io/enforce": level } },
    });
    Api::<Namespace>::all(scene.cluster.client.clone())
        .patch(&name, &PatchParams::default(), &Patch::Merge(label))
        .await?;
    Ok(name)
}

/// The pod, as whoever there is.
fn judged(spec: PodSpec) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some("judged".to_string());
    pod.spec = Some(PodSpec {
        service_account_name: None,
        service_account: None,
        ..spec
    });
    pod
}

/// Has the API server judge it; its own words when it refuses.
async fn judge(
    scene: &Scene<'_>,
    namespace: &str,
    pod: &Pod,
) -> Result<std::result::Result<(), String>> {
    let dry = PostParams {
        dry_run: true,
        field_manager: None,
    };
    match scene.cluster.api::<Pod>(namespace).create(&dry, pod).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) => Ok(Err(status.message)),
        Err(error) => Err(error.into()),
    }
}

fn missing(what: &str) -> Failure {
    Failure::missing(what)
}
