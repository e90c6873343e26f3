//! Counts are equal to the last call, in the status and in the metrics, for a program that knows them. Column families and quantiles
//! are for tests of the agent.

use ckb_probe_crds::InstanceState;

use super::prelude::*;

/// Long enough for all calls of a round, on a slow machine too: the figures in a status are of one interval.
const INTERVAL: &str = "15s";

/// Every function.
const PLAN: &[&str] = &[
    "--threads",
    "8",
    "rocksdb_get_pinned_cf 2000 uniform:1000000..9000000",
    "rocksdb_get_pinned 401 constant:1000",
    "rocksdb_get 402 constant:1000",
    "rocksdb_get_cf 403 constant:1000",
    "rocksdb_transaction_get_pinned_cf 5000 uniform:20000..50000",
    "rocksdb_transaction_get_for_update_cf 700 uniform:20000..50000",
    "rocksdb_transaction_put_cf 1000 constant:2000000",
    "rocksdb_transaction_delete_cf 411 constant:1000",
    "rocksdb_transaction_commit 2000 lognormal:3000000,0.6",
    "rocksdb_write 500 constant:5000000",
    "rocksdb_put 77 constant:1000",
    "rocksdb_put_cf 78 constant:1000",
    "rocksdb_delete 55 constant:1000",
    "rocksdb_delete_cf 56 constant:1000",
    "rocksdb_create_iterator 90 constant:1000",
    "rocksdb_create_iterator_cf 91 constant:1000",
    "rocksdb_transaction_create_iterator_cf 92 constant:1000",
    "rocksdb_multi_get_cf 33 constant:1000",
    "rocksdb_iter_seek 41 constant:1000",
    "rocksdb_iter_seek_for_prev 42 constant:1000",
    "rocksdb_iter_seek_to_first 43 constant:1000",
    "rocksdb_iter_seek_to_last 44 constant:1000",
    "rocksdb_iter_next 300 constant:1000",
    "rocksdb_iter_prev 45 constant:1000",
    "rocksdb::CompactionJob::Run 11 constant:2000000",
    "rocksdb::FlushJob::Run 12 constant:1000000",
    "rocksdb::DBImpl::SyncWAL 13 constant:1000",
    "rocksdb::WritableFileWriter::Sync 14 constant:1000",
    "rocksdb::DBImpl::DelayWrite 15 constant:1000",
];

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let pod = FixturePod::ground_truth("truth", PLAN);
    let fixture = scene.run(pod).await?;
    let operations = operations::names();
    let probe = probe(&scene.namespace, PROBE, pod.target(), &operations, INTERVAL);
    scene.apply_probe(probe).await?;
    let (_, agent) = scene.attached(fixture.process, &operations).await?;
    let namespace = scene.namespace.clone();
    let labels = [("namespace", namespace.as_str()), ("pod", "truth")];
    // All calls are to fall into one interval: they begin right after the end of another.
    wait::until("the first interval to end", ATTACH, async || {
        let report = scene.cluster.report(&namespace, PROBE, "truth").await?;
        let mut windows = rows::reported(&report).map(|one| &one.window);
        expect(
            report.state == InstanceState::Attached && windows.any(|w| w.milliseconds > 0),
            "an attached target with an interval behind it",
            || format!("{:?} and no interval", report.state),
        )
    })
    .await?;

    fixture.begin()?;
    let truth = fixture.finish(ATTACH).await?;
    let metrics = agent.scrape().await?;
    let (mut calls, mut missed) = (0, 0);
    for (operation, truth) in operations::truth(&truth) {
        let labels = [&labels[..], &[("operation", operation)]].concat();
        let count = metrics.sum("ckb_probe_operation_duration_seconds_count", &labels);
        let count = count.unwrap_or_default() as u64;
        if count != truth.calls {
            crate::note!("{operation}: {count} counted of {}", truth.calls);
        }
        calls += truth.calls;
        missed += count.abs_diff(truth.calls);
    }
    scene.equal_of(
        "calls more or fewer than were made, in the metrics",
        missed,
        &format!("of {calls}"),
        0,
    );

    wait::until("the interval of all calls", ATTACH, async || {
        let report = scene.cluster.report(&namespace, PROBE, "truth").await?;
        let all = || rows::reported(&report);
        let reported: u64 = all().map(|row| rows::calls(&row.total)).sum();
        let window: u64 = all().map(|row| rows::calls(&row.window.figures)).sum();
        expect(
            reported == calls && window == calls,
            format!("{calls} calls in all and in the last interval"),
            || format!("{reported} and {window}"),
        )
    })
    .await?;
    let status = scene.firing().await?;
    let mut missed = 0;
    for (operation, truth) in operations::truth(&truth) {
        let shown = rows::count(&rows::shown_of(&status, operation)?.figures)?;
        missed += shown.abs_diff(truth.calls);
    }
    scene.equal_of(
        "calls more or fewer than were made, in the status",
        missed,
        &format!("of {calls}"),
        0,
    );
    Ok(())
}
