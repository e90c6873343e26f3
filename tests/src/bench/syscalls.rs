//! What tracing another process's system calls costs a bystander, a loop of `getppid`.
//!
//! It stays on one processor after the other, since the peer costs more on one of them: bpftrace opens its tracepoint as a
//! perf event of processor 0, with a period of one, so that there perf goes its whole way at each system call.

use std::{
    thread::available_parallelism,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::{
    Bench,
    caller::Caller,
    probes::Probes,
    statistics::{mean, ratios, rotated, summary, to_and_fro},
};
use crate::{
    failure::{Failure, Result, expect},
    report::Bound,
};

const CALL: &str = "getppid";

/// Calls in one batch: a third of a second when traced.
const CALLS: u64 = 1_000_000;

/// Batches on each processor for each attach; the median of them is the attach's figure.
const BATCHES: usize = 3;

/// In a loop that lasts longer than anybody looks.
const FOR_EVER: u64 = 1 << 40;

const KIND: &str = "syscalls";
const JSON: [&str; 3] = ["--interval", "1h", "--json"];

/// A program of ours that every system call passes.
const PROGRAM: &str = "syscall_enter";

/// Until a budget is kept: the first slices find out what there is.
const SETTLE: Duration = Duration::from_secs(3);

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Nothing,
    Ours,
    /// bpftrace by both tracepoints of all system calls, with a filter.
    Tracepoints,
    /// By the one at the entry alone, which cannot tell how long a call takes.
    EntryAlone,
}

const ALL: [By; 4] = [By::Nothing, By::Ours, By::Tracepoints, By::EntryAlone];

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing attached",
            Self::Ours => "ckb-probe",
            Self::Tracepoints => "bpftrace's filter at both tracepoints",
            Self::EntryAlone => "bpftrace's filter at the entry alone",
        }
    }

    /// Traces the system calls of a process that makes none.
    async fn attach(self, bench: &Bench, target: &Caller) -> Result<Option<Probes>> {
        let pid = target.process.pid;
        let filter = format!("/pid == {pid}/ {{ @[probe] = count(); }}");
        let (entry, exit) = (
            "tracepoint:raw_syscalls:sys_enter",
            "tracepoint:raw_syscalls:sys_exit",
        );
        Ok(Some(match self {
            Self::Nothing => return Ok(None),
            Self::Ours => {
                let options = [&JSON[..], &["--on-breach", "report"]].concat();
                let programs = &bench.settings.programs;
                Probes::of_kind(programs, KIND, PROGRAM, target.process, &options).await?
            }
            Self::Tracepoints => Probes::script(&format!("{entry}, {exit} {filter}"), 2).await?,
            Self::EntryAlone => Probes::script(&format!("{entry} {filter}"), 1).await?,
        }))
    }
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    attached(bench).await?;
    by_slices(bench).await
}

/// All of the time.
async fn attached(bench: &mut Bench) -> Result<()> {
    let target = Caller::start().await?;
    let mut bystanders = Vec::new();
    for processor in 0..processors()? {
        bystanders.push(Caller::start_on(processor).await?);
    }
    let mut means = [const { Vec::new() }; ALL.len()];
    let mut elsewhere = [const { Vec::new() }; ALL.len()];
    for round in 0..bench.settings.rounds {
        for index in rotated(ALL.len(), round) {
            let probes = ALL[index].attach(bench, &target).await?;
            let mut nanos = Vec::new();
            for bystander in &mut bystanders {
                nanos.push(bystander.cost(CALL, CALLS, BATCHES).await?);
            }
            if let Some(probes) = probes {
                probes.expect_alive()?;
                probes.stop().await?;
            }
            means[index].extend(mean(&nanos));
            elsewhere[index].extend(mean(&nanos[1..]));
        }
    }
    add(bench, "mean of all processors", &means);
    add(bench, "all processors but 0", &elsewhere);
    Ok(())
}

fn add(bench: &mut Bench, processors: &str, nanos: &[Vec<f64>; ALL.len()]) {
    // There may be no other.
    if nanos[0].is_empty() {
        return;
    }
    let name = |what: String| format!("syscalls: a bystander's getppid, {processors}: {what}");
    for (by, nanos) in ALL.into_iter().zip(nanos) {
        let name = name(by.name().to_string());
        bench.figure(&name, summary(nanos.iter().copied()), "ns", None);
    }
    let [_, ours, peers @ ..] = nanos;
    for (by, peer) in ALL[2..].iter().zip(peers) {
        let name = name(format!("ckb-probe against {}", by.name()));
        let bound = (*by == By::Tracepoints).then_some(Bound::AtMost(1.0));
        bench.figure(&name, summary(ratios(ours, peer)), "x", bound);
    }
}

/// With a budget of 1 %: of the time of a process that does nothing but system calls itself.
async fn by_slices(bench: &mut Bench) -> Result<()> {
    let mut target = Caller::start_on(0).await?;
    target.begin(CALL, FOR_EVER).await?;
    let mut bystander = Caller::start_on(processors()? - 1).await?;
    let window = Duration::from_secs(bench.settings.seconds);
    let mut nanos = [const { Vec::new() }; 3];
    for round in 0..bench.settings.rounds {
        for index in to_and_fro(nanos.len(), round) {
            let probes = if index == 1 {
                let programs = &bench.settings.programs;
                let probes = Probes::begin(programs, KIND, target.process, &JSON)?;
                sleep(SETTLE).await;
                Some(probes)
            } else {
                None
            };
            nanos[index].push(for_so_long(&mut bystander, window).await?);
            if let Some(probes) = probes {
                let printed = probes.stop().await?;
                let counted = printed.counted(CALL);
                expect(counted > 0, "slices in which calls are counted", || {
                    printed.errors
                })?;
            }
        }
    }
    let [one, sliced, other] = &nanos;
    let untraced: Vec<f64> = one.iter().zip(other).map(|(a, b)| (a + b) / 2.0).collect();
    let control = ratios(other, one);
    let spread = control.iter().map(|ratio| (ratio - 1.0).abs());
    let spread = spread.fold(0.0, f64::max);
    let name = |what: &str| format!("syscalls: a bystander's getppid, budget 1 %: {what}");
    let mut add = |what, values: &[f64], unit, bound| {
        bench.figure(&name(what), summary(values.iter().copied()), unit, bound);
    };
    add("untraced", &untraced, "ns", None);
    add("ckb-probe", sliced, "ns", None);
    add("untraced once more, against untraced", &control, "x", None);
    let bound = Bound::AtMost(((1.01 + spread) * 1000.0).round() / 1000.0);
    let against = "ckb-probe, against untraced";
    add(against, &ratios(sliced, &untraced), "x", Some(bound));
    Ok(())
}

/// The mean over a time: slices come and go.
async fn for_so_long(bystander: &mut Caller, window: Duration) -> Result<f64> {
    let (start, mut nanos, mut calls) = (Instant::now(), 0, 0);
    while start.elapsed() < window {
        nanos += bystander.call(CALL, CALLS).await?;
        calls += CALLS;
    }
    Ok(nanos as f64 / calls as f64)
}

fn processors() -> Result<usize> {
    let number = available_parallelism().map_err(Failure::system("the number of processors"))?;
    Ok(number.get())
}
