//! Counts are equal to the last call, also by column family, and quantiles are as exact as promised, for a program that
//! knows both.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    CkbProbeStatus, Duration as Displayed, InstanceReport, InstanceState, IntervalFigures,
};
use serde_json::json;

use crate::{
    failure::{Failure, Result, expect},
    fixture::Truth,
    metrics::Metrics,
    operations,
    report::Bound,
    rows,
    scene::{ATTACH, PROBE, Scene, probe},
    wait,
    workload::FixturePod,
};

/// Long enough for all calls of a round, on a slow machine too: the figures in a status are of one interval.
const INTERVAL: &str = "15s";

/// What the documentation promises of a quantile, in percent.
const QUANTILE_ERROR: f64 = 3.2;

/// Of three significant figures, in percent.
const ROUNDING: f64 = 0.5;

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// Every function. What has its quantiles compared takes so long that the traps around a call do not matter.
const PLAN: &[&str] = &[
    "--threads",
    "8",
    "rocksdb_get_pinned_cf 2000 uniform:1000000..9000000",
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

/// Whose quantiles are compared.
const COMPARED: [&str; 4] = ["Get", "TxnPut", "TxnCommit", "Write"];

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let pod = FixturePod {
        name: "truth",
        app: "truth",
        variant: "ground-truth",
        arguments: PLAN,
    };
    let fixture = pod.run(scene.cluster, &scene.namespace).await?;
    let target = json!({
        "selector": { "matchLabels": { "app": "truth" } },
        "executable": "ground-truth",
    });
    let operations = operations::names();
    let mut probe = probe(&scene.namespace, PROBE, target, &operations, INTERVAL);
    probe["spec"]["probes"][0]["rocksdb"]["byColumnFamily"] = json!(true);
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
    scene.equal(
        "calls more or fewer than were made, in the metrics",
        missed,
        &format!("of {calls}"),
        0,
    );
    by_column_family(scene, &truth, &metrics);

    let report = wait::until("the interval of all calls", ATTACH, async || {
        let report = scene.cluster.report(&namespace, PROBE, "truth").await?;
        let all = || rows::reported(&report);
        let reported: u64 = all().map(|row| rows::calls(&row.total)).sum();
        let window: u64 = all().map(|row| rows::calls(&row.window.figures)).sum();
        expect(
            reported == calls && window == calls,
            format!("{calls} calls in all and in the last interval"),
            || format!("{reported} and {window}"),
        )?;
        Ok(report)
    })
    .await?;
    let status = scene.firing().await?;
    let mut missed = 0;
    for (operation, truth) in operations::truth(&truth) {
        let shown = rows::count(&rows::shown_of(&status, operation)?.figures)?;
        missed += shown.abs_diff(truth.calls);
    }
    scene.equal(
        "calls more or fewer than were made, in the status",
        missed,
        &format!("of {calls}"),
        0,
    );

    for (operation, truth) in operations::truth(&truth) {
        if !COMPARED.contains(&operation) {
            continue;
        }
        let [mut error, mut rounding] = [0.0_f64; 2];
        let shown = shown(&status, operation)?;
        let window = window(&report, operation)?;
        let (durations, longest) = (
            rows::durations(&window.figures),
            rows::longest(&window.figures),
        );
        for ((quantile, share), shown) in QUANTILES.into_iter().zip(shown) {
            let exact = truth.quantile(share) as f64;
            // As the status has it: never above the exact maximum, beyond which the last bucket may reach.
            let estimate = durations.quantile(share).unwrap_or_default();
            let estimate = estimate.min(longest) as f64;
            crate::note!(
                "{operation} {quantile}: {estimate} ns, shown as {} ns, for {exact} ns",
                shown.as_nanos()
            );
            error = error.max((estimate - exact).abs() / exact * 100.0);
            rounding = rounding.max((shown.as_nanos() as f64 - estimate).abs() / estimate * 100.0);
        }
        scene.figure(
            &format!("largest error of p50, p90 and p99 of {operation}"),
            error,
            "%",
            Bound::AtMost(QUANTILE_ERROR),
        );
        scene.figure(
            &format!("rounding of the same in the status, {operation}"),
            rounding,
            "%",
            Bound::AtMost(ROUNDING),
        );
    }
    Ok(())
}

/// Compares the calls of each operation on each column family, in the metrics. What the truth has under RocksDB's name
/// for it must be there under that of CKB's schema.
fn by_column_family(scene: &mut Scene<'_>, truth: &Truth, metrics: &Metrics) {
    let mut made: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (function, truth) in &truth.functions {
        let operation = operations::served_by(function);
        let Some(operation) = operation.filter(|name| operations::ON_A_FAMILY.contains(name))
        else {
            continue;
        };
        let mut add = |family: &str, calls| {
            *made
                .entry((operation.to_string(), family.to_string()))
                .or_default() += calls;
        };
        for (family, truth) in &truth.column_families {
            add(
                operations::column_family(family).unwrap_or(family),
                truth.calls,
            );
        }
        if truth.column_families.is_empty() {
            add(operations::OTHER_FAMILY, truth.calls);
        }
    }
    let mut missed: BTreeMap<_, _> = made
        .iter()
        .map(|(key, calls)| (key.clone(), *calls))
        .collect();
    for sample in &metrics.samples {
        let label = |name: &str| sample.labels.get(name).cloned().unwrap_or_default();
        if sample.name == "ckb_probe_column_family_operation_duration_seconds_count"
            && label("namespace") == scene.namespace
        {
            let counted = missed
                .entry((label("operation"), label("column_family")))
                .or_default();
            *counted = counted.abs_diff(sample.value as u64);
        }
    }
    missed.retain(|_, calls| *calls > 0);
    for ((operation, family), calls) in &missed {
        crate::note!("{operation} on {family}: off by {calls}");
    }
    scene.equal(
        "calls more or fewer than were made on a column family, in the metrics",
        missed.values().sum(),
        &format!("of {}", made.values().sum::<u64>()),
        0,
    );
    scene.figure(
        "pairs of operation and column family compared",
        made.values().filter(|calls| **calls > 0).count() as f64,
        "",
        Bound::AtLeast(100.0),
    );
}

/// The last interval of an operation.
fn window<'a>(report: &'a InstanceReport, operation: &str) -> Result<&'a IntervalFigures> {
    let mut all = rows::reported(report);
    all.find(|one| one.key == operation)
        .map(|one| &one.window)
        .ok_or_else(|| Failure::Unexpected {
            expected: format!("{operation} in the report"),
            got: "none".to_string(),
        })
}

/// The [`QUANTILES`] of an operation, as a user reads them.
fn shown(status: &CkbProbeStatus, operation: &str) -> Result<Vec<Displayed>> {
    let figures = &rows::shown_of(status, operation)?.figures;
    let quantiles = QUANTILES.into_iter();
    quantiles
        .map(|(name, _)| rows::duration(figures, name))
        .collect()
}
