//! What samplers cost a process that is no target: they look at whoever runs as a CPU ticks, and at whoever touches a new page.

use super::Profiling;
use crate::bench::prelude::*;

/// What is sampled of a process that waits, and what another one does meanwhile: as the program `call-cost` is told, and so often.
const MODES: [(&str, &str, u64); 2] = [("cpu", "getppid", 4_000_000), ("memory", "spawn", 1_000)];

/// Calls of the target's after that.
const SEEN: u64 = 500;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let mut bystander = Caller::start()?;
    let _account = Account::open()?;
    for (mode, function, calls) in MODES {
        // Not measured: it makes of the bystander what it is from then on.
        bystander.call(function, calls)?;
        let measure = async |sampled: bool| {
            if !sampled {
                return Ok(vec![("", bystander.call(function, calls)? as f64)]);
            }
            let mut target = Caller::start()?;
            let profiling = begin(bench, &target, mode).await?;
            let before = account::runs(profiling.process()).await?;
            let took = bystander.call(function, calls)? as f64;
            let after = account::runs(profiling.process()).await?;
            let runs = account::all(&before, &after);
            expect(runs.count > 0, "programs that run", || "none")?;
            // There must be something to tell: it touches 4 MiB, again and again.
            target.call("rocksdb_put_cf-cold", SEEN)?;
            profiling.stop().await?;
            Ok(vec![("", took), ("each", runs.each())])
        };
        let both = [("without", false), ("with", true)];
        let series = bench.turns(Order::ToAndFro, &both, measure).await?;
        let name = format!("profile-bystander: {mode}: ");
        let looped = format!("{name}a loop of {function}, ");
        bench.tell(
            &looped,
            &series,
            &table! { "more CPU time" = "with % without" in "%"; },
        );
        let run = table! { "a run of a program that finds another process" = "with.each" in "ns"; };
        bench.tell(&name, &series, &run);
    }
    Ok(())
}

async fn begin(bench: &Bench, target: &Caller, mode: &str) -> Result<Profiling> {
    let (file, options) = ("bystander.pb.gz", ["--mode", mode]);
    Profiling::start(&bench.settings, 1, target.process, file, &options).await
}
