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
    series.pause(at(0));
    series
}

/// The same, of which there were enough slices to tell what they stand for.
fn well_known() -> Series {
    let mut series = sliced();
    series.slices = FEW_SLICES;
    series
}

/// A tenth of a second of each second.
const TENTH: SliceShape = SliceShape {
    open: 0.1,
    cell: 1.0,
    long: false,
};

/// A slice of so many milliseconds that ends at a time, in a cell that began where the last one ended and ends now, in which all
/// that was counted is as given.
fn cell(
    series: &mut Series,
    cell: std::ops::Range<u64>,
    slice: std::ops::Range<u64>,
    seen: SlotReading,
) {
    let seconds = |range: &std::ops::Range<u64>| (range.end - range.start) as f64 / 1e3;
    let shape = SliceShape {
        open: seconds(&slice),
        cell: seconds(&cell),
        long: false,
    };
    series.begin_cell(shape, at(cell.start), at(cell.start));
    series.begin_slice(at(slice.start), at(slice.start), Passed::default());
    see(series, seen, at(slice.end));
    series.end_slice(at(slice.end), at(slice.end), 0.0);
    series.end_cell(at(cell.end), at(cell.end));
}

fn see(series: &mut Series, seen: SlotReading, now: Duration) -> bool {
    let probe = calls("storage", &[Operation::Get]);
    series.pass(now);
    series.observe(&[whole(seen)], &*probe.instrument, now)
}

/// The same, while the process's own time is as it was told.
fn see_at(series: &mut Series, seen: SlotReading, now: u64) -> bool {
    let probe = calls("storage", &[Operation::Get]);
    series.observe(&[whole(seen)], &*probe.instrument, at(now))
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
    series.close_interval(at(1_000));
    let window = window(&series);
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (1_000, 1_000)
    );
    assert_eq!((window.samples, count(&window.figures)), (7, 7));
    assert_eq!(series.share(), Some(1.0));
}

#[test]
fn a_slice_stands_for_its_cell() {
    let mut series = series();
    see(&mut series, gets(1_000), at(1_000));
    series.pause(at(1_000));
    series.slices = FEW_SLICES;
    // 1,000 in the first second; 100 in a tenth of the next one.
    cell(&mut series, 1_000..2_000, 1_300..1_400, gets(1_100));
    assert_eq!(total(&series), 2_000);
    assert_eq!(durations(&all(&series).total).sum, 2_000_000);
    assert_eq!(durations(&all(&series).total).histogram.count(), 2_000);
    assert_eq!(all(&series).samples, 1_100);
}

#[test]
fn what_was_counted_before_the_slice_began_is_nobody_s() {
    let mut series = well_known();
    series.begin_cell(TENTH, at(0), at(0));
    see(&mut series, gets(70), at(300));
    series.begin_slice(at(300), at(300), Passed::default());
    see(&mut series, gets(80), at(400));
    series.end_slice(at(400), at(400), 0.0);
    // And what comes after it is not its.
    see(&mut series, gets(90), at(450));
    series.end_cell(at(1_000), at(1_000));
    assert_eq!((total(&series), all(&series).samples), (100, 10));
}

#[test]
fn a_call_that_is_told_of_stands_for_as_many_as_its_slice_does() {
    let mut series = series();
    see(&mut series, gets(1), at(100));
    assert_eq!(series.weight(), 1.0);
    series.pause(at(200));
    let shape = SliceShape {
        open: 0.02,
        cell: 1.0,
        long: false,
    };
    series.begin_cell(shape, at(200), at(200));
    assert_eq!(series.weight(), 50.0);
    series.end_cell(at(1_200), at(1_200));
    series.resume(at(1_200));
    assert_eq!(series.weight(), 1.0);
}

#[test]
fn a_cell_that_ends_before_its_slice_says_nothing_and_one_that_ends_after_it_all() {
    let mut series = well_known();
    series.begin_cell(TENTH, at(0), at(0));
    series.end_cell(at(500), at(500));
    assert_eq!(total(&series), 0);
    series.begin_cell(TENTH, at(500), at(500));
    series.begin_slice(at(600), at(600), Passed::default());
    see(&mut series, gets(10), at(700));
    series.end_slice(at(700), at(700), 0.0);
    series.end(at(800));
    assert_eq!(
        total(&series),
        100,
        "as much as if it had gone on: half of such cells have no slice"
    );
    series.end(at(3_600_000));
    assert_eq!(total(&series), 100, "once");
}

/// Nobody said that the cell is over: of what is known to have passed of it nothing was seen, and that is in the error.
#[test]
fn a_cell_that_nobody_ended_is_as_long_as_the_process_went_on() {
    let mut series = sliced();
    cells(&mut series, 0..8);
    let (before, error_before) = (total(&series), error(&series));
    series.begin_cell(TENTH, at(8_000), at(8_000));
    series.pass(at(8_500));
    series.end(at(8_500));
    assert_eq!(total(&series), before);
    // Half of a cell, of which there was a slice or there was none.
    let off = 500.0 * 0.5 / before as f64;
    assert!((error(&series) - error_before.hypot(off)).abs() < 1e-3);
}

/// A slice in two pieces stands for its cell as one in one does, and one that is cut off in the second says nothing of how long slices last.
#[test]
fn a_slice_may_come_in_pieces() {
    let mut series = well_known();
    let before = (total(&series), series.balance);
    series.begin_cell(TENTH, at(10_000), at(10_000));
    for (piece, count) in [(10_000..10_040, 40), (10_900..10_960, 100)] {
        series.begin_slice(at(piece.start), at(piece.start), Passed::default());
        see(&mut series, gets(count), at(piece.end));
        series.end_slice(at(piece.end), at(piece.end), 0.0);
    }
    series.end_cell(at(11_000), at(11_000));
    assert_eq!(total(&series) - before.0, 1_000);
    assert_ne!(series.balance, before.1);
    let whole = series.balance;
    series.begin_cell(TENTH, at(11_000), at(11_000));
    series.begin_slice(at(11_000), at(11_000), Passed::default());
    series.end_slice(at(11_040), at(11_040), 0.0);
    series.begin_slice(at(11_900), at(11_900), Passed::default());
    series.end_cell(at(11_910), at(11_910));
    assert_eq!(series.balance, whole);
}

#[test]
fn slices_that_differ_have_an_error_and_slices_that_do_not_have_none() {
    let counted = |each: fn(u64) -> u64| {
        let mut series = sliced();
        let mut counted = 0;
        for number in 0..20 {
            counted += each(number);
            let begin = number * 1_000;
            cell(
                &mut series,
                begin..begin + 1_000,
                begin + 500..begin + 600,
                gets(counted),
            );
        }
        series.close_interval(at(20_000));
        let window = window(&series);
        let error = window.figures.relative_error("duration").unwrap();
        (count(&window.figures), error)
    };
    let (steady, error) = counted(|_| 50);
    assert_eq!(steady, 10_000);
    // Nothing was known of them before four pairs of them were seen: of each of four, 475 of 500.
    assert!(error < 0.1, "{error}");
    let (uneven, error) = counted(|number| if number % 2 == 0 { 25 } else { 75 });
    assert_eq!(uneven, 10_000);
    // A slice deviates by 25 of 50, times the square root of two: a pair differs by 50. Twenty of them, a tenth of the time.
    assert!((0.09..0.2).contains(&error), "{error}");
}

/// Two intervals of ten slices each, of which probes are believed to take a fifth besides, and nothing shows whether that is so.
#[test]
fn what_all_slices_may_be_off_by_alike_does_not_become_less_with_their_number() {
    let variances = |probing: f64| {
        let mut series = sliced();
        for number in 0..20 {
            let begin = number * 1_000;
            series.begin_cell(TENTH, at(begin), at(begin));
            series.begin_slice(at(begin + 500), at(begin + 500), Passed::default());
            see(&mut series, gets(50 * (number + 1)), at(begin + 600));
            series.end_slice(at(begin + 600), at(begin + 600), probing);
            series.end_cell(at(begin + 1_000), at(begin + 1_000));
            if number % 10 == 9 {
                series.close_interval(at(begin + 1_000));
            }
        }
        let of = |figures: &Figures| {
            let variance = figures.variances.get("duration").copied();
            variance.unwrap_or_default().deviation()
        };
        let rows: Vec<_> = series.report().collect();
        let window = window(&series).figures;
        [of(&rows[0].total).powi(2), of(&window).powi(2)]
    };
    let [none, some] = [0.0, 0.2].map(variances);
    // A quarter of a fifth, of what was not seen: 9 of 10.
    for (index, calls) in [(0, 10_000.0), (1, 5_000.0)] {
        let more = (some[index] - none[index]).sqrt() / calls;
        assert!((more / 0.045 - 1.0).abs() < 0.01, "{more}");
    }
}

#[test]
fn few_slices_are_told_as_what_they_saw_until_there_are_more() {
    let mut series = sliced();
    for number in 0..5 {
        let begin = number * 1_000;
        cell(
            &mut series,
            begin..begin + 1_000,
            begin + 500..begin + 600,
            gets(50 * (number + 1)),
        );
    }
    series.close_interval(at(5_000));
    assert_eq!(window(&series).recorded_milliseconds, 0);
    assert_eq!(total(&series), 250, "what was seen");
    cell(&mut series, 5_000..6_000, 5_500..5_600, gets(300));
    series.close_interval(at(6_000));
    let window = window(&series);
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (1_000, 100)
    );
    assert_eq!(count(&window.figures), 500);
    assert_eq!(total(&series), 3_000);
}

/// How far off what is told of all the time may be.
fn error(series: &Series) -> f64 {
    let rows: Vec<_> = series.report().collect();
    rows[0].total.relative_error("duration").unwrap()
}

/// So many cells of a second with a slice each, from the beginning on.
fn cells(series: &mut Series, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let begin = number * 1_000;
        let seen = gets(50 * (number + 1));
        cell(series, begin..begin + 1_000, begin + 500..begin + 600, seen);
    }
}

#[test]
fn what_rests_on_few_slices_is_the_least_that_there_was_until_there_are_more() {
    let mut series = sliced();
    assert_eq!(
        series
            .report()
            .next()
            .unwrap()
            .total
            .relative_error("duration"),
        None
    );
    cells(&mut series, 0..5);
    assert_eq!(error(&series), f64::INFINITY);
    cells(&mut series, 5..6);
    assert!(error(&series) < 1.0, "{}", error(&series));
}

#[test]
fn what_ended_with_few_slices_stays_the_least_that_there_was() {
    let mut series = sliced();
    cells(&mut series, 0..5);
    series.end(at(6_000));
    assert_eq!(error(&series), f64::INFINITY);
    let subscription = subscription(&calls("storage", &[Operation::Get]));
    series.attached(subscription, at(7_000));
    see(&mut series, gets(10), at(8_000));
    assert_eq!((total(&series), error(&series)), (260, f64::INFINITY));
}

/// It cost too much even for slices, and its process ended before anybody looked again.
#[test]
fn what_was_off_for_more_than_a_moment_as_its_process_ended_is_the_least_that_there_was() {
    for (lasted, left_out) in [(900, false), (1_100, true)] {
        let mut series = series();
        see(&mut series, gets(10), at(1_000));
        series.pause(at(1_000));
        series.end(at(1_000 + lasted));
        assert_eq!(total(&series), 10);
        assert_eq!(error(&series).is_infinite(), left_out, "{lasted}");
    }
}

#[test]
fn what_nobody_watched_for_more_than_a_moment_is_left_out_and_said_to_be() {
    for (lasted, left_out) in [(900, false), (1_100, true)] {
        let mut series = series();
        see(&mut series, gets(10), at(1_000));
        series.pause(at(1_000));
        series.resume(at(1_000 + lasted));
        assert_eq!(error(&series).is_infinite(), left_out, "{lasted}");
        let mut series = self::series();
        see(&mut series, gets(10), at(1_000));
        series.suspend(at(1_000));
        let subscription = subscription(&calls("storage", &[Operation::Get]));
        series.continued(subscription, at(1_000 + lasted));
        assert_eq!(error(&series).is_infinite(), left_out, "{lasted}");
    }
}

#[test]
fn a_share_is_of_the_time_that_the_process_used() {
    let mut series = sliced();
    // Ten seconds on the wall, of which it worked for one; of that, 0.25 s were watched.
    let shape = SliceShape {
        open: 0.25,
        cell: 1.0,
        long: false,
    };
    for number in 0..6 {
        let (wall, time) = (number * 10_000, number * 1_000);
        series.begin_cell(shape, at(wall), at(time));
        series.begin_slice(at(time + 100), at(time + 100), Passed::default());
        see_at(&mut series, gets((number + 1) * 100), wall + 9_000);
        series.end_slice(at(time + 350), at(time + 350), 0.0);
        series.end_cell(at(wall + 10_000), at(time + 1_000));
    }
    series.close_interval(at(60_000));
    assert_eq!(series.share(), Some(0.25));
    let window = window(&series);
    assert_eq!(
        (count(&window.figures), window.milliseconds),
        (2_400, 60_000)
    );
}

/// Probes cost more than they are believed to, so a slice of 100 ms of the process's own time is over after 91.
#[test]
fn a_process_whose_time_passes_faster_in_slices_than_before_did_as_much_more() {
    let shape = SliceShape {
        open: 0.1,
        cell: 1.0,
        long: false,
    };
    let told = |before: Passed| {
        let mut series = sliced();
        for number in 0..40 {
            let began = number * 1_000;
            series.begin_cell(shape, at(began), at(began));
            series.begin_slice(at(began + 500), at(began + 500), before);
            see(&mut series, gets((number + 1) * 100), at(began + 591));
            series.end_slice(at(began + 591), at(began + 600), 0.0);
            series.end_cell(at(began + 1_000), at(began + 1_000));
        }
        series.close_interval(at(40_000));
        count(&window(&series).figures)
    };
    let even = Passed {
        own: 0.4,
        wall: 0.4,
    };
    assert_eq!(told(Passed::default()), 40_000);
    let more = told(even);
    assert!((42_500..44_000).contains(&more), "{more}");
}

#[test]
fn an_interval_without_a_slice_knows_nothing() {
    let mut series = sliced();
    series.close_interval(at(10_000));
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
    series.pause(at(50));
    series.pass(at(1_000));
    series.close_interval(at(1_000));
    let window = window(&series);
    assert_eq!((count(&window.figures), window.samples), (5_000, 5_000));
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (50, 2),
        "as many calls in 50 ms, and 5 % of the interval"
    );
    let share = series.share().unwrap();
    assert!((share - 0.05).abs() < 1e-9, "{share}");
    series.close_interval(at(11_000));
    assert_eq!(series.share(), Some(0.0));
}

#[test]
fn what_is_not_all_of_the_time_never_looks_like_it() {
    let mut span = Span::complete(Duration::from_micros(10_000_900), at(1));
    assert_eq!(span.milliseconds(), (10_000, 10_000));
    span.leave_out((Duration::from_nanos(1), Duration::ZERO));
    assert_eq!(span.milliseconds(), (10_000, 9_999));
    let mut span = Span::complete(at(10_000), Duration::ZERO);
    span.add_hole(at(0));
    assert_eq!(span.milliseconds(), (10_000, 10_000));
    span.add_hole(Duration::from_nanos(1));
    assert_eq!(span.milliseconds(), (10_000, 9_999));
}

/// Attached all of the time while the process did nothing for 8 of 10 s, and of what it did then a tenth was seen. By the clock on the
/// wall that would be 82 %.
#[test]
fn an_idle_stretch_in_which_all_was_attached_does_not_count_as_seen() {
    let mut series = series();
    // As much passes of the time of a process that does nothing.
    series.pass(at(8));
    assert!(!see_at(&mut series, gets(0), 8_000));
    series.pause(at(8_000));
    for number in 0..20 {
        let (wall, time) = (8_000 + number * 100, 8 + number * 100);
        let shape = SliceShape {
            open: 0.01,
            cell: 0.1,
            long: false,
        };
        series.begin_cell(shape, at(wall), at(time));
        series.begin_slice(at(wall + 50), at(time + 50), Passed::default());
        see_at(&mut series, gets((number + 1) * 10), wall + 60);
        series.end_slice(at(wall + 60), at(time + 60), 0.0);
        series.pass(at(time + 100));
        series.end_cell(at(wall + 100), at(time + 100));
    }
    series.close_interval(at(10_000));
    let share = (8.0 + 200.0) / (8.0 + 2_000.0);
    assert!((series.share().unwrap() - share).abs() < 1e-9);
    let window = window(&series);
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (10_000, 1_035)
    );
    assert_eq!(count(&window.figures), 2_000);
    // And one in which it is not measured at all, while it does nothing, takes next to nothing off.
    let mut series = self::series();
    series.pass(at(1_000));
    see_at(&mut series, gets(7), 1_000);
    series.pause(at(1_000));
    series.pass(at(1_009));
    series.resume(at(10_000));
    series.close_interval(at(10_000));
    let share = series.share().unwrap();
    assert!((share - 1_000.0 / 1_009.0).abs() < 1e-9, "{share}");
}

/// Of a hole nobody knows how much the process used in it: as much as in the rest.
#[test]
fn a_hole_is_a_part_of_the_interval_by_the_wall() {
    let mut series = series();
    series.pass(at(5));
    see_at(&mut series, gets(7), 5_000);
    series.suspend(at(5_000));
    series.continued(series.subscription.clone(), at(10_000));
    series.close_interval(at(10_000));
    assert_eq!(series.share(), Some(0.5));
    let window = window(&series);
    assert_eq!(
        (window.milliseconds, window.recorded_milliseconds),
        (10_000, 5_000)
    );
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
    series.close_interval(at(10_000));
    let last = window(&series);
    assert_eq!(
        (last.milliseconds, last.recorded_milliseconds),
        (4_000, 4_000)
    );
    series.close_interval(at(20_000));
    let none = window(&series);
    assert_eq!((none.milliseconds, none.recorded_milliseconds), (10_000, 0));
    assert_eq!(total(&series), 5);
}

#[test]
fn after_a_moment_that_nobody_saw_it_goes_on_where_it_was() {
    let mut series = series();
    see(&mut series, gets(1_000), at(1_000));
    series.suspend(at(1_000));
    series.continued(series.subscription.clone(), at(1_010));
    // Counted from zero.
    see(&mut series, gets(990), at(2_000));
    series.close_interval(at(2_000));
    assert_eq!(all(&series).samples, 1_990);
    assert_eq!(total(&series), 1_990);
    let first = window(&series);
    assert_eq!(
        (first.milliseconds, first.recorded_milliseconds),
        (2_000, 1_990)
    );
    assert_eq!(first.samples, 1_990);
    see(&mut series, gets(1_990), at(3_000));
    series.close_interval(at(3_000));
    assert_eq!((total(&series), series.share()), (2_990, Some(1.0)));
}

#[test]
fn the_longest_call_of_an_interval_is_not_that_of_the_next_one() {
    let mut series = series();
    see(&mut series, calls_of(1, 50_000_000), at(500));
    series.suspend(at(500));
    series.continued(series.subscription.clone(), at(510));
    see(&mut series, calls_of(1, 40_000_000), at(1_000));
    series.close_interval(at(1_000));
    assert_eq!(window(&series).figures.maxima["duration"], 50_000_000);
    let no_more = SlotReading {
        max_ns: 0,
        ..calls_of(1, 40_000_000)
    };
    see(&mut series, no_more, at(2_000));
    series.close_interval(at(2_000));
    assert_eq!(window(&series).figures.maxima["duration"], 0);
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
        cells in prop::collection::vec((10u64..100, 0u64..1_000, 1_100u64..3_000), 1..30),
    ) {
        let mut series = well_known();
        let (mut now, mut counted) = (0, 0);
        for (open, place, length) in cells {
            counted += open * 3;
            let slice = now + place..now + place + open;
            cell(&mut series, now..now + length, slice, gets(counted));
            now += length;
        }
        let (estimate, exact) = (total(&series) as f64, (now * 3) as f64);
        prop_assert!((estimate - exact).abs() <= 30.0, "{estimate} for {exact}");
    }
}
