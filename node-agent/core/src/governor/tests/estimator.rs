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

/// The rate, but for the thousandth by which process time passes while nothing is done, and what hits take of it.
fn is_rate(estimator: &Estimator, known: f64) -> bool {
    (rate(estimator) / known - 1.0).abs() < 0.002
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
    assert!(is_rate(&estimator, 8000.0));
}

#[test]
fn a_rise_is_believed_at_once_and_a_fall_soon() {
    let mut estimator = estimator();
    observe(&mut estimator, sight(100, TENTH));
    observe(&mut estimator, sight(6000, TENTH));
    // Of 100 ms the hits took six.
    let seen = rate(&estimator);
    assert!((60e3..64e3).contains(&seen), "{seen}");
    // A tenth of a second of being counted, of half a second; and on the wall of half a minute.
    observe(&mut estimator, sight(0, TENTH));
    let kept = (-0.1f64 / 0.5 - 0.1 / 30.0).exp();
    let fell = rate(&estimator) / seen;
    assert!((fell - kept).abs() < 0.01, "{fell} {kept}");
    // What was not seen for long is all but forgotten by the first look.
    for _ in 0..1500 {
        observe(&mut estimator, Observation::default());
    }
    observe(&mut estimator, sight(10, TENTH));
    let fell = rate(&estimator) / seen;
    assert!(fell < (-4.9f64).exp(), "{fell}");
}

#[test]
fn one_slice_does_not_say_how_busy_the_next_will_be() {
    let [mut always, mut sliced] = [estimator(), estimator()];
    for (estimator, sliced) in [(&mut always, false), (&mut sliced, true)] {
        observe(estimator, sight(100, TENTH));
        let sight = Observation {
            sliced,
            ..sight(6000, TENTH)
        };
        observe(estimator, sight);
    }
    let risen = (rate(&sliced) - 1000.0) / (rate(&always) - 1000.0);
    assert!((risen - 0.25).abs() < 0.001, "{risen}");
}

#[test]
fn noise_is_smoothed() {
    let mut estimator = estimator();
    // So few that they take next to nothing of the time.
    observe(&mut estimator, sight(100, TENTH));
    observe(&mut estimator, sight(120, TENTH));
    assert!(is_rate(&estimator, 1_050.0));
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
    let seen = rate(&estimator);
    assert!(seen > 59_000.0, "{seen}");
    for _ in 0..6000 {
        observe(&mut estimator, Observation::default());
    }
    let part = rate(&estimator) / seen;
    assert!((0.48..0.52).contains(&part), "{part}");
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
    assert!(
        (spent.cost - 6000.0 * MICROSECOND).abs() < 1e-6,
        "{spent:?}"
    );
    // The first look knows of no rate: what the edge hid is still in it.
    assert!(
        (spent.own - (0.1 - 3000.0 * MICROSECOND)).abs() < 1e-9,
        "{spent:?}"
    );
}

#[test]
fn a_second_of_process_time_is_what_the_target_uses_while_it_works_without_its_probes() {
    let mut estimator = estimator();
    // Two CPUs, of which hits take a tenth, in every third look.
    for tick in 0..300 {
        let (cpu, hits) = if tick % 3 == 0 { (200, 20_000) } else { (0, 0) };
        let cpu = Duration::from_millis(cpu);
        estimator.observe(TENTH, cpu, 0.0, &[sight(hits, TENTH)]);
    }
    let cpu = estimator.cpu();
    assert!((1.75..1.85).contains(&cpu), "{cpu}");
    let passed = estimator.time().now().as_secs_f64();
    assert!((9.9..10.2).contains(&passed), "{passed}");
}

#[test]
fn whatever_probing_is_believed_to_cost_some_of_the_time_is_the_targets_own() {
    let mut estimator = estimator();
    let spent = observe(&mut estimator, sight(500_000, TENTH));
    assert!((spent.own - 0.025).abs() < 1e-9, "{spent:?}");
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
    // Of process time, which passes a little faster than the clock.
    let near = |found: f64, known: f64| (found / known - 1.0).abs() < 0.002;
    assert!(
        near(spent.besides, 0.01 * (1.0 - (-1.0_f64).exp())),
        "{spent:?}"
    );
    assert!(near(besides(0.001, 100).besides, 0.01));
    assert!(besides(0.0, 30).besides < 0.01 * 0.06);
    // No time, no rate.
    let before = besides(0.0, 1).besides;
    let spent = estimator.observe(Duration::ZERO, Duration::ZERO, 0.5, &[]);
    assert_eq!(spent.cost, 0.5);
    assert!(near(spent.besides, before), "{spent:?}, {before}");
}

/// Of what tells its own cost a hit is a nanosecond.
fn of_nanoseconds() -> Estimator {
    Estimator::new(&[Duration::from_nanos(1)])
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn what_is_counted_while_probes_come_or_go_is_of_no_rate() {
    let mut estimator = of_nanoseconds();
    let edge = Observation {
        hits: 2_000_000,
        attached: 2 * MS,
        ..Observation::default()
    };
    let spent = estimator.observe(9 * MS, 9 * MS, 0.0, &[edge]);
    assert!((spent.cost - 0.002).abs() < 1e-9, "it costs: {spent:?}");
    // An idle target: its time passes by a thousandth of the wall's, and 2 ms of it would be thousands of CPU-seconds a second.
    estimator.observe(MS, Duration::ZERO, 0.0, &[sight(0, MS)]);
    assert_eq!(estimator.loads()[0].hits_per_second, None);
}

#[test]
fn a_few_events_say_nothing_of_a_rate_however_many_nanoseconds_they_cost() {
    let mut estimator = of_nanoseconds();
    estimator.observe(MS, Duration::ZERO, 0.0, &[sight(6_000, MS)]);
    assert_eq!(estimator.loads()[0].hits_per_second, None);
    // A millisecond does.
    estimator.observe(MS, MS, 0.0, &[sight(994_000, MS)]);
    assert!(estimator.loads()[0].hits_per_second.is_some());
}

#[test]
fn what_edges_hid_cost_no_more_than_the_target_used() {
    let mut estimator = of_nanoseconds().foreseeing(&[Some(3e9)]);
    for used in [Duration::ZERO, Duration::from_micros(464)] {
        let edge = Observation {
            hits: 5_747,
            attached: 4 * MS,
            ..Observation::default()
        };
        let spent = estimator.observe(9 * MS, used, 0.0, &[edge]);
        let most = used.as_secs_f64() + 5.8e-6;
        assert!(spent.cost <= most, "{spent:?} of {used:?}");
    }
}
