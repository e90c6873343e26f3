use proptest::prelude::*;

use super::*;

fn few(rates: &[f64]) -> f64 {
    let mut outliers = Outliers::default();
    for three in rates.windows(3) {
        outliers.take([three[0], three[1], three[2]]);
    }
    outliers.few()
}

/// So many slices that see the same, but that each so-manieth sees nothing.
fn with_gaps(slices: usize, each: usize) -> Vec<f64> {
    (1..=slices)
        .map(|slice| {
            if slice.is_multiple_of(each) {
                0.0
            } else {
                60e3
            }
        })
        .collect()
}

#[test]
fn slices_that_stand_alone_are_counted() {
    // Four of them that all differ by as much, of a hundred: a quarter, less what even ones have.
    let alone = few(&with_gaps(102, 25));
    assert!((alone - (0.25 - EVEN / 100.0)).abs() < 5e-3, "{alone}");
    // One counts as one.
    let alone = few(&with_gaps(201, 200));
    assert!((alone - (1.0 - EVEN / 199.0)).abs() < 5e-3, "{alone}");
    // However much the others see.
    let busier: Vec<f64> = with_gaps(201, 100)
        .iter()
        .enumerate()
        .map(|(slice, rate)| rate * if slice < 150 { 1.0 } else { 100.0 })
        .collect();
    let alone = few(&busier);
    assert!((alone - (0.5 - EVEN / 199.0)).abs() < 1e-2, "{alone}");
    // What sees much where others see nothing is alone, too.
    let bursts: Vec<f64> = with_gaps(201, 200).iter().map(|rate| 60e3 - rate).collect();
    let alone = few(&bursts);
    assert!((alone - (1.0 - EVEN / 199.0)).abs() < 5e-3, "{alone}");
}

#[test]
fn what_all_slices_see_or_none_is_of_no_few() {
    assert_eq!(few(&[0.0; 100]), 0.0);
    assert_eq!(few(&[60e3; 100]), 0.0);
    assert_eq!(few(&[1.0, 60e3]), 0.0);
    // Too few to tell.
    assert_eq!(few(&with_gaps(7, 3)), 0.0);
}

#[test]
fn a_load_that_changes_and_stays_so_has_no_outliers() {
    let change: Vec<f64> = (0..200)
        .map(|slice| if slice < 100 { 60e3 } else { 5e3 })
        .collect();
    assert_eq!(few(&change), 0.0);
    let ramp: Vec<f64> = (0..200).map(f64::from).collect();
    assert_eq!(few(&ramp), 0.0);
    // Nor where the last slice before it saw a little less than the one before that.
    let ripple = |slice: u32| 1.0 + 0.01 * f64::from(slice % 2);
    let change: Vec<f64> = (0..200)
        .map(|slice| ripple(slice) * if slice <= 100 { 1e3 } else { 60e3 })
        .collect();
    assert_eq!(few(&change), 0.0);
}

#[test]
fn slices_that_scatter_evenly_are_not_few() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut even = || (0..12).map(|_| random.f64()).sum::<f64>();
    for slices in [20, 100, 1_000, 20_000] {
        let runs: Vec<f64> = (0..20)
            .map(|_| few(&(0..slices).map(|_| 1e3 + even()).collect::<Vec<_>>()))
            .collect();
        let mean = runs.iter().sum::<f64>() / 20.0;
        // Of an outlier in a hundred slices there is fifty times as much.
        assert!(mean * f64::from(slices) < 2.0, "{slices}: {mean}");
    }
}

#[test]
fn slices_of_hours_ago_are_forgotten() {
    let mut rates = with_gaps(100, 50);
    let alternating = |slice: u32| 60e3 + 600.0 * f64::from(slice % 2);
    rates.extend((0..1_000).map(alternating));
    assert!(few(&rates) > 0.3);
    rates.extend((0..100_000).map(alternating));
    assert_eq!(few(&rates), 0.0);
}

proptest! {
    #[test]
    fn it_is_a_part_whatever_slices_see(rates in prop::collection::vec(0.0..1e9f64, 0..60)) {
        let few = few(&rates);
        prop_assert!((0.0..=1.0).contains(&few), "{}", few);
    }

    /// As often, and a thousand times as often: it is as few.
    #[test]
    fn how_much_there_is_in_all_does_not_matter(rates in prop::collection::vec(0.0..1e6f64, 3..60)) {
        let more: Vec<f64> = rates.iter().map(|rate| rate * 1e3).collect();
        prop_assert!((few(&rates) - few(&more)).abs() < 1e-9);
    }
}
