use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};

use super::{
    parents::{above, is_within, of},
    *,
};
use crate::{ids::Ids, span::SpanKind};

const MS: u64 = 1_000_000;

/// Of this thread, and of no key.
fn on(thread: u32) -> Within {
    Within {
        owner: 1,
        thread: Some(thread),
        key: None,
    }
}

const THREAD: u32 = 7;

fn span(ids: &mut Ids, start_ns: u64, end_ns: u64) -> Span {
    Span {
        trace: ids.trace(),
        id: ids.span(),
        parent: None,
        name: String::new(),
        start_ns,
        end_ns,
        kind: SpanKind::default(),
        attributes: Vec::new(),
        events: Vec::new(),
    }
}

#[test]
fn what_is_within_is_below_the_innermost_that_it_is_within() {
    let (mut nest, mut ids) = (Nest::default(), Ids::from_seed(1));
    let inner = span(&mut ids, 3 * MS, 4 * MS);
    let part = Span {
        parent: Some(inner.id),
        trace: inner.trace,
        ..span(&mut ids, 3 * MS, 3 * MS)
    };
    let middle = span(&mut ids, 2 * MS, 5 * MS);
    let outer = span(&mut ids, MS, 9 * MS);
    let beside = span(&mut ids, 10 * MS, 11 * MS);
    let elsewhere = span(&mut ids, 3 * MS, 4 * MS);
    // In the order in which they may be told.
    nest.hold(
        on(THREAD),
        vec![inner.clone(), part.clone()],
        "inner",
        Duration::ZERO,
    );
    nest.hold(on(THREAD), vec![outer.clone()], "outer", Duration::ZERO);
    nest.hold(on(THREAD), vec![middle.clone()], "middle", Duration::ZERO);
    nest.hold(on(THREAD), vec![beside.clone()], "beside", Duration::ZERO);
    nest.hold(on(8), vec![elsewhere.clone()], "elsewhere", Duration::ZERO);
    assert_eq!(
        (nest.waiting(), nest.waiting_of(1), nest.waiting_of(2)),
        (6, 6, 0)
    );
    assert!(nest.due(PATIENCE - Duration::from_nanos(1)).is_empty());
    let due: BTreeMap<&str, Vec<Span>> = nest
        .due(PATIENCE)
        .into_iter()
        .map(|(spans, name)| (name, spans))
        .collect();
    let of = |name: &str| (due[name][0].trace, due[name][0].parent);
    assert_eq!(of("outer"), (outer.trace, None));
    assert_eq!(of("middle"), (outer.trace, Some(outer.id)));
    assert_eq!(of("inner"), (outer.trace, Some(middle.id)));
    assert_eq!(due["inner"][1].parent, Some(inner.id));
    assert_eq!(due["inner"][1].trace, outer.trace);
    assert_eq!(of("beside"), (beside.trace, None));
    assert_eq!(of("elsewhere"), (elsewhere.trace, None));
    assert_eq!(nest.waiting(), 0);
}

/// What each of two is below, once all is told.
fn parents(inner: &Span, outer: &Span) -> BTreeMap<&'static str, Option<SpanId>> {
    let mut nest = Nest::default();
    nest.hold(on(THREAD), vec![inner.clone()], "inner", Duration::ZERO);
    nest.hold(on(THREAD), vec![outer.clone()], "outer", Duration::ZERO);
    let all = nest.all().into_iter();
    all.map(|(spans, name)| (name, spans[0].parent)).collect()
}

/// Of a call that does nothing but another the probes of that one are taken off.
#[test]
fn what_is_told_as_shorter_than_what_it_called_is_above_it_all_the_same() {
    let mut ids = Ids::from_seed(4);
    let inner = span(&mut ids, 3 * MS, 5 * MS);
    let outer = span(&mut ids, 3 * MS + 3_200, 5 * MS + 1_500);
    let all = parents(&inner, &outer);
    assert_eq!(all["inner"], Some(outer.id));
    assert_eq!(all["outer"], None);
}

/// Somebody else has told what it is a part of, on this thread or on any other.
#[test]
fn what_has_a_parent_keeps_it_and_what_is_within_it_follows_it() {
    let (mut nest, mut ids) = (Nest::default(), Ids::from_seed(6));
    let (caller, callers) = (ids.span(), ids.trace());
    let inner = span(&mut ids, 4 * MS, 5 * MS);
    let placed = Span {
        trace: callers,
        parent: Some(caller),
        ..span(&mut ids, 3 * MS, 6 * MS)
    };
    let beside = span(&mut ids, 7 * MS, 8 * MS);
    let outer = span(&mut ids, MS, 9 * MS);
    let later = Duration::from_millis(1);
    for (one, name) in [(&inner, "inner"), (&placed, "placed"), (&beside, "beside")] {
        nest.hold(on(THREAD), vec![one.clone()], name, Duration::ZERO);
    }
    nest.hold(on(THREAD), vec![outer.clone()], "outer", later);
    let place = |due: Vec<(Vec<Span>, &'static str)>| -> BTreeMap<&str, _> {
        let due = due.into_iter();
        due.map(|(spans, name)| (name, (spans[0].trace, spans[0].parent)))
            .collect()
    };
    // It waits for nobody, and whoever is beside it for what both are within.
    let first = place(nest.due(PATIENCE));
    let expected = [
        ("inner", (callers, Some(placed.id))),
        ("placed", (callers, Some(caller))),
    ];
    assert_eq!(first, expected.into());
    let second = place(nest.due(PATIENCE + later));
    let expected = [
        ("beside", (outer.trace, Some(outer.id))),
        ("outer", (outer.trace, None)),
    ];
    assert_eq!(second, expected.into());
    // Looked at anew while it waits, it is what it was.
    nest.hold(on(THREAD), vec![placed.clone()], "placed", later);
    nest.hold(on(THREAD), vec![beside], "beside", Duration::ZERO);
    assert_eq!(nest.due(PATIENCE).len(), 1);
    assert_eq!(place(nest.all())["placed"], (callers, Some(caller)));
}

/// Clocks of two mechanisms differ by some microseconds.
#[test]
fn what_is_told_to_end_a_little_after_what_it_is_within_is_below_it() {
    let mut ids = Ids::from_seed(5);
    let inner = span(&mut ids, 3 * MS, 5 * MS + 15_000);
    let outer = span(&mut ids, 2 * MS, 5 * MS);
    let all = parents(&inner, &outer);
    assert_eq!(all["inner"], Some(outer.id));
}

#[test]
fn of_too_many_the_oldest_wait_no_longer() {
    let (mut nest, mut ids) = (Nest::default(), Ids::from_seed(2));
    for number in 0..MOST as u64 + 3 {
        let one = span(&mut ids, number * MS, number * MS + 9);
        nest.hold(on(THREAD), vec![one], number, Duration::from_nanos(number));
    }
    let due = nest.due(Duration::from_secs(1)).into_iter();
    let due: BTreeSet<u64> = due.map(|(_, one)| one).collect();
    assert_eq!(due, [0, 1, 2].into());
    assert_eq!((nest.waiting(), nest.hurried()), (MOST as u64, 3));
}

/// What it is within is told after it.
#[test]
fn of_too_many_the_oldest_leave_with_what_was_told_after_them_and_belongs_to_them() {
    let (mut nest, mut ids) = (Nest::default(), Ids::from_seed(7));
    let inner = span(&mut ids, 2, 3);
    let outer = span(&mut ids, 1, MS);
    nest.hold(on(THREAD), vec![inner], 0, Duration::ZERO);
    for number in 1..=MOST as u64 {
        let one = span(&mut ids, 2 * number * MS, 2 * number * MS + 9);
        nest.hold(on(THREAD), vec![one], number, Duration::from_nanos(number));
    }
    nest.hold(
        on(THREAD),
        vec![outer.clone()],
        MOST as u64 + 1,
        Duration::from_millis(1),
    );
    let due = nest.due(Duration::from_secs(1)).into_iter();
    let due: BTreeMap<u64, Option<SpanId>> =
        due.map(|(spans, one)| (one, spans[0].parent)).collect();
    assert_eq!(
        due,
        [(0, Some(outer.id)), (1, None), (MOST as u64 + 1, None)].into()
    );
    assert_eq!((nest.waiting(), nest.hurried()), (MOST as u64 - 1, 3));
}

/// Of a request, by its number: begun and ended on this thread, or on two.
fn of_request(thread: Option<u32>, number: u64) -> Within {
    named("request", thread, number)
}

fn named(name: &str, thread: Option<u32>, number: u64) -> Within {
    Within {
        owner: 1,
        thread,
        key: Some(Key {
            name: name.into(),
            number,
        }),
    }
}

/// The trace and the parent of each of these, which are told in this order, once all have left.
fn settled(
    told: &[(&'static str, Within, &Span)],
) -> BTreeMap<&'static str, (TraceId, Option<SpanId>)> {
    let mut nest = Nest::default();
    for (name, within, span) in told {
        nest.hold(within.clone(), vec![(*span).clone()], *name, Duration::ZERO);
    }
    let all = nest.all().into_iter();
    all.map(|(spans, name)| (name, (spans[0].trace, spans[0].parent)))
        .collect()
}

#[test]
fn what_begins_while_something_of_its_key_is_under_way_is_below_what_began_last_on_whatever_thread()
{
    let mut ids = Ids::from_seed(8);
    let mut made = |start, end| span(&mut ids, start * MS, end * MS);
    let (request, part, within_both) = (made(1, 20), made(2, 10), made(3, 4));
    let (after_part, outlives) = (made(11, 12), made(19, 25));
    let (other_number, other_name, nobodys) = (made(3, 4), made(3, 4), made(3, 4));
    let (afterwards, before) = (made(20, 21), made(0, 1));
    let somebody_elses = made(3, 4);
    let elsewhere = Within {
        owner: 2,
        ..of_request(Some(9), 17)
    };
    let all = settled(&[
        ("before", of_request(Some(6), 17), &before),
        ("within both", of_request(Some(8), 17), &within_both),
        ("other number", of_request(Some(8), 18), &other_number),
        ("other name", named("peer", Some(8), 17), &other_name),
        ("nobody's", on(9), &nobodys),
        ("somebody else's", elsewhere, &somebody_elses),
        ("part", of_request(None, 17), &part),
        ("after part", of_request(Some(8), 17), &after_part),
        ("request", of_request(None, 17), &request),
        ("afterwards", of_request(Some(8), 17), &afterwards),
        ("outlives", of_request(None, 17), &outlives),
    ]);
    let below = |parent: &Span| (request.trace, Some(parent.id));
    let alone = |span: &Span| (span.trace, None);
    let expected = [
        ("request", alone(&request)),
        ("part", below(&request)),
        ("within both", below(&part)),
        ("after part", below(&request)),
        ("outlives", below(&request)),
        // What has the same key, and did not begin while that was under way.
        ("before", alone(&before)),
        ("afterwards", below(&outlives)),
        ("other number", alone(&other_number)),
        ("other name", alone(&other_name)),
        ("nobody's", alone(&nobodys)),
        ("somebody else's", alone(&somebody_elses)),
    ];
    assert_eq!(all, expected.into());
}

#[test]
fn a_key_comes_before_a_thread_unless_what_is_around_on_the_thread_belongs_to_it_and_is_closer() {
    let mut ids = Ids::from_seed(9);
    let mut made = |start, end| span(&mut ids, start * MS, end * MS);
    let (request, handler, lookup) = (made(1, 20), made(2, 10), made(3, 4));
    let (worker, other_lookup, call) = (made(1, 30), made(5, 9), made(6, 7));
    let caller = Span {
        parent: Some(request.id),
        ..made(12, 14)
    };
    let all = settled(&[
        ("lookup", of_request(Some(7), 17), &lookup),
        ("call", on(8), &call),
        ("other lookup", of_request(Some(8), 17), &other_lookup),
        ("handler", on(7), &handler),
        ("request", of_request(Some(7), 17), &request),
        ("worker", on(8), &worker),
        ("caller", of_request(Some(9), 17), &caller),
    ]);
    let expected = [
        ("request", (request.trace, None)),
        ("handler", (request.trace, Some(request.id))),
        // What called it belongs to the request, too.
        ("lookup", (request.trace, Some(handler.id))),
        // What goes on around it on its thread does not.
        ("other lookup", (request.trace, Some(request.id))),
        ("worker", (worker.trace, None)),
        // Its own thread's is within it, and follows it.
        ("call", (request.trace, Some(other_lookup.id))),
        // It was told what it is a part of.
        ("caller", (caller.trace, Some(request.id))),
    ];
    assert_eq!(all, expected.into());
}

#[test]
fn what_is_of_a_key_waits_for_what_that_is_within_and_no_longer() {
    let (mut nest, mut ids) = (Nest::default(), Ids::from_seed(10));
    let lookup = span(&mut ids, 3 * MS, 4 * MS);
    let request = span(&mut ids, MS, 9 * MS);
    let late = span(&mut ids, 5 * MS, 6 * MS);
    let moment = Duration::from_nanos(1);
    nest.hold(
        of_request(Some(8), 17),
        vec![lookup],
        "lookup",
        Duration::ZERO,
    );
    nest.hold(
        of_request(None, 17),
        vec![request.clone()],
        "request",
        PATIENCE - moment,
    );
    assert!(nest.due(2 * PATIENCE - 2 * moment).is_empty());
    let due = nest.due(2 * PATIENCE - moment).into_iter();
    let due: BTreeMap<_, _> = due.map(|(spans, name)| (name, spans[0].parent)).collect();
    assert_eq!(
        due,
        [("lookup", Some(request.id)), ("request", None)].into()
    );
    nest.hold(
        of_request(Some(8), 17),
        vec![late.clone()],
        "late",
        2 * PATIENCE,
    );
    let due = nest.due(3 * PATIENCE);
    assert_eq!((due[0].0[0].trace, due[0].0[0].parent), (late.trace, None));
}

proptest! {
    #[test]
    fn each_leaves_once_in_one_trace_with_all_that_it_is_within(
        all in vec((0..1000_u64, 1..1000_u64, 0..4_u32, 0..4_u64, 0..4000_u64, any::<bool>()), 1..60),
    ) {
        let (mut nest, mut ids) = (Nest::default(), Ids::from_seed(3));
        let mut left: Vec<(Vec<Span>, Within)> = Vec::new();
        let mut now = Duration::ZERO;
        let mut held = BTreeSet::new();
        let mut told = BTreeMap::new();
        for (start, length, thread, number, wait, is_placed) in &all {
            let mut one = span(&mut ids, start * MS, (start + length) * MS);
            if *is_placed {
                one.parent = Some(ids.span());
                told.insert(one.id, (one.trace, one.parent));
            }
            held.insert(one.id);
            let within = Within {
                thread: (*thread > 0).then_some(*thread),
                ..if *number > 0 { of_request(None, *number) } else { on(0) }
            };
            nest.hold(within.clone(), vec![one], within, now);
            now += Duration::from_millis(*wait);
            left.extend(nest.due(now));
            prop_assert_eq!(nest.waiting() + left.len() as u64, held.len() as u64);
        }
        left.extend(nest.all());
        prop_assert_eq!(nest.waiting(), 0);
        let by_id: BTreeMap<_, _> = left.iter().map(|(spans, within)| (spans[0].id, (&spans[0], within))).collect();
        prop_assert_eq!(by_id.len(), all.len());
        for (span, within) in by_id.values() {
            if let Some(told) = told.get(&span.id) {
                prop_assert_eq!((span.trace, span.parent), *told);
                continue;
            }
            let Some(parent) = span.parent else { continue };
            let (outer, of) = by_id[&parent];
            let by_thread = is_within(span, outer) && within.thread.is_some() && of.thread == within.thread;
            let by_key = outer.start_ns < span.start_ns && span.start_ns < outer.end_ns && within.key.is_some() && of.key == within.key;
            prop_assert!(by_thread || by_key);
            prop_assert_eq!(span.trace, outer.trace);
        }
    }

    /// Where times by keys and times by threads contradict each other, too.
    #[test]
    fn following_parents_ends(
        all in vec((0..60_000_u64, 1..60_000_u64, 1..3_u32, 1..3_u64), 1..40),
    ) {
        let mut ids = Ids::from_seed(11);
        let held = all.iter().map(|(start, length, thread, number)| Held {
            since: Duration::ZERO,
            within: of_request(Some(*thread), *number),
            spans: vec![span(&mut ids, *start, start + length)],
            is_placed: false,
            carried: (),
        });
        let mut held: Vec<_> = held.collect();
        parents::outermost_first(&mut held);
        let parents = of(&held);
        for index in 0..held.len() {
            prop_assert!(above(&parents, index).take(held.len()).count() < held.len());
        }
    }
}
