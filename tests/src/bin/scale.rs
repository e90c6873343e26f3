//! `scale`: measures the operator beside large loads, and writes target/scale/report.md and report.json.
//!
//! scripts/scale.sh prepares all that it needs.

use std::{path::PathBuf, process::ExitCode};

use ckb_probe_tests::{
    bench::{machine::Machine, report::Report},
    choice,
    failure::{Failure, Result},
    fixture::repository,
    scale::{self, Load, PODS_OF_A_NODE, Settings, TARGETS},
};
use clap::Parser;
use tokio::runtime::Runtime;

/// Measures the operator beside nodes, pods and agents that exist in the API of KUBECONFIG alone, which is brought up for each load.
#[derive(Parser)]
struct Arguments {
    /// Only these loads.
    #[arg(long, num_args = 1..)]
    only: Vec<String>,
    /// Name the loads, and do nothing.
    #[arg(long)]
    list: bool,
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
    /// How many paused copies of a CkbProbe there are.
    #[arg(long, default_value_t = 5000)]
    copies: usize,
    /// The operator [default: target/release/ckb-probe-operator].
    #[arg(long)]
    operator: Option<PathBuf>,
    /// Fail when a figure misses its bound, too.
    #[arg(long)]
    strict: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let known = scale::ALL.iter().map(|load| (load.name, load.about));
    if let Some(code) = choice::refused("load", known, arguments.list, &arguments.only) {
        return code;
    }
    choice::exit_code(run(arguments))
}

/// True when everything was measured, and with --strict, when everything is as it must be.
fn run(arguments: Arguments) -> Result<bool> {
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
        copies: arguments.copies,
        operator: arguments.operator.unwrap_or(operator),
        folder: folder.clone(),
    };
    let mut report = Report::new(
        "The operator beside large loads",
        "Measured by `make scale`. The method is in docs/scale.md.",
    );
    let only = &arguments.only;
    let chosen = |load: &&Load| only.is_empty() || only.iter().any(|name| name == load.name);
    for load in scale::ALL.iter().filter(chosen) {
        // What plays agents of one load is gone with its runtime, and disturbs no other.
        let runtime = Runtime::new().map_err(Failure::system("a runtime"))?;
        let measured = scale::run(load, &settings, &mut report);
        let outcome = runtime.block_on(choice::unless_interrupted(measured));
        runtime.shutdown_background();
        match outcome {
            Err(Failure::Interrupted) => return Err(Failure::Interrupted),
            Err(error) => report.failure(load.name, error.to_string()),
            Ok(()) => {}
        }
    }
    let machine = Runtime::new().map_err(Failure::system("a runtime"))?;
    report.write(&folder, &machine.block_on(Machine::this())?)?;
    let (met, missed) = report.tally();
    println!(
        "{met} met, {missed} missed: {}",
        folder.join("report.md").display()
    );
    Ok(report.is_complete() && (missed == 0 || !arguments.strict))
}
