use ckb_probe_crds::{Assignment, NodeProbe, NodeProbeSpec, Reason};
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::{work::current, *};
use crate::kernel::{Calibration, Tier};

pub(super) fn assignment(expires_at: Option<&str>) -> Assignment {
    let json = json!({
        "probe": { "namespace": "ckb", "name": "mainnet", "uid": "1" },
        "pod": { "namespace": "ckb", "name": "ckb-0", "uid": "2" },
        "containers": [{ "name": "ckb" }],
        "executable": "ckb",
        "reportInterval": "10s",
        "overhead": { "maxPercent": 1.0, "onBreach": "Report" },
        "probes": [],
        "expiresAt": expires_at,
    });
    serde_json::from_value(json).unwrap()
}

#[test]
fn an_order_holds_until_the_moment_it_expires() {
    let orders = [assignment(None), assignment(Some("2026-01-01T00:00:10Z"))];
    let at = |time: &str| current(&orders, time.parse().unwrap()).count();
    assert_eq!(at("2026-01-01T00:00:09Z"), 2);
    assert_eq!(at("2026-01-01T00:00:10Z"), 1);
}

fn work() -> Work {
    let calibration = Calibration {
        single_step_cost_ns: 19_000,
        cost_per_call_ns: 0,
        counted_cost_ns: 0,
        further_cost_ns: 0,
        trap_ns: 0,
        inner_ns: 0,
        calls: 0,
        counted: 0,
    };
    let means = CalibratedTier {
        tier: Tier::UprobeMulti,
        calibration,
        returns_kill_confined: false,
    };
    Work {
        lines: Lines::to(std::io::sink(), |_| String::new()).unwrap(),
        metrics: None,
        pace: Pace::new(Instant::now(), REPORT_FLOOR),
        written: Arc::default(),
        parts: Arc::default(),
        engine: Engine::new(Ok(means)),
        assignments: Vec::new(),
        in_force: 0,
        about: AgentStatus::default(),
        order: None,
        carried_out: None,
        rendering: None,
        ordered: false,
    }
}

#[tokio::test]
async fn a_target_without_a_process_is_reported_on_at_every_interval() {
    let mut work = work();
    assert_eq!(work.due(), None);
    let (release, held) = std::sync::mpsc::channel::<()>();
    work.rendering = Some(work.engine.aside(move || held.recv().unwrap_or_default()));
    assert!(work.is_rendering());
    drop(release);
    work.engine.news().await;
    assert!(!work.is_rendering());
    let mut order = assignment(None);
    order.executable = "no such executable".to_string();
    let spec = NodeProbeSpec {
        assignments: vec![order],
    };
    let mut order = NodeProbe::new("node0", spec);
    order.metadata.generation = Some(3);
    work.take(Some(order));
    assert!(work.carries_out());
    assert!(!work.carries_out());
    let before = Instant::now();
    let report = work.report();
    assert_eq!(report.observed_generation, Some(3));
    let after = Instant::now();
    assert_eq!(report.instances[0].reason, Some(Reason::ExecutableNotFound));
    assert_eq!(work.engine.next_window(), None, "no interval ends here");
    // A little later: an interval that ends at that time is in it.
    let late = Duration::from_millis(10_250);
    let due = work.due().expect("a report");
    assert!((before + late..=after + late).contains(&due));
}

#[tokio::test]
async fn a_clock_that_was_ahead_for_a_moment_ends_nothing_for_good() {
    let mut work = work();
    let now = Timestamp::now();
    let hour = SignedDuration::from_hours(1);
    let timed = assignment(Some(&(now + hour).to_string()));
    let spec = NodeProbeSpec {
        assignments: vec![assignment(None), timed],
    };
    work.take(Some(NodeProbe::new("node0", spec)));
    assert_eq!(work.in_force, 2);
    assert!(!work.expire(now));
    assert!(work.expire(now + hour * 2));
    assert_eq!(work.in_force, 1);
    assert!(!work.expire(now + hour * 2));
    // The clock is right again, and the order is the same as before.
    assert!(work.expire(now));
    assert_eq!(work.in_force, 2);
}
