//! What a window of stacks takes of a node-agent's memory, what of that it gives back, and what it costs its target.

use ckb_probe_crds::{Assignment, Breach, Overhead, ProfileMode, kinds::profile::ProfileProbe};

use super::super::agent::order;
use crate::bench::prelude::*;

/// Less than an import takes.
const WINDOW: Duration = Duration::from_secs(6);

/// Until it is found, looked at, and told of.
const ALL: Duration = Duration::from_secs(11);

/// Until what was taken is given back.
const SETTLE: Duration = Duration::from_secs(3);

/// Until all modes are sampled.
const BEGIN: Duration = Duration::from_secs(5);

/// The programs that run at the expense of who is met; the kernel keeps 15 letters of their names.
const PROGRAMS: [&str; 3] = ["timer_expires", "page_touched", "page_touched_by"];

/// For how long it is looked what they take; there is as much of a window from there on.
const COSTS: Duration = Duration::from_secs(4);

/// How often its memory is looked at.
const LOOK: Duration = Duration::from_millis(200);

const MODES: [ProfileMode; 4] = [
    ProfileMode::Cpu,
    ProfileMode::OffCpu,
    ProfileMode::Memory,
    ProfileMode::Threads,
];

const ROWS: [Row; 4] = table! {
    "all modes: RSS at its highest, more than before" = "taken" in "MB", AtMost(30.0);
    "all modes: of that, allocated" = "own" in "MB";
    "all modes: RSS afterwards, more than before" = "kept" in "MB", AtMost(4.0);
    "all modes, the default budget: programs, of the import's CPU time" = "cost" in "%", AtMost(1.0);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let mut series = Series::default();
    for _ in 0..bench.settings.rounds {
        let agent = Agent::start(&bench.settings).await?;
        // The first one reads the kernel's types and its own code, which stay.
        window(bench, &agent).await?;
        let before = Memory::of(&agent)?;
        let most = window(bench, &agent).await?;
        series.push("taken", most.rss - before.rss);
        series.push("own", most.own - before.own);
        series.push("kept", agent.rss_mb()? - before.rss);
        series.push("cost", cost(bench, &agent).await?);
        agent.stop().await?;
    }
    let of = "profile-agent: a node-agent, a CKB import, ";
    bench.tell(of, &series, &ROWS);
    Ok(())
}

/// In MB: all that is there, and without what is mapped of files and of the kernel's memory for copies of stacks.
#[derive(Clone, Copy, Default)]
struct Memory {
    rss: f64,
    own: f64,
}

impl Memory {
    fn of(agent: &Agent) -> Result<Self> {
        Ok(Self {
            rss: agent.rss_mb()?,
            own: agent.own_mb()?,
        })
    }
}

/// An import with a window of all modes. Returns what the agent had in memory at most.
async fn window(bench: &Bench, agent: &Agent) -> Result<Memory> {
    let container = Container::new(1);
    let import = Import::start(&bench.settings, &container)?;
    import.process().await?;
    // So much that it is sampled as often as is asked.
    let overhead = Overhead {
        max_percent: 20.0,
        on_breach: Breach::Sample,
        ..Overhead::default()
    };
    agent
        .order(vec![all_modes(bench, &container, overhead)])
        .await?;
    let (begun, mut most) = (Instant::now(), Memory::default());
    while begun.elapsed() < ALL {
        let now = Memory::of(agent)?;
        most = if now.rss > most.rss { now } else { most };
        sleep(LOOK).await;
    }
    let seen = agent.instances();
    let seen = seen.iter().flat_map(|instance| &instance.probes);
    expect(
        seen.clone().any(|probe| !probe.rows.is_empty()),
        "a window of stacks",
        || format!("{:?}", seen.map(|probe| &probe.message).collect::<Vec<_>>()),
    )?;
    agent.order(Vec::new()).await?;
    import.finish().await?;
    sleep(SETTLE).await;
    Ok(most)
}

fn all_modes(bench: &Bench, container: &Container, overhead: Overhead) -> Assignment {
    let asked = ProfileProbe {
        modes: MODES.to_vec(),
        window: WINDOW.into(),
        ..ProfileProbe::default()
    };
    let name = bench.settings.ckb.file_name().unwrap_or_default();
    let interval = Duration::from_secs(1);
    order(
        container,
        &name.to_string_lossy(),
        overhead,
        asked,
        interval,
    )
}

/// What programs take of an import's CPU time in a window of all modes, in percent.
async fn cost(bench: &Bench, agent: &Agent) -> Result<f64> {
    let container = Container::new(1);
    let import = Import::start(&bench.settings, &container)?;
    import.process().await?;
    let account = Account::open()?;
    agent
        .order(vec![all_modes(bench, &container, budget())])
        .await?;
    let before = wait::closely("all modes to be sampled", BEGIN, async || {
        let runs = account::runs(agent.process).await?;
        let are_there = PROGRAMS.iter().all(|name| runs.contains_key(*name));
        expect(are_there, "programs of all modes", || {
            format!("{:?}", runs.keys())
        })?;
        Ok(runs)
    })
    .await?;
    let used = container.cpu_time();
    sleep(COSTS).await;
    let after = account::runs(agent.process).await?;
    let used = container.cpu_time().saturating_sub(used);
    drop(account);
    agent.order(Vec::new()).await?;
    import.finish().await?;
    let mut taken = 0;
    for name in PROGRAMS {
        taken += account::since(&before, &after, name)?.nanoseconds;
    }
    Ok(100.0 * taken as f64 / used.as_nanos() as f64)
}
