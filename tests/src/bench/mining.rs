//! A CKB node that mines: the steady load, where everything can be measured all of the time.

use super::{
    figures::Figures,
    node::{Node, Pace},
    prelude::*,
    statistics::mean,
};

/// Between two reports of the agent.
const REPORT: Duration = Duration::from_secs(5);

/// Until the agent has attached.
const ATTACH: Duration = Duration::from_secs(10);

/// Until the first report interval has ended.
const FIRST_REPORT: Duration = Duration::from_secs(30);

const ROWS: [Row; 6] = table! {
    "overhead, as reported" = "probed.estimate" in "%";
    "calls" = "probed.calls" in "a second";
    "CPU time of a block, unprobed" = "unprobed" in "ms";
    "CPU time of a block, probed, more" = "probed % unprobed" in "%";
    "sampling share" = "probed.share" in "%";
    "overhead, calls times cost" = "probed.overhead" in "%";
};

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
    let container = Container::new(2);
    let node = Node::start(&bench.settings, &container, load.pace).await?;
    // Now the one first, now the other: the chain grows all the time.
    let both = [("unprobed", false), ("probed", true)];
    let measure = async |probed| window(bench, &node, &container, load.blocks, probed).await;
    let series = bench.turns(Order::ToAndFro, &both, measure).await?;
    let [estimate, calls, unprobed, more, share, overhead] = ROWS;
    let share = Row {
        bound: load.share,
        ..share
    };
    let overhead = Row {
        bound: load.bound,
        ..overhead
    };
    let rows = [share, overhead, estimate, calls, unprobed, more];
    bench.tell(&format!("mining, {}: ", load.name), &series, &rows);
    Ok(())
}

/// So many blocks, from one to another: CPU time for each of them, in milliseconds, and what the agent reported meanwhile.
async fn window(
    bench: &Bench,
    node: &Node,
    container: &Container,
    blocks: u64,
    with_agent: bool,
) -> Result<Found> {
    let agent = if with_agent {
        Some(attached(bench, container).await?)
    } else {
        None
    };
    let first = node.blocks(node.blocks(0).await? + 1).await?;
    let (start, before) = (Instant::now(), container.cpu_time());
    let last = node.blocks(first + blocks).await?;
    let used = container.cpu_time().saturating_sub(before).as_secs_f64();
    let used_a_second = used / start.elapsed().as_secs_f64();
    let mut found = vec![("", used * 1000.0 / (last - first) as f64)];
    if let Some(agent) = agent {
        let figures = Figures::of(&agent.reports());
        let cost = agent.cost_per_call()?.as_secs_f64();
        agent.stop().await?;
        // Calls that were recorded, times what one costs by the agent's calibration, of the CPU time that the node used by its
        // cgroup's account.
        let cost_a_second = figures.samples() as f64 * cost / figures.seconds();
        found.push(("overhead", 100.0 * cost_a_second / used_a_second));
        found.push(("share", figures.sampling_percent()));
        found.push(("calls", figures.calls() as f64 / figures.seconds()));
        let estimate = mean(&figures.overhead_percent);
        found.extend(estimate.map(|estimate| ("estimate", estimate)));
    }
    Ok(found)
}

/// An agent that has reported for the first time.
async fn attached(bench: &Bench, container: &Container) -> Result<Agent> {
    let settings = &bench.settings;
    let order = agent::order_for_ckb(settings, container, budget(), REPORT);
    let agent = Agent::watching(settings, vec![order], ATTACH).await?;
    wait::until("the first report", FIRST_REPORT, async || {
        let figures = Figures::of(&agent.reports());
        expect(figures.seconds() > 0.0, "a report interval", || "none")
    })
    .await?;
    Ok(agent)
}
