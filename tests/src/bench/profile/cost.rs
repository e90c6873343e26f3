//! How much slower a CKB import is while it is profiled, and while perf does the same.

use super::{super::chain, Profiling, peer::Perf};
use crate::bench::prelude::*;

/// What is compared: each stands beside imports that are not profiled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Cpu,
    Nothing,
    Both,
    Perf(&'static str),
}

const ALL: [(&str, By); 6] = [
    ("cpu", By::Cpu),
    ("nothing", By::Nothing),
    ("both", By::Both),
    ("dwarf", By::Perf("dwarf,32768")),
    ("again", By::Nothing),
    ("frames", By::Perf("fp")),
];

/// As we sample by default.
const FREQUENCY: &str = "99";

const ROWS: [Row; 2] = table! {
    "not profiled" = "nothing.wall" in "s";
    "cpu, 99 Hz: programs, of the import's CPU time" = "cpu.programs" in "%", AtMost(0.5);
};

const MORE: [Row; 5] = table! {
    "not profiled once more" = "again % nothing" in "%";
    "cpu, 99 Hz" = "cpu % nothing~again" in "%", AtMost(0.5);
    "cpu and off-cpu, default rates" = "both % nothing~again" in "%", AtMost(1.0);
    "perf record, dwarf, 99 Hz" = "dwarf % nothing~again" in "%";
    "perf record, frame pointers, 99 Hz" = "frames % nothing~again" in "%";
};

/// Less than an import takes.
const WINDOW: Duration = Duration::from_secs(6);

pub async fn run(bench: &mut Bench) -> Result<()> {
    // Not measured: it fetches node and blocks from the disk.
    import(bench, By::Nothing).await?;
    let measure = async |by| import(bench, by).await;
    let series = bench.turns(Order::ToAndFro, &ALL, measure).await?;
    bench.tell("profile-cost: ", &series, &ROWS);
    chain::tell_more(bench, "profile-cost", &series, &MORE);
    Ok(())
}

/// One import; where it is sampled on the CPU, with what programs of ours took of its CPU time, in percent.
async fn import(bench: &Bench, by: By) -> Result<Found> {
    let settings = &bench.settings;
    let container = Container::new(1);
    let import = Import::start(settings, &container)?;
    let process = import.process().await?;
    let cpu = ["--mode", "cpu"];
    match by {
        By::Nothing => Ok(import.finish().await?.found()),
        By::Cpu => {
            let account = Account::open()?;
            let profiling = Profiling::start(settings, 2, process, "cost.pb.gz", &cpu).await?;
            let sampler = profiling.process();
            // The programs are gone when it ends with its target.
            let before = account::runs(sampler).await?;
            let programs = async {
                let used = container.cpu_time();
                sleep(WINDOW).await;
                let after = account::runs(sampler).await?;
                let used = container.cpu_time().saturating_sub(used).as_nanos() as f64;
                Ok(100.0 * account::all(&before, &after).nanoseconds as f64 / used)
            };
            let (programs, took): (Result<f64>, _) = tokio::join!(programs, import.finish());
            let mut found = took?.found();
            drop(account);
            profiling.stop().await?;
            found.extend(programs.ok().map(|percent| ("programs", percent)));
            Ok(found)
        }
        By::Both => {
            let one = Profiling::start(settings, 2, process, "cost.pb.gz", &cpu).await?;
            let off = ["--mode", "off-cpu"];
            let other = Profiling::start(settings, 3, process, "cost-off.pb.gz", &off).await?;
            let took = import.finish().await?;
            one.stop().await?;
            other.stop().await?;
            Ok(took.found())
        }
        By::Perf(graph) => {
            let perf = Perf::begin(settings, FREQUENCY, &["--call-graph", graph]).await?;
            let took = import.finish().await?;
            let _ = fs::remove_file(perf.stop().await?);
            Ok(took.found())
        }
    }
}
