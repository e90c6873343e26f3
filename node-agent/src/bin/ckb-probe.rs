//! The command line for a host without Kubernetes.

use std::{io::Write, process::ExitCode, time::Duration};

use ckb_probe_agent::{
    host::{HostError, Session, find_process, slots},
    kinds,
    observe::{Exit, FirstInstruction, Location, Process, SymbolCache, find_symbols},
    preflight::{Preflight, Unmeasurable, preflight},
    probe::{Execs, Means, Tier, run_child_if_asked},
    slow::SlowOperation,
};
use ckb_probe_crds::{
    Breach, Check, InstanceReport, Overhead, display_nanos,
    kinds::rocksdb::{Operation, RocksDbProbe, default_operations, default_slow_threshold},
};
use clap::{Args, Parser, Subcommand};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

/// Tells why a CKB node is slow, from outside the process, with eBPF.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        ckb-probe check                                 can this host measure?\n  \
        ckb-probe symbols --executable ckb              which operations can be measured in this binary?\n  \
        ckb-probe rocksdb                               a table every second, of the process that runs ckb\n  \
        ckb-probe rocksdb --pid 1234 --duration 1m --json\n  \
        ckb-probe rocksdb --wait --by-column-family     from the start of a process that is still to come\n  \
        ckb-probe rocksdb --on-breach report            every call, whatever it costs the process\n  \
        ckb-probe rocksdb --slow --slow-threshold 5ms   each slow call, as a JSON line\n\n\
        Exit codes: 0 measured; 1 could not measure; 2 wrong arguments; 3 the process called nothing that is measured."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a function of this very program: can this host measure, by which means, and what does a probed call cost?
    Check(CheckArguments),
    /// List the functions of each operation, and where the process has them.
    Symbols(ProcessArguments),
    /// Latency of the RocksDB C API.
    Rocksdb(RocksDbArguments),
}

#[derive(Args, Debug)]
struct CheckArguments {
    #[command(flatten)]
    tier: TierArgument,
    /// Print each check as a JSON line instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct TierArgument {
    /// The one way to attach that may be used: session, uprobe-multi or perf-event. Unset: the best that works.
    #[arg(long)]
    tier: Option<Tier>,
}

#[derive(Args, Debug)]
struct ProcessArguments {
    /// The process, by number.
    #[arg(long)]
    pid: Option<u32>,
    /// The process, by the base name of its executable.
    #[arg(long, default_value = "ckb")]
    executable: String,
}

#[derive(Args, Debug)]
struct RocksDbArguments {
    #[command(flatten)]
    process: ProcessArguments,
    #[command(flatten)]
    tier: TierArgument,
    /// The operations to measure, such as Get,TxnCommit.
    #[arg(long, value_delimiter = ',')]
    operations: Vec<Operation>,
    /// How often to print.
    #[arg(long, default_value = "1s")]
    interval: ckb_probe_crds::Duration,
    /// Stop after so long. Unset: at Ctrl-C, or when the process ends.
    #[arg(long)]
    duration: Option<ckb_probe_crds::Duration>,
    /// Calls that take at least this long are slow.
    #[arg(long, default_value_t = default_slow_threshold())]
    slow_threshold: ckb_probe_crds::Duration,
    /// What measuring may cost, in percent of the CPU time that the process itself uses.
    #[arg(long, default_value_t = Overhead::default().max_percent)]
    max_percent: f64,
    /// How that is kept: sample (measure the busy operations part of the time), detach, or report (measure everything
    /// all of the time).
    #[arg(long, default_value = "sample", value_parser = breach)]
    on_breach: Breach,
    /// Also print the figures of each column family.
    #[arg(long)]
    by_column_family: bool,
    /// Also attach where the kernel must single-step the function's first instruction, at many times the cost.
    #[arg(long)]
    include_single_stepped: bool,
    /// Wait for the process where there is none yet.
    #[arg(long, conflicts_with = "pid")]
    wait: bool,
    /// Print each slow call, as a JSON line, instead of the table.
    #[arg(long)]
    slow: bool,
    /// Print each interval as a JSON line instead of the table.
    #[arg(long, conflicts_with = "slow")]
    json: bool,
}

fn breach(text: &str) -> Result<Breach, String> {
    match text.to_ascii_lowercase().as_str() {
        "sample" => Ok(Breach::Sample),
        "detach" => Ok(Breach::Detach),
        "report" => Ok(Breach::Report),
        _ => Err("there are sample, detach and report".to_string()),
    }
}

#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{0}")]
    Unmeasurable(#[from] Unmeasurable),
    #[error(transparent)]
    Observe(#[from] ckb_probe_agent::observe::ObserveError),
    #[error(transparent)]
    Symbols(#[from] ckb_probe_agent::observe::SymbolsError),
    #[error("cannot print: {0}")]
    Print(#[from] std::io::Error),
}

/// What the command found, beyond success.
enum Outcome {
    Measured,
    NothingCalled,
    CannotMeasure,
}

const NOTHING_CALLED: u8 = 3;

fn main() -> ExitCode {
    run_child_if_asked();
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = runtime
        .map_err(CliError::from)
        .and_then(|runtime| runtime.block_on(run(arguments.command)));
    match result {
        Ok(Outcome::Measured) => ExitCode::SUCCESS,
        Ok(Outcome::NothingCalled) => {
            eprintln!("ckb-probe: attached, but no measured function was called");
            ExitCode::from(NOTHING_CALLED)
        }
        Ok(Outcome::CannotMeasure) => {
            eprintln!("ckb-probe: nothing can be measured here: see what is not ok");
            ExitCode::FAILURE
        }
        // The reader went away: it has what it wanted.
        Err(CliError::Print(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("ckb-probe: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<Outcome, CliError> {
    match command {
        Command::Check(arguments) => check(&arguments),
        Command::Symbols(process) => symbols(&process),
        Command::Rocksdb(arguments) => rocksdb(arguments).await,
    }
}

fn check(arguments: &CheckArguments) -> Result<Outcome, CliError> {
    let Preflight { checks, means } = preflight(arguments.tier.tier);
    let mut out = std::io::stdout().lock();
    if arguments.json {
        for check in &checks {
            writeln!(out, "{}", json!(check))?;
        }
    } else {
        print_checks(&mut out, &checks)?;
        if let Ok(means) = &means {
            print_means(&mut out, means)?;
        }
    }
    out.flush()?;
    Ok(match means {
        Ok(_) => Outcome::Measured,
        Err(_) => Outcome::CannotMeasure,
    })
}

fn print_checks(out: &mut impl Write, checks: &[Check]) -> std::io::Result<()> {
    writeln!(out, "{:<17}  OK   DETAIL", "CHECK")?;
    for check in checks {
        let ok = if check.passed { "ok" } else { "no" };
        writeln!(out, "{:<17}  {ok}   {}", check.name, check.detail)?;
    }
    writeln!(out)
}

fn print_means(out: &mut impl Write, means: &Means) -> std::io::Result<()> {
    let calibration = means.calibration;
    writeln!(out, "attach tier      {}", means.tier.as_str())?;
    writeln!(
        out,
        "calls counted    {} of {}",
        calibration.counted, calibration.calls
    )?;
    writeln!(
        out,
        "cost of a call   {}",
        display_nanos(calibration.cost_per_call_ns)
    )?;
    writeln!(
        out,
        "  of which seen as the call's own time, and taken off: {}",
        display_nanos(calibration.trap_ns)
    )?;
    writeln!(
        out,
        "  single-stepped {}",
        display_nanos(calibration.single_step_cost_ns)
    )
}

fn symbols(arguments: &ProcessArguments) -> Result<Outcome, CliError> {
    let process = find_process(arguments.pid, &arguments.executable)?;
    let slots = slots(RocksDbProbe {
        operations: Operation::ALL.to_vec(),
        slow_threshold: default_slow_threshold(),
        ..RocksDbProbe::default()
    });
    let symbols = find_symbols(
        process.id,
        &kinds::symbols(&slots),
        &mut SymbolCache::default(),
    )?;
    println!("process {} ({})", process.id.pid, process.executable);
    if symbols.stripped {
        println!("the executable is stripped: it has no symbol table");
    }
    for slot in &slots {
        for function in slot.functions {
            let print = |place| println!("{:<12} {:<40} {place}", slot.operation, function.symbol);
            match symbols.found.get(&function.symbol) {
                Some(locations) => locations.iter().map(place).for_each(print),
                None => print("not found".to_string()),
            }
        }
    }
    Ok(if symbols.found.is_empty() {
        Outcome::NothingCalled
    } else {
        Outcome::Measured
    })
}

/// A function's file and offset, and whether a probe there costs a second trap.
fn place(location: &Location) -> String {
    let cost = match location.first_instruction {
        FirstInstruction::Emulated => "",
        FirstInstruction::SingleStepped => " single-stepped",
    };
    let path = location.binary.path().display();
    format!("{path}+{:#x}{cost}", location.offset)
}

async fn rocksdb(arguments: RocksDbArguments) -> Result<Outcome, CliError> {
    // Before the process is there: it takes half a second.
    let means = preflight(arguments.tier.tier).means?;
    let process = if arguments.wait {
        wait_for_process(&arguments.process.executable).await?
    } else {
        find_process(arguments.process.pid, &arguments.process.executable)?
    };
    let exit = Exit::of(process.id)?;
    let operations = match &arguments.operations[..] {
        [] => default_operations(),
        some => some.to_vec(),
    };
    let kind = RocksDbProbe {
        operations,
        slow_threshold: arguments.slow_threshold,
        by_column_family: arguments.by_column_family,
        include_single_stepped: arguments.include_single_stepped,
    };
    let overhead = Overhead {
        max_percent: arguments.max_percent,
        on_breach: arguments.on_breach,
    };
    let interval = arguments.interval.get().max(Duration::from_millis(100));
    let mut session = Session::attach(means, process, kind, overhead, interval)?;
    let missing = session.coverage.sentence();
    if !missing.is_empty() {
        eprintln!("ckb-probe: attached{missing}");
    }
    let start = Instant::now();
    let end = arguments.duration.map(|duration| start + duration.get());
    let mut next = start + interval;
    let mut over = None;
    while over.is_none() {
        let step = session.next_step().map_or(next, Instant::from_std);
        let window = end.map_or(next, |end| end.min(next));
        tokio::select! {
            _ = tokio::signal::ctrl_c() => over = Some("Ctrl-C".to_string()),
            () = exit.wait() => over = Some("the process ended".to_string()),
            () = sleep_until(step) => session.step()?,
            () = sleep_until(window) => {}
        }
        let ended = end.is_some_and(|end| Instant::now() >= end);
        if over.is_none() && ended {
            over = Some("the time is up".to_string());
        }
        if over.is_none() && Instant::now() < window {
            continue;
        }
        next += interval;
        session.close_window()?;
        let slow = session.slow_operations();
        if arguments.slow {
            print_slow(&slow)?;
        } else {
            print_interval(&session, arguments.json)?;
        }
        over = over.or_else(|| session.instance.must_detach());
    }
    if let Some(message) = session.instance.must_detach() {
        eprintln!("ckb-probe: {message}");
    }
    let report = session.instance.report(start.elapsed());
    if report.calls_lost + report.events_lost > 0 {
        eprintln!(
            "ckb-probe: lost {} calls (not in any figure) and {} slow-call events (counted, not listed)",
            report.calls_lost, report.events_lost
        );
    }
    let called = report
        .operations
        .iter()
        .any(|operation| operation.total.count > 0);
    Ok(if called {
        Outcome::Measured
    } else {
        Outcome::NothingCalled
    })
}

/// Waits for an exec of it. Without the right to be told of execs, looks from time to time.
async fn wait_for_process(executable: &str) -> Result<Process, CliError> {
    const LOOK: Duration = Duration::from_secs(1);
    let mut execs = Execs::watch()
        .inspect_err(|error| eprintln!("ckb-probe: looking for the process once a second: {error}"))
        .ok();
    loop {
        match find_process(None, executable) {
            Err(HostError::NoProcess(_)) => {}
            found => return Ok(found?),
        }
        let look = Instant::now() + LOOK;
        match &mut execs {
            // An error shows again at the next look, and the process is found all the same.
            Some(execs) => drop(tokio::time::timeout_at(look, execs.next()).await),
            None => sleep_until(look).await,
        }
    }
}

fn print_slow(calls: &[SlowOperation]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for call in calls {
        writeln!(out, "{}", call.line(None))?;
    }
    out.flush()
}

fn print_interval(session: &Session, json: bool) -> std::io::Result<()> {
    let report = session.instance.report(Duration::ZERO);
    let mut out = std::io::stdout().lock();
    if json {
        for operation in &report.operations {
            writeln!(out, "{}", json!(operation))?;
        }
    } else {
        print_table(&mut out, &report)?;
    }
    out.flush()
}

fn print_table(out: &mut impl Write, report: &InstanceReport) -> std::io::Result<()> {
    writeln!(
        out,
        "{:<24} {:>10} {:>9} {:>9} {:>9} {:>9} {:>8} {:>12} {:>8}",
        "OPERATION", "PER SECOND", "P50", "P90", "P99", "MAX", "SLOW", "COUNT", "SAMPLED"
    )?;
    let lines = report.operations.iter().flat_map(|operation| {
        let families = operation.column_families.iter().map(|family| {
            let name = format!("  {}", family.name);
            (name, &family.window, &family.total)
        });
        let name = operation.operation.clone();
        std::iter::once((name, &operation.window, &operation.total)).chain(families)
    });
    for (name, window, total) in lines {
        let quantile = |quantile| {
            window
                .histogram
                .quantile(quantile)
                .map_or("-".to_string(), |nanos| {
                    display_nanos(nanos.min(window.max_nanoseconds))
                })
        };
        let per_second =
            window.counters.count as f64 * 1000.0 / (window.milliseconds.max(1) as f64);
        writeln!(
            out,
            "{:<24} {per_second:>10.1} {:>9} {:>9} {:>9} {:>9} {:>8} {:>12} {:>7.1}%",
            name,
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
            if window.histogram.count() > 0 {
                display_nanos(window.max_nanoseconds)
            } else {
                "-".to_string()
            },
            window.counters.slow,
            total.count,
            window.recorded_milliseconds as f64 * 100.0 / (window.milliseconds.max(1) as f64),
        )?;
    }
    if let Some(ratio) = report.overhead_millipercent {
        writeln!(
            out,
            "estimated cost: {:.2}% of the process's CPU time",
            ratio as f64 / 1000.0
        )?;
    }
    writeln!(out)
}
