//! What of an executable can be measured, and what is said of the rest.

use std::time::Duration;

use ckb_probe_agent::host::{HostError, Session, find_process};
use ckb_probe_crds::{
    Lack, Overhead, Reason,
    kinds::rocksdb::{Operation, RocksDbProbe},
};
use ckb_probe_tests::{fixture::GroundTruth, rows};

use crate::harness::{attach, by_every_tier, count, coverage, everything, operation};

#[test]
fn what_a_binary_lacks_is_named_and_the_rest_is_measured() {
    by_every_tier(|means| {
        let plan = ["rocksdb_put 10 constant:1000"];
        let mut fixture = GroundTruth::start("ground-truth-partial", &[], &plan).unwrap();
        let mut session = attach(&fixture, means, everything());
        fixture.go().unwrap();
        session.read().unwrap();
        assert_eq!(count(operation(&session, "Put").all), 10);
        let coverage = coverage(&session);
        let missing = Lack {
            reason: Reason::SymbolNotFound,
            items: vec!["Delete".to_string(), "MultiGet".to_string()],
        };
        assert_eq!(coverage.lacks, [missing]);
        assert_eq!(
            coverage.sentence,
            "; not measured: Delete, MultiGet, since rocksdb_delete, rocksdb_delete_cf, rocksdb_multi_get_cf were not \
             found: the binary has a symbol table, but was built without them"
        );
        let report = session.instance().report(Duration::ZERO);
        assert_eq!(rows::reported(&report).count(), 15);
        assert_eq!(report.probes[0].lacks, coverage.lacks);
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
        let error = Session::attach(Ok(means), process, kind.into(), overhead, second)
            .err()
            .unwrap();
        let message = error.to_string();
        let HostError::Attach(refusal) = error else {
            panic!("{message}");
        };
        assert_eq!(refusal.reason, Reason::SymbolNotFound);
        assert!(
            message
                .contains("rocksdb_get, rocksdb_get_cf, rocksdb_get_pinned, rocksdb_get_pinned_cf"),
            "{message}"
        );
        assert!(message.contains("stripped"), "{message}");
    });
}
