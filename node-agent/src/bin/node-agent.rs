//! The node-agent: one pod on each node that runs a target.

use std::{
    collections::BTreeMap, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration,
};

use ckb_probe_agent::{
    agent::{self, Settings},
    kernel::{Tier, forget_relocations, run_child_if_asked, share_memory},
    lines::{LAST_LINES, Lines},
    mechanism::{NodePolicy, kernel_functions},
    server,
};
use ckb_probe_crds::DEFAULT_EXPORTER;
use ckb_probe_k8s::{
    account::{Account, FOLDER},
    client::of_account,
    secure::Protection,
};
use ckb_probe_traces::{Signal, metric_interval};
use clap::Parser;
use tracing::{Level, error};
use tracing_subscriber::{
    filter::Targets, fmt::Layer, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// Measures the processes that the NodeProbe of this node names, and reports in its status.
///
/// The operator starts one on each node that runs a target; there is no need to start it by hand.
#[derive(Debug, Parser)]
#[command(
    name = "node-agent",
    version,
    after_help = "Example, outside of a pod (as root, beside kubectl proxy):\n  \
                  NODE_NAME=node0 POD_NAMESPACE=ckb-probe-system node-agent --api-server http://127.0.0.1:8001 \\\n    \
                  --metrics-address 127.0.0.1:9464 --health-address 127.0.0.1:9465"
)]
struct Arguments {
    /// The name of the node that this agent runs on, which is also the name of its NodeProbe.
    #[arg(long, env = "NODE_NAME")]
    node: String,
    /// The namespace of the NodeProbes.
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: String,
    /// The name of this pod, for the report.
    #[arg(long, env = "POD_NAME", default_value = "")]
    pod: String,
    /// The API server, where it is not that of this pod's cluster: http://127.0.0.1:8001 is that of kubectl proxy.
    #[arg(long)]
    api_server: Option<String>,
    /// The folder of the service account: by ca.crt the API server is known, and token says who asks. An API server by http is asked
    /// without.
    #[arg(long, default_value = FOLDER)]
    service_account: PathBuf,
    /// The address on which /metrics is served.
    #[arg(long, env = "METRICS_ADDRESS", default_value = "0.0.0.0:9464")]
    metrics_address: SocketAddr,
    #[command(flatten)]
    protection: Protection,
    /// The address on which /healthz and /readyz are served.
    #[arg(long, env = "HEALTH_ADDRESS", default_value = "0.0.0.0:9465")]
    health_address: SocketAddr,
    /// The one way to attach that may be used, for tests: session, uprobe-multi or perf-event.
    #[arg(long, env = "TIER", hide = true)]
    tier: Option<Tier>,
    /// The most that measuring may cost any process, in percent of its CPU time, whatever CkbProbes ask for: 0.01 to 50, or 0
    /// for no ceiling but theirs.
    #[arg(long, env = "MAX_OVERHEAD_PERCENT", default_value = "5", value_parser = max_overhead)]
    max_overhead_percent: f64,
    /// The most that measuring may cost any process besides, in percent of one core, whatever CkbProbes ask for: 0 to 10.
    #[arg(long, env = "MAX_OVERHEAD_FLOOR", default_value = "1", value_parser = max_floor)]
    max_overhead_floor: f64,
    /// Tell of requests of others to the node's disks how large they are, and of slow ones whose threads they are of, also of those shorter
    /// than 1 ms.
    #[arg(long, env = "BLOCK_IO_TELL_OTHERS", default_value = "false", action = clap::ArgAction::Set)]
    block_io_tell_others: bool,
    /// How the names of functions of the kernel begin that kernelFunctions may probe, or * for all that the kernel lets be probed. A probe
    /// there is run for everybody on the node who calls the function.
    #[arg(long, env = "KERNEL_FUNCTIONS", value_delimiter = ',', default_values = kernel_functions::ADMITTED)]
    kernel_functions: Vec<String>,
    /// The most that measuring all processes may cost together of which kernelFunctions is asked, in percent of the node's CPUs: others pay
    /// for it, who are not asked. 0.01 to 50, or 0 for no ceiling but each process's own.
    #[arg(long, env = "MAX_NODE_PERCENT", default_value = "1", value_parser = max_overhead)]
    max_node_percent: f64,
    /// The names of the exporters of traces besides the default. Each has the variables that the default has, with two lines and its name in
    /// capitals behind them: OTEL_EXPORTER_OTLP_ENDPOINT__TEAM_A is that of team-a.
    #[arg(long, env = "EXPORTERS", value_delimiter = ',')]
    exporters: Vec<String>,
    /// No two reports are closer together than so many milliseconds; for tests.
    #[arg(long, hide = true)]
    report_floor_ms: Option<u64>,
    /// How many bytes of memory this process may take, for tests; else what its cgroup says.
    #[arg(long, env = "MEMORY_LIMIT", hide = true)]
    memory_limit: Option<u64>,
    /// What to log: info, debug, or for modules by themselves, such as info,ckb_probe_agent::driver=debug.
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    log_level: String,
}

fn main() -> ExitCode {
    run_child_if_asked();
    share_memory();
    forget_relocations();
    let arguments = Arguments::parse();
    let unread = |count| format!("{count} lines of this log were left out: nobody read it");
    let log = match Lines::to(std::io::stderr(), unread) {
        Ok(log) => log,
        Err(error) => {
            eprintln!("cannot begin to log: {error}");
            return ExitCode::FAILURE;
        }
    };
    let writer = log.clone();
    // Not the filter that also knows fields of spans: it is linked with a library for regular expressions, and there are no spans here.
    let (what, wrong) = match arguments.log_level.parse::<Targets>() {
        Ok(what) => (what, None),
        Err(error) => (Targets::new().with_default(Level::INFO), Some(error)),
    };
    let format = Layer::new().with_writer(move || writer.clone());
    tracing_subscriber::registry()
        .with(format.with_ansi(false))
        .with(what)
        .init();
    if let Some(error) = wrong {
        error!(%error, "what is to be logged is not understood: info is taken");
    }
    // One thread: an agent that measures others' time should take little of it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => Err(error.into()),
    };
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error}");
            ExitCode::FAILURE
        }
    };
    log.flush(LAST_LINES);
    code
}

/// Those that this process may use, which are no more than the node has.
fn processors() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

fn max_overhead(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if percent == 0.0 || (0.01..=50.0).contains(&percent) => Ok(percent),
        _ => Err("must be from 0.01 to 50, or 0".to_owned()),
    }
}

fn max_floor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=10.0).contains(&percent) => Ok(percent),
        _ => Err("must be from 0 to 10".to_owned()),
    }
}

/// Where traces may go, by OpenTelemetry's environment variables: those of the default as they are, and those of each of these exporters by
/// its name. What is wrong with them keeps nobody from measuring.
fn traces(exporters: &[String]) -> BTreeMap<String, ckb_probe_traces::Settings> {
    let variable = |name: &str| std::env::var(name).ok();
    let default = (
        DEFAULT_EXPORTER,
        ckb_probe_traces::Settings::new(None, &variable),
    );
    let named = exporters.iter().map(|name| {
        let settings = ckb_probe_traces::Settings::of_exporter(name, &variable);
        (name.as_str(), settings)
    });
    let all = [default].into_iter().chain(named);
    let usable = all.filter_map(|(exporter, settings)| {
        let settings = settings.unwrap_or_else(|error| {
            error!(exporter, %error, "no traces are exported");
            None
        });
        Some((exporter.to_owned(), settings?))
    });
    usable.collect()
}

/// Where figures go, likewise, and how often.
fn figures() -> Option<(ckb_probe_traces::Settings, Duration)> {
    let variable = |name: &str| std::env::var(name).ok();
    let settings = ckb_probe_traces::Settings::of(Signal::Metrics, None, &variable);
    let settings = settings.and_then(|settings| {
        let interval = metric_interval(&variable)?;
        Ok(settings.map(|settings| (settings, interval)))
    });
    settings.unwrap_or_else(|error| {
        error!(%error, "no figures are exported");
        None
    })
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let account = match &arguments.api_server {
        Some(address) => Account::at(address, &arguments.service_account)?,
        None => Account::of_pod(&arguments.service_account)?,
    };
    let client = of_account(account)?;
    let settings = Settings {
        node: arguments.node,
        namespace: arguments.namespace,
        pod: arguments.pod,
        server: server::Settings {
            metrics: arguments.metrics_address,
            protection: arguments.protection,
            health: arguments.health_address,
        },
        tier: arguments.tier,
        max_overhead_percent: Some(arguments.max_overhead_percent).filter(|percent| *percent > 0.0),
        max_overhead_floor: Some(arguments.max_overhead_floor),
        policy: NodePolicy {
            tells_others: arguments.block_io_tell_others,
            kernel_functions: Some(arguments.kernel_functions)
                .filter(|all| !all.iter().any(|begin| begin == "*")),
            bystanders: Some(arguments.max_node_percent)
                .filter(|percent| *percent > 0.0)
                .map(|percent| percent / 100.0 * processors()),
        },
        report_floor: arguments
            .report_floor_ms
            .map_or(agent::REPORT_FLOOR, Duration::from_millis),
        traces: traces(&arguments.exporters),
        figures: figures(),
        memory_limit: arguments.memory_limit,
    };
    Ok(agent::run(client, settings).await?)
}
