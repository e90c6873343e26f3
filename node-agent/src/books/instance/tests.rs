use ckb_probe_crds::{
    Counters, OperationReport, Window,
    histogram::bucket,
    kinds::rocksdb::{Operation, RocksDbProbe},
};
use proptest::prelude::*;

use super::*;
use crate::{host::slots, probe::SlotReading};

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

fn two_operations() -> Vec<Slot> {
    slots(RocksDbProbe {
        operations: vec![Operation::Get, Operation::TxnCommit],
        slow_threshold: Duration::from_millis(1).into(),
        ..RocksDbProbe::default()
    })
}

fn terms(overhead: Overhead) -> Terms {
    Terms {
        interval: INTERVAL,
        overhead,
        early_death: EARLY_DEATH,
    }
}

fn instance(overhead: Overhead) -> Instance {
    Instance::new(
        InstanceKey::default(),
        two_operations(),
        terms(overhead),
        Duration::ZERO,
    )
}

fn attached() -> Instance {
    let mut instance = instance(Overhead::default());
    instance.attached(PROCESS, 0, Coverage::default(), Duration::ZERO);
    instance
}

/// Every operation is measured all of the time.
fn all(_: usize) -> bool {
    false
}

/// What the kernel says after so many Gets of a microsecond.
fn gets(count: u64) -> Reading {
    let mut get = SlotReading {
        sum_ns: count * 1_000,
        bytes: count * 10,
        max_ns: 1_500,
        ..SlotReading::default()
    };
    get.histogram.add(bucket(1_000), count);
    Reading {
        slots: vec![get, SlotReading::default()],
        ..Reading::default()
    }
}

fn get(report: &InstanceReport) -> &OperationReport {
    report
        .operations
        .iter()
        .find(|operation| operation.operation == "Get")
        .unwrap()
}

#[test]
fn totals_grow_and_windows_hold_what_came_between() {
    let mut instance = attached();
    instance.observe(&gets(100), seconds(1));
    instance.close_window(seconds(2), None, all);
    instance.observe(&gets(250), seconds(5));
    instance.close_window(seconds(12), None, all);
    let report = instance.report(seconds(12));
    assert_eq!(
        get(&report).total,
        Counters {
            count: 250,
            nanoseconds: 250_000,
            bytes: 2_500,
            slow: 0
        }
    );
    let Window {
        milliseconds,
        counters,
        max_nanoseconds,
        histogram,
        ..
    } = &get(&report).window;
    assert_eq!(
        (*milliseconds, counters.count, *max_nanoseconds),
        (10_000, 150, 1_500)
    );
    assert_eq!(histogram.count(), 150);
}

#[test]
fn the_counters_of_a_new_process_are_added_to_those_of_the_old_one() {
    let mut instance = attached();
    instance.observe(&gets(100), seconds(1));
    instance.process_gone(seconds(3));
    instance.attached(SUCCESSOR, 0, Coverage::default(), seconds(5));
    instance.observe(&gets(40), seconds(6));
    let report = instance.report(seconds(6));
    assert_eq!(get(&report).total.count, 140);
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
fn the_wait_for_the_first_process_is_no_gap() {
    let mut instance = instance(Overhead::default());
    instance.process_gone(seconds(1));
    instance.attached(PROCESS, 0, Coverage::default(), seconds(9));
    let report = instance.report(seconds(9));
    assert_eq!((report.reattaches, report.gap_milliseconds), (0, 0));
}

#[test]
fn firing_is_said_of_counted_calls_only() {
    let mut instance = attached();
    let reason = |instance: &Instance, now| instance.report(now).reason.unwrap();
    assert_eq!(reason(&instance, seconds(1)), Reason::Attaching);
    assert_eq!(reason(&instance, seconds(31)), Reason::Silent);
    instance.observe(&gets(1), seconds(32));
    assert_eq!(reason(&instance, seconds(62)), Reason::Firing);
    assert_eq!(reason(&instance, seconds(63)), Reason::Silent);
    instance.observe(&gets(1), seconds(64));
    assert_eq!(
        reason(&instance, seconds(64)),
        Reason::Silent,
        "no new call was counted"
    );
}

#[test]
fn losses_add_up_over_processes() {
    let mut instance = attached();
    instance.observe(
        &Reading {
            calls_lost: 3,
            events_lost: 5,
            ..gets(1)
        },
        seconds(1),
    );
    instance.observe(
        &Reading {
            calls_lost: 4,
            events_lost: 5,
            ..gets(1)
        },
        seconds(2),
    );
    instance.process_gone(seconds(3));
    instance.attached(SUCCESSOR, 0, Coverage::default(), seconds(4));
    instance.observe(
        &Reading {
            calls_lost: 2,
            events_lost: 1,
            ..gets(1)
        },
        seconds(5),
    );
    assert_eq!((instance.calls_lost, instance.events_lost), (6, 6));
}

#[test]
fn the_cost_of_the_last_interval_is_told() {
    let mut instance = attached();
    instance.close_window(seconds(2), Some(0.012_345), all);
    assert_eq!(
        instance.report(seconds(2)).overhead_millipercent,
        Some(1_235)
    );
    instance.close_window(seconds(12), None, all);
    assert_eq!(instance.report(seconds(12)).overhead_millipercent, None);
}

#[test]
fn a_breach_detaches_after_three_intervals_and_only_where_the_spec_says_so() {
    for (on_breach, detaches) in [(Breach::Detach, true), (Breach::Report, false)] {
        let mut instance = instance(Overhead {
            max_percent: 1.0,
            on_breach,
        });
        instance.attached(PROCESS, 0, Coverage::default(), Duration::ZERO);
        for interval in 1..=3 {
            assert_eq!(instance.must_detach(), None, "before interval {interval}");
            instance.close_window(seconds(interval * 10), Some(0.1), all);
        }
        assert_eq!(instance.must_detach().is_some(), detaches);
    }
}

#[test]
fn a_burst_is_no_breach() {
    let mut instance = instance(Overhead {
        max_percent: 1.0,
        on_breach: Breach::Detach,
    });
    instance.attached(PROCESS, 0, Coverage::default(), Duration::ZERO);
    for (interval, ratio) in (1..).zip([0.1, 0.1, 0.00001, 0.1, 0.1]) {
        instance.close_window(seconds(interval * 10), Some(ratio), all);
    }
    assert_eq!(instance.must_detach(), None);
}

#[test]
fn the_first_interval_is_short_and_the_next_ones_are_whole() {
    let mut instance = attached();
    assert_eq!(instance.window_ends(), seconds(2));
    instance.close_window(seconds(2), None, all);
    assert_eq!(instance.window_ends(), seconds(12));
}

#[test]
fn a_new_order_keeps_the_totals_of_the_operations_that_stay() {
    let mut instance = attached();
    instance.observe(&gets(100), seconds(1));
    let fewer = slots(RocksDbProbe {
        operations: vec![Operation::Write, Operation::Get],
        slow_threshold: Duration::from_millis(5).into(),
        ..RocksDbProbe::default()
    });
    instance.reconfigure(fewer, terms(Overhead::default()), seconds(2));
    let report = instance.report(seconds(2));
    let totals: Vec<_> = report
        .operations
        .iter()
        .map(|operation| (operation.operation.as_str(), operation.total.count))
        .collect();
    assert_eq!(totals, [("Write", 0), ("Get", 100)]);
    assert_eq!(instance.series[1].slot.slow_threshold_ns, 5_000_000);
}

#[test]
fn a_missing_operation_has_no_figures_and_its_function_is_named() {
    let mut instance = instance(Overhead::default());
    let coverage = Coverage {
        missing_operations: vec!["TxnCommit".to_string()],
        missing_symbols: vec!["rocksdb_transaction_commit".to_string()],
        stripped: true,
        ..Coverage::default()
    };
    instance.attached(PROCESS, 0, coverage, Duration::ZERO);
    let report = instance.report(seconds(1));
    assert_eq!(report.operations.len(), 1);
    assert_eq!(report.missing_operations, ["TxnCommit"]);
    for word in ["TxnCommit", "rocksdb_transaction_commit", "stripped"] {
        assert!(report.message.contains(word), "{}", report.message);
    }
}

#[test]
fn a_target_that_dies_twice_soon_after_an_attach_is_left_alone() {
    let mut instance = attached();
    instance.process_gone(seconds(4));
    assert_eq!(instance.may_be_killing(), None, "once may be chance");
    instance.attached(SUCCESSOR, 0, Coverage::default(), seconds(6));
    instance.process_gone(seconds(10));
    let message = instance.may_be_killing().unwrap();
    assert!(message.contains("within 5 s"), "{message}");
    instance.detached(Reason::TargetDied, message);
    assert_eq!(instance.report(seconds(11)).state, InstanceState::Detached);
    instance.reconfigure(two_operations(), terms(Overhead::default()), seconds(12));
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
        instance.attached(PROCESS, 0, Coverage::default(), seconds(attached));
        instance.process_gone(seconds(gone));
        assert_eq!(instance.may_be_killing(), None);
    }
}

#[test]
fn the_slowest_calls_of_an_interval_are_listed_slowest_first() {
    let mut instance = attached();
    for nanoseconds in [5, 90, 20, 70, 10, 60, 30, 80, 40, 50, 100, 15] {
        instance.slow(SlowCallReport {
            nanoseconds,
            ..SlowCallReport::default()
        });
    }
    assert!(instance.report(seconds(1)).slow_calls.is_empty());
    instance.close_window(seconds(2), None, all);
    let listed = |instance: &Instance| -> Vec<u64> {
        let calls = instance.report(seconds(2)).slow_calls;
        calls.iter().map(|call| call.nanoseconds).collect()
    };
    assert_eq!(listed(&instance), [100, 90, 80, 70, 60, 50, 40, 30, 20, 15]);
    instance.close_window(seconds(12), None, all);
    assert_eq!(listed(&instance), [0; 0]);
}

proptest! {
    #[test]
    fn nothing_that_the_kernel_counts_goes_missing_between_windows(steps in prop::collection::vec((0u64..1000, any::<bool>()), 1..30)) {
        let mut instance = attached();
        let (mut counted, mut windows) = (0, 0);
        for (second, (calls, close)) in (1..).zip(steps) {
            counted += calls;
            instance.observe(&gets(counted), seconds(second));
            if close {
                instance.close_window(seconds(second), None, all);
                windows += get(&instance.report(seconds(second))).window.counters.count;
            }
        }
        instance.close_window(seconds(60), None, all);
        windows += get(&instance.report(seconds(60))).window.counters.count;
        prop_assert_eq!(windows, counted);
        prop_assert_eq!(get(&instance.report(seconds(60))).total.count, counted);
    }
}
