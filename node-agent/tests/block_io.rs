//! Requests to disks against what the kernel says in /proc/diskstats, and against bpftrace: as root, on loop devices that nobody
//! else uses.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

#[path = "block_io/disk.rs"]
#[allow(dead_code, reason = "others need the rest")]
mod disk;
#[path = "block_io/session.rs"]
mod session;
#[path = "block_io/views.rs"]
mod views;

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use disk::{Disk, Requests};
use session::{Session, own_pid};

/// What was counted of the same.
fn counted(session: &Session, disk: &Disk) -> Requests {
    ["read", "write", "discard", "flush"].map(|direction| {
        let row = session.row(&disk.row(direction)).unwrap();
        let requests = row.all.count("device").unwrap();
        (direction, requests, row.all.sums["bytes"])
    })
}

/// How many requests were told to be lost.
fn lost(told: &str) -> u64 {
    let (_, lost) = told.split_once("lost ").unwrap_or_default();
    let count = lost.split_once(" requests").map(|(count, _)| count);
    count.map_or(0, |count| count.parse().unwrap())
}

/// Whether it was counted to the last request: not what the kernel did not show, which is told as a loss.
fn is_exact(scheduler: &str) -> bool {
    let disk = Disk::new(64);
    disk.schedule_by(scheduler);
    let mut session = Session::begin(own_pid(), &["--devices", disk.name()]);
    let before = disk.statistics();
    disk.read_direct(1000, 4096);
    disk.write_direct(300, 64 << 10);
    disk.sync();
    disk.discard(1 << 20);
    // Large ones are split, neighbours are merged, and what is written back nobody asks for.
    disk.read_direct(3, 4 << 20);
    disk.write_buffered(16 << 20);
    disk.sync();
    let after = disk.at_rest();
    let told = session.end();
    let (counted, expected) = (counted(&session, &disk), after.since(before));
    assert!(
        expected[0].1 >= 1003 && expected[1].1 >= 300 && expected[2].1 > 0 && expected[3].1 > 0
    );
    let sum = |requests: Requests| requests.iter().map(|(_, count, _)| count).sum::<u64>();
    let (missing, lost) = (sum(expected) - sum(counted), lost(&told));
    assert!(
        missing <= lost,
        "{scheduler}: {missing} more than {lost}: {counted:?}, not {expected:?}"
    );
    if lost > 0 {
        return false;
    }
    assert_eq!(counted, expected, "{scheduler}: {told}");
    true
}

#[test]
fn counts_and_bytes_are_those_of_diskstats() {
    for scheduler in ["none", "mq-deadline"] {
        assert!(
            (0..10).any(|_| is_exact(scheduler)),
            "{scheduler}: something was lost each time"
        );
    }
}

/// Between the ends that the two give a request lies the kernel's own accounting, and what the machine puts in between.
const PER_REQUEST: Duration = Duration::from_micros(10);

/// The milliseconds that requests took by what was seen, and by the kernel; and how many they were.
fn took() -> (u64, u64, u64) {
    let disk = Disk::new(64);
    let mut session = Session::begin(own_pid(), &["--devices", disk.name()]);
    let before = disk.statistics();
    disk.read_direct(500, 1 << 20);
    session.end();
    let after = disk.at_rest();
    let row = session.row(&disk.row("read")).unwrap();
    let sum = |measure| row.all.distributions[measure].sum;
    let seen = (sum("queue") + sum("device")) / 1_000_000;
    assert_eq!(row.all.distributions["device"].unmeasured, 0);
    (seen, after.0[3] - before.0[3], after.since(before)[0].1)
}

#[test]
fn what_requests_took_is_what_diskstats_says() {
    // Who is put aside between the two ends, and for how long, is the machine's: it is not so each time.
    let mut tries = (0..5).map(|_| took());
    let found = tries.any(|(seen, told, requests)| {
        println!("{requests} requests took {seen} ms, and {told} ms by diskstats");
        let between = PER_REQUEST * requests as u32;
        u128::from(seen.abs_diff(told)) <= 2 + between.as_millis()
    });
    assert!(found, "off each time");
}

#[test]
fn what_the_target_asked_for_is_told_from_what_others_did() {
    let disk = Disk::new(16);
    let mut session = Session::begin(own_pid(), &["--devices", disk.name()]);
    disk.read_direct(100, 4096);
    let input = format!("if={}", disk.path());
    let other = [
        "of=/dev/null",
        "bs=4096",
        "count=50",
        "iflag=direct",
        &input,
    ];
    assert!(
        Command::new("dd")
            .args(other)
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    session.end();
    let row = session.row(&disk.row("read")).unwrap();
    let parts: Vec<_> = row
        .parts
        .iter()
        .map(|(name, figures)| {
            (
                name.as_str(),
                figures.count("device"),
                figures.sums["bytes"],
            )
        })
        .collect();
    assert_eq!(
        parts,
        [
            ("other", Some(50), 50 * 4096),
            ("own", Some(100), 100 * 4096)
        ]
    );
}

#[test]
fn a_slow_request_is_counted_and_told() {
    let disk = Disk::new(16);
    let arguments = ["--devices", disk.name(), "--slow-threshold", "1us"];
    let mut counting = Session::begin(own_pid(), &arguments);
    let mut telling = Session::begin_events(own_pid(), &arguments);
    disk.read_direct(40, 8192);
    counting.end();
    telling.end();
    let row = counting.row(&disk.row("read")).unwrap();
    assert_eq!(row.all.sums["slow"], 40);
    assert_eq!(telling.lines.len(), 40);
    for line in &telling.lines {
        assert_eq!(line["disk"], disk.row("read"));
        assert_eq!(line["issuer"], "own");
        assert_eq!(line["bytes"], 8192);
        let nanoseconds = |name| line[format!("{name}Nanoseconds")].as_u64().unwrap();
        let sum = nanoseconds("queue") + nanoseconds("device");
        assert_eq!(nanoseconds("duration"), sum);
    }
}

#[test]
fn a_disk_that_nobody_asked_about_is_in_no_row() {
    let (asked, other) = (Disk::new(1), Disk::new(1));
    let mut session = Session::begin(own_pid(), &["--devices", asked.name()]);
    asked.read_direct(3, 4096);
    other.read_direct(5, 4096);
    session.end();
    assert_eq!(session.rows(), [asked.row("read")]);
}

#[test]
fn quantiles_are_those_of_bpftrace() {
    let disk = Disk::new(64);
    let device = disk.device();
    let script = format!(
        "tracepoint:block:block_rq_issue /args->dev == {device}/ {{ @begun[args->sector] = nsecs; }}
         tracepoint:block:block_io_done /args->dev == {device} && @begun[args->sector]/ {{
             printf(\"%lu\\n\", nsecs - @begun[args->sector]); delete(@begun[args->sector]); }}
         END {{ clear(@begun); }}"
    );
    // First: the tracepoints run what was attached first, and to print takes bpftrace microseconds.
    let mut session = Session::begin(own_pid(), &["--devices", disk.name()]);
    // A mount namespace of its own: the machine need not have tracefs.
    let mounts = "mount -t debugfs debugfs /sys/kernel/debug; mount -t tracefs tracefs /sys/kernel/tracing; exec \"$@\"";
    let mut bpftrace = Command::new("unshare")
        .args([
            "-m", "sh", "-c", mounts, "sh", "bpftrace", "-B", "line", "-e",
        ])
        .arg(&script)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(bpftrace.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("Attaching"));
    thread::sleep(Duration::from_secs(3));
    // Of all sizes, so that it is not one duration.
    for size in [4 << 10, 64 << 10, 256 << 10, 1 << 20] {
        disk.read_direct(700, size);
    }
    session.end();
    session::interrupt(bpftrace.id());
    let mut durations: Vec<u64> = lines
        .filter_map(|line| line.unwrap().parse().ok())
        .collect();
    bpftrace.wait().unwrap();
    durations.sort_unstable();
    let row = session.row(&disk.row("read")).unwrap();
    let device = &row.all.distributions["device"];
    assert_eq!(device.count(), durations.len() as u64);
    for quantile in [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99] {
        // The nearest of the ranks around it: in a tail of few, one duration may be twice the next.
        let rank = (durations.len() as f64 * quantile).ceil() as usize - 1;
        let ours = device.histogram.quantile(quantile).unwrap() as f64;
        let near = durations[rank - 2..=rank + 2].iter();
        let theirs = near.map(|theirs| *theirs as f64);
        let off = theirs.map(|theirs| (ours / theirs - 1.0) * 100.0);
        let off = off.min_by(|one, other| one.abs().total_cmp(&other.abs()));
        let (theirs, off) = (durations[rank], off.unwrap());
        println!("{quantile}: {ours} ns, bpftrace {theirs} ns, {off:+.1} %");
        assert!(off.abs() < 5.0, "{quantile}: {ours} ns, not {theirs}");
    }
}
