//! What RocksDB says of its own health, by functions that say what they are told.

use ckb_probe_agent::{host::Session, state::series::RowState};
use ckb_probe_crds::kinds::rocksdb::{Operation, RocksDbProbe};
use ckb_probe_testkit::Fixture;

use crate::harness::{attach_to, by_every_tier};

/// Nothing of calls.
fn health() -> RocksDbProbe {
    RocksDbProbe {
        operations: vec![Operation::Get],
        ..RocksDbProbe::default()
    }
}

/// Plays a test by each tier, with a database of which this is measured.
fn measured(kind: &RocksDbProbe, test: impl Fn(&mut Fixture, &mut Session)) {
    by_every_tier(|means| {
        let mut database = Fixture::named("health", &[]);
        let mut session = attach_to(database.pid(), means, kind.clone());
        test(&mut database, &mut session);
    });
}

/// The books of each row, by its name.
fn rows(session: &Session) -> impl Iterator<Item = (&String, &RowState)> {
    let series = session.instance().probes[0].series.iter();
    series.flat_map(|series| &series.rows)
}

fn row<'a>(session: &'a Session, name: &str) -> &'a RowState {
    let row = rows(session).find(|(known, _)| *known == name);
    row.unwrap_or_else(|| panic!("no row {name} among {:?}", rows_of(session)))
        .1
}

fn rows_of(session: &Session) -> Vec<&str> {
    let mut names: Vec<&str> = rows(session).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names
}

fn lost(session: &Session) -> u64 {
    session.instance().lost.values().sum()
}

/// Each part of a row, with one of its sums.
fn parts<'a>(row: &'a RowState, sum: &str) -> Vec<(&'a str, u64)> {
    let parts = row.parts.iter();
    parts
        .map(|(name, part)| (name.as_str(), part.total.sums[sum]))
        .collect()
}

fn level(session: &Session, name: &str, level: &str) -> u64 {
    row(session, name).all.total.levels[level]
}

/// The moments before and after an order.
fn moments(answer: &str) -> [u64; 2] {
    let moments: Vec<u64> = answer.split(' ').map(|one| one.parse().unwrap()).collect();
    moments.try_into().unwrap()
}

#[test]
fn what_fails_is_counted_by_what_is_said_of_it_and_told() {
    measured(&health(), |database, session| {
        database.tell("compaction 100 0 0 0");
        database.tell("compaction 7 14 0 0");
        database.tell("compaction 3 5 4 1 : While appending to file: /data/\x1b[2J7.sst: No space left on device");
        // The database is closed; a family is dropped; a manual compaction is paused; another is at it.
        for nothing in ["8 0", "15 0", "7 11", "11 0"] {
            database.tell(&format!("compaction 2 {nothing} 0"));
            database.tell(&format!("flush 2 {nothing} 0"));
        }
        database.tell("flush 1 2 0 4 : block checksum mismatch");
        // What cannot be a status is counted, and not read.
        database.tell("flush 2 200 1 1 : nonsense");
        let events = session.events();
        session.read().unwrap();
        assert_eq!(rows_of(session), ["FailedCompaction", "FailedFlush", "Get"]);
        assert_eq!(
            parts(row(session, "FailedCompaction"), "problems"),
            [("CompactionTooLarge", 7), ("IOError/NoSpace soft", 3)]
        );
        assert_eq!(
            parts(row(session, "FailedFlush"), "problems"),
            [("Corruption unrecoverable", 1), ("of an unknown layout", 2)]
        );
        let of_row = |name: &str| {
            let events = events.iter().filter(|event| event["operation"] == name);
            let texts = events.map(|event| event["error"].as_str().unwrap());
            texts.collect::<Vec<_>>()
        };
        let compactions = of_row("FailedCompaction");
        assert_eq!(compactions[..7], ["CompactionTooLarge"; 7]);
        assert_eq!(
            compactions[7..],
            ["IOError/NoSpace soft: While appending to file: /data/\\u{1b}[2J7.sst: No space left on device";
                3]
        );
        assert_eq!(
            of_row("FailedFlush"),
            [
                "Corruption unrecoverable: block checksum mismatch",
                "of an unknown layout",
                "of an unknown layout"
            ]
        );
        assert_eq!(lost(session), 0);
    });
}

#[test]
fn an_error_that_is_taken_down_lasts_until_it_is_over() {
    measured(&health(), |database, session| {
        database.tell("error 1 5 4 1 : No space left on device");
        session.read().unwrap();
        assert_eq!(level(session, "BackgroundError", "lasting"), 1);
        database.tell("recover 5");
        session.read().unwrap();
        assert_eq!(level(session, "BackgroundError", "lasting"), 1);
        database.tell("recover");
        session.read().unwrap();
        assert_eq!(level(session, "BackgroundError", "lasting"), 0);
        database.tell("error 0 5 4 2 : No space left on device");
        database.tell("error 9 2 0 4");
        let events = session.events();
        session.read().unwrap();
        let lasting = |session: &Session| {
            let parts = &row(session, "BackgroundError").parts;
            let lasting = parts
                .iter()
                .filter(|(_, part)| part.total.levels["lasting"] == 1);
            lasting.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(lasting(session), ["reason 9 Corruption unrecoverable"]);
        // One that is less grave does not take its place.
        database.tell("error 1 5 4 1 : No space left on device");
        session.read().unwrap();
        assert_eq!(lasting(session), ["reason 9 Corruption unrecoverable"]);
        assert_eq!(
            parts(row(session, "BackgroundError"), "problems"),
            [
                ("Compaction IOError/NoSpace soft", 2),
                ("Flush IOError/NoSpace hard", 1),
                ("reason 9 Corruption unrecoverable", 1)
            ]
        );
        // From a hard error on, nothing is written any more.
        let notable = events.iter().map(|event| event["notable"] == true);
        assert_eq!(notable.collect::<Vec<_>>(), [false, true, true]);
    });
}

#[test]
fn writes_that_are_held_back_are_told_by_cause_and_column_family() {
    // Number of no cause, and of memtables, files and bytes.
    for (none, [memtables, files, bytes]) in [(0, [1, 2, 3]), (6, [0, 1, 2])] {
        measured(&health(), |database, session| {
            database.tell(&format!("numbering {none}"));
            database.tell("judge 4 0 0 0 1 0");
            let began = moments(&database.tell(&format!("judge 10 1 {files} 1 20 1000")));
            database.tell("nap 20");
            let stopped = moments(&database.tell(&format!("judge 10 2 {files} 1 36 2000")));
            database.tell("nap 30");
            let ended = moments(&database.tell("judge 10 0 0 0 3 500"));
            let held = moments(&database.tell(&format!("judge 2 2 {memtables} 2 0 0")));
            database.tell(&format!("judge 3 1 {bytes} 0 0 9000"));
            database.tell("wait 10");
            session.read().unwrap();
            let stalled = |name: &str| parts(row(session, name), "stalled")[0].1;
            let within = |time: u64, from: [u64; 2], to: [u64; 2]| {
                let possible = to[0] - from[1]..=to[1] - from[0];
                assert!(possible.contains(&time), "{time} in {possible:?}");
            };
            within(stalled("DelayedByLevel0Files"), began, stopped);
            within(stalled("StoppedByLevel0Files"), stopped, ended);
            let stalls = |name: &str| parts(row(session, name), "stalls");
            assert_eq!(stalls("DelayedByLevel0Files"), [("CELL", 1)]);
            assert_eq!(stalls("StoppedByLevel0Files"), [("CELL", 1)]);
            assert_eq!(stalls("StoppedByMemtables"), [("BLOCK_BODY", 1)]);
            assert_eq!(stalls("DelayedByPendingBytes"), [("BLOCK_UNCLE", 1)]);
            assert_eq!(stalls("StoppedByWriteBuffers"), [("all", 1)]);
            assert!((10_000_000..).contains(&stalled("StoppedByWriteBuffers")));
            // It is not over: it is longer each time.
            let before = stalled("StoppedByMemtables");
            let later = moments(&database.tell("nap 20"));
            session.read().unwrap();
            let now = parts(row(session, "StoppedByMemtables"), "stalled")[0].1;
            assert!(now >= before + 20_000_000, "{before} {now}");
            assert!(now >= later[1] - held[1], "{now}");
            let backlog = row(session, "Backlog");
            let of = |family: &str| {
                let levels = &backlog.parts[family].total.levels;
                ["memtables", "level0Files", "pendingBytes"].map(|level| levels[level])
            };
            assert_eq!(backlog.parts.len(), 3);
            assert_eq!(of("CELL"), [0, 3, 500]);
            assert_eq!(of("BLOCK_BODY"), [2, 0, 0]);
            assert_eq!(of("BLOCK_UNCLE"), [0, 0, 9000]);
            assert_eq!(lost(session), 0);
        });
    }
}

#[test]
fn a_cause_whose_number_nobody_knows_is_not_guessed() {
    measured(&health(), |database, session| {
        database.tell("numbering 9");
        database.tell("judge 4 0 0 0 1 0");
        database.tell("judge 10 2 1 1 36 2000");
        session.read().unwrap();
        assert_eq!(
            parts(row(session, "StoppedByUnknown"), "stalls"),
            [("CELL", 1)]
        );
    });
}

#[test]
fn a_compaction_without_room_says_how_much_it_lacks() {
    measured(&health(), |database, session| {
        database.tell("room 2 1000 206000000000");
        database.tell("room 2 0 0");
        let events = session.events();
        session.read().unwrap();
        assert_eq!(
            parts(row(session, "NoRoomForCompaction"), "problems"),
            [("BLOCK_BODY", 2)]
        );
        let [with, without] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(with["columnFamily"], "BLOCK_BODY");
        assert_eq!(with["freeBytes"], 1000);
        assert_eq!(with["neededBytes"], 206_000_000_000_u64);
        assert_eq!(without["columnFamily"], "BLOCK_BODY");
        assert!(without.get("freeBytes").is_none());
    });
}

#[test]
fn who_does_not_want_it_is_told_nothing() {
    let without = RocksDbProbe {
        health: false,
        ..health()
    };
    measured(&without, |database, session| {
        database.tell("compaction 7 14 0 0");
        assert_eq!(session.events(), [] as [serde_json::Value; 0]);
        session.read().unwrap();
        assert_eq!(rows_of(session), ["Get"]);
    });
}
