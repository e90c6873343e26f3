//! `e2e`: the end-to-end test, against the local cluster of `KUBECONFIG` with ckb-probe installed.
//!
//! scripts/e2e.sh prepares all that it needs.

use std::{cell::RefCell, process::ExitCode};

use ckb_probe_tests::{
    choice,
    cluster::Cluster,
    failure::Result,
    fixture::repository,
    report::Report,
    scenarios::{self, Scenario},
    scene::Scene,
    workload::Workload,
};
use clap::Parser;

/// Plays every scenario, prints what it measures, and writes the figures to target/e2e.
#[derive(Parser)]
struct Arguments {
    /// What stands for CKB.
    #[arg(long, value_enum, default_value = "rocksdb")]
    workload: Workload,
    /// Only these scenarios; the report is then incomplete, and not written.
    #[arg(long, num_args = 1..)]
    only: Vec<String>,
    /// Name the scenarios, and do nothing.
    #[arg(long)]
    list: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let known = scenarios::ALL
        .iter()
        .map(|scenario| (scenario.name, scenario.about));
    if let Some(code) = choice::refused("scenario", known, arguments.list, &arguments.only) {
        return code;
    }
    let outcome = choice::unless_interrupted(run(&arguments)).await;
    choice::exit_code(outcome.inspect_err(|_| println!("0 passed, 1 failed")))
}

/// True when everything is as it must be.
async fn run(arguments: &Arguments) -> Result<bool> {
    let cluster = Cluster::connect().await?;
    cluster.claim().await?;
    let report = RefCell::new(Report::default());
    let wanted = |scenario: &&Scenario| match &arguments.only[..] {
        [] => scenario.is_for(arguments.workload),
        only => only.iter().any(|name| name == scenario.name),
    };
    for scenario in scenarios::ALL.iter().filter(wanted) {
        play(scenario, arguments.workload, &cluster, &report).await;
    }
    if arguments.only.is_empty() {
        let name = match arguments.workload {
            Workload::Rocksdb => "report.json",
            Workload::Ckb => "report-ckb.json",
        };
        report
            .borrow()
            .write(&repository().join("target/e2e").join(name))?;
    }
    report.borrow().repeat_failures();
    let (passed, failed) = report.borrow().tally();
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// How often a scenario is played that could not be played to its end, with no figure of it missed by then: a cluster of
/// several programs on one small machine has accidents of its own. A figure that is missed stands at once.
const ATTEMPTS: usize = 2;

/// One scenario. Whatever becomes of it, the cluster is left as it was, and the next is played.
async fn play(
    scenario: &Scenario,
    workload: Workload,
    cluster: &Cluster,
    report: &RefCell<Report>,
) {
    println!(
        "{:6.1} s  {}: {}",
        report.borrow().elapsed().as_secs_f64(),
        scenario.name,
        scenario.about
    );
    for attempt in 1.. {
        let mut scene = Scene::new(scenario.name, workload, cluster, report);
        let before = scene.failed();
        let outcome = scenario.run(&mut scene).await;
        let missed = scene.failed() > before;
        if outcome.is_err() || missed {
            scene.tell().await;
        }
        let again = outcome.is_err() && !missed && attempt < ATTEMPTS;
        match outcome {
            Err(error) if again => println!("AGAIN   {}: {error}", scenario.name),
            Err(error) => scene.fail(&error),
            Ok(()) => {}
        }
        if let Err(error) = scene.clear().await {
            scene.fail(&error);
            return;
        }
        if !again {
            return;
        }
    }
}
