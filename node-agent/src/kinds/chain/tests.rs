use std::collections::BTreeSet;

use ckb_probe_crds::{Figures, Histogram};

use super::*;
use crate::mechanism::spans::{SeenPart, SpanUsage};

fn calls(calls: u64, time_ns: u64) -> SpanCalls {
    SpanCalls { calls, time_ns }
}

fn operation(name: &str) -> &'static Operation {
    let found = OPERATIONS.iter().find(|operation| operation.name == name);
    found.unwrap()
}

fn read() -> SpanReading {
    let mut histogram = Histogram::default();
    histogram.add(700, 3);
    let mut read = SpanReading {
        count: 3,
        sum_ns: 9_000,
        max_ns: 4_000,
        histogram,
        name: Some(17),
        taken_back: 2,
        usage: Some(SpanUsage {
            cpu_ns: 6_500,
            queued_ns: 300,
            major_faults: 1,
            minor_faults: 8,
            switches: 4,
        }),
        phase: Some(SpanUsage {
            cpu_ns: 1_500,
            ..SpanUsage::default()
        }),
        units: 7,
        bytes: 640,
        calls: vec![SpanCalls::default(); OPERATIONS.len()],
        ..SpanReading::default()
    };
    for (calls_of, one) in read.calls.iter_mut().zip(&OPERATIONS) {
        *calls_of = match one.name {
            FILE_SYNC => calls(1, 100),
            WRITE_STALL => calls(1, 20),
            WAL_WRITE => calls(3, 90),
            VERIFICATION => calls(3, 4_000),
            "TxnGet" => calls(40, 2_000),
            _ => SpanCalls::default(),
        };
    }
    read
}

fn figures(end: usize, read: &SpanReading) -> Figures {
    ChainProbe::default().figures(end, read)
}

#[test]
fn blocks_of_an_outcome_are_told_with_what_they_took_and_the_last_of_them() {
    let figures = figures(end::NAMED, &read());
    let sums = [
        ("cpu", 6_500),
        ("detached", 2),
        ("majorFaults", 1),
        ("minorFaults", 8),
        ("offCpu", 2_500),
        ("queued", 300),
        ("sync", 120),
        ("transactions", 7),
        ("verification", 4_000),
        ("verificationOffCpu", 2_500),
        ("walWrite", 90),
        ("written", 640),
    ];
    let found: Vec<(&str, u64)> = figures.sums.iter().map(|(name, sum)| (&**name, *sum)).collect();
    assert_eq!(found, sums);
    assert_eq!(figures.maxima["duration"], 4_000);
    assert_eq!((figures.maxima["height"], figures.levels["tip"]), (17, 17));
    let durations = &figures.distributions["duration"];
    assert_eq!((durations.count(), durations.sum, durations.unmeasured), (3, 9_000, 0));
}

#[test]
fn of_blocks_that_came_to_nothing_no_height_is_the_last() {
    let figures = figures(end::ABANDONED, &read());
    assert!(!figures.maxima.contains_key("height") && figures.levels.is_empty());
}

#[test]
fn blocks_whose_end_was_not_seen_are_counted_and_nothing_else() {
    let unseen = SpanReading {
        count: 5,
        ..SpanReading::default()
    };
    let figures = figures(end::UNSEEN, &unseen);
    let durations = &figures.distributions["duration"];
    assert_eq!((durations.count(), durations.unmeasured), (5, 5));
    assert!(figures.sums.is_empty() && figures.maxima.is_empty());
}

#[test]
fn where_the_kernel_does_not_tell_what_a_thread_used_nothing_is_said_of_it() {
    let silent = SpanReading {
        usage: None,
        phase: None,
        ..read()
    };
    let figures = figures(end::NAMED, &silent);
    let known: Vec<&str> = figures.sums.keys().map(|name| &**name).collect();
    let expected = [
        "detached",
        "sync",
        "transactions",
        "verification",
        "walWrite",
        "written",
    ];
    assert_eq!(known, expected);
}

#[test]
fn what_rocksdb_does_within_its_calls_is_no_part_of_its_own() {
    let probe = ChainProbe::default();
    assert_eq!(probe.operation(operation(FILE_SYNC), calls(1, 100)), None);
    let reads = probe.operation(operation("TxnGet"), calls(40, 2_000)).unwrap();
    assert_eq!((reads.sums["calls"], reads.sums["storage"]), (40, 2_000));
}

#[test]
fn of_a_node_whose_names_do_not_tell_where_it_verifies_nothing_is_said_of_that() {
    let mut nameless = read();
    for (calls, operation) in nameless.calls.iter_mut().zip(&OPERATIONS) {
        if operation.name == VERIFICATION {
            *calls = SpanCalls::default();
        }
    }
    let figures = figures(end::NAMED, &nameless);
    assert!(!figures.sums.contains_key("verification"));
    assert!(!figures.sums.contains_key("verificationOffCpu"));
}

fn part(name: &str, calls: SpanCalls) -> SeenPart<'static> {
    SeenPart {
        operation: operation(name),
        family: None,
        calls,
    }
}

fn seen(end: usize, name: Option<u64>) -> SeenSpan<'static> {
    SeenSpan {
        end,
        duration_ns: 5_000_000,
        name,
        names: name.map_or(0, |_| 1),
        value: None,
        taken_back: 0,
        units: 0,
        bytes: 88,
        usage: None,
        phase: None,
        parts: vec![
            part("TxnGet", calls(16, 120_000)),
            part("TxnCommit", calls(1, 2_100_000)),
            part(FILE_SYNC, calls(1, 2_000_000)),
        ],
        stack: None,
    }
}

#[test]
fn a_block_is_told_with_its_height_and_what_took_longest_first() {
    let details = ChainProbe::default().event(&seen(end::NAMED, Some(12)));
    let told: Vec<(&str, String)> = details.iter().map(|(name, detail)| (*name, detail.to_string())).collect();
    let operations = "TxnCommit 1x 2.1ms, FileSync 1x 2ms, TxnGet 16x 120us";
    let expected = [
        ("height", "12"),
        ("duration", "5ms"),
        ("rocksdb", "2.22ms"),
        ("commit", "2.1ms"),
        ("sync", "2ms"),
        ("written", "88"),
        ("operations", operations),
    ];
    assert_eq!(told, expected.map(|(name, text)| (name, text.to_string())));
}

#[test]
fn a_block_that_was_wrong_comes_after_those_that_were_put_before_it() {
    let height = |name| {
        let details = ChainProbe::default().event(&seen(end::ABANDONED, name));
        let height = details.into_iter().find(|(name, _)| *name == "height");
        height.map(|(_, height)| height)
    };
    assert_eq!(height(Some(21)), Some(Detail::Number(22)));
    // One that extends the chain is wrong before anything is put.
    assert_eq!(height(None), None);
}

#[test]
fn a_hash_is_told_of_a_block_that_is_committed_and_of_no_other() {
    let hash = |end| {
        let span = SeenSpan {
            value: Some([0xa5; 32]),
            ..seen(end, Some(12))
        };
        let details = ChainProbe::default().event(&span).into_iter();
        let mut hashes = details.filter(|(name, _)| *name == "hash");
        hashes.next().map(|(_, hash)| hash.to_string())
    };
    assert_eq!(hash(end::NAMED), Some(format!("0x{}", "a5".repeat(32))));
    assert_eq!(hash(end::ABANDONED), None);
}

#[test]
fn an_operation_on_a_column_family_is_called_after_both() {
    let family = PartFamily {
        id: 11,
        name: "10".to_string(),
    };
    let name = |family| ChainProbe::default().part_name(operation("TxnGet"), family);
    assert_eq!(name(Some(&family)), "TxnGet CELL");
    assert_eq!(name(None), "TxnGet");
}

#[test]
fn operations_have_names_of_their_own_and_fit() {
    let names: BTreeSet<&str> = OPERATIONS.iter().map(|operation| operation.name).collect();
    assert_eq!(names.len(), OPERATIONS.len());
    assert!(OPERATIONS.len() <= ckb_probe_common::spans::OPERATIONS);
    assert!(THREAD.len() < 16 && INDEX.len() < 8);
}
