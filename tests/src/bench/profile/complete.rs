//! How many stacks of a CKB node reach to where their thread began.

use super::{
    super::node::{Node, Pace},
    Profiling, Stacks,
};
use crate::bench::prelude::*;

/// What is sampled, and how often while it mines.
const MODES: [(&str, &str); 3] = [("cpu", "999"), ("off-cpu", "19"), ("memory", "99")];

pub async fn run(bench: &mut Bench) -> Result<()> {
    importing(bench).await?;
    mining(bench).await
}

const ROWS: [Row; 2] = table! {
    "complete stacks" = "complete" in "%", AtLeast(99.0);
    "samples, microseconds or bytes" = "all" in "";
};

/// Of all rounds together: while it mines, there is little to sample.
fn told(bench: &mut Bench, what: &str, all: &Stacks) {
    let mut series = Series::default();
    series.push("complete", all.complete());
    series.push("all", all.total());
    bench.tell(&format!("profile-complete: {what}: "), &series, &ROWS);
}

async fn importing(bench: &mut Bench) -> Result<()> {
    for (mode, _) in MODES {
        let mut all = Stacks::default();
        for _ in 0..bench.settings.rounds {
            let container = Container::new(1);
            let import = Import::start(&bench.settings, &container)?;
            let process = import.process().await?;
            let options = ["--mode", mode];
            let profiling =
                Profiling::start(&bench.settings, 2, process, "complete.folded", &options).await?;
            import.finish().await?;
            all.0.extend(profiling.stop().await?.stacks()?.0);
        }
        told(bench, &format!("importing, {mode}"), &all);
    }
    Ok(())
}

async fn mining(bench: &mut Bench) -> Result<()> {
    let container = Container::new(2);
    let _node = Node::start(&bench.settings, &container, Pace::Fast).await?;
    let process = Process::in_cgroup(&container.id, "ckb")?;
    let window = Duration::from_secs(bench.settings.seconds);
    for (mode, frequency) in MODES {
        let mut all = Stacks::default();
        for _ in 0..bench.settings.rounds {
            let options = ["--mode", mode, "--frequency", frequency];
            let profiling =
                Profiling::start(&bench.settings, 3, process, "complete.folded", &options).await?;
            sleep(window).await;
            all.0.extend(profiling.stop().await?.stacks()?.0);
        }
        told(bench, &format!("mining, {mode}"), &all);
    }
    Ok(())
}
