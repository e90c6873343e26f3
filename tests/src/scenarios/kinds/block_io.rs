//! Requests to the node's disks: those that the test makes on a disk of its own, by themselves and among those of all disks.

use ckb_probe_testkit::disk::Disk;
use tokio::task::spawn_blocking;

use super::Stage;
use crate::scenarios::prelude::*;

/// Every disk of the node.
pub const ALL: &str = "disks";

/// The test's own.
pub const ONE: &str = "scratch";

/// What the test does: times and bytes.
const READS: (usize, usize) = (230, 4096);
const WRITES: (usize, usize) = (110, 65536);

/// A disk that nobody else uses.
pub async fn disk() -> Result<Disk> {
    let disk = spawn_blocking(|| Disk::new(8)).await;
    disk.map_err(Failure::format("a disk"))
}

pub async fn play(stage: Stage<'_>, disk: &Disk) -> Result<()> {
    let before = stage.agent.scrape().await?;
    // By somebody else than the target.
    disk.read_direct(READS.0, READS.1);
    disk.write_direct(WRITES.0, WRITES.1);
    let own = |direction| disk.row(direction);
    // Until the interval is over: the metrics are those of the last report.
    let status = stage
        .scene
        .status("who asked for requests", ATTACH, |status| {
            let probe = rows::probe_of(status, ALL)?;
            let mut rows = probe.rows.iter();
            let by_target = rows.any(|row| rows::part_of(row, "own").is_ok());
            // What a node writes is not always synced by itself.
            expect(
                by_target || stage.scene.workload == Workload::Ckb,
                "a request that the target asked for",
                || format!("{:?}", probe.rows),
            )?;
            let writes = rows::row_of(rows::probe_of(status, ONE)?, &own("write"))?;
            let count = rows::count(&writes.figures)?;
            expect(count >= WRITES.0 as u64, "all writes", || count)
        })
        .await?;
    let writes = rows::row_of(rows::probe_of(&status, ONE)?, &own("write"))?;
    let others = rows::count(&rows::part_of(writes, "other")?.figures)?;
    let what = "blockIo: the test's writes, put down to others than the target in the status";
    stage.scene.equal(what, others, WRITES.0);

    let after = stage.agent.scrape().await?;
    for (direction, (times, _)) in [("read", READS), ("write", WRITES)] {
        for (probe, of) in [(ONE, "a disk by itself"), (ALL, "the same, among all")] {
            let grown = |metric: &str, labels: &[(&str, &str)]| {
                let sum = |metrics: &Metrics| stage.sum(metrics, probe, metric, labels);
                sum(&after) - sum(&before)
            };
            let row = own(direction);
            let [count, sum] = ["requests", "bytes"].map(|what| {
                let metric = format!("ckb_probe_block_io_{what}_total");
                grown(&metric, &[("disk", &row)])
            });
            // The kernel does not show each request of a busy machine: what is told to be missing is not in the figures.
            let lost = grown("ckb_probe_lost_total", &[("what", "requests")]);
            let times = times as u64;
            let told = times.saturating_sub(count).min(lost);
            let name = |what: &str| format!("blockIo: {what} of {direction} requests to {of}");
            let scene = stage.scene;
            scene.equal(&name("number"), count + told, times);
            // How large those of others are is not told.
            scene.equal(&name("bytes"), sum, 0);
        }
    }
    let all = &rows::probe_of(&status, ALL)?.rows;
    let beside = all.iter().any(|row| !row.key.starts_with(disk.name()));
    expect(beside, "disks beside the test's own", || format!("{all:?}"))
}
