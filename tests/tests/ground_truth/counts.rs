//! Every call is counted, once, with its bytes, whoever else calls what at the same time.

use std::time::Duration;

use ckb_probe_tests::fixture::GroundTruth;

use crate::harness::{
    EVERY_FUNCTION, attach, by_every_tier, bytes, everything, lost, series, truth,
};

#[test]
fn every_call_of_every_function_is_counted_to_the_last() {
    by_every_tier(|means| {
        let mut fixture =
            GroundTruth::start("ground-truth", &["--threads", "4"], &EVERY_FUNCTION).unwrap();
        let mut session = attach(&fixture, means, everything());
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        assert_eq!(session.instance.series.len(), 17);
        for series in &session.instance.series {
            let truth = truth(&expected, series);
            assert!(truth.calls > 0, "{}", series.slot.operation);
            assert_eq!(
                [
                    series.all.total.count,
                    series.all.histogram.count(),
                    series.all.samples
                ],
                [truth.calls; 3],
                "{} by {means:?}",
                series.slot.operation
            );
        }
        assert_eq!(lost(&session.instance), [0, 0, 0]);
    });
}

#[test]
fn a_second_round_is_added_to_the_first_and_has_a_window_of_its_own() {
    by_every_tier(|means| {
        let mut fixture = GroundTruth::start("ground-truth", &[], &EVERY_FUNCTION).unwrap();
        let mut session = attach(&fixture, means, everything());
        let first = fixture.go().unwrap();
        session.close_window().unwrap();
        let second = fixture.go().unwrap();
        session.close_window().unwrap();
        let reports = session.instance.report(Duration::ZERO).operations;
        assert_eq!(reports.len(), 17);
        for (series, report) in session.instance.series.iter().zip(reports) {
            let operation = series.slot.operation;
            let (first, second) = (truth(&first, series), truth(&second, series));
            assert_eq!(series.all.total.count, first.calls + second.calls);
            assert_eq!(report.window.counters.count, second.calls, "{operation}");
            assert_eq!(report.window.histogram.count(), second.calls, "{operation}");
            assert_eq!(report.window.samples, second.calls, "{operation}");
            assert_eq!(
                report.window.recorded_milliseconds, report.window.milliseconds,
                "{operation}"
            );
            let longest = *second.durations_ns.iter().max().unwrap();
            assert!(
                report.window.max_nanoseconds + means.calibration.trap_ns > longest,
                "{operation}: {} for {longest}",
                report.window.max_nanoseconds
            );
        }
    });
}

#[test]
fn bytes_are_those_of_keys_and_values_written_and_of_values_read() {
    by_every_tier(|means| {
        let mut fixture =
            GroundTruth::start("ground-truth", &["--threads", "2"], &EVERY_FUNCTION).unwrap();
        let mut session = attach(&fixture, means, everything());
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        for series in &session.instance.series {
            let operation = series.slot.operation;
            let bytes = bytes(operation, &truth(&expected, series));
            assert_eq!(series.slot.has_bytes(), bytes.is_some(), "{operation}");
            assert_ne!(bytes, Some(0), "{operation}");
            if let Some(bytes) = bytes {
                assert_eq!(series.all.total.bytes, bytes, "{operation} by {means:?}");
            }
        }
    });
}

#[test]
fn a_recursive_call_and_its_caller_are_both_measured() {
    by_every_tier(|means| {
        let options = ["--recursions", "3"];
        let plan = ["rocksdb_write 200 constant:100000"];
        let mut fixture = GroundTruth::start("ground-truth", &options, &plan).unwrap();
        let mut session = attach(&fixture, means, everything());
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        let series = series(&session, "Write");
        let truth = truth(&expected, series);
        assert_eq!(truth.calls, 800);
        assert_eq!(series.all.total.count, truth.calls, "{means:?}");
    });
}

#[test]
fn of_two_processes_of_one_binary_only_the_chosen_one_is_measured() {
    by_every_tier(|means| {
        let mut chosen = GroundTruth::start("ground-truth", &[], &EVERY_FUNCTION).unwrap();
        let mut other = GroundTruth::start("ground-truth", &[], &EVERY_FUNCTION).unwrap();
        let mut session = attach(&chosen, means, everything());
        other.go().unwrap();
        session.read().unwrap();
        let all = session.instance.series.iter();
        assert_eq!(all.map(|series| series.all.total.count).max(), Some(0));
        let expected = chosen.go().unwrap();
        session.read().unwrap();
        for series in &session.instance.series {
            assert_eq!(series.all.total.count, truth(&expected, series).calls);
        }
    });
}
