//! Within its budget, what is rare is counted to the last call and what is busy is estimated, whatever comes and goes.

use std::time::{Duration, Instant};

use ckb_probe_agent::{host::Session, kernel::CalibratedTier};
use ckb_probe_crds::{
    Overhead,
    kinds::rocksdb::{Operation as Asked, RocksDbProbe},
    report::CUT,
};
use ckb_probe_tests::{fixture::GroundTruth, rows};

use crate::harness::{
    attach_within, by_every_tier, by_every_tier_at_once, count, go, lost, operation, step, these,
    truth,
};

/// Twenty thousand calls a second cost a busy thread far more than the budget; twenty cost nothing to speak of: see [`budget`].
const PLAN: [&str; 11] = [
    "[quiet]",
    "rocksdb_get_pinned_cf 20 constant:1000 rate:20",
    "rocksdb_transaction_commit 10 constant:1000 rate:10",
    // Not probed, but work that earns a budget.
    "rocksdb::CompactionJob::Run.cold 5000 constant:90000 rate:5000 in:worker",
    "[busy]",
    "rocksdb_get_pinned_cf 100000 constant:10000 rate:20000 in:reader",
    "rocksdb_transaction_put_cf 60000 constant:10000 rate:12000 in:writer",
    "rocksdb_transaction_commit 100 constant:1000 rate:20",
    "rocksdb_write 50 constant:1000 rate:10",
    "[other]",
    "rocksdb::CompactionJob::Run.cold 50000 constant:90000 rate:5000",
];

/// What is probed of it, and what one of the binaries lacks.
fn asked() -> RocksDbProbe {
    these(&[
        Asked::Get,
        Asked::TxnPut,
        Asked::TxnCommit,
        Asked::Write,
        Asked::Compaction,
        Asked::Delete,
    ])
}

/// What is off by less is an estimate. That it is a good one is seen in a minute of `make e2e`, not in seconds of this.
const ESTIMATE: f64 = 0.5;

/// Nanoseconds that a call costs at most where one percent is a budget for this plan.
const DEAREST_NS: f64 = 5000.0;

/// One percent, or where a call costs more than on any real machine, as in an emulated one, as many times more: so that what
/// is busy and what is rare are so by the same measure everywhere.
fn budget(means: CalibratedTier) -> Overhead {
    let one_percent = Overhead::default();
    let cost_ns = means.calibration.cost_per_call_ns as f64;
    Overhead {
        max_percent: one_percent.max_percent * (cost_ns / DEAREST_NS).max(1.0),
        ..one_percent
    }
}

fn begin(variant: &str, means: CalibratedTier) -> (GroundTruth, Session) {
    let fixture = GroundTruth::start(variant, &[], &PLAN).unwrap();
    let session = attach_within(fixture.pid(), means, asked(), budget(means));
    (fixture, session)
}

/// Calls and samples of an operation so far.
fn counted(session: &Session, operation: &str) -> (u64, u64) {
    let tally = self::operation(session, operation).all;
    (count(tally), tally.samples)
}

/// Lets the session look at a target that does nothing.
fn idle(session: &mut Session) {
    for _ in 0..100 {
        step(session, Duration::from_millis(10));
    }
}

#[test]
fn rare_calls_are_counted_to_the_last_and_busy_ones_estimated() {
    let round_of = |means| {
        let (mut fixture, mut session) = begin("ground-truth", means);
        idle(&mut session);
        let round = go(&mut fixture, "busy", &mut session, |_| ());
        session.read().unwrap();
        for (operation, expected) in [("TxnCommit", 100), ("Write", 50)] {
            assert_eq!(
                counted(&session, operation),
                (expected, expected),
                "{operation} by {means:?}"
            );
        }
        assert_eq!(lost(session.instance()), [0, 0, 0]);
        ["Get", "TxnPut"].map(|operation| {
            let exact = truth(&round, operation).calls;
            let (count, samples) = counted(&session, operation);
            let error = (count as f64 / exact as f64 - 1.0).abs();
            let told = rows::error(&self::operation(&session, operation).all.total);
            // There detaching takes the kernel a second, and a slice is paid for over half a minute. And on a machine that is busy a
            // hit costs so much that slices are few anywhere: they are told as what was seen, or with an error as large.
            let rarely = means.tier.detaches_one_by_one();
            let good = match told {
                _ if rarely => true,
                told if told.is_infinite() => count <= exact,
                told => error < ESTIMATE.max(2.0 * told) && samples > 1000,
            };
            let good = good && samples < exact / 2;
            (good, operation, count, told, samples, exact)
        })
    };
    by_every_tier(|means| {
        // Five seconds are few slices, and this machine may be busy with other tests: one round of three must show it.
        let rounds = (0..3).map(|_| round_of(means));
        let seen: Vec<_> = rounds
            .scan(false, |over, round| {
                (!std::mem::replace(over, round.iter().all(|one| one.0))).then_some(round)
            })
            .collect();
        let last = seen.last().unwrap();
        assert!(last.iter().all(|one| one.0), "{seen:?} by {means:?}");
    });
}

#[test]
fn before_and_after_a_busy_time_every_call_is_counted_once() {
    by_every_tier_at_once(|means| {
        let (mut fixture, mut session) = begin("ground-truth", means);
        settle(&mut fixture, &mut session, means);
        quiet(&mut fixture, &mut session, means);
        quiet(&mut fixture, &mut session, means);
        go(&mut fixture, "busy", &mut session, |_| ());
        settle(&mut fixture, &mut session, means);
        quiet(&mut fixture, &mut session, means);
    });
}

/// The operations of the quiet time and how often each is called in it.
const QUIET: [(&str, u64); 2] = [("Get", 20), ("TxnCommit", 10)];

/// Has the target work until it has earned what probing cost too much, and everything is measured all of the time again.
fn settle(fixture: &mut GroundTruth, session: &mut Session, means: CalibratedTier) {
    const INTERVAL: Duration = Duration::from_secs(1);
    // Ten seconds each. One is enough, but where detaching costs so much that it takes a minute and a half to repay a busy
    // time, and up to two until the next slice shows that it is over: twenty in all on an emulated 6.12.
    for _ in 0..40 {
        let mut ended = Instant::now();
        let mut settled = false;
        go(fixture, "other", session, |session| {
            if ended.elapsed() >= INTERVAL {
                ended = Instant::now();
                session.close_interval().unwrap();
                let complete = |(name, _)| operation(session, name).share == Some(1.0);
                settled = QUIET.into_iter().all(complete);
            }
        });
        if settled {
            return;
        }
    }
    panic!("long after the busy time, calls are still sampled by {means:?}");
}

/// Makes the quiet calls, each of which must be counted.
fn quiet(fixture: &mut GroundTruth, session: &mut Session, means: CalibratedTier) {
    session.read().unwrap();
    let before = QUIET.map(|(operation, _)| counted(session, operation));
    go(fixture, "quiet", session, |_| ());
    session.read().unwrap();
    for ((operation, calls), before) in QUIET.into_iter().zip(before) {
        let after = counted(session, operation);
        let news = (after.0 - before.0, after.1 - before.1);
        assert_eq!(news, (calls, calls), "{operation} by {means:?}");
    }
}

/// A compaction and a write that are under way while gets become so many that they are let go of, and commits after all of it.
const ACROSS: [&str; 5] = [
    "rocksdb::CompactionJob::Run 1 constant:3000000000 at:0 in:rocksdb:low0",
    "rocksdb_write 1 constant:3000000000 at:0 in:writer",
    "rocksdb_get_pinned_cf 40000 constant:10000 rate:20000 at:500000000 in:reader",
    "rocksdb::CompactionJob::Run.cold 20000 constant:90000 rate:5000 in:worker",
    "rocksdb_transaction_commit 3 constant:60000000 at:3500000000 in:committer",
];

#[test]
fn a_call_that_outlasts_a_change_of_the_plan_is_counted_and_is_over_when_it_ends() {
    by_every_tier(|means| {
        let mut fixture = GroundTruth::start("ground-truth", &[], &ACROSS).unwrap();
        let kind = RocksDbProbe {
            slow_threshold: Duration::from_millis(20).into(),
            ..asked()
        };
        let mut session = attach_within(fixture.pid(), means, kind, budget(means));
        idle(&mut session);
        go(&mut fixture, "", &mut session, |_| ());
        session.read().unwrap();
        let share = operation(&session, "Get").share;
        assert!(share < Some(1.0), "{share:?} of the gets by {means:?}");
        for name in ["Compaction", "Write"] {
            assert_eq!(counted(&session, name).0, 1, "{name} by {means:?}");
        }
        let compactions = operation(&session, "Compaction").all;
        let timed = rows::durations(&compactions.total).count();
        assert_eq!(timed, 1, "it has links of its own by {means:?}");
        assert_eq!(lost(session.instance()), [0, 0, 0]);
        let write = operation(&session, "Write").all;
        let untimed = 1 - rows::durations(&write.total).count();
        let cut = session.instance().lost[CUT];
        assert!(cut >= untimed, "{cut} cut by {means:?}");
        let commits = session.events().into_iter();
        let commits = commits.filter(|event| event["operation"] == "TxnCommit");
        let during: Vec<_> = commits.map(|event| event["during"].to_string()).collect();
        assert_eq!(during, ["[]", "[]", "[]"], "by {means:?}");
    });
}

#[test]
fn a_binary_that_lacks_an_operation_is_sampled_all_the_same() {
    by_every_tier(|means| {
        let (mut fixture, mut session) = begin("ground-truth-partial", means);
        let round = go(&mut fixture, "busy", &mut session, |_| ());
        session.read().unwrap();
        let exact = truth(&round, "Get").calls;
        let (_, samples) = counted(&session, "Get");
        assert!(
            samples > 0 && samples < exact / 2,
            "{samples} of {exact} by {means:?}"
        );
    });
}
