//! Calls of RocksDB, where they are refused: all else of the kind is in `tests/ground_truth`.

use ckb_probe_crds::kinds::rocksdb::RocksDbProbe;
use ckb_probe_tests::{fixture::GroundTruth, rows};

use crate::way::{in_every_way, total};

#[test]
fn calls_are_counted_or_refused() {
    in_every_way(RocksDbProbe::default(), |way| {
        let plan = ["rocksdb_get_pinned_cf 200 constant:1000"];
        let mut fixture = GroundTruth::start("ground-truth", &[], &plan).unwrap();
        let mut session = way.attach(fixture.pid());
        fixture.go().unwrap();
        session.read().unwrap();
        assert_eq!(rows::calls(total(&session, "Get")), 200);
    });
}
