//! What a container waits for, in a pod that a CPU limit throttles and in one beside it that has none: by the kernel's accounts, as agents report
//! them. What this node does not account for is unknown, and not zero.

use ckb_probe_crds::Contention;

use super::prelude::*;

const APP: &str = "limited";

/// Wants all of a CPU for a minute: calls as short as these spin.
const THROTTLED: FixturePod = FixturePod {
    name: "throttled",
    app: APP,
    variant: "ground-truth",
    arguments: &["rocksdb_get_pinned_cf 1200000 constant:50000"],
};

/// Hardly does anything, by as many calls a second as it may.
const FREE: FixturePod = FixturePod {
    name: "free",
    arguments: &["rocksdb_get_pinned_cf 6000 constant:1000 rate:100"],
    ..THROTTLED
};

/// A fifth of a CPU: what wants all of one has used it up in the first fifth of each period.
const LIMIT: &str = "200m";

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let mut limited = THROTTLED.manifest(&scene.namespace);
    limited["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": LIMIT } });
    scene.cluster.apply(&limited).await?;
    let throttled = THROTTLED
        .running(scene.cluster, &scene.namespace, THROTTLED.name)
        .await?;
    let free = scene.run(FREE).await?;
    scene
        .apply_probe(scene.probe_of(PROBE, &THROTTLED, &operations::names()))
        .await?;
    for fixture in [&throttled, &free] {
        scene
            .attached(fixture.process, &operations::names())
            .await?;
        fixture.begin()?;
    }
    let told = wait::until("an interval that is throttled", ATTACH, async || {
        let told = waited(scene, THROTTLED.name).await?;
        let part = told.throttled_millipercent;
        expect(
            part.is_some_and(|part| part >= 50_000),
            "half of the periods, or more",
            || format!("{told:?}"),
        )?;
        Ok(told)
    })
    .await?;
    let percent = |part: Option<u64>| part.map(|part| part as f64 / 1000.0);
    scene.figure(
        "periods in which the pod with a CPU limit was throttled",
        percent(told.throttled_millipercent).unwrap_or_default(),
        "%",
        Bound::AtLeast(50.0),
    );
    let beside = waited(scene, FREE.name).await?;
    scene.equal(
        "periods in which the pod beside it was, which has no limit, in percent",
        percent(beside.throttled_millipercent).unwrap_or(f64::NAN),
        0.0,
    );
    for (fixture, told) in [(&throttled, told), (&free, beside)] {
        let accounted = accounts_for_pressure(fixture.process)?;
        let known = [told.cpu_wait_millipercent, told.disk_wait_millipercent];
        crate::note!("{}: {told:?}", fixture.process.pid);
        scene.equal(
            "waits for CPUs and disks that are told, of those that this node accounts for",
            known.iter().flatten().count(),
            if accounted { known.len() } else { 0 },
        );
    }
    Ok(())
}

/// What the last report has of a pod.
async fn waited(scene: &Scene<'_>, pod: &str) -> Result<Contention> {
    let report = scene.cluster.report(&scene.namespace, PROBE, pod).await?;
    let told = report.contention;
    told.ok_or_else(|| Failure::missing("what the container waited for"))
}

/// Whether the kernel has an account of what the process's own cgroup of version 2 waited for, and the container sees it, by whose eyes agents look: where
/// a node has the controllers in version 1, runtimes mount none of version 2 in containers.
fn accounts_for_pressure(process: Process) -> Result<bool> {
    if !process.proc("mountinfo")?.contains(" - cgroup2 ") {
        return Ok(false);
    }
    let cgroups = process.proc("cgroup")?;
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::"));
    let Some(own) = own.filter(|path| *path != "/") else {
        return Ok(false);
    };
    let folders = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let pressure = |folder| fs::read_to_string(format!("{folder}{own}/cpu.pressure"));
    Ok(folders.into_iter().any(|folder| pressure(folder).is_ok()))
}
