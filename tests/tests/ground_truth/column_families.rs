//! Figures by column family, and what becomes of those for which there is no room.

use std::collections::BTreeMap;

use ckb_probe_crds::kinds::rocksdb::{Operation as Asked, RocksDbProbe};
use ckb_probe_testkit::EVERY_FUNCTION;
use ckb_probe_tests::{
    fixture::{FunctionTruth, GroundTruth},
    operations::ON_A_FAMILY,
    rows,
};

use crate::harness::{
    Operation, attach, by_every_tier, bytes, count, everything, expect_durations, lost, operation,
    operations, sum, these, truth,
};

/// Of one operation, whatever room there is besides.
const MOST_FAMILIES: usize = 63;

fn by_column_family() -> RocksDbProbe {
    RocksDbProbe {
        by_column_family: true,
        ..everything()
    }
}

/// Calls and bytes by column family: of the probe, and in truth, where calls without one are "other".
type Figures = BTreeMap<String, (u64, u64)>;

fn measured(series: Operation) -> Figures {
    let families = series.families.iter();
    families
        .map(|(name, tally)| {
            let calls = count(tally);
            assert_eq!(rows::durations(&tally.total).count(), calls, "{name}");
            assert_eq!(tally.samples, calls, "{name}");
            let bytes = rows::bytes(&tally.total).unwrap_or(0);
            (name.clone(), (calls, bytes))
        })
        .collect()
}

fn expected(operation: &str, truth: &FunctionTruth) -> Figures {
    let figures = |one: &FunctionTruth| (one.calls, bytes(operation, one).unwrap_or(0));
    let families = truth.column_families.iter();
    let mut all: Figures = families
        .map(|(name, family)| (name.clone(), figures(family)))
        .collect();
    let named = sum(truth.column_families.values());
    if named.calls < truth.calls {
        let ((calls, bytes), (named_calls, named_bytes)) = (figures(truth), figures(&named));
        all.insert(
            "other".to_string(),
            (calls - named_calls, bytes - named_bytes),
        );
    }
    all
}

#[test]
fn each_has_its_own_calls_and_bytes_by_whichever_handle() {
    by_every_tier(|means| {
        let options = ["--threads", "4", "--families", "3:cells-", "--handles", "2"];
        let mut fixture = GroundTruth::start("ground-truth", &options, &EVERY_FUNCTION).unwrap();
        let mut session = attach(&fixture, means, by_column_family());
        let round = fixture.go().unwrap();
        session.read().unwrap();
        for series in operations(&session) {
            let operation = series.name;
            let truth = truth(&round, series.name);
            assert_eq!(count(series.all), truth.calls, "{operation}");
            if !ON_A_FAMILY.contains(&operation) {
                assert!(series.families.is_empty(), "{operation}");
                continue;
            }
            let expected = expected(operation, &truth);
            assert_eq!(
                expected.contains_key("other"),
                ["Get", "Put", "Delete", "IteratorNew"].contains(&operation)
            );
            assert_eq!(measured(series), expected, "{operation} by {means:?}");
        }
        let get = &round.functions["rocksdb_get_pinned_cf"].column_families;
        let handles: Vec<_> = get.values().map(|family| family.handles).collect();
        assert_eq!(handles, [2; 4]);
        assert_eq!(lost(session.instance()), [0, 0, 0]);
    });
}

#[test]
fn each_has_its_own_durations() {
    // A millisecond and more, so that the time of a trap does not matter.
    let plan = [
        "rocksdb_get_pinned_cf 1500 uniform:1000000..9000000",
        "rocksdb_transaction_put_cf 1500 lognormal:3000000,0.6",
    ];
    by_every_tier(|means| {
        let options = ["--threads", "8", "--families", "2:f", "--handles", "3"];
        let mut fixture = GroundTruth::start("ground-truth", &options, &plan).unwrap();
        let asked = RocksDbProbe {
            by_column_family: true,
            ..these(&[Asked::Get, Asked::TxnPut])
        };
        let mut session = attach(&fixture, means, asked);
        let round = fixture.go().unwrap();
        session.read().unwrap();
        for operation in ["Get", "TxnPut"] {
            let series = self::operation(&session, operation);
            let truth = truth(&round, operation);
            assert_eq!(truth.column_families.len(), 3);
            for (name, truth) in &truth.column_families {
                let what = format!("{operation} on {name} by {}", means.tier.as_str());
                expect_durations(&what, &series.families[name], truth);
            }
        }
    });
}

#[test]
fn ckbs_are_named_by_what_they_are_for() {
    let columns = [
        ("0", "INDEX"),
        ("4", "META"),
        ("10", "CELL"),
        ("16", "CHAIN_ROOT_MMR"),
        ("18", "BLOCK_FILTER_HASH"),
        ("default", "default"),
    ];
    by_every_tier(|means| {
        let plan = ["rocksdb_get_pinned_cf 5000 constant:1000"];
        let mut fixture = GroundTruth::start("ground-truth", &[], &plan).unwrap();
        let mut session = attach(&fixture, means, by_column_family());
        let round = fixture.go().unwrap();
        session.read().unwrap();
        let truth = &round.functions["rocksdb_get_pinned_cf"].column_families;
        let families = operation(&session, "Get").families;
        assert_eq!((truth.len(), families.len()), (20, 20));
        for (name, purpose) in columns {
            let counted = count(&families[purpose]);
            assert_eq!(counted, truth[name].calls, "{purpose}");
        }
    });
}

/// Each phase is made once, by one thread: so each call finds what the one before it made of its column family.
fn beyond_the_table(asked: &[Asked], plan: &[&str], phases: &[&str]) {
    by_every_tier(|means| {
        let options = ["--families", "100:f"];
        let mut fixture = GroundTruth::start("ground-truth", &options, plan).unwrap();
        let kind = RocksDbProbe {
            operations: asked.to_vec(),
            ..by_column_family()
        };
        let mut session = attach(&fixture, means, kind);
        let mut whole: BTreeMap<String, FunctionTruth> = BTreeMap::new();
        for phase in phases {
            let round = fixture.go_phase(phase).unwrap();
            session.read().unwrap();
            for series in operations(&session) {
                let operation = series.name;
                let whole = whole.entry(operation.to_string()).or_default();
                *whole = sum([&*whole, &truth(&round, operation)].into_iter());
                let expected = expected(operation, whole);
                let measured = measured(series);
                let mut named = measured.clone();
                named.remove("other");
                assert!(named.len() <= MOST_FAMILIES, "{operation}");
                // Those that have their own name have it from their first call on.
                for (name, figures) in &named {
                    let what = format!("{operation} on {name} by {means:?}, phase {phase:?}");
                    assert_eq!(figures, &expected[name], "{what}");
                }
                let bytes = rows::bytes(&series.all.total).unwrap_or(0);
                assert_eq!(
                    (count(series.all), bytes),
                    together(&expected),
                    "{operation}"
                );
                assert_eq!(together(&measured), together(&expected), "{operation}");
            }
        }
        assert_eq!(lost(session.instance()), [0, 0, 0]);
        // A hundred and one column families are too many for one operation, and for the table with more.
        let of_the_first = operations(&session)[0].families;
        assert_eq!(of_the_first.len(), MOST_FAMILIES + 1);
        assert!(count(&of_the_first["other"]) > 0);
    });
}

fn together(figures: &Figures) -> (u64, u64) {
    let figures = figures.values();
    figures.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

#[test]
fn those_beyond_the_kernels_table_count_as_others_and_none_is_lost() {
    let plan = [
        "rocksdb_get_pinned_cf 6000 constant:1000",
        "rocksdb_transaction_put_cf 6000 constant:1000",
        "[late]",
        "rocksdb_transaction_delete_cf 1000 constant:1000",
        "rocksdb_get_pinned_cf 1000 constant:1000",
    ];
    let asked = [Asked::Get, Asked::TxnPut, Asked::TxnDelete];
    beyond_the_table(&asked, &plan, &["", "", "late"]);
}

#[test]
fn those_beyond_an_operations_share_stay_others_once_there_are_others() {
    let plan = [
        "rocksdb_put_cf 6000 constant:1000",
        "[others]",
        "rocksdb_put 300 constant:1000",
        "rocksdb_put_cf 1000 constant:1000",
    ];
    beyond_the_table(&[Asked::Put], &plan, &["", "others", "", "others"]);
}
