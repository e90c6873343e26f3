use std::time::Duration;

use ckb_probe_crds::{PART_SLOTS, PodReference, ProfileCounts, ProfileMode, ProfileWindow};
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

#[test]
fn of_too_many_windows_those_of_who_has_most_are_given_up() {
    let of = |namespace: &str, number, stacks| {
        let mut one = delivery(number, stacks);
        one.to.pod.namespace = namespace.to_string();
        one
    };
    let queue = Queue::default();
    queue.put(of("few", 0, 1));
    for number in 0..2 * MOST as u64 {
        queue.put(of("many", number, 1));
    }
    queue.put(of("few", 1, 1));
    let waiting = |queue: &Queue, namespace: &str| -> Vec<u64> {
        let waiting = queue.waiting();
        let own = waiting
            .iter()
            .filter(|one| one.to.pod.namespace == namespace);
        own.map(|one| one.finished.window.number).collect()
    };
    assert_eq!(waiting(&queue, "few"), [0, 1]);
    assert_eq!(waiting(&queue, "many").len(), MOST - 2);
    // However few, if they are large.
    queue.put(of("large", 0, MOST_STACKS));
    assert_eq!(waiting(&queue, "large"), [0; 0]);
    assert_eq!(waiting(&queue, "few"), [0, 1]);
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
                0 => return Err(kube::Error::LinesCodecMaxLineLengthExceeded),
                200 => part,
                code => json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "message": "no", "code": code,
                    "reason": if code == 409 { "AlreadyExists" } else { "Invalid" },
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
    let again = [399, 408, 409, 429, 501, 503];
    let refused = [400, 401, 403, 404, 413, 422, 499];
    let of = |code, reason| {
        let status = kube::core::Status::failure("no", reason).with_code(code);
        PartError::of(&kube::Error::Api(Box::new(status)))
    };
    assert_eq!(again.map(|code| of(code, "Any")), [PartError::Passing; 6]);
    assert_eq!(refused.map(|code| of(code, "Any")), [PartError::Refused; 7]);
    assert_eq!(of(500, "InternalError"), PartError::Broken);
    assert_eq!(of(409, "AlreadyExists"), PartError::Taken);
}

#[tokio::test]
async fn each_window_is_an_object_of_the_nodes_name_and_a_number() {
    let (parts, sent) = written(|_| 200, 3).await;
    assert_eq!(parts.written, 3);
    let mut before = None;
    for (request, part) in &sent {
        let name = part["metadata"]["name"].as_str().unwrap();
        let number: u8 = name.strip_prefix("node0.").unwrap().parse().unwrap();
        assert!(
            request.starts_with("POST ") && request.contains("/namespaces/system/profileparts?"),
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
            assert_eq!(number, (before + 1) % PART_SLOTS);
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

fn numbers(sent: &[(String, Value)]) -> Vec<u8> {
    let names = sent
        .iter()
        .map(|(_, part)| part["metadata"]["name"].as_str().unwrap());
    let numbers = names.map(|name| name.strip_prefix("node0.").unwrap().parse().unwrap());
    numbers.collect()
}

#[tokio::test(start_paused = true)]
async fn a_part_that_nobody_has_taken_is_not_written_over() {
    let (parts, sent) = written(|asked| [200, 409, 409, 200][asked], 2).await;
    assert_eq!((parts.written, parts.failed), (2, 0));
    let numbers = numbers(&sent);
    let expected = (0..4).map(|step| (numbers[0] + step) % PART_SLOTS);
    assert_eq!(numbers, expected.collect::<Vec<u8>>());
    assert_ne!(sent[0].1["spec"], sent[3].1["spec"]);
    assert_eq!(sent[1].1["spec"], sent[3].1["spec"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_although_nobody_said_so_is_not_written_twice() {
    let (parts, sent) = written(|asked| [0, 409, 200][asked], 2).await;
    assert_eq!((parts.written, parts.failed), (2, 1));
    let numbers = numbers(&sent);
    assert_eq!(numbers[0], numbers[1]);
    assert_ne!(sent[1].1["spec"], sent[2].1["spec"]);
    // One that was refused for now was not.
    let (parts, sent) = written(|asked| [429, 409, 200][asked], 1).await;
    assert_eq!((parts.written, sent.len()), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn while_no_operator_takes_parts_away_no_more_are_written_than_there_are_slots() {
    let free = usize::from(PART_SLOTS);
    let windows = 30;
    let begun = Instant::now();
    let (parts, sent) = written(
        |asked| {
            if asked < usize::from(PART_SLOTS) {
                200
            } else {
                409
            }
        },
        windows,
    )
    .await;
    assert_eq!(parts.written, u64::from(PART_SLOTS));
    assert_eq!(parts.dropped, windows - u64::from(PART_SLOTS));
    // Each sends half a mebibyte: after a while one in a minute.
    let minutes = begun.elapsed().as_secs() as usize / 60;
    let attempts = sent.len() - free;
    assert!(minutes >= 140, "{minutes}");
    assert!(
        attempts <= minutes * 2 + 300,
        "{attempts} in {minutes} minutes"
    );
    let last = numbers(&sent[sent.len() - 100..]);
    assert_eq!(last, vec![last[0]; 100], "the oldest, until it is gone");
}

#[tokio::test(start_paused = true)]
async fn one_that_the_api_server_stumbles_over_keeps_no_others_waiting_for_ever() {
    let (parts, sent) = written(|asked| if asked < 10 { 500 } else { 200 }, 2).await;
    assert_eq!((parts.failed, parts.dropped, parts.written), (10, 1, 1));
    assert_eq!(sent.len(), 11);
    // An outage is waited out.
    let (parts, _) = written(|asked| if asked < 100 { 503 } else { 200 }, 1).await;
    assert_eq!((parts.failed, parts.written), (100, 1));
}
