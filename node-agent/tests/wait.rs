//! `ckb-probe rocksdb --wait`, and a process that is there before what is measured in it: on this machine's kernel, as root.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use ckb_probe_crds::Figures;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

const CKB_PROBE: &str = env!("CARGO_BIN_EXE_ckb-probe");

/// Until the command line has tried how to attach, and waits.
const READY: Duration = Duration::from_secs(60);

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
    let measuring = Command::new(CKB_PROBE)
        .args(["rocksdb", "--wait", "--executable", "late", "--json"])
        .args(["--operations", "Get,TxnGet,TxnPut"])
        .args(["--on-breach", "report", "--interval", "1h"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_it_watches(&measuring);
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

/// The tests' fixtures, compiled where they are older than their sources.
fn fixtures() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = repository.join("target/fixtures");
    let status = Command::new(repository.join("tests/fixtures/build.sh"))
        .arg(&folder)
        .status()
        .unwrap();
    assert!(status.success(), "the fixtures do not compile: see above");
    folder
}

/// Until it would be told of an exec.
fn wait_until_it_watches(program: &Child) {
    let folder = format!("/proc/{}/fdinfo", program.id());
    let start = Instant::now();
    let watches = || {
        let descriptors = fs::read_dir(&folder).into_iter().flatten().flatten();
        let texts = descriptors.filter_map(|one| fs::read_to_string(one.path()).ok());
        texts
            .into_iter()
            .any(|text| text.contains("sched_process_exec"))
    };
    while !watches() {
        assert!(start.elapsed() < READY, "{CKB_PROBE} watches no exec");
        sleep(Duration::from_millis(10));
    }
}
