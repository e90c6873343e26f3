//! What samplers cost a process that is no target: they look at whoever runs as a CPU ticks, and at whoever touches a new page.

use super::{
    super::{
        Bench,
        account::{self, Account},
        caller::Caller,
        statistics::{percent_more, summary},
    },
    Profiling,
};
use crate::failure::{Result, expect};

/// What is sampled of a process that waits, and what another one does meanwhile: as the program `call-cost` is told, and so often.
const MODES: [(&str, &str, u64); 2] = [("cpu", "getppid", 4_000_000), ("memory", "spawn", 1_000)];

/// Calls of the target's after that.
const SEEN: u64 = 500;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let mut bystander = Caller::start().await?;
    let _account = Account::open()?;
    for (mode, function, calls) in MODES {
        let (mut without, mut with, mut each) = (Vec::new(), Vec::new(), Vec::new());
        // Not measured: it makes of the bystander what it is from then on.
        bystander.call(function, calls).await?;
        for round in 0..bench.settings.rounds {
            // Now the one first, now the other.
            for sampled in [round % 2 == 1, round % 2 == 0] {
                if sampled {
                    let mut target = Caller::start().await?;
                    let profiling = begin(bench, &target, mode).await?;
                    let before = account::runs(profiling.process()).await?;
                    let took = bystander.call(function, calls).await?;
                    let after = account::runs(profiling.process()).await?;
                    let runs = account::all(&before, &after);
                    expect(runs.count > 0, "programs that run", || "none".to_string())?;
                    // There must be something to tell: it touches 4 MiB, again and again.
                    target.call("rocksdb_put_cf-cold", SEEN).await?;
                    profiling.stop().await?;
                    with.push(took as f64);
                    each.push(runs.each());
                } else {
                    without.push(bystander.call(function, calls).await? as f64);
                }
            }
        }
        let name = |what: &str| format!("profile-bystander: {mode}: {what}");
        let what = name(&format!("a loop of {function}, more CPU time"));
        bench.figure(&what, summary(percent_more(&with, &without)), "%", None);
        let what = name("a run of a program that finds another process");
        bench.figure(&what, summary(each), "ns", None);
    }
    Ok(())
}

async fn begin(bench: &Bench, target: &Caller, mode: &str) -> Result<Profiling> {
    let (file, options) = ("bystander.pb.gz", ["--mode", mode]);
    Profiling::start(&bench.settings, 1, target.process, file, &options).await
}
