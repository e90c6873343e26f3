//! An agent that is told to end takes its probes off and ends well, at once.

use super::prelude::*;
use crate::cluster::container_status;

/// From SIGTERM to the end of the process: what the project promises.
const PROMISE: Duration = Duration::from_secs(2);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let (_, code, agent) = scene.measured_workload(Load::Steady).await?;
    scene.probed(&code)?;

    let told = Instant::now();
    agent.process.signal(Signal::TERM)?;
    agent.process.ended(PROMISE * 5).await?;
    scene.seconds("until the agent has ended", told.elapsed(), PROMISE);
    // Its successor is a second away at the least.
    scene.equal("functions with a probe after", code.probed()?.len(), 0);
    let exit_code = wait::until("the exit code", ATTACH, async || {
        let pod = scene.cluster.agent_pod().await?;
        let status = container_status(&pod, "agent");
        let states = status.map(|status| [&status.state, &status.last_state]);
        let ended = states.into_iter().flatten().flatten();
        ended
            .filter_map(|state| state.terminated.as_ref())
            .map(|ended| ended.exit_code)
            .next()
            .ok_or_else(|| Failure::unexpected("a container that has ended", format!("{status:?}")))
    })
    .await?;
    scene.equal("exit code of the agent", exit_code, 0);
    scene.firing().await?;
    Ok(())
}
