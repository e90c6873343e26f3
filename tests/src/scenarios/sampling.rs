//! A busy target is measured within the budget that a CkbProbe has by default, and its figures are true all the same.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ckb_probe_crds::{CkbProbe, CkbProbeStatus, condition};
use serde_json::{Value, json};

use crate::{
    cluster::Component,
    failure::{Failure, Result, expect},
    metrics::Metrics,
    operations,
    report::Bound,
    rows,
    scene::{ATTACH, PROBE, Scene, all_fire, workload_target},
    wait,
    workload::{Load, Target, Workload},
};

/// How long both count, agent and target.
const WINDOW: Duration = Duration::from_secs(60);

/// Until what the first moments cost, in which everything is attached, is paid for.
const SETTLED: Duration = Duration::from_secs(120);

/// By how much the estimate of a single interval may lie above the ceiling.
const TOLERANCE: f64 = 1.1;

/// Percent by which a sampled operation's calls in a minute may be off. How close they come is for `make bench` to say: on a
/// busy machine the load itself is not steady, and a few slices stand for a minute of it.
const SAMPLING_ERROR: f64 = 20.0;

/// What a busy workload does most, of which some calls at least must go unrecorded.
const BUSIEST: &str = "Get";

/// What it does so rarely that every call is recorded.
const RARE: [&str; 1] = ["Write"];

/// The CkbProbe that records every call.
const RECORDED: &str = "recorded";

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let target = scene
        .workload
        .deploy(scene.cluster, &scene.namespace, Load::Busy)
        .await?;
    scene.apply_probe(probe(scene)).await?;
    if scene.workload == Workload::Ckb {
        // A node does not count its calls itself: another CkbProbe does, which records them all.
        let mut recorded = probe(scene);
        recorded["metadata"]["name"] = json!(RECORDED);
        recorded["spec"]["overhead"] = json!({ "onBreach": "Report" });
        scene.apply_probe(recorded).await?;
        wait::until("every call to be recorded", ATTACH, async || {
            all_fire(&scene.cluster.status(&scene.namespace, RECORDED).await?)
        })
        .await?;
    }
    scene.firing().await?;
    let api = scene.cluster.api::<CkbProbe>(&scene.namespace);
    let ceiling = api.get(PROBE).await?.spec.overhead.max_percent;
    scene.figure("maxPercent by default", ceiling, "%", Bound::Exactly(1.0));
    let started = Instant::now();
    scene
        .status("the budget to be kept by sampling", SETTLED, is_sampled)
        .await?;
    scene.seconds(
        "until the budget is kept, by sampling",
        started.elapsed(),
        SETTLED,
    );

    let agent = scene.cluster.agent().await?;
    let before = Counts::now(scene, &target, &agent).await?;
    let seen = watch(scene).await?;
    let after = Counts::now(scene, &target, &agent).await?;
    scene.equal(
        "looks at which WithinBudget was not True",
        seen.over_budget,
        &format!("of {}", seen.looks),
        0,
    );
    scene.figure(
        "highest estimate in the status, as a part of maxPercent",
        seen.highest_estimate / ceiling,
        "",
        Bound::AtMost(TOLERANCE),
    );
    for (operation, (least, most)) in &seen.shares {
        println!("          {operation}: recorded for {least} % to {most} % of the time");
    }
    let share = |operation: &str| seen.shares.get(operation).copied();
    scene.figure(
        &format!("highest samplingPercent of {BUSIEST}"),
        share(BUSIEST).map_or(100.0, |(_, most)| most),
        "%",
        Bound::AtMost(99.9),
    );
    for operation in RARE {
        scene.figure(
            &format!("lowest samplingPercent of {operation}"),
            share(operation).map_or(0.0, |(least, _)| least),
            "%",
            Bound::Exactly(100.0),
        );
    }
    compare(scene, &seen, &after.since(&before));

    // The metrics say the same as the status.
    let metrics = agent.scrape().await?.operations(PROBE);
    let told = metrics.iter().filter(|one| {
        let sampled = one.sampling_ratio.is_some_and(|ratio| ratio < 1.0);
        let counted = one.timed == one.calls && one.samples <= one.calls;
        counted && (!sampled || one.calls == 0.0 || one.samples < one.calls)
    });
    scene.equal(
        "operations whose samples, calls and sampling ratio agree in the metrics",
        told.count() as u64,
        "",
        metrics.len() as u64,
    );
    Ok(())
}

/// Compares counts of the window: those of rare operations to the last call, the others within the bound.
fn compare(scene: &mut Scene<'_>, seen: &Seen, window: &Counts) {
    let (mut missed, mut of, mut worst) = (0.0, 0.0, 0.0_f64);
    for (operation, truth) in window.truth.iter().filter(|(_, truth)| **truth > 0.0) {
        let Some(counted) = window.counted.get(operation) else {
            continue;
        };
        let percent = (counted - truth).abs() / truth * 100.0;
        println!("          {operation}: {counted} counted of {truth}, off by {percent:.2} %");
        let least = seen.shares.get(operation).map_or(0.0, |(least, _)| *least);
        if least == 100.0 {
            missed += (counted - truth).abs();
            of += truth;
        } else {
            worst = worst.max(percent);
        }
    }
    scene.figure(
        "largest error of a sampled operation's calls in a minute",
        worst,
        "%",
        Bound::AtMost(SAMPLING_ERROR),
    );
    scene.figure(
        "calls more or fewer than were made, of operations that are not sampled",
        missed,
        &format!("of {of}"),
        Bound::Exactly(0.0),
    );
}

/// How often each operation was done.
struct Counts {
    /// By what is sampled.
    counted: BTreeMap<String, f64>,
    /// By the target itself; or where that does not count, by what records every call.
    truth: BTreeMap<String, f64>,
}

impl Counts {
    /// Those of one moment of the target's life.
    async fn now(scene: &Scene<'_>, target: &Target, agent: &Component) -> Result<Self> {
        if scene.workload == Workload::Ckb {
            let _stopped = target.process.stop().await?;
            let metrics = agent.scrape().await?;
            return Ok(Self {
                counted: calls(&metrics, PROBE),
                truth: calls(&metrics, RECORDED),
            });
        }
        let (_paused, made) = target.pause().await?;
        let mut truth = BTreeMap::new();
        for (function, calls) in made {
            if let Some(operation) = operations::served_by(&function) {
                *truth.entry(operation.to_string()).or_default() += calls as f64;
            }
        }
        Ok(Self {
            counted: calls(&agent.scrape().await?, PROBE),
            truth,
        })
    }

    fn since(&self, before: &Self) -> Self {
        let difference = |now: &BTreeMap<String, f64>, before: &BTreeMap<String, f64>| {
            now.iter()
                .map(|(operation, calls)| {
                    let before = before.get(operation).copied().unwrap_or_default();
                    (operation.clone(), calls - before)
                })
                .collect()
        };
        Self {
            counted: difference(&self.counted, &before.counted),
            truth: difference(&self.truth, &before.truth),
        }
    }
}

/// The calls of each operation that are counted on behalf of a CkbProbe.
fn calls(metrics: &Metrics, ckbprobe: &str) -> BTreeMap<String, f64> {
    let operations = metrics.operations(ckbprobe).into_iter();
    operations.map(|one| (one.name, one.calls)).collect()
}

/// As short as a CkbProbe can be: budget and operations are those by default.
fn probe(scene: &Scene<'_>) -> Value {
    json!({
        "apiVersion": "ckbprobe.dev/v1alpha1",
        "kind": "CkbProbe",
        "metadata": { "name": PROBE, "namespace": scene.namespace },
        "spec": {
            "target": workload_target(),
            "probes": [{ "name": "storage", "rocksdb": {} }],
        },
    })
}

/// Within the budget, with an estimate to show for it; what is busy is sampled, and what is rare is not.
fn is_sampled(status: &CkbProbeStatus) -> Result<()> {
    let overhead = &status.overhead;
    let shares = sampling(status)?;
    let share = |operation: &str| shares.get(operation).copied().unwrap_or_default();
    expect(
        is_within_budget(status)
            && overhead.estimated_percent.is_some()
            && shares.get(BUSIEST).is_some_and(|share| *share < 100.0)
            && RARE.iter().all(|operation| share(operation) == 100.0),
        format!("WithinBudget True, {BUSIEST} sampled, and {RARE:?} not"),
        || format!("{overhead:?}, {:?}", status.conditions),
    )
}

fn is_within_budget(status: &CkbProbeStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|one| one.type_ == condition::WITHIN_BUDGET && one.status == "True")
}

/// The share of each operation of which an interval has ended.
fn sampling(status: &CkbProbeStatus) -> Result<BTreeMap<String, f64>> {
    rows::shown(status)
        .filter_map(|one| Some((&one.key, one.sampling_percent.as_ref()?)))
        .map(|(operation, percent)| {
            let percent = percent
                .parse()
                .map_err(Failure::format("samplingPercent"))?;
            Ok((operation.clone(), percent))
        })
        .collect()
}

/// What a user sees who looks at the status for a while.
#[derive(Default)]
struct Seen {
    looks: u64,
    over_budget: u64,
    highest_estimate: f64,
    /// The lowest and the highest share of each operation.
    shares: BTreeMap<String, (f64, f64)>,
}

/// Looks every second.
async fn watch(scene: &Scene<'_>) -> Result<Seen> {
    let mut seen = Seen::default();
    let start = Instant::now();
    while start.elapsed() < WINDOW {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let status = scene.status("a status", ATTACH, |_| Ok(())).await?;
        seen.looks += 1;
        seen.over_budget += u64::from(!is_within_budget(&status));
        if let Some(percent) = &status.overhead.estimated_percent {
            let percent = percent
                .parse()
                .map_err(Failure::format("estimatedPercent"))?;
            seen.highest_estimate = seen.highest_estimate.max(percent);
        }
        for (operation, share) in sampling(&status)? {
            let (least, most) = seen.shares.entry(operation).or_insert((share, share));
            (*least, *most) = (least.min(share), most.max(share));
        }
    }
    Ok(seen)
}
