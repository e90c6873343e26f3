//! Parses arguments, connects, and runs until told to stop. Flags and RBAC are listed in `operator/README.md`.

use std::{fs, io, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use ckb_probe_k8s::{
    client::{ClientError, client},
    secure::Protection,
};
use ckb_probe_operator::{
    Config, RunError,
    election::ElectionConfig,
    limits::{AdmittedExporters, AdmittedKinds, Limits},
    profiles::push::{Form, PushConfig, PushError},
    run,
    template::{AgentTemplate, TemplateError},
};
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Serves CkbProbes: schedules agents onto the nodes that run their targets, and merges what they report.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Arguments {
    /// The namespace of NodeProbes, agent pods and the Lease
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: String,

    /// The name under which this replica holds the Lease; must differ between replicas [default: the host name]
    #[arg(long, env = "POD_NAME")]
    identity: Option<String>,

    /// Serve the CkbProbes and pods of this namespace only [default: every namespace]
    #[arg(long, env = "WATCH_NAMESPACE")]
    watch_namespace: Option<String>,

    /// A v1 Pod from which agent pods are made; read once, at start
    #[arg(
        long,
        env = "AGENT_TEMPLATE",
        default_value = "/etc/ckb-probe/agent-pod.yaml"
    )]
    agent_template: PathBuf,

    /// The Deployment in that namespace to which NodeProbes belong: when it is deleted, Kubernetes removes them,
    /// and the agents [default: none, and they stay]
    #[arg(long, env = "OWNER_DEPLOYMENT")]
    owner_deployment: Option<String>,

    /// The name of the Lease
    #[arg(long, env = "LEASE_NAME", default_value = "ckb-probe-operator")]
    lease_name: String,

    /// How long a Lease is valid without renewal, before another replica may take over: 3s to 1h, whole seconds
    #[arg(long, env = "LEASE_DURATION", default_value = "15s", value_parser = lease_duration)]
    lease_duration: Duration,

    /// How many CkbProbes of one namespace may be measured at the same time; the oldest are
    #[arg(long, env = "MAX_CKBPROBES_PER_NAMESPACE", default_value_t = Limits::default().ckb_probes_per_namespace, value_parser = at_least_one)]
    max_ckbprobes_per_namespace: usize,

    /// How many targets all CkbProbes of one namespace may have together; a pod that three of them select counts three times
    #[arg(long, env = "MAX_TARGETS_PER_NAMESPACE", default_value_t = Limits::default().targets_per_namespace, value_parser = at_least_one)]
    max_targets_per_namespace: usize,

    /// How many CkbProbes may measure one pod at the same time; the oldest do
    #[arg(long, env = "MAX_CKBPROBES_PER_TARGET", default_value_t = Limits::default().ckb_probes_per_target, value_parser = at_least_one)]
    max_ckbprobes_per_target: usize,

    /// The most bytes that the CkbProfiles of one namespace take together: of more, the oldest are deleted
    #[arg(long, env = "MAX_PROFILE_BYTES_PER_NAMESPACE", default_value_t = Limits::default().profile_bytes_per_namespace, value_parser = clap::value_parser!(u64).range(1..))]
    max_profile_bytes_per_namespace: u64,

    /// No CkbProbe is reported on more often than that, whatever it asks: 1s to 1h
    #[arg(long, env = "MIN_REPORT_INTERVAL", default_value = "5s", value_parser = report_interval)]
    min_report_interval: Duration,

    /// The kinds of probes that are admitted, separated by commas; a CkbProbe with another is not measured [default: every kind]
    #[arg(long, env = "KINDS", value_parser = AdmittedKinds::parse)]
    kinds: Option<AdmittedKinds>,

    /// Namespaces in which every kind is admitted, separated by commas
    #[arg(long, env = "EVERY_KIND_IN", value_delimiter = ',')]
    every_kind_in: Vec<String>,

    /// The exporters of traces besides the default, each with the namespaces that may name it: archive=*;team-a=a,b. A CkbProbe that
    /// names another is not measured [default: none]
    #[arg(long, env = "EXPORTERS", value_parser = AdmittedExporters::parse)]
    exporters: Option<AdmittedExporters>,

    /// Push each published profile to this server: http://pyroscope:4040 [default: none]
    #[arg(long, env = "PROFILES_PUSH_URL")]
    profiles_push_url: Option<String>,

    /// What that server takes: Pyroscope's HTTP API, or profiles by OTLP over HTTP, which are alpha and may change in any way
    #[arg(long, env = "PROFILES_PUSH_FORM", value_enum, default_value_t)]
    profiles_push_form: Form,

    /// A file with headers for that server, one per line, such as `X-Scope-OrgID: team-a`
    #[arg(long, env = "PROFILES_PUSH_HEADERS")]
    profiles_push_headers: Option<PathBuf>,

    /// The address on which /metrics is served
    #[arg(long, env = "METRICS_ADDRESS", default_value = "0.0.0.0:8080")]
    metrics_address: SocketAddr,

    #[command(flatten)]
    protection: Protection,

    /// The address on which /healthz and /readyz are served
    #[arg(long, env = "HEALTH_ADDRESS", default_value = "0.0.0.0:8081")]
    health_address: SocketAddr,

    /// The format of log lines
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,

    /// What to log: a level, or tracing's filters. The client's own lines are left out unless a filter names kube_client: its
    /// failures are logged where they matter
    #[arg(long, env = "RUST_LOG", default_value = "info", value_parser = log_filter)]
    log: LogFilter,
}

const EXAMPLES: &str = "\
Examples:
  In a cluster, as the Helm chart runs it (POD_NAMESPACE and POD_NAME come from the downward API):
    ckb-probe-operator

  From a workstation, against the cluster of KUBECONFIG:
    ckb-probe-operator --namespace ckb-probe-system --agent-template agent-pod.yaml \\
      --metrics-address 127.0.0.1:8080 --health-address 127.0.0.1:8081

  For one team's namespace only, with JSON logs:
    ckb-probe-operator --namespace team-a --watch-namespace team-a --log-format json";

/// Filters that are known to parse.
#[derive(Clone, Debug)]
struct LogFilter(String);

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Why the operator did not start, or ended.
#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error("cannot read the agent template {}: {source}", path.display())]
    ReadTemplate { path: PathBuf, source: io::Error },
    #[error("cannot read the headers for pushing profiles in {}: {source}", path.display())]
    ReadHeaders { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Push(#[from] PushError),
    #[error("{}: {source}", path.display())]
    Template {
        path: PathBuf,
        source: TemplateError,
    },
    #[error("no identity: set --identity or POD_NAME ({0})")]
    Identity(io::Error),
    #[error("cannot find the cluster: {0}")]
    Kubeconfig(#[from] kube::config::InferConfigError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    Run(#[from] RunError),
}

// One thread is enough for what is mostly waiting, and keeps the process small.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let format = arguments.log_format;
    let filter = EnvFilter::new(&arguments.log.0);
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    match start(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "stopping");
            ExitCode::FAILURE
        }
    }
}

async fn start(arguments: Arguments) -> Result<(), MainError> {
    let Arguments {
        namespace,
        identity,
        watch_namespace,
        agent_template: path,
        owner_deployment,
        lease_name,
        lease_duration,
        max_ckbprobes_per_namespace,
        max_targets_per_namespace,
        max_ckbprobes_per_target,
        max_profile_bytes_per_namespace,
        min_report_interval,
        kinds,
        every_kind_in,
        exporters,
        profiles_push_url,
        profiles_push_form,
        profiles_push_headers,
        metrics_address,
        protection,
        health_address,
        log_format: _,
        log: _,
    } = arguments;
    let yaml = fs::read_to_string(&path).map_err(|source| MainError::ReadTemplate {
        path: path.clone(),
        source,
    })?;
    let template =
        AgentTemplate::parse(&yaml).map_err(|source| MainError::Template { path, source })?;
    let identity = match identity {
        Some(identity) => identity,
        None => host_name().map_err(MainError::Identity)?,
    };
    let client = client(kube::Config::infer().await?)?;
    let config = Config {
        election: ElectionConfig {
            namespace,
            lease: lease_name,
            identity,
            duration: lease_duration,
        },
        watch_namespace: watch_namespace.filter(|namespace| !namespace.is_empty()),
        template,
        owner: owner_deployment.filter(|name| !name.is_empty()),
        limits: Limits {
            ckb_probes_per_namespace: max_ckbprobes_per_namespace,
            targets_per_namespace: max_targets_per_namespace,
            ckb_probes_per_target: max_ckbprobes_per_target,
            profile_bytes_per_namespace: max_profile_bytes_per_namespace,
            min_report_interval,
            kinds: kinds.unwrap_or_default().and_all_in(every_kind_in),
            exporters: exporters.unwrap_or_default(),
        },
        push: push(profiles_push_url, profiles_push_form, profiles_push_headers)?,
        metrics_address,
        protection,
        health_address,
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(MainError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(MainError::Signals)?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
    };
    Ok(run(client, config, stop).await?)
}

fn push(
    url: Option<String>,
    form: Form,
    headers: Option<PathBuf>,
) -> Result<Option<PushConfig>, MainError> {
    let Some(url) = url.filter(|url| !url.is_empty()) else {
        return Ok(None);
    };
    let headers = headers.filter(|path| !path.as_os_str().is_empty());
    let headers = headers.map(|path| {
        fs::read_to_string(&path).map_err(|source| MainError::ReadHeaders { path, source })
    });
    let headers = headers.transpose()?.unwrap_or_default();
    Ok(Some(PushConfig::parse(&url, form, &headers)?))
}

fn host_name() -> io::Result<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(name.trim().to_owned())
}

fn report_interval(text: &str) -> Result<Duration, String> {
    let interval = text.parse::<ckb_probe_crds::Duration>()?.get();
    match (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&interval) {
        true => Ok(interval),
        false => Err("must be from 1s to 1h".to_owned()),
    }
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = text.parse::<ckb_probe_crds::Duration>()?.get();
    match (duration.as_secs(), duration.subsec_nanos()) {
        (3..=3600, 0) => Ok(duration),
        _ => Err("must be from 3s to 1h, in whole seconds".to_owned()),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

fn log_filter(text: &str) -> Result<LogFilter, tracing_subscriber::filter::ParseError> {
    EnvFilter::try_new(text)?;
    let quiet = ["kube_client", "kube_runtime"]
        .into_iter()
        .filter(|library| !text.contains(library))
        .map(|library| format!(",{library}=off"));
    Ok(LogFilter(
        quiet.fold(text.to_owned(), |all, one| all + &one),
    ))
}
