//! `bench`: measures what probing costs and how true its figures are, and writes target/bench/report.md and report.json.
//!
//! scripts/bench.sh prepares all that it needs.

use std::{path::PathBuf, process::ExitCode};

use ckb_probe_tests::{
    bench::{ALL, Bench, Settings, machine::Machine, report::Report},
    choice,
    failure::Result,
    fixture::repository,
};
use clap::Parser;

/// Measures what probing costs, and how true its figures are. Needs root.
#[derive(Parser)]
struct Arguments {
    /// Only these families of figures; the report then holds nothing else.
    families: Vec<String>,
    /// Name the families, and do nothing.
    #[arg(long)]
    list: bool,
    /// Fail when a figure misses its bound, too.
    #[arg(long)]
    strict: bool,
    /// How often each comparison is repeated.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement that takes a certain time.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// For how many hours a node is left alone and recorded, a third each.
    #[arg(long, default_value_t = 0.05)]
    hours: f64,
    /// How often a target is restarted.
    #[arg(long, default_value_t = 1000)]
    restarts: usize,
    /// How often an agent is killed.
    #[arg(long, default_value_t = 10)]
    kills: usize,
    /// The folder of node-agent and ckb-probe [default: target/release].
    #[arg(long)]
    programs: Option<PathBuf>,
    /// The CKB node's executable.
    #[arg(long, default_value = "ckb")]
    ckb: PathBuf,
    /// The same, built with its feature `profiling`, in a folder with `jeprof`.
    #[arg(long, default_value = "ckb")]
    ckb_profiling: PathBuf,
    /// A folder that scripts/build-chain.sh made.
    #[arg(long, default_value = ".")]
    chain: PathBuf,
    /// Another one, with blocks that run scripts.
    #[arg(long, default_value = ".")]
    scripts: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let known = ALL.iter().map(|family| (family.name, family.about));
    if let Some(code) = choice::refused("family", known, arguments.list, &arguments.families) {
        return code;
    }
    choice::exit_code(choice::unless_interrupted(run(arguments)).await)
}

/// True when everything was measured, and with --strict, when everything is as it must be.
async fn run(arguments: Arguments) -> Result<bool> {
    let machine = Machine::with(&arguments.ckb).await?;
    let folder = repository().join("target/bench");
    let programs = repository().join("target/release");
    let mut bench = Bench {
        settings: Settings {
            rounds: arguments.rounds.max(1),
            seconds: arguments.seconds.max(1),
            hours: arguments.hours.clamp(0.01, 1000.0),
            restarts: arguments.restarts.max(1),
            kills: arguments.kills.max(1),
            programs: arguments.programs.unwrap_or(programs),
            ckb: arguments.ckb,
            ckb_profiling: arguments.ckb_profiling,
            chain: arguments.chain,
            scripts: arguments.scripts,
            folder: folder.clone(),
        },
        report: Report::default(),
    };
    for family in ALL {
        let named = arguments.families.iter().any(|name| name == family.name);
        if named || arguments.families.is_empty() {
            bench.measure(family).await;
            // After each: what was measured is kept, whatever comes.
            bench.report.write(&folder, &machine)?;
        }
    }
    let (met, missed) = bench.report.tally();
    println!(
        "{met} met, {missed} missed: {}",
        folder.join("report.md").display()
    );
    Ok(bench.report.is_complete() && (missed == 0 || !arguments.strict))
}
