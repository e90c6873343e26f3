use std::sync::Mutex;

use ckb_probe_crds::{EventReport, InstanceReport, InstanceState, ProbeReport, Reason};
use http_body_util::BodyExt as _;
use hyper::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::*;
use crate::export::exposition;

#[test]
fn retries_go_on_for_ever_with_pauses_that_stay_bounded() {
    let longest = WRITE_AGAIN.1;
    let pauses: Vec<Duration> = backoff(WRITE_AGAIN).build().take(1_000).collect();
    assert_eq!(pauses.len(), 1_000);
    assert!(
        pauses
            .iter()
            .all(|pause| (WRITE_AGAIN.0..=longest * 2).contains(pause))
    );
}

/// What was sent, and an API server that answers by it.
type Sent = Arc<Mutex<Vec<Value>>>;

/// What a report is answered: nothing, or a status and a message. How many came before is known.
type Answers = fn(&Value, usize) -> Result<(), (u16, &'static str)>;

fn writer(answers: Answers) -> (Writer, Sent) {
    let sent = Sent::default();
    let log = Arc::clone(&sent);
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let report: Value = serde_json::from_slice(&body).unwrap();
            let (code, answer) = match answers(&report, body.len()) {
                Ok(()) => (200, report_of_nobody()),
                Err((code, message)) => {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "message": message, "reason": "Invalid", "code": code,
                    });
                    (code, status)
                }
            };
            log.lock().unwrap().push(report);
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, kube::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    let writer = Writer {
        api: Api::namespaced(Client::new(service, "system"), "system"),
        node: "node0".to_string(),
        written: Arc::default(),
        bytes: MOST_BYTES,
        generation: Some(1),
        said: None,
    };
    (writer, sent)
}

fn report_of_nobody() -> Value {
    json!({
        "apiVersion": "ckbprobe.dev/v1alpha1", "kind": "NodeProbe",
        "metadata": { "name": "node0", "namespace": "system" },
        "spec": { "assignments": [] },
    })
}

/// Of some 100,000 bytes.
fn report() -> NodeProbeStatus {
    let event = EventReport {
        text: "a slow call ".repeat(80),
        ..EventReport::default()
    };
    let instance = InstanceReport {
        state: InstanceState::Attached,
        reason: Some(Reason::Firing),
        probes: vec![ProbeReport {
            events: vec![event; 10],
            ..ProbeReport::default()
        }],
        ..InstanceReport::default()
    };
    NodeProbeStatus {
        observed_generation: Some(1),
        instances: vec![instance; 10],
        ..NodeProbeStatus::default()
    }
}

fn counted(writer: &Writer) -> [u64; 4] {
    let Reports {
        written,
        refused,
        failed,
        cut,
        ..
    } = writer.written.count();
    [written, refused, failed, cut]
}

#[tokio::test]
async fn a_report_that_is_too_large_is_cut_until_it_is_taken() {
    let (mut writer, sent) = writer(|_, bytes| match bytes {
        // As etcd says it.
        60_000.. => Err((500, "etcdserver: request is too large")),
        _ => Ok(()),
    });
    let whole = fit::size(&report());
    assert!(whole > 90_000, "{whole}");
    assert!(writer.write(report()).await);
    let sizes: Vec<usize> = sent.lock().unwrap().iter().map(fit::size).collect();
    assert_eq!(sizes.len(), 2, "{sizes:?}");
    assert!(sizes[1] <= whole / 2 + 200, "{sizes:?}");
    assert_eq!(counted(&writer), [1, 0, 0, 1]);
    // It is remembered, for as long as the orders are the same.
    assert!(writer.write(report()).await);
    assert_eq!(sent.lock().unwrap().len(), 3);
    let families = writer.written.count().families();
    let metrics = exposition::page(&families, exposition::Format::Text).unwrap();
    assert!(
        metrics.contains("ckb_probe_reports_cut_total 2"),
        "{metrics}"
    );
    let renewed = NodeProbeStatus {
        observed_generation: Some(2),
        ..report()
    };
    assert!(writer.write(renewed).await);
    assert_eq!(sent.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn a_report_that_is_refused_is_said_to_be_in_its_place() {
    for (code, message, what_to_do) in [
        (422, "status.instances[0].reason: Unsupported value", "CRDs"),
        (
            403,
            "nodeprobes is forbidden: ValidatingAdmissionPolicy denied request",
            "ServiceAccount",
        ),
        (
            500,
            "failed to create typed patch object: .status.new: field not declared in schema",
            "CRDs",
        ),
    ] {
        let (mut writer, sent) = writer_that_refuses(code, message);
        assert!(
            writer.write(report()).await,
            "to try the same again is of no use"
        );
        let sent = sent.lock().unwrap();
        assert_eq!(sent.len(), 2);
        let status = &sent[1]["status"];
        let why = status["agent"]["reportRefused"].as_str().unwrap();
        assert!(why.contains(message) && why.contains(what_to_do), "{why}");
        assert_eq!(status["instances"], json!([]));
        assert_eq!(status["observedGeneration"], 1);
        assert_eq!(counted(&writer), [0, 1, 0, 0]);
    }
}

fn writer_that_refuses(code: u16, message: &'static str) -> (Writer, Sent) {
    static REFUSAL: Mutex<(u16, &str)> = Mutex::new((0, ""));
    *REFUSAL.lock().unwrap() = (code, message);
    writer(
        |report, _| match report["status"]["agent"]["reportRefused"] {
            Value::Null => Err(*REFUSAL.lock().unwrap()),
            _ => Ok(()),
        },
    )
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_a_withdrawn_order_is_not() {
    let (mut unavailable, _) = writer(|_, _| Err((503, "the server is shutting down")));
    assert!(!unavailable.write(report()).await);
    assert_eq!(counted(&unavailable), [0, 0, 1, 0]);
    let (mut gone, sent) = writer(|_, _| Err((404, "nodeprobes \"node0\" not found")));
    assert!(gone.write(report()).await);
    assert_eq!(sent.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_report_tells_how_much_there_ever_was_and_not_how_it_was_distributed() {
    let values = ckb_probe_crds::Distribution {
        histogram: [(100, 3), (200, 4)].into_iter().collect(),
        sum: 9,
        unmeasured: 1,
    };
    let figures = ckb_probe_crds::Figures {
        distributions: [("duration".into(), values.clone())].into(),
        ..ckb_probe_crds::Figures::default()
    };
    let row = ckb_probe_crds::RowReport {
        total: figures.clone(),
        window: ckb_probe_crds::IntervalFigures {
            figures,
            ..ckb_probe_crds::IntervalFigures::default()
        },
        ..ckb_probe_crds::RowReport::default()
    };
    let mut all = report();
    all.instances[0].probes[0].rows = vec![row];
    let (mut writer, sent) = writer(|_, _| Ok(()));
    assert!(writer.write(all).await);
    let sent = sent.lock().unwrap();
    let sent: NodeProbeStatus = serde_json::from_value(sent[0]["status"].clone()).unwrap();
    let row = &sent.instances[0].probes[0].rows[0];
    let total = &row.total.distributions["duration"];
    assert_eq!(
        (total.histogram.count(), total.count(), total.sum),
        (0, 8, 9)
    );
    assert_eq!(row.window.figures.distributions["duration"], values);
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_reports_are_taken_slowly_reports_less_often() {
    let (writer, _) = writer(|_, _| Ok(()));
    let slow = tower::service_fn(|_: Request<Body>| async {
        sleep(Duration::from_millis(500)).await;
        let body = Body::from(serde_json::to_vec(&report_of_nobody()).unwrap());
        Ok::<_, kube::Error>(Response::new(body))
    });
    let interval = Duration::from_secs(1);
    for (api, kept) in [
        (writer.api, interval),
        (
            Api::namespaced(Client::new(slow, "system"), "system"),
            Duration::from_secs(2),
        ),
    ] {
        let (latest, reports) = watch::channel(None);
        let written = Arc::new(Written::default());
        let writing = write_reports(api, "node0".to_string(), reports, Arc::clone(&written));
        let writing = tokio::spawn(writing);
        latest.send_replace(Some(NodeProbeStatus::default()));
        while written.count().written == 0 {
            sleep(Duration::from_millis(10)).await;
        }
        // It is noted just after.
        sleep(Duration::from_millis(50)).await;
        assert_eq!(written.stretch(interval), kept);
        writing.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_reports_are_large_reports_less_often() {
    let (writer, _) = writer(|_, _| Ok(()));
    let (latest, reports) = watch::channel(None);
    let written = Arc::new(Written::default());
    let writing = write_reports(
        writer.api,
        "node0".to_string(),
        reports,
        Arc::clone(&written),
    );
    let writing = tokio::spawn(writing);
    latest.send_replace(Some(report()));
    while written.count().written == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    sleep(Duration::from_millis(50)).await;
    let bytes = written.count().bytes;
    assert!((65 << 10..128 << 10).contains(&bytes), "{bytes}");
    assert_eq!(
        written.stretch(Duration::from_secs(1)),
        Duration::from_secs(2)
    );
    writing.abort();
}
