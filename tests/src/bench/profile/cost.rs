//! How much slower a CKB import is while it is profiled, and while perf does the same.

use super::{
    super::{
        Bench,
        account::{self, Account},
        chain::{Import, Took},
        container::Container,
        statistics::{percent_more, ratios, summary, to_and_fro},
    },
    Profiling,
    peer::Perf,
};
use crate::{failure::Result, report::Bound};

/// What is compared: each stands beside imports that are not profiled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Cpu,
    Nothing,
    Both,
    PerfDwarf,
    NothingAgain,
    PerfFrames,
}

const ALL: [By; 6] = [
    By::Cpu,
    By::Nothing,
    By::Both,
    By::PerfDwarf,
    By::NothingAgain,
    By::PerfFrames,
];

/// As we sample by default.
const FREQUENCY: &str = "99";

/// The imports of one way.
#[derive(Default)]
struct Imports {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let mut imports: [Imports; ALL.len()] = Default::default();
    let mut programs = Vec::new();
    // Not measured: it fetches node and blocks from the disk.
    import(bench, By::Nothing).await?;
    for round in 0..bench.settings.rounds {
        for index in to_and_fro(ALL.len(), round) {
            let (took, of_programs) = import(bench, ALL[index]).await?;
            imports[index].wall.push(took.wall.as_secs_f64());
            imports[index].cpu.push(took.cpu.as_secs_f64());
            programs.extend(of_programs);
        }
    }
    let [cpu, nothing, both, dwarf, again, frames] = &imports;
    let means = |one: &[f64], other: &[f64]| -> Vec<f64> {
        one.iter()
            .zip(other)
            .map(|(one, other)| one.midpoint(*other))
            .collect()
    };
    let base = Imports {
        wall: means(&nothing.wall, &again.wall),
        cpu: means(&nothing.cpu, &again.cpu),
    };
    let seconds = summary(nothing.wall.iter().copied());
    bench.figure("profile-cost: not profiled", seconds, "s", None);
    slower(bench, "not profiled once more", again, nothing, None);
    slower(bench, "cpu, 99 Hz", cpu, &base, Some(Bound::AtMost(0.5)));
    slower(
        bench,
        "cpu and off-cpu, default rates",
        both,
        &base,
        Some(Bound::AtMost(1.0)),
    );
    slower(bench, "perf record, dwarf, 99 Hz", dwarf, &base, None);
    slower(
        bench,
        "perf record, frame pointers, 99 Hz",
        frames,
        &base,
        None,
    );
    let name = "profile-cost: cpu, 99 Hz: programs, of the import's CPU time";
    bench.figure(name, summary(programs), "%", Some(Bound::AtMost(0.5)));
    Ok(())
}

fn slower(bench: &mut Bench, what: &str, imports: &Imports, base: &Imports, bound: Option<Bound>) {
    let wall = summary(percent_more(&imports.wall, &base.wall));
    bench.figure(&format!("profile-cost: {what}, slower"), wall, "%", bound);
    let cpu = summary(
        ratios(&imports.cpu, &base.cpu)
            .iter()
            .map(|ratio| (ratio - 1.0) * 100.0),
    );
    bench.figure(
        &format!("profile-cost: {what}, more CPU time"),
        cpu,
        "%",
        None,
    );
}

/// One import; where it is sampled on the CPU, with what programs of ours took of its CPU time, in percent.
async fn import(bench: &Bench, by: By) -> Result<(Took, Option<f64>)> {
    let settings = &bench.settings;
    let container = Container::new(1)?;
    let import = Import::start(settings, &container)?;
    let process = import.process().await?;
    let cpu = ["--mode", "cpu"];
    match by {
        By::Nothing | By::NothingAgain => Ok((import.finish().await?, None)),
        By::Cpu => {
            let account = Account::open()?;
            let profiling = Profiling::start(settings, 2, process, "cost.pb.gz", &cpu).await?;
            let sampler = profiling.process();
            // The programs are gone when it ends with its target.
            let before = account::runs(sampler).await?;
            let window = std::time::Instant::now();
            let (used, took) =
                tokio::join!(programs(sampler, &before, &container), import.finish());
            let took = took?;
            drop((account, window));
            profiling.stop().await?;
            Ok((took, used))
        }
        By::Both => {
            let one = Profiling::start(settings, 2, process, "cost.pb.gz", &cpu).await?;
            let off = ["--mode", "off-cpu"];
            let other = Profiling::start(settings, 3, process, "cost-off.pb.gz", &off).await?;
            let took = import.finish().await?;
            one.stop().await?;
            other.stop().await?;
            Ok((took, None))
        }
        By::PerfDwarf => by_perf(bench, import, &["--call-graph", "dwarf,32768"]).await,
        By::PerfFrames => by_perf(bench, import, &["--call-graph", "fp"]).await,
    }
}

/// What programs take within some seconds of an import, of its CPU time in these, in percent.
async fn programs(
    sampler: crate::process::Process,
    before: &std::collections::BTreeMap<String, account::Runs>,
    container: &Container,
) -> Option<f64> {
    let used = container.cpu_time().ok()?;
    tokio::time::sleep(WINDOW).await;
    let after = account::runs(sampler).await.ok()?;
    let used = container.cpu_time().ok()?.saturating_sub(used);
    let programs = account::all(before, &after).nanoseconds as f64;
    Some(100.0 * programs / used.as_nanos() as f64)
}

/// Less than an import takes.
const WINDOW: std::time::Duration = std::time::Duration::from_secs(6);

async fn by_perf(
    bench: &Bench,
    import: Import<'_>,
    options: &[&str],
) -> Result<(Took, Option<f64>)> {
    let perf = Perf::begin(&bench.settings, FREQUENCY, options).await?;
    let took = import.finish().await?;
    let file = perf.stop().await?;
    let _ = std::fs::remove_file(file);
    Ok((took, None))
}
