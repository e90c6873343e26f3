//! Exporting to receivers that are away, slow, odd, or take a part: what was started is exported, dropped or queued, always, and nothing
//! that a receiver took comes again.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

mod made;
mod played;

use std::time::Duration;

use ckb_probe_otlp::Exporter;
use ckb_probe_traces::{Cause, Compression, Counts, Limits};
use made::{group, limits, scope};
use played::{Answer, Receiver, settings};

const LONG: Duration = Duration::from_secs(30);

/// Offers groups of two spans each, and waits until all are accounted for.
fn exported(receiver: &Receiver, groups: u64, limits: Limits) -> Counts {
    let exporter = Exporter::start(settings(receiver.address()), scope(), limits).unwrap();
    for number in 0..groups {
        exporter.offer(group(number, 2));
    }
    let (counts, _) = exporter.end(LONG);
    assert!(counts.add_up(), "{counts:?}");
    assert_eq!((counts.started, counts.queued), (groups * 2, 0));
    counts
}

#[test]
fn all_that_is_offered_arrives_once_and_in_requests_of_many() {
    let receiver = Receiver::play(|_| Answer::Status(200));
    let counts = exported(&receiver, 5000, limits());
    assert_eq!(counts.exported, 10_000);
    let seen = receiver.seen();
    assert_eq!((seen.spans, seen.twice), (10_000, 0));
    assert!(seen.requests < 200, "{}", seen.requests);
}

#[test]
fn a_receiver_that_takes_a_part_is_not_sent_the_rest_again() {
    let receiver = Receiver::play(|_| Answer::Partial(1));
    let counts = exported(&receiver, 1, limits());
    assert_eq!(counts.exported, 1);
    assert_eq!(counts.dropped_for(Cause::Refused), 1);
    assert_eq!(receiver.seen().requests, 1);
}

#[test]
fn a_receiver_that_is_busy_is_asked_again_when_it_says_so() {
    let receiver = Receiver::play(|request| match request {
        0 => Answer::RetryAfter(1),
        _ => Answer::Status(200),
    });
    let counts = exported(&receiver, 1, limits());
    assert_eq!((counts.exported, counts.failures), (2, 1));
    let seen = receiver.seen();
    assert_eq!(seen.requests, 2);
    assert!(seen.apart[0] >= Duration::from_secs(1), "{:?}", seen.apart);
}

#[test]
fn a_receiver_that_refuses_is_not_asked_again() {
    let receiver = Receiver::play(|_| Answer::Status(400));
    let counts = exported(&receiver, 1, limits());
    assert_eq!(counts.dropped_for(Cause::Refused), 2);
    assert_eq!(receiver.seen().requests, 1);
}

#[test]
fn what_was_sent_and_not_answered_is_not_sent_again() {
    for odd in [Answer::Close, Answer::Nothing] {
        let answer = odd.clone();
        let receiver = Receiver::play(move |request| match request {
            0 => answer.clone(),
            _ => Answer::Status(200),
        });
        let mut settings = settings(receiver.address());
        settings.timeout = Duration::from_millis(500);
        let exporter = Exporter::start(settings, scope(), limits()).unwrap();
        exporter.offer(group(0, 2));
        receiver.wait_for(1);
        while exporter.counts().queued > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        exporter.offer(group(1, 2));
        let (counts, _) = exporter.end(LONG);
        assert_eq!(
            counts.dropped_for(Cause::Unanswered),
            2,
            "{odd:?}: {counts:?}"
        );
        assert_eq!(counts.exported, 2, "{odd:?}: {counts:?}");
        assert_eq!(receiver.seen().twice, 0);
    }
}

#[test]
fn a_receiver_that_is_away_gets_what_waited_once_it_is_there() {
    let receiver = Receiver::play(|_| Answer::Status(200));
    let address = receiver.address();
    drop(receiver);
    let exporter = Exporter::start(settings(address), scope(), limits()).unwrap();
    exporter.offer(group(0, 2));
    while exporter.counts().failures == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(exporter.counts().queued, 2);
    assert!(exporter.problem().unwrap().contains("refused"));
    let receiver = Receiver::play_at(address, |_| Answer::Status(200));
    let (counts, problem) = exporter.end(LONG);
    assert_eq!((counts.exported, problem), (2, None));
    assert_eq!(receiver.seen().spans, 2);
}

#[test]
fn a_receiver_that_stays_away_costs_no_more_than_the_queue() {
    let receiver = Receiver::play(|_| Answer::Status(200));
    let address = receiver.address();
    drop(receiver);
    let small = Limits {
        queue_bytes: 10_000,
        ..limits()
    };
    let exporter = Exporter::start(settings(address), scope(), small).unwrap();
    let before = std::time::Instant::now();
    for number in 0..1000 {
        exporter.offer(group(number, 2));
    }
    // Whoever measures is not kept waiting.
    assert!(before.elapsed() < Duration::from_secs(1));
    let waiting = exporter.counts();
    assert!(waiting.queued > 10 && waiting.queued < 200, "{waiting:?}");
    assert!(waiting.add_up());
    let (counts, _) = exporter.end(Duration::from_millis(100));
    assert_eq!(counts.dropped_for(Cause::Ended), waiting.queued);
    assert_eq!(counts.dropped_in_all(), 2000);
}

#[test]
fn requests_are_compressed_and_have_the_headers_that_are_set() {
    let receiver = Receiver::play(|_| Answer::Status(200));
    let mut settings = settings(receiver.address());
    settings.compression = Compression::Gzip;
    let secret = "Basic c2VjcmV0".parse().unwrap();
    settings
        .headers
        .push(("authorization".parse().unwrap(), secret));
    let exporter = Exporter::start(settings, scope(), limits()).unwrap();
    exporter.offer(group(0, 2));
    let (counts, _) = exporter.end(LONG);
    assert_eq!(counts.exported, 2);
    let head = receiver.seen().head.to_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    for line in [
        "content-encoding: gzip",
        "content-type: application/x-protobuf",
        "authorization: basic c2vjcmv0",
    ] {
        assert!(head.contains(line), "{head}");
    }
    assert_eq!(receiver.seen().spans, 2);
}
