use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{Ids, Resource, Span, SpanKind, messages};

const SECOND: Duration = Duration::from_secs(1);

fn scope() -> Scope {
    Scope {
        name: "test".to_string(),
        version: "1".to_string(),
    }
}

fn place(name: &str) -> Resource {
    Resource::new(&vec![("service.name".into(), name.into())])
}

fn group(ids: &mut Ids, spans: usize, padding: usize) -> Group {
    let trace = ids.trace();
    let spans: Vec<Span> = (0..spans)
        .map(|_| Span {
            trace,
            id: ids.span(),
            parent: None,
            name: "x".repeat(padding),
            start_ns: 1,
            end_ns: 2,
            kind: SpanKind::default(),
            attributes: Vec::new(),
            events: Vec::new(),
        })
        .collect();
    Group::new(&place("one"), &spans)
}

/// The numbers of the spans of a request.
fn numbers(request: &[u8]) -> Vec<Vec<u8>> {
    let request = messages::ExportTraceServiceRequest::decode(request).unwrap();
    let scopes = request
        .resource_spans
        .iter()
        .flat_map(|place| &place.scope_spans);
    let spans = scopes.flat_map(|scope| &scope.spans);
    spans
        .map(|span| messages::Span::decode(span.clone()).unwrap().span_id)
        .collect()
}

fn small() -> Limits {
    Limits {
        queue_bytes: 4000,
        batch_spans: 10,
        batch_bytes: 1500,
        linger: SECOND,
    }
}

fn sent(outbox: &mut Outbox, now: Duration) -> Option<Vec<Vec<u8>>> {
    match outbox.next(now) {
        Next::Send(batch) => Some(numbers(&batch.request(&scope()))),
        Next::Wait(_) | Next::Nothing => None,
    }
}

#[test]
fn a_request_waits_for_more_and_not_for_long() {
    let mut ids = Ids::from_seed(1);
    let mut outbox = Outbox::new(small());
    let mut offer = |outbox: &mut Outbox| outbox.offer(group(&mut ids, 4, 1), SECOND);
    assert_eq!(offer(&mut outbox), Offered::Wakes);
    assert_eq!(offer(&mut outbox), Offered::Waits);
    assert!(matches!(outbox.next(SECOND), Next::Wait(until) if until == 2 * SECOND));
    // Enough for a request: whoever sends looks now.
    assert_eq!(offer(&mut outbox), Offered::Wakes);
    assert_eq!(offer(&mut outbox), Offered::Waits, "it is told once");
    // No group is torn apart.
    assert_eq!(sent(&mut outbox, SECOND).unwrap().len(), 8);
    assert!(matches!(outbox.next(9 * SECOND), Next::Nothing));
    outbox.answered(&Outcome::Taken { rejected: 0 }, 9 * SECOND, 0.0);
    assert_eq!(sent(&mut outbox, 9 * SECOND).unwrap().len(), 8);
    outbox.answered(&Outcome::Taken { rejected: 0 }, 9 * SECOND, 0.0);
    assert_eq!(outbox.counts().exported, 16);
    assert_eq!((outbox.counts().queued, outbox.bytes()), (0, 0));
}

#[test]
fn what_was_not_taken_is_sent_again_after_a_time_and_as_it_was() {
    let mut ids = Ids::from_seed(2);
    let mut outbox = Outbox::new(small());
    outbox.offer(group(&mut ids, 2, 1), SECOND);
    let first = sent(&mut outbox, 2 * SECOND).unwrap();
    outbox.offer(group(&mut ids, 2, 1), 2 * SECOND);
    outbox.answered(&Outcome::Unsent, 2 * SECOND, 1.0);
    assert!(matches!(outbox.next(2 * SECOND), Next::Wait(until) if until == 3 * SECOND));
    assert_eq!(sent(&mut outbox, 3 * SECOND).unwrap(), first);
    let asked = Outcome::TryAgain(Some(9 * SECOND));
    outbox.answered(&asked, 3 * SECOND, 1.0);
    assert!(matches!(outbox.next(3 * SECOND), Next::Wait(until) if until == 12 * SECOND));
    assert_eq!(sent(&mut outbox, 12 * SECOND).unwrap(), first);
    outbox.answered(&Outcome::Taken { rejected: 1 }, 12 * SECOND, 1.0);
    let counts = outbox.counts();
    assert_eq!((counts.started, counts.exported, counts.queued), (4, 1, 2));
    assert_eq!(counts.dropped_for(Cause::Refused), 1);
    assert_eq!(counts.failures, 2);
    assert!(counts.add_up());
}

#[test]
fn what_may_have_arrived_is_not_sent_again() {
    let mut ids = Ids::from_seed(3);
    let mut outbox = Outbox::new(small());
    outbox.offer(group(&mut ids, 2, 1), SECOND);
    sent(&mut outbox, 2 * SECOND).unwrap();
    outbox.answered(&Outcome::Unanswered, 2 * SECOND, 1.0);
    assert!(matches!(outbox.next(99 * SECOND), Next::Nothing));
    assert_eq!(outbox.counts().dropped_for(Cause::Unanswered), 2);
    assert!(outbox.counts().add_up());
}

#[test]
fn what_waits_is_not_given_up_for_what_comes() {
    let mut ids = Ids::from_seed(4);
    let mut outbox = Outbox::new(small());
    outbox.offer(group(&mut ids, 1, 3000), SECOND);
    let offered = outbox.offer(group(&mut ids, 5, 3000), SECOND);
    assert_eq!(offered, Offered::Dropped);
    assert_eq!(outbox.counts().dropped_for(Cause::Full), 5);
    // One that is larger than any request goes by itself.
    assert_eq!(sent(&mut outbox, SECOND).unwrap().len(), 1);
}

#[test]
fn at_the_end_nothing_waits() {
    let mut ids = Ids::from_seed(5);
    for under_way in [false, true] {
        let mut outbox = Outbox::new(small());
        outbox.offer(group(&mut ids, 2, 1), SECOND);
        if under_way {
            sent(&mut outbox, 2 * SECOND).unwrap();
        }
        outbox.offer(group(&mut ids, 3, 1), 2 * SECOND);
        outbox.end();
        let counts = outbox.counts();
        let expected = if under_way { (2, 3) } else { (0, 5) };
        let dropped = (
            counts.dropped_for(Cause::Unanswered),
            counts.dropped_for(Cause::Ended),
        );
        assert_eq!(dropped, expected);
        outbox.offer(group(&mut ids, 3, 1), 2 * SECOND);
        assert_eq!(
            (
                outbox.counts().dropped_for(Cause::Full),
                outbox.counts().queued
            ),
            (3, 0)
        );
        assert!(outbox.counts().add_up());
    }
}

#[test]
fn spans_of_one_place_stand_together() {
    let mut ids = Ids::from_seed(6);
    let mut outbox = Outbox::new(small());
    for name in ["one", "two", "one"] {
        let span = Span {
            trace: ids.trace(),
            id: ids.span(),
            parent: None,
            name: name.to_string(),
            start_ns: 1,
            end_ns: 2,
            kind: SpanKind::default(),
            attributes: Vec::new(),
            events: Vec::new(),
        };
        outbox.offer(Group::new(&place(name), &[span]), SECOND);
    }
    let Next::Send(batch) = outbox.next(2 * SECOND) else {
        panic!("nothing to send")
    };
    let request = batch.request(&scope());
    let request = messages::ExportTraceServiceRequest::decode(&request[..]).unwrap();
    let places = request.resource_spans.iter();
    let spans: Vec<usize> = places.map(|one| one.scope_spans[0].spans.len()).collect();
    assert_eq!(spans, [2, 1]);
}

#[test]
fn an_owner_that_is_forgotten_counts_for_all_alone() {
    let mut ids = Ids::from_seed(8);
    let mut outbox = Outbox::new(small());
    outbox.offer(group(&mut ids, 2, 1).owned_by(7), SECOND);
    outbox.offer(group(&mut ids, 3, 1).owned_by(8), SECOND);
    sent(&mut outbox, 2 * SECOND).unwrap();
    outbox.forget(7);
    outbox.answered(&Outcome::Taken { rejected: 1 }, 2 * SECOND, 0.0);
    assert_eq!(outbox.counts_of(7), Counts::default());
    assert_eq!(
        (outbox.counts_of(8).exported, outbox.counts().exported),
        (2, 4)
    );
}

/// What happens to an outbox.
#[derive(Clone, Debug)]
enum Step {
    Offer(usize, usize),
    Look(u64),
    /// Whether the receiver took it, which whoever sends may or may not learn.
    Answer(Outcome, bool),
    Hurry,
    End,
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        (0u64..20).prop_map(|rejected| Outcome::Taken { rejected }),
        Just(Outcome::Refused),
        prop::option::of(0u64..100)
            .prop_map(|seconds| Outcome::TryAgain(seconds.map(Duration::from_secs))),
        Just(Outcome::Unsent),
        Just(Outcome::Unanswered),
    ];
    prop_oneof![
        8 => (0usize..15, 0usize..400).prop_map(|(spans, padding)| Step::Offer(spans, padding)),
        6 => (0u64..40).prop_map(Step::Look),
        6 => (outcome, any::<bool>()).prop_map(|(outcome, took)| Step::Answer(outcome, took)),
        1 => Just(Step::Hurry),
        1 => Just(Step::End),
    ]
}

proptest! {
    #[test]
    fn whatever_a_receiver_does_the_sum_holds_and_nothing_it_took_comes_again(
        steps in prop::collection::vec(step(), 0..120)
    ) {
        let mut ids = Ids::from_seed(7);
        let mut outbox = Outbox::new(small());
        let mut now = Duration::ZERO;
        // What the receiver took, or may have taken; what is under way; how many it took for sure.
        let mut took: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut under_way: Vec<Vec<u8>> = Vec::new();
        let mut known = 0;
        for step in steps {
            match step {
                Step::Offer(spans, padding) => {
                    let owner = spans as u64 % 3;
                    outbox.offer(group(&mut ids, spans, padding).owned_by(owner), now);
                }
                Step::Look(seconds) => {
                    now += Duration::from_secs(seconds);
                    if let Some(numbers) = sent(&mut outbox, now) {
                        prop_assert!(under_way.is_empty(), "one request at a time");
                        prop_assert!(numbers.iter().all(|one| !took.contains(one)), "sent again");
                        under_way = numbers;
                    }
                }
                Step::Answer(outcome, arrived) => {
                    let sent = std::mem::take(&mut under_way);
                    match &outcome {
                        Outcome::Taken { rejected } if !sent.is_empty() => {
                            known += (sent.len() as u64).saturating_sub(*rejected);
                            took.extend(sent);
                        }
                        Outcome::Unanswered if arrived => took.extend(sent),
                        _ => {}
                    }
                    outbox.answered(&outcome, now, 0.5);
                }
                Step::Hurry => outbox.hurry(),
                Step::End => {
                    took.extend(std::mem::take(&mut under_way));
                    outbox.end();
                }
            }
            let counts = outbox.counts();
            prop_assert!(counts.add_up(), "{counts:?}");
            prop_assert_eq!(counts.exported, known);
            let owners: Vec<Counts> = (0..3).map(|owner| outbox.counts_of(owner)).collect();
            prop_assert!(owners.iter().all(Counts::add_up), "{owners:?}");
            let of_all = |of: fn(&Counts) -> u64| owners.iter().map(of).sum::<u64>();
            prop_assert_eq!(of_all(|one| one.started), counts.started);
            prop_assert_eq!(of_all(|one| one.exported), counts.exported);
            prop_assert_eq!(of_all(|one| one.queued), counts.queued);
            prop_assert_eq!(of_all(Counts::dropped_in_all), counts.dropped_in_all());
            prop_assert!(outbox.bytes() <= small().queue_bytes);
            prop_assert_eq!(outbox.bytes() == 0, counts.queued == 0);
        }
        outbox.end();
        prop_assert!(outbox.counts().add_up());
        prop_assert_eq!((outbox.counts().queued, outbox.bytes()), (0, 0));
    }
}
