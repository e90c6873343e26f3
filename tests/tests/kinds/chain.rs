//! Blocks, as CKB verifies them.

use std::time::Duration;

use ckb_probe_agent::host::Session;
use ckb_probe_crds::{Figures, kinds::chain::ChainProbe};
use ckb_probe_testkit::Fixture;
use serde_json::Value;

use crate::way::{in_every_way, lost, row, rows_of, total};

/// A clock that a program reads in the kernel is told in other steps than those that a thread reads its CPU time by.
const CPU_ERROR_NS: u64 = 200_000;

fn every_block() -> ChainProbe {
    ChainProbe {
        threshold: Duration::ZERO.into(),
    }
}

/// Does what it is told as CKB's thread `verify_blocks` does.
fn node() -> Fixture {
    Fixture::named("blocks", &[])
}

/// How many blocks there were, and of how many it is known how long they took.
fn blocks(figures: &Figures) -> [u64; 2] {
    let durations = &figures.distributions["duration"];
    [durations.count(), durations.histogram.count()]
}

/// The calls of an operation within the blocks of a row.
fn calls(session: &Session, outcome: &str, operation: &str) -> u64 {
    let parts = &row(session, outcome).parts;
    parts
        .get(operation)
        .map_or(0, |part| part.total.sums["calls"])
}

fn number(event: &Value, name: &str) -> u64 {
    event[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {event}"))
}

fn heights(events: &[Value], outcome: &str) -> Vec<u64> {
    let events = events.iter().filter(|event| event["outcome"] == outcome);
    events.map(|event| number(event, "height")).collect()
}

/// What each block took: at least, at most, and the same of CPU time.
fn took(answer: &str) -> Vec<[u64; 4]> {
    let numbers: Vec<u64> = answer
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    numbers
        .chunks_exact(4)
        .map(|four| four.try_into().unwrap())
        .collect()
}

#[test]
fn every_block_is_counted_once_with_its_height_and_what_it_consisted_of() {
    in_every_way(every_block(), |way| {
        let (mut chosen, mut other) = (node(), node());
        let mut session = way.attach(chosen.pid());
        other.tell("accept 9001 9020 1");
        let truth = took(&chosen.tell("accept 101 400 7"));
        chosen.tell("read 5");
        // No other thread verifies, whatever its transactions.
        chosen.tell("other 8001 8010");
        let events = session.events();
        session.read().unwrap();
        assert_eq!(rows_of(&session), ["accepted", "between"]);
        let accepted = total(&session, "accepted");
        assert_eq!(blocks(accepted), [300, 300]);
        assert_eq!(accepted.maxima["height"], 400);
        assert_eq!(accepted.levels["tip"], 400);
        assert_eq!(accepted.sums["detached"], 0);
        let counted = ["TxnGet", "TxnPut", "TxnCommit", "TxnDelete", "Get"];
        let counted = counted.map(|operation| calls(&session, "accepted", operation));
        assert_eq!(counted, [2100, 900, 300, 0, 0]);
        assert_eq!(calls(&session, "between", "Get"), 5);
        assert_eq!(
            heights(&events, "accepted"),
            (101..=400).collect::<Vec<_>>()
        );
        assert_eq!(events.len(), 300);
        for (event, [least, most, ..]) in events.iter().zip(&truth) {
            let duration = number(event, "durationNanoseconds");
            assert!(
                (*least..=*most).contains(&duration),
                "{event}: {least} to {most}"
            );
            assert_eq!(event["threadName"], "verify_blocks");
        }
        let sum: u64 = events
            .iter()
            .map(|event| number(event, "durationNanoseconds"))
            .sum();
        assert_eq!(accepted.distributions["duration"].sum, sum);
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn it_is_told_what_became_of_blocks() {
    in_every_way(every_block(), |way| {
        let mut node = node();
        // One that is under way already is not told as one.
        node.tell("leave");
        let mut session = way.attach(node.pid());
        for order in [
            "accept 1 20 1",
            // 18 to 20 come off, and others of the heights 18 to 21 take their place.
            "reorganise 20 18 21",
            "side",
            "side",
            "discard 22",
            "fail",
            "leave",
            "accept 22 22 1",
        ] {
            node.tell(order);
        }
        let events = session.events();
        session.read().unwrap();
        assert_eq!(
            rows_of(&session),
            [
                "accepted",
                "between",
                "discarded",
                "partial",
                "reorganised",
                "side"
            ]
        );
        let counted = ["accepted", "reorganised", "side", "discarded", "partial"];
        let counted = counted.map(|outcome| blocks(total(&session, outcome)));
        assert_eq!(counted, [[21, 21], [1, 1], [2, 2], [2, 2], [1, 0]]);
        let expected: Vec<u64> = (1..=20).chain([22]).collect();
        assert_eq!(heights(&events, "accepted"), expected);
        assert_eq!(heights(&events, "reorganised"), [21]);
        let reorganised = events
            .iter()
            .find(|event| event["outcome"] == "reorganised");
        let reorganised = reorganised.unwrap();
        assert_eq!(number(reorganised, "detached"), 3);
        assert_eq!(number(reorganised, "attached"), 4);
        assert_eq!(total(&session, "reorganised").sums["detached"], 3);
        assert_eq!(calls(&session, "reorganised", "TxnDelete"), 6);
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn time_is_told_apart_by_what_it_went_to() {
    in_every_way(every_block(), |way| {
        let mut node = node();
        let mut session = way.attach(node.pid());
        let truth = took(&node.tell("accept 1 20 1 5000 3000"));
        let synced = took(&node.tell("sync 21"));
        let events = session.events();
        session.read().unwrap();
        assert_eq!(events.len(), 21);
        for (event, [_, _, least, most]) in events.iter().zip(truth.iter().chain(&synced)) {
            let cpu = number(event, "cpuNanoseconds");
            let range = least.saturating_sub(CPU_ERROR_NS)..=most + CPU_ERROR_NS;
            assert!(range.contains(&cpu), "{event}: {least} to {most}");
            let off_cpu = number(event, "offCpuNanoseconds");
            assert_eq!(cpu + off_cpu, number(event, "durationNanoseconds"));
        }
        let accepted = total(&session, "accepted");
        // Each slept for five milliseconds, and the last for two.
        assert!(accepted.sums["offCpu"] >= 20 * 5_000_000 - 20 * CPU_ERROR_NS);
        let sync = accepted.sums["sync"];
        assert!(
            (2_000_000..synced[0][1]).contains(&sync),
            "{sync} of {synced:?}"
        );
        // What RocksDB does within its calls is in them.
        assert!(accepted.sums["storage"] >= sync);
        assert_eq!(calls(&session, "accepted", "TxnCommit"), 21);
        assert_eq!(calls(&session, "accepted", "FileSync"), 0);
    });
}

#[test]
fn only_blocks_as_slow_as_the_threshold_are_listed_and_all_are_counted() {
    let threshold = Duration::from_millis(20).into();
    in_every_way(ChainProbe { threshold }, |way| {
        let mut node = node();
        let mut session = way.attach(node.pid());
        node.tell("accept 1 30 1");
        node.tell("accept 31 33 1 20000");
        let events = session.events();
        session.read().unwrap();
        let slow: Vec<u64> = heights(&events, "accepted");
        // Where the machine is busy, others may be as slow.
        assert!(slow.ends_with(&[31, 32, 33]), "{slow:?}");
        for event in &events {
            assert!(
                number(event, "durationNanoseconds") >= 20_000_000,
                "{event}"
            );
        }
        assert_eq!(blocks(total(&session, "accepted")), [33, 33]);
    });
}

#[test]
fn a_process_that_has_no_such_transactions_is_told_so() {
    in_every_way(every_block(), |way| {
        let other = Fixture::named("usdt", &[]);
        let refusal = way.ask(every_block().into(), other.pid()).err().unwrap();
        assert_eq!(refusal.reason, ckb_probe_crds::Reason::SymbolNotFound);
        assert!(
            refusal.message.contains("rocksdb_transaction_commit"),
            "{refusal}"
        );
    });
}
