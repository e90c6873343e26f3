//! `scale`: measures the operator beside a large cluster, and writes target/scale/report.md and report.json.
//!
//! scripts/scale.sh prepares all that it needs.

use std::{path::PathBuf, process::ExitCode};

use ckb_probe_tests::{
    bench::{machine::Machine, report::Report},
    choice,
    failure::{Failure, Result},
    fixture::repository,
    scale::{self, PODS_OF_A_NODE, Settings, TARGETS},
};
use clap::Parser;

/// Measures the operator beside nodes, pods and agents that exist in the API of KUBECONFIG alone: no cluster that anybody uses.
#[derive(Parser)]
struct Arguments {
    /// How many nodes; more than ten. Five pods run on each.
    #[arg(long, env = "NODES", default_value_t = 1000)]
    nodes: usize,
    /// How many changes of one pod are measured.
    #[arg(long, default_value_t = 100)]
    changes: usize,
    /// Seconds at rest; under reports it is twice as long.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// How many seconds apart the reports of an agent are; the next of these where the API server does not take them in time.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 14, 20, 30, 60])]
    every: Vec<u64>,
    /// The operator [default: target/release/ckb-probe-operator].
    #[arg(long)]
    operator: Option<PathBuf>,
    /// Fail when a figure misses its bound, too.
    #[arg(long)]
    strict: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    choice::exit_code(choice::unless_interrupted(run(Arguments::parse())).await)
}

/// True when everything was measured, and with --strict, when everything is as it must be.
async fn run(arguments: Arguments) -> Result<bool> {
    let least = TARGETS / PODS_OF_A_NODE;
    if arguments.nodes <= least {
        return Err(Failure::format("--nodes")(format!(
            "it must be above {least}"
        )));
    }
    let folder = repository().join("target/scale");
    let operator = repository().join("target/release/ckb-probe-operator");
    let settings = Settings {
        nodes: arguments.nodes,
        pods: arguments.nodes * PODS_OF_A_NODE,
        changes: arguments.changes.max(5),
        seconds: arguments.seconds.max(5),
        every: arguments.every,
        operator: arguments.operator.unwrap_or(operator),
        folder: folder.clone(),
    };
    let mut report = Report::new(
        "The operator beside a large cluster",
        "Measured by `make scale`. The method is in docs/scale.md.",
    );
    if let Err(error) = scale::run(&settings, &mut report).await {
        report.failure("scale", error.to_string());
    }
    report.write(&folder, &Machine::this().await?)?;
    let (met, missed) = report.tally();
    println!(
        "{met} met, {missed} missed: {}",
        folder.join("report.md").display()
    );
    Ok(report.is_complete() && (missed == 0 || !arguments.strict))
}
