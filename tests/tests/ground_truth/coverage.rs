//! What of an executable can be measured, and what is said of the rest.

use std::time::Duration;

use ckb_probe_agent::{
    attach::TargetError,
    host::{HostError, Session, find_process},
};
use ckb_probe_crds::{
    Overhead,
    kinds::rocksdb::{Operation, RocksDbProbe},
};
use ckb_probe_tests::fixture::GroundTruth;

use crate::harness::{attach, by_every_tier, everything, series};

#[test]
fn what_a_binary_lacks_is_named_and_the_rest_is_measured() {
    by_every_tier(|means| {
        let plan = ["rocksdb_put 10 constant:1000"];
        let mut fixture = GroundTruth::start("ground-truth-partial", &[], &plan).unwrap();
        let mut session = attach(&fixture, means, everything());
        fixture.go().unwrap();
        session.read().unwrap();
        assert_eq!(series(&session, "Put").all.total.count, 10);
        let coverage = &session.coverage;
        assert_eq!(coverage.missing_operations, ["Delete", "MultiGet"]);
        assert_eq!(
            coverage.missing_symbols,
            [
                "rocksdb_delete",
                "rocksdb_delete_cf",
                "rocksdb_multi_get_cf"
            ]
        );
        assert!(!coverage.stripped);
        let message = coverage.sentence();
        assert!(message.contains("rocksdb_multi_get_cf"), "{message}");
        let reports = session.instance.report(Duration::ZERO).operations;
        assert_eq!(reports.len(), 15);
    });
}

#[test]
fn a_stripped_binary_is_called_so() {
    by_every_tier(|means| {
        let plan = ["rocksdb_put 1 constant:1000"];
        let fixture = GroundTruth::start("ground-truth-stripped", &[], &plan).unwrap();
        let process = find_process(Some(fixture.pid()), "").unwrap();
        let kind = RocksDbProbe {
            operations: vec![Operation::Get],
            ..RocksDbProbe::default()
        };
        let (overhead, second) = (Overhead::default(), Duration::from_secs(1));
        let error = Session::attach(means, process, kind, overhead, second)
            .err()
            .unwrap();
        assert!(matches!(error, HostError::Attach(TargetError::NoSymbol(_))));
        let message = error.to_string();
        assert!(message.contains("rocksdb_get_pinned_cf"), "{message}");
        assert!(message.contains("stripped"), "{message}");
    });
}
