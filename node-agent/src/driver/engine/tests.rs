//! Orders, without a process that they find.

mod interleavings;

use ckb_probe_crds::{PodReference, ProfileMode, Reason, kinds::rocksdb::Operation};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{
    super::{
        log_limiter::LogLimiter,
        measurement::{Minute, Total},
        view::Stage,
    },
    *,
};
use crate::state::{
    fixtures::{call, calls, opened},
    instance::Terms,
    slow_calls,
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
        profile_window: slow_calls::WINDOW,
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
        instance: instance.into(),
        stage: Stage::Waiting,
        spent: Total::default(),
        minute: Minute::default(),
        accounts: None,
        flow: Some(LogLimiter::new(Duration::ZERO)),
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

/// One that has gathered a slow call of this time.
fn gathering(millis: i64) -> Engine {
    let mut engine = engine();
    for view in engine.views.values_mut() {
        let probe = calls("storage", &[Operation::Get]);
        let terms = terms(&view.assignment);
        view.instance_mut().reconfigure(vec![probe], terms);
        let gathered = &mut view.instance_mut().probes[0].slow_calls;
        gathered.add(&call(millis, 5, &["read"]), "Get", 1.0, slow_calls::WINDOW);
    }
    engine
}

/// What is asked, of which probe and pod, and in which window.
fn deliveries(finished: Vec<Delivery>) -> Vec<(String, String, String, u64)> {
    let told = finished.into_iter().map(|Delivery { to, finished }| {
        assert_eq!(finished.mode, ProfileMode::SlowCalls);
        (to.asks, to.probe, to.pod.name, finished.window.number)
    });
    told.collect()
}

fn delivered(asks: &str, window: u64) -> Vec<(String, String, String, u64)> {
    let [asks, probe, pod] = [asks, "storage", "ckb-0"].map(str::to_string);
    vec![(asks, probe, pod, window)]
}

#[test]
fn a_line_that_nobody_read_is_counted_of_the_probe_that_it_tells_of() {
    let mut engine = gathering(0);
    let line = |pod: &str| json!({ "ckbprobe": "oldest", "namespace": "ckb", "pod": pod, "container": "ckb", "probe": "storage" });
    engine.leave_out(&[line("ckb-0"), line("ckb-1"), line("ckb-0"), json!({})]);
    let report = engine.reports().remove(0);
    assert_eq!(report.probes[0].lost["lines"], 2);
}

#[test]
fn slow_calls_are_told_of_when_their_window_is_over() {
    let now = Timestamp::now().as_millisecond();
    let mut engine = gathering(now);
    assert!(!engine.has_mailboxes());
    assert_eq!(deliveries(engine.finished()), []);
    let mut engine = gathering(now - 1_200_000);
    let before = (now - 1_200_000) as u64 / 600_000;
    assert_eq!(deliveries(engine.finished()), delivered("same", before));
    assert_eq!(deliveries(engine.finished()), []);
}

#[test]
fn what_nobody_asks_for_any_more_is_told_of_as_it_stands() {
    let mut engine = gathering(1_200_000);
    assert!(engine.assign(Vec::new()));
    assert!(engine.has_mailboxes());
    assert_eq!(deliveries(engine.finished()), delivered("same", 2));
    assert!(!engine.has_mailboxes());

    let now = Timestamp::now().as_millisecond();
    let mut engine = gathering(now);
    let window = now as u64 / 600_000;
    assert_eq!(deliveries(engine.last()), delivered("same", window));
}

#[test]
fn whoever_goes_on_with_the_books_tells_of_slow_calls_and_nobody_else() {
    let now = Timestamp::now().as_millisecond();
    let mut engine = gathering(now);
    engine.assign(vec![order("next", "same")]);
    assert_eq!(deliveries(engine.finished()), []);
    engine.assign(Vec::new());
    let window = now as u64 / 600_000;
    assert_eq!(deliveries(engine.finished()), delivered("same", window));
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
fn the_books_are_for_whoever_asks_the_same_next() {
    // Who asks what, and who has how many reattaches in its books.
    let cases: [(&[_], &[_]); 3] = [
        // It asks what another asked before.
        (&[("next", "same")], &[("next", "same", 3)]),
        // The one before it asks for something else from now on.
        (
            &[("next", "same"), ("oldest", "other")],
            &[("next", "same", 3), ("oldest", "other", 3)],
        ),
        // Nobody asked that before.
        (
            &[("next", "other"), ("unnamed", "")],
            &[("next", "other", 0), ("unnamed", "", 0)],
        ),
    ];
    for (orders, expected) in cases {
        let mut engine = engine();
        let orders = orders.iter().map(|(probe, asks)| order(probe, asks));
        assert!(engine.assign(orders.collect()));
        let expected = expected
            .iter()
            .map(|(probe, asks, count)| line(probe, asks, *count));
        assert_eq!(told(&mut engine), expected.collect::<Vec<_>>());
    }
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
            view.instance_mut().reconfigure(vec![probe], terms);
            let since = Duration::from_secs(1);
            view.instance_mut().answered(process, 0, answers, since);
            view.stage = Stage::On { process, others: 0 };
        }
        engine.give_up(process, "it is gone", read);
        engine.reports()[0].gap_milliseconds / 1000
    };
    assert_eq!(gap_since(None), 0);
    assert_eq!(gap_since(Some(Duration::from_secs(60))), 60);
}

#[tokio::test]
async fn a_look_at_proc_is_waited_for_by_nobody_and_followed_by_another_where_more_was_asked_meanwhile()
 {
    let nothing = Refusal::new(Reason::PreflightFailed, "nothing can be measured here");
    let mut engine = Engine::new(Err(nothing)).with_patience(Duration::ZERO);
    assert!(!engine.assign(vec![order("one", "same")]));
    assert!(!engine.assign(vec![order("one", "same"), order("other", "more")]));
    assert_eq!((engine.searches(), engine.reports().len()), (1, 0));
    let mut received = Vec::new();
    while engine.scan.is_some() {
        engine.news().await;
        received.push(engine.receive());
    }
    assert_eq!((engine.searches(), engine.reports().len()), (2, 2));
    assert!(received.contains(&true), "{received:?}");
}
