//! Who touches memory first, against a program that knows where it grows.

use super::{Profiling, Stack, answers::Program};
use crate::bench::prelude::*;

/// In these it grows; in all others it does not.
const LEAKS: [(&str, &str); 2] = [("leak_most", "most"), ("leak_least", "least")];

const ROWS: [Row; 4] = table! {
    "share of a caller off by" = "off" in "points", Within(3.0);
    "all that is told, of what it grew by" = "told" in "%";
    "complete stacks" = "complete" in "%", AtLeast(99.0);
    "calls of malloc" = "calls" in "million/s";
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let settings = &bench.settings;
    let window = Duration::from_secs(settings.seconds);
    let mut series = Series::default();
    for _ in 0..settings.rounds {
        let mut program = Program::start("leaks", &[])?;
        let (target, options) = (program.process, ["--mode", "memory"]);
        let profiling = Profiling::start(settings, 1, target, "memory.folded", &options).await?;
        let before = program.ask();
        sleep(window).await;
        let after = program.ask();
        let stacks = profiling.stop().await?.stacks()?;
        let more = |name| -> Result<f64> { Ok(after.number(name)? - before.number(name)?) };
        let grown = [more(LEAKS[0].1)?, more(LEAKS[1].1)?];
        let all: f64 = grown.iter().sum();
        let is_in = |stack: &Stack, name: &str| stack.calls.iter().any(|call| call == name);
        // Of all that was touched: what was touched by others is off, too.
        let off = LEAKS.iter().zip(grown).map(|((function, _), grown)| {
            stacks.share(|stack| is_in(stack, function)) - 100.0 * grown / all
        });
        let worst = off.max_by(|one, other| one.abs().total_cmp(&other.abs()));
        series.push("off", worst.unwrap_or(f64::INFINITY));
        // The window of the one is somewhat longer than that of the other.
        series.push("told", 100.0 * stacks.total() / all);
        series.push("calls", more("calls")? / window.as_secs_f64() / 1e6);
        series.push("complete", stacks.complete());
    }
    bench.tell("profile-memory: growth amid churn: ", &series, &ROWS);
    Ok(())
}
