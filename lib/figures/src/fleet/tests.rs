use super::*;
use crate::{Distribution, Figures, Histogram, Name, Variance, histogram::bucket, random::Random};

impl Random {
    /// Of about a normal distribution, which ends.
    fn about_normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// Targets whose logarithms differ by so much.
    fn fleet(&mut self, targets: usize, spread: f64) -> Vec<TargetFigure> {
        let one = |_| TargetFigure {
            value: 1000.0 * (self.about_normal() * spread).exp(),
            error: 0.02,
        };
        (0..targets).map(one).collect()
    }
}

fn places(found: &[Outlier]) -> Vec<usize> {
    found.iter().map(|one| one.place).collect()
}

#[test]
fn among_targets_that_are_alike_one_fleet_in_a_hundred_has_an_outlier_at_most() {
    let mut random = Random(11);
    for targets in [6, 7, 8, 10, 20, 100] {
        for spread in [0.05, 0.2, 0.4] {
            let fleets = 1000;
            let alarmed = (0..fleets).filter(|_| {
                let mut rows = (0..20).map(|_| random.fleet(targets, spread));
                rows.any(|row| !outliers(&row, 20).is_empty())
            });
            let alarmed = alarmed.count();
            assert!(alarmed <= 15, "{alarmed} of {fleets}: {targets}, {spread}");
        }
    }
}

#[test]
fn a_target_that_is_many_times_as_slow_is_found_and_no_other() {
    let mut random = Random(3);
    // Of few targets it takes more to be sure.
    for (targets, times) in [(6, 10.0), (12, 4.0), (5000, 2.2)] {
        let mut fleet = random.fleet(targets, 0.05);
        fleet[3].value = 1000.0 * times;
        let found = outliers(&fleet, 128);
        assert_eq!(places(&found), [3], "{targets}");
        let told = found[0].times();
        assert!((told / times - 1.0).abs() < 0.05, "{told} of {times}");
        // As little is as far.
        fleet[3].value = 1000.0 / times;
        assert_eq!(places(&outliers(&fleet, 128)), [3], "{targets}");
    }
}

#[test]
fn whose_figure_may_be_off_by_as_much_is_no_outlier() {
    let mut fleet = Random(3).fleet(12, 0.05);
    fleet[3] = TargetFigure {
        value: 5000.0,
        error: 0.5,
    };
    assert_eq!(outliers(&fleet, 1), []);
}

#[test]
fn what_differs_by_less_than_twice_is_nobodys_trouble() {
    let mut fleet = Random(3).fleet(100, 0.01);
    fleet[3].value = 1900.0;
    assert_eq!(outliers(&fleet, 1), []);
    fleet[3].value = 2100.0;
    assert_eq!(places(&outliers(&fleet, 1)), [3]);
}

#[test]
fn of_five_nobody_knows_what_is_usual() {
    let mut fleet = Random(3).fleet(5, 0.01);
    fleet[3].value = 1e6;
    assert_eq!(outliers(&fleet, 1), []);
}

/// Ten seconds with these calls: so many of 1,000 ns for each of 1 ms.
fn calls(count: u64, slow: u64, recorded_milliseconds: u64) -> IntervalFigures {
    let mut histogram = Histogram::default();
    for (nanos, times) in [(1_000, count - slow), (1_000_000, slow)] {
        histogram.add(bucket(nanos), times);
    }
    let distribution = Distribution {
        histogram,
        ..Distribution::default()
    };
    IntervalFigures {
        milliseconds: 10_000,
        recorded_milliseconds,
        samples: count,
        figures: Figures {
            distributions: [(Name::from("duration"), distribution)].into(),
            ..Figures::default()
        },
    }
}

const RATE: Value = Value::Rate("duration");
const P99: Value = Value::Quantile("duration", 0.99);

#[test]
fn a_rate_is_as_far_off_as_slices_say_and_chance_makes_it() {
    let mut window = calls(10_000, 0, 10_000);
    let seen = TargetFigure::of(&window, RATE).unwrap();
    assert_eq!((seen.value, seen.error), (1000.0, 0.01));
    let variance = Variance::new(2000.0 * 2000.0);
    window.figures.variances = [(Name::from("duration"), variance)].into();
    let error = TargetFigure::of(&window, RATE).unwrap().error;
    assert!(
        (error - (0.2_f64.powi(2) + 1e-4).sqrt()).abs() < 1e-9,
        "{error}"
    );
    window.figures.leave_out();
    assert_eq!(TargetFigure::of(&window, RATE), None, "at least so many");
}

#[test]
fn what_did_not_happen_is_less_than_once_where_it_was_watched() {
    let seen = TargetFigure::of(&calls(0, 0, 10_000), RATE).unwrap();
    assert_eq!((seen.value, seen.error), (0.1, 1.0));
    assert_eq!(TargetFigure::of(&calls(0, 0, 3_000), RATE), None);
    assert_eq!(TargetFigure::of(&IntervalFigures::default(), RATE), None);
}

#[test]
fn a_quantile_of_few_calls_is_not_known() {
    assert_eq!(TargetFigure::of(&calls(900, 0, 10_000), P99), None);
    let sure = TargetFigure::of(&calls(10_000, 0, 10_000), P99).unwrap();
    assert_eq!(sure.error, 0.0);
    // As many are slow as there are beyond it: it may be either.
    let unsure = TargetFigure::of(&calls(10_000, 100, 10_000), P99).unwrap();
    assert!(unsure.error > 3.0, "{unsure:?}");
}
