use std::sync::Mutex;

use serde_json::Value;

use super::*;
use crate::{
    notes::{ATTACHED, CAPTURED, TARGET_RESTARTED},
    testing,
};

/// What was asked of an API server that does all of it, and its objects.
type Requests = Arc<Mutex<Vec<(String, Value)>>>;

fn events(requests: &Requests, metrics: Metrics) -> Events {
    let requests = Arc::clone(requests);
    let client = testing::client(move |parts, body| {
        let line = format!("{} {}", parts.method, parts.uri.path());
        let object: Value = serde_json::from_slice(&body).unwrap_or_default();
        requests.lock().unwrap().push((line, object.clone()));
        async { Ok((200, object)) }
    });
    Events::new(client, "system".into(), "me".into(), metrics)
}

fn note(reason: &'static str, text: &str) -> Note {
    Note {
        type_: EventType::Warning,
        reason,
        action: "Measure",
        text: text.to_owned(),
    }
}

#[tokio::test]
async fn each_thing_that_happened_is_an_event_and_told_twice_it_is_the_same() {
    let requests = Requests::default();
    let events = events(&requests, Metrics::new().unwrap());
    let probe = ProbeReference {
        namespace: "a".into(),
        name: "ckb".into(),
        uid: "uid".into(),
    };
    for text in ["end, code 0", "end, signal SIGKILL", "end, code 0"] {
        events.of_probe(&probe, note(OBSERVED, text)).await;
    }
    let requests = requests.lock().unwrap();
    let [(line, first), (_, second), (_, again)] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert_eq!(line, "POST /apis/events.k8s.io/v1/namespaces/a/events");
    assert_eq!(second["note"], "end, signal SIGKILL");
    assert_eq!(second["regarding"]["name"], "ckb");
    assert_eq!(second["regarding"]["uid"], "uid");
    let name = |event: &Value| event["metadata"]["name"].clone();
    assert_ne!(name(first), name(second));
    assert_eq!(name(first), name(again));
}

#[tokio::test]
async fn each_event_of_a_profile_or_an_anomaly_says_its_own() {
    let probe = ProbeReference::default();
    for reason in [CAPTURED, Reason::Unusual.as_str()] {
        let requests = Requests::default();
        let events = events(&requests, Metrics::new().unwrap());
        let texts = [
            "CkbProfile p.flames.cpu.7 shows what ran then: this",
            "storage: the p99 of put is 4 ms, usually 70 µs",
        ];
        for text in texts {
            events.of_probe(&probe, note(reason, text)).await;
        }
        let requests = requests.lock().unwrap();
        let line = "POST /apis/events.k8s.io/v1/namespaces//events";
        let written: Vec<_> = requests
            .iter()
            .map(|(line, event)| (line.as_str(), event["note"].as_str().unwrap()))
            .collect();
        assert_eq!(written, texts.map(|text| (line, text)), "{reason}");
    }
}

/// How Events were written, and what they say.
fn written(requests: &Requests) -> Vec<(String, String)> {
    let requests = requests.lock().unwrap();
    let written = requests.iter().map(|(line, event)| {
        let method = line.split(' ').next().unwrap();
        (
            method.to_owned(),
            event["note"].as_str().unwrap().to_owned(),
        )
    });
    written.collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_told_again_is_one_event_that_is_counted_for_six_minutes() {
    let requests = Requests::default();
    let events = events(&requests, Metrics::new().unwrap());
    let probe = ProbeReference::default();
    let tell = async || {
        events
            .of_probe(&probe, note(ATTACHED, "1/1 targets attached"))
            .await
    };
    tell().await;
    tell().await;
    let methods = |told: Vec<(String, String)>| told.into_iter().map(|(method, _)| method);
    assert!(methods(written(&requests)).eq(["POST", "PATCH"]));
    assert_eq!(requests.lock().unwrap()[1].1["series"]["count"], 2);
    tokio::time::advance(SERIES).await;
    tell().await;
    assert!(methods(written(&requests)).eq(["POST", "PATCH", "POST"]));
    assert_eq!(events.recorders.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_event_of_another_pod_or_with_other_figures_is_not_counted_onto_the_first() {
    for (reason, texts) in [
        (
            Reason::TargetDied.as_str(),
            ["pod ckb-0: it died", "pod ckb-1: it died"],
        ),
        (
            TARGET_RESTARTED,
            [
                "pod ckb-0: 1 s were not measured",
                "pod ckb-0: 3 s were not measured",
            ],
        ),
        (ATTACHED, ["1/2 targets attached", "2/2 targets attached"]),
    ] {
        let requests = Requests::default();
        let events = events(&requests, Metrics::new().unwrap());
        let probe = ProbeReference::default();
        for text in texts {
            events.of_probe(&probe, note(reason, text)).await;
        }
        let expected = texts.map(|text| ("POST".to_owned(), text.to_owned()));
        assert_eq!(written(&requests), expected);
    }
}

#[tokio::test]
async fn of_pods_that_die_one_after_the_other_no_more_is_told_than_the_quota_has() {
    let (requests, metrics) = (Requests::default(), Metrics::new().unwrap());
    let events = events(&requests, metrics.clone());
    for pod in 0..100 {
        let text = format!("pod ckb-{pod}: it died");
        let note = note(Reason::TargetDied.as_str(), &text);
        events.of_probe(&ProbeReference::default(), note).await;
    }
    assert_eq!(requests.lock().unwrap().len(), 25);
    assert_eq!(events.recorders.lock().unwrap().len(), 25);
    let page = metrics.render().unwrap();
    assert!(
        page.contains("ckb_probe_operator_events_dropped_total 75\n"),
        "{page}"
    );
}

#[tokio::test]
async fn what_is_too_much_is_not_written_and_counted() {
    let (requests, metrics) = (Requests::default(), Metrics::new().unwrap());
    let events = events(&requests, metrics.clone());
    let probe = ProbeReference::default();
    for nth in 0..40 {
        events
            .of_probe(&probe, note(OBSERVED, &format!("end {nth}")))
            .await;
    }
    assert_eq!(requests.lock().unwrap().len(), 25);
    let page = metrics.render().unwrap();
    assert!(
        page.contains("ckb_probe_operator_events_dropped_total 15\n"),
        "{page}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_says_something_else_again_and_again_is_told_of_now_and_then() {
    let requests = Requests::default();
    let metrics = Metrics::new().unwrap();
    let events = events(&requests, metrics.clone());
    for n in 0..100 {
        let note = note("PreflightFailed", &format!("failure {n}"));
        events.of_node_probe("n", "uid-n", note).await.unwrap();
    }
    assert_eq!(requests.lock().unwrap().len(), 25);
    let page = metrics.render().unwrap();
    assert!(
        page.contains("ckb_probe_operator_events_dropped_total 75\n"),
        "{page}"
    );
    // Nobody pays for another.
    let other = note("PreflightFailed", "failure");
    events.of_node_probe("m", "uid-m", other).await.unwrap();
    assert_eq!(requests.lock().unwrap().len(), 26);
}
