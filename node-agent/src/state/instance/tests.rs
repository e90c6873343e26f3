use ckb_probe_crds::{InstanceReport, InstanceState, Lack, RowReport, kinds::rocksdb::Operation};
use proptest::prelude::*;

use super::*;
use crate::{
    kernel::SlotReading,
    mechanism::{Coverage, Reading},
    state::fixtures::{self, calls, calls_of, count, durations, lost, opened, whole},
};

mod events;
mod failures;
mod probes;

const INTERVAL: Duration = Duration::from_secs(10);
const PROCESS: ProcessId = ProcessId {
    pid: 7,
    start_ticks: 100,
};
const SUCCESSOR: ProcessId = ProcessId {
    pid: 8,
    start_ticks: 900,
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn two_operations() -> Instrumented {
    calls("storage", &[Operation::Get, Operation::TxnCommit])
}

fn terms(overhead: Overhead) -> Terms {
    Terms {
        interval: INTERVAL,
        overhead,
        early_death: EARLY_DEATH,
        profile_window: crate::state::slow_calls::WINDOW,
    }
}

fn instance(overhead: Overhead) -> Instance {
    Instance::new(
        InstanceKey::default(),
        vec![two_operations()],
        terms(overhead),
        Duration::ZERO,
    )
}

/// All that the probes ask is there, and counted from now on.
fn attach(instance: &mut Instance, process: ProcessId, now: Duration) {
    let probes = instance.probes.iter();
    let mut first = 0;
    let answers = probes.map(|probe_state| {
        let opened = opened(&probe_state.probe, first);
        first += opened.subscriptions.len() as u16;
        Ok(opened)
    });
    let answers = answers.collect();
    instance.answered(process, 0, answers, now);
}

fn attached() -> Instance {
    let mut instance = instance(Overhead::default());
    attach(&mut instance, PROCESS, Duration::ZERO);
    instance
}

fn observe(instance: &mut Instance, reading: Reading, now: Duration) {
    instance.take(&fixtures::read(reading, now));
}

/// What the kernel says after so many Gets of a microsecond.
fn gets(count: u64) -> Reading {
    let seen = SlotReading {
        max_ns: 1_500,
        ..calls_of(count, 1_000)
    };
    fixtures::reading([(0, whole(seen)), (1, whole(SlotReading::default()))])
}

fn row<'a>(report: &'a InstanceReport, key: &str) -> &'a RowReport {
    let mut rows = report.probes.iter().flat_map(|probe| &probe.rows);
    rows.find(|row| row.key == key).unwrap()
}

fn get(report: &InstanceReport) -> &RowReport {
    row(report, "Get")
}

#[test]
fn totals_grow_and_windows_hold_what_came_between() {
    let mut instance = attached();
    observe(&mut instance, gets(100), seconds(1));
    instance.close_interval(seconds(2), None);
    observe(&mut instance, gets(250), seconds(5));
    instance.close_interval(seconds(12), None);
    let report = instance.report(seconds(12));
    let RowReport { total, window, .. } = get(&report);
    assert_eq!((count(total), durations(total).sum), (250, 250_000));
    assert_eq!((total.sums["bytes"], total.sums["slow"]), (2_500, 0));
    assert_eq!(window.milliseconds, 10_000);
    assert_eq!(count(&window.figures), 150);
    assert_eq!(window.figures.maxima["duration"], 1_500);
}

#[test]
fn the_counters_of_a_new_process_are_added_to_those_of_the_old_one() {
    let mut instance = attached();
    observe(&mut instance, gets(100), seconds(1));
    instance.process_gone(seconds(3));
    attach(&mut instance, SUCCESSOR, seconds(5));
    observe(&mut instance, gets(40), seconds(6));
    let report = instance.report(seconds(6));
    assert_eq!(count(&get(&report).total), 140);
    assert_eq!((report.reattaches, report.gap_milliseconds), (1, 2_000));
}

#[test]
fn a_gap_is_told_while_it_lasts() {
    let mut instance = attached();
    instance.process_gone(seconds(3));
    let report = instance.report(seconds(7));
    assert_eq!(
        (report.state, report.reattaches, report.gap_milliseconds),
        (InstanceState::Waiting, 0, 4_000)
    );
}

#[test]
fn what_was_found_and_is_not_measured_yet_is_not_said_to_have_ended() {
    let report = instance(Overhead::default()).report(seconds(1));
    let standing = (report.state, report.reason);
    assert_eq!(standing, (InstanceState::Waiting, Some(Reason::Attaching)));
    assert!(report.message.contains("was found"), "{}", report.message);
}

#[test]
fn the_wait_for_the_first_process_is_no_gap() {
    let mut instance = instance(Overhead::default());
    instance.process_gone(seconds(1));
    attach(&mut instance, PROCESS, seconds(9));
    let report = instance.report(seconds(9));
    assert_eq!((report.reattaches, report.gap_milliseconds), (0, 0));
}

#[test]
fn firing_is_said_of_counted_calls_only() {
    let mut instance = attached();
    let reason = |instance: &Instance, now| instance.report(now).reason.unwrap();
    assert_eq!(reason(&instance, seconds(1)), Reason::Attaching);
    assert_eq!(reason(&instance, seconds(31)), Reason::Silent);
    observe(&mut instance, gets(1), seconds(32));
    assert_eq!(reason(&instance, seconds(62)), Reason::Firing);
    assert_eq!(reason(&instance, seconds(63)), Reason::Silent);
    observe(&mut instance, gets(1), seconds(64));
    assert_eq!(
        reason(&instance, seconds(64)),
        Reason::Silent,
        "no new call was counted"
    );
}

#[test]
fn losses_add_up_over_processes() {
    let mut instance = attached();
    let losing = |calls, events| Reading {
        lost: vec![lost([0, 1], calls, events)],
        ..gets(1)
    };
    observe(&mut instance, losing(3, 5), seconds(1));
    observe(&mut instance, losing(4, 5), seconds(2));
    instance.process_gone(seconds(3));
    attach(&mut instance, SUCCESSOR, seconds(4));
    observe(&mut instance, losing(2, 1), seconds(5));
    assert_eq!((instance.lost["calls"], instance.lost["events"]), (6, 6));
    let told = &instance.report(seconds(5)).probes[0].lost;
    assert_eq!((told["calls"], told["events"]), (6, 6));
}

#[test]
fn the_cost_of_the_last_interval_is_told() {
    let mut instance = attached();
    instance.close_interval(seconds(2), Some(0.012_345));
    assert_eq!(
        instance.report(seconds(2)).overhead_millipercent,
        Some(1_235)
    );
    instance.close_interval(seconds(12), None);
    assert_eq!(instance.report(seconds(12)).overhead_millipercent, None);
}

#[test]
fn a_breach_detaches_after_three_intervals_and_only_where_the_spec_says_so() {
    for (on_breach, detaches) in [(Breach::Detach, true), (Breach::Report, false)] {
        let mut instance = instance(Overhead {
            max_percent: 1.0,
            on_breach,
            ..Overhead::default()
        });
        attach(&mut instance, PROCESS, Duration::ZERO);
        for interval in 1..=3 {
            assert_eq!(instance.must_detach(), None, "before interval {interval}");
            instance.close_interval(seconds(interval * 10), Some(0.1));
        }
        assert_eq!(instance.must_detach().is_some(), detaches);
    }
}

#[test]
fn a_burst_is_no_breach() {
    let mut instance = instance(Overhead {
        max_percent: 1.0,
        on_breach: Breach::Detach,
        ..Overhead::default()
    });
    attach(&mut instance, PROCESS, Duration::ZERO);
    for (interval, ratio) in (1..).zip([0.1, 0.1, 0.00001, 0.1, 0.1]) {
        instance.close_interval(seconds(interval * 10), Some(ratio));
    }
    assert_eq!(instance.must_detach(), None);
}

#[test]
fn the_first_interval_is_short_and_the_next_ones_are_whole() {
    let mut instance = attached();
    assert_eq!(instance.window_ends(), seconds(2));
    instance.close_interval(seconds(2), None);
    assert_eq!(instance.window_ends(), seconds(12));
}

#[test]
fn a_new_order_keeps_the_totals_of_the_operations_that_stay() {
    let mut instance = attached();
    let [gets, commits] = [100, 5].map(|count| whole(calls_of(count, 1_000)));
    let both = fixtures::reading([(0, gets), (1, commits)]);
    observe(&mut instance, both, seconds(1));
    let other = calls("storage", &[Operation::Write, Operation::Get]);
    instance.reconfigure(vec![other], terms(Overhead::default()));
    let totals = |instance: &Instance, now| -> Vec<(String, u64)> {
        let rows = instance.report(now).probes.remove(0).rows.into_iter();
        rows.map(|row| (row.key, count(&row.total))).collect()
    };
    let named = |totals: [(&str, u64); 2]| totals.map(|(name, n)| (name.to_string(), n));
    // Until it is answered, all is as it was.
    let before = named([("Get", 100), ("TxnCommit", 5)]);
    assert_eq!(totals(&instance, seconds(1)), before);
    instance.suspend(seconds(2));
    attach(&mut instance, PROCESS, seconds(2));
    assert_eq!(
        totals(&instance, seconds(2)),
        named([("Write", 0), ("Get", 100)])
    );
}

#[test]
fn an_operation_that_only_the_binary_lacks_keeps_what_was_counted() {
    let mut instance = attached();
    observe(&mut instance, gets(100), seconds(1));
    instance.process_gone(seconds(2));
    let other = opened(&calls("", &[Operation::TxnCommit]), 0);
    instance.answered(SUCCESSOR, 0, vec![Ok(other)], seconds(3));
    let report = instance.report(seconds(3));
    assert_eq!(count(&get(&report).total), 100);
}

#[test]
fn what_is_lacking_is_said_of_the_target_and_of_the_probe() {
    let mut instance = instance(Overhead::default());
    let lack = Lack {
        reason: Reason::EntryOnly,
        items: Vec::new(),
    };
    let answer = Accepted {
        coverage: Coverage {
            lacks: vec![lack.clone()],
            sentence: "; calls are not timed".to_string(),
            may_grow: false,
        },
        ..opened(&two_operations(), 0)
    };
    assert!(!instance.is_entry_only());
    instance.answered(PROCESS, 2, vec![Ok(answer)], Duration::ZERO);
    observe(&mut instance, gets(1), seconds(1));
    let report = instance.report(seconds(1));
    assert_eq!(
        report.message,
        "measuring process 7; 2 more processes of the container run the same executable and are not measured; calls are \
         not timed"
    );
    assert_eq!(report.probes[0].message, "calls are not timed");
    assert_eq!(report.probes[0].lacks, [lack]);
    assert!(instance.is_entry_only());
}

#[test]
fn a_shorter_interval_does_not_wait_for_a_long_one_to_end() {
    let mut instance = attached();
    instance.close_interval(seconds(2), None);
    assert_eq!(instance.window_ends(), seconds(12));
    let shorter = Terms {
        interval: seconds(3),
        ..terms(Overhead::default())
    };
    instance.reconfigure(vec![two_operations()], shorter);
    assert_eq!(instance.window_ends(), seconds(5));
}

#[test]
fn a_target_that_dies_twice_soon_after_an_attach_is_left_alone() {
    let mut instance = attached();
    instance.process_gone(seconds(4));
    assert_eq!(instance.may_be_killing(), None, "once may be chance");
    attach(&mut instance, SUCCESSOR, seconds(6));
    instance.process_gone(seconds(10));
    let message = instance.may_be_killing().unwrap();
    assert!(message.contains("within 5 s"), "{message}");
    instance.detached(Reason::TargetDied, message, seconds(10));
    assert_eq!(instance.report(seconds(11)).state, InstanceState::Detached);
    instance.reconfigure(vec![two_operations()], terms(Overhead::default()));
    assert_eq!(
        instance.may_be_killing(),
        None,
        "a new order is a new start"
    );
}

#[test]
fn a_target_that_lived_for_a_while_in_between_is_not() {
    let mut instance = attached();
    for (attached, gone) in [(0, 4), (5, 11), (12, 16)] {
        attach(&mut instance, PROCESS, seconds(attached));
        instance.process_gone(seconds(gone));
        assert_eq!(instance.may_be_killing(), None);
    }
}

proptest! {
    #[test]
    fn nothing_that_the_kernel_counts_goes_missing_between_windows(steps in prop::collection::vec((0u64..1000, any::<bool>()), 1..30)) {
        let mut instance = attached();
        let (mut counted, mut windows) = (0, 0);
        for (second, (calls, close)) in (1..).zip(steps) {
            counted += calls;
            observe(&mut instance, gets(counted), seconds(second));
            if close {
                instance.close_interval(seconds(second), None);
                windows += count(&get(&instance.report(seconds(second))).window.figures);
            }
        }
        instance.close_interval(seconds(60), None);
        windows += count(&get(&instance.report(seconds(60))).window.figures);
        prop_assert_eq!(windows, counted);
        prop_assert_eq!(count(&get(&instance.report(seconds(60))).total), counted);
    }
}
