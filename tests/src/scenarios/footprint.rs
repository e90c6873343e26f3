//! What agent and operator themselves use, while they do what they do in the demo.

use super::prelude::*;

/// How long CPU time is measured.
const WINDOW: Duration = Duration::from_secs(30);

/// How often, where the first is too much: a machine that is busy with something else makes the same work dearer for a while, and
/// a program that wastes time always does.
const WINDOWS: usize = 3;

/// What the project aims at.
const MEGABYTES: f64 = 20.0;

/// A percent of a core: ten times what the tool that this one follows used, at a rate that it was never tried at.
const PERCENT: f64 = 1.0;

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    scene.demo().await?;
    let agent = scene.cluster.agent().await?;
    let operator = scene.cluster.operator().await?;

    let mut cpu = (f64::INFINITY, f64::INFINITY);
    for _ in 0..WINDOWS {
        let used = in_window(agent.process, operator.process).await?;
        cpu = (cpu.0.min(used.0), cpu.1.min(used.1));
        if cpu.0.max(cpu.1) <= PERCENT {
            break;
        }
    }
    used(scene, "agent", agent.process, cpu.0)?;
    used(scene, "operator", operator.process, cpu.1)
}

/// The CPU time of both in a window, in percent of a core.
async fn in_window(agent: Process, operator: Process) -> Result<(f64, f64)> {
    let start = Instant::now();
    let before = (agent.cpu_time()?, operator.cpu_time()?);
    tokio::time::sleep(WINDOW).await;
    let after = (agent.cpu_time()?, operator.cpu_time()?);
    let percent = |before: Duration, after: Duration| {
        after.saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0
    };
    Ok((percent(before.0, after.0), percent(before.1, after.1)))
}

fn used(scene: &mut Scene<'_>, who: &str, process: Process, cpu: f64) -> Result<()> {
    let memory = process.memory()?;
    for (what, bytes) in [
        ("resident", memory.resident),
        ("anonymous", memory.anonymous),
    ] {
        scene.figure(
            &format!("{what} memory of the {who}"),
            bytes as f64 / 1e6,
            "MB",
            Bound::AtMost(MEGABYTES),
        );
    }
    scene.figure(
        &format!("CPU of the {who}"),
        cpu,
        "% of a core",
        Bound::AtMost(PERCENT),
    );
    Ok(())
}
