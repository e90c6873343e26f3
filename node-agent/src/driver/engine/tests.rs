//! Orders, without a process that they find.

use ckb_probe_crds::{PodReference, kinds::rocksdb::Operation};
use serde_json::json;

use super::{
    super::{flow::Flow, measurement::Total, view::Stage},
    *,
};
use crate::books::{
    fixtures::{calls, opened},
    instance::Terms,
};

/// What this CkbProbe asks of the pod, by this word.
fn order(probe: &str, asks: &str) -> Assignment {
    let json = json!({
        "probe": { "namespace": "ckb", "name": probe, "uid": probe },
        "asks": asks,
        "pod": { "namespace": "ckb", "name": "ckb-0", "uid": "2" },
        "containers": [{ "name": "ckb" }],
        "executable": "no such executable",
        "reportInterval": "10s",
        "overhead": { "maxPercent": 1.0, "onBreach": "Report" },
        "probes": [],
    });
    serde_json::from_value(json).unwrap()
}

fn terms(assignment: &Assignment) -> Terms {
    Terms {
        interval: assignment.report_interval.get(),
        overhead: assignment.overhead.clone(),
        early_death: EARLY_DEATH,
    }
}

/// A target whose process was found anew three times.
fn known(assignment: Assignment) -> View {
    let key = InstanceKey {
        probe: assignment.probe.clone(),
        pod: PodReference::clone(&assignment.pod),
        container: "ckb".to_string(),
    };
    let terms = terms(&assignment);
    let mut instance = Instance::new(key, Vec::new(), terms, Duration::ZERO);
    instance.reattaches = 3;
    View {
        assignment,
        instance,
        stage: Stage::Waiting,
        spent: Total::default(),
        flow: Flow::new(Duration::ZERO),
        told: None,
    }
}

fn engine() -> Engine {
    let nothing = Refusal::new(Reason::PreflightFailed, "nothing can be measured here");
    let mut engine = Engine::new(Err(nothing));
    let view = known(order("oldest", "same"));
    engine.views.insert(view.instance.key.clone(), view);
    engine
}

/// Of which CkbProbe, what is asked, and how often the process was found anew.
fn told(engine: &mut Engine) -> Vec<(String, String, u64)> {
    let reports = engine.reports().into_iter();
    let mut told: Vec<_> = reports
        .map(|report| (report.probe.name, report.asks, report.reattaches))
        .collect();
    told.sort();
    told
}

fn line(probe: &str, asks: &str, reattaches: u64) -> (String, String, u64) {
    (probe.to_string(), asks.to_string(), reattaches)
}

#[test]
fn whoever_asks_what_another_asked_before_goes_on_with_the_books() {
    let mut engine = engine();
    assert!(engine.assign(vec![order("next", "same")]));
    assert_eq!(told(&mut engine), [line("next", "same", 3)]);
}

#[test]
fn who_asks_for_something_else_from_now_on_leaves_the_books_to_the_next() {
    let mut engine = engine();
    engine.assign(vec![order("next", "same"), order("oldest", "other")]);
    assert_eq!(
        told(&mut engine),
        [line("next", "same", 3), line("oldest", "other", 3)]
    );
}

#[test]
fn what_nobody_asked_before_begins_anew() {
    let mut engine = engine();
    engine.assign(vec![order("next", "other"), order("unnamed", "")]);
    assert_eq!(
        told(&mut engine),
        [line("next", "other", 0), line("unnamed", "", 0)]
    );
}

#[test]
fn what_was_counted_since_the_last_reading_and_is_gone_is_a_gap() {
    let gap_since = |read: Option<Duration>| {
        let mut engine = engine();
        let process = ProcessId {
            pid: 7,
            start_ticks: 100,
        };
        // Two minutes after the agent's start, it was read a minute before.
        engine.clock = Clock(Instant::now() - Duration::from_secs(120));
        for view in engine.views.values_mut() {
            let probe = calls("storage", &[Operation::Get]);
            let answers = vec![Ok(opened(&probe, 0))];
            let terms = terms(&view.assignment);
            view.instance.reconfigure(vec![probe], terms);
            let since = Duration::from_secs(1);
            view.instance.answered(process, 0, answers, since);
            view.stage = Stage::On { process, others: 0 };
        }
        engine.give_up(process, "it is gone", read);
        engine.reports()[0].gap_milliseconds / 1000
    };
    assert_eq!(gap_since(None), 0);
    assert_eq!(gap_since(Some(Duration::from_secs(60))), 60);
}
