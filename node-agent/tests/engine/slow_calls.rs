//! Slow calls with who called them, through the agent's loop: of a program that makes a known number of them.

use std::{collections::BTreeSet, path::Path};

use ckb_probe_crds::{ProfileMode, kinds::functions::FunctionsProbe};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

/// Calls that it makes when it is told to, by one caller, and by the other.
pub const FIRST: u64 = 20;
pub const SECOND: u64 = 10;

pub fn program(folder: &Folder) -> PathBuf {
    folder.compile_optimised("callers")
}

pub fn run(program: &Path, number: u32) -> Container {
    Container::run_with(number, program, &["signals"], None)
}

pub fn order(of: &Container, stacks: bool) -> Assignment {
    let asked = json!({
        "match": "slow_call", "threshold": "1ms", "stacks": stacks, "includeSingleStepped": true,
    });
    let asked: FunctionsProbe = serde_json::from_value(asked).unwrap();
    let probes = vec![Probe::new("slow", asked.into())];
    Assignment {
        asks: "asks".to_string(),
        ..order_of("one", &of.id, &of.executable, probes)
    }
}

pub async fn attached(agent: &mut Agent, to: &Container) {
    agent
        .until(PATIENCE, |agent| {
            let report = agent.report_to("one", to);
            report.is_some_and(|report| report.state == InstanceState::Attached)
        })
        .await;
}

/// Has it make its calls; what is written of them.
async fn made(agent: &mut Agent, by: &Container) -> Vec<Value> {
    kill_process(Pid::from_raw(by.pid() as i32).unwrap(), Signal::USR1).unwrap();
    let mut lines = Vec::new();
    agent
        .until(PATIENCE, |agent| {
            lines.extend(agent.events());
            lines.len() as u64 >= FIRST + SECOND
        })
        .await;
    assert_eq!(lines.len() as u64, FIRST + SECOND);
    lines
}

/// The same, again until some of them are told with their stacks: where the machine is busy, names take their time. What was finished
/// meanwhile is `delivered`.
pub async fn known(agent: &mut Agent, by: &Container, delivered: &mut Vec<Delivery>) -> Vec<Value> {
    let end = Instant::now() + PATIENCE;
    let mut lines = Vec::new();
    while !lines.iter().any(has_stack) {
        assert!(Instant::now() < end, "{lines:?}");
        lines.extend(made(agent, by).await);
        delivered.extend(agent.finished());
    }
    lines
}

fn has_stack(line: &Value) -> bool {
    line["stack"].is_array()
}

/// Who made this one, from the innermost on.
pub fn callers(line: &Value) -> Vec<&str> {
    let names = line["stack"].as_array().into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}

/// Those in windows of so many seconds of which any is told with its stack: of others there is nothing to be delivered.
fn to_be_delivered(lines: Vec<Value>, seconds: i64) -> Vec<Value> {
    let window = |line: &Value| {
        let time: Timestamp = line["time"].as_str().unwrap().parse().unwrap();
        time.as_second() / seconds
    };
    let with_stacks: BTreeSet<i64> = lines
        .iter()
        .filter(|line| has_stack(line))
        .map(window)
        .collect();
    let mut lines = lines;
    lines.retain(|line| with_stacks.contains(&window(line)));
    lines
}

/// What was delivered is what was written, call by call.
fn is_of(delivered: &[Delivery], lines: &[Value]) {
    let (mut samples, mut lost, mut time, mut first, mut second) = (0, 0, 0, 0, 0);
    for Delivery { to, finished } in delivered {
        assert_eq!((to.asks.as_str(), to.probe.as_str()), ("asks", "slow"));
        assert_eq!(finished.mode, ProfileMode::SlowCalls);
        samples += finished.counts.samples;
        lost += finished.counts.lost;
        let stacks = &finished.stacks.as_ref().unwrap().stacks;
        time += stacks.total(1);
        for stack in stacks.iter() {
            let names: Vec<&str> = stack.frames.iter().map(|frame| frame.name).collect();
            assert_eq!(stack.thread, "caller");
            if names.ends_with(&["run", "first_caller", "slow_call"]) {
                first += stack.weights[0];
            } else if names.ends_with(&["run", "callers_caller", "second_caller", "slow_call"]) {
                second += stack.weights[0];
            }
        }
    }
    let told = |line: &&Value| has_stack(line);
    let known = lines.iter().filter(told).count() as u64;
    // Where the machine is busy, some are told without a stack.
    assert_eq!((samples, lost), (known, lines.len() as u64 - known));
    assert_eq!(first + second, known, "each by one that calls it");
    let by_first = |line: &&Value| callers(line).starts_with(&["first_caller", "run"]);
    assert_eq!(first, lines.iter().filter(by_first).count() as u64);
    let took = lines.iter().filter(told);
    let took: u64 = took
        .map(|line| line["durationNanoseconds"].as_u64().unwrap())
        .sum();
    assert_eq!(time, took, "and by its time");
}

#[tokio::test]
async fn a_window_has_all_slow_calls_that_returned_in_it_and_where_none_did_there_is_none() {
    let folder = Folder::new();
    let target = run(&program(&folder), 601);
    let mut agent = Agent::start().gathering(Duration::from_secs(2));
    agent.assign(vec![order(&target, true)]);
    attached(&mut agent, &target).await;
    assert_eq!(agent.finished().len(), 0, "nothing was slow");
    let mut delivered = Vec::new();
    let lines = known(&mut agent, &target, &mut delivered).await;
    let lines = to_be_delivered(lines, 2);
    let made = lines.len() as u64;
    let samples = |all: &[Delivery]| -> u64 {
        let counts = all.iter().map(|one| &one.finished.counts);
        counts.map(|counts| counts.samples + counts.lost).sum()
    };
    agent
        .until(PATIENCE, |agent| {
            delivered.extend(agent.finished());
            samples(&delivered) >= made
        })
        .await;
    is_of(&delivered, &lines);
    for one in &delivered {
        let window = &one.finished.window;
        assert_eq!(window.began_at.0.as_second() as u64, window.number * 2);
        assert_eq!(window.milliseconds, 2_000);
    }
    // Two more windows in which nothing is slow.
    let end = Instant::now() + Duration::from_secs(5);
    agent
        .until(PATIENCE, |agent| {
            delivered.extend(agent.finished());
            Instant::now() > end
        })
        .await;
    assert_eq!(samples(&delivered), made);
}

#[tokio::test]
async fn what_is_under_way_is_told_when_nobody_asks_any_more_and_nothing_where_nobody_asked() {
    let folder = Folder::new();
    let target = run(&program(&folder), 602);
    let mut agent = Agent::start();
    agent.assign(vec![order(&target, true)]);
    attached(&mut agent, &target).await;
    // A window is ten minutes: if one has just ended, it was told of.
    let mut delivered = Vec::new();
    let lines = known(&mut agent, &target, &mut delivered).await;
    agent.assign(Vec::new());
    delivered.extend(agent.finished());
    assert!((1..=2).contains(&delivered.len()), "{delivered:?}");
    is_of(&delivered, &to_be_delivered(lines, 600));

    agent.assign(vec![order(&target, false)]);
    attached(&mut agent, &target).await;
    made(&mut agent, &target).await;
    agent.assign(Vec::new());
    assert_eq!(agent.finished().len(), 0);
}
