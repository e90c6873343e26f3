//! What threads wait for, against a program that takes the time of its waits itself.

use super::{
    Profiling, Stack,
    answers::{Program, WAITS},
};
use crate::{bench::prelude::*, bpf::Code};

/// How many threads wait.
const THREADS: [usize; 3] = [5, 50, 200];

// Who is woken in fsync and has to wait for a CPU waits for that, and is in fsync by its own clock all the same.
const ROWS: [Row; 5] = table! {
    "share of what is said to be waited for off by" = "said" in "points";
    "share of a function off by" = "function" in "points", Within(3.0);
    "complete stacks" = "complete" in "%", AtLeast(99.0);
    "calls that were interrupted" = "interrupted" in "", Exactly(0.0);
    "probes in it" = "worst probes" in "", Exactly(0.0);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    for threads in THREADS {
        of(bench, threads).await?;
    }
    Ok(())
}

async fn of(bench: &mut Bench, threads: usize) -> Result<()> {
    let file = in_folder(&bench.settings, "synchronised")?;
    let mut waits = Program::that_waits(threads, &file)?;
    let mut series = Series::default();
    let settings = &bench.settings;
    for _ in 0..settings.rounds {
        let (target, options) = (waits.process, ["--mode", "off-cpu"]);
        let profiling = Profiling::start(settings, 1, target, "off.folded", &options).await?;
        let before = waits.ask();
        sleep(Duration::from_secs(settings.seconds)).await;
        let after = waits.ask();
        let probes = match Code::of(target) {
            Ok(code) => code.probed()?.len(),
            Err(_) => 0,
        };
        series.push("probes", probes as f64);
        let mut stacks = profiling.stop().await?.stacks()?;
        series.push("complete", stacks.complete());
        stacks.0.retain(|stack| stack.thread == "waiter");
        let spent = WAITS.map(|wait| Ok(after.number(wait)? - before.number(wait)?));
        let spent: Vec<f64> = spent.into_iter().collect::<Result<_>>()?;
        let all: f64 = spent.iter().sum();
        let off = |is_in: &dyn Fn(&Stack, &str) -> bool| {
            let ours = WAITS.map(|wait| stacks.share(|stack| is_in(stack, wait)));
            let waited: f64 = ours.iter().sum();
            let each = ours.iter().zip(&spent);
            each.map(|(ours, spent)| 100.0 * (ours / waited.max(1e-9) - spent / all))
                .max_by(|one, other| one.abs().total_cmp(&other.abs()))
                .unwrap_or(f64::INFINITY)
        };
        // By what is said to be waited for, and by the function that waits.
        let said = |stack: &Stack, wait: &str| {
            let last = stack.calls.last();
            last.is_some_and(|call| call.contains(wait))
        };
        series.push("said", off(&said));
        let function = |wait: &str| format!("in_{wait}");
        series.push(
            "function",
            off(&|stack, wait| stack.calls.contains(&function(wait))),
        );
    }
    series.push("interrupted", waits.ask().number("interrupted")?);
    bench.tell(
        &format!("profile-off-cpu: {threads} threads: "),
        &series,
        &ROWS,
    );
    Ok(())
}
