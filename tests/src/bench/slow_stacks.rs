//! What a copy of its stack adds to a slow call: the same call is slow with a copy, slow without one, and not slow. In a row, and each
//! after 4 MiB of memory were written, which is nearer to what slow calls are like: they are rare.

use super::{prelude::*, slow::listed};

/// What calls a function that takes 2 µs, and how.
const CALLERS: [(&str, &str); 2] = [
    ("rocksdb_put_cf", "in a row"),
    ("rocksdb_put_cf-cold", "with cold caches"),
];

/// Calls at a time: there is room for 64 copies until they are unwound.
const CALLS: u64 = 48;

/// So many times, of which the median counts; each time all copies are unwound first.
const BATCHES: usize = 20;
const UNWIND: Duration = Duration::from_millis(200);

/// What is compared.
const ALL: [(&str, &[&str]); 3] = [
    ("not", &["--slow-threshold", "1h"]),
    ("slow", &["--slow-threshold", "1us"]),
    ("stack", &["--slow-threshold", "1us", "--stacks"]),
];

const CALL: [Row; 3] = table! {
    "not slow" = "not" in "µs";
    "slow" = "slow" in "µs";
    "slow, with its stack" = "stack" in "µs";
};

const MORE: [Row; 2] = table! {
    "to list a slow call" = "slow - not" in "µs";
    "to copy its stack" = "stack - slow" in "µs";
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    for (caller, how) in CALLERS {
        let mut target = Caller::start()?;
        let cost = async |options| cost(bench, &mut target, caller, options).await;
        let series = bench.turns(Order::Rotated, &ALL, cost).await?;
        let call = format!("slow-stacks: a call of 2 µs {how}, ");
        bench.tell(&call, &series, &CALL);
        bench.tell(&format!("slow-stacks: {how}, "), &series, &MORE);
    }
    Ok(())
}

/// What one call takes, in microseconds.
async fn cost(
    bench: &Bench,
    target: &mut Caller,
    caller: &str,
    options: &[&str],
) -> Result<Vec<(&'static str, f64)>> {
    let kind = ["--operations", "Put", "--events", "--interval", "1h"];
    let (programs, all) = (&bench.settings.programs, [&kind, options].concat());
    let probes = Probes::ckb_probe(programs, "rocksdb", target.process, &all).await?;
    let mut costs = Vec::new();
    for _ in 0..BATCHES {
        costs.push(target.call(caller, CALLS)? as f64 / CALLS as f64 / 1e3);
        sleep(UNWIND).await;
    }
    let printed = probes.stop().await?;
    let made = |yes| if yes { CALLS * BATCHES as u64 } else { 0 };
    let calls = printed.output.lines();
    let with_stack = calls.filter(|line| line.contains("\"stack\"")).count() as u64;
    let seen = [listed(&printed.output), with_stack];
    let expected = [options != ALL[0].1, options == ALL[2].1].map(made);
    expect(
        seen == expected,
        format!("slow ones, and those with a stack: {expected:?}"),
        || format!("{seen:?}; {}", printed.errors),
    )?;
    let median = summary(costs).map(|costs| costs.median);
    let median = median.ok_or_else(|| Failure::format(caller)("it was not called"))?;
    Ok(vec![("", median)])
}
