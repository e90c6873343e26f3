//! `e2e`: the end-to-end test, against the local cluster of `KUBECONFIG` with ckb-probe installed.
//!
//! scripts/e2e.sh prepares all that it needs.

use std::{
    cmp::Reverse,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use ckb_probe_tests::{
    choice,
    cluster::Cluster,
    failure::{Failure, Result},
    fixture::repository,
    note,
    report::{Report, Rows},
    scenarios::{self, Scenario},
    scene::Scene,
    workload::Workload,
};
use clap::Parser;

/// Plays every scenario, prints what it measures, and writes the figures to target/e2e.
///
/// Scenarios that only look at what happens in namespaces of their own are played at the same time; then those that restart what all share, look
/// at the whole node, or measure what the agent itself uses.
#[derive(Parser)]
struct Arguments {
    /// What stands for CKB. With both, each scenario that either serves for is played with a real node, and the report is not written.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rocksdb")]
    workload: Vec<Workload>,
    /// Only these scenarios; the report is then incomplete, and not written.
    #[arg(long, num_args = 1.., conflicts_with = "undisturbed")]
    only: Vec<String>,
    /// Only those that must have the machine for themselves (true), or only all others (false), beside which it may do something else; the
    /// report is then not written.
    #[arg(long)]
    undisturbed: Option<bool>,
    /// How many scenarios are played at the same time, at the most.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    at_once: u8,
    /// Name the scenarios, and do nothing.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let known = scenarios::ALL
        .iter()
        .map(|scenario| (scenario.name, scenario.about));
    if let Some(code) = choice::refused("scenario", known, arguments.list, &arguments.only) {
        return code;
    }
    let outcome = run(&arguments);
    choice::exit_code(outcome.inspect_err(|_| println!("0 passed, 1 failed")))
}

/// True when everything is as it must be.
fn run(arguments: &Arguments) -> Result<bool> {
    block_on(async { Cluster::connect().await?.claim().await })?;
    let report = Report::default();
    let is_now = |scenario: &Scenario| {
        let undisturbed = arguments.undisturbed;
        undisturbed.is_none_or(|undisturbed| undisturbed == scenario.is_undisturbed())
    };
    let is_wanted = |scenario: &Scenario, workload| match &arguments.only[..] {
        [] => {
            let is_for = scenario.is_for(workload, &arguments.workload);
            is_for && is_now(scenario) && !scenario.is_nightly()
        }
        only => only.iter().any(|name| name == scenario.name),
    };
    let mut workloads = arguments.workload.clone();
    // A real node takes longer to say something: what takes long is begun first.
    workloads.sort_by_key(|workload| *workload != Workload::Ckb);
    let mut parts = Vec::new();
    for workload in workloads {
        for scenario in scenarios::ALL {
            if is_wanted(scenario, workload) {
                let name = match (workload, arguments.workload.len()) {
                    (Workload::Ckb, 2..) => scenario.name_on_ckb,
                    _ => scenario.name,
                };
                let rows = report.rows_of(name, parts.len());
                parts.push(Part {
                    scenario,
                    workload,
                    rows,
                });
            }
        }
    }
    // Those that suffer most others first, and of them those that take long, so that none of them is left with it in the end.
    let most = usize::from(arguments.at_once);
    let at_once = |part: &Part<'_>| part.scenario.at_once(most);
    parts.sort_by_key(|part| {
        let at_once = at_once(part);
        (Reverse(at_once), at_once == 1 || !part.scenario.is_long())
    });
    for together in parts.chunk_by(|one, next| at_once(one) == at_once(next)) {
        play_all(together, together.first().map_or(1, at_once))?;
    }
    let is_whole = arguments.only.is_empty() && arguments.undisturbed.is_none();
    if let (true, [workload]) = (is_whole, &arguments.workload[..]) {
        let name = match workload {
            Workload::Rocksdb => "report.json",
            Workload::Ckb => "report-ckb.json",
        };
        report.write(&repository().join("target/e2e").join(name))?;
    }
    report.repeat_failures();
    let (passed, failed) = report.tally();
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// A scenario, what it is played with, and where its figures go.
#[derive(Clone, Copy)]
struct Part<'a> {
    scenario: &'a Scenario,
    workload: Workload,
    rows: Rows<'a>,
}

/// Plays them in their order, so many at a time. Each is on a thread with a runtime and a connection of its own: what one waits for,
/// searching a program of a hundred megabytes, must not make another's times longer.
fn play_all(parts: &[Part<'_>], at_once: usize) -> Result<()> {
    let next = AtomicUsize::new(0);
    let play_some = || {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            note::belongs_to(part.rows.scenario());
            block_on(async {
                let cluster = Cluster::connect().await?;
                play(*part, &cluster).await;
                Ok(())
            })
            .inspect_err(|_| next.store(parts.len(), Ordering::Relaxed))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once.min(parts.len()))
            .map(|_| scope.spawn(play_some))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let panicked = |_| Failure::format("a scenario")("it panicked");
            thread.join().map_err(panicked)?
        })
    })
}

/// On a runtime of this thread's own, unless somebody interrupts it first.
fn block_on<T>(what: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::system("a runtime"))?;
    runtime.block_on(choice::unless_interrupted(what))
}

/// How often a scenario is played that could not be played to its end, with no figure of it missed by then: a cluster of
/// several programs on one small machine has accidents of its own. A figure that is missed stands at once.
const ATTEMPTS: usize = 2;

/// One scenario. Whatever becomes of it, the cluster is left as it was, and the next is played.
async fn play(part: Part<'_>, cluster: &Cluster) {
    let Part {
        scenario,
        workload,
        rows,
    } = part;
    let name = rows.scenario();
    println!(
        "{:6.1} s  {name}: {}",
        rows.elapsed().as_secs_f64(),
        scenario.about
    );
    for attempt in 1.. {
        let mut scene = Scene::new(name, workload, cluster, rows);
        let before = scene.failed();
        let outcome = scenario.run(&mut scene).await;
        let missed = scene.failed() > before;
        if outcome.is_err() || missed {
            scene.tell().await;
        }
        let again = outcome.is_err() && !missed && attempt < ATTEMPTS;
        match outcome {
            Err(error) if again => println!("AGAIN   {name}: {error}"),
            Err(error) => scene.fail(&error),
            Ok(()) => {}
        }
        if let Err(error) = scene.clear().await {
            scene.fail(&error);
            break;
        }
        if !again {
            break;
        }
    }
    println!("{:6.1} s  {name} is over", rows.elapsed().as_secs_f64());
}
