//! What threads wait for, against a program that takes the time of its waits itself.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    super::{Bench, in_folder, statistics::summary},
    Profiling, Stack,
    waits::{WAITS, Waits},
};
use crate::{bpf::Code, failure::Result, report::Bound};

/// How many threads wait.
const THREADS: [usize; 3] = [5, 50, 200];

pub async fn run(bench: &mut Bench) -> Result<()> {
    for threads in THREADS {
        of(bench, threads).await?;
    }
    Ok(())
}

async fn of(bench: &mut Bench, threads: usize) -> Result<()> {
    let file = in_folder(&bench.settings, "synchronised")?;
    let mut waits = Waits::rounds(threads, &file).await?;
    let (mut worst, mut stacks_worst, mut complete) = (Vec::new(), Vec::new(), Vec::new());
    let mut probes = 0;
    for _ in 0..bench.settings.rounds {
        let options = ["--mode", "off-cpu"];
        let profiling =
            Profiling::start(&bench.settings, 1, waits.process, "off.folded", &options).await?;
        let before = waits.told().await?;
        sleep(Duration::from_secs(bench.settings.seconds)).await;
        let after = waits.told().await?;
        if let Ok(code) = Code::of(waits.process) {
            probes += code.probed()?.len();
        }
        let mut stacks = profiling.stop().await?.stacks()?;
        complete.push(stacks.complete());
        stacks.0.retain(|stack| stack.thread == "waiter");
        let spent: Vec<f64> = after
            .spent
            .iter()
            .zip(before.spent)
            .map(|(after, before)| after - before)
            .collect();
        let all: f64 = spent.iter().sum();
        let off = |is_in: &dyn Fn(&Stack, &str) -> bool| {
            let ours: Vec<f64> = WAITS
                .iter()
                .map(|wait| stacks.share(|stack| is_in(stack, wait)))
                .collect();
            let waited: f64 = ours.iter().sum();
            let each = ours.iter().zip(&spent);
            each.map(|(ours, spent)| 100.0 * (ours / waited.max(1e-9) - spent / all))
                .max_by(|one, other| one.abs().total_cmp(&other.abs()))
        };
        // By what is said to be waited for, and by the function that waits.
        worst.extend(off(&|stack, wait| {
            stack.calls.last().is_some_and(|call| call.contains(wait))
        }));
        let function = |wait: &str| format!("in_{wait}");
        stacks_worst.extend(off(&|stack, wait| stack.calls.contains(&function(wait))));
    }
    let interrupted = waits.told().await?.interrupted;
    let name = |what: &str| format!("profile-off-cpu: {threads} threads: {what}");
    let bound = Some(Bound::Within(3.0));
    // Who is woken in fsync and has to wait for a CPU waits for that, and is in fsync by its own clock all the same.
    let what = name("share of what is said to be waited for off by");
    bench.figure(&what, summary(worst), "points", None);
    let what = name("share of a function off by");
    bench.figure(&what, summary(stacks_worst), "points", bound);
    let bound = Some(Bound::AtLeast(99.0));
    bench.figure(&name("complete stacks"), summary(complete), "%", bound);
    let bound = Some(Bound::Exactly(0.0));
    bench.value(
        &name("calls that were interrupted"),
        interrupted as f64,
        "",
        bound,
    );
    bench.value(&name("probes in it"), probes as f64, "", bound);
    Ok(())
}
