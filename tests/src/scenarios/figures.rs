//! From `kubectl apply` to the status and to Prometheus; the counts are those that bpftrace has.

use ckb_probe_crds::RowStatus;

use super::prelude::*;
use crate::{
    bpf::Code,
    comparison::{Compared, Comparison},
    metrics::Sample,
    prometheus::Prometheus,
    scene::FIRST_FIGURES,
};

/// What every CKB node does all the time.
const EXPECTED: [&str; 4] = ["Get", "TxnGet", "TxnPut", "TxnCommit"];

/// How long both count the same calls: both count them from one moment to another, so that a longer time shows no more.
const WINDOW: Duration = Duration::from_secs(30);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let target = scene.deploy(Load::Steady).await?;
    let applied = scene.apply_probe(scene.workload_probe()).await?;
    let status = scene
        .status("the first figures", FIRST_FIGURES * 3, has_figures)
        .await?;
    scene.seconds(
        "from kubectl apply to figures in the status",
        applied.elapsed(),
        FIRST_FIGURES,
    );
    scene.equal("targets attached", status.targets.attached, 1);
    scene.equal("targets firing", status.targets.firing, 1);

    let (code, agent) = scene.workload_attached(target.process).await?;
    check_prometheus(scene, &target, &agent).await?;
    compare_with_bpftrace(scene, &target, &code, &agent).await
}

/// One target, attached and firing, and a rate and ordered quantiles for what every node does.
fn has_figures(status: &CkbProbeStatus) -> Result<()> {
    all_fire(status)?;
    expect(
        status.targets.matched == 1 && status.targets.summary == "1/1",
        "one target",
        || format!("{:?}", status.targets),
    )?;
    for name in EXPECTED {
        let shown = rows::figure(&rows::shown_of(status, name)?.figures, "perSecond")?;
        let rate: f64 = shown.parse().map_err(Failure::format("perSecond"))?;
        expect(rate > 0.0, format!("a rate of {name} above 0"), || shown)?;
    }
    rows::shown(status).try_for_each(in_order)
}

/// p50 ≤ p90 ≤ p99 ≤ max, as they are displayed.
fn in_order(row: &RowStatus) -> Result<()> {
    let displayed = ["p50", "p90", "p99", "max"].into_iter();
    let durations = displayed
        .filter(|name| row.figures.contains_key(*name))
        .map(|name| rows::duration(&row.figures, name))
        .collect::<Result<Vec<_>>>()?;
    // Without a call there are none; with one there are all.
    expect(
        matches!(durations.len(), 0 | 4) && durations.is_sorted(),
        format!("p50 <= p90 <= p99 <= max of {}", row.key),
        || format!("{:?}", row.figures),
    )
}

/// Prometheus has every series that there is, and promtool finds nothing to say.
async fn check_prometheus(scene: &mut Scene<'_>, target: &Target, agent: &Component) -> Result<()> {
    let operator = scene.cluster.operator().await?;
    let jobs = [
        ("agent", agent.address.as_str()),
        ("operator", operator.address.as_str()),
    ];
    let prometheus = Prometheus::scrape(&jobs).await?;
    for (job, component) in [("agent", agent), ("operator", &operator)] {
        let metrics = component.scrape().await?;
        // As promtool reads them: it says nothing when there is nothing to say.
        let complaints = command("promtool", &["check", "metrics"], Some(&metrics.text)).await?;
        scene.equal_of(
            &format!("complaints of promtool about the {job}"),
            complaints.lines().count(),
            "lines",
            0,
        );
        // Of a scrape of now: what others measure comes and goes.
        let (lacking, of) = wait::until(
            "Prometheus to have every series",
            Duration::from_secs(20),
            async || {
                let metrics = component.scrape().await?;
                let stored = prometheus.query(&format!("{{job=\"{job}\"}}")).await?;
                let lacking = lacking(&metrics, &stored);
                expect(lacking.is_empty(), "every series of the scrape", || {
                    format!("all but {lacking:?}")
                })?;
                Ok((lacking.len(), metrics.samples.len()))
            },
        )
        .await?;
        scene.equal_of(
            &format!("series of the {job} that Prometheus lacks"),
            lacking,
            &format!("of {of}"),
            0,
        );
    }
    let rate = format!(
        "rate(ckb_probe_operation_duration_seconds_count{{namespace=\"{}\",pod=\"{}\"}}[5s])",
        scene.namespace, target.pod
    );
    let rates = wait::until("rates in Prometheus", Duration::from_secs(20), async || {
        let rates = prometheus.query(&rate).await?;
        let firing: BTreeSet<_> = rates
            .iter()
            .filter(|sample| sample.value > 0.0)
            .filter_map(|sample| sample.labels.get("operation").cloned())
            .collect();
        expect(
            EXPECTED.iter().all(|operation| firing.contains(*operation)),
            format!("rates of {EXPECTED:?}"),
            || format!("{firing:?}"),
        )?;
        Ok(firing)
    })
    .await?;
    scene.figure(
        "operations with a rate in Prometheus",
        rates.len(),
        "",
        Bound::AtLeast(EXPECTED.len() as f64),
    );
    Ok(())
}

/// The series of a scrape that are not among those stored.
fn lacking(scraped: &Metrics, stored: &[Sample]) -> Vec<String> {
    let own = |sample: &Sample| {
        let mut labels = sample.labels.clone();
        labels.retain(|label, _| label != "job" && label != "instance");
        // Prometheus writes the bounds of buckets in its own way.
        if let Some(bound) = labels.get("le").and_then(|bound| bound.parse::<f64>().ok()) {
            labels.insert("le".to_string(), bound.to_string());
        }
        format!("{}{labels:?}", sample.name)
    };
    let stored: BTreeSet<String> = stored.iter().map(own).collect();
    let scraped = scraped.samples.iter().map(own);
    scraped.filter(|series| !stored.contains(series)).collect()
}

async fn compare_with_bpftrace(
    scene: &mut Scene<'_>,
    target: &Target,
    code: &Code,
    agent: &Component,
) -> Result<()> {
    let operations = scene.workload.operations();
    let comparison = Comparison::begin(&scene.namespace, target, code, agent, &operations).await?;
    tokio::time::sleep(WINDOW).await;
    let compared = comparison.end().await?;

    let calls: u64 = compared.iter().map(|one| one.theirs).sum();
    let worst = compared
        .iter()
        .map(Compared::difference)
        .fold(0.0, f64::max);
    scene.figure(
        &format!("calls compared with bpftrace over {} s", WINDOW.as_secs()),
        calls,
        "calls",
        Bound::Above(0.0),
    );
    scene.figure(
        "largest difference from bpftrace of any operation",
        worst,
        "%",
        Bound::AtMost(1.0),
    );
    let operations = agent.scrape().await?.operations(&scene.namespace, PROBE);
    let told = operations.len() as u64;
    let complete = operations.iter().filter(|one| one.is_complete());
    scene.equal(
        "operations of which the metrics say in all their ways that every call was recorded",
        complete.count(),
        told,
    );
    Ok(())
}
