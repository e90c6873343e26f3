//! The operator, as a process of this machine.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use procfs::process as proc;
use rustix::process::Signal;
use serde_json::json;
use tokio::process::{Child, Command};

use super::Settings;
use crate::{
    cluster::SYSTEM,
    failure::{Failure, Result, expect},
    metrics::Metrics,
    process::Process,
    wait,
};

/// Until it leads.
const START: Duration = Duration::from_secs(60);

/// What the Helm chart sets for it.
const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_ARENA_MAX", "2"),
];

/// So much CPU time in a second is next to nothing: it renews its Lease.
const IDLE: Duration = Duration::from_millis(10);
const CALM_WITHIN: Duration = Duration::from_secs(30);

/// The operator under test, in a process of its own.
pub struct Operator {
    process: Process,
    child: Child,
    address: String,
    log: PathBuf,
}

impl Operator {
    /// Starts one, and returns when it leads.
    pub async fn start(settings: &Settings) -> Result<Self> {
        let write = |name: &str, text: &str| {
            let path = settings.folder.join(name);
            fs::create_dir_all(&settings.folder)
                .and_then(|()| fs::write(&path, text))
                .map_err(Failure::at(&path))?;
            Ok::<_, Failure>(path)
        };
        let template = write("agent-pod.yaml", &template().to_string())?;
        let log = write("operator.log", "")?;
        let output = File::create(&log).map_err(Failure::at(&log))?;
        let address = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(Failure::system("a free port"))?
            .to_string();
        let child = Command::new(&settings.operator)
            .args(["--namespace", SYSTEM, "--identity", "scale"])
            .args(["--metrics-address", &address, "--log-format", "json"])
            .arg("--agent-template")
            .arg(&template)
            .env_remove("RUST_LOG")
            .envs(ALLOCATOR)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::at(&settings.operator))?;
        let pid = child.id().unwrap_or_default();
        let operator = Self {
            process: Process::of(pid as i32)?,
            child,
            address,
            log,
        };
        wait::until("the operator to lead", START, async || {
            let leads = operator
                .scrape()
                .await?
                .sum("ckb_probe_operator_leader", &[]);
            expect(leads == Some(1.0), "a leader", || format!("{leads:?}"))
        })
        .await?;
        Ok(operator)
    }

    /// The metrics of the operator, as they are now.
    pub async fn scrape(&self) -> Result<Metrics> {
        Metrics::scrape(&self.address).await
    }

    /// CPU time so far of all of its threads, exact to the nanosecond.
    pub fn cpu_time(&self) -> Result<Duration> {
        let folder = format!("/proc/{}/task", self.process.pid);
        let threads = fs::read_dir(&folder).map_err(Failure::system(folder))?;
        let mut nanoseconds = 0_u64;
        for thread in threads.flatten() {
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let ran = text.split_whitespace().next().unwrap_or_default();
            nanoseconds += ran.parse::<u64>().unwrap_or_default();
        }
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// Returns when it has had next to nothing to do for two seconds; after a while it returns anyway.
    pub async fn calm(&self) -> Result<()> {
        self.idle(CALM_WITHIN).await.map(drop)
    }

    /// The same within a while; whether it was so.
    pub async fn idle(&self, within: Duration) -> Result<bool> {
        let (mut calm, begun) = (0, Instant::now());
        while begun.elapsed() < within {
            let before = self.cpu_time()?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let used = self.cpu_time()?.saturating_sub(before);
            calm = if used < IDLE { calm + 1 } else { 0 };
            if calm == 2 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Resident memory, now.
    pub fn rss_mb(&self) -> Result<f64> {
        Ok(self.process.memory()?.resident as f64 / 1e6)
    }

    /// Resident memory at its highest.
    pub fn highest_mb(&self) -> Result<f64> {
        let status = proc::Process::new(self.process.pid)
            .and_then(|process| process.status())
            .map_err(Failure::format("the operator's status"))?;
        Ok(status.vmhwm.unwrap_or_default() as f64 * 1024.0 / 1e6)
    }

    /// Succeeds when it is the one that was started.
    pub fn expect_alive(&self) -> Result<()> {
        expect(
            self.process.is_alive(),
            "a living operator",
            || "it has ended",
        )
    }

    /// Stops it, and returns what it has warned of.
    pub async fn stop(&mut self) -> Result<Vec<String>> {
        self.process.signal(Signal::TERM)?;
        let ended = tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await;
        expect(matches!(ended, Ok(Ok(_))), "the operator to end", || {
            format!("{ended:?}")
        })?;
        let text = fs::read_to_string(&self.log).map_err(Failure::at(&self.log))?;
        let is_fault = |line: &&str| {
            line.contains("\"level\":\"WARN\"") || line.contains("\"level\":\"ERROR\"")
        };
        Ok(text.lines().filter(is_fault).map(str::to_string).collect())
    }
}

/// As the Helm chart renders it, less what only a kubelet reads.
fn template() -> serde_json::Value {
    let probe =
        json!({ "httpGet": { "path": "/healthz", "port": "metrics" }, "periodSeconds": 10 });
    let from = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "labels": {
            "app.kubernetes.io/name": "ckb-probe",
            "app.kubernetes.io/instance": "ckb-probe",
            "app.kubernetes.io/component": "agent",
        } },
        "spec": {
            "serviceAccountName": "ckb-probe-agent",
            "hostPID": true,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 5,
            "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "agent",
                "image": "registry.local/ckb-probe/ckb-probe:dev",
                "command": ["/usr/local/bin/node-agent"],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "env": [
                    { "name": "NODE_NAME", "valueFrom": from("spec.nodeName") },
                    { "name": "POD_NAME", "valueFrom": from("metadata.name") },
                    { "name": "POD_NAMESPACE", "valueFrom": from("metadata.namespace") },
                ],
                "ports": [{ "name": "metrics", "containerPort": 9464 }],
                "startupProbe": probe,
                "livenessProbe": probe,
                "readinessProbe": probe,
                "securityContext": {
                    "runAsUser": 0,
                    "readOnlyRootFilesystem": true,
                    "allowPrivilegeEscalation": false,
                    "capabilities": {
                        "drop": ["ALL"],
                        "add": ["BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH"],
                    },
                },
                "resources": {
                    "requests": { "cpu": "20m", "memory": "64Mi" },
                    "limits": { "memory": "192Mi" },
                },
            }],
        },
    })
}

/// What the operator's metric says of statuses: how long it took to make one, to write one.
pub const MADE: &str = "ckb_probe_merge_duration_seconds";
/// The answer of the API server included.
pub const WRITTEN: &str = "ckb_probe_reconcile_duration_seconds";

/// A quantile of the seconds that this metric counted of statuses between two scrapes, as Prometheus would tell it: between two
/// bounds it is in proportion. None when there was no status.
pub fn quantile(name: &str, before: &Metrics, after: &Metrics, quantile: f64) -> Option<f64> {
    let name = format!("{name}_bucket");
    let buckets = |metrics: &Metrics| -> Vec<(f64, f64)> {
        let ours = metrics.samples.iter().filter(|sample| {
            let kind = sample.labels.get("kind");
            sample.name == name && kind.is_none_or(|kind| kind == "probe")
        });
        ours.filter_map(|sample| Some((sample.labels.get("le")?.parse().ok()?, sample.value)))
            .collect()
    };
    let earlier = buckets(before);
    let count = |(bound, count): (f64, f64)| {
        let known = earlier.iter().find(|(other, _)| *other == bound);
        (bound, count - known.map_or(0.0, |(_, count)| *count))
    };
    let grown: Vec<(f64, f64)> = buckets(after).into_iter().map(count).collect();
    let total = grown
        .last()
        .map(|(_, count)| *count)
        .filter(|count| *count > 0.0)?;
    let rank = quantile * total;
    let (mut lower, mut below) = (0.0, 0.0);
    for (bound, count) in grown {
        if count >= rank {
            let upper = if bound.is_finite() {
                bound
            } else {
                return Some(lower);
            };
            return Some(lower + (upper - lower) * (rank - below) / (count - below));
        }
        (lower, below) = (bound, count);
    }
    None
}

/// Seconds that this metric counted of statuses between two scrapes, on the average. None when there was no status.
pub fn mean(name: &str, before: &Metrics, after: &Metrics) -> Option<f64> {
    let more = |what: &str| {
        let name = format!("{name}_{what}");
        let of_statuses = |metrics: &Metrics| -> f64 {
            let ours = metrics.samples.iter().filter(|sample| {
                let kind = sample.labels.get("kind");
                sample.name == name && kind.is_none_or(|kind| kind == "probe")
            });
            ours.map(|sample| sample.value).sum()
        };
        of_statuses(after) - of_statuses(before)
    };
    let count = more("count");
    (count > 0.0).then(|| more("sum") / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape(counts: [u32; 3]) -> Metrics {
        let [a, b, all] = counts;
        let name = "ckb_probe_reconcile_duration_seconds_bucket";
        let text = format!(
            "{name}{{kind=\"probe\",le=\"0.05\"}} {a}\n\
             {name}{{kind=\"probe\",le=\"0.1\"}} {b}\n\
             {name}{{kind=\"node\",le=\"0.1\"}} 1000\n\
             {name}{{kind=\"probe\",le=\"+Inf\"}} {all}\n"
        );
        Metrics::parse(text).unwrap()
    }

    #[test]
    fn a_mean_is_of_the_statuses_that_came_between_two_scrapes() {
        let scrape = |sum: f64, count: u32| {
            let text = format!(
                "{WRITTEN}_sum{{kind=\"probe\"}} {sum}\n\
                 {WRITTEN}_count{{kind=\"probe\"}} {count}\n\
                 {WRITTEN}_sum{{kind=\"node\"}} 1000\n"
            );
            Metrics::parse(text).unwrap()
        };
        let before = scrape(2.0, 10);
        assert_eq!(mean(WRITTEN, &before, &before), None);
        assert_eq!(mean(WRITTEN, &before, &scrape(4.0, 18)), Some(0.25));
        assert_eq!(mean(MADE, &before, &scrape(4.0, 18)), None);
    }

    #[test]
    fn a_quantile_is_of_what_came_between_two_scrapes() {
        let before = scrape([10, 10, 10]);
        assert_eq!(quantile(WRITTEN, &before, &before, 0.99), None);
        assert_eq!(
            quantile(WRITTEN, &before, &scrape([110, 110, 110]), 0.5),
            Some(0.025)
        );
        // 98 in 50 ms, 2 more in 100 ms: the 99th of 100 is halfway between.
        let p99 = quantile(WRITTEN, &before, &scrape([108, 110, 110]), 0.99).unwrap();
        assert!((p99 - 0.075).abs() < 1e-9, "{p99}");
        // Of another metric nothing is known.
        assert_eq!(quantile(MADE, &before, &scrape([110, 110, 110]), 0.5), None);
        // Beyond the last bound nothing is known but that it is beyond.
        assert_eq!(
            quantile(WRITTEN, &before, &scrape([10, 10, 110]), 0.99),
            Some(0.1)
        );
    }
}
