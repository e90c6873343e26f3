use proptest::prelude::*;

use super::*;

fn of(values: &[u64]) -> Histogram {
    values.iter().map(|value| (bucket(*value), 1)).collect()
}

fn values() -> impl Strategy<Value = Vec<u64>> {
    // Durations of every magnitude, not only the huge ones that a uniform u64 would give.
    prop::collection::vec(
        (0u32..42, any::<u64>()).prop_map(|(bits, v)| v & ((1 << bits) - 1)),
        0..300,
    )
}

#[test]
fn the_buckets_tile_the_range_without_gap_or_overlap() {
    assert_eq!(bounds(0).start, 0);
    for index in 1..BUCKETS {
        assert_eq!(bounds(index).start, bounds(index - 1).end, "bucket {index}");
    }
    assert_eq!(bounds(BUCKETS - 1).end, 1 << 42);
}

#[test]
fn what_is_longer_than_the_range_falls_into_the_last_bucket() {
    assert_eq!(bucket(1 << 42), BUCKETS - 1);
    assert_eq!(bucket(u64::MAX), BUCKETS - 1);
}

#[test]
fn nothing_has_no_quantile() {
    assert_eq!(Histogram::default().quantile(0.5), None);
}

#[test]
fn the_text_is_runs_of_consecutive_buckets() {
    let histogram: Histogram = [(104, 5), (105, 7), (200, 1)].into_iter().collect();
    assert_eq!(histogram.to_string(), "104:5,7 200:1");
}

#[test]
fn texts_that_are_no_histogram_are_refused() {
    for text in [
        "x",
        "1",
        "1:",
        "1:x",
        "1:2,,3",
        "623:1,1",
        "99999999999:1",
        "4294967295:1,1",
    ] {
        assert!(text.parse::<Histogram>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn a_value_lies_within_its_bucket(value in 0u64..1 << 42) {
        prop_assert!(bounds(bucket(value)).contains(&value));
    }

    #[test]
    fn a_quantile_is_off_by_at_most_the_promised_share(values in values(), quantile in 0.0f64..=1.0) {
        prop_assume!(!values.is_empty());
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let rank = ((quantile * sorted.len() as f64).ceil() as usize).max(1);
        let exact = sorted[rank - 1] as f64;
        let estimate = of(&values).quantile(quantile).unwrap() as f64;
        prop_assert!((estimate - exact).abs() <= exact / 32.0, "{estimate} for {exact}");
    }

    #[test]
    fn merging_is_the_histogram_of_all_values_whatever_the_order(a in values(), b in values(), c in values()) {
        let all = of(&[a.clone(), b.clone(), c.clone()].concat());
        let mut left = of(&a);
        left.merge(&of(&b));
        left.merge(&of(&c));
        let mut right = of(&c);
        right.merge(&of(&b));
        right.merge(&of(&a));
        prop_assert_eq!(&left, &all);
        prop_assert_eq!(&right, &all);
    }

    #[test]
    fn the_difference_of_two_readings_is_what_came_between(a in values(), b in values()) {
        let mut later = of(&a);
        later.merge(&of(&b));
        prop_assert_eq!(later.since(&of(&a)), of(&b));
    }

    #[test]
    fn a_histogram_survives_its_text(values in values()) {
        let histogram = of(&values);
        prop_assert_eq!(histogram.to_string().parse::<Histogram>().unwrap(), histogram);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,64}") {
        let _ = text.parse::<Histogram>();
    }
}

#[test]
fn more_values_than_can_be_counted_are_as_many_as_can_be() {
    let full: Histogram = [(3, u64::MAX), (5, u64::MAX)].into_iter().collect();
    assert_eq!(full.count(), u64::MAX);
    assert_eq!(full.count_below(16), u64::MAX);
    assert_eq!(full.quantile(0.5), Some(3));
    assert!(full.quantile(1.0).is_some());
}
