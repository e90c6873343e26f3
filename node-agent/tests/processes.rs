//! `ckb-probe processes` against a process whose children end in every way: on this machine's kernel, as root.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{collections::BTreeMap, process::Command};

use ckb_probe_testkit::{Parent, Probe};
use serde_json::Value;

/// What each round does: the row, whether it is executed, and how it ends.
const WAYS: [(&str, bool, Option<&str>); 10] = [
    ("p-ok", true, Some("0")),
    ("p-fail", true, Some("3")),
    ("p-term", true, Some("SIGTERM")),
    ("p-segv", true, Some("SIGSEGV")),
    ("p-threads", true, Some("0")),
    ("p-group", true, Some("5")),
    ("p-exec", true, None),
    ("p-after", true, Some("0")),
    ("fixture", false, Some("0")),
    ("fixture", false, Some("127")),
];

/// Lists what happens around it.
fn listing(parent: &mut Parent, arguments: &[&str]) -> Probe {
    let arguments = [&["processes", "--events"], arguments].concat();
    let mut probe = Probe::start(parent.pid, &arguments);
    // It is attached once it sees something.
    probe.line_while(|_| true, || parent.tell("ping"));
    probe
}

/// Has the parent end, and so the probe: all that it said, on both outputs.
fn end(parent: Parent, mut probe: Probe) -> (Vec<Value>, String) {
    assert_eq!(parent.end().code(), Some(7));
    probe.ended()
}

/// What is told of twenty rounds of a parent in whose namespaces a shell ended with 5 before, and what there was to be told.
fn twenty_and_a_shell(mut parent: Parent, probe: Probe) -> (Told, Told) {
    parent.tell("go 20");
    let (lines, said) = end(parent, probe);
    assert!(!said.contains("lost"), "{said}");
    let mut truth = truth(20);
    truth.insert(("sh".into(), "exec".into(), String::new()), 1);
    truth.insert(("sh".into(), "end".into(), "5".into()), 1);
    (told(&lines), truth)
}

/// How often, by command, by what happened to it, and by how it ended.
type Told = BTreeMap<(String, String, String), u64>;

/// What the fixture does until it is seen.
fn is_ping(line: &Value) -> bool {
    let command = line["command"].as_str();
    command.is_some_and(|command| command.starts_with("p-ping"))
}

/// How often what was told: by command, what, and code or signal.
fn told(lines: &[Value]) -> Told {
    let mut told = BTreeMap::new();
    for line in lines.iter().filter(|line| !is_ping(line)) {
        let text = |name: &str| match &line[name] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let how = text("code") + &text("signal");
        *told
            .entry((text("command"), text("what"), how))
            .or_default() += 1;
    }
    told
}

/// What there is to tell of so many rounds, and of the fixture's end.
fn truth(rounds: u64) -> Told {
    let mut truth = BTreeMap::new();
    for (command, executed, end) in WAYS {
        let command = || command.to_string();
        if executed {
            truth.insert((command(), "exec".to_string(), String::new()), rounds);
        }
        if let Some(end) = end {
            truth.insert((command(), "end".to_string(), end.to_string()), rounds);
        }
    }
    truth.insert(("fixture".into(), "end".into(), "7".into()), 1);
    truth
}

#[test]
fn what_happens_is_told_as_it_does_however_long_an_interval_lasts() {
    let mut parent = Parent::start(&[]);
    // It prints, or it would not be taken to be attached.
    let probe = listing(&mut parent, &["--interval", "1h"]);
    parent.tell("go 20");
    let (lines, said) = end(parent, probe);
    assert!(!said.contains("lost"), "{said}");
    assert_eq!(told(&lines), truth(20));
}

#[test]
fn every_exec_and_every_end_is_told_or_counted_as_lost() {
    let mut parent = Parent::start(&[]);
    let probe = listing(&mut parent, &[]);
    parent.tell("go 1000");
    let (lines, said) = end(parent, probe);
    let lost = said.split_once("lost ").map_or(0, |(_, rest)| {
        let (count, _) = rest.split_once(" events").unwrap();
        count.trim().parse().unwrap()
    });
    println!("{lost} events lost");
    let (told, truth) = (told(&lines), truth(1000));
    if lost == 0 {
        assert_eq!(told, truth);
    }
    let sum = |all: &BTreeMap<_, u64>| all.values().sum::<u64>();
    assert_eq!(sum(&told) + lost, sum(&truth), "{said}");
    let notable = lines.iter().filter(|line| line["notable"] == true);
    assert_eq!(notable.count(), 1);
}

/// Runs `sh` in these namespaces of the target, which ends with this code.
fn enter(target: &Parent, namespaces: &[&str], code: i32) {
    let command = format!("exit {code}");
    let status = Command::new("nsenter")
        .args(["--target", &target.pid.to_string()])
        .args(namespaces)
        .args(["sh", "-c", &command, "--password=x"])
        .status();
    assert_eq!(status.unwrap().code(), Some(code));
}

#[test]
fn what_the_host_runs_in_a_pods_network_is_not_the_pods() {
    let mut parent = Parent::start(&["unshare", "--net", "--pid", "--fork"]);
    let probe = listing(&mut parent, &[]);
    // A plug-in, or an administrator; and an exec into the pod.
    enter(&parent, &["--net"], 6);
    enter(&parent, &["--net", "--pid"], 5);
    let (told, truth) = twenty_and_a_shell(parent, probe);
    assert_eq!(told, truth);
}

#[test]
fn what_belongs_to_a_pod_is_what_is_in_its_namespaces() {
    for (namespace, by) in [
        ("network", &["unshare", "--net"][..]),
        ("processes", &["unshare", "--pid", "--fork"][..]),
    ] {
        let mut parent = Parent::start(by);
        let probe = listing(&mut parent, &[]);
        // A container beside it, or an exec into its own; and somebody who has nothing to do with it.
        enter(&parent, &["--net", "--pid"], 5);
        let outside = Command::new(parent.folder().join("p-fail"))
            .arg(parent.folder())
            .status();
        assert_eq!(outside.unwrap().code(), Some(3));
        let (told, mut truth) = twenty_and_a_shell(parent, probe);
        if namespace == "network" {
            // Whoever enters the pid namespace forks, and is in the network itself while it waits.
            truth.insert(("nsenter".into(), "end".into(), "5".into()), 1);
        }
        assert_eq!(told, truth, "{namespace}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_listed_but_the_own_end_is() {
    let mut parent = Parent::start(&[]);
    let failures = listing(&mut parent, &["--list", "failures"]);
    let mut redacted = listing(&mut parent, &["--redact-arguments"]);
    parent.tell("go 10");
    let (lines, _) = end(parent, failures);
    let mut expected = truth(10);
    expected.retain(|(_, what, how), _| what == "end" && how != "0");
    assert_eq!(told(&lines), expected);
    let (lines, _) = redacted.ended();
    assert_eq!(told(&lines), truth(10));
    for line in lines.iter().filter(|line| line["what"] == "exec") {
        assert_eq!(line["arguments"], 3, "{line}");
    }
}
