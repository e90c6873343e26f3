//! A CKB node that mines: the steady load, where everything can be measured all of the time.

use std::time::{Duration, Instant};

use ckb_probe_crds::InstanceState;

use super::{
    Bench,
    agent::{self, Agent, budget},
    container::Container,
    figures::Figures,
    node::{Node, Pace},
    statistics::{mean, percent_more, summary},
};
use crate::{
    failure::{Result, expect},
    report::Bound,
    wait,
};

/// Between two reports of the agent.
const REPORT: Duration = Duration::from_secs(5);

/// Until the agent has attached.
const ATTACH: Duration = Duration::from_secs(10);

/// Until the first report interval has ended.
const FIRST_REPORT: Duration = Duration::from_secs(30);

/// Some blocks, unprobed or probed.
struct Window {
    /// CPU time for each block, in milliseconds.
    cpu_per_block: f64,
    probed: Option<Probed>,
}

/// What the agent reported meanwhile.
struct Probed {
    figures: Figures,
    /// Calls that were recorded, times what one costs by the agent's calibration, in percent of the CPU time that the node
    /// used by its cgroup's account.
    overhead_percent: f64,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let seconds = bench.settings.seconds;
    let steady = Load {
        name: "steady, a block in 5 s",
        pace: Pace::AsConfigured,
        blocks: seconds.div_ceil(5),
        bound: Some(Bound::AtMost(0.3)),
        share: Some(Bound::Exactly(100.0)),
    };
    let fast = Load {
        name: "fast, 10 blocks a second",
        pace: Pace::Fast,
        blocks: seconds * 10 / 2,
        bound: None,
        share: None,
    };
    for load in [steady, fast] {
        measure(bench, &load).await?;
    }
    Ok(())
}

/// A rate of mining, and what is expected of it.
struct Load {
    name: &'static str,
    pace: Pace,
    /// In a window.
    blocks: u64,
    /// The bound on the overhead.
    bound: Option<Bound>,
    /// Of the sampling share.
    share: Option<Bound>,
}

async fn measure(bench: &mut Bench, load: &Load) -> Result<()> {
    let container = Container::new(2)?;
    let node = Node::start(&bench.settings, &container, load.pace).await?;
    let (mut unprobed, mut probed) = (Vec::new(), Vec::new());
    for round in 0..bench.settings.rounds {
        // Now the one first, now the other: the chain grows all the time.
        for with_agent in [round % 2 == 1, round % 2 == 0] {
            let window = window(bench, &node, &container, load.blocks, with_agent).await?;
            if with_agent {
                &mut probed
            } else {
                &mut unprobed
            }
            .push(window);
        }
    }
    let cpu = |windows: &[Window]| -> Vec<f64> {
        let windows = windows.iter();
        windows.map(|window| window.cpu_per_block).collect()
    };
    let (without, with) = (cpu(&unprobed), cpu(&probed));
    let probed: Vec<Probed> = probed.into_iter().filter_map(|one| one.probed).collect();
    let of = |figure: fn(&Probed) -> Option<f64>| summary(probed.iter().filter_map(figure));

    let name = |what: &str| format!("mining, {}: {what}", load.name);
    let share = of(|one| Some(one.figures.sampling_percent()));
    bench.figure(&name("sampling share"), share, "%", load.share);
    let overhead = of(|one| Some(one.overhead_percent));
    let what = name("overhead, calls times cost");
    bench.figure(&what, overhead, "%", load.bound);
    let estimate = of(|one| mean(&one.figures.overhead_percent));
    bench.figure(&name("overhead, as reported"), estimate, "%", None);
    let calls = of(|one| Some(one.figures.calls() as f64 / one.figures.seconds()));
    bench.figure(&name("calls"), calls, "a second", None);
    let what = name("CPU time of a block, unprobed");
    bench.figure(&what, summary(without.iter().copied()), "ms", None);
    let what = name("CPU time of a block, probed, more");
    bench.figure(&what, summary(percent_more(&with, &without)), "%", None);
    Ok(())
}

/// So many blocks, from one to another.
async fn window(
    bench: &Bench,
    node: &Node,
    container: &Container,
    blocks: u64,
    with_agent: bool,
) -> Result<Window> {
    let agent = if with_agent {
        Some(attached(bench, container).await?)
    } else {
        None
    };
    let first = node.blocks(node.blocks(0).await? + 1).await?;
    let (start, before) = (Instant::now(), container.cpu_time()?);
    let last = node.blocks(first + blocks).await?;
    let used = container.cpu_time()?.saturating_sub(before).as_secs_f64();
    let used_a_second = used / start.elapsed().as_secs_f64();
    let probed = match agent {
        None => None,
        Some(agent) => {
            let figures = Figures::of(&agent.reports());
            let cost = agent.cost_per_call()?.as_secs_f64();
            agent.stop().await?;
            let cost_a_second = figures.samples() as f64 * cost / figures.seconds();
            Some(Probed {
                overhead_percent: 100.0 * cost_a_second / used_a_second,
                figures,
            })
        }
    };
    Ok(Window {
        cpu_per_block: used * 1000.0 / (last - first) as f64,
        probed,
    })
}

/// An agent that has reported for the first time.
async fn attached(bench: &Bench, container: &Container) -> Result<Agent> {
    let settings = &bench.settings;
    let agent = Agent::start(settings).await?;
    let order = agent::order_for_ckb(settings, container, budget(), REPORT);
    agent.order(vec![order]).await?;
    agent.every(InstanceState::Attached, ATTACH).await?;
    wait::until("the first report", FIRST_REPORT, async || {
        let figures = Figures::of(&agent.reports());
        expect(figures.seconds() > 0.0, "a report interval", || {
            "none".to_string()
        })
    })
    .await?;
    Ok(agent)
}
