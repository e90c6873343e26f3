//! What the agent itself uses.

use ckb_probe_crds::Overhead;
use tokio::time::{interval, sleep_until};

use super::{figures::Figures, prelude::*, ticker::EXECUTABLE};

const CPU: [Row; 3] = table! {
    "CPU" = "cpu" in "% of a core", AtMost(0.5);
    "calls reported" = "rate" in "a second";
    "sampling share" = "share" in "%";
};

/// As by default.
const REPORT: Duration = Duration::from_secs(10);

/// Between two scrapes: often, for a Prometheus.
const SCRAPE: Duration = Duration::from_secs(5);

/// Until the agent has attached to everything.
const ATTACH: Duration = Duration::from_secs(60);

const TARGETS: u32 = 10;

pub async fn run(bench: &mut Bench) -> Result<()> {
    memory(bench).await?;
    cpu(bench, "budget off", no_budget()).await?;
    cpu(bench, "budget 1 %", budget()).await
}

/// Ten targets, of 100 calls a second each.
async fn memory(bench: &mut Bench) -> Result<()> {
    let containers = (10..10 + TARGETS).map(Container::new).collect::<Vec<_>>();
    let targets = containers
        .iter()
        .map(|container| Ticker::start(container, 100));
    let _targets = targets.collect::<Result<Vec<_>>>()?;
    let agent = agent(bench, &containers, budget()).await?;
    let mut series = Series::default();
    for _ in 0..bench.settings.rounds {
        sleep(Duration::from_secs(bench.settings.seconds) / 3).await;
        agent.scrape().await?;
        series.push("rss", agent.rss_mb()?);
    }
    agent.stop().await?;
    let rss = table! { "RSS with 10 targets" = "rss" in "MB", AtMost(20.0); };
    bench.tell("agent: ", &series, &rss);
    Ok(())
}

/// One target that makes 100,000 calls a second.
async fn cpu(bench: &mut Bench, what: &str, overhead: Overhead) -> Result<()> {
    let containers = [Container::new(4)];
    let window = Duration::from_secs(bench.settings.seconds.div_ceil(2));
    let _target = Ticker::start(&containers[0], 100_000)?;
    let agent = agent(bench, &containers, overhead).await?;
    // The interval that the attach was in.
    sleep(REPORT).await;
    let counted = || Figures::of(&agent.reports());
    let before = counted();
    let mut series = Series::default();
    for _ in 0..bench.settings.rounds {
        let (start, used) = (Instant::now(), agent.cpu_time());
        let mut scrapes = interval(SCRAPE);
        while start.elapsed() < window {
            tokio::select! {
                _ = scrapes.tick() => drop(agent.scrape().await?),
                () = sleep_until((start + window).into()) => {}
            }
        }
        let used = agent.cpu_time().saturating_sub(used);
        series.push(
            "cpu",
            100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64(),
        );
    }
    let after = counted();
    agent.stop().await?;
    let calls = (after.calls() - before.calls()) as f64;
    series.push("rate", calls / (after.seconds() - before.seconds()));
    series.push("share", after.sampling_percent());
    let name = |row: &str| format!("agent: {row}, of 100,000 calls a second, {what}");
    bench.tell_as(name, &series, &CPU);
    Ok(())
}

async fn agent(bench: &Bench, containers: &[Container], overhead: Overhead) -> Result<Agent> {
    let order = |container| agent::usual_order(container, EXECUTABLE, overhead.clone(), REPORT);
    let orders = containers.iter().map(order).collect();
    Agent::watching(&bench.settings, orders, ATTACH).await
}
