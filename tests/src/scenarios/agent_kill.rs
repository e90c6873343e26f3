//! A killed agent takes its probes with it, does not harm its target, and comes back.

use super::prelude::*;
use crate::bpf::Held;

/// From the agent's end until no probe is left.
const CLEAN: Duration = Duration::from_secs(5);

/// From the agent's end until its successor is attached: kubelet's part in it is the larger.
const BACK: Duration = Duration::from_secs(30);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let (target, code, agent) = scene.measured_workload(Load::Busy).await?;
    let held = Held::by(agent.process)?;
    scene.probed(&code)?;

    agent.process.signal(Signal::KILL)?;
    let killed = Instant::now();
    // Its successor is a second away at the least, so no look misses the time without probes.
    scene.freed(&code, &held, killed, CLEAN).await?;

    let cpu = target.process.cpu_time()?;

    let successor = wait::until("the successor's probes", ATTACH, async || {
        let successor = scene.cluster.agent().await?;
        let metrics = successor.scrape().await?;
        let labels = [
            ("namespace", scene.namespace.as_str()),
            ("pod", &target.pod),
        ];
        let calls = metrics.sum("ckb_probe_operation_duration_seconds_count", &labels);
        expect(
            successor.process != agent.process && calls > Some(0.0),
            "another agent that counts calls",
            || format!("{successor:?}, {calls:?} calls"),
        )?;
        Ok(successor)
    })
    .await?;
    scene.seconds("until a new agent counts calls", killed.elapsed(), BACK);
    scene.equal("targets whose process ended", !target.process.is_alive(), 0);
    let used = target.process.cpu_time()?.saturating_sub(cpu);
    scene.figure(
        "CPU time of the target while there was no agent",
        used.as_secs_f64(),
        "s",
        Bound::Above(0.0),
    );
    scene.equal("new agents on the same pod", successor.pod == agent.pod, 1);
    scene.firing().await?;
    Ok(())
}
