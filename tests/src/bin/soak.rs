//! `soak`: everything that goes wrong on the local cluster of `KUBECONFIG`, again and again; writes target/soak/report.html,
//! report.md and report.json.
//!
//! scripts/soak.sh prepares all that it needs.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use ckb_probe_tests::{
    bench::{self, Bench, machine::Machine, report::Report},
    choice,
    failure::Result,
    fixture::repository,
    soak::{self, Settings},
};
use clap::Parser;

/// Has everything go wrong that can, again and again, and looks whether what is measured stays true. Needs root.
#[derive(Parser)]
struct Arguments {
    /// Minutes of faults, at the least: each strikes once.
    #[arg(long, env = "MINUTES", default_value_t = 60)]
    minutes: u64,
    /// The seed of the schedule [default: another one each time].
    #[arg(long, env = "SEED")]
    seed: Option<u64>,
    /// How often a target restarts under one agent beside the cluster, afterwards.
    #[arg(long, env = "RESTARTS", default_value_t = 0)]
    restarts: usize,
    /// How often an agent is killed beside the cluster, afterwards.
    #[arg(long, env = "KILLS", default_value_t = 0)]
    kills: usize,
    /// Only these faults.
    #[arg(long, num_args = 1..)]
    only: Vec<String>,
    /// Without faults of which the end-to-end tests, which were run just before, show the same.
    #[arg(long)]
    after_e2e: bool,
    /// Name the faults, and do nothing.
    #[arg(long)]
    list: bool,
}

// A figure that is not as it must be is a failure here: nothing is a matter of the machine's speed.
#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let known = soak::ALL.iter().map(|fault| (fault.name, fault.about));
    if let Some(code) = choice::refused("fault", known, arguments.list, &arguments.only) {
        return code;
    }
    let outcome = choice::unless_interrupted(run(arguments)).await;
    choice::exit_code(outcome.inspect_err(|_| println!("0 passed, 1 failed")))
}

/// What a cluster would take days for.
async fn many(restarts: usize, kills: usize, folder: PathBuf, report: Report) -> Report {
    let settings = bench::Settings {
        rounds: 1,
        seconds: 1,
        restarts,
        kills,
        programs: repository().join("target/release"),
        folder,
        ..bench::Settings::default()
    };
    let mut bench = Bench { settings, report };
    for (name, times) in [("restarts", restarts), ("kills", kills)] {
        let family = bench::ALL.iter().find(|family| family.name == name);
        if let Some(family) = family.filter(|_| times > 0) {
            bench.measure(family).await;
        }
    }
    bench.report
}

/// True when everything is as it must be.
async fn run(arguments: Arguments) -> Result<bool> {
    let folder = repository().join("target/soak");
    let settings = Settings {
        duration: Duration::from_secs(arguments.minutes * 60),
        seed: arguments.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
        only: arguments.only,
        after_e2e: arguments.after_e2e,
        folder: folder.clone(),
    };
    let mut report = Report::new(
        "Everything that goes wrong, again and again",
        "Measured by `make soak`. The method is in docs/scale.md.",
    );
    if let Err(error) = soak::run(&settings, &mut report).await {
        report.failure("soak", error.to_string());
    }
    let report = many(arguments.restarts, arguments.kills, folder.clone(), report).await;
    report.write(&folder, &Machine::this().await?)?;
    let (passed, failed) = report.tally();
    println!("report: {}", folder.join("report.html").display());
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}
