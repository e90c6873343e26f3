//! The benchmark: what probing costs, and how true its figures are. docs/performance.md explains the method.
//!
//! What is measured are the programs as they are released, each as a process of its own: `node-agent`, with an API server
//! of ours to take its orders from, and the command line `ckb-probe`. Nothing of them is linked into the benchmark, but the
//! operator's functions that make orders of CkbProbes.

use std::{
    ffi::OsStr,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
};

use ckb_probe_testkit::Container;
use futures::{FutureExt as _, future::LocalBoxFuture};
use tokio::process::Command;

use crate::{
    failure::{Failure, Result},
    report::Bound,
};

mod account;
mod agent;
mod api;
mod block_io;
mod call_cost;
mod caller;
mod chain;
mod crowded;
mod execs;
mod figures;
mod footprint;
mod functions;
mod hostile;
mod identical;
mod import;
mod kills;
pub mod machine;
mod mining;
mod node;
mod prelude;
mod probes;
mod processes;
mod profile;
mod quantiles;
mod reasons;
pub mod report;
mod restarts;
mod sites;
mod slow;
mod slow_stacks;
mod stability;
pub(crate) mod statistics;
mod syscalls;
mod table;
mod tcp;
mod ticker;
mod truth;

use report::Report;
use statistics::Summary;

/// How thoroughly to measure, and what with.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How often each comparison is repeated.
    pub rounds: usize,
    /// Seconds of the measurements that take a certain time.
    pub seconds: u64,
    /// How long a node is watched that is to wear out.
    pub hours: f64,
    /// How often a target is restarted.
    pub restarts: usize,
    /// How often an agent is killed.
    pub kills: usize,
    /// The folder of `node-agent` and `ckb-probe`.
    pub programs: PathBuf,
    /// The node.
    pub ckb: PathBuf,
    /// The same, built with its feature `profiling`; `jeprof` is beside it.
    pub ckb_profiling: PathBuf,
    /// A folder that scripts/build-chain.sh made.
    pub chain: PathBuf,
    /// Another one, with `--scripts`.
    pub scripts: PathBuf,
    /// Where to write to.
    pub folder: PathBuf,
}

/// A running benchmark.
pub struct Bench {
    /// How it is to be run.
    pub settings: Settings,
    /// What it has found.
    pub report: Report,
}

/// A way to attach, by its name in statuses and on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    Session,
    UprobeMulti,
    PerfEvent,
}

impl Tier {
    fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::UprobeMulti => "uprobe-multi",
            Self::PerfEvent => "perf-event",
        }
    }
}

/// Rows that are measured together.
pub struct Family {
    /// Its name on the command line, and what the names of its rows begin with.
    pub name: &'static str,
    /// What it measures, in a sentence.
    pub about: &'static str,
    run: for<'a> fn(&'a mut Bench) -> LocalBoxFuture<'a, Result<()>>,
}

macro_rules! families {
    ($($name:literal: $module:ident $(:: $run:ident)+, $about:literal;)*) => {
        &[$(Family {
            name: $name,
            about: $about,
            run: |bench| Box::pin($module $(:: $run)+ (bench)),
        }),*]
    };
}

/// All of them, in the order in which they are measured.
pub const ALL: &[Family] = families! {
    "call-cost": call_cost::run, "what probing adds to a call, against empty programs";
    "import": import::run, "a CKB import, probed in several ways; sampled against full tracing";
    "mining": mining::run, "a CKB node that mines at a steady rate";
    "quantiles": quantiles::run, "quantiles against a program that knows them";
    "truth": truth::run, "counts that are sampled, of steady loads and of bursts, against a program that counts";
    "slow": slow::run, "more slow calls than the ring buffer can take";
    "slow-stacks": slow_stacks::run, "what a copy of its stack adds to a slow call";
    "functions": functions::run, "a call under our functions, against bpftrace's histogram pair";
    "kernel-functions": functions::run_of_kernel, "the same for a function of the kernel";
    "syscalls": syscalls::run, "what others pay while a process's system calls are traced";
    "block-io": block_io::run, "requests against /proc/diskstats and bpftrace";
    "tcp": tcp::run, "10,000 sockets of one process";
    "processes": processes::run, "10,000 execs and ends, of a bystander and of a target";
    "agent": footprint::run, "what the agent itself uses";
    "identical": identical::run, "a hundred CkbProbes that ask the same of a process, against one";
    "hostile": hostile::run, "nine targets and who asks after the agent's health, beside a target whose file system has fallen silent";
    "crowded": crowded::run, "what the agent takes while a namespace asks 128 probes of a process of 30,000 deep threads";
    "execs": execs::run, "what the agent uses while others execute files of its targets' name";
    "restarts": restarts::run, "how soon a restarted target is counted, and what is left behind";
    "kills": kills::run, "what a killed agent leaves behind";
    "stability": stability::run, "a node that mines for hours: alone, within the budget, and asked everything";
    "profile-complete": profile::complete::run, "stacks of a CKB node that reach to where their thread began";
    "profile-perf": profile::peer::run, "in which functions an import spends its time, against perf";
    "profile-vm": profile::vm::run, "stacks through CKB-VM's interpreter in assembly, in a program and in a node";
    "profile-off-cpu": profile::off_cpu::run, "what is waited for, against a program that knows it";
    "profile-memory": profile::memory::run, "who touches memory first, against a program that knows where it grows";
    "profile-allocations": profile::allocations::run, "who allocates in a CKB import, against jemalloc's own profiles";
    "profile-threads": profile::threads::run, "a dump of 200 threads, against gdb";
    "profile-cost": profile::cost::run, "a CKB import, profiled in several ways";
    "profile-agent": profile::agent::run, "what profiling itself uses";
    "profile-bystander": profile::bystander::run, "what sampling costs a process that is not sampled";
};

impl Bench {
    /// Measures a family. Whatever becomes of it, the next can be measured.
    pub async fn measure(&mut self, family: &Family) {
        println!(
            "{:7.1} s  {}: {}",
            self.report.elapsed().as_secs_f64(),
            family.name,
            family.about
        );
        // What the tests of all crates stand on panics.
        let measured = AssertUnwindSafe((family.run)(self)).catch_unwind().await;
        let failure = match measured {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => match panic.downcast_ref::<String>() {
                Some(said) => said.clone(),
                None => "it panicked: see above".to_string(),
            },
        };
        self.report.failure(family.name, failure);
    }

    /// Adds a figure to the report.
    fn figure(&mut self, name: &str, figure: Option<Summary>, unit: &str, bound: Option<Bound>) {
        match figure {
            Some(figure) => self.report.figure(name, figure, unit, bound),
            None => self.report.failure(name, "no value"),
        }
    }

    /// Adds a single value to the report.
    fn value(&mut self, name: &str, value: f64, unit: &str, bound: Option<Bound>) {
        self.report.value(name, value, unit, bound);
    }
}

/// A command that runs in a container, and ends when it is dropped.
fn command(
    container: &Container,
    program: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Command {
    let mut command = Command::from(container.command(program, arguments));
    command.kill_on_drop(true);
    command
}

/// A file of the benchmark's folder.
fn in_folder(settings: &Settings, name: &str) -> Result<PathBuf> {
    std::fs::create_dir_all(&settings.folder).map_err(Failure::at(&settings.folder))?;
    Ok(settings.folder.join(name))
}
