//! `metrics.secure`: a real Prometheus is let in with a token that may read metrics, and refused without.

use super::prelude::*;
use crate::{fixture::repository, metrics, prometheus::Prometheus};

/// The release, and so the beginning of the names of what the chart makes.
const RELEASE: &str = "ckb-probe";

/// From a new pod until it is scraped.
const SCRAPED: Duration = Duration::from_secs(30);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    scene.demo().await?;
    let outcome = match upgrade(true).await {
        Ok(()) => secured(scene).await,
        Err(error) => Err(error),
    };
    // Whatever happened: others scrape as they used to.
    upgrade(false).await?;
    outcome?;
    wait::until("metrics for everybody again", ATTACH, async || {
        scene.cluster.agent().await?.scrape().await
    })
    .await?;
    Ok(())
}

async fn upgrade(secure: bool) -> Result<()> {
    let chart = repository().join("charts/ckb-probe");
    let chart = chart.to_string_lossy();
    let secure = format!("metrics.secure={secure}");
    let arguments = [
        "upgrade",
        RELEASE,
        &*chart,
        "--namespace",
        SYSTEM,
        "--reuse-values",
        "--set",
        &secure,
        "--wait",
        "--timeout",
        "2m",
    ];
    command("helm", &arguments, None).await?;
    Ok(())
}

async fn secured(scene: &Scene<'_>) -> Result<()> {
    let reader = token(scene, "reader").await?;
    let curious = token(scene, "curious").await?;
    let binding = format!("{}-metrics", scene.namespace);
    let role = format!("--clusterrole={RELEASE}-metrics-reader");
    let account = format!("--serviceaccount={}:reader", scene.namespace);
    let bind = ["create", "clusterrolebinding", &binding, &role, &account];
    scene.cluster.kubectl(&bind).await?;
    let outcome = scraped(scene, &reader, &curious).await;
    scene
        .cluster
        .kubectl(&["delete", "clusterrolebinding", &binding])
        .await?;
    outcome
}

/// A service account, and a token of its.
async fn token(scene: &Scene<'_>, name: &str) -> Result<String> {
    let namespace = &scene.namespace;
    scene
        .cluster
        .kubectl(&["-n", namespace, "create", "serviceaccount", name])
        .await?;
    let token = scene
        .cluster
        .kubectl(&["-n", namespace, "create", "token", name])
        .await?;
    Ok(token.trim().to_string())
}

async fn scraped(scene: &Scene<'_>, reader: &str, curious: &str) -> Result<()> {
    // The agent is made anew from the new template.
    let (agent, operator) = wait::until("agent and operator that speak TLS", ATTACH, async || {
        let agent = scene.cluster.agent().await?;
        let operator = scene.cluster.operator().await?;
        for component in [&agent, &operator] {
            metrics::get(&component.health, "/readyz").await?;
            let plain = component.scrape().await;
            expect(plain.is_err(), "no metrics without TLS", || {
                component.pod.clone()
            })?;
        }
        Ok((agent, operator))
    })
    .await?;
    let began = Instant::now();
    let prometheus = Prometheus::scrape_secure(&[
        ("agent", &agent.address, Some(reader)),
        ("operator", &operator.address, Some(reader)),
        ("agent-none", &agent.address, None),
        ("operator-none", &operator.address, None),
        ("agent-curious", &agent.address, Some(curious)),
        ("operator-curious", &operator.address, Some(curious)),
    ])
    .await?;
    let mut admitted = 0;
    for (job, metric) in [
        ("agent", "ckb_probe_target_attached"),
        ("operator", "ckb_probe_operator_leader"),
    ] {
        let query = format!("{metric}{{job=\"{job}\"}}");
        wait::until(&query, SCRAPED, async || {
            let series = prometheus.query(&query).await?;
            expect(!series.is_empty(), "a series", || "none")
        })
        .await?;
        admitted += 1;
    }
    scene.equal("programs whose metrics a reader may scrape", admitted, 2);
    scene.seconds("until both are scraped", began.elapsed(), SCRAPED);
    let mut refused = 0;
    for (job, status) in [
        ("agent-none", "401 Unauthorized"),
        ("operator-none", "401 Unauthorized"),
        ("agent-curious", "403 Forbidden"),
        ("operator-curious", "403 Forbidden"),
    ] {
        let said = format!("server returned HTTP status {status}");
        wait::until(job, SCRAPED, async || {
            let error = prometheus.last_error(job).await?;
            expect(error == said, &said, || format!("{job}: {error}"))
        })
        .await?;
        refused += 1;
    }
    scene.equal(
        "scrapes refused, without a token and without the right",
        refused,
        4,
    );
    Ok(())
}
