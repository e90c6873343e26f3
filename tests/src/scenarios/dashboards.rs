//! Each query of each rule and panel of the chart, asked of a Prometheus that scrapes the cluster while every kind is measured.

use super::prelude::*;
use crate::{
    monitoring::{self, Query},
    prometheus::Prometheus,
};

/// Windows of stacks come every half minute, and rates are of half a minute.
const ANSWERED: Duration = Duration::from_secs(180);

/// What this cluster does not measure, by how names of metrics begin, and why. A query that names nothing of it must have an answer.
const ABSENT: [(&str, &str); 13] = [
    (
        "ckb_probe_kernel_function_",
        "kernels without kprobes have no functions to measure",
    ),
    (
        "ckb_probe_rocksdb_",
        "a database without trouble has no rows of it",
    ),
    ("ckb_probe_blocks_detached_total", "nothing is reorganised"),
    ("ckb_probe_process_oom_kills_total", "nothing is killed"),
    (
        "ckb_probe_usdt_",
        "what may never be met has no row until it is",
    ),
    ("ckb_probe_lost_total", "nothing is lost"),
    ("ckb_probe_rows_left_out", "all rows have room"),
    (
        "ckb_probe_reports_total",
        "an alert looks at those that fail, and none does",
    ),
    ("ckb_probe_reconcile_errors_total", "nothing fails"),
    (
        "ckb_probe_profile_parts_dropped_total",
        "no part is dropped",
    ),
    (
        "ckb_probe_profiles_push_dropped_total",
        "profiles are pushed to nobody",
    ),
    ("ckb_probe_spans_", "spans are exported to nobody"),
    ("ckb_probe_metric_points_", "figures are exported to nobody"),
];

/// The same of the stand-in alone: it has no blocks. Disks are another matter.
const BLOCKS: (&str, &str) = ("ckb_probe_block", "ckb_probe_block_io_");

/// What happens in the pod: every image of a dynamic executable has this.
const PROGRAM: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "--version"];

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let target = scene.deploy(Load::Serving).await?;
    scene.apply_probe(question(scene)?).await?;
    let attached = |status: &CkbProbeStatus| {
        expect(status.targets.attached == 1, "one target attached", || {
            format!("{:?}", status.targets)
        })
    };
    scene.status("to be attached", ATTACH * 2, attached).await?;
    let pod = ["exec", target.pod.as_str(), "-c", "ckb", "--"];
    let exec = [&["-n", &scene.namespace], &pod[..], &PROGRAM].concat();
    scene.cluster.kubectl(&exec).await?;

    let agent = scene.cluster.agent().await?;
    let operator = scene.cluster.operator().await?;
    let jobs = [
        ("agent", agent.address.as_str()),
        ("operator", operator.address.as_str()),
    ];
    let prometheus = Prometheus::scrape(&jobs).await?;
    let all = monitoring::queries();
    let (excused, mut open): (Vec<Query>, Vec<Query>) = all
        .iter()
        .cloned()
        .partition(|query| excuse(scene.workload, query).is_some());
    let asked = wait::until("an answer to every query", ANSWERED, async || {
        let mut silent = Vec::new();
        for query in open.drain(..) {
            if !has_answer(&prometheus, &query).await? {
                silent.push(query);
            }
        }
        open = silent;
        expect(open.is_empty(), "a number to each", || {
            format!(
                "{:?}",
                open.iter().map(|query| &query.place).collect::<Vec<_>>()
            )
        })
    });
    if let Err(error) = asked.await {
        crate::note!("{error}");
    }
    for query in &open {
        crate::note!("no answer: {}: {}", query.place, query.text);
    }
    scene.equal_of(
        "queries of rules and panels without an answer",
        open.len(),
        &format!("of {}", all.len() - excused.len()),
        0,
    );
    // Prometheus reads them all the same, and some have an answer.
    let mut answered = 0;
    for query in &excused {
        let has_answer = has_answer(&prometheus, query).await?;
        answered += usize::from(has_answer);
        if let (false, Some(why)) = (has_answer, excuse(scene.workload, query)) {
            crate::note!("excused: {}: {why}", query.place);
        }
    }
    scene.figure(
        "queries that need no answer here, those that have one",
        answered,
        &format!("of {}", excused.len()),
        Bound::AtLeast(0.0),
    );
    Ok(())
}

/// Whether a query gives a number.
///
/// # Errors
/// Where Prometheus cannot read it.
async fn has_answer(prometheus: &Prometheus, query: &Query) -> Result<bool> {
    let answer = prometheus.query(&query.text).await?;
    Ok(answer.iter().any(|sample| sample.value.is_finite()))
}

/// Why a query may have no answer here.
fn excuse(workload: Workload, query: &Query) -> Option<&'static str> {
    monitoring::metrics(&query.text).iter().find_map(|metric| {
        let absent = ABSENT.iter().find(|(begin, _)| metric.starts_with(begin));
        let is_of_blocks = metric.starts_with(BLOCKS.0) && !metric.starts_with(BLOCKS.1);
        match absent {
            Some((_, why)) => Some(*why),
            None => (is_of_blocks && workload == Workload::Rocksdb)
                .then_some("the stand-in has no blocks"),
        }
    })
}

/// The sample that asks every kind, with nothing sampled, column families told apart, and windows of stacks that come soon.
fn question(scene: &Scene<'_>) -> Result<Value> {
    let mut probe = scene.sample("everything")?;
    probe["spec"]["overhead"] = json!({ "onBreach": "Report" });
    probe["spec"]["reportInterval"] = json!("2s");
    for one in probe["spec"]["probes"].as_array_mut().into_iter().flatten() {
        if let Some(profile) = one.get_mut("profile") {
            *profile = json!({ "window": "5s", "every": "30s" });
        }
        if let Some(rocksdb) = one.get_mut("rocksdb") {
            *rocksdb = json!({ "byColumnFamily": true });
        }
        if let (Workload::Rocksdb, Some(functions)) = (scene.workload, one.get_mut("functions")) {
            functions["library"] = json!("librocksdb");
        }
    }
    Ok(probe)
}
