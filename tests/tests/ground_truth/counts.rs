//! Every call is counted, once, with its bytes, whoever else calls what at the same time.

use std::time::Duration;

use ckb_probe_crds::kinds::rocksdb::Operation as Asked;
use ckb_probe_testkit::EVERY_FUNCTION;
use ckb_probe_tests::{fixture::GroundTruth, rows};

use crate::harness::{
    attach, by_every_tier, bytes, count, everything, lost, operation, operations, these, truth,
};

#[test]
fn every_call_of_every_function_is_counted_to_the_last() {
    by_every_tier(|means| {
        let mut fixture =
            GroundTruth::start("ground-truth", &["--threads", "4"], &EVERY_FUNCTION).unwrap();
        let mut session = attach(&fixture, means, everything());
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        assert_eq!(operations(&session).len(), 17);
        for series in operations(&session) {
            let truth = truth(&expected, series.name);
            assert!(truth.calls > 0, "{}", series.name);
            assert_eq!(
                [
                    count(series.all),
                    rows::durations(&series.all.total).count(),
                    series.all.samples
                ],
                [truth.calls; 3],
                "{} by {means:?}",
                series.name
            );
        }
        assert_eq!(lost(session.instance()), [0, 0, 0]);
    });
}

#[test]
fn a_second_round_is_added_to_the_first_and_has_a_window_of_its_own() {
    by_every_tier(|means| {
        let mut fixture = GroundTruth::start("ground-truth", &[], &EVERY_FUNCTION).unwrap();
        let mut session = attach(&fixture, means, everything());
        let first = fixture.go().unwrap();
        session.close_interval().unwrap();
        let second = fixture.go().unwrap();
        session.close_interval().unwrap();
        let report = session.instance().report(Duration::ZERO);
        let reports: Vec<_> = rows::reported(&report).collect();
        assert_eq!(reports.len(), 17);
        for (series, report) in operations(&session).into_iter().zip(reports) {
            let operation = series.name;
            assert_eq!(report.key, operation);
            let (first, second) = (truth(&first, series.name), truth(&second, series.name));
            assert_eq!(count(series.all), first.calls + second.calls);
            let figures = &report.window.figures;
            assert_eq!(rows::calls(figures), second.calls, "{operation}");
            let timed = rows::durations(figures).count();
            assert_eq!(timed, second.calls, "{operation}");
            assert_eq!(report.window.samples, second.calls, "{operation}");
            assert_eq!(
                report.window.recorded_milliseconds, report.window.milliseconds,
                "{operation}"
            );
            let longest = *second.durations_ns.iter().max().unwrap();
            assert!(
                rows::longest(figures) + means.calibration.trap_ns > longest,
                "{operation}: {} for {longest}",
                rows::longest(figures)
            );
            // The program's own clock around the call has the whole probe in it.
            let outer = *second.outer_durations_ns.iter().max().unwrap();
            assert!(
                rows::longest(figures) <= outer,
                "{operation}: {} for {outer} at most",
                rows::longest(figures)
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
        for series in operations(&session) {
            let operation = series.name;
            let bytes = bytes(operation, &truth(&expected, series.name));
            assert_ne!(bytes, Some(0), "{operation}");
            let counted = rows::bytes(&series.all.total);
            assert_eq!(counted, bytes, "{operation} by {means:?}");
        }
    });
}

#[test]
fn a_recursive_call_and_its_caller_are_both_measured() {
    by_every_tier(|means| {
        let options = ["--recursions", "3"];
        let plan = ["rocksdb_write 200 constant:100000"];
        let mut fixture = GroundTruth::start("ground-truth", &options, &plan).unwrap();
        let mut session = attach(&fixture, means, these(&[Asked::Write]));
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        let truth = truth(&expected, "Write");
        assert_eq!(truth.calls, 800);
        let counted = count(operation(&session, "Write").all);
        assert_eq!(counted, truth.calls, "{means:?}");
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
        let all = operations(&session).into_iter();
        assert_eq!(all.map(|series| count(series.all)).max(), Some(0));
        let expected = chosen.go().unwrap();
        session.read().unwrap();
        for series in operations(&session) {
            assert_eq!(count(series.all), truth(&expected, series.name).calls);
        }
    });
}
