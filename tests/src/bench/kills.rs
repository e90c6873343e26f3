//! An agent that is killed while it measures, again and again: what it leaves behind.

use std::time::{Duration, Instant};

use ckb_probe_crds::{InstanceState, kinds::rocksdb::RocksDbProbe};
use rustix::process::Signal;

use super::{
    Bench,
    agent::{self, Agent, budget},
    table::{Series, table},
    ticker::{EXECUTABLE, OPERATIONS, Ticker},
};
use crate::{
    bpf::Held,
    failure::{Result, expect},
    report::Bound::{AtMost, Exactly},
    wait,
};
use ckb_probe_testkit::Container;

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
        let agent = Agent::start(&bench.settings).await?;
        let kind = RocksDbProbe {
            operations: OPERATIONS.to_vec(),
            ..RocksDbProbe::default()
        };
        let interval = Duration::from_secs(1);
        let order = agent::order(&container, EXECUTABLE, budget(), kind, interval);
        agent.order(vec![order]).await?;
        agent.every(InstanceState::Attached, ATTACH).await?;
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
    series.push("dead", f64::from(u8::from(!alive)));
    let kills = bench.settings.kills;
    let until =
        format!("kills: until nothing is left in the kernel of a killed agent, {kills} times");
    bench.tell(
        &until,
        &series,
        &table! { "" = "seconds" in "s", AtMost(5.0); },
    );
    let dead = table! { "targets that died" = "dead" in "", Exactly(0.0); };
    bench.tell("kills: ", &series, &dead);
    Ok(())
}
