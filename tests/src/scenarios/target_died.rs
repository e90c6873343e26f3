//! A target that dies just after each attach is left alone, whether the probes are to blame or not.

use ckb_probe_crds::InstanceState;

use super::prelude::*;
use crate::{bpf::Code, process::uptime};

/// Until it has died twice, and a person can read of it.
const TOLD: Duration = Duration::from_secs(60);

/// Until kubelet has started it once more: it waits for 10, 20 and 40 s between one time and the next.
const STARTED: Duration = Duration::from_secs(90);

/// Of a life of three seconds.
const FRESH: Duration = Duration::from_millis(1200);

/// Keeps the agent there, so that it sees the first death; and must not be disturbed by any.
const NEIGHBOUR: FixturePod = FixturePod::ground_truth(
    "neighbour",
    &["--rate", "20", "rocksdb_get_pinned_cf 20000 constant:1000"],
);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let neighbour = scene.begin(NEIGHBOUR).await?;
    let operations = ["Get"];
    let probe = scene.probe_of(NEIGHBOUR.name, &NEIGHBOUR, &operations);
    scene.apply_probe(probe).await?;
    let (_, agent) = scene.attached(neighbour.process, &operations).await?;
    scene.apply_probe(scene.workload_probe()).await?;

    let started = Instant::now();
    let workload = Workload::Rocksdb;
    workload
        .apply(scene.cluster, &scene.namespace, Load::ShortLived)
        .await?;
    let status = scene
        .status("TargetDied", TOLD * 2, |status| {
            let instance = status.instances.first();
            let instance = instance.map(|one| (one.state, one.reason));
            expect(
                instance == Some((InstanceState::Detached, Reason::TargetDied)),
                "a target that is Detached, TargetDied",
                || format!("{:?}", status.instances),
            )
        })
        .await?;
    scene.seconds(
        "from the first start until TargetDied",
        started.elapsed(),
        TOLD,
    );
    let right = [(condition::READY, "False"), (condition::DEGRADED, "True")].map(|(kind, is)| {
        let mut conditions = status.conditions.iter();
        conditions.any(|one| {
            one.type_ == kind && one.status == is && one.reason == Reason::TargetDied.as_str()
        })
    });
    let right = right.into_iter().filter(|right| *right).count();
    scene.equal("conditions that say TargetDied", right, 2);
    let events = scene.events(PROBE, Reason::TargetDied).await?;
    scene.equal("Events of reason TargetDied", events, 1);

    let target = next(scene, None).await?;
    let code = Code::of(target.process)?;
    let mut touched = 0;
    let mut looks = 0;
    // For as long as it lives. An agent that had not let go of it would attach within a fraction of that.
    while target.process.is_alive()
        && let Ok(probed) = code.probed()
    {
        looks += 1;
        touched += probed.len() as u64;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let unit = format!("in {looks} looks");
    scene.equal_of("probes in its next process", touched, &unit, 0);
    expect(looks >= 10, "ten looks at it", || looks)?;

    let mut changed = scene.workload_probe();
    changed["spec"]["probes"][0]["rocksdb"]["slowThreshold"] = json!("2ms");
    scene.apply_probe(changed).await?;
    let target = next(scene, Some(&target)).await?;
    let probed = wait::closely("probes after the spec has changed", ATTACH, async || {
        let probed = Code::of(target.process)?.probed()?.len();
        expect(probed > 0, "probes", || probed)?;
        Ok(probed)
    })
    .await?;
    scene.figure(
        "probes in the process after that, once the spec has changed",
        probed,
        "",
        Bound::AtLeast(1.0),
    );
    let labels = [
        ("namespace", scene.namespace.as_str()),
        ("pod", NEIGHBOUR.name),
    ];
    let reattaches = agent
        .scrape()
        .await?
        .sum("ckb_probe_reattaches_total", &labels);
    scene.equal(
        "times that its neighbour was attached anew",
        reattaches.unwrap_or(f64::NAN),
        0,
    );
    scene.equal("agents that restarted", !agent.process.is_alive(), 0);
    Ok(())
}

/// The next process of the workload that is not this one.
async fn next(scene: &Scene<'_>, old: Option<&Target>) -> Result<Target> {
    wait::closely("the next process", STARTED, async || {
        let pod = Workload::Rocksdb
            .pod(scene.cluster, &scene.namespace)
            .await?;
        let process = scene.cluster.process_of_pod(&scene.namespace, &pod, "ckb");
        let process = process.await?;
        let is_new = old.is_none_or(|old| old.process != process);
        let age = uptime().saturating_sub(process.started());
        expect(
            is_new && age <= FRESH,
            "another process, which has most of its life before it",
            || format!("{process:?} of {age:?}"),
        )?;
        // One that is still being set up has no code to look at.
        Code::of(process)?;
        Ok(Target { pod, process })
    })
    .await
}
