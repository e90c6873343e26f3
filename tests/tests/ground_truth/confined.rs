//! A process that is confined by seccomp, where its returns must not be touched.

use ckb_probe_agent::{host::Session, kernel::CalibratedTier};
use ckb_probe_crds::{Reason, kinds::rocksdb::RocksDbProbe};
use ckb_probe_testkit::EVERY_FUNCTION;
use ckb_probe_tests::{
    fixture::{GroundTruth, Truth},
    operations::OTHER_FAMILY,
    rows,
};

use crate::harness::{
    attach, by_every_tier, count, coverage, everything, lost, operation, operations, truth,
};

fn attach_warned(fixture: &GroundTruth, means: CalibratedTier) -> Session {
    let kind = RocksDbProbe {
        by_column_family: true,
        slow_threshold: std::time::Duration::from_micros(1).into(),
        ..everything()
    };
    let means = CalibratedTier {
        returns_kill_confined: true,
        ..means
    };
    attach(fixture, means, kind)
}

/// Bytes of each operation that are arguments, and so known at the entry.
fn bytes_at_entry(operation: &str, expected: &Truth) -> u64 {
    let written = |function: &str| {
        let function = &expected.functions[function];
        function.key_bytes + function.value_bytes
    };
    match operation {
        "TxnPut" => written("rocksdb_transaction_put_cf"),
        "TxnDelete" => written("rocksdb_transaction_delete_cf"),
        "Put" => written("rocksdb_put") + written("rocksdb_put_cf"),
        "Delete" => written("rocksdb_delete") + written("rocksdb_delete_cf"),
        _ => 0,
    }
}

#[test]
fn its_calls_are_counted_and_not_timed_and_it_lives() {
    by_every_tier(|means| {
        let options = ["--confined", "--threads", "3", "--families", "2:f"];
        let mut fixture = GroundTruth::start("ground-truth", &options, &EVERY_FUNCTION).unwrap();
        let mut session = attach_warned(&fixture, means);
        let lacks = coverage(&session).lacks.iter();
        let reasons: Vec<_> = lacks.map(|lack| lack.reason).collect();
        assert_eq!(reasons, [Reason::EntryOnly]);
        let sentence = session.lacks();
        assert!(sentence.contains("counted and not timed"), "{sentence}");
        let expected = fixture.go().unwrap();
        session.close_interval().unwrap();
        for series in operations(&session) {
            let operation = series.name;
            let truth = truth(&expected, series.name);
            let total = &series.all.total;
            assert_eq!(count(series.all), truth.calls, "{operation} by {means:?}");
            assert_eq!(series.all.samples, truth.calls, "{operation}");
            assert_eq!(
                rows::bytes(total).unwrap_or(0),
                bytes_at_entry(operation, &expected),
                "{operation} by {means:?}"
            );
            let timed = (rows::nanoseconds(total), rows::slow(total));
            assert_eq!(timed, (0, 0), "{operation}");
            assert_eq!(rows::durations(total).count(), 0, "{operation}");
            let window = &series.all.window().figures;
            assert_eq!(rows::calls(window), truth.calls, "{operation}");
            assert_eq!(rows::longest(window), 0, "{operation}");
        }
        let get = truth(&expected, "Get");
        let on_any: u64 = get.column_families.values().map(|one| one.calls).sum();
        for (name, family) in operation(&session, "Get").families {
            let calls = match *name == OTHER_FAMILY {
                true => get.calls - on_any,
                false => get.column_families[name].calls,
            };
            assert_eq!(count(family), calls, "{name}");
        }
        assert_eq!(get.column_families.len(), 3);
        assert_eq!(operation(&session, "Get").families.len(), 4);
        assert!(session.events().is_empty());
        assert_eq!(lost(session.instance()), [0, 0, 0]);
        // It is alive, and does the same again.
        drop(session);
        fixture.go().unwrap();
    });
}

#[test]
fn one_that_is_not_confined_is_timed_all_the_same() {
    by_every_tier(|means| {
        let mut fixture = GroundTruth::start("ground-truth", &[], &EVERY_FUNCTION).unwrap();
        let mut session = attach_warned(&fixture, means);
        assert_eq!(coverage(&session).lacks, []);
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        for series in operations(&session) {
            let calls = truth(&expected, series.name).calls;
            assert_eq!(rows::durations(&series.all.total).count(), calls);
        }
    });
}
