//! What Fiber's node and CKB's light client are asked, of programs that do with RocksDB what those do, by the binding that they and CKB have
//! and the RocksDB in it: on this machine's kernel, as root.

#[path = "harness/mod.rs"]
mod harness;

use std::{collections::BTreeMap, path::PathBuf, process::Command, sync::OnceLock};

use ckb_probe_crds::kinds::rocksdb::RocksDbProbe;
use ckb_probe_testkit::{Fixture, cache, repository, run, words};
use ckb_probe_tests::rows;
use ckb_probe_views::presets;

use crate::harness::{attach_to, by_every_tier, count, coverage, lost};

/// The folder with the programs, compiled where they are older than their sources: RocksDB takes ten minutes, once on a machine.
fn programs() -> &'static PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let target = cache().join("binding");
        run(Command::new("cargo")
            .args(words("build --quiet --release --locked --manifest-path"))
            .arg(repository().join("tests/binding/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            // What these tests were compiled with is not what the programs are to be.
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("RUSTFLAGS"));
        target.join("release")
    })
}

/// What a preset asks of RocksDB.
fn asked(preset: &presets::Preset) -> RocksDbProbe {
    let mut of_rocksdb = preset.probes.iter().filter_map(|one| one.rocksdb.clone());
    of_rocksdb.next().unwrap()
}

/// By operation: how often, and with how many bytes, as far as those are known.
type Calls = BTreeMap<String, (u64, Option<u64>)>;

/// Has the program that a preset is about do each of these so often, and holds what is counted of it against what it says it did.
fn is_counted_to_the_last(preset: &str, deeds: &[(&str, &str, u64)]) {
    let preset = presets::named(preset).unwrap();
    let program = programs().join(&preset.executable);
    by_every_tier(|means| {
        let mut fixture = Fixture::start(&program);
        let mut session = attach_to(fixture.pid(), means, asked(preset));
        let lacking = coverage(&session);
        assert_eq!(
            (&lacking.lacks[..], lacking.sentence.as_str()),
            (&[][..], "")
        );
        let mut done: Calls = asked(preset)
            .operations
            .iter()
            .map(|operation| (operation.as_str().to_owned(), (0, None)))
            .collect();
        for (order, operation, times) in deeds {
            let bytes: u64 = fixture.tell(&format!("{order} {times}")).parse().unwrap();
            let (calls, sum) = done.get_mut(*operation).unwrap();
            *calls += times;
            if ["Get", "Put", "Delete"].contains(operation) {
                *sum = Some(sum.unwrap_or(0) + bytes);
            }
        }
        session.read().unwrap();
        // What tells of the database's health has rows of its own.
        let series = &session.instance().probes[0].series;
        let rows = series.iter().flat_map(|one| &one.rows);
        let rows = rows.filter(|(name, _)| done.contains_key(*name));
        let counted = rows.map(|(name, row)| {
            let figures = (count(&row.all), rows::bytes(&row.all.total));
            (name.clone(), figures)
        });
        assert_eq!(counted.collect::<Calls>(), done, "by {means:?}");
        assert_eq!(lost(session.instance()), [0; 3]);
    });
}

#[test]
#[ignore = "compiles RocksDB, which takes ten minutes"]
fn what_a_node_of_fiber_does_with_its_store_is_counted_to_the_last() {
    let deeds = [
        ("put", "Put", 701),
        ("get", "Get", 502),
        ("get-nothing", "Get", 103),
        ("iterate", "IteratorNew", 106),
        ("write", "Write", 305),
        ("delete", "Delete", 204),
    ];
    is_counted_to_the_last("fiber", &deeds);
}

#[test]
#[ignore = "compiles RocksDB, which takes ten minutes"]
fn what_a_light_client_does_with_its_store_is_counted_to_the_last() {
    let deeds = [
        ("put", "Put", 601),
        ("get", "Get", 402),
        ("get-pinned", "Get", 203),
        ("get-nothing", "Get", 104),
        ("iterate", "IteratorNew", 105),
        ("write", "Write", 306),
    ];
    is_counted_to_the_last("light-client", &deeds);
}
