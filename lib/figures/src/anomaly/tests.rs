//! A month of loads that are healthy, in each of which something is planted at some time.

mod recorded;

use super::*;
use crate::random::Random;

/// Report intervals of 30 s.
const DAY: usize = 2880;
const MONTH: usize = 30 * DAY;

/// What a figure is in each report interval of a healthy node.
type Load = fn(&mut Random, &mut f64, usize) -> f64;

/// Much the same always, and a little what it was before.
fn even(random: &mut Random, state: &mut f64, _: usize) -> f64 {
    *state = 0.6 * *state + 0.08 * random.normal();
    1000.0 * state.exp()
}

/// More by day than by night.
fn daily(random: &mut Random, state: &mut f64, at: usize) -> f64 {
    let hour = at as f64 / DAY as f64 * std::f64::consts::TAU;
    even(random, state, at) * (0.5 * hour.sin()).exp()
}

/// What each block does, which come when they come: some four in an interval.
fn blocks(random: &mut Random, _: &mut f64, _: usize) -> f64 {
    let mut done = 200.0;
    let mut time = -random.uniform().max(1e-12).ln() * 8.0;
    while time < 30.0 {
        done += 1500.0 * (0.4 * random.normal()).exp();
        time -= random.uniform().max(1e-12).ln() * 8.0;
    }
    done
}

/// Compactions that have calls take three times as long, for two minutes or three, about once in an hour.
fn storms(random: &mut Random, state: &mut f64, at: usize) -> f64 {
    // The integer part of the state is how long the storm lasts.
    let mut left = state.trunc();
    if left <= 0.0 && random.uniform() < 1.0 / 120.0 {
        left = 3.0 + (random.uniform() * 4.0).floor();
    }
    *state = (left - 1.0).max(0.0);
    let mut none = 0.0;
    let calm = even(random, &mut none, at);
    if left > 0.0 {
        calm * (1.1 + 0.25 * random.normal()).exp()
    } else {
        calm
    }
}

/// Now and then one that is many times as much.
fn spikes(random: &mut Random, state: &mut f64, at: usize) -> f64 {
    let calm = even(random, state, at);
    if random.uniform() < 0.005 {
        calm * (1.0 + 10.0 * random.uniform())
    } else {
        calm
    }
}

const LOADS: [(&str, Load); 5] = [
    ("even", even),
    ("daily", daily),
    ("blocks", blocks),
    ("storms", storms),
    ("spikes", spikes),
];

fn known(value: f64) -> Option<Known> {
    Some(Known { value, error: 0.03 })
}

/// How often an anomaly begins in so many intervals.
fn begins(course: &mut Course, values: impl Iterator<Item = f64>) -> usize {
    let mut begun = 0;
    let mut before = false;
    for value in values {
        let now = course.observe(known(value)).is_some();
        begun += usize::from(now && !before);
        before = now;
    }
    begun
}

/// `MONTHS=12 cargo test --release -p ckb-probe-figures --lib anomaly -- --nocapture` has a year. 40 figures are what a CkbProbe of a node has, eight of each load: in a month, one false alarm at most.
#[test]
fn a_month_of_forty_figures_of_a_healthy_node_has_one_false_alarm_at_most() {
    let mut all = 0;
    // As a debug build a month takes half a minute.
    let months = std::env::var("MONTHS").map_or(1, |months| months.parse::<u64>().unwrap());
    for seed in 0..months {
        let mut alarms = 0;
        for (name, load) in LOADS {
            let mut of_load = 0;
            for figure in 0..8 {
                let mut random = Random(seed * 1_000_003 + figure * 7919);
                let mut state = 0.0;
                let mut course = Course::default();
                let values = (0..MONTH).map(|at| load(&mut random, &mut state, at));
                of_load += begins(&mut course, values);
            }
            println!("seed {seed}, {name}: {of_load}");
            alarms += of_load;
        }
        all += alarms;
    }
    assert!(all <= months as usize, "{all} in {months} months");
}

/// In how many intervals it is found, if it is within ten: of 50 figures that are known for three days.
fn found(load: Load, planted: fn(f64, usize) -> f64) -> Vec<Option<usize>> {
    (0..50)
        .map(|figure| {
            let mut random = Random(figure * 104_729 + 5);
            let mut state = 0.0;
            let mut course = Course::default();
            for at in 0..3 * DAY {
                course.observe(known(load(&mut random, &mut state, at)));
            }
            (0..10).find(|at| {
                let value = load(&mut random, &mut state, 3 * DAY + at);
                course.observe(known(planted(value, *at))).is_some()
            })
        })
        .collect()
}

#[test]
fn what_is_planted_is_found_within_three_intervals() {
    let doubled: fn(f64, usize) -> f64 = |value, _| value * 2.0;
    let halved: fn(f64, usize) -> f64 = |value, _| value / 2.0;
    let stall: fn(f64, usize) -> f64 = |value, _| value * 20.0;
    let storm: fn(f64, usize) -> f64 = |value, _| value * 6.0;
    for (name, load, planted, at_least) in [
        ("even, doubled", LOADS[0].1, doubled, 45),
        ("even, halved", LOADS[0].1, halved, 45),
        ("daily, doubled", LOADS[1].1, doubled, 45),
        ("daily, halved", LOADS[1].1, halved, 45),
        ("spikes, doubled", LOADS[4].1, doubled, 45),
        ("storms, a stall", LOADS[3].1, stall, 48),
        ("even, a storm", LOADS[0].1, storm, 50),
        // What comes and goes with blocks differs by so much from one interval to the next that a few say little.
        ("blocks, a stall", LOADS[2].1, stall, 30),
    ] {
        let found = found(load, planted);
        let soon = found
            .iter()
            .filter(|at| at.is_some_and(|at| at < 3))
            .count();
        println!(
            "{name}: {soon} of 50 within three, {} within ten",
            found.iter().flatten().count()
        );
        assert!(soon >= at_least, "{name}: {soon}");
    }
}

#[test]
fn an_anomaly_of_which_nothing_more_is_known_is_over_after_a_while() {
    let mut course = Course::default();
    for _ in 0..DAY {
        course.observe(known(1000.0));
    }
    for _ in 0..LASTS {
        course.observe(known(2000.0));
    }
    assert!(course.anomaly().is_some());
    let lasted = (0..DAY).take_while(|_| course.observe(None).is_some());
    assert_eq!(lasted.count(), ADOPTED as usize - LASTS - 1);
}
