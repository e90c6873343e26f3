use std::sync::Mutex;

use serde_json::Value;

use super::*;
use crate::{
    notes::{CAPTURED, TARGET_RESTARTED},
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

#[tokio::test]
async fn what_goes_on_is_one_event_that_is_counted() {
    let requests = Requests::default();
    let events = events(&requests, Metrics::new().unwrap());
    let probe = ProbeReference::default();
    for text in ["1 s were not measured", "2 s were not measured"] {
        events.of_probe(&probe, note(TARGET_RESTARTED, text)).await;
    }
    let requests = requests.lock().unwrap();
    let methods: Vec<&str> = requests
        .iter()
        .filter_map(|(line, _)| line.split(' ').next())
        .collect();
    assert_eq!(methods, ["POST", "PATCH"]);
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
