//! Durations are as long as the truth, as far as a histogram's bucket and a probe's own time allow.

use ckb_probe_agent::kernel::CalibratedTier;
use ckb_probe_crds::kinds::rocksdb::Operation as Asked;
use ckb_probe_tests::{fixture::GroundTruth, rows};

use crate::harness::{attach, by_every_tier, expect_durations, operation, these, truth};

#[test]
fn each_quantile_is_within_the_promised_share_of_the_truth() {
    let plan = [
        "rocksdb_get_pinned_cf 2000 uniform:1000000..9000000",
        "rocksdb_transaction_commit 2000 lognormal:3000000,0.6",
        "rocksdb_write 500 constant:5000000",
    ];
    by_every_tier(|means| {
        let mut fixture = GroundTruth::start("ground-truth", &["--threads", "8"], &plan).unwrap();
        let asked = these(&[Asked::Get, Asked::TxnCommit, Asked::Write]);
        let mut session = attach(&fixture, means, asked);
        let expected = fixture.go().unwrap();
        session.read().unwrap();
        for operation in ["Get", "TxnCommit", "Write"] {
            let tally = self::operation(&session, operation).all;
            let what = format!("{operation} by {}", means.tier.as_str());
            expect_durations(&what, tally, &truth(&expected, operation));
        }
    });
}

#[test]
fn short_calls_are_not_charged_with_the_cost_of_measuring_them() {
    by_every_tier(|means| {
        let mut as_it_comes = means;
        as_it_comes.calibration.trap_ns = 0;
        // What a trap takes depends on what else the processor does: one undisturbed round of these shows it.
        let rounds = [(); 3].map(|()| (charged(as_it_comes), charged(means)));
        assert!(
            rounds.iter().any(|(all, rest)| 2 * rest.abs() < *all),
            "{means:?}: charged before and after the correction, in nanoseconds: {rounds:?}"
        );
    });
}

/// How much longer the median of calls of a microsecond seems to be than it is, in nanoseconds.
fn charged(means: CalibratedTier) -> i64 {
    let plan = ["rocksdb_get_pinned_cf 50000 constant:1000"];
    let mut fixture = GroundTruth::start("ground-truth", &[], &plan).unwrap();
    let mut session = attach(&fixture, means, these(&[Asked::Get]));
    let expected = fixture.go().unwrap();
    session.read().unwrap();
    let exact = truth(&expected, "Get").quantile(0.5) as i64;
    let seen = rows::durations(&operation(&session, "Get").all.total);
    seen.quantile(0.5).unwrap() as i64 - exact
}
