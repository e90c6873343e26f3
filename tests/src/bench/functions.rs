//! What a call costs under the kind `functions`, against bpftrace's usual histogram pair on the same function.
//!
//! As in call-cost the function does nothing, so that what it does itself does not dilute the ratio.

use super::{
    Bench,
    caller::{self, Caller},
    probes::{Printed, Probes},
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

const FUNCTION: &str = "rocksdb_transaction_commit";

/// Somebody's functions, and two who make a histogram of them.
pub trait Subject {
    /// The family.
    const FAMILY: &'static str;
    /// What the program `call-cost` is told to call.
    const CALL: &'static str;
    /// What is probed thereby.
    const FUNCTION: &'static str;

    /// Has `ckb-probe` measure it, and returns when it does, and how much it has counted by then.
    async fn ours(bench: &Bench, caller: &mut Caller) -> Result<(Probes, u64)>;

    /// The same for bpftrace.
    async fn theirs(caller: &Caller) -> Result<Probes>;
}

struct UserFunction;

impl Subject for UserFunction {
    const FAMILY: &'static str = "functions";
    const CALL: &'static str = FUNCTION;
    const FUNCTION: &'static str = FUNCTION;

    async fn ours(bench: &Bench, caller: &mut Caller) -> Result<(Probes, u64)> {
        let options = ["--match", FUNCTION, "--interval", "1h", "--json"];
        let programs = &bench.settings.programs;
        let probes = Probes::ckb_probe(programs, "functions", caller.process, &options).await?;
        Ok((probes, 0))
    }

    async fn theirs(_: &Caller) -> Result<Probes> {
        Probes::bpftrace(&caller::file(), &[FUNCTION]).await
    }
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    compare::<UserFunction>(bench).await
}

/// Measures both of them, in turns.
pub async fn compare<S: Subject>(bench: &mut Bench) -> Result<()> {
    let mut caller = Caller::start().await?;
    let mut nanos = [const { Vec::new() }; 3];
    let mut astray = 0;
    for round in 0..bench.settings.rounds {
        for index in rotated(nanos.len(), round) {
            nanos[index].push(match index {
                0 => caller.cost(S::CALL, CALLS, BATCHES).await?,
                1 => {
                    let (probes, before) = S::ours(bench, &mut caller).await?;
                    let (cost, printed) = cost::<S>(&mut caller, probes).await?;
                    let counted = printed.counted(S::FUNCTION) - before;
                    astray = astray.max(counted.abs_diff(CALLS * BATCHES as u64));
                    cost
                }
                _ => {
                    let probes = S::theirs(&caller).await?;
                    let (cost, printed) = cost::<S>(&mut caller, probes).await?;
                    let (counted, made) = (printed.bpftrace_calls(), CALLS * BATCHES as u64);
                    // Whoever missed calls was not in place all of the time.
                    expect(
                        counted == made,
                        format!("{made} calls counted by bpftrace"),
                        || format!("{counted}; {}", printed.errors),
                    )?;
                    cost
                }
            });
        }
    }
    let [nothing, ours, theirs] = &nanos;
    let name = |what: &str| format!("{}: a call, {what}", S::FAMILY);
    let mut add = |what, values: &[f64], unit, bound| {
        bench.figure(&name(what), summary(values.iter().copied()), unit, bound);
    };
    add("nothing attached", nothing, "ns", None);
    add("ckb-probe", ours, "ns", None);
    add("bpftrace's histogram pair", theirs, "ns", None);
    let bound = Some(Bound::AtMost(0.85));
    let against = "ckb-probe against bpftrace's histogram pair";
    add(against, &ratios(ours, theirs), "x", bound);
    let name = format!(
        "{}: calls that ckb-probe counted otherwise than bpftrace",
        S::FAMILY
    );
    // The worst, not the median: this is exact, or it is wrong.
    bench.value(&name, astray as f64, "calls", Some(Bound::Exactly(0.0)));
    Ok(())
}

async fn cost<S: Subject>(caller: &mut Caller, probes: Probes) -> Result<(f64, Printed)> {
    let cost = caller.cost(S::CALL, CALLS, BATCHES).await?;
    Ok((cost, probes.stop().await?))
}
