//! The verbs of ckb-probe that only talk to a cluster. `ckb-probe` has them beside its own; as `kubectl ckbprobe` (a program whose name is
//! `kubectl-ckbprobe`) there are no others.
//!
//! What is decided is decided by `ckb-probe-views`, which has no client. Here are the client, the clock and the terminal.

pub mod blocks;
pub mod commands;
mod completion;
mod connection;
mod cost;
pub mod diff;
mod doctor;
mod error;
pub mod flamegraph;
pub mod flames;
mod gather;
pub mod heatmap;
pub mod histogram;
mod interrupts;
mod prometheus;
pub mod report;
pub mod slow;
mod suspension;
mod terminal;
pub mod top;
mod trial;
mod windows;

use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use ckb_probe_views::{
    diagnosis::Diagnosis,
    document::{Distribution, Document, View},
    text::Detail,
};

pub use completion::COMPLETER;
pub use connection::ClusterArguments;
pub use cost::CostArguments;
pub use error::{Forbidden, VerbError};
pub use suspension::{is_resumable, stop, stop_until_it_may_draw};
pub use terminal::{
    TerminalError, check as check_terminal, columns as terminal_columns, show as show_on_terminal,
};
pub use windows::ProgressLine;

use flamegraph::FlamegraphArguments;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

/// Prints all of it, now.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A document for each of these, in a line.
pub(crate) fn documents(all: &[Distribution]) -> String {
    let documents = all
        .iter()
        .cloned()
        .map(View::Distribution)
        .map(Document::of);
    documents.map(|document| document.line() + "\n").collect()
}

/// Under this name it is kubectl's.
pub const PLUGIN: &str = "kubectl-ckbprobe";

/// Finds out why a CKB node on Kubernetes is slow.
#[derive(Debug, Parser)]
#[command(
    name = PLUGIN,
    bin_name = "kubectl ckbprobe",
    version,
    after_help = EXAMPLES
)]
pub struct Program {
    #[command(subcommand)]
    verb: PluginVerb,
}

/// What is said at the end of `--help`.
pub const EXAMPLES: &str = "Examples:\n  \
    kubectl ckbprobe try storage -n ckb -l app=ckb\n                                                \
    how long do reads, writes and commits take? for five minutes\n  \
    kubectl ckbprobe doctor -n ckb                is everything as it should be? what is broken first?\n  \
    kubectl ckbprobe doctor ckb -n ckb -o short   of one CkbProbe, a line for each that is not\n  \
    kubectl ckbprobe slow ckb -n ckb              slow calls as they come\n  \
    kubectl ckbprobe top -n ckb                   what each target does, live\n  \
    kubectl ckbprobe histogram ckb -n ckb --row Get\n  \
    kubectl ckbprobe heatmap ckb Get -n ckb       the same over time\n  \
    kubectl ckbprobe blocks ckb -n ckb --watch    what each block cost\n  \
    kubectl ckbprobe flamegraph ckb -n ckb --open where the time goes, in a browser\n  \
    kubectl ckbprobe threads ckb -n ckb           what each thread does\n  \
    kubectl ckbprobe diff ckb -n ckb              what became of one window in the next, and what is noise\n  \
    kubectl ckbprobe cost ckb -n ckb --ab 10m     what does measuring cost here? with and without it by turns\n  \
    kubectl ckbprobe report ckb -n ckb --prometheus http://127.0.0.1:9090 -o report.html\n                                                \
    one page of what a Prometheus has kept of the last day\n\n\
    Exit codes: 0 as it should be; 1 not; 2 wrong arguments.";

/// What only talks to a cluster. `cost` of a CkbProbe does, too: on a host it is one of the things whose cost `ckb-probe cost` measures.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Measure what a preset asks of some pods, show it, and take it away again.
    Try(Box<trial::TryArguments>),
    /// Look at each place from the API server to the figures: what is broken first, and what to type next.
    Doctor(doctor::DoctorArguments),
    /// Complete verbs and names: a script for a shell, or links for kubectl.
    Completion(completion::CompletionArguments),
    /// Write manual pages, one for each verb.
    Man(completion::ManArguments),
}

/// All verbs of the plugin. On hosts those that are not [`Verb`]s measure a process, too, or read a file.
#[derive(Debug, Subcommand)]
pub enum PluginVerb {
    /// Those that hosts have as they are.
    #[command(flatten)]
    Verb(Verb),
    /// Show slow calls, and whatever else is listed individually, as they come.
    #[command(after_help = slow::EXAMPLES)]
    Slow(slow::SlowArguments),
    /// Show live what each row of each target does: rate, p99, share of time, and the last minutes.
    #[command(after_help = top::EXAMPLES)]
    Top(top::TopArguments),
    /// Show how the durations of a row are distributed.
    #[command(after_help = histogram::EXAMPLES)]
    Histogram(histogram::HistogramArguments),
    /// Show how the durations of a row are distributed over time.
    #[command(after_help = heatmap::EXAMPLES)]
    Heatmap(heatmap::HeatmapArguments),
    /// Show what blocks cost, by their height: the newest and the slowest.
    #[command(after_help = blocks::EXAMPLES)]
    Blocks(blocks::BlocksArguments),
    /// Show, save or open where the time or the memory of a CkbProbe's targets goes, by stack.
    #[command(after_help = flamegraph::EXAMPLES)]
    Flamegraph(Box<flamegraph::FlamegraphArguments>),
    /// Show what each thread of a CkbProbe's targets did at the end of a window, and what it waited for.
    #[command(after_help = flamegraph::THREADS)]
    Threads(Box<flamegraph::ThreadsArguments>),
    /// Compare two windows of stacks, of one CkbProbe or of two, or files: what grew, what shrank, what is new, what is gone, and what
    /// is noise.
    #[command(after_help = diff::EXAMPLES)]
    Diff(Box<diff::DiffArguments>),
    /// Measure what a CkbProbe costs its targets, with and without it by turns, and say whether that is more than noise.
    Cost(Box<CostArguments>),
    /// Make one page, or Markdown, of what a Prometheus that scrapes the agents has kept of a CkbProbe: what was measured and how truly,
    /// rates, heat maps, what measuring cost, what was not as usual, and how it differs from an earlier time.
    #[command(after_help = report::EXAMPLES)]
    Report(Box<report::ReportArguments>),
}

/// How something is printed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// All of it, for people.
    #[default]
    Full,
    /// What is not as it should be, a line each.
    Short,
    /// For programs: a line of JSON, in the form that docs/reference/view.schema.json has.
    Json,
}

impl Output {
    /// What was found, on standard output.
    pub fn print(self, found: &Diagnosis) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self {
            Self::Full => write!(out, "{}", found.text(Detail::Full))?,
            Self::Short => write!(out, "{}", found.text(Detail::Short))?,
            Self::Json => {
                let document = Document::of(View::Diagnosis(found.clone()));
                writeln!(out, "{}", document.line())?;
            }
        }
        out.flush()
    }
}

/// What a verb found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// All is as it should be.
    Well,
    /// Something is not, and that was said.
    Broken,
}

impl Verb {
    /// Does it. `root` is the whole command line, which shells are told of.
    pub async fn run(&self, root: fn() -> clap::Command) -> Result<Outcome, VerbError> {
        match self {
            Self::Try(arguments) => trial::run(arguments).await,
            Self::Doctor(arguments) => doctor::run(arguments).await,
            Self::Completion(arguments) => completion::run(arguments, root()),
            Self::Man(arguments) => completion::man(arguments, root()),
        }
    }
}

impl PluginVerb {
    async fn run(&self, root: fn() -> clap::Command) -> Result<Outcome, VerbError> {
        match self {
            Self::Verb(verb) => verb.run(root).await,
            Self::Slow(arguments) => {
                let name = arguments.name.as_deref();
                slow::run(name, &arguments.cluster, &arguments.how).await
            }
            Self::Top(arguments) => top::run(arguments).await,
            Self::Histogram(arguments) => {
                histogram::run(&arguments.name, &arguments.cluster, &arguments.how).await
            }
            Self::Heatmap(arguments) => {
                let row = arguments.row.as_deref();
                heatmap::run(&arguments.name, row, &arguments.cluster, &arguments.how).await
            }
            Self::Blocks(arguments) => blocks::run(&arguments.name, &arguments.how).await,
            Self::Flamegraph(arguments) => {
                let FlamegraphArguments {
                    name,
                    which,
                    cluster,
                    how,
                } = &**arguments;
                flamegraph::run(name, which.as_ref(), cluster, how).await
            }
            Self::Threads(arguments) => {
                let target = arguments.target.as_deref();
                flamegraph::threads(&arguments.name, target, &arguments.cluster, &arguments.how)
                    .await
            }
            Self::Diff(arguments) => diff::run(arguments).await,
            Self::Cost(arguments) => arguments.run().await,
            Self::Report(arguments) => {
                let report::ReportArguments {
                    name,
                    cluster,
                    prometheus,
                    which,
                    files,
                } = &**arguments;
                report::run(name, cluster, prometheus, which, files).await
            }
        }
    }
}

/// Whether this program was called by one of kubectl's names for it.
pub fn is_called() -> bool {
    [PLUGIN, COMPLETER].iter().any(|name| is_called_as(name))
}

fn is_called_as(wanted: &str) -> bool {
    let name = std::env::args_os().next();
    let name = name.as_deref().map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| name == wanted)
}

/// The whole of `kubectl-ckbprobe`, and of what kubectl asks for completions.
pub fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = runtime.map_err(VerbError::Print).and_then(|runtime| {
        if is_called_as(COMPLETER) {
            let words: Vec<String> = std::env::args().skip(1).collect();
            let root = Program::command();
            return runtime.block_on(completion::candidates(&root, &words));
        }
        runtime.block_on(Program::parse().verb.run(Program::command))
    });
    exit_code(&result)
}

/// What the shell is told; and whoever reads, of an error.
pub fn exit_code(result: &Result<Outcome, VerbError>) -> ExitCode {
    match result {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::Broken) => ExitCode::FAILURE,
        Err(error) if error.has_no_reader() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ckbprobe: {error}");
            ExitCode::FAILURE
        }
    }
}
