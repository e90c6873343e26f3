//! What the command line itself uses while it profiles, and what a node-agent takes of memory for a window.

use super::{Profiling, answers::Program, window};
use crate::bench::prelude::*;

/// So many threads wait in a hundred ways.
const THREADS: usize = 100;

/// Until what it has read of files is read, and it samples.
const SETTLE: Duration = Duration::from_secs(3);

/// Less than an import takes.
const IMPORTING: Duration = Duration::from_secs(6);

const ROWS: [Row; 2] = table! {
    "CPU" = "cpu" in "% of a core", AtMost(2.0);
    "RSS" = "rss" in "MB", AtMost(30.0);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let settings = &bench.settings;
    let file = in_folder(settings, "synchronised")?;
    let window = Duration::from_secs(settings.seconds);
    let mut series = [(); 4].map(|()| Series::default());
    for _ in 0..settings.rounds {
        let waits = Program::that_waits(THREADS, &file)?;
        measure(bench, waits.process, "off-cpu", window, &mut series[0]).await?;
        measure(bench, waits.process, "cpu", window, &mut series[1]).await?;
        drop(waits);
        for (place, mode) in [(2, "cpu"), (3, "off-cpu")] {
            let container = Container::new(1);
            let import = Import::start(settings, &container)?;
            let process = import.process().await?;
            measure(bench, process, mode, IMPORTING, &mut series[place]).await?;
            import.finish().await?;
        }
    }
    let hundred = format!("{THREADS} threads that wait");
    let import = "a CKB import".to_string();
    let of = [
        (&hundred, "off-cpu"),
        (&hundred, "cpu"),
        (&import, "cpu"),
        (&import, "off-cpu"),
    ];
    for ((of, mode), series) in of.into_iter().zip(&series) {
        bench.tell(&format!("profile-agent: {of}, {mode}: "), series, &ROWS);
    }
    window::run(bench).await
}

async fn measure(
    bench: &Bench,
    target: Process,
    mode: &str,
    window: Duration,
    series: &mut Series,
) -> Result<()> {
    let options = ["--mode", mode];
    let profiling = Profiling::start(&bench.settings, 2, target, "agent.pb.gz", &options).await?;
    sleep(SETTLE).await;
    let (start, before) = (Instant::now(), profiling.cpu_time());
    sleep(window).await;
    let spent = profiling.cpu_time().saturating_sub(before).as_secs_f64();
    series.push("cpu", 100.0 * spent / start.elapsed().as_secs_f64());
    let resident = profiling.process().memory()?.resident;
    series.push("rss", resident as f64 / 1e6);
    profiling.stop().await?;
    Ok(())
}
