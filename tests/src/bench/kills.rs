//! An agent that is killed while it measures, again and again: what it leaves behind.

use super::{
    prelude::*,
    ticker::{self, EXECUTABLE},
};
use crate::{bpf::Held, report::Value as _};

/// Until the target of an agent that has just started is attached.
const ATTACH: Duration = Duration::from_secs(30);

/// Until the kernel has given back what an agent held.
const GONE: Duration = Duration::from_secs(30);

/// Calls a second.
const RATE: u32 = 100;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let container = Container::new(5);
    // One target for all of them: it is never harmed.
    let target = Ticker::start(&container, RATE)?;
    let mut series = Series::default();
    for _ in 0..bench.settings.kills {
        let (kind, interval) = (ticker::question(), Duration::from_secs(1));
        let order = agent::order(&container, EXECUTABLE, budget(), kind, interval);
        let agent = Agent::watching(&bench.settings, vec![order], ATTACH).await?;
        let held = Held::by(agent.process)?;
        expect(!held.links.is_empty(), "an agent that holds links", || {
            format!("{held:?}")
        })?;
        agent.process.signal(Signal::KILL)?;
        let killed = Instant::now();
        agent.process.ended(GONE).await?;
        wait::until("what the agent held to go", GONE, async || {
            held.expect_gone().await
        })
        .await?;
        series.push("seconds", killed.elapsed().as_secs_f64());
    }
    let alive = target.process.is_alive();
    target.stop().await?;
    series.push("dead", (!alive).value());
    let kills = bench.settings.kills;
    let until = table! { "until nothing is left in the kernel of a killed agent" = "seconds" in "s", AtMost(5.0); };
    bench.tell_as(
        |row| format!("kills: {row}, {kills} times"),
        &series,
        &until,
    );
    let dead = table! { "targets that died" = "dead" in "", Exactly(0.0); };
    bench.tell("kills: ", &series, &dead);
    Ok(())
}
