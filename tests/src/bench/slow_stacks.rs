//! What a copy of its stack adds to a slow call: the same call is slow with a copy, slow without one, and not slow. In a row, and each
//! after 4 MiB of memory were written, which is nearer to what slow calls are like: they are rare.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    Bench,
    caller::Caller,
    probes::Probes,
    slow::listed,
    statistics::{rotated, summary},
};
use crate::failure::{Failure, Result, expect};

/// What calls a function that takes 2 µs, and how.
const CALLERS: [(&str, &str); 2] = [
    ("rocksdb_put_cf", "in a row"),
    ("rocksdb_put_cf-cold", "with cold caches"),
];
const OPERATION: &str = "Put";

/// Calls at a time: there is room for 64 copies until they are unwound.
const CALLS: u64 = 48;

/// So many times, of which the median counts; each time all copies are unwound first.
const BATCHES: usize = 20;
const UNWIND: Duration = Duration::from_millis(200);

/// What is compared.
const ALL: [(&str, &[&str]); 3] = [
    ("not slow", &["--slow-threshold", "1h"]),
    ("slow", &["--slow-threshold", "1us"]),
    (
        "slow, with its stack",
        &["--slow-threshold", "1us", "--stacks"],
    ),
];
const SLOW: usize = 1;
const WITH_STACK: usize = 2;

pub async fn run(bench: &mut Bench) -> Result<()> {
    for (caller, how) in CALLERS {
        measure(bench, caller, how).await?;
    }
    Ok(())
}

async fn measure(bench: &mut Bench, caller: &str, how: &str) -> Result<()> {
    let mut target = Caller::start().await?;
    let mut micros = [const { Vec::new() }; ALL.len()];
    for round in 0..bench.settings.rounds {
        for index in rotated(ALL.len(), round) {
            micros[index].push(cost(bench, &mut target, caller, index).await?);
        }
    }
    for ((what, _), micros) in ALL.into_iter().zip(&micros) {
        let name = format!("slow-stacks: a call of 2 µs {how}, {what}");
        bench.figure(&name, summary(micros.iter().copied()), "µs", None);
    }
    let more = |with: usize, without: usize| {
        let pairs = micros[with].iter().zip(&micros[without]);
        summary(pairs.map(|(with, without)| with - without))
    };
    let (listing, copying) = (more(SLOW, 0), more(WITH_STACK, SLOW));
    let name = |what: &str| format!("slow-stacks: {how}, {what}");
    bench.figure(&name("to list a slow call"), listing, "µs", None);
    bench.figure(&name("to copy its stack"), copying, "µs", None);
    Ok(())
}

/// What one call takes, in microseconds.
async fn cost(bench: &Bench, target: &mut Caller, caller: &str, index: usize) -> Result<f64> {
    let (_, how) = ALL[index];
    let options = [
        &["--operations", OPERATION, "--events", "--interval", "1h"],
        how,
    ]
    .concat();
    let programs = &bench.settings.programs;
    let probes = Probes::ckb_probe(programs, "rocksdb", target.process, &options).await?;
    let mut costs = Vec::new();
    for _ in 0..BATCHES {
        costs.push(target.call(caller, CALLS).await? as f64 / CALLS as f64 / 1e3);
        sleep(UNWIND).await;
    }
    let printed = probes.stop().await?;
    let made = CALLS * BATCHES as u64;
    let wanted = |yes: bool| if yes { made } else { 0 };
    let slow = listed(&printed.output);
    let calls = printed.output.lines();
    let with_stack = calls.filter(|line| line.contains("\"stack\"")).count() as u64;
    expect(
        (slow, with_stack) == (wanted(index >= SLOW), wanted(index == WITH_STACK)),
        format!("{made} calls, all of them {}", ALL[index].0),
        || {
            format!(
                "{slow} slow ones, {with_stack} with a stack; {}",
                printed.errors
            )
        },
    )?;
    let median = summary(costs).map(|costs| costs.median);
    median.ok_or_else(|| Failure::format(caller)("it was not called"))
}
