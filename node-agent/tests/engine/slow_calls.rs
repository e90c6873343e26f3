//! Slow calls with who called them, through the agent's loop: of a program that makes a known number of them.

use std::time::Duration;

use ckb_probe_agent::driver::engine::Delivery;
use ckb_probe_crds::{
    Assignment, InstanceState, Probe, ProfileMode, kinds::functions::FunctionsProbe,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{
    PATIENCE,
    agent::{Agent, order_of},
    container::Container,
    host::Folder,
};

/// Calls that it makes when it is told to, by one caller, and by the other.
const FIRST: u64 = 20;
const SECOND: u64 = 10;

fn run(folder: &Folder, number: u32) -> Container {
    // As code is built that is to be unwound: without frame pointers.
    let options = ["-O2", "-fomit-frame-pointer", "-pthread"];
    let program = folder.compile("cc", "callers.c", "callers", &options);
    Container::run_with(number, &program, &["signals"], None)
}

fn order(of: &Container, stacks: bool) -> Assignment {
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

async fn attached(agent: &mut Agent, to: &Container) {
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
    let told = |line: &&Value| line["stack"].is_array();
    let known = lines.iter().filter(told).count() as u64;
    // Where the machine is busy, some are told without a stack.
    assert_eq!((samples, lost), (known, lines.len() as u64 - known));
    assert_eq!(first + second, known, "each by one that calls it");
    assert!(first <= FIRST && second <= SECOND, "{first}, {second}");
    let took = lines.iter().filter(told);
    let took: u64 = took
        .map(|line| line["durationNanoseconds"].as_u64().unwrap())
        .sum();
    assert_eq!(time, took, "and by its time");
}

#[tokio::test]
async fn a_window_has_all_slow_calls_that_returned_in_it_and_where_none_did_there_is_none() {
    let folder = Folder::new();
    let target = run(&folder, 601);
    let mut agent = Agent::start().gathering(Duration::from_secs(2));
    agent.assign(vec![order(&target, true)]);
    attached(&mut agent, &target).await;
    assert_eq!(agent.finished().len(), 0, "nothing was slow");
    let lines = made(&mut agent, &target).await;
    assert_eq!(lines.len() as u64, FIRST + SECOND);
    let mut delivered = Vec::new();
    let samples = |all: &[Delivery]| -> u64 {
        let counts = all.iter().map(|one| &one.finished.counts);
        counts.map(|counts| counts.samples + counts.lost).sum()
    };
    agent
        .until(PATIENCE, |agent| {
            delivered.extend(agent.finished());
            samples(&delivered) >= FIRST + SECOND
        })
        .await;
    is_of(&delivered, &lines);
    for one in &delivered {
        let window = &one.finished.window;
        assert_eq!(window.began_at.0.as_second() as u64, window.number * 2);
        assert_eq!(window.milliseconds, 2_000);
    }
    // Two more windows in which nothing is slow.
    let end = std::time::Instant::now() + Duration::from_secs(5);
    agent
        .until(PATIENCE, |agent| {
            delivered.extend(agent.finished());
            std::time::Instant::now() > end
        })
        .await;
    assert_eq!(samples(&delivered), FIRST + SECOND);
}

#[tokio::test]
async fn what_is_under_way_is_told_when_nobody_asks_any_more_and_nothing_where_nobody_asked() {
    let folder = Folder::new();
    let target = run(&folder, 602);
    let mut agent = Agent::start();
    agent.assign(vec![order(&target, true)]);
    attached(&mut agent, &target).await;
    let lines = made(&mut agent, &target).await;
    // A window is ten minutes: if one has just ended, it was told of.
    let mut delivered = agent.finished();
    agent.assign(Vec::new());
    delivered.extend(agent.finished());
    assert!((1..=2).contains(&delivered.len()), "{delivered:?}");
    is_of(&delivered, &lines);

    agent.assign(vec![order(&target, false)]);
    attached(&mut agent, &target).await;
    made(&mut agent, &target).await;
    agent.assign(Vec::new());
    assert_eq!(agent.finished().len(), 0);
}
