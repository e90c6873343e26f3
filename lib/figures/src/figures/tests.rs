use proptest::prelude::*;

use super::*;
use crate::histogram::BUCKETS;

fn by_name<T: std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = BTreeMap<Name, T>> {
    let name = prop::sample::select(vec!["a", "b", "c"]).prop_map(Name::from);
    prop::collection::btree_map(name, value, 0..3)
}

/// Figures whose numbers are below this, as are the counts of their buckets.
fn below(limit: u64) -> impl Strategy<Value = Figures> {
    let buckets = prop::collection::vec((0..BUCKETS, 0..limit), 0..4);
    let distribution =
        (buckets, 0..limit, 0..limit).prop_map(|(buckets, sum, unmeasured)| Distribution {
            histogram: buckets.into_iter().collect(),
            sum,
            unmeasured,
        });
    (
        by_name(0..limit),
        by_name(0..limit),
        by_name(0..limit),
        by_name(distribution),
        by_name((1..1_000_000_000_u64).prop_map(|value| Variance::new(value as f64))),
    )
        .prop_map(|(sums, maxima, levels, distributions, variances)| Figures {
            sums,
            maxima,
            levels,
            distributions,
            variances,
        })
}

/// Whatever a status may have.
fn any_figures() -> impl Strategy<Value = Figures> {
    prop_oneof![below(1_000_000), below(u64::MAX)]
}

fn merged(all: &[&Figures]) -> Figures {
    all.iter().fold(Figures::default(), |mut sum, figures| {
        sum.merge(figures);
        sum
    })
}

fn followed(earlier: &Figures, later: &Figures) -> Figures {
    let mut both = earlier.clone();
    both.follow(later);
    both
}

/// All sums of one name in these.
fn total(all: &[Figures], of: fn(&Figures, &str) -> Option<u64>, name: &str) -> u64 {
    all.iter().filter_map(|figures| of(figures, name)).sum()
}

proptest! {
    #[test]
    fn merging_is_associative_and_commutative_and_nothing_changes_nothing(
        a in any_figures(),
        b in any_figures(),
        c in any_figures(),
    ) {
        let left = merged(&[&merged(&[&a, &b]), &c]);
        let right = merged(&[&a, &merged(&[&b, &c])]);
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(&left, &merged(&[&c, &a, &b]));
        let nothing = Figures::default();
        prop_assert_eq!(&merged(&[&a, &nothing]), &a);
        prop_assert_eq!(&merged(&[&nothing, &a]), &a);
    }

    #[test]
    fn since_undoes_what_was_before(before in below(1 << 40), then in below(1 << 40)) {
        let both = followed(&before, &then);
        let since = both.since(&before);
        for (name, sum) in &since.sums {
            prop_assert_eq!(*sum, then.sums.get(name).copied().unwrap_or_default());
        }
        for (name, values) in &since.distributions {
            let expected = then.distributions.get(name).cloned().unwrap_or_default();
            prop_assert_eq!(values, &expected);
        }
        prop_assert!(then.sums.keys().all(|name| since.sums.contains_key(name)));
        prop_assert!(then.distributions.keys().all(|name| since.distributions.contains_key(name)));
        prop_assert_eq!(&since.maxima, &both.maxima);
        prop_assert_eq!(&since.levels, &both.levels);
        prop_assert!(both.since(&both).sums.values().all(|sum| *sum == 0));
    }

    #[test]
    fn what_follows_adds_to_flows_and_replaces_levels(before in any_figures(), later in any_figures()) {
        let both = followed(&before, &later);
        let mut expected = merged(&[&before, &later]);
        expected.levels = before.levels;
        expected.levels.extend(later.levels);
        prop_assert_eq!(both, expected);
    }

    #[test]
    fn once_the_same_is_the_same_whatever_was_left_over(
        odd in below(1000),
        weight in 1.0..50.0_f64,
        whole in any_figures(),
    ) {
        let mut left = Remainders::default();
        odd.scale(weight, &mut left);
        prop_assert_eq!(whole.scale(1.0, &mut left), whole);
    }

    #[test]
    fn of_many_slices_nothing_is_lost_by_rounding(
        slices in prop::collection::vec((below(1000), 1.0..50.0_f64), 1..40),
    ) {
        let mut left = Remainders::default();
        let scaled: Vec<_> = slices.iter().map(|(slice, weight)| slice.scale(*weight, &mut left)).collect();
        let sum = |figures: &Figures, name: &str| figures.sums.get(name).copied();
        let measured = |figures: &Figures, name: &str| Some(figures.distributions.get(name)?.histogram.count());
        let unmeasured = |figures: &Figures, name: &str| Some(figures.distributions.get(name)?.unmeasured);
        for of in [sum, measured, unmeasured] {
            for name in ["a", "b", "c"] {
                let due: f64 = slices
                    .iter()
                    .filter_map(|(slice, weight)| Some(of(slice, name)? as f64 * weight))
                    .sum();
                let given = total(&scaled, of, name) as f64;
                prop_assert!((due - given).abs() < 1.0, "{} {} {}", name, due, given);
            }
        }
        for ((slice, _), scaled) in slices.iter().zip(&scaled) {
            prop_assert_eq!(&slice.maxima, &scaled.maxima);
            prop_assert_eq!(&slice.levels, &scaled.levels);
        }
    }

    #[test]
    fn a_scaled_distribution_keeps_its_shape(figures in below(1_000_000), weight in 1.0..50.0_f64) {
        let scaled = figures.scale(weight, &mut Remainders::default());
        for (name, values) in &figures.distributions {
            let scaled = &scaled.distributions[name];
            prop_assert!((scaled.sum as f64 - values.sum as f64 * weight).abs() <= 0.5);
            let counts: BTreeMap<_, _> = scaled.histogram.iter().collect();
            for (bucket, count) in values.histogram.iter() {
                let given = counts.get(&bucket).copied().unwrap_or_default() as f64;
                prop_assert!((given - count as f64 * weight).abs() <= 1.0, "{} {}", bucket, given);
            }
            prop_assert!(counts.keys().all(|bucket| values.histogram.iter().any(|(b, _)| b == *bucket)));
        }
    }

    #[test]
    fn figures_survive_the_way_through_json(figures in any_figures()) {
        let text = serde_json::to_string(&figures).unwrap();
        prop_assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
    }
}

#[test]
fn a_count_is_that_of_the_values_measured_or_not_or_else_the_sum() {
    let calls = Distribution {
        histogram: [(104, 5), (200, 1)].into_iter().collect(),
        sum: 9,
        unmeasured: 3,
    };
    let figures = Figures {
        sums: [("calls".into(), 1), ("bytes".into(), 32)].into(),
        maxima: [("longest".into(), 7)].into(),
        levels: [("open".into(), 4)].into(),
        distributions: [("calls".into(), calls)].into(),
        ..Figures::default()
    };
    let counts = ["calls", "bytes", "longest", "open", "none"].map(|name| figures.count(name));
    assert_eq!(counts, [Some(9), Some(32), None, None, None]);
}

#[test]
fn figures_are_idle_when_nothing_was_counted_and_nothing_stands() {
    let sums = |n| Figures {
        sums: [("a".into(), n)].into(),
        ..Figures::default()
    };
    let levels = |n| Figures {
        levels: [("a".into(), n)].into(),
        ..Figures::default()
    };
    let values = |n| Figures {
        maxima: [("a".into(), 9)].into(),
        distributions: [(
            "a".into(),
            Distribution {
                unmeasured: n,
                ..Distribution::default()
            },
        )]
        .into(),
        ..Figures::default()
    };
    assert!(Figures::default().is_idle());
    for (figures, idle) in [
        (sums(0), true),
        (sums(1), false),
        (levels(0), true),
        (levels(1), false),
        (values(0), true),
        (values(1), false),
    ] {
        assert_eq!(figures.is_idle(), idle, "{figures:?}");
    }
}
