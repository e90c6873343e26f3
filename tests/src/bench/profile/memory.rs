//! Who touches memory first, against a program that knows where it grows.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    super::{Bench, statistics::summary},
    Profiling, Stack,
    answers::Program,
};
use crate::{failure::Result, report::Bound};

/// In these it grows; in all others it does not.
const LEAKS: [(&str, &str); 2] = [("leak_most", "most"), ("leak_least", "least")];

pub async fn run(bench: &mut Bench) -> Result<()> {
    let window = Duration::from_secs(bench.settings.seconds);
    let (mut worst, mut told, mut calls, mut complete) = (vec![], vec![], vec![], vec![]);
    for _ in 0..bench.settings.rounds {
        let mut program = Program::start("leaks", &[]).await?;
        let options = ["--mode", "memory"];
        let profiling = Profiling::start(
            &bench.settings,
            1,
            program.process,
            "memory.folded",
            &options,
        )
        .await?;
        let before = program.ask().await?;
        sleep(window).await;
        let after = program.ask().await?;
        let stacks = profiling.stop().await?.stacks()?;
        let more =
            |name: &str| -> Result<f64> { Ok((after.number(name)? - before.number(name)?) as f64) };
        let grown = [more(LEAKS[0].1)?, more(LEAKS[1].1)?];
        let all: f64 = grown.iter().sum();
        let is_in = |stack: &Stack, name: &str| stack.calls.iter().any(|call| call == name);
        // Of all that was touched: what was touched by others is off, too.
        let off = LEAKS.iter().zip(grown).map(|((function, _), grown)| {
            stacks.share(|stack| is_in(stack, function)) - 100.0 * grown / all
        });
        worst.extend(off.max_by(|one, other| one.abs().total_cmp(&other.abs())));
        told.push(100.0 * stacks.total() / all);
        calls.push(more("calls")? / window.as_secs_f64() / 1e6);
        complete.push(stacks.complete());
    }
    let name = |what: &str| format!("profile-memory: growth amid churn: {what}");
    let bound = Some(Bound::Within(3.0));
    bench.figure(
        &name("share of a caller off by"),
        summary(worst),
        "points",
        bound,
    );
    // The window of the one is somewhat longer than that of the other.
    bench.figure(
        &name("all that is told, of what it grew by"),
        summary(told),
        "%",
        None,
    );
    let bound = Some(Bound::AtLeast(99.0));
    bench.figure(&name("complete stacks"), summary(complete), "%", bound);
    bench.figure(&name("calls of malloc"), summary(calls), "million/s", None);
    Ok(())
}
