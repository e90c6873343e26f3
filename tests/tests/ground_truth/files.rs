//! What operations read from files and write to them, by a program that does so as often as it is told.

use std::collections::BTreeMap;

use ckb_probe_agent::{host::Session, kernel::CalibratedTier};
use ckb_probe_crds::{
    Figures,
    kinds::rocksdb::{Operation, RocksDbProbe},
};
use ckb_probe_testkit::Fixture;

use crate::harness::{attach_to, by_every_tier, lost, operation};

fn attach(program: &Fixture, means: CalibratedTier) -> Session {
    let kind = RocksDbProbe {
        operations: Operation::ALL.to_vec(),
        by_column_family: true,
        file_io: true,
        health: false,
        ..RocksDbProbe::default()
    };
    attach_to(program.pid(), means, kind)
}

/// What is told of files.
fn files(figures: &Figures) -> BTreeMap<&str, u64> {
    let sums = figures.sums.iter();
    let told = sums.map(|(name, sum)| (name.as_ref(), *sum));
    let names = [
        "reads",
        "readBytes",
        "missed",
        "writtenBytes",
        "flushedBytes",
        "tableBytes",
    ];
    told.filter(|(name, _)| names.contains(name)).collect()
}

fn of<'a>(session: &'a Session, name: &str) -> BTreeMap<&'a str, u64> {
    files(&operation(session, name).all.total)
}

fn read(reads: u64, bytes: u64, missed: u64) -> BTreeMap<&'static str, u64> {
    [("reads", reads), ("readBytes", bytes), ("missed", missed)].into()
}

fn written(bytes: u64) -> BTreeMap<&'static str, u64> {
    [("writtenBytes", bytes)].into()
}

#[test]
fn reads_and_bytes_are_those_of_the_operation_in_which_they_are_made() {
    by_every_tier(|means| {
        let mut program = Fixture::named("files", &[]);
        program.tell("get 5 3 4096 0 100");
        let mut session = attach(&program, means);
        // Of no call.
        program.tell("idle 100 1000");
        program.tell("get 40 0 0 0 50");
        program.tell("get 7 3 4096 0 1000");
        program.tell("get 2 1 512 2 1000");
        program.tell("seek 9 2 100");
        program.tell("previous 1000 0 0");
        program.tell("previous 1 1 65536");
        program.tell("put 30 77");
        program.tell("idle 100 1000");
        // Syncs within a flush are operations of their own.
        program.tell("flush 2 5 1000");
        program.tell("compaction 3 10 1000 4 500");
        session.read().unwrap();
        assert_eq!(
            of(&session, "Get"),
            read(7 * 3 + 2, 7 * 3 * 4096 + 2 * 512, 9)
        );
        let families = operation(&session, "Get").families;
        let families = families.iter();
        let families: Vec<_> = families
            .map(|(name, family)| (name.as_str(), files(&family.total)))
            .collect();
        assert_eq!(
            families,
            [
                ("BLOCK_BODY", read(2, 2 * 512, 2)),
                ("INDEX", read(7 * 3, 7 * 3 * 4096, 7))
            ]
        );
        assert_eq!(of(&session, "IteratorSeek"), read(9 * 2, 9 * 2 * 100, 9));
        assert_eq!(of(&session, "IteratorNext"), read(1, 65536, 1));
        assert_eq!(of(&session, "Put"), written(30 * 77));
        // A byte for each sync.
        assert_eq!(of(&session, "Flush"), written(2 * 5 * 1001));
        assert_eq!(of(&session, "FileSync"), BTreeMap::new());
        let mut compaction = read(30, 30 * 1000, 3);
        compaction.extend(written(3 * 4 * 500));
        let flushed = 2 * 5 * 1001;
        compaction.insert("flushedBytes", flushed);
        compaction.insert("tableBytes", flushed + 3 * 4 * 500);
        assert_eq!(of(&session, "Compaction"), compaction);
        assert_eq!(lost(session.instance()), [0, 0, 0]);
    });
}
