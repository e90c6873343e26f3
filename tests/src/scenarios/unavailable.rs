//! An agent pod that cannot start is told of, with the reason that the kubelet gives.

use k8s_openapi::api::core::v1::ConfigMap;

use super::prelude::*;

/// The key that the operator reads the agent's pod from.
const TEMPLATE: &str = "agent-pod.yaml";

const PROGRAM: &str = "/usr/local/bin/node-agent";

/// Until a person can read what is wrong; the restart of the operator included.
const TOLD: Duration = Duration::from_secs(45);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    scene.deploy(Load::Steady).await?;
    let (name, template) = template(scene).await?;
    expect(
        template.contains(PROGRAM),
        format!("{PROGRAM} in the agent's template"),
        || template.clone(),
    )?;
    let broken = template.replace(PROGRAM, "/usr/local/bin/nosuch");
    let began = Instant::now();
    let told = break_and_wait(scene, &name, &broken).await;
    let took = began.elapsed();
    // Whatever happened: nothing else works with the broken one.
    set_template(scene, &name, &template).await?;
    told?;
    scene.seconds(
        "until AgentUnavailable names what the kubelet says",
        took,
        TOLD,
    );

    let mended = Instant::now();
    scene.firing().await?;
    scene.seconds(
        "until figures, once the agent can start",
        mended.elapsed(),
        TOLD,
    );
    Ok(())
}

async fn break_and_wait(scene: &Scene<'_>, name: &str, template: &str) -> Result<()> {
    set_template(scene, name, template).await?;
    scene.apply_probe(scene.workload_probe()).await?;
    scene
        .status("AgentUnavailable", ATTACH, |status| {
            let mut conditions = status.conditions.iter();
            let degraded = conditions.find(|one| one.type_ == condition::DEGRADED);
            expect(
                degraded.is_some_and(|degraded| {
                    degraded.status == "True"
                        && degraded.reason == Reason::AgentUnavailable.as_str()
                        && degraded.message.contains("nosuch")
                }),
                "Degraded True, AgentUnavailable, with the word nosuch",
                || format!("{degraded:?}"),
            )
        })
        .await?;
    Ok(())
}

/// The ConfigMap with the agent's template, and the template.
async fn template(scene: &Scene<'_>) -> Result<(String, String)> {
    let api = scene.cluster.api::<ConfigMap>(SYSTEM);
    let labels = ListParams::default().labels("app.kubernetes.io/name=ckb-probe");
    let maps = api.list(&labels).await?;
    let found = maps.into_iter().find_map(|map| {
        let name = map.name_any();
        Some((name, map.data?.remove(TEMPLATE)?))
    });
    found.ok_or_else(|| Failure::missing(format!("a ConfigMap with {TEMPLATE}")))
}

/// Gives the operator another template, which it reads when it starts.
async fn set_template(scene: &Scene<'_>, name: &str, template: &str) -> Result<()> {
    let api = scene.cluster.api::<ConfigMap>(SYSTEM);
    let patch = Patch::Merge(json!({ "data": { TEMPLATE: template } }));
    api.patch(name, &PatchParams::default(), &patch).await?;
    let old = scene.cluster.operator().await?;
    let pods = scene.cluster.api::<Pod>(SYSTEM);
    pods.delete(&old.pod, &DeleteParams::default()).await?;
    wait::until("another operator", ATTACH, async || {
        let operator = scene.cluster.operator().await?;
        expect(
            operator.pod != old.pod,
            "another operator",
            || "the old one",
        )
    })
    .await
}
