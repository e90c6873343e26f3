use std::sync::Arc;

use ckb_probe_crds::{SliceShape, kinds::rocksdb::Operation};
use proptest::prelude::*;

use super::*;
use crate::{
    mechanism::{Detail, stacks::Callers},
    state::{
        Fact,
        fixtures::{bare, call, calls, opened},
        probe::ProbeState,
    },
};

const EVERY: Duration = Duration::from_secs(600);

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

fn profile(of: &Finished) -> &Profile {
    of.stacks.as_ref().unwrap()
}

#[test]
fn a_window_is_ten_minutes_of_the_clock_and_is_told_once_it_is_over() {
    let mut calls = SlowCalls::default();
    calls.add(
        &call(1_199_999, 5, &["commit", "insert"]),
        "TxnCommit",
        1.0,
        EVERY,
    );
    calls.add(
        &call(600_000, 3, &["commit", "insert"]),
        "TxnCommit",
        1.0,
        EVERY,
    );
    calls.add(&call(1_200_000, 2, &["commit"]), "TxnCommit", 1.0, EVERY);
    assert!(
        calls.take_over(at(1_201_999)).is_empty(),
        "some may be late"
    );
    let told = calls.take_over(at(1_202_000));
    let [one] = &told[..] else {
        panic!("{told:?}");
    };
    let window = ProfileWindow {
        number: 1,
        began_at: MicroTime(at(600_000)),
        milliseconds: 600_000,
    };
    assert_eq!((one.mode, &one.window), (ProfileMode::SlowCalls, &window));
    let counts = ProfileCounts {
        samples: 2,
        complete: 2,
        ..ProfileCounts::default()
    };
    assert_eq!(one.counts, counts);
    let stacks = profile(one).stacks.sorted();
    let [stack] = &stacks[..] else {
        panic!("{stacks:?}");
    };
    let names: Vec<&str> = stack.frames.iter().map(|frame| frame.name).collect();
    assert_eq!(names, ["insert", "commit", "TxnCommit"]);
    assert_eq!(stack.weights, [2, 8], "calls and nanoseconds");
    assert_eq!(stack.thread, "ChainService");
    assert_eq!(profile(one).window.start_ns, 600_000_000_000);
    // The other one runs, and is told as it stands where there will be no more.
    let told = calls.take_all(at(1_230_000));
    let window = &told[0].window;
    assert_eq!((window.number, window.milliseconds), (2, 30_000));
    assert!(calls.take_all(at(1_230_000)).is_empty());
}

#[test]
fn a_call_of_a_function_that_is_seldom_recorded_weighs_as_many_as_it_stands_for() {
    let mut calls = SlowCalls::default();
    // Both as slow as often, and one of them was met once in twenty times and a half.
    for second in 0..82 {
        let event = call(1_000 * second, 1_000, &["commit"]);
        calls.add(&event, "TxnCommit", 1.0, EVERY);
        if second % 41 < 2 {
            calls.add(&call(1_000 * second, 1_000, &["read"]), "Get", 20.5, EVERY);
        }
    }
    let told = calls.take_all(at(600_000));
    let weights: Vec<_> = profile(&told[0]).stacks.sorted();
    let weights: Vec<_> = weights.iter().map(|stack| stack.weights).collect();
    assert_eq!(weights, [[82, 82_000], [82, 82_000]]);
    // And as many as were told of.
    assert_eq!(told[0].counts.samples, 86);
}

#[test]
fn where_nobody_is_known_to_have_called_nothing_is_told() {
    let mut calls = SlowCalls::default();
    assert!(calls.take_all(at(0)).is_empty());
    calls.add(&bare(1_000, 9), "Get", 1.0, EVERY);
    assert!(calls.take_over(at(700_000)).is_empty());
    assert!(calls.0.is_empty(), "and nothing is kept of it");
    calls.add(&bare(600_000, 9), "Get", 1.0, EVERY);
    calls.add(&call(600_001, 1, &["read"]), "Get", 1.0, EVERY);
    let told = calls.take_over(at(1_300_000));
    assert_eq!((told[0].counts.samples, told[0].counts.lost), (1, 1));
}

#[test]
fn a_stack_that_is_cut_is_told_to_be() {
    let mut event = call(0, 1, &["read"]);
    event.details = vec![(
        "stack",
        Detail::Callers(Arc::new(Callers {
            complete: false,
            ..event.callers().unwrap().clone()
        })),
    )];
    let mut calls = SlowCalls::default();
    calls.add(&event, "Get", 1.0, EVERY);
    let told = calls.take_all(at(1));
    assert_eq!((told[0].counts.samples, told[0].counts.complete), (1, 0));
    let stacks = profile(&told[0]).stacks.sorted();
    let names: Vec<&str> = stacks[0].frames.iter().map(|frame| frame.name).collect();
    assert_eq!(names, [TRUNCATED, "read", "Get"]);
}

#[test]
fn a_window_that_begins_later_was_begun_before_the_clock_was_set_back() {
    let mut calls = SlowCalls::default();
    calls.add(&call(6_000_000, 1, &["read"]), "Get", 1.0, EVERY);
    assert!(calls.take_over(at(5_999_000)).is_empty());
    let told = calls.take_over(at(1_000_000));
    assert_eq!(
        (told[0].window.number, told[0].window.milliseconds),
        (10, 0)
    );
}

#[test]
fn a_clock_that_leaps_fills_no_memory() {
    let mut calls = SlowCalls::default();
    for number in 0..50 {
        calls.add(&call(number * 600_000, 1, &["read"]), "Get", 1.0, EVERY);
        assert!(calls.0.len() <= MOST);
    }
    // Nor does a window of no length, or a time before 1970.
    let early = Event {
        time: Timestamp::from_second(-7).unwrap(),
        ..call(0, 1, &["read"])
    };
    calls.add(&early, "Get", 1.0, Duration::ZERO);
    assert!(calls.0.len() <= MOST);
}

#[test]
fn whoever_calls_a_window_takes_no_more_memory_than_it_may_and_weighs_what_it_weighs() {
    let mut calls = SlowCalls::default();
    let long = "n".repeat(1_000);
    for number in 0..4_000_u64 {
        let name = format!("{number}{long}");
        let other = format!("other{number}");
        let event = call(1, number + 1, &[&name, &other, "run"]);
        calls.add(&event, "Get", 1.0, EVERY);
        let bytes = calls.0[&0].profile.stacks.bytes();
        assert!(bytes <= WINDOW_BYTES, "{bytes}");
    }
    let told = calls.take_all(at(2));
    let stacks = &profile(&told[0]).stacks;
    assert_eq!(stacks.total(0), 4_000);
    assert_eq!(stacks.total(1), 4_000 * 4_001 / 2);
    assert!(stacks.pruned() > 0 && stacks.pruned() < stacks.total(1));
    // The heaviest are whole.
    assert_eq!(stacks.sorted().last().map(|one| one.frames.len()), Some(4));
    assert_eq!(told[0].counts.samples, 4_000);
}

#[test]
fn a_probe_gathers_what_it_asks_for_until_it_asks_for_something_else() {
    let probe = calls("storage", &[Operation::Get]);
    let mut probe_state = ProbeState::new(probe.clone());
    let mut answer = opened(&probe, 0);
    let slow = call(0, 5, &["read"]);
    probe_state.answered(Ok(answer.clone()), false, Duration::ZERO);
    assert!(probe_state.event(&slow, EVERY).is_some());
    assert!(
        probe_state.slow_calls.0.is_empty(),
        "nobody asked who called"
    );

    answer.subscriptions[0].reports_stacks = true;
    // Also over what is measured anew: the process may be another.
    for _ in 0..2 {
        probe_state.answered(Ok(answer.clone()), false, Duration::ZERO);
        assert!(probe_state.event(&slow, EVERY).is_some());
        probe_state.end(Duration::ZERO);
    }
    let mut probe_state = probe_state.asked(probe);
    let told = probe_state.slow_calls.clone().take_all(at(1));
    let stacks = profile(&told[0]).stacks.sorted();
    let names: Vec<&str> = stacks[0].frames.iter().map(|frame| frame.name).collect();
    assert_eq!(names, ["read", "Get"]);
    assert_eq!(stacks[0].weights, [2, 10]);
    probe_state = probe_state.asked(calls("storage", &[Operation::Write]));
    assert!(probe_state.slow_calls.0.is_empty());
}

#[test]
fn a_probe_weighs_slow_calls_by_the_part_of_the_time_in_which_they_were_recorded() {
    let probe = calls("storage", &[Operation::Get]);
    let mut probe_state = ProbeState::new(probe.clone());
    let mut answer = opened(&probe, 0);
    answer.subscriptions[0].reports_stacks = true;
    probe_state.answered(Ok(answer), false, Duration::ZERO);
    let group = probe_state.series[0].subscription.group;
    let fact = |at, fact| crate::state::TimedFact {
        at: Duration::from_millis(at),
        time: Duration::from_millis(at),
        fact,
    };
    let groups = || [group].into();
    probe_state.event(&call(0, 5, &["read"]), EVERY);
    // Slices of 20 ms in cells of a second.
    probe_state.take(&fact(0, Fact::Paused(groups())));
    for second in 0..3 {
        let slice = SliceShape {
            open: 0.02,
            cell: 1.0,
            long: false,
        };
        let began = Fact::CellBegan {
            groups: groups(),
            slice,
            time: Duration::from_secs(second),
        };
        probe_state.take(&fact(1_000 * second, began));
        probe_state.event(&call(0, 7, &["read"]), EVERY);
    }
    let weight = probe_state.weight(&call(0, 7, &["read"]));
    assert!(weight.is_some_and(|weight| (weight - 50.0).abs() < 1e-9));
    let told = probe_state.slow_calls.take_all(at(1));
    let stacks = profile(&told[0]).stacks.sorted();
    assert_eq!(stacks[0].weights, [1 + 3 * 50, 5 + 3 * 50 * 7]);
}

proptest! {
    #[test]
    fn each_call_is_in_the_window_in_which_it_returned_and_in_no_other(
        times in prop::collection::vec((0..15_000_i64, 1..1_000_u64, 0..3_usize), 0..60),
        every in 2_000..4_000_u64,
    ) {
        let window = Duration::from_millis(every);
        let mut times = times;
        times.sort_unstable();
        let mut calls = SlowCalls::default();
        let mut told = Vec::new();
        for (time, weight, caller) in &times {
            told.extend(calls.take_over(at(*time)));
            calls.add(&call(*time, *weight, &[["a", "b", "c"][*caller]]), "Get", 1.0, window);
        }
        told.extend(calls.take_over(at(100_000)));
        prop_assert!(calls.0.is_empty());
        let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (time, weight, _) in &times {
            let (calls, nanos) = expected.entry(*time as u64 / every).or_default();
            *calls += 1;
            *nanos += weight;
        }
        let found: BTreeMap<u64, (u64, u64)> = told
            .iter()
            .map(|one| {
                let stacks = &profile(one).stacks;
                (one.window.number, (stacks.total(0), stacks.total(1)))
            })
            .collect();
        prop_assert_eq!(found.len(), told.len(), "each once");
        prop_assert_eq!(found, expected);
    }
}
