//! A static pod, of a manifest in the kubelet's folder, is found: the kubelet has another uid for it than the API.

use super::prelude::*;

const FIXTURE: FixturePod =
    FixturePod::ground_truth("static", &["rocksdb_get_pinned_cf 3001 constant:1000"]);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let path = scene.cluster.folder.join("static/e2e.json");
    let manifest = FIXTURE.manifest(&scene.namespace).to_string();
    fs::write(&path, manifest).map_err(Failure::at(&path))?;
    let result = measured(scene).await;
    // Before the namespace: the kubelet would make its mirror pod again.
    fs::remove_file(&path).map_err(Failure::at(&path))?;
    result
}

async fn measured(scene: &mut Scene<'_>) -> Result<()> {
    let cluster = scene.cluster;
    let operations = operations::names();
    scene
        .apply_probe(scene.probe_of(PROBE, &FIXTURE, &operations))
        .await?;
    // Its mirror in the API has the node's name after its own.
    let pod = format!("{}-node0", FIXTURE.name);
    let fixture = FIXTURE.running(cluster, &scene.namespace, &pod).await?;
    let uid = cluster.uid_of_pod(&scene.namespace, &pod).await?;
    let cgroups = fixture.process.proc("cgroup")?;
    expect(
        cgroups.contains("/pod") && !cgroups.contains(&uid),
        "another uid in the kubelet's cgroups than in the API",
        || cgroups.clone(),
    )?;
    scene.attached(fixture.process, &operations).await?;
    fixture.begin()?;
    let truth = fixture.finish(ATTACH).await?.calls();
    let counted = scene.counted(PROBE, truth).await?;
    scene.equal("calls counted, of the static pod", counted, truth);
    Ok(())
}
