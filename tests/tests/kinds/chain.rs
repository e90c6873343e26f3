//! Blocks, as CKB verifies them.

mod slow;
mod time;

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_agent::{
    host::Session,
    state::{probe::ProbeState, series::RowState},
};
use ckb_probe_crds::{
    Figures,
    kinds::{
        chain::ChainProbe,
        rocksdb::{Operation, RocksDbProbe},
    },
};
use ckb_probe_testkit::Fixture;
use serde_json::Value;

use crate::way::{in_every_way, lost, row, rows_of, total};

fn every_block() -> ChainProbe {
    ChainProbe {
        threshold: Duration::ZERO.into(),
        ..ChainProbe::default()
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
            // It is of the block, and of no operation in it.
            assert!(event.get("operation").is_none(), "{event}");
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

/// The fixture's hash of a block.
fn hash(height: u64) -> String {
    let bytes = height.to_le_bytes();
    let eight: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{}", eight.repeat(4))
}

#[test]
fn a_block_is_told_with_its_hash_its_transactions_and_what_it_wrote() {
    in_every_way(every_block(), |way| {
        let mut node = node();
        let mut session = way.attach(node.pid());
        for order in [
            "accept 1 3 1",
            "transactions 7",
            "accept 4 9 2",
            "transactions 2",
            "reorganise 9 8 10",
            "side",
            "discard 11",
        ] {
            node.tell(order);
        }
        let events = session.events();
        session.read().unwrap();
        let of = |event: &Value, name: &str| event.get(name).and_then(Value::as_u64).unwrap_or(0);
        for event in &events {
            let height = event.get("height").and_then(Value::as_u64);
            let (expected, transactions, written) = match event["outcome"].as_str().unwrap() {
                "accepted" => match height.unwrap() {
                    height @ ..4 => (Some(hash(height)), 0, 88),
                    height => (Some(hash(height)), 7, 88 + 7 * 32),
                },
                "reorganised" => (Some(hash(10)), 6, 3 * (88 + 2 * 32)),
                "side" => (None, 0, 8),
                _ => (None, 0, 8),
            };
            assert_eq!(
                event.get("hash").and_then(Value::as_str),
                expected.as_deref(),
                "{event}"
            );
            assert_eq!(of(event, "transactions"), transactions, "{event}");
            assert_eq!(of(event, "written"), written, "{event}");
        }
        assert_eq!(events.len(), 12);
        assert_eq!(total(&session, "accepted").sums["transactions"], 42);
        assert_eq!(
            total(&session, "accepted").sums["written"],
            9 * 88 + 42 * 32
        );
        assert_eq!(total(&session, "reorganised").sums["transactions"], 6);
    });
}

#[test]
fn operations_are_told_apart_by_column_family_and_are_together_what_they_were() {
    let by_column_family = ChainProbe {
        by_column_family: true,
        ..every_block()
    };
    in_every_way(by_column_family, |way| {
        let mut node = node();
        let mut session = way.attach(node.pid());
        node.tell("transactions 2");
        node.tell("accept 1 50 3");
        node.tell("reorganise 50 49 51");
        node.tell("read 4");
        let events = session.events();
        session.read().unwrap();
        let counted = |outcome: &str| -> Vec<(String, u64)> {
            let parts = row(&session, outcome).parts.iter();
            parts
                .map(|(name, part)| (name.to_string(), part.total.sums["calls"]))
                .collect()
        };
        let named = |parts: &[(&str, u64)]| -> Vec<(String, u64)> {
            let parts = parts.iter();
            parts
                .map(|(name, calls)| ((*name).to_string(), *calls))
                .collect()
        };
        let accepted = [
            ("TxnCommit", 50),
            ("TxnGet INDEX", 150),
            ("TxnPut CHAIN_ROOT_MMR", 50),
            ("TxnPut INDEX", 100),
            ("TxnPut TRANSACTION_INFO", 100),
        ];
        assert_eq!(counted("accepted"), named(&accepted));
        let reorganised = [
            ("TxnCommit", 1),
            ("TxnDelete INDEX", 4),
            ("TxnPut CHAIN_ROOT_MMR", 3),
            ("TxnPut INDEX", 6),
            ("TxnPut TRANSACTION_INFO", 6),
        ];
        assert_eq!(counted("reorganised"), named(&reorganised));
        assert_eq!(counted("between"), named(&[("Get INDEX", 4)]));
        let first = events.first().unwrap()["operations"].to_string();
        assert!(first.contains("TxnGet INDEX 3x"), "{first}");
        assert_eq!(events.len(), 51);
    });
}

#[test]
fn blocks_and_what_is_between_them_are_what_rocksdb_was_called_for() {
    in_every_way(every_block(), |way| {
        let mut node = node();
        let every_operation = RocksDbProbe {
            operations: Operation::ALL.to_vec(),
            ..RocksDbProbe::default()
        };
        let questions = [every_block().into(), every_operation.into()];
        let mut session = way.ask_all(questions, node.pid()).unwrap();
        for order in [
            "accept 1 200 7",
            "read 14",
            "reorganise 200 196 203",
            "side",
            "discard 204",
            "fail",
            "accept 204 210 2",
        ] {
            node.tell(order);
        }
        session.read().unwrap();
        let [blocks, rocksdb] = &session.instance().probes[..] else {
            panic!("two probes");
        };
        let rows = |probe: &ProbeState| -> Vec<(String, RowState)> {
            let rows = probe.series.iter().flat_map(|series| &series.rows);
            rows.map(|(name, row)| (name.clone(), row.clone()))
                .collect()
        };
        let blocks = rows(blocks);
        let mut compared = BTreeMap::new();
        for (operation, counted) in rows(rocksdb) {
            let within = blocks.iter();
            let within = within.filter_map(|(_, row)| row.parts.get(operation.as_str()));
            let within: u64 = within.map(|part| part.total.sums["calls"]).sum();
            let counted = counted.all.total.distributions["duration"].count();
            assert_eq!(within, counted, "{operation}");
            compared.insert(operation, within);
        }
        let expected = [
            ("Get", 14),
            ("TxnCommit", 211),
            ("TxnDelete", 16),
            ("TxnGet", 1414),
            ("TxnPut", 648),
        ];
        for (operation, calls) in expected {
            assert_eq!(compared[operation], calls, "{operation}");
        }
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
