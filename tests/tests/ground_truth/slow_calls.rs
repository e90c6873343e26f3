//! Each slow call is told with all that is known of it, or counted as lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ckb_probe_agent::{host::Session, observe::boot_time};
use ckb_probe_crds::kinds::rocksdb::RocksDbProbe;
use ckb_probe_tests::{
    fixture::{Call, GroundTruth, SlowCall, Truth},
    rows,
};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use crate::harness::{
    attach, by_every_tier, count, everything, excess_ns, lost, operations, truth,
};

/// What is meant to be slow takes three times as long; what is not, a microsecond.
const THRESHOLD: Duration = Duration::from_millis(20);

/// Milliseconds of the round:
/// ```text
/// writer     100..160   600..660  1100..1160  1600..1660  2100..2160
/// reader     300..360   800..860  1300..1360  1800..1860  2300..2360
/// putter     450..510            1450..1510              2450..2510
/// committer                      1290..1351              2290..2351   of them DelayWrite 50, then Sync 10
/// low0        50..250            1050..1250                           Compaction
/// low1       130..430                                                 Compaction: is still there when low0's has ended
/// high0                 620..645             1620..1645               Flush, in its last 5 a Sync: begins and ends in a write
/// syncer                780..880                                      SyncWAL: all of a read
/// ```
/// Whatever begins or ends does so 10 ms or more from what else does, and fast calls go on all the time.
const PLAN: [&str; 12] = [
    "rocksdb_write 5 constant:60000000 rate:2 at:100000000 in:writer",
    "rocksdb_get_pinned_cf 5 constant:60000000 rate:2 at:300000000 in:a-name-of-15-by",
    "rocksdb_put_cf 3 constant:60000000 rate:1 at:450000000 in:putter",
    "rocksdb_transaction_commit 2 constant:1000000 rate:1 at:1290000000 in:committer \
     calls:rocksdb::DBImpl::DelayWrite,constant:50000000 \
     calls:rocksdb::WritableFileWriter::Sync,constant:10000000",
    "rocksdb_transaction_put_cf 2000 constant:1000 rate:800 in:fast",
    "rocksdb::CompactionJob::Run 2 constant:200000000 rate:1 at:50000000 in:rocksdb:low0",
    "rocksdb::CompactionJob::Run 1 constant:300000000 at:130000000 in:rocksdb:low1",
    "rocksdb::FlushJob::Run 2 constant:20000000 rate:1 at:620000000 in:rocksdb:high0 \
     calls:rocksdb::WritableFileWriter::Sync,constant:5000000",
    "rocksdb::DBImpl::SyncWAL 1 constant:100000000 at:780000000 in:syncer",
    "rocksdb::CompactionJob::Run.cold 1 constant:2500000000 at:0 in:decoy-0",
    "rocksdb::CompactionJob::Run::lambda 1 constant:2500000000 at:0 in:decoy-1",
    "rocksdb::DBImplReadOnly::SyncWAL 1 constant:2500000000 at:0 in:decoy-2",
];

/// A slow call, as a line of JSON tells it.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Told {
    time: String,
    probe: String,
    operation: String,
    column_family: Option<String>,
    thread: u32,
    thread_name: String,
    duration_nanoseconds: u64,
    bytes: Option<u64>,
    during: Vec<String>,
}

/// The slow calls that were told since the last time.
fn told(session: &mut Session) -> Vec<Told> {
    let lines = session.events().into_iter();
    lines
        .map(|line| serde_json::from_value(line).unwrap())
        .collect()
}

/// The operation of each function that may be slow, and of each cause.
fn operation(function: &str) -> Option<&'static str> {
    Some(match function {
        "rocksdb_write" => "Write",
        "rocksdb_get_pinned_cf" => "Get",
        "rocksdb_put_cf" => "Put",
        "rocksdb_transaction_commit" => "TxnCommit",
        "rocksdb_transaction_put_cf" => "TxnPut",
        _ => return None,
    })
}

fn cause(function: &str) -> &'static str {
    match function {
        "rocksdb::CompactionJob::Run" => "Compaction",
        "rocksdb::FlushJob::Run" => "Flush",
        "rocksdb::DBImpl::SyncWAL" => "WalSync",
        "rocksdb::WritableFileWriter::Sync" => "FileSync",
        "rocksdb::DBImpl::DelayWrite" => "WriteStall",
        other => panic!("{other} is no cause"),
    }
}

/// The certain and the possible: see [`Slack::causes`].
type Causes = [BTreeSet<&'static str>; 2];

/// How far the clock readings of probes and functions are apart at most, by operation: some microseconds, and as long as
/// a thread lost its turn between them, which the sums of their durations tell.
struct Slack(BTreeMap<String, u64>);

/// Of one call, beside its traps.
const SOME_MICROSECONDS: u64 = 10_000;

impl Slack {
    fn of(session: &Session, expected: &Truth, trap_ns: u64) -> Self {
        let all = operations(session).into_iter();
        Self(
            all.map(|series| {
                let excess = excess_ns(series.all, &truth(expected, series.name));
                (
                    series.name.to_string(),
                    excess + 2 * trap_ns + SOME_MICROSECONDS,
                )
            })
            .collect(),
        )
    }

    /// The causes that were under way during a call: those that certainly were, and those that may have been, since
    /// one began when the other ended.
    fn causes(&self, truth: &Truth, call: &Call) -> Causes {
        let own = self.0[operation(&call.function).unwrap()];
        let met = |other: &Call, by: i64| {
            let slack = (own + self.0[cause(&other.function)]) as i64 * by;
            let before = |one: u64, other: u64| one as i64 + slack <= other as i64;
            before(other.entered_ns, call.left_ns()) && before(call.entered_ns, other.left_ns())
        };
        [1, -1].map(|by| {
            let causes = truth.causes.iter().filter(|cause| met(cause, by));
            causes.map(|call| cause(&call.function)).collect()
        })
    }
}

/// Whether it is that call: for more than half of its time, in the same thread.
fn is_same(told: &Told, call: &Call, booted_ns: i128) -> bool {
    let time: Timestamp = told.time.parse().unwrap();
    let told_left = time.as_nanosecond() - booted_ns;
    let told_entered = told_left - i128::from(told.duration_nanoseconds);
    let together =
        told_left.min(i128::from(call.left_ns())) - told_entered.max(i128::from(call.entered_ns));
    told.thread_name == call.thread_name && 2 * together > i128::from(call.duration_ns)
}

/// One of each kind, which a round shows unless threads lost their turns at the wrong moment.
const DURING: [&[&str]; 5] = [
    &[],
    &["Compaction"],
    &["WalSync"],
    &["Flush", "FileSync"],
    &["FileSync", "WriteStall"],
];

#[test]
fn each_is_told_with_its_thread_column_family_size_and_what_ran_beside_it() {
    by_every_tier(|means| {
        let options = ["--slow", "20000000", "--families", "3:cells-"];
        let mut fixture = GroundTruth::start("ground-truth", &options, &PLAN).unwrap();
        let kind = RocksDbProbe {
            by_column_family: true,
            slow_threshold: THRESHOLD.into(),
            // Flush is single-stepped, and must be there all the same.
            include_single_stepped: false,
            ..everything()
        };
        let mut missing: BTreeSet<Vec<String>> = DURING
            .iter()
            .map(|during| during.iter().map(ToString::to_string).collect())
            .collect();
        for _ in 0..3 {
            let mut session = attach(&fixture, means, kind.clone());
            let truth = fixture.go().unwrap();
            session.read().unwrap();
            let slow = operations(&session).into_iter();
            let slow: u64 = slow.map(|series| rows::slow(&series.all.total)).sum();
            let told = told(&mut session);
            assert_eq!(
                (told.len() as u64, lost(session.instance())),
                (slow, [0; 3])
            );
            let slack = Slack::of(&session, &truth, means.calibration.trap_ns);
            for during in hold_against(&truth, told, &slack) {
                missing.remove(&during);
            }
            if missing.is_empty() {
                return;
            }
        }
        panic!("{means:?}: no slow call was seen during {missing:?}");
    });
}

/// Holds what was told against the truth, call by call. Returns the causes of those calls where neither began when the
/// other ended.
fn hold_against(truth: &Truth, mut told: Vec<Told>, slack: &Slack) -> Vec<Vec<String>> {
    let booted_ns = boot_time().as_nanosecond();
    let mut seen = Vec::new();
    for SlowCall {
        call,
        key_bytes,
        value_bytes,
        column_family,
        during,
    } in &truth.slow_calls
    {
        let Some(operation) = operation(&call.function) else {
            continue;
        };
        let which = told.iter().position(|told| is_same(told, call, booted_ns));
        let which = which.unwrap_or_else(|| panic!("{call:?} is not among {told:?}"));
        let told = told.swap_remove(which);
        assert_eq!(
            (told.operation.as_str(), told.probe.as_str()),
            (operation, "rocksdb")
        );
        assert!(told.thread > 0, "{told:?}");
        assert_eq!(&told.column_family, column_family, "{told:?}");
        let bytes = match operation {
            "Get" => Some(*value_bytes),
            "Put" | "TxnPut" => Some(key_bytes + value_bytes),
            _ => None,
        };
        assert_eq!(told.bytes, bytes, "{told:?}");
        let longer = told.duration_nanoseconds as i64 - call.duration_ns as i64;
        assert!(
            longer.unsigned_abs() <= slack.0[operation],
            "{told:?} is {call:?}"
        );

        let [certain, possible] = slack.causes(truth, call);
        let said: BTreeSet<&str> = told.during.iter().map(String::as_str).collect();
        assert_eq!(said.len(), told.during.len(), "{told:?}");
        assert!(
            certain.is_subset(&said) && said.is_subset(&possible),
            "{told:?} met {certain:?}, and {possible:?} at most"
        );
        if certain == possible {
            let truth: BTreeSet<_> = during.iter().map(|function| cause(function)).collect();
            assert_eq!(said, truth, "{told:?}");
            seen.push(told.during);
        }
    }
    // Others there may be only where a fast call lost its turn in a trap.
    told.retain(|told| told.thread_name != "fast");
    assert_eq!(told, []);
    seen
}

#[test]
fn they_are_counted_and_delivered_or_counted_as_lost() {
    by_every_tier(|means| {
        // Four times what the ring holds, and nobody empties it meanwhile.
        let plan = [
            "rocksdb_put_cf 4000 constant:50000",
            "rocksdb_write 500 constant:1000",
            "[again]",
            "rocksdb_put_cf 500 constant:50000",
        ];
        let mut fixture = GroundTruth::start("ground-truth", &["--threads", "2"], &plan).unwrap();
        let kind = RocksDbProbe {
            slow_threshold: Duration::from_micros(40).into(),
            ..everything()
        };
        let mut session = attach(&fixture, means, kind);
        fixture.go().unwrap();
        session.read().unwrap();
        let put = made(&session, "Put");
        assert_eq!(put, (4000, 4000), "{means:?}");
        // Of the others some may have lost their turn, and be slow.
        let slow = put.1 + made(&session, "Write").1;
        let delivered = told(&mut session);
        let short = |call: &Told| call.duration_nanoseconds < 40_000;
        assert!(!delivered.iter().any(short));
        let [_, events_lost, _] = lost(session.instance());
        assert!(events_lost > 0, "the ring was meant to overflow");
        assert_eq!(delivered.len() as u64 + events_lost, slow, "{means:?}");

        // There is room again.
        fixture.go_phase("again").unwrap();
        session.read().unwrap();
        assert_eq!(made(&session, "Put").1, 4500);
        assert_eq!(told(&mut session).len(), 500);
        assert_eq!(lost(session.instance())[1], events_lost, "{means:?}");
    });
}

/// Calls and slow calls of an operation.
fn made(session: &Session, name: &str) -> (u64, u64) {
    let all = crate::harness::operation(session, name).all;
    (count(all), rows::slow(&all.total))
}
