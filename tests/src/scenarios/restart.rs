//! A target that is killed is attached again when it is back, and the gap is told.

use super::prelude::*;
use crate::process::uptime;

/// From the start of the new process until it is attached, as a scrape of the agent tells: what the project promises.
/// What it takes on an idle machine, from exec to the first call that is counted, is for the benchmark to say.
const PROMISE: Duration = Duration::from_secs(2);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let (target, _, agent) = scene.measured_workload(Load::Steady).await?;
    let namespace = scene.namespace.clone();
    let labels = [("namespace", namespace.as_str()), ("pod", &target.pod)];
    let look = async |metric: &str| {
        let metrics = agent.scrape().await?;
        Result::Ok(metrics.total(metric, &labels))
    };
    const CALLS: &str = "ckb_probe_operation_duration_seconds_count";

    let mut highest = look(CALLS).await?;
    let mut backwards = 0;
    target.process.signal(Signal::KILL)?;
    let attached = wait::closely("the probes to be back", ATTACH, async || {
        let metrics = agent.scrape().await?;
        let seen = uptime();
        let calls = metrics.total(CALLS, &labels);
        backwards += u64::from(calls < highest);
        highest = highest.max(calls);
        let attached = metrics.sum("ckb_probe_target_attached", &labels);
        let reattaches = metrics.sum("ckb_probe_reattaches_total", &labels);
        expect(
            attached == Some(1.0) && reattaches >= Some(1.0),
            "the target to be attached again",
            || format!("attached {attached:?}, reattaches {reattaches:?}"),
        )?;
        Ok(seen)
    })
    .await?;
    let process = wait::until("the new process in the API", ATTACH, async || {
        let process = scene.cluster.process(&namespace, &target.pod, "ckb", "ckb");
        process.await.and_then(|process| {
            expect(process != target.process, "a new process", || "the old one")?;
            Ok(process)
        })
    })
    .await?;
    scene.seconds(
        "from the start of the new process to its probes",
        attached.saturating_sub(process.started()),
        PROMISE,
    );

    let before = highest;
    let more = wait::until("calls of the new process", ATTACH, async || {
        let calls = look(CALLS).await?;
        backwards += u64::from(calls < highest);
        highest = highest.max(calls);
        expect(calls > before, format!("more than {before} calls"), || {
            calls
        })?;
        Ok(calls - before)
    })
    .await?;
    scene.figure(
        "calls counted of the new process",
        more,
        "calls",
        Bound::Above(0.0),
    );
    scene.equal("times that a counter went backwards", backwards, 0);

    let status = scene.firing().await?;
    let instance = status
        .instances
        .first()
        .ok_or_else(|| Failure::missing("an instance in the status"))?;
    scene.equal("reattaches in the status", instance.reattaches, 1);
    let gap: f64 = instance
        .gap_seconds
        .parse()
        .map_err(Failure::format("gapSeconds"))?;
    scene.figure("gapSeconds in the status", gap, "s", Bound::Above(0.0));
    scene.equal(
        "agents that restarted meanwhile",
        !agent.process.is_alive(),
        0,
    );
    Ok(())
}
