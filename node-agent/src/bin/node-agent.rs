//! The node-agent: one pod on each node that runs a target.

use std::{net::SocketAddr, process::ExitCode};

use ckb_probe_agent::{
    agent::{self, Settings},
    kernel::{Tier, run_child_if_asked},
};
use clap::Parser;
use kube::Client;
use tracing::error;
use tracing_subscriber::EnvFilter;

/// Measures the processes that the NodeProbe of this node names, and reports in its status.
///
/// The operator starts one on each node that runs a target; there is no need to start it by hand.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Example, outside of a pod (with a kubeconfig, as root):\n  \
                  NODE_NAME=node0 POD_NAMESPACE=ckb-probe-system node-agent --metrics-address 127.0.0.1:9464"
)]
struct Arguments {
    /// The node this agent runs on, and so the name of its NodeProbe.
    #[arg(long, env = "NODE_NAME")]
    node: String,
    /// The namespace of the NodeProbes.
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: String,
    /// The name of this pod, for the report.
    #[arg(long, env = "POD_NAME", default_value = "")]
    pod: String,
    /// Where /metrics, /healthz and /readyz are served.
    #[arg(long, env = "METRICS_ADDRESS", default_value = "0.0.0.0:9464")]
    metrics_address: SocketAddr,
    /// The one way to attach that may be used, for tests: session, uprobe-multi or perf-event.
    #[arg(long, env = "TIER", hide = true)]
    tier: Option<Tier>,
    /// What is logged, in the syntax of tracing's EnvFilter: info, debug, ckb_probe_agent=debug.
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    log_level: String,
}

fn main() -> ExitCode {
    run_child_if_asked();
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&arguments.log_level))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    // One thread: an agent that measures others' time should take little of it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::try_default().await?;
    let settings = Settings {
        node: arguments.node,
        namespace: arguments.namespace,
        pod: arguments.pod,
        address: arguments.metrics_address,
        tier: arguments.tier,
    };
    Ok(agent::run(client, settings).await?)
}
