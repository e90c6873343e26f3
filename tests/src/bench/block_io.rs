//! Requests to a disk that nobody else uses, against what the kernel says in /proc/diskstats and what bpftrace sees of them.

use std::sync::Arc;

use ckb_probe_testkit::disk::{Disk, percent_off};
use tokio::task::spawn_blocking;

use super::prelude::*;

const COUNTS: [Row; 2] = table! {
    "requests that ckb-probe counted otherwise than /proc/diskstats" = "worst requests" in "requests", Exactly(0.0);
    "bytes that ckb-probe counted otherwise than /proc/diskstats" = "worst bytes" in "bytes", Exactly(0.0);
};

const OFF: [Row; 3] = table! {
    "p50 of reads, off bpftrace's of the same reads" = "p50" in "%", Within(5.0);
    "p90 of reads, off bpftrace's of the same reads" = "p90" in "%", Within(5.0);
    "p99 of reads, off bpftrace's of the same reads" = "p99" in "%", Within(5.0);
};

const COSTS: [Row; 3] = table! {
    "ckb-probe" = "ours" in "ns";
    "bpftrace's biolatency" = "theirs" in "ns";
    "ckb-probe against bpftrace's biolatency" = "ours / theirs" in "x";
};

/// The quantiles that tables show.
const QUANTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99")];

/// A program of ours that every request ends in.
const PROGRAM: &str = "done";

/// Reads whose cost is looked at.
const READS: usize = 20_000;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let disk = Arc::new(blocking(|| Disk::new(64)).await?);
    counts(bench, &disk).await?;
    quantiles(bench, &disk).await?;
    cost(bench, &disk).await
}

async fn counts(bench: &mut Bench, disk: &Arc<Disk>) -> Result<()> {
    let mut series = Series::default();
    for _ in 0..bench.settings.rounds {
        let ours = ours(bench, disk).await?;
        let before = disk.statistics();
        on(disk, Disk::of_all_sorts).await?;
        let after = on(disk, Disk::at_rest).await?;
        let ours = ours.stop().await?;
        for (direction, requests, bytes) in after.since(before) {
            let total = ours.total(&disk.row(direction));
            let counted = total.count("device").unwrap_or_default();
            series.push("requests", requests.abs_diff(counted) as f64);
            let counted = total.sums.get("bytes").copied().unwrap_or_default();
            series.push("bytes", bytes.abs_diff(counted) as f64);
        }
    }
    bench.tell("block-io: ", &series, &COUNTS);
    Ok(())
}

async fn quantiles(bench: &mut Bench, disk: &Arc<Disk>) -> Result<()> {
    let mut series = Series::default();
    for _ in 0..bench.settings.rounds {
        // First: tracepoints run what was attached first, and to print takes bpftrace microseconds.
        let ours = ours(bench, disk).await?;
        let theirs = Probes::script(&disk.durations_by_bpftrace(), 2).await?;
        on(disk, Disk::read_all_sizes).await?;
        on(disk, Disk::at_rest).await?;
        let (ours, theirs) = (ours.stop().await?, theirs.stop().await?);
        let mut reads = ours.total(&disk.row("read"));
        let durations = reads.distributions.remove("device");
        let ours = durations.map(|one| one.histogram).unwrap_or_default();
        let texts = theirs.bpftrace_texts().map(|text| text.trim().parse());
        let durations: std::result::Result<Vec<u64>, _> = texts.collect();
        let mut durations = durations.map_err(Failure::format("what bpftrace printed"))?;
        durations.sort_unstable();
        expect(
            durations.len() as u64 == ours.count() && durations.len() > 1000,
            format!("{} reads seen by bpftrace", ours.count()),
            || format!("{}; {}", durations.len(), theirs.errors),
        )?;
        for (quantile, name) in QUANTILES {
            let ours = ours.quantile(quantile).unwrap_or_default();
            series.push(name, percent_off(ours, &durations, quantile));
        }
    }
    bench.tell("block-io: ", &series, &OFF);
    Ok(())
}

async fn ours(bench: &Bench, disk: &Disk) -> Result<Probes> {
    let options = [
        "--devices",
        disk.name(),
        "--interval",
        "1h",
        "--json",
        "--on-breach",
        "report",
    ];
    let own = Process::of(std::process::id() as i32)?;
    Probes::of_kind(&bench.settings.programs, "block-io", PROGRAM, own, &options).await
}

/// Of the CPU, by the kernel's account of the programs.
async fn cost(bench: &mut Bench, disk: &Arc<Disk>) -> Result<()> {
    // As bpftrace's biolatency: one histogram, from a request's beginning to its end, of all disks.
    let script = "tracepoint:block:block_io_start { @s[args->dev, args->sector] = nsecs; } \
                  tracepoint:block:block_io_done /@s[args->dev, args->sector]/ { \
                  @d = hist((nsecs - @s[args->dev, args->sector]) / 1000); delete(@s[args->dev, args->sector]); }";
    let _account = Account::open()?;
    let measure = async |is_ours| {
        let probes = match is_ours {
            true => ours(bench, disk).await?,
            false => Probes::script(script, 2).await?,
        };
        let process = probes.process()?;
        let before = account::runs(process).await?;
        on(disk, |disk| disk.read_direct(READS, 4096)).await?;
        on(disk, Disk::at_rest).await?;
        let after = account::runs(process).await?;
        probes.stop().await?;
        // Others on this machine use disks, too.
        let requests = match is_ours {
            true => account::since(&before, &after, PROGRAM)?.count,
            // One program at the beginning, one at the end.
            false => account::all(&before, &after).count / 2,
        };
        let enough = requests >= READS as u64;
        expect(enough, format!("{READS} requests"), || requests)?;
        let nanos = account::all(&before, &after).nanoseconds as f64;
        Ok(vec![("", nanos / requests as f64)])
    };
    let both = [("ours", true), ("theirs", false)];
    let series = bench.turns(Order::ToAndFro, &both, measure).await?;
    bench.tell("block-io: programs of a request, ", &series, &COSTS);
    Ok(())
}

async fn on<T: Send + 'static>(
    disk: &Arc<Disk>,
    what: impl FnOnce(&Disk) -> T + Send + 'static,
) -> Result<T> {
    let disk = disk.clone();
    blocking(move || what(&disk)).await
}

/// A disk is of the tests, and panics where it fails.
async fn blocking<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    spawn_blocking(what)
        .await
        .map_err(Failure::format("a disk"))
}
