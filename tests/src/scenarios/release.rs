//! What becomes of CkbProbes and of what is attached when the release is upgraded, rolled back, and uninstalled.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;

use super::prelude::*;
use crate::{bpf::Held, fixture::repository};

const RELEASE: &str = "ckb-probe";

/// From the end of `helm uninstall` until nothing is left. The agents go by way of two owners, and Kubernetes looks for what has lost
/// its owner in turns.
const GONE: Duration = Duration::from_secs(60);

/// Until another agent has taken the place of one.
const REPLACED: Duration = Duration::from_secs(120);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let (target, _, first) = scene.measured_workload(Load::Steady).await?;
    let before = scene.api::<CkbProbe>().get(PROBE).await?;

    let chart = repository().join("charts/ckb-probe");
    let chart = chart.to_string_lossy();
    manifests(scene, &chart).await?;
    let revision = helm(&["history", RELEASE, "--max", "1", "-o", "json"], None).await?;
    let revision: Value =
        serde_json::from_str(&revision).map_err(Failure::format("helm history"))?;
    let revision = revision[0]["revision"].to_string();
    let upgrade = [
        "upgrade",
        RELEASE,
        &chart,
        "--reuse-values",
        "--set-string",
        "agent.podAnnotations.upgraded=yes",
        "--wait",
    ];
    helm(&upgrade, None).await?;
    let second = replaced(scene, &first, "an upgrade").await?;
    helm(&["rollback", RELEASE, &revision, "--wait"], None).await?;
    replaced(scene, &second, "a rollback").await?;
    same(scene, &before, "after upgrade and rollback").await?;

    let values = helm(&["get", "values", RELEASE, "-o", "yaml"], None).await?;
    let uninstalled = uninstalled(scene, &target, &before).await;
    let install = ["upgrade", "--install", RELEASE, &chart, "-f", "-", "--wait"];
    helm(&install, Some(&values)).await?;
    uninstalled?;
    // Whoever installs it again has what was asked before measured again.
    scene.firing().await?;
    scene.equal("targets harmed", !target.process.is_alive(), 0);
    Ok(())
}

/// What the chart makes of its own values, and of those of each example, the API server takes, with no field that it does not know.
async fn manifests(scene: &Scene<'_>, chart: &str) -> Result<()> {
    let examples = format!("{chart}/examples");
    let entries = fs::read_dir(&examples).map_err(Failure::system(&examples))?;
    let examples =
        entries.filter_map(|entry| entry.ok()?.path().into_os_string().into_string().ok());
    let values: Vec<String> = [format!("{chart}/values.yaml")]
        .into_iter()
        .chain(examples)
        .collect();
    for values in &values {
        // Who has no operator of Prometheus has no such resource.
        let template = [
            "template",
            RELEASE,
            chart,
            "--values",
            values,
            "--set",
            "metrics.podMonitor.enabled=false",
        ];
        let objects = helm(&template, None).await?;
        let apply = [
            "--namespace",
            SYSTEM,
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            "-",
        ];
        command("kubectl", &apply, Some(&objects)).await?;
    }
    scene.equal_of(
        "sets of values whose manifests the API server takes",
        values.len(),
        "the chart's and its examples'",
        4,
    );
    Ok(())
}

async fn helm(arguments: &[&str], input: Option<&str>) -> Result<String> {
    let arguments: Vec<&str> = ["--namespace", SYSTEM]
        .iter()
        .chain(arguments)
        .copied()
        .collect();
    command("helm", &arguments, input).await
}

/// Waits until another agent measures the target.
async fn replaced(scene: &Scene<'_>, before: &Component, by: &str) -> Result<Component> {
    let began = Instant::now();
    let agent = wait::until("another agent", REPLACED, async || {
        let agent = scene.cluster.agent().await?;
        expect(
            agent.process.pid != before.process.pid,
            "another agent",
            || agent.pod.clone(),
        )?;
        Ok(agent)
    })
    .await?;
    scene.firing().await?;
    // Its counters begin with it; that they go on from there is seen by two looks.
    let first = rows::all_counted(&scene.now(PROBE).await?)?;
    scene.counted(PROBE, first + 1).await?;
    let row = format!("until another agent counts on after {by}");
    scene.seconds(&row, began.elapsed(), REPLACED);
    Ok(agent)
}

/// The CkbProbe is what it was.
async fn same(scene: &Scene<'_>, before: &CkbProbe, when: &str) -> Result<()> {
    let now = scene.api::<CkbProbe>().get(PROBE).await?;
    let is_same = now.uid() == before.uid()
        && now.metadata.generation == before.metadata.generation
        && now.spec == before.spec;
    scene.equal(&format!("CkbProbes that are others {when}"), !is_same, 0);
    Ok(())
}

async fn uninstalled(scene: &Scene<'_>, target: &Target, before: &CkbProbe) -> Result<()> {
    let (code, agent) = scene.workload_attached(target.process).await?;
    let held = Held::by(agent.process)?;
    scene.probed(&code)?;
    let definitions = Api::<CustomResourceDefinition>::all(scene.cluster.client.clone());
    let ours = async || -> Result<Vec<String>> {
        let all = definitions.list_metadata(&ListParams::default()).await?;
        let names = all.items.iter().map(|one| one.name_any());
        Ok(names
            .filter(|name| name.ends_with(".ckbprobe.dev"))
            .collect())
    };
    let defined = ours().await?;

    helm(&["uninstall", RELEASE, "--wait"], None).await?;
    let told = Instant::now();
    scene.freed(&code, &held, told, GONE).await?;
    wait::until("agents and orders to go", GONE, async || {
        scene.cluster.expect_no_agent().await
    })
    .await?;
    scene.seconds("until agents and orders are gone", told.elapsed(), GONE);
    scene.equal("definitions that stay", ours().await?.len(), defined.len());
    same(scene, before, "after it was uninstalled").await
}
