//! The engine against a program whose calls are known: on this machine's kernel, as root.

use std::{sync::OnceLock, time::Duration};

use ckb_probe_agent::{
    host::{Session, find_process},
    instance::Series,
    probe::{Calibration, Tier, calibrate},
};
use ckb_probe_crds::kinds::rocksdb::{Operation, RocksDbProbe};
use ckb_probe_tests::fixture::{FunctionTruth, GroundTruth, Truth};

const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// What the documentation promises.
const QUANTILE_ERROR: f64 = 0.032;

fn calibration() -> Calibration {
    static CALIBRATION: OnceLock<Calibration> = OnceLock::new();
    *CALIBRATION.get_or_init(|| calibrate(Tier::PerfEvent).unwrap())
}

fn attach(fixture: &GroundTruth, slow_threshold: Duration) -> Session {
    let process = find_process(Some(fixture.pid()), "").unwrap();
    let kind = RocksDbProbe {
        operations: Operation::ALL.to_vec(),
        slow_threshold: slow_threshold.into(),
    };
    let hour = Duration::from_secs(3600);
    Session::attach(Tier::PerfEvent, process, kind, hour, calibration()).unwrap()
}

fn series<'a>(session: &'a Session, operation: &str) -> &'a Series {
    let mut all = session.instance.series.iter();
    all.find(|series| series.slot.operation == operation)
        .unwrap()
}

/// The truth of an operation: that of all its functions.
fn truth(truth: &Truth, series: &Series) -> FunctionTruth {
    let mut sum = FunctionTruth::default();
    for function in series.slot.functions {
        let Some(one) = truth.functions.get(function.symbol) else {
            continue;
        };
        sum.calls += one.calls;
        sum.key_bytes += one.key_bytes;
        sum.value_bytes += one.value_bytes;
        sum.durations_ns.extend(&one.durations_ns);
    }
    sum
}

const EVERY_FUNCTION: [&str; 14] = [
    "rocksdb_get_pinned_cf 20000 constant:1000",
    "rocksdb_transaction_get_pinned_cf 5000 uniform:500..5000",
    "rocksdb_transaction_get_for_update_cf 700 uniform:500..5000",
    "rocksdb_transaction_put_cf 3000 uniform:500..3000",
    "rocksdb_transaction_delete_cf 411 constant:1000",
    "rocksdb_transaction_commit 300 lognormal:200000,0.5",
    "rocksdb_write 123 constant:30000",
    "rocksdb_put 77 constant:1000",
    "rocksdb_put_cf 78 constant:1000",
    "rocksdb_delete 55 constant:1000",
    "rocksdb_delete_cf 56 constant:1000",
    "rocksdb_create_iterator_cf 91 constant:1000",
    "rocksdb_transaction_create_iterator_cf 92 constant:1000",
    "rocksdb_multi_get_cf 33 constant:1000",
];

#[test]
fn every_call_of_every_function_is_counted_to_the_last() {
    let mut fixture =
        GroundTruth::start("ground-truth", &["--threads", "4"], &EVERY_FUNCTION).unwrap();
    let mut session = attach(&fixture, Duration::from_millis(1));
    let expected = fixture.go().unwrap();
    session.read().unwrap();
    for series in &session.instance.series {
        let truth = truth(&expected, series);
        assert_eq!(series.total.count, truth.calls, "{}", series.slot.operation);
        assert_eq!(
            series.histogram.count(),
            truth.calls,
            "{}",
            series.slot.operation
        );
    }
    assert_eq!(
        (session.instance.calls_lost, session.instance.events_lost),
        (0, 0)
    );
}

#[test]
fn a_second_round_is_added_to_the_first() {
    let mut fixture = GroundTruth::start("ground-truth", &[], &EVERY_FUNCTION).unwrap();
    let mut session = attach(&fixture, Duration::from_millis(1));
    let first = fixture.go().unwrap();
    session.close_window().unwrap();
    let second = fixture.go().unwrap();
    session.close_window().unwrap();
    for (series, report) in session
        .instance
        .series
        .iter()
        .zip(session.instance.report(Duration::ZERO).operations)
    {
        let (first, second) = (truth(&first, series), truth(&second, series));
        assert_eq!(series.total.count, first.calls + second.calls);
        assert_eq!(report.window.counters.count, second.calls);
    }
}

#[test]
fn bytes_are_those_of_keys_and_values_written_and_of_values_read() {
    let mut fixture =
        GroundTruth::start("ground-truth", &["--threads", "2"], &EVERY_FUNCTION).unwrap();
    let mut session = attach(&fixture, Duration::from_millis(1));
    let expected = fixture.go().unwrap();
    session.read().unwrap();
    for series in session
        .instance
        .series
        .iter()
        .filter(|series| series.slot.has_bytes())
    {
        let truth = truth(&expected, series);
        let bytes = match series.slot.operation {
            "Get" | "TxnGet" => truth.value_bytes,
            _ => truth.key_bytes + truth.value_bytes,
        };
        assert!(bytes > 0, "{}", series.slot.operation);
        assert_eq!(series.total.bytes, bytes, "{}", series.slot.operation);
    }
}

#[test]
fn each_quantile_is_within_the_promised_share_of_the_truth() {
    let plan = [
        "rocksdb_get_pinned_cf 2000 uniform:1000000..9000000",
        "rocksdb_transaction_commit 2000 lognormal:3000000,0.6",
        "rocksdb_write 500 constant:5000000",
    ];
    let mut fixture = GroundTruth::start("ground-truth", &["--threads", "8"], &plan).unwrap();
    let mut session = attach(&fixture, Duration::from_secs(1));
    let expected = fixture.go().unwrap();
    session.read().unwrap();
    for operation in ["Get", "TxnCommit", "Write"] {
        let series = series(&session, operation);
        let truth = truth(&expected, series);
        for quantile in QUANTILES {
            let exact = truth.quantile(quantile) as f64;
            let estimate = series.histogram.quantile(quantile).unwrap() as f64;
            let error = (estimate - exact).abs() / exact;
            println!(
                "{operation} p{}: {estimate} for {exact}: {:.2}%",
                quantile * 100.0,
                error * 100.0
            );
            assert!(
                error <= QUANTILE_ERROR,
                "{operation} {quantile}: {estimate} for {exact}"
            );
        }
    }
}

#[test]
fn look() {
    let plan = [
        "rocksdb_get_pinned_cf 20000 constant:1000",
        "rocksdb_write 20000 constant:3000",
        "rocksdb_transaction_commit 20000 constant:10000",
        "rocksdb_put 2000 constant:90000",
    ];
    let mut fixture = GroundTruth::start("ground-truth", &["--threads", "1"], &plan).unwrap();
    let mut session = attach(&fixture, Duration::from_secs(1));
    let expected = fixture.go().unwrap();
    session.read().unwrap();
    for operation in ["Get", "Write", "TxnCommit", "Put"] {
        let series = series(&session, operation);
        let truth = truth(&expected, series);
        let mean = truth.durations_ns.iter().sum::<u64>() as f64 / truth.calls as f64;
        println!(
            "{operation}: mean {} for {mean}",
            series.total.nanoseconds as f64 / series.total.count as f64
        );
        for quantile in QUANTILES {
            println!(
                "{operation} p{}: {} for {}",
                quantile * 100.0,
                series.histogram.quantile(quantile).unwrap(),
                truth.quantile(quantile)
            );
        }
    }
}
