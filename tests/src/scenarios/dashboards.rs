//! Each query of each rule and panel of the chart, asked of a Prometheus that scrapes the cluster while every kind is measured.

use super::prelude::*;
use crate::{
    monitoring::{self, Query},
    prometheus::Prometheus,
};

/// Windows of stacks come every half minute, and rates are of half a minute.
const ANSWERED: Duration = Duration::from_secs(180);

/// What this cluster does not measure, by how names of metrics begin, and why. A query that names nothing of it must have an answer.
const ABSENT: [(&str, &str); 8] = [
    (
        "ckb_probe_kernel_function_",
        "kernels without kprobes have no functions to measure",
    ),
    (
        "ckb_probe_rocksdb_",
        "a database without trouble has no rows of it",
    ),
    ("ckb_probe_rows_left_out", "all rows have room"),
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

/// The same of the stand-in alone.
const ABSENT_OF_STAND_IN: [(&str, &str); 6] = [
    ("ckb_probe_blocks_", "the stand-in has no blocks"),
    ("ckb_probe_block_duration_", "the stand-in has no blocks"),
    ("ckb_probe_block_height", "the stand-in has no blocks"),
    ("ckb_probe_block_operation_", "the stand-in has no blocks"),
    (
        "ckb_probe_tcp_rtt_seconds",
        "nobody connects to the stand-in",
    ),
    (
        "ckb_probe_tcp_segments_total",
        "nobody connects to the stand-in",
    ),
];

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
    // Prometheus reads them all the same.
    for query in &excused {
        let has_answer = has_answer(&prometheus, query).await?;
        if let (false, Some(why)) = (has_answer, excuse(scene.workload, query)) {
            crate::note!("excused: {}: {why}", query.place);
        }
    }
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
    let of_stand_in = match workload {
        Workload::Rocksdb => &ABSENT_OF_STAND_IN[..],
        Workload::Ckb => &[],
    };
    let metrics = monitoring::metrics(&query.text);
    let mut absent = ABSENT.iter().chain(of_stand_in);
    let (_, why) =
        absent.find(|(begin, _)| metrics.iter().any(|metric| metric.starts_with(begin)))?;
    Some(*why)
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
            // Of few operations: with the families of all of them the agent has no room for the stacks of a profile.
            let operations = ["Get", "TxnGet", "TxnPut", "TxnCommit"];
            *rocksdb = json!({ "byColumnFamily": true, "operations": operations });
        }
        if let (Workload::Rocksdb, Some(functions)) = (scene.workload, one.get_mut("functions")) {
            functions["library"] = json!("librocksdb");
        }
    }
    Ok(probe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_excuse_is_somebodys_and_most_queries_have_none() {
        let queries = monitoring::queries();
        for (begin, _) in ABSENT.iter().chain(&ABSENT_OF_STAND_IN) {
            let mut named = queries
                .iter()
                .flat_map(|query| monitoring::metrics(&query.text));
            assert!(named.any(|metric| metric.starts_with(begin)), "{begin}");
        }
        let excused = |workload| {
            let of_all = queries
                .iter()
                .filter(|query| excuse(workload, query).is_some());
            of_all.count() * 100 / queries.len()
        };
        assert!(excused(Workload::Ckb) < 25, "{}", excused(Workload::Ckb));
        assert!(
            excused(Workload::Rocksdb) < 50,
            "{}",
            excused(Workload::Rocksdb)
        );
    }
}
