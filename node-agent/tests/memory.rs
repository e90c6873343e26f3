//! However many ask for however much, the agent stays within its memory: on this machine's kernel, as root.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use ckb_probe_agent::{
    driver::engine::Engine, kernel::memory, mechanism::Refusal, preflight::preflight,
};
use ckb_probe_crds::{Assignment, InstanceState, Reason};
use ckb_probe_testkit::{Container, Folder};
use serde_json::json;

/// As the chart has it.
const LIMIT: u64 = 128 << 20;

/// CkbProbes that ask the same of one pod.
const CKB_PROBES: usize = 101;

/// As many reports are made, a second or more apart.
const REPORTS: usize = 20;

/// Calls of all sorts of lengths on 60 column families.
const FIXTURE: &str = "families.c";

/// What a CkbProbe of this number asks of it.
fn order(number: usize, fixture: &Container) -> Assignment {
    let order = json!({
        "probe": { "namespace": "ckb", "name": format!("probe-{number}"), "uid": number.to_string() },
        "pod": { "namespace": "ckb", "name": "ckb-0", "uid": "pod" },
        "containers": [{ "name": "ckb", "id": fixture.id }],
        "executable": fixture.executable,
        "reportInterval": "1s",
        "overhead": { "maxPercent": 50.0, "onBreach": "Report" },
        "probes": [{
            "name": "storage",
            "rocksdb": { "byColumnFamily": true, "includeSingleStepped": true },
        }],
    });
    serde_json::from_value(order).unwrap()
}

/// What this process takes, without what maps take.
fn rss() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kilobytes << 10
}

#[tokio::test]
async fn a_hundred_and_one_ckb_probes_by_column_family_do_not_take_more_than_there_is() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nothing can be measured");
        return;
    }
    memory::budget().limit(LIMIT);
    let folder = Folder::new();
    let program = folder.compile("cc", FIXTURE, "many-families", &["-O1"]);
    let fixture = Container::run(0, &program);
    let mut engine = Engine::new(preflight(None).means.map_err(Refusal::from));
    let before = rss();
    let orders: Vec<Assignment> = (0..CKB_PROBES)
        .map(|number| order(number, &fixture))
        .collect();
    engine.assign(orders);
    let (mut most, mut largest, mut made, mut reported) = (0, 0, 0, Instant::now());
    while made < REPORTS {
        engine.receive();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= Instant::now());
        if due(engine.next_step()) {
            engine.step();
        }
        if due(engine.next_window()) {
            engine.close_windows();
        }
        engine.events();
        if reported.elapsed() > Duration::from_secs(1) {
            reported = Instant::now();
            made += 1;
            let report = serde_json::to_vec(&engine.reports()).unwrap();
            largest = largest.max(report.len());
            most = most.max(rss());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let reports = engine.reports();
    let attached = reports
        .iter()
        .filter(|one| one.state == InstanceState::Attached);
    let attached: Vec<_> = attached.collect();
    let refused = reports
        .iter()
        .filter(|one| one.reason == Some(Reason::MemoryLimit));
    let refused: Vec<_> = refused.collect();
    let maps = memory::budget().maps();
    println!(
        "{} attached, {} refused; RSS {} kB, at first {} kB; maps {} kB; reports up to {largest} bytes",
        attached.len(),
        refused.len(),
        most >> 10,
        before >> 10,
        maps >> 10
    );
    assert_eq!(reports.len(), CKB_PROBES);
    assert_eq!(attached.len() + refused.len(), CKB_PROBES);
    assert!(
        attached.len() >= 10,
        "those that fit are measured: {}",
        attached.len()
    );
    assert!(
        refused.len() >= 10,
        "those that do not are refused: {}",
        refused.len()
    );
    for one in &attached {
        let rows = &one.probes[0].rows;
        assert!(
            rows.iter().any(|row| !row.total.is_idle()),
            "{}",
            one.message
        );
        let parts = one.probes[0].rows.iter().map(|row| row.parts.len()).max();
        assert!(parts.unwrap_or_default() >= 50, "{parts:?}");
    }
    for one in &refused {
        assert!(
            one.message.contains("agent.resources.limits.memory"),
            "{}",
            one.message
        );
    }
    assert!(most + maps < LIMIT, "{} of {LIMIT}", most + maps);
}
