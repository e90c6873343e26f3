//! The command line for a host without Kubernetes.

use std::{path::PathBuf, process::ExitCode};

mod blocks;
mod changes;
mod check;
mod cluster;
mod cost;
mod exporting;
mod flames;
mod intervals;
mod live;
mod measure;
mod place;
mod profile;
mod record;
mod report;
mod slow;
mod suspension;
mod symbols;
mod table;

use ckb_probe_agent::{
    host::HostError,
    kernel::{Tier, run_child_if_asked},
    kinds::{self, Asking},
    preflight::Unmeasurable,
};
use ckb_probe_crds::{Breach, Overhead, for_each_kind};
use ckb_probe_kubectl::flames::FlamesError;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use intervals::interval;

/// Finds out why a CKB node is slow, from outside the process, with eBPF.
#[derive(Debug, Parser)]
#[command(
    name = "ckb-probe",
    version,
    after_help = "Examples:\n  \
        ckb-probe check                                 can this host measure?\n  \
        ckb-probe check --executable ckb                and this process? what is broken first?\n  \
        ckb-probe doctor -n ckb                         the same of a cluster, as kubectl ckbprobe doctor\n  \
        ckb-probe symbols --executable ckb              which operations can be measured in this binary?\n  \
        ckb-probe symbols --match 'ckb_chain::*'        which functions match, and what would a call of theirs cost?\n  \
        ckb-probe top --executable ckb                  what it does, live\n  \
        ckb-probe rocksdb                               a table every second, of the process that runs ckb\n  \
        ckb-probe rocksdb --pid 1234 --duration 1m --json\n  \
        ckb-probe rocksdb --wait --by-column-family     from the start of a process that is still to come\n  \
        ckb-probe rocksdb --on-breach report            every call, whatever it costs the process\n  \
        ckb-probe rocksdb --events --slow-threshold 5ms each slow call, as a JSON line\n  \
        ckb-probe chain --threshold 0s --otlp http://127.0.0.1:4318\n  \
                                                        each block, as a trace for an OpenTelemetry Collector, or Jaeger\n  \
        ckb-probe profile --mode cpu -o cpu.pb.gz       where the CPU time goes, for a flame graph\n  \
        ckb-probe flamegraph --executable ckb --open    the same in a browser\n  \
        ckb-probe threads                               what each thread does now\n  \
        ckb-probe render cpu.pb.gz -o cpu.html          a profile as a page to search and zoom\n  \
        ckb-probe diff before.pb.gz after.pb.gz -o diff.svg\n  \
        ckb-probe diff before.jsonl after.jsonl         two runs of chain --threshold 0s --events\n  \
        ckb-probe record --executable ckb -o ckb.record --for 10m\n  \
        ckb-probe report ckb.record -o report.html      all of that as one page\n  \
        ckb-probe diff before.record after.record       what has changed from one to the other, and what is noise\n  \
        ckb-probe cost rocksdb --duration 10m           what would measuring RocksDB cost this node? with and without, by turns\n\n\
        Exit codes: 0 measured; 1 could not measure; 2 wrong arguments; 3 the process called nothing that is measured."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

macro_rules! define_command {
    ($($(#[$doc:meta])* $kind:ident $name:literal $module:ident $spec:ident $example:literal,)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            /// Check whether this host can measure: probe a function of this program, and show how probes attach and what a
            /// probed call costs. With --pid or --executable, look at each place up to the figures of that process: what is
            /// broken first, and what to type next.
            Check(check::CheckArguments),
            /// List the functions that can be measured by name, or those that match a pattern, and where they are.
            Symbols(symbols::Arguments),
            /// Sample the stacks of a process's threads, while they run or wait, for a flame graph of where the time goes.
            Profile(profile::ProfileArguments),
            /// Show, save or open where the time or the memory of a process, or of the targets of a CkbProbe, goes, by stack.
            #[command(after_help = profile::FLAMEGRAPH)]
            Flamegraph(Box<profile::FlamegraphArguments>),
            /// Show what each thread of a process does now, and what it waits for, without stopping any; or of the targets of a CkbProbe
            /// what each did at the end of a window.
            Threads(Box<profile::ThreadsArguments>),
            /// Measure what measuring costs a process: its CPU time, its throughput and how long it takes to answer, without and with
            /// probes by turns, and whether they differ by more than noise.
            #[command(subcommand)]
            Cost(CostCommand),
            /// Write down what is measured, for hours or days, bounded in size, for `ckb-probe report`.
            Record(record::RecordArguments),
            /// Make one page of a record, or Markdown: what was measured and how truly, rates, heat maps, slowest calls, flame graphs, what
            /// measuring cost, what was not as usual, and how it differs from another record. Or of what a Prometheus that scrapes the
            /// agents of a cluster has kept of a CkbProbe.
            Report(Box<report::ReportArguments>),
            /// Draw a profile as a flame graph. It may be of this program or of any other that writes pprof.
            Render(flames::RenderArguments),
            /// Compare two profiles in one flame graph: what grew, what shrank, what is new, and what is gone. Or what blocks cost in
            /// two runs, or all figures of two records: what changed, within which bounds, and what is noise.
            Diff(Box<flames::HostDiffArguments>),
            /// Show what blocks cost: as the chain grew, from what chain --events printed; or of a process, or of a cluster, the newest and
            /// the slowest.
            Blocks(blocks::BlocksArguments),
            /// Show live what each row of a process, or of the targets of a cluster, does: rate, p99, share of time, and the last minutes.
            #[command(after_help = live::TOP)]
            Top(Box<live::HostTopArguments>),
            /// Show slow calls, and whatever else is listed individually, as they come, of a process or of CkbProbes.
            #[command(after_help = live::SLOW)]
            Slow(Box<live::SlowArguments>),
            /// Show how the durations of a row are distributed, of a process or of a CkbProbe.
            #[command(after_help = live::HISTOGRAM)]
            Histogram(Box<live::HistogramArguments>),
            /// Show how the durations of a row are distributed over time, of a process or of a CkbProbe.
            #[command(after_help = live::HEATMAP)]
            Heatmap(Box<live::HeatmapArguments>),
            #[command(flatten)]
            Measure(MeasureCommand),
            #[command(flatten)]
            Cluster(ckb_probe_kubectl::Verb),
        }

        /// A table for each kind.
        #[derive(Debug, Subcommand)]
        enum MeasureCommand {
            $(
                $(#[$doc])*
                #[command(name = <kinds::$module::Arguments as Asking>::COMMAND)]
                $kind(MeasureArguments<kinds::$module::Arguments>),
            )*
        }

        /// What is measured of it meanwhile.
        #[derive(Debug, Subcommand)]
        enum CostCommand {
            $(
                $(#[$doc])*
                #[command(name = <kinds::$module::Arguments as Asking>::COMMAND)]
                $kind(cost::CostArguments<kinds::$module::Arguments>),
            )*
            /// What a CkbProbe costs its targets on a cluster, as kubectl ckbprobe cost.
            #[command(name = "ckbprobe")]
            CkbProbe(Box<ckb_probe_kubectl::CostArguments>),
        }

        async fn run(command: Command) -> Result<Outcome, CliError> {
            match command {
                Command::Check(arguments) => check::run(&arguments),
                Command::Cluster(verb) => Ok(verb.run(Arguments::command).await?.into()),
                Command::Top(arguments) => live::top(*arguments).await,
                Command::Slow(arguments) => live::slow(*arguments).await,
                Command::Histogram(arguments) => live::histogram(*arguments).await,
                Command::Heatmap(arguments) => live::heatmap(*arguments).await,
                Command::Symbols(arguments) => symbols::run(&arguments),
                Command::Profile(arguments) => profile::profile(&arguments).await,
                Command::Threads(arguments) => profile::threads(*arguments).await,
                Command::Cost(command) => match command {
                    $(CostCommand::$kind(arguments) => {
                        cost::run(&arguments.how, &arguments.what.kind_spec()).await
                    })*
                    CostCommand::CkbProbe(arguments) => Ok(arguments.run().await?.into()),
                },
                Command::Record(arguments) => record::run(&arguments).await,
                Command::Report(arguments) => report::run(&arguments).await,
                Command::Render(arguments) => flames::render(&arguments).await,
                Command::Diff(arguments) => match (arguments.records()?, arguments.what.files()) {
                    (Some(both), _) => report::diff(both, arguments.is_document()),
                    (None, Some(both)) if blocks::is_of_blocks(both[0]) => {
                        blocks::diff(both, &arguments.blocks, arguments.of_blocks()?)
                    }
                    (None, _) => flames::diff(&arguments).await,
                },
                Command::Flamegraph(arguments) => profile::flamegraph(*arguments).await,
                Command::Blocks(arguments) if arguments.local.target.is_asked() => {
                    live::blocks::run(arguments.local, &arguments.how).await
                }
                Command::Blocks(arguments) => match arguments.cluster() {
                    Some(name) => {
                        Ok(Outcome::from(ckb_probe_kubectl::blocks::run(name, &arguments.how).await?))
                    }
                    None => blocks::trend(&arguments),
                },
                Command::Measure(command) => {
                    let (how, stacks, question) = match command {
                        $(MeasureCommand::$kind(arguments) => {
                            let stacks = arguments.what.reports_stacks();
                            (arguments.how, stacks, arguments.what.kind_spec())
                        })*
                    };
                    if how.output.is_some() && !stacks {
                        return Err(CliError::NoStacks);
                    }
                    measure::run(how, question).await
                }
            }
        }
    };
}

for_each_kind!(define_command!);

impl From<ckb_probe_kubectl::Outcome> for Outcome {
    fn from(outcome: ckb_probe_kubectl::Outcome) -> Self {
        match outcome {
            ckb_probe_kubectl::Outcome::Well => Self::Measured,
            ckb_probe_kubectl::Outcome::Broken => Self::Said,
        }
    }
}

/// What to measure of a process, and how.
#[derive(Args, Debug)]
struct MeasureArguments<What: Args> {
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    how: HowArguments,
}

#[derive(Args, Debug)]
struct TierArgument {
    /// Attach in this way only: session, uprobe-multi or perf-event. Unset: the best that works.
    #[arg(long)]
    tier: Option<Tier>,
}

#[derive(Args, Debug)]
struct ProcessArguments {
    /// The process to measure, by its process id.
    #[arg(long)]
    pid: Option<u32>,
    /// The process to measure, by the base name of its executable.
    #[arg(long, default_value = "ckb")]
    executable: String,
}

#[derive(Args, Debug)]
struct HowArguments {
    #[command(flatten)]
    process: ProcessArguments,
    #[command(flatten)]
    tier: TierArgument,
    /// How often to print figures, 100ms at the least.
    #[arg(long, default_value = "1s", value_parser = interval)]
    interval: ckb_probe_crds::Duration,
    /// Stop after this time. Unset: at Ctrl-C, or when the process ends.
    #[arg(long)]
    duration: Option<ckb_probe_crds::Duration>,
    #[command(flatten)]
    budget: BudgetArguments,
    /// Wait for the process if it does not run yet.
    #[arg(long, conflicts_with = "pid")]
    wait: bool,
    /// Print each event, such as a slow call, as a JSON line as it happens, instead of the table.
    #[arg(long, visible_alias = "slow")]
    events: bool,
    /// Print each row of each interval as a JSON line instead of the table.
    #[arg(long, conflicts_with = "events")]
    json: bool,
    /// Also export each slow call, block, or whatever else is listed individually, as spans, to a receiver of OTLP such as
    /// http://127.0.0.1:4318. How is said by the environment variables of OpenTelemetry (OTEL_EXPORTER_OTLP_PROTOCOL, _HEADERS and
    /// others), and so is where if this is unset (OTEL_EXPORTER_OTLP_ENDPOINT). With OTEL_METRICS_EXPORTER=otlp figures go there, too.
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Also write the slow calls with their callers to this file (.pb.gz), for a flame graph of their time. Needs --stacks.
    #[arg(short, long)]
    output: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct BudgetArguments {
    /// How much CPU time measuring may cost, in percent of what the process itself uses.
    #[arg(long, default_value_t = Overhead::default().max_percent, value_parser = percent)]
    max_percent: f64,
    /// How much CPU time it may cost besides, in percent of one core, however little the process uses.
    #[arg(long, default_value_t = Overhead::default().floor, value_parser = percent)]
    floor: f64,
    /// What to do when that is not enough: sample (measure busy operations part of the time), detach, or report (measure
    /// everything all of the time).
    #[arg(long, default_value = "sample", value_parser = breach)]
    on_breach: Breach,
}

impl BudgetArguments {
    fn overhead(&self) -> Overhead {
        Overhead {
            max_percent: self.max_percent,
            floor: self.floor,
            on_breach: self.on_breach,
        }
    }
}

/// What a budget is reckoned with: of NaN nothing would be more, and nothing less.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    let percent = percent.filter(|percent: &f64| percent.is_finite() && *percent >= 0.0);
    percent.ok_or_else(|| "it is a number that is not below 0, such as 1 or 0.5".to_string())
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
    #[error(transparent)]
    Cluster(#[from] ckb_probe_kubectl::VerbError),
    #[error("{0}. A process of this host is named with --pid or --executable")]
    Nowhere(#[source] ckb_probe_kubectl::VerbError),
    #[error("{0}")]
    Unmeasurable(#[from] Unmeasurable),
    #[error(transparent)]
    Observe(#[from] ckb_probe_agent::observe::ObserveError),
    #[error(transparent)]
    Symbols(#[from] ckb_probe_agent::observe::SymbolsError),
    #[error(transparent)]
    Functions(#[from] ckb_probe_agent::observe::FunctionsError),
    #[error(transparent)]
    Flames(#[from] FlamesError),
    #[error(transparent)]
    Profiles(#[from] cluster::ClusterError),
    #[error(transparent)]
    Blocks(#[from] blocks::BlocksError),
    #[error(transparent)]
    Record(#[from] record::RecordError),
    #[error("{0}")]
    Which(String),
    #[error("{0} is no pattern: {1}")]
    Glob(String, #[source] ckb_probe_agent::observe::GlobError),
    #[error("cannot wait for signals: {0}")]
    Signal(#[source] std::io::Error),
    #[error("cannot wait for a time: {0}")]
    Alarm(#[source] std::io::Error),
    #[error(transparent)]
    Stacks(#[from] ckb_probe_agent::mechanism::stacks::StacksError),
    #[error("cannot begin to sample: {0}")]
    Thread(#[source] std::io::Error),
    #[error(
        "the files of process {pid} did not answer for {seconds} s, and without them its stacks have no names: see whether a file system \
        hangs from which it has its executable or a library"
    )]
    Silent { pid: u32, seconds: u64 },
    #[error("cannot write to {0}: {1}")]
    Output(String, #[source] std::io::Error),
    #[error(
        "--output takes the stacks of slow calls: it needs --stacks, which rocksdb and functions have"
    )]
    NoStacks,
    #[error(transparent)]
    Account(cost::AccountError),
    #[error(transparent)]
    Settings(#[from] ckb_probe_traces::SettingsError),
    #[error(transparent)]
    Export(#[from] ckb_probe_otlp::ExporterError),
    #[error("cannot print: {0}")]
    Print(#[from] std::io::Error),
}

impl CliError {
    /// Of a verb that would look at a cluster: whoever has none may mean this host, which it looks at, too.
    fn of_cluster(error: ckb_probe_kubectl::VerbError) -> Self {
        match error {
            ckb_probe_kubectl::VerbError::Config(_) => Self::Nowhere(error),
            error => Self::Cluster(error),
        }
    }

    /// Whether whoever reads what is printed went away: it has what it wanted.
    fn has_no_reader(&self) -> bool {
        match self {
            Self::Print(error) | Self::Flames(FlamesError::Print(error)) => {
                error.kind() == std::io::ErrorKind::BrokenPipe
            }
            Self::Cluster(error) => error.has_no_reader(),
            _ => false,
        }
    }
}

/// What the command found, beyond success.
enum Outcome {
    Measured,
    NothingCalled,
    /// Likewise, and why that is.
    Nothing(String),
    CannotMeasure,
    /// Something else, that was said already.
    Said,
}

const NOTHING_CALLED: u8 = 3;

fn arguments() -> Result<Arguments, clap::Error> {
    let mut command = Arguments::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    place::check(&mut command, &matches)?;
    Arguments::from_arg_matches(&matches)
}

fn main() -> ExitCode {
    run_child_if_asked();
    if ckb_probe_kubectl::is_called() {
        return ckb_probe_kubectl::main();
    }
    let arguments = arguments().unwrap_or_else(|error| error.exit());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = runtime.map_err(CliError::from).and_then(|runtime| {
        let result = runtime.block_on(run(arguments.command));
        // What a thread writes to, nobody may ever read.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(Outcome::Measured) => ExitCode::SUCCESS,
        Ok(Outcome::NothingCalled) => {
            eprintln!("ckb-probe: attached, but nothing that is measured happened");
            ExitCode::from(NOTHING_CALLED)
        }
        Ok(Outcome::Nothing(why)) => {
            eprintln!("ckb-probe: {why}");
            ExitCode::from(NOTHING_CALLED)
        }
        Ok(Outcome::CannotMeasure) => {
            eprintln!("ckb-probe: nothing can be measured here: see what is not ok");
            ExitCode::FAILURE
        }
        Ok(Outcome::Said) => ExitCode::FAILURE,
        Err(error) if error.has_no_reader() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ckb-probe: {error}");
            ExitCode::FAILURE
        }
    }
}
