use std::collections::BTreeSet;

use ckb_probe_crds::{Figures, Histogram};

use super::*;
use crate::mechanism::spans::SpanUsage;

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
            switches: 4,
        }),
        ..SpanReading::default()
    };
    for (calls_of, one) in read.operations.iter_mut().zip(&OPERATIONS) {
        *calls_of = match one.name {
            FILE_SYNC => calls(1, 100),
            WRITE_STALL => calls(1, 20),
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
        ("offCpu", 2_500),
        ("queued", 300),
        ("sync", 120),
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
        ..read()
    };
    let figures = figures(end::NAMED, &silent);
    let known: Vec<&str> = figures.sums.keys().map(|name| &**name).collect();
    assert_eq!(known, ["detached", "sync"]);
}

#[test]
fn what_rocksdb_does_within_its_calls_is_no_part_of_its_own() {
    let probe = ChainProbe::default();
    assert_eq!(probe.operation(operation(FILE_SYNC), calls(1, 100)), None);
    let reads = probe.operation(operation("TxnGet"), calls(40, 2_000)).unwrap();
    assert_eq!((reads.sums["calls"], reads.sums["storage"]), (40, 2_000));
}

fn seen(end: usize, name: Option<u64>) -> SeenSpan<'static> {
    SeenSpan {
        end,
        duration_ns: 5_000_000,
        name,
        names: name.map_or(0, |_| 1),
        taken_back: 0,
        usage: None,
        operations: vec![
            (operation("TxnGet"), calls(16, 120_000)),
            (operation("TxnCommit"), calls(1, 2_100_000)),
            (operation(FILE_SYNC), calls(1, 2_000_000)),
        ],
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
fn operations_have_names_of_their_own_and_fit() {
    let names: BTreeSet<&str> = OPERATIONS.iter().map(|operation| operation.name).collect();
    assert_eq!(names.len(), OPERATIONS.len());
    assert!(OPERATIONS.len() <= ckb_probe_common::spans::OPERATIONS);
    assert!(THREAD.len() < 16 && INDEX.len() < 8);
}
