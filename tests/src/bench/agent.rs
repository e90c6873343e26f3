//! A node-agent as it is released, with orders of ours.

use std::{fs::File, net::TcpListener};

use ckb_probe_crds::{
    Assignment, Breach, InstanceReport, KindSpec, NodeProbeStatus, Overhead, PodReference, Probe,
    ProbeReference,
    kinds::rocksdb::{Operation, RocksDbProbe},
};
use procfs::process as proc;

use super::{
    api::{ApiServer, NODE},
    prelude::*,
};
use crate::{
    cluster::SYSTEM,
    metrics::{Metrics, get},
};

/// Until it has tried out the ways to attach, and taken its first orders.
const START: Duration = Duration::from_secs(30);

/// Until it has detached everything: perf events take seconds.
const STOP: Duration = Duration::from_secs(60);

/// The budget as it is by default: 1 %, kept by sampling.
pub fn budget() -> Overhead {
    Overhead::default()
}

/// No budget: everything is measured, all of the time.
pub fn no_budget() -> Overhead {
    Overhead {
        max_percent: 50.0,
        on_breach: Breach::Report,
        ..Overhead::default()
    }
}

/// An order to measure every operation of the CKB node in a container.
pub fn order_for_ckb(
    settings: &Settings,
    container: &Container,
    overhead: Overhead,
    report_interval: Duration,
) -> Assignment {
    let everything = RocksDbProbe {
        operations: Operation::ALL.to_vec(),
        ..RocksDbProbe::default()
    };
    let name = settings.ckb.file_name().unwrap_or_default();
    let executable = name.to_string_lossy();
    order(
        container,
        &executable,
        overhead,
        everything,
        report_interval,
    )
}

/// An order to measure what is measured of RocksDB by default.
pub fn usual_order(
    container: &Container,
    executable: &str,
    overhead: Overhead,
    report_interval: Duration,
) -> Assignment {
    let usual = RocksDbProbe::default();
    order(container, executable, overhead, usual, report_interval)
}

/// An order to measure a container.
pub fn order(
    container: &Container,
    executable: &str,
    overhead: Overhead,
    question: impl Into<KindSpec>,
    report_interval: Duration,
) -> Assignment {
    Assignment {
        probe: ProbeReference {
            namespace: "bench".to_string(),
            name: "bench".to_string(),
            uid: "probe".to_string(),
        },
        asks: String::new(),
        pod: PodReference {
            namespace: "bench".to_string(),
            name: format!("pod-{}", container.id),
            uid: format!("uid-{}", container.id),
        },
        containers: vec![ckb_probe_crds::Container {
            name: "ckb".to_string(),
            id: Some(container.id.clone()),
        }],
        executable: executable.to_string(),
        report_interval: report_interval.into(),
        overhead,
        probes: vec![Probe::new("storage", question.into())],
        traces: None,
        expires_at: None,
    }
}

/// A running agent.
pub struct Agent {
    /// The process of the agent.
    pub process: Process,
    child: Child,
    container: Container,
    api: ApiServer,
    metrics: String,
    health: String,
    output: PathBuf,
}

impl Agent {
    /// Starts one, and returns when it waits for orders. What it logs and prints is kept in the benchmark's folder.
    pub async fn start(settings: &Settings) -> Result<Self> {
        Self::start_logging(settings, "info").await
    }

    /// The same of one that logs more, in the syntax of its `--log-level`.
    pub async fn start_logging(settings: &Settings, level: &str) -> Result<Self> {
        Self::start_with(settings, level, &[]).await
    }

    /// The same of one that may take so many bytes of memory.
    pub async fn start_within(settings: &Settings, bytes: u64) -> Result<Self> {
        let bytes = bytes.to_string();
        Self::start_with(settings, "info", &["--memory-limit", &bytes]).await
    }

    async fn start_with(settings: &Settings, level: &str, more: &[&str]) -> Result<Self> {
        let api = ApiServer::start()?;
        let (metrics, health) = (free_address()?, free_address()?);
        let output = in_folder(settings, "agent.out")?;
        let create = |path: &Path| File::create(path).map_err(Failure::at(path));
        let log = create(&in_folder(settings, "agent.log")?)?;
        let program = settings.programs.join("node-agent");
        // A cgroup of its own tells its CPU time.
        let container = Container::new(0);
        let mut command = command(
            &container,
            &program,
            ["--node", NODE, "--namespace", SYSTEM],
        );
        command
            .args(["--api-server", &api.address])
            .arg("--service-account")
            .arg(api.account())
            .args(["--metrics-address", &metrics])
            .args(["--health-address", &health])
            .args(["--log-level", level])
            // What is measured without a budget is measured whatever it costs.
            .args(["--max-overhead-percent", "0"])
            // Targets come and go here faster than reports are written otherwise.
            .args(["--report-floor-ms", "1"])
            .args(more)
            .stdin(Stdio::null())
            .stdout(create(&output)?)
            .stderr(log);
        for variable in [
            "HTTPS_PROXY",
            "https_proxy",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
            "all_proxy",
        ] {
            command.env_remove(variable);
        }
        let child = command.spawn().map_err(Failure::at(&program))?;
        let process = of(&child)?;
        let agent = Self {
            process,
            child,
            container,
            api,
            metrics,
            health,
            output,
        };
        agent.order(Vec::new()).await?;
        Ok(agent)
    }

    /// One with these orders, which has attached to all of its targets.
    pub async fn watching(
        settings: &Settings,
        assignments: Vec<Assignment>,
        limit: Duration,
    ) -> Result<Self> {
        let agent = Self::start(settings).await?;
        agent.attach(assignments, limit).await?;
        Ok(agent)
    }

    /// Gives it new orders, and returns when it has attached to all of their targets.
    pub async fn attach(&self, assignments: Vec<Assignment>, limit: Duration) -> Result<()> {
        self.order(assignments).await?;
        self.every(InstanceState::Attached, limit).await
    }

    /// What of a core it uses meanwhile, in percent, and how long that is.
    pub async fn percent(&self, meanwhile: impl Future) -> (f64, Duration) {
        let (start, used) = (Instant::now(), self.cpu_time());
        meanwhile.await;
        let (took, used) = (start.elapsed(), self.cpu_time().saturating_sub(used));
        (100.0 * used.as_secs_f64() / took.as_secs_f64(), took)
    }

    /// Gives it new orders, and returns when it has taken them.
    pub async fn order(&self, assignments: Vec<Assignment>) -> Result<()> {
        let generation = self.api.order(assignments);
        wait::closely("the agent to take its orders", START, async || {
            let observed = self
                .api
                .latest()
                .and_then(|status| status.observed_generation);
            expect(
                observed == Some(generation),
                format!("an answer to generation {generation}"),
                || format!("{observed:?}, agent alive: {}", self.process.is_alive()),
            )
        })
        .await
    }

    /// Every report so far, the oldest first.
    pub fn reports(&self) -> Vec<NodeProbeStatus> {
        self.api.reports()
    }

    /// Waits until each target is in a state.
    pub async fn every(&self, state: InstanceState, limit: Duration) -> Result<()> {
        wait::closely(
            &format!("every target to be {state:?}"),
            limit,
            async || {
                let instances = self.instances();
                expect(
                    !instances.is_empty()
                        && instances.iter().all(|instance| instance.state == state),
                    format!("{state:?}"),
                    || {
                        let mut others =
                            instances.iter().filter(|instance| instance.state != state);
                        others.next().map_or("no target".to_string(), |other| {
                            format!("{:?}: {}", other.state, other.message)
                        })
                    },
                )
            },
        )
        .await
    }

    /// The targets, as last reported.
    pub fn instances(&self) -> Vec<InstanceReport> {
        self.api
            .latest()
            .map(|status| status.instances)
            .unwrap_or_default()
    }

    /// What a probed call costs, as it has calibrated.
    pub fn cost_per_call(&self) -> Result<Duration> {
        let latest = self.api.latest();
        let nanos = latest.map(|status| status.agent.cost_per_call_ns);
        let nanos = nanos.ok_or_else(|| Failure::missing("a report of the agent"))?;
        Ok(Duration::from_nanos(nanos))
    }

    /// Scrapes it, as a Prometheus does.
    pub async fn scrape(&self) -> Result<Metrics> {
        Metrics::scrape(&self.metrics).await
    }

    /// Asks whether it lives, as a kubelet does.
    pub async fn health(&self) -> Result<()> {
        get(&self.health, "/healthz").await.map(drop)
    }

    /// CPU time that it has used so far.
    pub fn cpu_time(&self) -> Duration {
        self.container.cpu_time()
    }

    /// Its resident memory in MB, counted page by page and not by the kernel's batched counters.
    pub fn rss_mb(&self) -> Result<f64> {
        self.memory_mb("Rss")
    }

    /// The same without what is read from files, its own code above all: what it has allocated, in MB.
    pub fn own_mb(&self) -> Result<f64> {
        self.memory_mb("Anonymous")
    }

    fn memory_mb(&self, field: &str) -> Result<f64> {
        let what = format!("/proc/{}/smaps_rollup", self.process.pid);
        let rollup = proc::Process::new(self.process.pid)
            .and_then(|process| process.smaps_rollup())
            .map_err(Failure::format(what.clone()))?;
        let bytes = rollup
            .memory_map_rollup
            .iter()
            .find_map(|map| map.extension.map.get(field).copied());
        bytes
            .map(|bytes| bytes as f64 / 1e6)
            .ok_or_else(|| Failure::format(what)(format!("it has no {field}")))
    }

    /// Ends it, and returns what it has printed when it has detached everything.
    pub async fn stop(mut self) -> Result<String> {
        self.process.signal(Signal::TERM)?;
        let ended = tokio::time::timeout(STOP, self.child.wait()).await;
        let succeeded = matches!(&ended, Ok(Ok(status)) if status.success());
        expect(succeeded, "the agent to end well", || format!("{ended:?}"))?;
        let what = self.output.display().to_string();
        fs::read_to_string(&self.output).map_err(Failure::system(what))
    }
}

/// The process of a child that has not been waited for.
pub fn of(child: &Child) -> Result<Process> {
    let pid = child
        .id()
        .ok_or_else(|| Failure::unexpected("a running process", "it has ended"))?;
    Process::of(pid as i32)
}

fn free_address() -> Result<String> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = address.map_err(Failure::system("a free port"))?;
    Ok(address.to_string())
}
