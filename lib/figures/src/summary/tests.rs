use proptest::prelude::*;

use super::*;
use crate::{Distribution, Histogram, Variance, histogram::BUCKETS};

const CALLS: &str = "calls";
const BYTES: &str = "bytes";
const OPEN: &str = "open";

/// One report: what there was in all, and the last interval.
#[derive(Clone, Debug)]
struct Report {
    total: Figures,
    window: IntervalFigures,
}

impl Report {
    fn summary(&self, live: bool) -> Summary {
        Summary::of(&self.total, &self.window, live)
    }

    /// The same calls, made of slices that differ so much; in all there were four such intervals.
    fn varied(mut self, variance: f64) -> Self {
        let figures = &mut self.window.figures;
        figures.variances = [(CALLS.into(), Variance::new(variance))].into();
        self.total.variances = [(CALLS.into(), Variance::new(variance * 4.0))].into();
        self
    }
}

fn calls(histogram: Histogram, unmeasured: u64, longest: u64, bytes: u64) -> Figures {
    let values = Distribution {
        histogram,
        unmeasured,
        sum: 0,
    };
    Figures {
        sums: [(BYTES.into(), bytes)].into(),
        maxima: [(CALLS.into(), longest)].into(),
        levels: [(OPEN.into(), 5)].into(),
        distributions: [(CALLS.into(), values)].into(),
        variances: BTreeMap::new(),
    }
}

/// So many calls in a second, of which so many milliseconds were recorded.
fn recorded(histogram: Histogram, longest: u64, recorded_milliseconds: u64) -> Report {
    let count = histogram.count();
    let figures = calls(histogram, 0, longest, count * 32);
    Report {
        total: figures.clone(),
        window: IntervalFigures {
            milliseconds: 1000,
            recorded_milliseconds,
            samples: count,
            figures,
        },
    }
}

/// Whole numbers in windows of a second, so that sums are exact.
fn tame() -> impl Strategy<Value = Report> {
    let buckets = prop::collection::vec((0..BUCKETS, 1..1000_u64), 0..6);
    let varied = prop::option::of(1..1_000_000_000_u64);
    (buckets, 0..1_000_000_u64, 0..=1000_u64, varied).prop_map(|(buckets, longest, ms, varied)| {
        let report = recorded(buckets.into_iter().collect(), longest, ms);
        match varied {
            // What was not seen at all does not differ.
            Some(variance) if report.window.samples > 0 => report.varied(variance as f64),
            _ => report,
        }
    })
}

/// What anyone with the right to may have written.
fn wild() -> impl Strategy<Value = Report> {
    let buckets = prop::collection::vec((0..BUCKETS + 9, any::<u64>()), 0..4);
    (buckets, any::<(u64, u64, u64, u64)>()).prop_map(
        |(buckets, (longest, unmeasured, millis, bytes))| {
            let figures = calls(buckets.into_iter().collect(), unmeasured, longest, bytes);
            Report {
                total: figures.clone(),
                window: IntervalFigures {
                    milliseconds: millis % 3,
                    recorded_milliseconds: millis % 5,
                    samples: bytes,
                    figures,
                },
            }
        },
    )
}

fn merged<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Summary {
    let mut sum = Summary::default();
    for report in reports {
        sum.merge(&report.summary(true));
    }
    sum
}

#[test]
fn what_is_merged_with_one_that_was_not_seen_is_the_least_that_there_was() {
    let twelve = |milliseconds| recorded([(40, 12)].into_iter().collect(), 9, milliseconds);
    let none = |milliseconds| recorded(Histogram::default(), 0, milliseconds);
    let rate = Value::Rate(CALLS);
    for unseen in [none(0), none(100)] {
        assert!(unseen.summary(true).is_unseen(CALLS));
        assert_eq!(unseen.summary(true).value(rate), None);
        for all in [
            merged([&twelve(1000), &unseen]),
            merged([&unseen, &twelve(1000)]),
        ] {
            assert_eq!(all.value(rate), Some(12.0));
            assert_eq!(all.error(rate), Some(f64::INFINITY));
            assert_eq!(all.error(Value::Recent(CALLS)), Some(f64::INFINITY));
            assert!(!all.is_unseen(CALLS));
            // How many there were in all is told by totals.
            assert_eq!(all.error(Value::Total(CALLS)), Some(0.0));
        }
        assert!(merged([&unseen, &unseen]).is_unseen(CALLS));
    }
    // What was watched all of the time, and what was sampled and seen, hides nothing.
    assert_eq!(merged([&twelve(1000), &none(1000)]).error(rate), Some(0.0));
    assert_eq!(merged([&twelve(100), &twelve(1000)]).error(rate), Some(0.0));
    // Of a target whose first interval has not ended there is nothing to see yet.
    let mut new = none(0);
    new.window.milliseconds = 0;
    assert_eq!(merged([&twelve(1000), &new]).error(rate), Some(0.0));
}

proptest! {
    #[test]
    fn merging_is_associative_and_commutative(a in tame(), b in tame(), c in tame()) {
        let left = merged([&a, &b, &c]);
        let mut right = a.summary(true);
        right.merge(&merged([&b, &c]));
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(&left, &merged([&c, &a, &b]));
    }

    #[test]
    fn adding_a_report_is_merging_it(
        reports in prop::collection::vec((prop_oneof![tame(), wild()], any::<bool>()), 0..5),
    ) {
        let (mut added, mut merged) = (Summary::default(), Summary::default());
        for (report, live) in &reports {
            added.add(&report.total, &report.window, *live);
            merged.merge(&report.summary(*live));
        }
        prop_assert_eq!(added, merged);
    }

    #[test]
    fn an_error_is_the_same_in_whatever_order_reports_are_merged(
        reports in prop::collection::vec(tame(), 0..6),
        turned in 0..6_usize,
    ) {
        let mut others = reports.clone();
        others.rotate_left(turned.min(reports.len()));
        others.reverse();
        let (half, rest) = reports.split_at(reports.len() / 2);
        let mut halves = merged(half);
        halves.merge(&merged(rest));
        let errors = |of: &Summary| {
            [Value::Rate(CALLS), Value::Recent(CALLS), Value::Total(CALLS)].map(|value| of.error(value))
        };
        let expected = errors(&merged(&reports));
        prop_assert_eq!(expected, errors(&merged(&others)));
        prop_assert_eq!(expected, errors(&halves));
        // No less is known of many than of the one that is known worst.
        let each = reports.iter().filter_map(|report| report.summary(true).error(Value::Total(CALLS)));
        if let (Some(error), Some(worst)) = (expected[2], each.max_by(f64::total_cmp)) {
            prop_assert!(error <= worst * (1.0 + 1e-9), "{} {}", error, worst);
        }
    }

    #[test]
    fn nothing_is_told_as_none_unless_it_was_watched_all_of_the_time(
        reports in prop::collection::vec(prop_oneof![tame(), wild()], 0..4),
    ) {
        let sum = merged(&reports);
        for measure in [CALLS, BYTES] {
            for value in [Value::Rate(measure), Value::Recent(measure)] {
                prop_assert!(sum.value(value) != Some(0.0) || !sum.share().is_sampled(), "{:?}", value);
            }
        }
    }

    #[test]
    fn what_is_scaled_counts_as_much_as_what_was_seen(report in tame(), share in 1..=1000_u64) {
        let [mut whole, mut sampled] = [report.clone(), report];
        whole.window.recorded_milliseconds = 1000;
        sampled.window.recorded_milliseconds = share;
        let [whole, sampled] = [whole, sampled].map(|report| report.summary(true));
        prop_assert_eq!(&whole.rates, &sampled.rates);
        prop_assert_eq!(&whole.recent, &sampled.recent);
        prop_assert_eq!(whole.share.is_sampled(), false);
        prop_assert_eq!(sampled.share.is_sampled(), share < 1000);
    }

    #[test]
    fn what_is_unknown_changes_no_rate(reports in prop::collection::vec(tame(), 1..4), unknown in tame()) {
        let mut unknown = unknown;
        unknown.window.recorded_milliseconds = 0;
        let before = merged(&reports);
        let mut after = before.clone();
        after.merge(&unknown.summary(true));
        prop_assert_eq!(&after.rates, &before.rates);
        prop_assert_eq!(&after.recent, &before.recent);
        prop_assert!(after.share.sparseness(&before.share).is_le());
    }

    #[test]
    fn a_share_of_many_lies_between_those_of_each(reports in prop::collection::vec(wild(), 1..5)) {
        let each: Vec<_> = reports.iter().filter_map(|r| Share::of(&r.window).of_an_interval()).collect();
        if let Some(share) = merged(&reports).share().of_an_interval() {
            let least = each.iter().copied().min_by(Share::sparseness).unwrap();
            let most = each.iter().copied().max_by(Share::sparseness).unwrap();
            prop_assert!(least.sparseness(&share).is_le() && share.sparseness(&most).is_le());
        }
    }

    #[test]
    fn quantiles_rise_and_stay_below_the_longest(reports in prop::collection::vec(wild(), 1..5)) {
        let sum = merged(&reports);
        let shown = [0.5, 0.9, 0.99].map(|quantile| sum.value(Value::Quantile(CALLS, quantile)));
        prop_assert!(shown.is_sorted(), "{:?}", shown);
        let longest = sum.value(Value::Maximum(CALLS));
        prop_assert!(shown[2] <= longest, "{:?} {:?}", shown, longest);
        prop_assert_eq!(shown[2].is_some(), longest.is_some());
    }
}

#[test]
fn every_value_is_what_it_says() {
    // Bucket 119 is 1.472 to 1.536 us.
    let one = recorded("119:60,40".parse().unwrap(), 1480, 1000);
    let summary = merged([&one, &one]);
    for (value, expected) in [
        (Value::Rate(CALLS), Some(200.0)),
        (Value::Rate(BYTES), Some(6400.0)),
        (Value::Rate(OPEN), None),
        (Value::Total(CALLS), Some(200.0)),
        (Value::Recent(BYTES), Some(6400.0)),
        (Value::Maximum(CALLS), Some(1480.0)),
        (Value::Maximum(BYTES), None),
        (Value::Level(OPEN), Some(10.0)),
        (Value::Level(CALLS), None),
        (Value::Quantile(CALLS, 0.5), Some(1480.0)),
        (Value::Quantile(BYTES, 0.5), None),
        (Value::Percent(CALLS, BYTES), Some(3.125)),
        (Value::Each(BYTES, CALLS), Some(32.0)),
        (Value::Each(BYTES, "none"), None),
        (Value::EachInAll(BYTES, CALLS), Some(32.0)),
        (Value::EachInAll("none", CALLS), None),
        (Value::Percent(CALLS, "none"), None),
        (Value::Percent("none", CALLS), None),
    ] {
        assert_eq!(summary.value(value), expected, "{value:?}");
    }
    assert_eq!(summary.samples(), 200);
    let distributions = [CALLS, BYTES].map(|measure| summary.is_distribution(measure));
    assert_eq!(distributions, [true, false]);
}

#[test]
fn of_a_target_that_is_not_attached_only_the_totals_are_known() {
    let summary = recorded("119:60".parse().unwrap(), 1480, 1000).summary(false);
    assert_eq!(summary.value(Value::Total(CALLS)), Some(60.0));
    for value in [
        Value::Rate(CALLS),
        Value::Recent(CALLS),
        Value::Maximum(CALLS),
        Value::Level(OPEN),
        Value::Quantile(CALLS, 0.5),
    ] {
        assert_eq!(summary.value(value), None, "{value:?}");
    }
    assert_eq!((summary.samples(), summary.share().percent()), (0, None));
}

#[test]
fn nothing_in_percent_of_nothing_is_not_known() {
    let idle = recorded(Histogram::default(), 0, 1000).summary(true);
    assert_eq!(idle.value(Value::Percent(BYTES, CALLS)), None);
    assert_eq!(idle.value(Value::Rate(CALLS)), Some(0.0), "seen to be none");
    assert_eq!(idle.value(Value::Maximum(CALLS)), None);
}

#[test]
fn counts_of_targets_add_and_so_do_their_variances() {
    let calls = |count| [(119, count)].into_iter().collect::<Histogram>();
    let one = recorded(calls(1000), 1480, 100).varied(900.0);
    let other = recorded(calls(3000), 1480, 100).varied(1600.0);
    let all = recorded(calls(1000), 1480, 1000);
    // 30 of 1,000, 40 of 3,000; of both, 50 of 4,000; and of a thousand more that were all seen, 50 of 5,000.
    for (reports, expected) in [
        (vec![&one], Some(0.03)),
        (vec![&one, &other], Some(0.0125)),
        (vec![&one, &other, &all], Some(0.01)),
        (vec![&all], Some(0.0)),
        (vec![], None),
    ] {
        let sum = merged(reports);
        assert_eq!(sum.error(Value::Rate(CALLS)), expected);
        assert_eq!(sum.error(Value::Recent(CALLS)), expected);
        assert_eq!(
            sum.error(Value::Total(CALLS)),
            expected.map(|error| error * 2.0)
        );
    }
    let sum = merged([&one]);
    assert_eq!(sum.error(Value::Quantile(CALLS, 0.99)), None);
    assert_eq!(sum.error(Value::Level(OPEN)), None);
    let gone = one.summary(false);
    assert_eq!(gone.error(Value::Rate(CALLS)), None);
    assert_eq!(gone.error(Value::Total(CALLS)), Some(0.06));
}

#[test]
fn what_no_slice_saw_is_no_rate_of_zero() {
    let values = [
        Value::Rate(CALLS),
        Value::Recent(CALLS),
        Value::Rate(BYTES),
        Value::Recent(BYTES),
    ];
    let of = |reports: &[&Report]| values.map(|value| merged(reports.iter().copied()).value(value));
    let none = |recorded_milliseconds| recorded(Histogram::default(), 0, recorded_milliseconds);
    let [sampled, unknown, whole] = [336, 0, 1000].map(none);
    assert_eq!(of(&[&sampled]), [None; 4]);
    assert_eq!(of(&[&whole]), [Some(0.0); 4]);
    assert_eq!(of(&[&whole, &sampled]), [None; 4], "one may have had some");
    assert_eq!(of(&[&whole, &unknown]), [None; 4]);
    let busy = recorded("119:60".parse().unwrap(), 1480, 1000);
    assert_eq!(of(&[&busy, &sampled])[0], Some(60.0));
    let part = |report: &Report| report.summary(true).value(Value::Percent(OPEN, CALLS));
    let mut errors = recorded("119:60".parse().unwrap(), 1480, 336);
    errors.window.figures.sums.insert(OPEN.into(), 0);
    assert_eq!(part(&errors), None, "a part that was not seen");
    errors.window.recorded_milliseconds = 1000;
    assert_eq!(part(&errors), Some(0.0));
}
