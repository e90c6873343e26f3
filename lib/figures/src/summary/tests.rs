use proptest::prelude::*;

use super::*;
use crate::{Distribution, Histogram, histogram::BUCKETS};

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
    (buckets, 0..1_000_000_u64, 0..=1000_u64)
        .prop_map(|(buckets, longest, ms)| recorded(buckets.into_iter().collect(), longest, ms))
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
