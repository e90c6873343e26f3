//! What was not selected is not counted, however alike it is.

use super::prelude::*;
use crate::workload::{Fixture, MEASURED};

/// Of the same image, in the same namespace, with another label.
const OTHER: FixturePod = FixturePod {
    name: "node-1",
    app: "other",
    arguments: &[
        "rocksdb_get_pinned_cf 5003 constant:1000",
        "rocksdb_transaction_commit 503 constant:1000",
    ],
    ..MEASURED
};

/// Of the same name and label, in another namespace.
const NAMESAKE: FixturePod = FixturePod {
    arguments: &[
        "rocksdb_get_pinned_cf 7001 constant:1000",
        "rocksdb_transaction_commit 701 constant:1000",
    ],
    ..MEASURED
};

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let elsewhere = scene.another_namespace("elsewhere").await?;
    let measured = scene.run(MEASURED).await?;
    let other = scene.run(OTHER).await?;
    let namesake = NAMESAKE.run(scene.cluster, &elsewhere).await?;
    scene.measure(&MEASURED, &measured).await?;
    scene
        .status("the target to be attached", ATTACH, |status| {
            crate::failure::expect(
                status.targets.summary == "1/1",
                "one target, attached",
                || format!("{:?}", status.targets),
            )
        })
        .await?;

    let truth = count(&[&measured, &other]).await?;
    let counted = counted(scene).await?;
    scene.equal_of(
        "calls counted, less those of the selected pod, beside another in its namespace",
        counted as f64 - truth as f64,
        &format!("of {truth}"),
        0,
    );
    let truth = truth + count(&[&measured, &namesake]).await?;
    let counted = self::counted(scene).await?;
    scene.equal_of(
        "calls counted, less those of the selected pod, beside its namesake in another namespace",
        counted as f64 - truth as f64,
        &format!("of {truth}"),
        0,
    );
    let instances = scene.node_probes().await?;
    let instances = instances
        .iter()
        .filter_map(|node| node.status.as_ref())
        .flat_map(|status| &status.instances)
        .filter(|report| report.pod.namespace.starts_with(&scene.namespace));
    scene.equal("pods reported on", instances.count(), 1);
    let status = scene.counted(PROBE, truth).await?;
    scene.equal("calls counted in the status", status, truth);
    Ok(())
}

/// Has all of them make their calls at once, and returns how many the first made.
async fn count(fixtures: &[&Fixture]) -> Result<u64> {
    for fixture in fixtures {
        fixture.begin()?;
    }
    let mut truths = Vec::new();
    for fixture in fixtures {
        let truth = fixture.finish(ATTACH).await?;
        truths.push(truth.calls());
    }
    Ok(truths[0])
}

/// What the agent has counted, of whichever pod, on behalf of this scene's CkbProbe.
async fn counted(scene: &Scene<'_>) -> Result<u64> {
    let metrics = scene.cluster.agent().await?.scrape().await?;
    let calls = metrics.samples.iter().filter(|sample| {
        let namespace = sample.labels.get("namespace");
        sample.name == "ckb_probe_operation_duration_seconds_count"
            && namespace.is_some_and(|namespace| namespace.starts_with(&scene.namespace))
    });
    Ok(calls.map(|sample| sample.value as u64).sum())
}
