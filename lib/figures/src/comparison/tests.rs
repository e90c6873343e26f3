use proptest::{collection::vec, prop_assert, prop_assert_eq, proptest};

use super::*;

/// As uniform as a test needs, and the same each time.
struct Draws(u64);

impl Draws {
    fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (one, other) = (self.uniform(), self.uniform());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    }

    /// What a node's blocks are like: each is like the one before, some take many times as long, and none less than nothing.
    fn blocks(&mut self, count: usize, scale: f64) -> Vec<f64> {
        let mut state = self.normal();
        let next = |_| {
            state = 0.9 * state + 0.19_f64.sqrt() * self.normal();
            scale * (0.5 * state).exp()
        };
        (0..count).map(next).collect()
    }
}

#[test]
fn quantiles_are_those_of_the_tables() {
    for (confidence, freedom, expected) in [
        (0.95, 9.0, 2.262),
        (0.95, 19.0, 2.093),
        (0.95, 38.0, 2.024),
        (0.99, 19.0, 2.861),
        (0.995, 19.0, 3.174),
        (0.95, 1e9, 1.960),
    ] {
        let found = student(confidence, freedom);
        assert!(
            (found - expected).abs() < 0.01,
            "{confidence} {freedom}: {found}"
        );
    }
}

#[test]
fn what_is_the_same_is_called_different_once_in_twenty_times_though_blocks_are_like_those_before() {
    let mut draws = Draws(7);
    for statistic in [Statistic::Mean, Statistic::Median] {
        let mut called = 0;
        for _ in 0..1_000 {
            let (one, other) = (draws.blocks(2_000, 1.0), draws.blocks(3_000, 1.0));
            let found = compare(&one, &other, statistic, 0.95).unwrap();
            called += u32::from(!found.is_noise());
        }
        assert!(
            (25..=75).contains(&called),
            "{statistic:?}: {called} of 1,000"
        );
    }
}

#[test]
fn a_test_that_took_blocks_for_independent_would_call_noise_an_effect_most_times() {
    let mut draws = Draws(7);
    let mut called = 0;
    for _ in 0..200 {
        let (one, other) = (draws.blocks(2_000, 1.0), draws.blocks(2_000, 1.0));
        let error = ((variance(&one) + variance(&other)) / 2_000.0).sqrt();
        let change = Statistic::Mean.of(&other) - Statistic::Mean.of(&one);
        called += u32::from(change.abs() > 1.96 * error);
    }
    assert!(called > 100, "{called} of 200");
}

#[test]
fn what_takes_a_quarter_longer_is_found_and_the_bounds_have_it() {
    let mut draws = Draws(11);
    let (mut found, mut within) = (0, 0);
    // The mean of such blocks.
    let mean = 0.125_f64.exp();
    for _ in 0..200 {
        let (one, other) = (draws.blocks(4_000, 1.0), draws.blocks(4_000, 1.25));
        let comparison = compare(&one, &other, Statistic::Mean, 0.95).unwrap();
        found += u32::from(comparison.low > 0.0);
        within += u32::from((comparison.low..=comparison.high).contains(&(0.25 * mean)));
    }
    assert!(found >= 195, "{found} of 200");
    assert!(within >= 180, "{within} of 200");
}

#[test]
fn pairs_show_what_is_less_than_things_differ_among_themselves() {
    let mut draws = Draws(13);
    let before = draws.blocks(1_000, 1.0);
    let pairs: Vec<(f64, f64)> = before
        .iter()
        .map(|value| (*value, value * 1.02 + 0.01 * draws.normal()))
        .collect();
    let after: Vec<f64> = pairs.iter().map(|(_, after)| *after).collect();
    assert!(
        compare(&before, &after, Statistic::Mean, 0.95)
            .unwrap()
            .is_noise()
    );
    let paired = compare_pairs(&pairs, Statistic::Mean, 0.95).unwrap();
    assert!(paired.low > 0.0 && (paired.low..=paired.high).contains(&(0.02 * paired.before)));
}

proptest! {
    #[test]
    fn the_same_is_noise_and_the_other_way_round_is_the_opposite(
        one in vec(0.0..1e9_f64, LEAST..200),
        other in vec(0.0..1e9_f64, LEAST..200),
    ) {
        for statistic in [Statistic::Mean, Statistic::Median] {
            let same = compare(&one, &one, statistic, 0.95).unwrap();
            prop_assert_eq!(same.change(), 0.0);
            prop_assert!(same.is_noise());
            let there = compare(&one, &other, statistic, 0.95).unwrap();
            let back = compare(&other, &one, statistic, 0.95).unwrap();
            prop_assert_eq!((there.low, there.high), (-back.high, -back.low));
            prop_assert!(there.low <= there.change() && there.change() <= there.high);
            // Who wants to be surer gets wider bounds.
            let surer = compare(&one, &other, statistic, 0.999).unwrap();
            prop_assert!(surer.low <= there.low && there.high <= surer.high);
        }
    }

    #[test]
    fn the_same_added_to_each_of_a_pair_is_found_whatever_they_are(
        values in vec(0.0..1e6_f64, LEAST..200),
    ) {
        let pairs: Vec<(f64, f64)> = values.iter().map(|value| (*value, value + 10.0)).collect();
        let found = compare_pairs(&pairs, Statistic::Mean, 0.95).unwrap();
        prop_assert!(!found.is_noise());
        prop_assert!((found.change() - 10.0).abs() < 1e-6);
    }

    #[test]
    fn of_few_nothing_is_said(values in vec(0.0..1e6_f64, 0..LEAST)) {
        let enough = vec![1.0; LEAST];
        prop_assert_eq!(compare(&values, &enough, Statistic::Mean, 0.95), None);
        prop_assert_eq!(compare(&enough, &values, Statistic::Mean, 0.95), None);
    }
}

#[test]
fn shares_of_samples_differ_by_chance_within_the_bounds_of_two_proportions() {
    // p = 0.25, so the error is sqrt(0.1875 * (1/400 + 1/400)) = 0.03062, of which 1.96 are 0.0600.
    let found = Comparison::of_shares((0.2, 400), (0.3, 400), 0.95).unwrap();
    assert!(!found.is_noise());
    assert!((found.low - 0.0400).abs() < 1e-4 && (found.high - 0.1600).abs() < 1e-4);
    let few = Comparison::of_shares((0.2, 40), (0.3, 40), 0.95).unwrap();
    assert!(few.is_noise());
    assert_eq!(Comparison::of_shares((0.2, 0), (0.3, 40), 0.95), None);
}

#[test]
fn of_a_hundred_pairs_of_one_share_about_five_are_no_noise() {
    let mut draws = Draws(7);
    let mut share = || (0..500).filter(|_| draws.uniform() < 0.1).count() as f64 / 500.0;
    let pairs = 2_000;
    let wrong = (0..pairs)
        .filter(|_| {
            let compared = Comparison::of_shares((share(), 500), (share(), 500), 0.95);
            !compared.unwrap().is_noise()
        })
        .count();
    assert!((70..135).contains(&wrong), "{wrong} of {pairs}");
}
