//! A deleted CkbProbe leaves no probe on the process, and no agent.

use super::prelude::*;
use crate::bpf::Held;

/// From the deletion until nothing is left: what the project promises.
const PROMISE: Duration = Duration::from_secs(5);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let (target, code, agent) = scene.measured_workload(Load::Steady).await?;
    let held = Held::by(agent.process)?;
    scene.probed(&code)?;
    scene.figure(
        "BPF programs of the agent before",
        held.programs.len(),
        "",
        Bound::AtLeast(1.0),
    );

    let deleted = Instant::now();
    scene.delete_probe(PROBE).await?;
    scene.freed(&code, &held, deleted, PROMISE).await?;
    wait::until("the agent to go", PROMISE * 4, async || {
        scene.cluster.expect_no_agent().await
    })
    .await?;
    scene.seconds("until the agent pod is gone", deleted.elapsed(), PROMISE);
    scene.equal("targets harmed", !target.process.is_alive(), 0);
    Ok(())
}
