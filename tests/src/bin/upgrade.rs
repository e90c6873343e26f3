//! `upgrade`: an earlier release measures on the local cluster of `KUBECONFIG`, is upgraded to this one, and this one downgraded again;
//! writes target/upgrade/report.md and report.json.
//!
//! scripts/upgrade.sh prepares all that it needs.

use std::{path::PathBuf, process::ExitCode};

use ckb_probe_tests::{
    bench::{machine::Machine, report::Report},
    choice,
    failure::Result,
    fixture::repository,
    upgrade::{self, Release, Settings},
};
use clap::Parser;

/// Upgrades an earlier release to this one while it measures, and downgrades this one again. Needs root.
#[derive(Parser)]
struct Arguments {
    /// The sources of the earlier release: its charts and config are looked for.
    #[arg(long)]
    earlier: PathBuf,
    /// The tag of its image.
    #[arg(long)]
    earlier_tag: String,
    /// The tag of this one's image.
    #[arg(long)]
    tag: String,
    /// Values of the chart for both.
    #[arg(long)]
    values: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = choice::unless_interrupted(run(arguments)).await;
    choice::exit_code(outcome.inspect_err(|_| println!("0 passed, 1 failed")))
}

/// True when everything is as it must be.
async fn run(arguments: Arguments) -> Result<bool> {
    const CHART: &str = "charts/ckb-probe";
    let settings = Settings {
        earlier: Release {
            chart: arguments.earlier.join(CHART),
            tag: arguments.earlier_tag,
        },
        samples: arguments.earlier.join("config/samples"),
        present: Release {
            chart: repository().join(CHART),
            tag: arguments.tag,
        },
        values: arguments.values,
    };
    let mut report = Report::new(
        "An upgrade and a downgrade under load",
        "Measured by `make upgrade-test`. What is asked of it is in docs/SPECIFICATION.md.",
    );
    if let Err(error) = upgrade::run(&settings, &mut report).await {
        report.failure("upgrade", error.to_string());
    }
    report.write(
        &repository().join("target/upgrade"),
        &Machine::this().await?,
    )?;
    let (passed, failed) = report.tally();
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}
