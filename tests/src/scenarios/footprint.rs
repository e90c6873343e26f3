//! What agent and operator themselves use, while they do what they do in the demo.

use std::time::{Duration, Instant};

use crate::{failure::Result, process::Process, report::Bound, scene::Scene, workload::Load};

/// How long CPU time is measured.
const WINDOW: Duration = Duration::from_secs(30);

/// What the project aims at.
const MEGABYTES: f64 = 20.0;

/// A percent of a core: ten times what the tool that this one follows used, at a rate that it was never tried at.
const PERCENT: f64 = 1.0;

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    scene
        .workload
        .deploy(scene.cluster, &scene.namespace, Load::Steady)
        .await?;
    scene.apply_probe(scene.sample("demo")?).await?;
    scene.firing().await?;
    let agent = scene.cluster.agent().await?;
    let operator = scene.cluster.operator().await?;

    let start = Instant::now();
    let before = (agent.process.cpu_time()?, operator.process.cpu_time()?);
    tokio::time::sleep(WINDOW).await;
    let after = (agent.process.cpu_time()?, operator.process.cpu_time()?);
    let percent = |before: Duration, after: Duration| {
        after.saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0
    };
    let cpu = (percent(before.0, after.0), percent(before.1, after.1));
    memory(scene, "agent", agent.process)?;
    scene.figure(
        "CPU of the agent",
        cpu.0,
        "% of a core",
        Bound::AtMost(PERCENT),
    );
    memory(scene, "operator", operator.process)?;
    scene.figure(
        "CPU of the operator",
        cpu.1,
        "% of a core",
        Bound::AtMost(PERCENT),
    );
    Ok(())
}

fn memory(scene: &mut Scene<'_>, who: &str, process: Process) -> Result<()> {
    let memory = process.memory()?;
    for (what, bytes) in [
        ("resident", memory.resident),
        ("anonymous", memory.anonymous),
    ] {
        scene.figure(
            &format!("{what} memory of the {who}"),
            bytes as f64 / 1e6,
            "MB",
            Bound::AtMost(MEGABYTES),
        );
    }
    Ok(())
}
