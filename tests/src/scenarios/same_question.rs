//! CkbProbes that ask the same of a pod are measured once, for all of them, whoever of them comes or goes.

use super::prelude::*;
use crate::workload::MEASURED;

/// In the order in which they are created: a second apart, which is what the API server tells apart.
const PROBES: [&str; 3] = ["zebra", "yak", "ape"];

const INTERVAL: Duration = Duration::from_secs(2);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let measured = scene.run(MEASURED).await?;
    let operations = operations::names();
    for name in PROBES {
        let probe = scene.probe_of(name, &MEASURED, &operations);
        scene.apply_probe(probe).await?;
        attached(scene, name).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    scene.attached(measured.process, &operations).await?;
    scene.equal(
        "entries for three CkbProbes",
        entries(scene).await?.len(),
        1,
    );
    measured.begin()?;
    let truth = measured.finish(ATTACH).await?;
    let mut truth: u64 = truth.calls();
    for name in PROBES {
        scene.counted(name, truth).await?;
    }

    // The one that the order names goes: the others have lost nothing, and count on.
    scene.delete_probe(PROBES[0]).await?;
    wait::until("the order to name the next", ATTACH, async || {
        let named = entries(scene).await?;
        expect(named == [PROBES[1]], PROBES[1], || format!("{named:?}"))
    })
    .await?;
    wait::until("its report", ATTACH, async || {
        let (namespace, pod) = (&scene.namespace, MEASURED.name);
        scene.cluster.report(namespace, PROBES[1], pod).await
    })
    .await?;
    // The moment in which it was measured anew, and nobody looked, is behind by then.
    tokio::time::sleep(INTERVAL * 2).await;
    measured.begin()?;
    let more = measured.finish(ATTACH).await?;
    truth += more.calls();
    for name in &PROBES[1..] {
        let count = scene.counted(name, truth).await?;
        let what = format!("calls counted for {name}, since before the first of them went");
        scene.equal(&what, count, truth);
    }
    Ok(())
}

/// Whose names the entries about this scene's pod have.
async fn entries(scene: &Scene<'_>) -> Result<Vec<String>> {
    let nodes = scene.node_probes().await?.into_iter();
    let entries = nodes.flat_map(|node| node.spec.assignments);
    let own = entries.filter(|entry| entry.pod.namespace == scene.namespace);
    Ok(own.map(|entry| entry.probe.name).collect())
}

async fn attached(scene: &Scene<'_>, name: &str) -> Result<()> {
    wait::until("the target to be attached", ATTACH, async || {
        let status = scene.now(name).await?;
        expect(
            status.targets.summary == "1/1",
            "one target, attached",
            || format!("{name}: {:?}", status.targets),
        )
    })
    .await
}
