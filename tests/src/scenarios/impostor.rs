//! A pod that is made to look like another's container is not measured for it: not even while that container is down.

use super::prelude::*;
use crate::workload::Fixture;

const VICTIM: FixturePod =
    FixturePod::ground_truth("victim", &["rocksdb_get_pinned_cf 3001 constant:1000"]);

/// Whatever a pod's author can choose is as the victim has it.
const IMPOSTOR: FixturePod = FixturePod {
    name: "impostor",
    app: "impostor",
    arguments: &["rocksdb_get_pinned_cf 5003 constant:1000"],
    ..VICTIM
};

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let cluster = scene.cluster;
    let elsewhere = scene.another_namespace("elsewhere").await?;
    let victim = scene.run(VICTIM).await?;
    let impostor = disguised(scene, &elsewhere).await?;
    scene.measure(&VICTIM, &victim).await?;
    // From now on the impostor's process is the older one, and for a while the only one.
    victim.process.signal(Signal::KILL)?;
    let mut others = 0;
    let successor = wait::closely("the victim to be attached again", ATTACH, async || {
        let report = cluster.report(&scene.namespace, PROBE, VICTIM.name).await?;
        others += u64::from(report.pid == Some(impostor.process.pid as u32));
        let process = cluster.process(&scene.namespace, VICTIM.name, "fixture", VICTIM.variant);
        let process = process.await?;
        expect(
            report.reattaches == 1 && report.pid == Some(process.pid as u32),
            format!("the process {} attached", process.pid),
            || format!("{:?}, {} reattaches", report.pid, report.reattaches),
        )?;
        Ok(process)
    })
    .await?;
    scene.equal(
        "looks that found the impostor in the victim's place",
        others,
        0,
    );

    let victim = VICTIM
        .running(cluster, &scene.namespace, VICTIM.name)
        .await?;
    expect(
        victim.process == successor,
        "one process of the victim",
        || format!("{} and {}", victim.process.pid, successor.pid),
    )?;
    let truth = calls_of(&[&victim, &impostor]).await?;
    let status = scene.counted(PROBE, truth).await?;
    scene.equal(
        "calls counted, of the victim beside its impostor",
        status,
        truth,
    );
    Ok(())
}

/// The impostor, with a folder of its own volume mounted from a path that reads like the victim's termination message.
async fn disguised(scene: &Scene<'_>, namespace: &str) -> Result<Fixture> {
    let cluster = scene.cluster;
    let uid = cluster.uid_of_pod(&scene.namespace, VICTIM.name).await?;
    let mut manifest = IMPOSTOR.manifest(namespace);
    // In memory: the path begins with what the volume has, not with where it is on the node.
    manifest["spec"]["volumes"] = json!([
        { "name": "out", "emptyDir": {} },
        { "name": "disguise", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
    ]);
    let path = format!("pods/{uid}/containers/fixture/0");
    manifest["spec"]["containers"][0]["volumeMounts"] = json!([
        { "name": "disguise", "mountPath": "/disguise", "subPath": path },
        { "name": "out", "mountPath": "/out" },
    ]);
    cluster.apply(&manifest).await?;
    let impostor = IMPOSTOR.running(cluster, namespace, IMPOSTOR.name).await?;
    let mounts = impostor.process.proc("mountinfo")?;
    expect(
        mounts.contains(&format!(" /{path} ")),
        format!("a mount from /{path}"),
        || mounts.clone(),
    )?;
    Ok(impostor)
}

/// Has both make their calls, and returns how many the first made.
async fn calls_of(fixtures: &[&Fixture; 2]) -> Result<u64> {
    for fixture in fixtures {
        fixture.begin()?;
    }
    let truth = fixtures[0].finish(ATTACH).await?;
    fixtures[1].finish(ATTACH).await?;
    Ok(truth.calls())
}
