//! A real Prometheus that scrapes what is deployed.

use std::{fs, net::TcpListener, process::Stdio, time::Duration};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{
    cluster::run,
    failure::{Failure, Result, expect},
    metrics::{self, Sample},
    wait,
};

/// A running Prometheus. Ends, and leaves nothing behind, when it is dropped.
pub struct Prometheus {
    _child: Child,
    address: String,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts one that scrapes these addresses every second, each as a job of the given name.
    pub async fn scrape(jobs: &[(&str, &str)]) -> Result<Self> {
        let mut config = "scrape_configs:\n".to_string();
        for (job, address) in jobs {
            config += &format!("- {{job_name: {job}, {}}}\n", scraping(address));
        }
        Self::start(config).await
    }

    /// As [`Self::scrape`], over TLS and with a token, or none. As the chart's PodMonitor has it: whoever is at the other end has a
    /// certificate of its own making.
    pub async fn scrape_secure(jobs: &[(&str, &str, Option<&str>)]) -> Result<Self> {
        let mut config = "scrape_configs:\n".to_string();
        for (job, address, token) in jobs {
            config += &format!(
                "- {{job_name: {job}, scheme: https, tls_config: {{insecure_skip_verify: true}}, {}",
                scraping(address)
            );
            if let Some(token) = token {
                config += &format!(", authorization: {{credentials: {token}}}");
            }
            config += "}\n";
        }
        Self::start(config).await
    }

    async fn start(config: String) -> Result<Self> {
        let folder = TempDir::new().map_err(Failure::system("a temporary folder"))?;
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(Failure::system("a free port"))?
            .port();
        let config_path = folder.path().join("prometheus.yml");
        let what = config_path.display().to_string();
        fs::write(&config_path, config).map_err(Failure::system(what.clone()))?;
        run("promtool", &["check", "config", &what], None).await?;
        let address = format!("127.0.0.1:{port}");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={what}"))
            .arg(format!("--storage.tsdb.path={}", folder.path().display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::system("prometheus"))?;
        let prometheus = Self {
            _child: child,
            address,
            _folder: folder,
        };
        wait::until("Prometheus", Duration::from_secs(60), async || {
            metrics::get(&prometheus.address, "/-/ready").await
        })
        .await?;
        Ok(prometheus)
    }

    /// Why a job was not scraped at its last try; empty where it was.
    pub async fn last_error(&self, job: &str) -> Result<String> {
        let text = metrics::get(&self.address, "/api/v1/targets").await?;
        let answer: Value =
            serde_json::from_str(&text).map_err(Failure::format("Prometheus' targets"))?;
        let targets = answer["data"]["activeTargets"].as_array();
        let target = targets
            .into_iter()
            .flatten()
            .find(|target| target["labels"]["job"] == job && target["health"] != "unknown");
        let target = target.ok_or_else(|| {
            Failure::unexpected(format!("the job {job} to have been tried"), text.clone())
        })?;
        Ok(target["lastError"].as_str().unwrap_or_default().to_string())
    }

    /// What a query gives: each series with its last value.
    pub async fn query(&self, query: &str) -> Result<Vec<Sample>> {
        let path = format!(
            "/api/v1/query?query={}",
            utf8_percent_encode(query, NON_ALPHANUMERIC)
        );
        let text = metrics::get(&self.address, &path).await?;
        let answer: Value =
            serde_json::from_str(&text).map_err(Failure::format("Prometheus' answer"))?;
        expect(
            answer["status"] == "success",
            format!("an answer to {query}"),
            || text.clone(),
        )?;
        let series = answer["data"]["result"].as_array().into_iter().flatten();
        series
            .map(|series| {
                sample(series)
                    .ok_or_else(|| Failure::unexpected("a series with a value", series.to_string()))
            })
            .collect()
    }
}

/// honor_labels: namespace and pod are those of what is measured, not of who measures.
fn scraping(address: &str) -> String {
    format!(
        "scrape_interval: 1s, scrape_timeout: 1s, honor_labels: true, static_configs: [{{targets: ['{address}']}}]"
    )
}

fn sample(series: &Value) -> Option<Sample> {
    let mut labels = series["metric"]
        .as_object()?
        .iter()
        .map(|(label, value)| Some((label.clone(), value.as_str()?.to_string())))
        .collect::<Option<std::collections::BTreeMap<_, _>>>()?;
    Some(Sample {
        name: labels.remove("__name__").unwrap_or_default(),
        labels,
        value: series["value"][1].as_str()?.parse().ok()?,
    })
}
