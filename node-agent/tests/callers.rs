//! `ckb-probe functions --stacks` on a program whose slow function is called from places that are known: on this machine's kernel, as
//! root, by each way to attach that it has.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "where it panics, a test fails"
)]

use std::{
    cell::Cell,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use ckb_probe_testkit::{
    Fixture, Folder, Probe, assert_contains, ckb_probe, folded, refusal, run, works,
};
use serde_json::Value;

const TIERS: [&str; 3] = ["session", "uprobe-multi", "perf-event"];

/// Those that this kernel has.
fn tiers() -> Vec<&'static str> {
    let tiers: Vec<&str> = TIERS.into_iter().filter(|tier| works(tier)).collect();
    assert!(!tiers.is_empty());
    tiers
}

fn fixture(folder: &Folder) -> PathBuf {
    folder.compile_optimised("callers")
}

const EVENTS: [&str; 4] = [
    "functions",
    "--events",
    "--stacks",
    "--include-single-stepped",
];

/// Attached: a call by `second_caller` was listed with its stack. How many were without by then: where the machine is busy, names
/// take their time at first.
fn begin(fixture: &mut Fixture, arguments: &[&str]) -> (Probe, u64) {
    let mut probe = Probe::start(fixture.pid(), &[&EVENTS[..], arguments].concat());
    let bare = Cell::new(0);
    let has_stack = |line: &Value| {
        let has_stack = line["stack"].is_array();
        bare.set(bare.get() + u64::from(!has_stack));
        has_stack
    };
    let first = probe.line_while(has_stack, || drop(fixture.tell("second 1")));
    assert_eq!(
        stack(&first)[..3],
        ["second_caller", "callers_caller", "run"]
    );
    (probe, bare.get())
}

/// Ends it; the events that were not taken, but for those of the beginning, and what was said besides.
fn end(probe: Probe) -> (Vec<Value>, String) {
    let (mut lines, said) = probe.events();
    lines.retain(|line| line["stack"][0] != "second_caller" && line["function"] == "slow_call");
    (lines, said)
}

fn stack(line: &Value) -> Vec<&str> {
    let names = line["stack"].as_array().unwrap().iter();
    names.map(|name| name.as_str().unwrap()).collect()
}

#[test]
fn stacks_are_whole_also_where_those_who_called_are_probed() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    for tier in tiers() {
        let arguments = ["--match", "*_call*", "--threshold", "1ms", "--tier", tier];
        let mut probe = Probe::start(fixture.pid(), &[&EVENTS[..], &arguments].concat());
        let mut seen = |function: &str, callers: &[&str]| {
            let line = probe.line_while(
                |line| line["function"] == function && line["stack"].is_array(),
                || drop(fixture.tell("second 1")),
            );
            let stack = stack(&line);
            assert_eq!(stack[..callers.len()], *callers, "{tier}");
            assert_ne!(stack.last(), Some(&"[truncated]"), "{tier}");
        };
        seen("slow_call", &["second_caller", "callers_caller", "run"]);
        seen("second_caller", &["callers_caller", "run"]);
        seen("callers_caller", &["run"]);
        assert_eq!(lost(&probe.events().1, "frames"), 0, "{tier}");
    }
}

#[test]
fn a_stack_that_is_cut_is_told_to_be() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    let (probe, _) = begin(
        &mut fixture,
        &["--match", "slow_call", "--threshold", "1ms"],
    );
    fixture.tell("deep");
    let (lines, said) = end(probe);
    assert_eq!(lines.len(), 1);
    let (last, others) = stack(&lines[0])
        .split_last()
        .map(|(last, all)| (*last, all.to_vec()))
        .unwrap();
    assert_eq!(last, "[truncated]");
    // 44 KiB are copied at least, and each takes a little more than one.
    assert!((40..=48).contains(&others.len()), "{others:?}");
    assert!(others.iter().all(|name| *name == "descend"), "{others:?}");
    assert_eq!(lost(&said, "frames"), 1, "{said}");
}

/// Of `lost A events, B stacks`: how many of one.
fn lost(said: &str, what: &str) -> u64 {
    let words: Vec<&str> = said.split([' ', ',']).collect();
    let at = words.iter().position(|word| *word == what);
    at.map_or(0, |at| words[at - 1].parse().unwrap())
}

#[test]
fn more_slow_calls_than_there_is_room_for_are_counted_all_the_same() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    let (probe, bare) = begin(
        &mut fixture,
        &["--match", "slow_call", "--threshold", "10us"],
    );
    fixture.tell("many 5000");
    let (lines, said) = end(probe);
    let told = lines
        .iter()
        .filter(|line| line["stack"][0] == "first_caller");
    let told = told.count() as u64;
    assert!((64..5000).contains(&told), "{told}: {said}");
    assert_eq!(told + lost(&said, "stacks") - bare, 5000, "{said}");
    assert_eq!(lines.len() as u64 + lost(&said, "events"), 5000, "{said}");
}

#[test]
fn what_is_on_the_stack_of_a_slow_call_is_told_to_nobody() {
    let (folder, mut fixture) = Fixture::made(fixture);
    let file = folder.path("slow.pb.gz");
    // Files: a pipe that nobody reads meanwhile has no room for all that is said.
    let [told, said] = ["told", "said"].map(|name| folder.path(name));
    let mut probing = Command::new(ckb_probe())
        .env("RUST_LOG", "trace")
        .args(EVENTS)
        .args(["--match", "slow_call", "--threshold", "1ms"])
        .args(["--on-breach", "report", "--duration", "5s", "-o"])
        .arg(&file)
        .args(["--pid", &fixture.pid().to_string()])
        .stdout(fs::File::create(&told).unwrap())
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    while probing.try_wait().unwrap().is_none() {
        fixture.tell("secret 10");
    }
    let [told, said] = [told, said].map(|file| fs::read_to_string(file).unwrap());
    assert!(told.contains("with_secret"), "{told}{said}");
    let written = run(Command::new("gzip").arg("-dc").arg(&file)).stdout;
    let written = String::from_utf8_lossy(&written);
    assert!(written.contains("with_secret"));
    for text in [&*told, &*said, &*written] {
        assert!(!text.contains("S3cr3tPw"), "{text}");
    }
}

#[test]
fn the_slowest_stand_below_the_table_and_all_in_a_profile_that_can_be_drawn() {
    let (folder, mut fixture) = Fixture::made(fixture);
    let file = folder.path("slow.pb.gz");
    let mut probing = Command::new(ckb_probe())
        .args(["functions", "--stacks", "--include-single-stepped"])
        .args(["--match", "slow_call", "--threshold", "1ms"])
        .args(["--on-breach", "report", "--duration", "5s", "-o"])
        .arg(&file)
        .args(["--pid", &fixture.pid().to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while probing.try_wait().unwrap().is_none() {
        fixture.tell("first 3");
        fixture.tell("second 1");
    }
    let table = String::from_utf8(probing.wait_with_output().unwrap().stdout).unwrap();
    let slow = |line: &&str| line.starts_with("slow: slow_call: ");
    let line = table
        .lines()
        .find(slow)
        .unwrap_or_else(|| panic!("{table}"));
    assert_contains(line, "ms, called by ");
    assert_contains(&table, "called by first_caller, run, ");
    let folded = folded(&file);
    let weight = |end: &str| -> u64 {
        let own = folded.lines().filter_map(|line| {
            let (stack, weight) = line.rsplit_once(' ')?;
            stack.ends_with(end).then(|| weight.parse::<u64>().unwrap())
        });
        own.sum()
    };
    let first = weight(";run;first_caller;slow_call");
    let second = weight(";run;callers_caller;second_caller;slow_call");
    // Three for one, of 2 ms each and more where the machine is busy.
    assert!(second >= 2_000_000, "{folded}");
    assert!(first > second, "{folded}");
    assert!(
        folded.lines().all(|line| line.starts_with("caller;")),
        "{folded}"
    );
}

#[test]
fn stacks_without_slow_calls_are_refused() {
    let own = std::process::id();
    let asked = ["functions", "--match", "slow_call", "-o", "/tmp/slow.pb.gz"];
    assert_eq!(
        refusal(own, &asked),
        "--output takes the stacks of slow calls: it needs --stacks, which rocksdb and functions have"
    );
    let output = Command::new(ckb_probe())
        .args(["functions", "--match", "slow_call", "--stacks"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_contains(&said, "--threshold <THRESHOLD>");
}
