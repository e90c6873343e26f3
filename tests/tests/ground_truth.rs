//! The engine against a program whose calls are known: on this machine's kernel, as root.

use std::{os::unix::fs::FileExt, sync::OnceLock, time::Duration};

use ckb_probe_agent::{
    attach::TargetError,
    host::{HostError, Session, find_process},
    instance::Series,
    probe::{Means, Tier, calibrate},
};
use ckb_probe_crds::kinds::rocksdb::{Operation, RocksDbProbe};
use ckb_probe_tests::fixture::{FunctionTruth, GroundTruth, Truth};

const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// What the documentation promises.
const QUANTILE_ERROR: f64 = 0.032;

/// Each way to attach that this kernel has, with its calibration. The first must be among them.
fn tiers() -> &'static [Means] {
    static TIERS: OnceLock<Vec<Means>> = OnceLock::new();
    TIERS.get_or_init(|| {
        let works = |tier| {
            let calibration = calibrate(tier).ok()?;
            Some(Means { tier, calibration })
        };
        let tiers: Vec<_> = Tier::ALL.into_iter().filter_map(works).collect();
        assert!(
            !tiers.is_empty(),
            "no way to attach works here: run as root, on kernel 5.15 or later"
        );
        tiers
    })
}

fn attach(fixture: &GroundTruth, means: Means, slow: Duration) -> Session {
    let process = find_process(Some(fixture.pid()), "").unwrap();
    let kind = RocksDbProbe {
        operations: Operation::ALL.to_vec(),
        slow_threshold: slow.into(),
    };
    let hour = Duration::from_secs(3600);
    Session::attach(means, process, kind, hour).unwrap()
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
    for &means in tiers() {
        let mut fixture =
            GroundTruth::start("ground-truth", &["--threads", "4"], &EVERY_FUNCTION).unwrap();
        let mut session = attach(&fixture, means, Duration::from_millis(1));
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        for series in &session.instance.series {
            let truth = truth(&expected, series);
            let operation = series.slot.operation;
            assert_eq!(series.total.count, truth.calls, "{operation} by {means:?}");
            assert_eq!(
                series.histogram.count(),
                truth.calls,
                "{operation} by {means:?}"
            );
        }
        let lost = (session.instance.calls_lost, session.instance.events_lost);
        assert_eq!(lost, (0, 0));
    }
}

#[test]
fn a_second_round_is_added_to_the_first_and_has_a_window_of_its_own() {
    let mut fixture = GroundTruth::start("ground-truth", &[], &EVERY_FUNCTION).unwrap();
    let mut session = attach(&fixture, tiers()[0], Duration::from_millis(1));
    let first = fixture.go().unwrap();
    session.close_window().unwrap();
    let second = fixture.go().unwrap();
    session.close_window().unwrap();
    let reports = session.instance.report(Duration::ZERO).operations;
    for (series, report) in session.instance.series.iter().zip(reports) {
        let (first, second) = (truth(&first, series), truth(&second, series));
        assert_eq!(series.total.count, first.calls + second.calls);
        assert_eq!(report.window.counters.count, second.calls);
        assert_eq!(report.window.histogram.count(), second.calls);
        let longest = *second.durations_ns.iter().max().unwrap();
        assert!(
            report.window.max_nanoseconds + 1_000 > longest,
            "{}: {} for {longest}",
            series.slot.operation,
            report.window.max_nanoseconds
        );
    }
}

#[test]
fn bytes_are_those_of_keys_and_values_written_and_of_values_read() {
    for &means in tiers() {
        let mut fixture =
            GroundTruth::start("ground-truth", &["--threads", "2"], &EVERY_FUNCTION).unwrap();
        let mut session = attach(&fixture, means, Duration::from_millis(1));
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        let with_bytes = session.instance.series.iter();
        for series in with_bytes.filter(|series| series.slot.has_bytes()) {
            let truth = truth(&expected, series);
            let bytes = match series.slot.operation {
                "Get" | "TxnGet" => truth.value_bytes,
                _ => truth.key_bytes + truth.value_bytes,
            };
            assert!(bytes > 0, "{}", series.slot.operation);
            assert_eq!(series.total.bytes, bytes, "{}", series.slot.operation);
        }
    }
}

#[test]
fn each_quantile_is_within_the_promised_share_of_the_truth() {
    let plan = [
        "rocksdb_get_pinned_cf 2000 uniform:1000000..9000000",
        "rocksdb_transaction_commit 2000 lognormal:3000000,0.6",
        "rocksdb_write 500 constant:5000000",
    ];
    for &means in tiers() {
        let mut fixture = GroundTruth::start("ground-truth", &["--threads", "8"], &plan).unwrap();
        let mut session = attach(&fixture, means, Duration::from_secs(1));
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        for operation in ["Get", "TxnCommit", "Write"] {
            let series = series(&session, operation);
            let truth = truth(&expected, series);
            for quantile in QUANTILES {
                let exact = truth.quantile(quantile) as f64;
                let estimate = series.histogram.quantile(quantile).unwrap() as f64;
                let error = (estimate - exact).abs() / exact;
                assert!(
                    error <= QUANTILE_ERROR,
                    "{operation} {quantile} by {means:?}: {estimate} for {exact}"
                );
            }
        }
    }
}

#[test]
fn short_calls_are_not_charged_with_the_cost_of_measuring_them() {
    let plan = ["rocksdb_get_pinned_cf 50000 constant:1000"];
    for &means in tiers() {
        let Means { tier, calibration } = means;
        let mut fixture = GroundTruth::start("ground-truth", &[], &plan).unwrap();
        let mut session = attach(&fixture, means, Duration::from_secs(1));
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        let series = series(&session, "Get");
        let exact = truth(&expected, series).quantile(0.5) as i64;
        let estimate = series.histogram.quantile(0.5).unwrap() as i64;
        let trap = calibration.trap_ns as i64;
        assert!(
            (estimate - exact).abs() < trap / 2,
            "{tier:?}: {estimate} for {exact}, and a trap takes {trap}"
        );
    }
}

#[test]
fn a_recursive_call_and_its_caller_are_both_measured() {
    for &means in tiers() {
        let options = ["--recursions", "3"];
        let plan = ["rocksdb_write 200 constant:100000"];
        let mut fixture = GroundTruth::start("ground-truth", &options, &plan).unwrap();
        let mut session = attach(&fixture, means, Duration::from_secs(1));
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        let series = series(&session, "Write");
        let truth = truth(&expected, series);
        assert_eq!(truth.calls, 800);
        assert_eq!(series.total.count, truth.calls, "{means:?}");
    }
}

#[test]
fn of_two_processes_of_one_binary_only_the_chosen_one_is_measured() {
    for &means in tiers() {
        let mut chosen = GroundTruth::start("ground-truth", &[], &EVERY_FUNCTION).unwrap();
        let mut other = GroundTruth::start("ground-truth", &[], &EVERY_FUNCTION).unwrap();
        let mut session = attach(&chosen, means, Duration::from_millis(1));
        other.go().unwrap();
        session.read().unwrap();
        assert!(
            session
                .instance
                .series
                .iter()
                .all(|series| series.total.count == 0)
        );
        let expected = chosen.go().unwrap();
        session.read().unwrap();
        for series in &session.instance.series {
            assert_eq!(series.total.count, truth(&expected, series).calls);
        }
    }
}

#[test]
fn slow_calls_are_counted_and_delivered_or_counted_as_lost() {
    for &means in tiers() {
        // Twice what the ring holds, and nobody empties it meanwhile.
        let plan = [
            "rocksdb_put_cf 4000 constant:50000",
            "rocksdb_write 500 constant:1000",
        ];
        let mut fixture = GroundTruth::start("ground-truth", &[], &plan).unwrap();
        let mut session = attach(&fixture, means, Duration::from_micros(40));
        fixture.go().unwrap();
        session.read().unwrap();
        let put = series(&session, "Put").total;
        assert_eq!((put.count, put.slow), (4000, 4000), "{means:?}");
        let slow = session
            .instance
            .series
            .iter()
            .map(|series| series.total.slow)
            .sum::<u64>();
        let delivered = session.slow_calls();
        assert!(delivered.iter().all(|(_, call)| call.duration_ns >= 40_000));
        let lost = session.instance.events_lost;
        assert!(lost > 0, "the ring was meant to overflow");
        assert_eq!(delivered.len() as u64 + lost, slow, "{means:?}");
    }
}

#[test]
fn what_a_binary_lacks_is_named_and_the_rest_is_measured() {
    let mut fixture = GroundTruth::start(
        "ground-truth-partial",
        &[],
        &["rocksdb_put 10 constant:1000"],
    )
    .unwrap();
    let mut session = attach(&fixture, tiers()[0], Duration::from_millis(1));
    fixture.go().unwrap();
    session.read().unwrap();
    assert_eq!(series(&session, "Put").total.count, 10);
    assert_eq!(session.coverage.missing_operations, ["Delete", "MultiGet"]);
    assert!(!session.coverage.stripped);
    let message = session.coverage.sentence();
    assert!(message.contains("rocksdb_multi_get_cf"), "{message}");
}

#[test]
fn a_stripped_binary_is_called_so() {
    let fixture = GroundTruth::start(
        "ground-truth-stripped",
        &[],
        &["rocksdb_put 1 constant:1000"],
    )
    .unwrap();
    let process = find_process(Some(fixture.pid()), "").unwrap();
    let kind = RocksDbProbe {
        operations: vec![Operation::Get],
        slow_threshold: Duration::from_millis(1).into(),
    };
    let error = Session::attach(tiers()[0], process, kind, Duration::from_secs(1))
        .err()
        .unwrap();
    assert!(matches!(error, HostError::Attach(TargetError::NoSymbol(_))));
    let message = error.to_string();
    assert!(message.contains("rocksdb_get_pinned_cf"), "{message}");
    assert!(message.contains("stripped"), "{message}");
}

#[test]
fn after_a_detach_the_target_runs_on_unprobed() {
    for &means in tiers() {
        let plan = ["rocksdb_get_pinned_cf 100000 constant:0"];
        let mut fixture = GroundTruth::start("ground-truth", &[], &plan).unwrap();
        let code = || code_of(&fixture);
        let before = code();
        let session = attach(&fixture, means, Duration::from_millis(1));
        assert_ne!(code(), before, "the attach changed no instruction");
        drop(session);
        assert_eq!(code(), before, "{means:?} left a breakpoint behind");
        let truth = fixture.go().unwrap();
        assert_eq!(truth.functions["rocksdb_get_pinned_cf"].calls, 100_000);
    }
}

/// The process's executable memory as it is, breakpoints and all.
fn code_of(fixture: &GroundTruth) -> Vec<u8> {
    let process = procfs::process::Process::new(fixture.pid() as i32).unwrap();
    let memory = std::fs::File::open(format!("/proc/{}/mem", fixture.pid())).unwrap();
    let mut code = Vec::new();
    for map in process.maps().unwrap() {
        let executable = map.perms.contains(procfs::process::MMPermissions::EXECUTE);
        if executable && matches!(map.pathname, procfs::process::MMapPath::Path(_)) {
            let mut bytes = vec![0; (map.address.1 - map.address.0) as usize];
            memory.read_exact_at(&mut bytes, map.address.0).unwrap();
            code.extend(bytes);
        }
    }
    code
}
