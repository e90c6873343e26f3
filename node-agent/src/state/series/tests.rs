use ckb_probe_crds::{
    Histogram, IntervalFigures,
    figures::Remainders,
    kinds::rocksdb::{Operation, RocksDbProbe},
};
use proptest::prelude::*;

use super::*;
use crate::{
    kernel::SlotReading,
    kinds::Instrumented,
    state::fixtures::{
        calls, calls_of, count, durations, figures, opened, peer, peers, raw, whole,
    },
};

mod rows;

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn subscription(probe: &Instrumented) -> Subscription {
    opened(probe, 0).subscriptions.remove(0)
}

/// Of one operation, attached at 0.
fn series() -> Series {
    let subscription = subscription(&calls("storage", &[Operation::Get]));
    let mut series = Series::new(subscription.clone());
    series.attached(subscription, at(0));
    series
}

/// One that is measured in slices.
fn sliced() -> Series {
    let mut series = series();
    series.pause(at(0), 1.0);
    series
}

fn see(series: &mut Series, seen: SlotReading, now: Duration) -> bool {
    let probe = calls("storage", &[Operation::Get]);
    series.observe(&[whole(seen)], &*probe.instrument, now)
}

fn gets(count: u64) -> SlotReading {
    calls_of(count, 1_000)
}

fn all(series: &Series) -> &Accumulator {
    &series.rows["Get"].all
}

fn total(series: &Series) -> u64 {
    count(&all(series).total)
}

fn window(series: &Series) -> IntervalFigures {
    series.report().next().unwrap().window
}

#[test]
fn what_is_measured_all_the_time_is_counted_and_never_scaled() {
    let mut series = series();
    assert!(see(&mut series, gets(7), at(333)));
    assert!(!see(&mut series, gets(7), at(334)), "no more than before");
    assert_eq!(total(&series), 7);
    series.close_interval(at(1_000), false);
    let window = window(&series);
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (1_000, 1_000)
    );
    assert_eq!((window.samples, count(&window.figures)), (7, 7));
    assert_eq!(series.share(), Some(1.0));
}

#[test]
fn a_slice_stands_for_the_time_since_the_one_before() {
    let mut series = series();
    see(&mut series, gets(1_000), at(1_000));
    series.pause(at(1_000), 1.0);
    series.resume(at(1_900));
    see(&mut series, gets(1_100), at(2_000));
    series.pause(at(2_000), 1.0);
    // 1,000 in the first second; 100 in a tenth of the next one.
    assert_eq!(total(&series), 2_000);
    assert_eq!(durations(&all(&series).total).sum, 2_000_000);
    assert_eq!(durations(&all(&series).total).histogram.count(), 2_000);
    assert_eq!(all(&series).samples, 1_100);
    series.close_interval(at(2_500), true);
    let window = window(&series);
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (2_000, 1_100)
    );
}

#[test]
fn between_two_slices_it_was_like_the_one_for_half_of_the_time_and_then_like_the_other() {
    let mut series = sliced();
    series.resume(at(900));
    see(&mut series, gets(1_000), at(1_000));
    series.pause(at(1_000), 1.0);
    assert_eq!(total(&series), 10_000);
    // 10 in a millisecond until then, 1 in a millisecond now; of 2 s each stands for one.
    series.resume(at(3_000));
    see(&mut series, gets(1_100), at(3_100));
    series.pause(at(3_100), 1.0);
    assert_eq!(total(&series), 10_000 + 10_000 + 1_000 + 100);
    assert_eq!(all(&series).samples, 1_100);
    series.close_interval(at(3_100), true);
    let window = window(&series);
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (3_100, 200)
    );
    assert_eq!((window.samples, count(&window.figures)), (1_100, 21_100));
}

#[test]
fn a_call_that_is_told_of_stands_for_as_many_as_the_last_slices_say() {
    let mut series = series();
    assert_eq!(series.weight(), 1.0);
    see(&mut series, gets(1), at(100));
    assert_eq!(series.weight(), 1.0);
    let slice = |series: &mut Series, begins: u64, ends: u64| {
        series.resume(at(begins));
        series.pause(at(ends), 1.0);
    };
    series.pause(at(200), 1.0);
    assert_eq!(series.weight(), 1.0, "what was seen until then was all");
    slice(&mut series, 1_180, 1_200);
    assert_eq!(series.weight(), 50.0);
    // The newest weigh most: from now on it is looked twice as often.
    for turn in 0..40 {
        slice(&mut series, 1_680 + 500 * turn, 1_700 + 500 * turn);
    }
    assert!((series.weight() - 25.0).abs() < 0.2, "{}", series.weight());
    // And where all is recorded again, each is one.
    series.resume(at(30_000));
    see(&mut series, gets(2), at(30_500));
    series.close_interval(at(31_000), false);
    see(&mut series, gets(3), at(31_500));
    assert_eq!(series.weight(), 1.0);
}

#[test]
fn a_slice_of_a_target_that_was_slowed_down_stands_for_less_time_than_it_lasted() {
    let mut series = sliced();
    series.resume(at(900));
    see(&mut series, gets(80), at(1_000));
    series.pause(at(1_000), 0.8);
    // 80 in the slice, and 1 in a millisecond before it.
    assert_eq!(total(&series), 980);
    series.end(at(2_000));
    assert_eq!(total(&series), 1_980);
}

#[test]
fn what_is_rarely_seen_in_a_slice_adds_up_all_the_same() {
    let mut series = sliced();
    // One call in each slice of 100 ms, which stands for 190.
    for slice in 1..=100 {
        series.resume(at(190 * slice - 100));
        see(&mut series, gets(slice), at(190 * slice));
        series.pause(at(190 * slice), 1.0);
    }
    assert_eq!(all(&series).samples, 100);
    let count = total(&series);
    assert!((189..=191).contains(&count), "{count}");
}

#[test]
fn an_interval_has_the_longest_of_the_calls_that_stand_for_it() {
    let mut series = sliced();
    series.resume(at(900));
    see(&mut series, calls_of(10, 50_000_000), at(1_000));
    series.pause(at(1_000), 1.0);
    series.close_interval(at(1_000), true);
    // Nothing happens in the next slice; half of the way to it still stands for the one before.
    series.resume(at(1_900));
    let no_more = SlotReading {
        max_ns: 0,
        ..calls_of(10, 50_000_000)
    };
    see(&mut series, no_more, at(2_000));
    series.pause(at(2_000), 1.0);
    series.close_interval(at(2_000), true);
    let window = window(&series);
    assert_eq!((count(&window.figures), window.samples), (45, 0));
    assert_eq!(window.figures.maxima["duration"], 50_000_000);
}

#[test]
fn a_process_that_ends_as_a_slice_begins_did_what_it_did_before() {
    let mut series = sliced();
    series.resume(at(900));
    see(&mut series, gets(10), at(1_000));
    series.pause(at(1_000), 1.0);
    series.resume(at(1_995));
    series.end(at(2_000));
    assert_eq!(total(&series), 200);
}

#[test]
fn an_interval_without_a_slice_knows_nothing() {
    let mut series = sliced();
    series.close_interval(at(10_000), true);
    let window = window(&series);
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (10_000, 0)
    );
    assert_eq!(series.share(), Some(0.0));
}

/// Everything is attached for a first look of 50 ms, and what is far too busy not again.
#[test]
fn an_interval_of_which_only_the_beginning_was_seen_is_no_complete_one() {
    let mut series = series();
    see(&mut series, gets(5_000), at(50));
    series.pause(at(50), 1.0);
    series.close_interval(at(1_000), true);
    let window = window(&series);
    assert_eq!((count(&window.figures), window.samples), (5_000, 5_000));
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (50, 2),
        "as many calls in 50 ms, and 5 % of the interval"
    );
    let share = series.share().unwrap();
    assert!((share - 0.05).abs() < 1e-9, "{share}");
    series.close_interval(at(11_000), true);
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
    see(&mut series, gets(50), at(10_000));
    series.pause(at(10_000), 1.0);
    assert_eq!(total(&series), 0, "5 ms of 10 s");
    series.resume(at(19_905));
    see(&mut series, gets(500), at(20_000));
    series.pause(at(20_000), 1.0);
    assert_eq!(total(&series), 100_000, "100 ms of 20 s, all in all");
}

#[test]
fn what_comes_back_from_slices_is_scaled_once_and_counted_from_then_on() {
    let mut series = sliced();
    series.resume(at(900));
    see(&mut series, gets(10), at(1_000));
    assert_eq!(
        total(&series),
        0,
        "the rest of the interval may still count"
    );
    series.close_interval(at(1_000), false);
    assert_eq!(total(&series), 100);
    see(&mut series, gets(11), at(1_100));
    assert_eq!(total(&series), 101);
}

#[test]
fn a_new_process_begins_at_zero_and_adds_to_the_old_one() {
    let mut series = series();
    see(&mut series, gets(5), at(10));
    series.end(at(20));
    series.attached(series.subscription.clone(), at(100));
    see(&mut series, gets(3), at(110));
    assert_eq!(total(&series), 8);
}

#[test]
fn the_time_after_the_last_slice_is_taken_to_have_been_like_it() {
    let mut series = sliced();
    series.resume(at(900));
    see(&mut series, gets(10), at(1_000));
    series.pause(at(1_000), 1.0);
    assert_eq!(total(&series), 100);
    series.end(at(1_500));
    assert_eq!((total(&series), all(&series).samples), (150, 10));
    series.end(at(3_600_000));
    assert_eq!(total(&series), 150, "once");
}

#[test]
fn before_anything_was_read_its_row_is_there_with_nothing_in_it() {
    let series = series();
    let rows: Vec<_> = series.report().collect();
    let [row] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!(
        (row.key.as_str(), &row.total),
        ("Get", &figures(SlotReading::default()))
    );
    assert_eq!(row.window.milliseconds, 0);
    assert_eq!(row.window.figures, row.total);
}

#[test]
fn without_a_process_nothing_is_known_of_an_interval() {
    let mut series = series();
    see(&mut series, gets(5), at(1_000));
    series.end(at(4_000));
    series.close_interval(at(10_000), false);
    let last = window(&series);
    assert_eq!(
        (last.milliseconds, last.recorded_milliseconds),
        (4_000, 4_000)
    );
    series.close_interval(at(20_000), false);
    let none = window(&series);
    assert_eq!((none.milliseconds, none.recorded_milliseconds), (10_000, 0));
    assert_eq!(total(&series), 5);
}

#[test]
fn after_a_moment_that_nobody_saw_it_goes_on_where_it_was() {
    let mut series = series();
    see(&mut series, gets(1_000), at(1_000));
    series.pause(at(1_000), 1.0);
    series.continued(series.subscription.clone(), at(1_010));
    // Counted from zero.
    see(&mut series, gets(990), at(2_000));
    series.close_interval(at(2_000), false);
    assert_eq!(all(&series).samples, 1_990);
    assert_eq!(total(&series), 2_000);
    let first = window(&series);
    assert_eq!(
        (first.milliseconds, first.recorded_milliseconds),
        (2_000, 1_990)
    );
    assert_eq!(first.samples, 1_990);
    see(&mut series, gets(1_990), at(3_000));
    series.close_interval(at(3_000), false);
    assert_eq!((total(&series), series.share()), (3_000, Some(1.0)));
}

#[test]
fn the_longest_call_of_an_interval_is_not_that_of_the_next_one() {
    let mut series = series();
    see(&mut series, calls_of(1, 50_000_000), at(500));
    series.pause(at(500), 1.0);
    series.continued(series.subscription.clone(), at(510));
    see(&mut series, calls_of(1, 40_000_000), at(1_000));
    series.close_interval(at(1_000), false);
    assert_eq!(window(&series).figures.maxima["duration"], 50_000_000);
    let no_more = SlotReading {
        max_ns: 0,
        ..calls_of(1, 40_000_000)
    };
    see(&mut series, no_more, at(2_000));
    series.close_interval(at(2_000), false);
    assert_eq!(window(&series).figures.maxima["duration"], 0);
}

#[test]
fn a_slice_too_short_to_be_entered_is_not_lost_where_it_goes_on() {
    let mut series = sliced();
    series.resume(at(995));
    see(&mut series, gets(50), at(1_000));
    series.pause(at(1_000), 1.0);
    series.continued(series.subscription.clone(), at(1_100));
    see(&mut series, gets(1_000), at(1_200));
    series.close_interval(at(1_200), false);
    assert_eq!(all(&series).samples, 1_050);
}

proptest! {
    #[test]
    fn scaling_keeps_the_number_of_calls_and_where_they_are(
        buckets in prop::collection::vec((0u32..600, 1u64..10_000), 1..50),
        weight in 1.0f64..1_000.0,
    ) {
        let histogram: Histogram = buckets.into_iter().collect();
        let seen = figures(SlotReading { histogram: histogram.clone(), ..SlotReading::default() });
        let scaled = seen.scale(weight, &mut Remainders::default());
        let scaled = &durations(&scaled).histogram;
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
        let mut series = sliced();
        let (mut now, mut counted) = (0, 0);
        for (open, closed) in slices {
            now += closed;
            series.resume(at(now));
            now += open;
            counted += open * 3;
            see(&mut series, gets(counted), at(now));
            series.pause(at(now), 1.0);
        }
        let (estimate, exact) = (total(&series) as f64, (now * 3) as f64);
        prop_assert!((estimate - exact).abs() <= 30.0, "{estimate} for {exact}");
    }
}
