//! What probing adds to a call, against the least that it can: empty programs on the same function.
//!
//! The function does nothing, so that what it does itself does not dilute the ratio.

use super::{Tier, caller, prelude::*, probes::Floor};

/// Calls in one batch: a fifth of a second when probed.
pub const CALLS: u64 = 200_000;

/// Batches for each attach; the median of them is the attach's figure.
pub const BATCHES: usize = 5;

/// A function, its operation, and what is said of it.
const FUNCTIONS: [(&str, &str, &str); 2] = [
    (
        "rocksdb_transaction_commit",
        "TxnCommit",
        "counted and timed",
    ),
    (
        "rocksdb_get_pinned_cf",
        "Get",
        "counted, timed and its value's size read",
    ),
];

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Nothing,
    Floor(Floor),
    Tier(Tier),
    Bpftrace,
}

const ALL: [(&str, By); 7] = [
    ("nothing", By::Nothing),
    ("empty", By::Floor(Floor::Empty)),
    ("clock", By::Floor(Floor::Clock)),
    ("session", By::Tier(Tier::Session)),
    ("uprobe-multi", By::Tier(Tier::UprobeMulti)),
    ("perf-event", By::Tier(Tier::PerfEvent)),
    ("bpftrace", By::Bpftrace),
];

const ROWS: [Row; 12] = table! {
    "nothing" = "nothing" in "ns";
    "empty programs" = "empty" in "ns";
    "programs that read the clock" = "clock" in "ns";
    "programs that read the clock, against empty programs" = "clock / empty" in "x";
    "tier session" = "session" in "ns";
    "tier session, against empty programs" = "session / empty" in "x", AtMost(1.10);
    "tier uprobe-multi" = "uprobe-multi" in "ns";
    "tier uprobe-multi, against empty programs" = "uprobe-multi / empty" in "x", AtMost(1.25);
    "tier perf-event" = "perf-event" in "ns";
    "tier perf-event, against empty programs" = "perf-event / empty" in "x";
    "bpftrace's histogram pair" = "bpftrace" in "ns";
    "bpftrace's histogram pair, against empty programs" = "bpftrace / empty" in "x";
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    for (function, operation, what) in FUNCTIONS {
        let mut target = Caller::start()?;
        let cost = async |by| cost(bench, &mut target, by, function, operation).await;
        let series = bench.turns(Order::Rotated, &ALL, cost).await?;
        bench.tell(&format!("call-cost: {operation}, {what}: "), &series, &ROWS);
    }
    Ok(())
}

/// Nanoseconds of a call, probed or not.
async fn cost(
    bench: &Bench,
    target: &mut Caller,
    by: By,
    function: &str,
    operation: &str,
) -> Result<Vec<(&'static str, f64)>> {
    let (process, file) = (target.process, caller::file());
    let functions = [function];
    let probes = match by {
        By::Nothing => None,
        By::Floor(floor) => Some(Probes::floor(floor, process, &file, &functions).await?),
        By::Bpftrace => Some(Probes::bpftrace(&file, &functions).await?),
        By::Tier(tier) => {
            let options = ["--operations", operation, "--tier", tier.name()];
            let options = [&options[..], &["--interval", "1h", "--json"]].concat();
            Some(Probes::ckb_probe(&bench.settings.programs, "rocksdb", process, &options).await?)
        }
    };
    let cost = target.cost(function, CALLS, BATCHES)?;
    let Some(probes) = probes else {
        return Ok(vec![("", cost)]);
    };
    let printed = probes.stop().await?;
    // A probe that did not count was not in place, or not all of the time.
    let counted = match by {
        By::Nothing | By::Floor(_) => None,
        By::Bpftrace => Some(printed.bpftrace_calls()),
        By::Tier(_) => Some(printed.counted(operation)),
    };
    let made = CALLS * BATCHES as u64;
    expect(
        counted.is_none_or(|counted| counted == made),
        format!("{made} calls counted by {by:?}"),
        || format!("{counted:?}; {}", printed.errors),
    )?;
    Ok(vec![("", cost)])
}
