use proptest::prelude::*;

use super::*;
use crate::testing::{BEGAN, interval, row};

fn window(merged: &Interval, key: &str) -> IntervalFigures {
    let mut rows = merged.probes[0].rows.iter();
    rows.find(|row| row.key == key).unwrap().window.clone()
}

#[test]
fn a_row_that_is_not_there_was_watched_and_idle() {
    let mut merged = interval(0, vec![row("Get", 3, 900, 3)]);
    merged.follow(&interval(1, vec![row("Put", 5, 900, 5)]));
    merged.follow(&interval(2, vec![row("Get", 4, 900, 7)]));
    for (key, count, total) in [("Get", 7, 7), ("Put", 5, 5)] {
        let of = window(&merged, key);
        assert_eq!(
            (of.milliseconds, of.recorded_milliseconds),
            (15_000, 15_000),
            "{key}"
        );
        assert_eq!(of.figures.count("duration"), Some(count));
        let mut rows = merged.probes[0].rows.iter();
        let row = rows.find(|row| row.key == key).unwrap();
        assert_eq!(row.total.count("duration"), Some(total));
    }
    assert_eq!((merged.began(), merged.at), (BEGAN, BEGAN + 15_000));
    assert_eq!((merged.cost, merged.own_cpu), (Some(400), 30));
}

#[test]
fn what_was_not_measured_is_not_known_for_as_long() {
    let mut merged = interval(0, vec![row("Get", 3, 900, 3)]);
    let mut unmeasured = interval(1, Vec::new());
    unmeasured.probes[0].unmeasured = Some("OverBudget".to_owned());
    merged.follow(&unmeasured);
    let told = |merged: &Interval| {
        let row = &merged.probes[0].rows[0];
        let of = &row.window;
        (of.milliseconds, of.recorded_milliseconds, row.unseen)
    };
    assert_eq!(told(&merged), (5_000, 5_000, 5_000));
    assert_eq!(merged.probes[0].unmeasured, None);
    // The other way round, as well.
    let mut merged = unmeasured;
    merged.follow(&interval(2, vec![row("Get", 3, 900, 3)]));
    assert_eq!(told(&merged), (5_000, 5_000, 5_000));
}

#[test]
fn what_was_waited_for_is_the_mean_of_what_is_known_and_unknown_where_nothing_is() {
    let told = |throttled, again| {
        Some(Contention {
            throttled_millipercent: throttled,
            retransmitted_millipercent: again,
            ..Contention::default()
        })
    };
    let of = |number, milliseconds, contention| Interval {
        milliseconds,
        contention,
        ..interval(number, Vec::new())
    };
    let mut merged = of(0, 5_000, told(Some(30_000), None));
    merged.follow(&of(1, 15_000, told(Some(10_000), Some(400))));
    assert_eq!(merged.contention, told(Some(15_000), Some(400)));
    // What nothing is known of changes nothing, and is no zero.
    merged.follow(&of(2, 20_000, None));
    assert_eq!(merged.contention, told(Some(15_000), Some(400)));
    // Nor does it count for what comes after it: of 20 seconds the one is known and of 15 the other, and both of these 10.
    merged.follow(&of(3, 10_000, told(Some(60_000), Some(800))));
    assert_eq!(merged.contention, told(Some(30_000), Some(560)));
    let unknown = [("retransmitted", 25_000), ("throttled", 20_000)];
    let unknown = unknown.map(|(key, milliseconds)| (key.to_owned(), milliseconds));
    assert_eq!(merged.contention_unknown, BTreeMap::from(unknown));
    let mut unknown = of(0, 5_000, None);
    unknown.follow(&of(1, 5_000, None));
    assert_eq!(unknown.contention, None);
    unknown.follow(&of(2, 5_000, told(None, Some(7))));
    assert_eq!(unknown.contention, told(None, Some(7)));
    let first = [("retransmitted".to_owned(), 10_000)];
    assert_eq!(unknown.contention_unknown, BTreeMap::from(first));
}

/// A row that is sampled, by the lengths of what its slices stand for, in intervals of five seconds: 0 where none ended. There are 100 calls a
/// second.
fn sampled(lengths: &[u64]) -> Vec<Interval> {
    let each = (0..).zip(lengths).map(|(number, length)| {
        let mut row = row("Get", length / 10, 900, 0);
        row.window.milliseconds = if *length == 0 { 5_000 } else { *length };
        row.window.recorded_milliseconds = length / 4;
        row.window.samples = length / 40;
        row.parts = vec![row.clone()];
        interval(number, vec![row])
    });
    each.collect()
}

#[test]
fn a_slice_that_stands_for_intervals_of_which_nothing_was_seen_is_not_counted_with_these() {
    // Of the two that saw nothing the third tells, and of the last one nothing is told yet.
    let lengths = [4_000, 0, 0, 15_500, 5_200, 0, 9_000, 0];
    let all = sampled(&lengths);
    for each in [5_000, 10_000, 15_000, 20_000] {
        // Put together in one step, and in two.
        let merged = by_time(&by_time(&all, each), u64::MAX);
        assert_eq!(merged.len(), 1);
        let row = &merged[0].probes[0].rows[0];
        for of in [row, &row.parts[0]] {
            let told = (of.window.milliseconds, of.window.figures.count("duration"));
            assert_eq!(told, (33_700, Some(3_370)), "by {each} ms");
            assert_eq!((of.unseen, of.unseen_last), (5_000, 5_000));
        }
    }
    // One that was not attached for as long has nothing that reaches back.
    let merged = by_time(&sampled(&[5_000, 0, 5_000]), u64::MAX);
    let row = &merged[0].probes[0].rows[0];
    assert_eq!((row.window.milliseconds, row.unseen), (10_000, 5_000));
    // Where nothing was ever seen, that is told for all of the time.
    let merged = by_time(&sampled(&[0, 0]), u64::MAX);
    let row = &merged[0].probes[0].rows[0];
    assert_eq!((row.window.milliseconds, row.unseen), (10_000, 0));
}

#[test]
fn intervals_are_put_together_only_where_nothing_is_missing_between() {
    let all: Vec<Interval> = [0, 1, 2, 5, 6, 7, 8]
        .map(|one| interval(one, Vec::new()))
        .into();
    let lengths = |milliseconds| -> Vec<u64> {
        let merged = by_time(&all, milliseconds);
        merged.iter().map(|one| one.milliseconds).collect()
    };
    assert_eq!(lengths(1), [5000; 7]);
    assert_eq!(lengths(10_000), [10_000, 5_000, 10_000, 10_000]);
    assert_eq!(lengths(u64::MAX), [15_000, 20_000]);
}

proptest! {
    #[test]
    fn nothing_is_lost_however_it_is_put_together(counts in proptest::collection::vec((0_u64..4, 1_u64..50), 1..40), length in 1_u64..60) {
        let keys = ["Get", "Put", "MultiGet", "Delete"];
        let all: Vec<Interval> = (0..).zip(&counts)
            .map(|(number, (key, count))| interval(number, vec![row(keys[*key as usize], *count, 900, 0)]))
            .collect();
        let merged = by_time(&all, length * 1000);
        for (key, name) in (0_u64..).zip(keys) {
            let counted: u64 = counts.iter().filter(|(of, _)| *of == key).map(|(_, count)| count).sum();
            let rows = merged.iter().flat_map(|one| &one.probes[0].rows).filter(|row| row.key == name);
            let told: u64 = rows.filter_map(|row| row.window.figures.count("duration")).sum();
            prop_assert_eq!(told, counted);
        }
        for one in &merged {
            prop_assert!(one.probes[0].rows.iter().all(|row| row.window.milliseconds == one.milliseconds));
            prop_assert!(one.probes[0].rows.iter().all(|row| row.window.recorded_milliseconds == one.milliseconds));
        }
    }
}
