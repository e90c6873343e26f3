//! What tracing another process's system calls costs a bystander, a loop of `getppid`.
//!
//! It stays on one processor after the other, since the peer costs more on one of them: bpftrace opens its tracepoint as a
//! perf event of processor 0, with a period of one, so that there perf goes its whole way at each system call.

use std::thread::available_parallelism;

use super::{
    prelude::*,
    statistics::{mean, ratios},
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

const ALL: [(&str, By); 4] = [
    ("nothing", By::Nothing),
    ("ours", By::Ours),
    ("both", By::Tracepoints),
    ("entry", By::EntryAlone),
];

const ATTACHED: [Row; 6] = table! {
    "nothing attached" = "nothing" in "ns";
    "ckb-probe" = "ours" in "ns";
    "bpftrace's filter at both tracepoints" = "both" in "ns";
    "bpftrace's filter at the entry alone" = "entry" in "ns";
    "ckb-probe against bpftrace's filter at both tracepoints" = "ours / both" in "x", AtMost(1.0);
    "ckb-probe against bpftrace's filter at the entry alone" = "ours / entry" in "x";
};

const SLICED: [Row; 3] = table! {
    "untraced" = "one~other" in "ns";
    "ckb-probe" = "sliced" in "ns";
    "untraced once more, against untraced" = "other / one" in "x";
};

const OF: &str = "syscalls: a bystander's getppid, ";

impl By {
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
    let target = Caller::start()?;
    let bystanders = (0..processors()?).map(Caller::start_on);
    let mut bystanders = bystanders.collect::<Result<Vec<_>>>()?;
    let measure = async |by: By| {
        let probes = by.attach(bench, &target).await?;
        let mut nanos = Vec::new();
        for bystander in &mut bystanders {
            nanos.push(bystander.cost(CALL, CALLS, BATCHES)?);
        }
        if let Some(probes) = probes {
            probes.expect_alive()?;
            probes.stop().await?;
        }
        let means = [("all", mean(&nanos)), ("others", mean(&nanos[1..]))];
        let known = means.into_iter();
        Ok(known.filter_map(|(of, mean)| Some((of, mean?))).collect())
    };
    let series = bench.turns(Order::Rotated, &ALL, measure).await?;
    for (processors, part) in [
        ("mean of all processors", "all"),
        ("all processors but 0", "others"),
    ] {
        let series = series.part(part);
        // There may be no other processor.
        if !series.of("nothing").is_empty() {
            bench.tell(&format!("{OF}{processors}: "), &series, &ATTACHED);
        }
    }
    Ok(())
}

/// With a budget of 1 %: of the time of a process that does nothing but system calls itself.
async fn by_slices(bench: &mut Bench) -> Result<()> {
    let mut target = Caller::start_on(0)?;
    target.begin(CALL, FOR_EVER);
    let mut bystander = Caller::start_on(processors()? - 1)?;
    let window = Duration::from_secs(bench.settings.seconds);
    let measure = async |sliced: bool| {
        if !sliced {
            return Ok(vec![("", for_so_long(&mut bystander, window)?)]);
        }
        let programs = &bench.settings.programs;
        let probes = Probes::begin(programs, KIND, target.process, &JSON)?;
        sleep(SETTLE).await;
        let nanos = for_so_long(&mut bystander, window)?;
        let printed = probes.stop().await?;
        let counted = printed.counted(CALL);
        expect(counted > 0, "slices in which calls are counted", || {
            printed.errors
        })?;
        Ok(vec![("", nanos)])
    };
    let all = [("one", false), ("sliced", true), ("other", false)];
    let series = bench.turns(Order::ToAndFro, &all, measure).await?;
    let of = format!("{OF}budget 1 %: ");
    bench.tell(&of, &series, &SLICED);
    let control = ratios(&series.of("other"), &series.of("one"));
    let spread = control.iter().map(|ratio| (ratio - 1.0).abs());
    let spread = spread.fold(0.0, f64::max);
    let bound = AtMost(((1.01 + spread) * 1000.0).round() / 1000.0);
    let against = Row {
        name: "ckb-probe, against untraced",
        formula: "sliced / one~other",
        unit: "x",
        bound: Some(bound),
    };
    bench.tell(&of, &series, &[against]);
    Ok(())
}

/// The mean over a time: slices come and go.
fn for_so_long(bystander: &mut Caller, window: Duration) -> Result<f64> {
    let (start, mut nanos, mut calls) = (Instant::now(), 0, 0);
    while start.elapsed() < window {
        nanos += bystander.call(CALL, CALLS)?;
        calls += CALLS;
    }
    Ok(nanos as f64 / calls as f64)
}

fn processors() -> Result<usize> {
    let number = available_parallelism().map_err(Failure::system("the number of processors"))?;
    Ok(number.get())
}
