use std::time::Duration;

use ckb_probe_crds::{PodReference, ProfileCounts, ProfileMode, ProfileWindow};
use ckb_probe_profiles::{Frame, pprof::Limits};
use http_body_util::BodyExt as _;
use hyper::{Request, Response};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::*;
use crate::{driver::engine::Addressee, mechanism::profile::Finished};

fn window(number: u64) -> ProfileWindow {
    ProfileWindow {
        number,
        began_at: MicroTime(Timestamp::UNIX_EPOCH),
        milliseconds: 30_000,
    }
}

/// A window of as many different stacks.
fn delivery(number: u64, stacks: usize) -> Delivery {
    let mut profile = Profile::of(ProfileMode::Cpu);
    for stack in 0..stacks {
        profile.stacks.add(&Stack {
            frames: vec![Frame::user(&format!("function_{stack}"), "ckb")],
            thread: "verify_blocks",
            weights: &[1, 10_000_000],
            ..Stack::default()
        });
    }
    Delivery {
        to: Addressee {
            asks: "0123456789abcdef".to_string(),
            probe: "flames".to_string(),
            pod: PodReference {
                namespace: "ckb".to_string(),
                name: "ckb-0".to_string(),
                uid: "7".to_string(),
            },
            container: "node".to_string(),
        },
        finished: Finished {
            mode: ProfileMode::Cpu,
            window: window(number),
            counts: ProfileCounts {
                samples: stacks as u64,
                complete: stacks as u64,
                ..ProfileCounts::default()
            },
            stacks: Ok(Arc::new(profile)),
        },
    }
}

#[test]
fn stacks_are_told_with_whose_they_are_and_a_failure_in_words() {
    let told = part(&delivery(3, 5));
    assert_eq!(
        (told.asks.as_str(), told.probe.as_str()),
        ("0123456789abcdef", "flames")
    );
    assert_eq!((told.mode, told.window), (ProfileMode::Cpu, window(3)));
    let ByteString(bytes) = told.pprof.unwrap();
    let profile = Profile::from_pprof(&bytes, &Limits::PART).unwrap();
    assert_eq!(profile.stacks.total(0), 5);
    let targets: Vec<&str> = profile.stacks.iter().map(|stack| stack.target).collect();
    assert_eq!(targets, ["ckb/ckb-0/node"; 5]);
    assert_eq!(told.failure, None);

    let mut failed = delivery(3, 0);
    failed.finished.stacks = Err("no room\nfor it".repeat(1_000));
    let told = part(&failed);
    assert_eq!(told.pprof, None);
    let failure = told.failure.unwrap();
    assert_eq!(failure.chars().count(), MAX_WORDS);
    assert!(failure.starts_with("no room"), "{failure}");
}

#[test]
fn the_largest_window_is_no_larger_than_an_object_may_be() {
    let ByteString(bytes) = part(&delivery(1, 200_000)).pprof.unwrap();
    assert!(bytes.len() <= PPROF_LIMIT, "{}", bytes.len());
    let profile = Profile::from_pprof(&bytes, &Limits::PART).unwrap();
    assert_eq!(
        profile.stacks.total(0),
        200_000,
        "none of their weight is lost"
    );
}

#[test]
fn of_too_many_windows_the_oldest_are_given_up_and_counted() {
    let queue = Queue::default();
    for number in 0..MOST as u64 + 3 {
        queue.put(delivery(number, 1));
    }
    assert_eq!(queue.count().dropped, 3);
    assert_eq!(queue.waiting().front().unwrap().finished.window.number, 3);
    // One that is larger than all that may wait is still taken, by itself.
    queue.put(delivery(100, MOST_STACKS + 1));
    assert_eq!(queue.waiting().len(), 1);
    assert_eq!(queue.count().dropped, MOST as u64 + 3);
}

/// An API server that answers by how often it was asked.
async fn written(answers: fn(usize) -> u16, windows: u64) -> (ProfileParts, Vec<(String, Value)>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&sent);
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            let path = request.uri().to_string();
            let method = request.method().to_string();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let part: Value = serde_json::from_slice(&body).unwrap();
            let mut log = log.lock().unwrap();
            let code = answers(log.len());
            log.push((format!("{method} {path}"), part.clone()));
            let answer = match code {
                200 => part,
                code => json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "message": "no", "reason": "Invalid", "code": code,
                }),
            };
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, kube::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    let api = Api::namespaced(Client::new(service, "system"), "system");
    let queue = Arc::new(Queue::default());
    for number in 0..windows {
        queue.put(delivery(number, 1));
    }
    let writing = tokio::spawn(write_parts(api, "node0".to_string(), Arc::clone(&queue)));
    queue.rest().await;
    let parts = queue.count();
    assert_eq!(parts.written + parts.refused + parts.dropped, windows);
    writing.abort();
    let sent = sent.lock().unwrap().clone();
    (queue.count(), sent)
}

#[tokio::test]
async fn there_is_no_rest_while_one_waits_or_is_written() {
    let (parts, sent) = written(|_| 200, 0).await;
    assert_eq!((parts.written, sent.len()), (0, 0));
    let queue = Queue::default();
    let rests = async |queue: &Queue| {
        let soon = Duration::from_millis(10);
        tokio::time::timeout(soon, queue.rest()).await.is_ok()
    };
    assert!(rests(&queue).await);
    queue.put(delivery(1, 1));
    assert!(!rests(&queue).await, "it waits");
    queue.next().await;
    assert!(!rests(&queue).await, "it is written");
    let next = tokio::time::timeout(Duration::from_millis(10), queue.next());
    assert!(next.await.is_err());
    assert!(rests(&queue).await);
}

#[test]
fn what_passes_by_itself_is_tried_again() {
    let again = [399, 408, 409, 429, 500, 503];
    let refused = [400, 401, 403, 404, 413, 422, 499];
    let is = |code| {
        let status = kube::core::Status::failure("no", "Any").with_code(code);
        is_refused(&kube::Error::Api(Box::new(status)))
    };
    assert_eq!(again.map(is), [false; 6]);
    assert_eq!(refused.map(is), [true; 7]);
}

#[tokio::test]
async fn each_window_is_an_object_of_the_nodes_name_and_a_number() {
    let (parts, sent) = written(|_| 200, 3).await;
    assert_eq!(parts.written, 3);
    let mut before = None;
    for (request, part) in &sent {
        let name = part["metadata"]["name"].as_str().unwrap();
        let number: u8 = name.strip_prefix("node0.").unwrap().parse().unwrap();
        let path = format!("/namespaces/system/profileparts/{name}?");
        assert!(
            request.starts_with("PATCH ") && request.contains(&path),
            "{request}"
        );
        assert!(
            request.contains("fieldManager=ckb-probe-agent"),
            "{request}"
        );
        assert_eq!(part["kind"], "ProfilePart");
        assert_eq!(part["spec"]["asks"], "0123456789abcdef");
        let labels = &part["metadata"]["labels"];
        assert_eq!(labels["ckbprobe.dev/asks"], "0123456789abcdef");
        assert_eq!(labels["ckbprobe.dev/mode"], part["spec"]["mode"]);
        if let Some(before) = before.replace(number) {
            assert_eq!(number, u8::wrapping_add(before, 1));
        }
    }
}

#[tokio::test]
async fn what_is_refused_is_given_up_and_what_fails_is_tried_again() {
    let (parts, sent) = written(
        |asked| match asked {
            0 => 500,
            1 => 429,
            2 => 200,
            3 => 403,
            _ => 200,
        },
        3,
    )
    .await;
    let known = ProfileParts {
        written: 2,
        refused: 1,
        failed: 2,
        dropped: 0,
    };
    assert_eq!(parts, known);
    let names = sent
        .iter()
        .map(|(_, part)| part["metadata"]["name"].clone());
    let names: Vec<Value> = names.collect();
    assert_eq!(
        names[0], names[2],
        "the same is tried again by the same name"
    );
    assert_ne!(names[2], names[3]);
}
