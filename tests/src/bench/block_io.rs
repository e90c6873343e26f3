//! Requests to a disk that nobody else uses, against what the kernel says in /proc/diskstats and what bpftrace sees of them.

use std::sync::Arc;

use ckb_probe_crds::Histogram;
use ckb_probe_testkit::disk::Disk;
use tokio::task::spawn_blocking;

use super::{
    Bench,
    account::{self, Account},
    probes::{Printed, Probes},
    statistics::{ratios, summary, to_and_fro},
};
use crate::{
    failure::{Failure, Result, expect},
    process::Process,
    report::Bound,
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
    let (mut requests_astray, mut bytes_astray) = (0, 0);
    for _ in 0..bench.settings.rounds {
        let ours = ours(bench, disk).await?;
        let before = on(disk, |disk| {
            let before = disk.statistics();
            disk.read_direct(1000, 4096);
            disk.write_direct(300, 64 << 10);
            disk.sync();
            disk.discard(1 << 20);
            // Large ones are split, neighbours are merged, and what is written back nobody asks for.
            disk.read_direct(3, 4 << 20);
            disk.write_buffered(16 << 20);
            disk.sync();
            before
        })
        .await?;
        let after = on(disk, Disk::at_rest).await?;
        let ours = ours.stop().await?;
        // The worst, not the median: this is exact, or it is wrong.
        for (direction, requests, bytes) in after.since(before) {
            let total = ours.total(&disk.row(direction));
            let counted = total.count("device").unwrap_or_default();
            requests_astray = requests.abs_diff(counted).max(requests_astray);
            let counted = total.sums.get("bytes").copied().unwrap_or_default();
            bytes_astray = bytes.abs_diff(counted).max(bytes_astray);
        }
    }
    for (what, astray) in [("requests", requests_astray), ("bytes", bytes_astray)] {
        let name =
            format!("block-io: {what} that ckb-probe counted otherwise than /proc/diskstats");
        bench.value(&name, astray as f64, what, Some(Bound::Exactly(0.0)));
    }
    Ok(())
}

async fn quantiles(bench: &mut Bench, disk: &Arc<Disk>) -> Result<()> {
    let mut offs = Vec::new();
    for _ in 0..bench.settings.rounds {
        // First: tracepoints run what was attached first, and to print takes bpftrace microseconds.
        let ours = ours(bench, disk).await?;
        let theirs = Probes::script(&printing(disk), 2).await?;
        on(disk, |disk| {
            // Of all sizes, so that it is not one duration.
            for size in [4 << 10, 64 << 10, 256 << 10, 1 << 20] {
                disk.read_direct(700, size);
            }
        })
        .await?;
        on(disk, Disk::at_rest).await?;
        let (ours, theirs) = (ours.stop().await?, theirs.stop().await?);
        let mut reads = ours.total(&disk.row("read"));
        let durations = reads.distributions.remove("device");
        let histogram = durations.map(|one| one.histogram).unwrap_or_default();
        offs.push(off(&histogram, &theirs)?);
    }
    for (index, (_, quantile)) in QUANTILES.iter().enumerate() {
        let name = format!("block-io: {quantile} of reads, off bpftrace's of the same reads");
        let off = summary(offs.iter().map(|off| off[index]));
        bench.figure(&name, off, "%", Some(Bound::Within(5.0)));
    }
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

/// How long the device had each request.
fn printing(disk: &Disk) -> String {
    let device = disk.device();
    format!(
        "tracepoint:block:block_rq_issue /args->dev == {device}/ {{ @s[args->sector] = nsecs; }} \
         tracepoint:block:block_io_done /args->dev == {device} && @s[args->sector]/ {{ \
         printf(\"%lu\\n\", nsecs - @s[args->sector]); delete(@s[args->sector]); }}"
    )
}

fn off(ours: &Histogram, theirs: &Printed) -> Result<[f64; QUANTILES.len()]> {
    let mut durations = theirs
        .bpftrace_texts()
        .map(|text| text.trim().parse())
        .collect::<std::result::Result<Vec<u64>, _>>()
        .map_err(Failure::format("what bpftrace printed"))?;
    durations.sort_unstable();
    expect(
        durations.len() as u64 == ours.count() && durations.len() > 1000,
        format!("{} reads seen by bpftrace", ours.count()),
        || format!("{}; {}", durations.len(), theirs.errors),
    )?;
    Ok(QUANTILES.map(|(quantile, _)| {
        // The nearest of the ranks around it: in a tail of few, one duration may be twice the next.
        let rank = (durations.len() as f64 * quantile).ceil() as usize - 1;
        let ours = ours.quantile(quantile).unwrap_or_default() as f64;
        let near = durations[rank - 2..=rank + 2].iter();
        let off = near.map(|theirs| (ours / *theirs as f64 - 1.0) * 100.0);
        off.min_by(|one, other| one.abs().total_cmp(&other.abs()))
            .unwrap_or(f64::INFINITY)
    }))
}

/// Of the CPU, by the kernel's account of the programs.
async fn cost(bench: &mut Bench, disk: &Arc<Disk>) -> Result<()> {
    // As bpftrace's biolatency: one histogram, from a request's beginning to its end, of all disks.
    let script = "tracepoint:block:block_io_start { @s[args->dev, args->sector] = nsecs; } \
                  tracepoint:block:block_io_done /@s[args->dev, args->sector]/ { \
                  @d = hist((nsecs - @s[args->dev, args->sector]) / 1000); delete(@s[args->dev, args->sector]); }";
    let _account = Account::open()?;
    let mut nanos = [const { Vec::new() }; 2];
    for round in 0..bench.settings.rounds {
        for index in to_and_fro(nanos.len(), round) {
            let probes = match index {
                0 => ours(bench, disk).await?,
                _ => Probes::script(script, 2).await?,
            };
            let process = probes.process()?;
            let before = account::runs(process).await?;
            on(disk, |disk| disk.read_direct(READS, 4096)).await?;
            on(disk, Disk::at_rest).await?;
            let after = account::runs(process).await?;
            probes.stop().await?;
            // Others on this machine use disks, too.
            let requests = match index {
                0 => account::since(&before, &after, PROGRAM)?.count,
                // One program at the beginning, one at the end.
                _ => account::all(&before, &after).count / 2,
            };
            expect(
                requests >= READS as u64,
                format!("{READS} requests"),
                || requests.to_string(),
            )?;
            nanos[index].push(account::all(&before, &after).nanoseconds as f64 / requests as f64);
        }
    }
    let [ours, theirs] = &nanos;
    let mut add = |what: &str, values: &[f64], unit| {
        let name = format!("block-io: programs of a request, {what}");
        bench.figure(&name, summary(values.iter().copied()), unit, None);
    };
    add("ckb-probe", ours, "ns");
    add("bpftrace's biolatency", theirs, "ns");
    let against = "ckb-probe against bpftrace's biolatency";
    add(against, &ratios(ours, theirs), "x");
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
