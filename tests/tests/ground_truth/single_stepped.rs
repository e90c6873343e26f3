//! Functions whose first instruction the kernel single-steps: `rocksdb_iter_seek` and `rocksdb_iter_next`, as in CKB, and of
//! the background work `rocksdb::FlushJob::Run`. On arm64 that is so of all of them, so none is left out for it.

use ckb_probe_crds::{Lack, Reason, kinds::rocksdb::RocksDbProbe};
use ckb_probe_testkit::EVERY_FUNCTION;
use ckb_probe_tests::fixture::GroundTruth;

use crate::harness::{
    attach, by_every_tier, count, coverage, everything, operation, operations, truth,
};

/// What others of its operation are measured instead of.
const LEFT_OUT: &[&str] = if cfg!(target_arch = "x86_64") {
    &["rocksdb_iter_next", "rocksdb_iter_seek"]
} else {
    &[]
};

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
        let coverage = coverage(&session);
        let lack = Lack {
            reason: Reason::SingleStepped,
            items: LEFT_OUT.iter().map(ToString::to_string).collect(),
        };
        let lacks = if LEFT_OUT.is_empty() {
            vec![]
        } else {
            vec![lack]
        };
        assert_eq!(coverage.lacks, lacks);
        // Of either operation another function is there.
        assert!(
            !coverage.sentence.contains("hence not measured"),
            "{}",
            coverage.sentence
        );
        for series in operations(&session) {
            let operation = series.name;
            let left_out = match operation {
                "IteratorSeek" => "rocksdb_iter_seek",
                "IteratorNext" => "rocksdb_iter_next",
                _ => "",
            };
            let left_out = match LEFT_OUT.contains(&left_out) {
                true => expected.functions[left_out].calls,
                false => 0,
            };
            let calls = truth(&expected, series.name).calls;
            assert_eq!(count(series.all), calls - left_out, "{operation}");
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
        assert_eq!(coverage(&session).lacks, []);
        let counts = ["IteratorSeek", "IteratorNext", "Flush"]
            .map(|name| count(operation(&session, name).all));
        assert_eq!(counts, [2000, 7000, 500], "{means:?}");
    });
}
