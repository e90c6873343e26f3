//! Requests to the node's disks: those that the test makes on a disk of its own, and those of all disks, as
//! /proc/diskstats counts them.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Stage,
    disk::{Disk, Done, Statistics},
};
use crate::{
    failure::{Result, expect},
    metrics::Metrics,
    rows,
    scene::ATTACH,
    workload::Workload,
};

/// Every disk of the node.
pub const ALL: &str = "disks";

/// The test's own.
pub const ONE: &str = "scratch";

const REQUESTS: &str = "ckb_probe_block_io_requests_total";
const BYTES: &str = "ckb_probe_block_io_bytes_total";

/// Of both directions together.
const WINDOW: Duration = Duration::from_secs(8);

/// The kernel counts bytes of a request when they are done, and the request when it is: with a flush of the disk after it
/// some milliseconds later. So much may lie between the two.
const UNDER_WAY: u64 = 64 << 10;

/// One of so many requests of a disk that others use may be on the other side of a moment that is not quite the same.
const TOLERATED: u64 = 50;

/// What the test does: times and bytes.
const READS: (usize, usize) = (230, 4096);
const WRITES: (usize, usize) = (110, 65536);

pub async fn play(stage: Stage<'_>, disk: &Disk) -> Result<()> {
    let before = Moment::now(stage).await?;
    disk.read(READS.0, READS.1).await?;
    disk.write(WRITES.0, WRITES.1).await?;
    tokio::time::sleep(WINDOW).await;
    let after = Moment::now(stage).await?;

    // The kernel does not show each request of a busy machine: what is told to be missing is not in the figures.
    let lost = after.counted.lost(stage) - before.counted.lost(stage);
    if lost > 0 {
        crate::note!("the agent tells of {lost} requests that it could not see");
    }
    for (direction, (times, bytes)) in [("read", READS), ("write", WRITES)] {
        let row = format!("{} {direction}", disk.name());
        let ours = after
            .counted
            .of(stage, ONE, &row)
            .since(before.counted.of(stage, ONE, &row));
        let theirs = after.latest.since(&before.latest, &row).unwrap_or_default();
        let made = Done {
            requests: times as u64,
            bytes: (times * bytes) as u64,
        };
        let ours = ours.with_lost(lost, made);
        if ours != theirs {
            crate::note!("{row}: {ours:?}, {theirs:?} in /proc/diskstats");
        }
        let what = format!("blockIo: {direction} requests on a disk that nobody else uses");
        stage.scene.equal(&what, ours.requests, "", times as u64);
        stage.scene.equal(
            &format!(
                "blockIo: bytes of these, by /proc/diskstats {}",
                theirs.bytes
            ),
            ours.bytes,
            "",
            (times * bytes) as u64,
        );
    }

    // Of disks that others use at the same time, no moment is the same for both: what was counted lies between what there
    // was at least and at the most.
    let labels = stage.values(&after.counted.0, ALL, REQUESTS, "disk");
    let all: BTreeSet<&str> = labels
        .filter(|row| after.latest.of(row).is_some())
        .collect();
    let (mut beside, mut requests) = (0, 0);
    for row in &all {
        let ours = after
            .counted
            .of(stage, ALL, row)
            .since(before.counted.of(stage, ALL, row));
        let least = after
            .earliest
            .since(&before.latest, row)
            .unwrap_or_default();
        let most = after
            .latest
            .since(&before.earliest, row)
            .unwrap_or_default();
        let ours = ours.with_lost(lost, least);
        let fits = |of: fn(&Done) -> u64, under_way: u64| {
            let beside = under_way + of(&most) / TOLERATED;
            (of(&least).saturating_sub(beside)..=of(&most) + beside).contains(&of(&ours))
        };
        if !(fits(|done| done.requests, 1) && fits(|done| done.bytes, UNDER_WAY)) {
            crate::note!("{row}: {ours:?}, {least:?} to {most:?} in /proc/diskstats");
            beside += 1;
        }
        requests += ours.requests;
    }
    stage.scene.equal(
        "blockIo: disks and directions of the node that are more than 2 % off /proc/diskstats",
        beside,
        &format!("of {}, with {requests} requests", all.len()),
        0,
    );
    expect(all.len() > 2, "disks beside the test's own", || {
        format!("{all:?}")
    })?;
    whose(stage, disk).await
}

/// The status says which requests a thread of the target asked for.
async fn whose(stage: Stage<'_>, disk: &Disk) -> Result<()> {
    let row = format!("{} write", disk.name());
    let status = stage
        .scene
        .status("who asked for requests", ATTACH, |status| {
            let probe = rows::probe_of(status, ALL)?;
            let own = probe
                .rows
                .iter()
                .any(|row| rows::part_of(row, "own").is_ok());
            // What a node writes is not always synced by itself.
            expect(
                own || stage.scene.workload == Workload::Ckb,
                "a request that the target asked for",
                || format!("{:?}", probe.rows),
            )?;
            rows::row_of(rows::probe_of(status, ONE)?, &row).map(drop)
        })
        .await?;
    let row = rows::row_of(rows::probe_of(&status, ONE)?, &row)?;
    let others = rows::count(&rows::part_of(row, "other")?.figures)?;
    stage.scene.equal(
        "blockIo: of the test's writes, those that the status puts down to others than the target",
        others,
        "",
        WRITES.0 as u64,
    );
    Ok(())
}

/// What the agent had counted at one moment, and the kernel shortly before and after it.
struct Moment {
    earliest: Statistics,
    counted: Counted,
    latest: Statistics,
}

struct Counted(Metrics);

impl Moment {
    async fn now(stage: Stage<'_>) -> Result<Self> {
        Ok(Self {
            earliest: Statistics::now()?,
            counted: Counted(stage.agent.scrape().await?),
            latest: Statistics::now()?,
        })
    }
}

impl Counted {
    /// Requests to any disk that were not seen.
    fn lost(&self, stage: Stage<'_>) -> u64 {
        let labels = [("namespace", &*stage.scene.namespace), ("what", "requests")];
        self.0
            .sum("ckb_probe_lost_total", &labels)
            .unwrap_or_default() as u64
    }

    fn of(&self, stage: Stage<'_>, probe: &str, row: &str) -> Done {
        let sum = |metric| stage.sum(&self.0, probe, metric, &[("disk", row)]);
        Done {
            requests: sum(REQUESTS),
            bytes: sum(BYTES),
        }
    }
}

impl Done {
    /// With as many requests of those that are missing as are told to be lost, and with their part of the bytes.
    fn with_lost(self, lost: u64, wanted: Self) -> Self {
        let missing = wanted.requests.saturating_sub(self.requests);
        let told = missing.min(lost);
        let bytes = wanted.bytes.saturating_sub(self.bytes);
        Self {
            requests: self.requests + told,
            bytes: self.bytes + (bytes * told).checked_div(missing).unwrap_or_default(),
        }
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests - earlier.requests,
            bytes: self.bytes - earlier.bytes,
        }
    }
}
