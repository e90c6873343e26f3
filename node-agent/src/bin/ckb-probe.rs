//! The command line for a host without Kubernetes.

use std::{io::Write, process::ExitCode, time::Duration};

use ckb_probe_agent::{
    host::{HostError, Session, find_process, slots},
    kinds,
    observe::{Exit, find_symbols, kernel_release},
    probe::{CalibrationError, Means, Preflight, SlowCall, preflight},
};
use ckb_probe_crds::{
    InstanceReport, OperationReport, display_nanos,
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
        ckb-probe rocksdb --slow --slow-threshold 5ms   each slow call, as a JSON line\n\n\
        Exit codes: 0 measured; 1 could not measure; 2 wrong arguments; 3 the process called nothing that is measured."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a function of this very program: can this host measure, and what does a probed call cost?
    Check,
    /// List the functions of each operation, and where the process has them.
    Symbols(ProcessArguments),
    /// Latency of the RocksDB C API.
    Rocksdb(RocksDbArguments),
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
    /// Print each slow call, as a JSON line, instead of the table.
    #[arg(long)]
    slow: bool,
    /// Print each interval as a JSON line instead of the table.
    #[arg(long, conflicts_with = "slow")]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{0}. Run as root, or with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_SYS_ADMIN")]
    Calibration(#[from] CalibrationError),
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
}

const NOTHING_CALLED: u8 = 3;

fn main() -> ExitCode {
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
        Command::Check => check(),
        Command::Symbols(process) => symbols(&process),
        Command::Rocksdb(arguments) => rocksdb(arguments).await,
    }
}

fn check() -> Result<Outcome, CliError> {
    let Preflight { means, refused } = preflight()?;
    let Means { tier, calibration } = means;
    println!("kernel           {}", kernel_release());
    println!("attach tier      {}", tier.as_str());
    println!(
        "calls counted    {} of {}",
        calibration.counted, calibration.calls
    );
    println!(
        "cost of a call   {}",
        display_nanos(calibration.cost_per_call_ns)
    );
    println!(
        "  of which seen as the call's own time, and taken off: {}",
        display_nanos(calibration.trap_ns)
    );
    for (tier, error) in refused {
        println!("not used         {}: {error}", tier.as_str());
    }
    Ok(Outcome::Measured)
}

fn symbols(arguments: &ProcessArguments) -> Result<Outcome, CliError> {
    let process = find_process(arguments.pid, &arguments.executable)?;
    let slots = slots(RocksDbProbe {
        operations: Operation::ALL.to_vec(),
        slow_threshold: default_slow_threshold(),
    });
    let symbols = find_symbols(process.id, &kinds::symbols(&slots))?;
    println!("process {} ({})", process.id.pid, process.executable);
    if symbols.stripped {
        println!("the executable is stripped: it has no symbol table");
    }
    for slot in &slots {
        for function in slot.functions {
            let place = match symbols.found.get(function.symbol) {
                Some(location) => format!(
                    "{}+{:#x}",
                    location.binary.path().display(),
                    location.offset
                ),
                None => "not found".to_string(),
            };
            println!("{:<12} {:<40} {place}", slot.operation, function.symbol);
        }
    }
    Ok(if symbols.found.is_empty() {
        Outcome::NothingCalled
    } else {
        Outcome::Measured
    })
}

async fn rocksdb(arguments: RocksDbArguments) -> Result<Outcome, CliError> {
    let process = find_process(arguments.process.pid, &arguments.process.executable)?;
    let exit = Exit::of(process.id)?;
    let Preflight { means, .. } = preflight()?;
    let operations = match &arguments.operations[..] {
        [] => default_operations(),
        some => some.to_vec(),
    };
    let kind = RocksDbProbe {
        operations,
        slow_threshold: arguments.slow_threshold,
    };
    let interval = arguments.interval.get().max(Duration::from_millis(100));
    let mut session = Session::attach(means, process, kind, interval)?;
    let missing = session.coverage.sentence();
    if !missing.is_empty() {
        eprintln!("ckb-probe: attached{missing}");
    }
    let start = Instant::now();
    let end = arguments.duration.map(|duration| start + duration.get());
    let mut next = start + interval;
    let mut over = false;
    while !over {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => over = true,
            () = exit.wait() => over = true,
            () = sleep_until(end.map_or(next, |end| end.min(next))) => {
                over = end.is_some_and(|end| Instant::now() >= end);
            }
        }
        next += interval;
        session.close_window()?;
        let slow = session.slow_calls();
        if arguments.slow {
            print_slow(&slow)?;
        } else {
            print_interval(&session, arguments.json)?;
        }
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

fn print_slow(calls: &[(&'static str, SlowCall)]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for (operation, call) in calls {
        let name = call.thread_name.split(|byte| *byte == 0).next();
        let line = json!({
            "monotonicNanoseconds": call.time_ns,
            "operation": operation,
            "durationNanoseconds": call.duration_ns,
            "bytes": call.bytes,
            "thread": call.thread,
            "threadName": String::from_utf8_lossy(name.unwrap_or_default()),
        });
        writeln!(out, "{line}")?;
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
        "{:<12} {:>10} {:>9} {:>9} {:>9} {:>9} {:>8} {:>12}",
        "OPERATION", "PER SECOND", "P50", "P90", "P99", "MAX", "SLOW", "COUNT"
    )?;
    for operation in &report.operations {
        let OperationReport { window, total, .. } = operation;
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
            "{:<12} {per_second:>10.1} {:>9} {:>9} {:>9} {:>9} {:>8} {:>12}",
            operation.operation,
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
            if window.counters.count > 0 {
                display_nanos(window.max_nanoseconds)
            } else {
                "-".to_string()
            },
            window.counters.slow,
            total.count,
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
