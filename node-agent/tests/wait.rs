//! `ckb-probe rocksdb --wait`, and a process that is there before what is measured in it: on this machine's kernel, as root.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};

use ckb_probe_crds::Figures;
use ckb_probe_testkit::{ckb_probe, fixtures, holds, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

/// What the process that is waited for calls a second, and for how long it does when it can.
const RATE: &str = "2000";
const LIFE: Duration = Duration::from_millis(600);

/// From the mapping to the first call that is counted, on a machine that may be busy: far less than a second.
const SOON: Duration = Duration::from_millis(400);

/// The same where nothing gets in the way: what it takes to look again, and to attach.
const AT_ONCE: Duration = Duration::from_millis(100);

/// A line of `ckb-probe rocksdb --json`.
#[derive(Deserialize)]
struct Line {
    row: String,
    total: Figures,
}

#[test]
fn what_is_mapped_only_after_a_while_is_measured_within_milliseconds() {
    let late = fixtures().join("late");
    let delays = [0, 50, 120, 200, 300];
    let took = delays.map(|delay| from_mapping_to_first_call(&late, delay));
    println!("{took:?}, for libraries mapped after {delays:?} ms");
    assert!(took.iter().all(|took| *took <= SOON), "{took:?}");
    assert!(took[1..].iter().any(|took| *took <= AT_ONCE), "{took:?}");
}

/// Has the process wait so many milliseconds before it maps the library.
fn from_mapping_to_first_call(late: &Path, delay: u64) -> Duration {
    let measuring = Command::new(ckb_probe())
        .args(["rocksdb", "--wait", "--executable", "late", "--json"])
        .args(["--operations", "Get,TxnGet,TxnPut"])
        .args(["--on-breach", "report", "--interval", "1h"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it watches execs", || {
        holds(measuring.id(), "sched_process_exec")
    });
    let measured = Command::new(late)
        .args([&delay.to_string(), RATE])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sleep(Duration::from_millis(delay) + LIFE);
    kill_process(Pid::from_child(&measured), Signal::TERM).unwrap();
    let said = measured.wait_with_output().unwrap().stdout;
    let times: Vec<u64> = String::from_utf8(said)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    let (mapped, calls) = times.split_first().unwrap();

    let Output { stdout, stderr, .. } = measuring.wait_with_output().unwrap();
    let lines = String::from_utf8(stdout).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Line>(line).unwrap());
    // The last of each operation.
    let counted: BTreeMap<String, u64> = lines
        .map(|line| (line.row, line.total.count("duration").unwrap()))
        .collect();
    let counted = counted.values().sum::<u64>() as usize;
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(
        (1..=calls.len()).contains(&counted),
        "mapped after {delay} ms: {counted} of {} calls counted; {stderr}",
        calls.len()
    );
    Duration::from_nanos(calls[calls.len() - counted] - mapped)
}
