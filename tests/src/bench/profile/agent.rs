//! What the command line itself uses while it profiles, and what a node-agent takes of memory for a window.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{
    super::{Bench, chain::Import, container::Container, in_folder, statistics::summary},
    Profiling,
    waits::Waits,
    window,
};
use crate::{failure::Result, process::Process, report::Bound};

/// So many threads wait in a hundred ways.
const THREADS: usize = 100;

/// Until what it has read of files is read, and it samples.
const SETTLE: Duration = Duration::from_secs(3);

/// Less than an import takes.
const IMPORTING: Duration = Duration::from_secs(6);

/// What one run used.
#[derive(Default)]
struct Used {
    percents: Vec<f64>,
    megabytes: Vec<f64>,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let file = in_folder(&bench.settings, "synchronised")?;
    let window = Duration::from_secs(bench.settings.seconds);
    let [mut waiting, mut running, mut importing, mut off_importing] =
        [(); 4].map(|()| Used::default());
    for _ in 0..bench.settings.rounds {
        let waits = Waits::rounds(THREADS, &file).await?;
        measure(bench, waits.process, "off-cpu", window, &mut waiting).await?;
        measure(bench, waits.process, "cpu", window, &mut running).await?;
        drop(waits);
        for (mode, used) in [("cpu", &mut importing), ("off-cpu", &mut off_importing)] {
            let container = Container::new(1)?;
            let import = Import::start(&bench.settings, &container)?;
            let process = import.process().await?;
            measure(bench, process, mode, IMPORTING, used).await?;
            import.finish().await?;
        }
    }
    let hundred = format!("{THREADS} threads that wait");
    told(bench, &format!("{hundred}, off-cpu"), waiting);
    told(bench, &format!("{hundred}, cpu"), running);
    told(bench, "a CKB import, cpu", importing);
    told(bench, "a CKB import, off-cpu", off_importing);
    window::run(bench).await
}

fn told(bench: &mut Bench, what: &str, used: Used) {
    let name = format!("profile-agent: {what}: CPU");
    let bound = Some(Bound::AtMost(2.0));
    bench.figure(&name, summary(used.percents), "% of a core", bound);
    let name = format!("profile-agent: {what}: RSS");
    let bound = Some(Bound::AtMost(30.0));
    bench.figure(&name, summary(used.megabytes), "MB", bound);
}

async fn measure(
    bench: &Bench,
    target: Process,
    mode: &str,
    window: Duration,
    used: &mut Used,
) -> Result<()> {
    let options = ["--mode", mode];
    let profiling = Profiling::start(&bench.settings, 2, target, "agent.pb.gz", &options).await?;
    sleep(SETTLE).await;
    let (start, before) = (Instant::now(), profiling.cpu_time()?);
    sleep(window).await;
    let spent = profiling.cpu_time()?.saturating_sub(before).as_secs_f64();
    used.percents
        .push(100.0 * spent / start.elapsed().as_secs_f64());
    let resident = profiling.process().memory()?.resident;
    used.megabytes.push(resident as f64 / 1e6);
    profiling.stop().await?;
    Ok(())
}
