use super::*;

const TENTH: Duration = Duration::from_millis(100);

fn estimator() -> Estimator {
    Estimator::new(&[Duration::from_micros(1)])
}

/// Counted all the time, or not at all.
fn sight(hits: u64, open: Duration) -> Observation {
    Observation {
        hits,
        open,
        attached: open,
        ..Observation::default()
    }
}

fn rate(estimator: &Estimator) -> f64 {
    estimator.loads()[0].hits_per_second.unwrap()
}

fn observe(estimator: &mut Estimator, sight: Observation) -> Spent {
    estimator.observe(TENTH, TENTH, 0.0, &[sight])
}

#[test]
fn a_rate_is_unknown_until_there_was_a_look() {
    let mut estimator = estimator();
    assert_eq!(estimator.loads()[0].hits_per_second, None);
    observe(&mut estimator, sight(100, Duration::from_millis(10)));
    assert_eq!(estimator.loads()[0].hits_per_second, None);
    observe(&mut estimator, sight(100, Duration::from_millis(15)));
    assert_eq!(rate(&estimator), 8000.0);
}

#[test]
fn a_rise_is_believed_at_once_and_a_fall_soon() {
    let mut estimator = estimator();
    observe(&mut estimator, sight(100, TENTH));
    observe(&mut estimator, sight(6000, TENTH));
    assert_eq!(rate(&estimator), 60e3);
    observe(&mut estimator, sight(0, TENTH));
    assert!((rate(&estimator) - 60e3 * (-0.2f64).exp()).abs() < 1.0);
    // What was not seen for long is forgotten by the first look.
    for _ in 0..50 {
        observe(&mut estimator, Observation::default());
    }
    observe(&mut estimator, sight(10, TENTH));
    assert!(rate(&estimator) < 110.0);
}

#[test]
fn noise_is_smoothed() {
    let mut estimator = estimator();
    observe(&mut estimator, sight(1000, TENTH));
    observe(&mut estimator, sight(1200, TENTH));
    assert_eq!(rate(&estimator), 10_500.0);
}

/// Five hits a second are none in most ticks and ten a second in the others.
#[test]
fn rare_hits_are_counted_for_long() {
    let mut estimator = estimator();
    for tick in 0..1000 {
        observe(&mut estimator, sight(u64::from(tick % 2 == 0), TENTH));
        assert!(tick < 200 || (4.0..6.0).contains(&rate(&estimator)));
    }
}

#[test]
fn what_is_not_seen_for_minutes_is_forgotten_slowly() {
    let mut estimator = estimator();
    observe(&mut estimator, sight(6000, TENTH));
    for _ in 0..1200 {
        observe(&mut estimator, Observation::default());
    }
    assert!(rate(&estimator) > 59_990.0);
    for _ in 0..6000 {
        observe(&mut estimator, Observation::default());
    }
    assert!((29_000.0..31_000.0).contains(&rate(&estimator)));
}

#[test]
fn hits_that_the_edges_hid_are_paid_for() {
    let mut estimator = estimator();
    let half = Observation {
        hits: 3000,
        open: TENTH / 2,
        attached: TENTH,
        ..Observation::default()
    };
    let spent = observe(&mut estimator, half);
    assert!((spent.cost - 6000.0 * MICROSECOND).abs() < 1e-12);
    assert!((spent.own - (0.1 - spent.cost)).abs() < 1e-12);
}

/// 0.03 CPUs on a clock that shows 10 ms every third of a second.
#[test]
fn cpu_time_is_that_of_the_target_without_its_probes() {
    let mut estimator = estimator();
    assert_eq!(estimator.cpu(), 0.0);
    for tick in 0..300 {
        let cpu = if tick % 10 < 3 { 10 } else { 0 };
        let cpu = Duration::from_millis(cpu) + Duration::from_micros(100);
        estimator.observe(TENTH, cpu, 0.0, &[sight(100, TENTH)]);
    }
    assert!((0.027..0.033).contains(&estimator.cpu()));
}

/// In its first 100 ms a target may have used up to a tick of its clock.
#[test]
fn cpu_time_that_the_clock_has_not_shown_yet_is_taken_to_be_on_its_way() {
    let mut estimator = estimator();
    estimator.observe(TENTH, Duration::ZERO, 0.0, &[Observation::default()]);
    assert!((estimator.cpu() - 0.1).abs() < 0.01);
}

#[test]
fn a_target_that_does_nothing_uses_nothing() {
    let mut estimator = estimator();
    for _ in 0..1000 {
        estimator.observe(TENTH, Duration::ZERO, 0.0, &[sight(0, TENTH)]);
    }
    assert_eq!(rate(&estimator), 0.0);
    assert!(estimator.cpu() < 1e-6);
    estimator.observe(Duration::ZERO, Duration::ZERO, 0.0, &[]);
    assert!(estimator.cpu() >= 0.0);
}

#[test]
fn what_costs_besides_is_spent_at_once_and_its_rate_is_known_within_seconds() {
    let mut estimator = estimator();
    let mut besides = |cost: f64, times: usize| {
        let spent = (0..times).map(|_| estimator.observe(TENTH, TENTH, cost, &[sight(0, TENTH)]));
        spent.last().unwrap()
    };
    // A hundredth of a CPU, for a second, and for ten.
    let spent = besides(0.001, 10);
    assert_eq!((spent.cost, spent.own), (0.001, 0.1));
    assert!(
        (spent.besides - 0.01 * (1.0 - (-1.0_f64).exp())).abs() < 1e-9,
        "{spent:?}"
    );
    assert!((besides(0.001, 100).besides - 0.01).abs() < 1e-6);
    assert!(besides(0.0, 30).besides < 0.01 * 0.06);
    // No time, no rate.
    let before = besides(0.0, 1).besides;
    let spent = estimator.observe(Duration::ZERO, Duration::ZERO, 0.5, &[]);
    assert_eq!((spent.cost, spent.besides), (0.5, before));
}
