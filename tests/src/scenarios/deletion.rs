//! A deleted CkbProbe leaves no probe on the process, and no agent.

use std::time::{Duration, Instant};

use ckb_probe_crds::CkbProbe;
use kube::api::DeleteParams;

use crate::{
    bpf::Held,
    failure::Result,
    report::Bound,
    scene::{PROBE, Scene},
    wait,
    workload::Load,
};

/// From the deletion until nothing is left: what the project promises.
const PROMISE: Duration = Duration::from_secs(5);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let (target, code, agent) = scene.measured_workload(Load::Steady).await?;
    let held = Held::by(agent.process)?;
    let wanted = code.serving(&scene.workload.operations()).len() as u64;
    let probed = code.probed()?.len() as u64;
    scene.equal("functions with a probe before", probed, "", wanted);
    scene.figure(
        "BPF programs of the agent before",
        held.programs.len() as f64,
        "",
        Bound::AtLeast(1.0),
    );

    let deleted = Instant::now();
    let api = scene.cluster.api::<CkbProbe>(&scene.namespace);
    api.delete(PROBE, &DeleteParams::default()).await?;
    wait::closely("the probes to go", PROMISE * 4, async || {
        code.expect_untouched()
    })
    .await?;
    scene.seconds(
        "until no probe is left in the process",
        deleted.elapsed(),
        PROMISE,
    );
    wait::until("the programs to go", PROMISE * 4, async || {
        held.expect_gone().await
    })
    .await?;
    scene.seconds(
        "until bpftool lists nothing of ours",
        deleted.elapsed(),
        PROMISE,
    );
    wait::until("the agent to go", PROMISE * 4, async || {
        scene.cluster.expect_no_agent().await
    })
    .await?;
    scene.seconds("until the agent pod is gone", deleted.elapsed(), PROMISE);
    scene.equal(
        "targets harmed",
        u64::from(!target.process.is_alive()),
        "",
        0,
    );
    Ok(())
}
