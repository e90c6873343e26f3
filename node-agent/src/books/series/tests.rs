use ckb_probe_crds::{
    histogram::bucket,
    kinds::rocksdb::{Operation, RocksDbProbe},
};
use proptest::prelude::*;

use super::*;
use crate::host::slots;

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn series(by_column_family: bool) -> Series {
    let kind = RocksDbProbe {
        operations: vec![Operation::Get],
        by_column_family,
        ..RocksDbProbe::default()
    };
    Series::new(slots(kind).remove(0))
}

/// One that is attached at 0 and measured in slices.
fn sliced() -> Series {
    let mut series = series(false);
    series.attached(at(0));
    series.pause(at(0), 1.0);
    series
}

fn calls_of(count: u64, nanos: u64) -> SlotReading {
    let mut reading = SlotReading {
        sum_ns: count * nanos,
        bytes: count * 10,
        max_ns: nanos,
        ..SlotReading::default()
    };
    reading.histogram.add(bucket(nanos), count);
    reading
}

fn gets(count: u64) -> Reading {
    Reading {
        slots: vec![calls_of(count, 1_000)],
        ..Reading::default()
    }
}

#[test]
fn what_is_measured_all_the_time_is_counted_and_never_scaled() {
    let mut series = series(false);
    series.attached(at(0));
    assert_eq!(series.observe(0, &gets(7), at(333)), 7);
    assert_eq!(series.all.total.count, 7);
    series.close_window(at(1_000), false);
    let window = series.report().window;
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (1_000, 1_000)
    );
    assert_eq!((window.samples, window.counters.count), (7, 7));
    assert_eq!(series.share(), Some(1.0));
}

#[test]
fn a_slice_stands_for_the_time_since_the_one_before() {
    let mut series = series(false);
    series.attached(at(0));
    series.observe(0, &gets(1_000), at(1_000));
    series.pause(at(1_000), 1.0);
    series.resume(at(1_900));
    series.observe(0, &gets(1_100), at(2_000));
    series.pause(at(2_000), 1.0);
    // 1,000 in the first second; 100 in a tenth of the next one.
    assert_eq!(series.all.total.count, 2_000);
    assert_eq!(series.all.total.nanoseconds, 2_000_000);
    assert_eq!(series.all.histogram.count(), 2_000);
    assert_eq!(series.all.samples, 1_100);
    series.close_window(at(2_500), true);
    let window = series.report().window;
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (2_000, 1_100)
    );
}

#[test]
fn between_two_slices_it_was_like_the_one_for_half_of_the_time_and_then_like_the_other() {
    let mut series = sliced();
    series.resume(at(900));
    series.observe(0, &gets(1_000), at(1_000));
    series.pause(at(1_000), 1.0);
    assert_eq!(series.all.total.count, 10_000);
    // 10 in a millisecond until then, 1 in a millisecond now; of 2 s each stands for one.
    series.resume(at(3_000));
    series.observe(0, &gets(1_100), at(3_100));
    series.pause(at(3_100), 1.0);
    assert_eq!(series.all.total.count, 10_000 + 10_000 + 1_000 + 100);
    assert_eq!(series.all.samples, 1_100);
    series.close_window(at(3_100), true);
    let window = series.report().window;
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (3_100, 200)
    );
    assert_eq!((window.samples, window.counters.count), (1_100, 21_100));
}

#[test]
fn a_slice_of_a_target_that_was_slowed_down_stands_for_less_time_than_it_lasted() {
    let mut series = sliced();
    series.resume(at(900));
    series.observe(0, &gets(80), at(1_000));
    series.pause(at(1_000), 0.8);
    // 80 in the slice, and 1 in a millisecond before it.
    assert_eq!(series.all.total.count, 980);
    series.end(at(2_000));
    assert_eq!(series.all.total.count, 1_980);
}

#[test]
fn what_is_rarely_seen_in_a_slice_adds_up_all_the_same() {
    let mut series = sliced();
    // One call in each slice of 100 ms, which stands for 190.
    for slice in 1..=100 {
        series.resume(at(190 * slice - 100));
        series.observe(0, &gets(slice), at(190 * slice));
        series.pause(at(190 * slice), 1.0);
    }
    assert_eq!(series.all.samples, 100);
    let count = series.all.total.count;
    assert!((189..=191).contains(&count), "{count}");
}

#[test]
fn an_interval_has_the_longest_of_the_calls_that_stand_for_it() {
    let mut series = sliced();
    series.resume(at(900));
    let slow = Reading {
        slots: vec![calls_of(10, 50_000_000)],
        ..Reading::default()
    };
    series.observe(0, &slow, at(1_000));
    series.pause(at(1_000), 1.0);
    series.close_window(at(1_000), true);
    // Nothing happens in the next slice; half of the way to it still stands for the one before.
    series.resume(at(1_900));
    let none = Reading {
        slots: vec![SlotReading {
            max_ns: 0,
            ..calls_of(10, 50_000_000)
        }],
        ..Reading::default()
    };
    series.observe(0, &none, at(2_000));
    series.pause(at(2_000), 1.0);
    series.close_window(at(2_000), true);
    let window = series.report().window;
    assert_eq!((window.counters.count, window.samples), (45, 0));
    assert_eq!(window.max_nanoseconds, 50_000_000);
}

#[test]
fn a_process_that_ends_as_a_slice_begins_did_what_it_did_before() {
    let mut series = sliced();
    series.resume(at(900));
    series.observe(0, &gets(10), at(1_000));
    series.pause(at(1_000), 1.0);
    series.resume(at(1_995));
    series.end(at(2_000));
    assert_eq!(series.all.total.count, 200);
}

#[test]
fn an_interval_without_a_slice_knows_nothing() {
    let mut series = sliced();
    series.close_window(at(10_000), true);
    let window = series.report().window;
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (10_000, 0)
    );
    assert_eq!(series.share(), Some(0.0));
}

/// Everything is attached for a first look of 50 ms, and what is far too busy not again.
#[test]
fn an_interval_of_which_only_the_beginning_was_seen_is_no_complete_one() {
    let mut series = series(false);
    series.attached(at(0));
    series.observe(0, &gets(5_000), at(50));
    series.pause(at(50), 1.0);
    series.close_window(at(1_000), true);
    let window = series.report().window;
    assert_eq!((window.counters.count, window.samples), (5_000, 5_000));
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (50, 2),
        "as many calls in 50 ms, and 5 % of the interval"
    );
    let share = series.share().unwrap();
    assert!((share - 0.05).abs() < 1e-9, "{share}");
    series.close_window(at(11_000), true);
    assert_eq!(series.share(), Some(0.0));
}

#[test]
fn what_is_not_all_of_the_time_never_looks_like_it() {
    let span = Span {
        elapsed: Duration::from_micros(10_000_900),
        recorded: Duration::from_micros(10_000_100),
    };
    assert_eq!(span.milliseconds(), (10_000, 9_999));
}

#[test]
fn a_moment_is_not_scaled_up_to_an_age() {
    let mut series = sliced();
    series.resume(at(9_995));
    series.observe(0, &gets(50), at(10_000));
    series.pause(at(10_000), 1.0);
    assert_eq!(series.all.total.count, 0, "5 ms of 10 s");
    series.resume(at(19_905));
    series.observe(0, &gets(500), at(20_000));
    series.pause(at(20_000), 1.0);
    assert_eq!(
        series.all.total.count, 100_000,
        "100 ms of 20 s, all in all"
    );
}

#[test]
fn what_comes_back_from_slices_is_scaled_once_and_counted_from_then_on() {
    let mut series = sliced();
    series.resume(at(900));
    series.observe(0, &gets(10), at(1_000));
    assert_eq!(
        series.all.total.count, 0,
        "the rest of the interval may still count"
    );
    series.close_window(at(1_000), false);
    assert_eq!(series.all.total.count, 100);
    series.observe(0, &gets(11), at(1_100));
    assert_eq!(series.all.total.count, 101);
}

#[test]
fn a_new_process_begins_at_zero_and_adds_to_the_old_one() {
    let mut series = series(false);
    series.attached(at(0));
    series.observe(0, &gets(5), at(10));
    series.end(at(20));
    series.attached(at(100));
    series.observe(0, &gets(3), at(110));
    assert_eq!(series.all.total.count, 8);
}

#[test]
fn the_time_after_the_last_slice_is_taken_to_have_been_like_it() {
    let mut series = sliced();
    series.resume(at(900));
    series.observe(0, &gets(10), at(1_000));
    series.pause(at(1_000), 1.0);
    assert_eq!(series.all.total.count, 100);
    series.end(at(1_500));
    assert_eq!((series.all.total.count, series.all.samples), (150, 10));
    series.end(at(3_600_000));
    assert_eq!(series.all.total.count, 150, "once");
}

#[test]
fn column_families_add_up_to_their_operation() {
    let mut series = series(true);
    series.attached(at(0));
    let family = |id, name: &str, count| FamilyReading {
        slot: 0,
        id,
        name: name.to_string(),
        reading: calls_of(count, 1_000),
    };
    let reading = Reading {
        slots: vec![calls_of(4, 1_000)],
        families: vec![
            family(11, "10", 20),
            family(5, "4", 3),
            // Another handle of the first one.
            family(11, "10", 1),
            FamilyReading {
                slot: 1,
                ..family(11, "10", 1_000)
            },
        ],
        ..Reading::default()
    };
    assert_eq!(series.observe(0, &reading, at(10)), 28);
    let report = series.report();
    let families: Vec<_> = report
        .column_families
        .iter()
        .map(|family| (family.name.as_str(), family.total.count))
        .collect();
    assert_eq!(families, [("CELL", 21), ("META", 3), ("other", 4)]);
    assert_eq!(report.total.count, 28);
}

#[test]
fn a_column_family_beyond_the_limit_is_with_the_others_from_then_on() {
    let mut series = series(true);
    series.attached(at(0));
    let family = |id: u32, count| FamilyReading {
        slot: 0,
        id,
        name: format!("family-{id}"),
        reading: calls_of(count, 1_000),
    };
    let reading = |own, count| Reading {
        slots: vec![calls_of(own, 1_000)],
        families: (0..70).map(|id| family(id, count)).collect(),
        ..Reading::default()
    };
    // Whether the kernel knows others or not: nobody's calls move to another name.
    for (own, count) in [(0, 2), (5, 2), (5, 3)] {
        series.observe(0, &reading(own, count), at(count));
        assert_eq!(series.families.len(), 64);
        for (name, tally) in &series.families {
            let expected = if name == "other" {
                own + 7 * count
            } else {
                count
            };
            assert_eq!(tally.total.count, expected, "{name}");
        }
    }
}

#[test]
fn a_column_family_is_told_of_once_a_call_on_it_has_returned() {
    let mut series = series(true);
    series.attached(at(0));
    let unwritten = Reading {
        slots: vec![SlotReading::default()],
        families: vec![FamilyReading::default()],
        ..Reading::default()
    };
    series.observe(0, &unwritten, at(1));
    assert!(series.families.is_empty());
}

proptest! {
    #[test]
    fn scaling_keeps_the_number_of_calls_and_where_they_are(
        buckets in prop::collection::vec((0u32..600, 1u64..10_000), 1..50),
        weight in 1.0f64..1_000.0,
    ) {
        let histogram: Histogram = buckets.into_iter().collect();
        let scaled = scale_histogram(&histogram, weight, &mut 0.0);
        let exact = histogram.count() as f64 * weight;
        prop_assert!((scaled.count() as f64 - exact).abs() <= 0.5);
        for quantile in [0.5, 0.9, 0.99] {
            let (before, after) = (histogram.quantile(quantile).unwrap(), scaled.quantile(quantile).unwrap());
            // The rank that a quantile asks for may fall on the boundary of two buckets.
            let near = |a: u64, b: u64| histogram.count_below(a.max(b)) as i64 - histogram.count_below(a.min(b)) as i64;
            prop_assert!(before == after || near(before, after) <= 1 + histogram.iter().map(|(_, n)| n).max().unwrap() as i64);
        }
    }

    #[test]
    fn slices_of_a_steady_load_add_up_to_all_of_it(
        slices in prop::collection::vec((10u64..500, 100u64..3_000), 1..30),
    ) {
        let mut series = series(false);
        series.attached(at(0));
        series.pause(at(0), 1.0);
        let (mut now, mut counted) = (0, 0);
        for (open, closed) in slices {
            now += closed;
            series.resume(at(now));
            now += open;
            counted += open * 3;
            series.observe(0, &gets(counted), at(now));
            series.pause(at(now), 1.0);
        }
        let (estimate, exact) = (series.all.total.count as f64, (now * 3) as f64);
        prop_assert!((estimate - exact).abs() <= 30.0, "{estimate} for {exact}");
    }
}
