//! What probing adds to a call, against the least that it can: empty programs on the same function.
//!
//! The function does nothing, so that what it does itself does not dilute the ratio.

use super::{
    Bench, Tier,
    caller::{self, Caller},
    probes::{Floor, Probes},
    statistics::{ratios, rotated, summary},
};
use crate::{
    failure::{Result, expect},
    report::Bound,
};

/// Calls in one batch: a fifth of a second when probed.
const CALLS: u64 = 200_000;

/// Batches for each attach; the median of them is the attach's figure.
const BATCHES: usize = 5;

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

const ALL: [By; 7] = [
    By::Nothing,
    By::Floor(Floor::Empty),
    By::Floor(Floor::Clock),
    By::Tier(Tier::Session),
    By::Tier(Tier::UprobeMulti),
    By::Tier(Tier::PerfEvent),
    By::Bpftrace,
];

impl By {
    fn name(self) -> String {
        match self {
            Self::Nothing => "nothing".to_string(),
            Self::Floor(Floor::Empty) => "empty programs".to_string(),
            Self::Floor(Floor::Clock) => "programs that read the clock".to_string(),
            Self::Tier(tier) => format!("tier {}", tier.name()),
            Self::Bpftrace => "bpftrace's histogram pair".to_string(),
        }
    }

    fn bound(self) -> Option<Bound> {
        match self {
            Self::Tier(Tier::Session) => Some(Bound::AtMost(1.10)),
            Self::Tier(Tier::UprobeMulti) => Some(Bound::AtMost(1.25)),
            _ => None,
        }
    }
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    for (function, operation, what) in FUNCTIONS {
        let mut target = Caller::start().await?;
        let mut nanos = [const { Vec::new() }; ALL.len()];
        for round in 0..bench.settings.rounds {
            for index in rotated(ALL.len(), round) {
                nanos[index].push(cost(bench, &mut target, ALL[index], function, operation).await?);
            }
        }
        let floor = &nanos[1];
        for (by, nanos) in ALL.into_iter().zip(&nanos) {
            let name = format!("call-cost: {operation}, {what}: {}", by.name());
            bench.figure(&name, summary(nanos.iter().copied()), "ns", None);
            if !matches!(by, By::Nothing | By::Floor(Floor::Empty)) {
                let name = format!("{name}, against empty programs");
                bench.figure(&name, summary(ratios(nanos, floor)), "x", by.bound());
            }
        }
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
) -> Result<f64> {
    let (process, file) = (target.process, caller::file());
    let functions = [function];
    let probes = match by {
        By::Nothing => None,
        By::Floor(floor) => Some(Probes::floor(floor, process, &file, &functions).await?),
        By::Bpftrace => Some(Probes::bpftrace(&file, &functions).await?),
        By::Tier(tier) => {
            let options = [
                "--operations",
                operation,
                "--interval",
                "1h",
                "--json",
                "--tier",
                tier.name(),
            ];
            Some(Probes::ckb_probe(&bench.settings.programs, "rocksdb", process, &options).await?)
        }
    };
    let cost = target.cost(function, CALLS, BATCHES).await?;
    let printed = match probes {
        Some(probes) => probes.stop().await?,
        None => return Ok(cost),
    };
    // A probe that did not count was not in place, or not all of the time.
    let counted = match by {
        By::Nothing | By::Floor(_) => None,
        By::Bpftrace => Some(printed.bpftrace_calls()),
        By::Tier(_) => Some(printed.counted(operation)),
    };
    let made = CALLS * BATCHES as u64;
    expect(
        counted.is_none_or(|counted| counted == made),
        format!("{made} calls counted by {}", by.name()),
        || format!("{counted:?}; {}", printed.errors),
    )?;
    Ok(cost)
}
