//! Requests to disks against what the kernel says in /proc/diskstats, and against bpftrace: as root, on loop devices that nobody
//! else uses.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

#[path = "block_io/views.rs"]
mod views;

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use ckb_probe_crds::Figures;
use ckb_probe_testkit::{
    Probe, Rows,
    disk::{Disk, Requests, percent_off},
    refusal, run,
};
use rustix::process::{Pid, Signal, kill_process};

/// Counts the requests to a disk from now on; this process is the one whose own they are.
fn counting(disk: &Disk, arguments: &[&str]) -> Probe {
    let arguments = [&["block-io", "--devices", disk.name()], arguments].concat();
    let probe = Probe::start(std::process::id(), &arguments);
    probe.says("attached; the figures are of the node's disks: own are");
    probe
}

fn counted(rows: &Rows, disk: &Disk) -> Requests {
    ["read", "write", "discard", "flush"].map(|direction| {
        let all = rows.row(&disk.row(direction)).total();
        let requests = all.count("device").unwrap();
        (direction, requests, all.sums["bytes"])
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
    let probe = counting(&disk, &["--json"]);
    let before = disk.statistics();
    disk.of_all_sorts();
    let after = disk.at_rest();
    let (rows, told) = probe.rows();
    let (counted, expected) = (counted(&rows, &disk), after.since(before));
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
    let probe = counting(&disk, &["--json"]);
    let before = disk.statistics();
    disk.read_direct(500, 1 << 20);
    let (rows, _) = probe.rows();
    let after = disk.at_rest();
    let all = rows.row(&disk.row("read")).total();
    let sum = |measure| all.distributions[measure].sum;
    let seen = (sum("queue") + sum("device")) / 1_000_000;
    assert_eq!(all.distributions["device"].unmeasured, 0);
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
    let probe = counting(&disk, &["--json"]);
    disk.read_direct(100, 4096);
    let other = "of=/dev/null bs=4096 count=50 iflag=direct".split(' ');
    run(Command::new("dd")
        .args(other)
        .arg(format!("if={}", disk.path())));
    let (rows, _) = probe.rows();
    let part = |figures: &Figures| (figures.count("device"), figures.sums["bytes"]);
    let parts = rows.row(&disk.row("read")).totals();
    let parts: Vec<_> = parts.iter().map(|(name, one)| (*name, part(one))).collect();
    assert_eq!(
        parts,
        [
            ("other", (Some(50), 50 * 4096)),
            ("own", (Some(100), 100 * 4096))
        ]
    );
}

#[test]
fn a_slow_request_is_told_with_who_asked_for_it_and_what_it_took_where() {
    let disk = Disk::new(16);
    let probe = counting(&disk, &["--events", "--slow-threshold", "1us"]);
    disk.read_direct(40, 8192);
    let (lines, _) = probe.events();
    assert_eq!(lines.len(), 40);
    for line in &lines {
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
    let probe = counting(&asked, &["--json"]);
    asked.read_direct(3, 4096);
    other.read_direct(5, 4096);
    assert_eq!(probe.rows().0.names(), [asked.row("read")]);
}

#[test]
fn a_disk_that_is_not_there_is_refused_and_one_beside_another_is_told() {
    let own = std::process::id();
    let told = refusal(own, &["block-io", "--devices", "nope"]);
    let rest = told.strip_prefix("there is no disk nope: this node has ");
    assert!(rest.is_some_and(|rest| !rest.is_empty()), "{told}");
    let disk = Disk::new(1);
    let devices = format!("{},nope", disk.name());
    let probe = Probe::start(own, &["block-io", "--devices", &devices, "--json"]);
    probe.says("; there is no disk nope");
    disk.read_direct(3, 4096);
    assert_eq!(probe.rows().0.names(), [disk.row("read")]);
}

#[test]
fn quantiles_are_those_of_bpftrace() {
    let disk = Disk::new(64);
    // First: the tracepoints run what was attached first, and to print takes bpftrace microseconds.
    let probe = counting(&disk, &["--json"]);
    // A mount namespace of its own: the machine need not have tracefs.
    let mounts = "mount -t debugfs debugfs /sys/kernel/debug; mount -t tracefs tracefs /sys/kernel/tracing; exec \"$@\"";
    let mut bpftrace = Command::new("unshare")
        .args(["-m", "sh", "-c", mounts])
        .args("sh bpftrace -B line -e".split(' '))
        .arg(disk.durations_by_bpftrace())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(bpftrace.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("Attaching"));
    thread::sleep(Duration::from_secs(3));
    disk.read_all_sizes();
    let (rows, _) = probe.rows();
    kill_process(Pid::from_child(&bpftrace), Signal::INT).unwrap();
    let mut durations: Vec<u64> = lines
        .filter_map(|line| line.unwrap().parse().ok())
        .collect();
    bpftrace.wait().unwrap();
    durations.sort_unstable();
    let all = rows.row(&disk.row("read")).total();
    let device = &all.distributions["device"];
    assert_eq!(device.count(), durations.len() as u64);
    for quantile in [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99] {
        let ours = device.histogram.quantile(quantile).unwrap();
        let off = percent_off(ours, &durations, quantile);
        println!("{quantile}: {ours} ns, {off:+.1} % off bpftrace's");
        assert!(off.abs() < 5.0, "{quantile}: {ours} ns");
    }
}
