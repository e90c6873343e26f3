//! `ckb-probe cost` of a program that does as much as it can: on this machine's kernel, as root.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "where it panics, a test fails"
)]

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Output, Stdio},
    thread::{sleep, spawn},
    time::Duration,
};

use ckb_probe_testkit::{Fixture, Folder, assert_contains, ckb_probe};
use ckb_probe_views::{
    cost::Measure,
    document::{Document, View},
};
use serde_json::Value;

/// A program that serves, and the command that tells how often.
fn serving() -> (Folder, Fixture, String) {
    let folder = Folder::new();
    let program = folder.compile_optimised("serves");
    let file = folder.path("served");
    let mut fixture = Fixture::run(Command::new(program).arg(&file));
    assert_eq!(fixture.answer(), "");
    (folder, fixture, format!("cat {}", file.display()))
}

fn cost(pid: u32, arguments: &[&str]) -> Output {
    Command::new(ckb_probe())
        .args(["cost", "functions", "--pid", &pid.to_string()])
        .args(["--each", "500ms", "--settle", "200ms"])
        .args(arguments)
        .output()
        .unwrap()
}

/// What is printed of a measure.
fn effect(lines: &[Value], measure: &str) -> Value {
    let line = lines.iter().find(|line| line["measure"] == measure);
    line.unwrap_or_else(|| panic!("no {measure} in {lines:?}"))
        .clone()
}

#[test]
fn what_probes_cost_is_found_and_nothing_where_they_are_met_by_nobody() {
    let (_folder, fixture, counter) = serving();
    let arguments = |function: &'static str| {
        let all = ["--on-breach", "report", "--duration", "14s", "--json"];
        let of = [
            "--match",
            function,
            "--counter",
            &counter,
            "--request",
            "true",
        ];
        let output = cost(fixture.pid(), &[&all[..], &of[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        // It takes a while, and says how it stands.
        assert_contains(&said, "ckb-probe: 6 pairs, CPU time ");
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        println!("{function}: {}", effect(&lines, "CPU time of a count"));
        lines
    };
    let lines = arguments("served");
    let windows: Vec<&Value> = lines
        .iter()
        .filter(|line| !line["pair"].is_null())
        .collect();
    let pairs = windows.len() / 2;
    assert!(pairs >= 6, "{pairs}");
    for pair in 0..pairs {
        let probed = windows.iter().filter(|window| window["pair"] == pair);
        let probed = probed.filter(|window| window["probed"] == true).count();
        assert_eq!(probed, 1, "{windows:?}");
    }
    // A call costs a microsecond and more, beside one or two of work.
    let of_count = effect(&lines, "CPU time of a count");
    let more = of_count["with"].as_f64().unwrap() - of_count["without"].as_f64().unwrap();
    assert!((300.0..10_000.0).contains(&more), "{of_count}");
    assert_eq!(of_count["noise"], false, "{of_count}");
    assert_eq!(of_count["effect"]["pairs"], pairs, "{of_count}");
    let effect_of_count = of_count["effect"]["effect"].as_f64().unwrap();
    assert!(effect_of_count > 0.1, "{of_count}");
    // It has no time to spare, so it serves less.
    let counted = effect(&lines, "counter, a second");
    assert!(
        counted["effect"]["effect"].as_f64().unwrap() < -0.1,
        "{counted}"
    );
    effect(&lines, "request, median");

    let lines = arguments("idle");
    let of_count = effect(&lines, "CPU time of a count");
    let off = of_count["effect"]["effect"].as_f64().unwrap().abs();
    assert!(off < effect_of_count / 2.0, "{of_count}");
}

#[test]
fn what_it_comes_to_is_one_document_that_is_read_back_and_nothing_else_is_printed() {
    let (_folder, fixture, _) = serving();
    let options = ["--match", "idle", "--each", "100ms", "--settle", "20ms"];
    let output = Command::new(ckb_probe())
        .args(["cost", "functions", "--pid", &fixture.pid().to_string()])
        .args(options)
        .args(["--duration", "8s", "-o", "json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let document = Document::read(&text).unwrap();
    assert_eq!(document.line(), text.trim_end());
    let View::Cost(cost) = document.view else {
        panic!("{text}");
    };
    let name = fixture.pid().to_string();
    assert!(
        cost.subject.starts_with(&format!("process {name} (")),
        "{}",
        cost.subject
    );
    assert!(cost.subject.ends_with(" functions"), "{}", cost.subject);
    assert_eq!((&*cost.window, &*cost.settle), ("100ms", "20ms"));
    assert_eq!(cost.ended, None);
    let compared = cost.compared.iter().find(|one| one.measure == Measure::Cpu);
    assert_eq!(compared.unwrap().pairs * 2, cost.windows.len());
}

/// One that ends is there for a while, without its main thread and most of its memory, and nothing can be attached to it.
#[test]
fn what_was_compared_is_told_of_a_process_that_ends_slowly() {
    let folder = Folder::new();
    let program = folder.compile("cc", "leaderless.c", "leaderless", &["-pthread"]);
    let mut fixture = Fixture::start(&program);
    let mut probe = Command::new(ckb_probe())
        .args(["cost", "functions", "--match", "alpha", "--duration", "1m"])
        .args(["--each", "100ms", "--settle", "20ms", "-o", "json"])
        .args(["--pid", &fixture.pid().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(probe.stderr.take().unwrap()).lines();
    let compares = spawn(move || {
        let is_told = |line: String| line.contains(": 7 pairs");
        assert!(said.by_ref().map(Result::unwrap).any(is_told));
        said
    });
    while !compares.is_finished() {
        fixture.tell("getuid 10000");
    }
    // Whoever closes it would have it end.
    let _said = compares.join().unwrap();
    fixture.tell("leave");
    // Longer than a pair lasts.
    sleep(Duration::from_secs(1));
    drop(fixture);
    let output = probe.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let View::Cost(cost) = Document::read(&text).unwrap().view else {
        panic!("{text}");
    };
    assert_eq!(cost.ended.as_deref(), Some("the process ended"));
    let compared = cost.compared.iter().find(|one| one.measure == Measure::Cpu);
    let pairs = compared.unwrap().pairs;
    assert!(pairs >= 7, "{pairs}");
    assert_eq!(cost.windows.len(), 2 * pairs);
}

#[test]
fn a_window_that_is_too_short_is_refused_with_the_shortest() {
    let (_folder, fixture, _) = serving();
    let output = Command::new(ckb_probe())
        .args(["cost", "functions", "--pid", &fixture.pid().to_string()])
        .args(["--match", "served", "--each", "99ms"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_contains(&said, "the shortest window is 100ms");
}

#[test]
fn what_cannot_be_compared_is_said() {
    let (_folder, fixture, _) = serving();
    let said = |arguments: &[&str]| {
        let of = ["--match", "served", "--duration", "2s"];
        let output = cost(fixture.pid(), &[&of, arguments].concat());
        let both = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(both).unwrap())
    };
    let (code, text) = said(&[]);
    assert_eq!(code, Some(1), "{text}");
    assert_contains(&text, "too few pairs to compare: six are needed");
    let (code, text) = said(&["--counter", "echo many"]);
    assert_eq!(code, Some(1), "{text}");
    assert_contains(
        &text,
        "the command of --counter printed \"many\", and not a number",
    );
    let (code, text) = said(&["--counter", "echo no >&2; exit 7"]);
    assert_eq!(code, Some(1), "{text}");
    assert_contains(
        &text,
        "the command of --counter failed (exit status: 7): no",
    );
    let (code, text) = said(&["--request", "false"]);
    assert_eq!(code, Some(1), "{text}");
    assert_contains(&text, "the command of --request failed (exit status: 1)");
}
