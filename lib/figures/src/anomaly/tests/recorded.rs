//! The same of what was recorded of real nodes that were healthy: two of CKB 0.210 that mined empty blocks, side by side on a machine of two
//! cores that did nothing else, by `ckb-probe record --preset storage --interval 1s`, in intervals of 2 s.
//!
//! A line for each figure, and in it what it was in each interval, and thousandths of its error behind a `~`; `-` where it was not known. The
//! test `figures_of_a_record` of ckb-probe-report prints them of any record.

use super::*;

const RECORDED: [(&str, &str); 2] = [
    (
        "a block each half second",
        include_str!("recorded/half-second.txt"),
    ),
    (
        "a block each tenth of a second",
        include_str!("recorded/tenth.txt"),
    ),
];

/// What a rhythm takes that goes on where one stretch is put behind another.
const STRETCH: usize = 60;

/// Each figure of a record by its name.
fn figures(text: &str) -> Vec<(&str, Vec<Option<Known>>)> {
    let number = |text: &str| text.parse::<f64>().unwrap();
    let known = |text: &str| {
        let (value, error) = text.split_once('~')?;
        Some(Known {
            value: number(value),
            error: number(error) / 1e3,
        })
    };
    let lines = text.lines().map(|line| {
        let (name, values) = line.split_once(": ").unwrap();
        (name, values.split(' ').map(known).collect())
    });
    lines.collect()
}

fn begins_of(values: impl Iterator<Item = Option<Known>>) -> usize {
    let mut course = Course::default();
    let mut before = false;
    let begun = values.map(|value| {
        let now = course.observe(value).is_some();
        usize::from(now && !std::mem::replace(&mut before, now))
    });
    begun.sum()
}

#[test]
fn of_nodes_that_were_recorded_while_they_were_healthy_nothing_is_unusual() {
    for (name, text) in RECORDED {
        let figures = figures(text);
        assert!(figures.len() >= 8, "{name}: {}", figures.len());
        for (figure, values) in figures {
            assert!(values.len() >= 800, "{name}, {figure}: {}", values.len());
            let begun = begins_of(values.into_iter());
            assert_eq!(begun, 0, "{name}, {figure}");
        }
    }
}

/// Stretches of the record in an order that chance decides, for a month.
#[test]
fn a_month_of_stretches_that_were_recorded_has_one_false_alarm_at_most() {
    for (name, text) in RECORDED {
        let figures = figures(text);
        let mut alarms = Vec::new();
        for (number, (figure, values)) in figures.iter().enumerate() {
            let mut random = Random(number as u64 * 7919 + 17);
            let last = values.len() - STRETCH;
            let stretches = (0..MONTH / STRETCH).flat_map(|_| {
                let from = (random.uniform() * last as f64) as usize;
                values[from..from + STRETCH].iter().copied()
            });
            let begun = begins_of(stretches);
            if begun > 0 {
                alarms.push((figure, begun));
            }
        }
        println!("{name}: {alarms:?}");
        let all: usize = alarms.iter().map(|(_, begun)| begun).sum();
        assert!(all <= 1, "{name}: {alarms:?}");
    }
}

/// What is twice or half as much from then on is found at once, of all figures that are known in nine intervals of ten.
#[test]
fn what_is_twice_or_half_as_much_behind_a_record_is_found_within_three_intervals() {
    for (name, text) in RECORDED {
        let figures = figures(text);
        let is_known =
            |values: &[Option<Known>]| values.iter().flatten().count() * 10 > values.len() * 9;
        let known = figures.iter().filter(|(_, values)| is_known(values));
        for (figure, values) in known {
            for times in [2.0, 0.5] {
                let mut course = Course::default();
                for value in values {
                    course.observe(*value);
                }
                let again = values.iter().rev().take(10).flatten();
                let planted = again.map(|one| Known {
                    value: one.value * times,
                    ..*one
                });
                let mut told = planted.map(|value| course.observe(Some(value)).is_some());
                let at = told.position(|told| told);
                println!("{name}, {figure}, {times} times: {at:?}");
                assert!(at.is_some_and(|at| at < LASTS), "{name}, {figure}");
            }
        }
    }
}
