//! Functions whose first instruction the kernel single-steps: `rocksdb_iter_seek` and `rocksdb_iter_next`, as in CKB, and of
//! the background work `rocksdb::FlushJob::Run`.

use ckb_probe_crds::kinds::rocksdb::RocksDbProbe;
use ckb_probe_tests::fixture::GroundTruth;

use crate::harness::{EVERY_FUNCTION, attach, by_every_tier, everything, series, truth};

#[test]
fn single_stepped_functions_are_left_out_but_background_work() {
    by_every_tier(|means| {
        let mut fixture = GroundTruth::start("ground-truth", &[], &EVERY_FUNCTION).unwrap();
        let kind = RocksDbProbe {
            include_single_stepped: false,
            ..everything()
        };
        let mut session = attach(&fixture, means, kind);
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        let coverage = &session.coverage;
        assert_eq!(
            coverage.single_stepped_symbols,
            ["rocksdb_iter_next", "rocksdb_iter_seek"]
        );
        // Of either operation another function is there.
        assert!(coverage.single_stepped_operations.is_empty());
        for series in &session.instance.series {
            let operation = series.slot.operation;
            let left_out = match operation {
                "IteratorSeek" => expected.functions["rocksdb_iter_seek"].calls,
                "IteratorNext" => expected.functions["rocksdb_iter_next"].calls,
                _ => 0,
            };
            let calls = truth(&expected, series).calls;
            assert_eq!(series.all.total.count, calls - left_out, "{operation}");
        }
    });
}

#[test]
fn they_are_measured_where_that_is_asked_for() {
    let plan = [
        "rocksdb_iter_seek 2000 constant:1000",
        "rocksdb_iter_next 3000 constant:1000",
        "rocksdb_iter_prev 4000 constant:1000",
        "rocksdb::FlushJob::Run 500 constant:1000",
    ];
    by_every_tier(|means| {
        let options = ["--threads", "2"];
        let mut fixture = GroundTruth::start("ground-truth", &options, &plan).unwrap();
        let mut session = attach(&fixture, means, everything());
        fixture.go().unwrap();
        session.read().unwrap();
        assert!(session.coverage.single_stepped_symbols.is_empty());
        let counts = ["IteratorSeek", "IteratorNext", "Flush"]
            .map(|operation| series(&session, operation).all.total.count);
        assert_eq!(counts, [2000, 7000, 500], "{means:?}");
    });
}
