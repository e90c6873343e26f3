//! What the fuzzer begins with, and whatever broke something once, breaks nothing; nor does it when it is damaged a little. What is
//! checked of each is what the fuzzer checks. `scripts/fuzz.sh` looks for more.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ckb_probe_core::process;
use proptest::{
    prelude::RngExt,
    test_runner::{TestRng, TestRunner},
};

#[path = "../../operator/fuzz/src/checks/ckb_probe.rs"]
mod ckb_probe;
#[path = "../../node-agent/fuzz/src/checks/elf.rs"]
mod elf;
#[path = "../../operator/fuzz/src/json.rs"]
mod json;
#[path = "../../operator/fuzz/src/checks/part.rs"]
mod part;
#[path = "../../node-agent/fuzz/src/checks/place.rs"]
mod place;
#[path = "../../node-agent/fuzz/src/checks/pprof.rs"]
mod pprof;
#[path = "../../operator/fuzz/src/checks/report.rs"]
mod report;
#[path = "../../node-agent/fuzz/src/checks/unwind.rs"]
mod unwind;
#[path = "../../node-agent/fuzz/src/checks/usdt.rs"]
mod usdt;
#[path = "../../node-agent/fuzz/src/checks/zipkin.rs"]
mod zipkin;

/// The seeds of a fuzz target, in the order of their names.
fn seeds(folder: &str, target: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join(folder).join("fuzz/seeds").join(target);
    let mut seeds: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{target} has seeds");
    seeds
}

/// Damaged copies of each target's seeds, in all.
const DAMAGED: usize = 20_000;
/// What is made of these takes longer.
const DAMAGED_JSON: u64 = 3_000;

fn check_all(target: &str, check: fn(&[u8])) {
    let seeds = seeds("node-agent", target);
    // The same each time: a test that fails by chance teaches people to look away.
    let mut random = TestRunner::deterministic();
    for seed in &seeds {
        let bytes = fs::read(seed).unwrap();
        println!("{}", seed.display());
        check(&bytes);
        for number in 0..DAMAGED / seeds.len() {
            println!("damaged, number {number}");
            check(&damaged(bytes.clone(), random.rng()));
        }
    }
}

/// Of JSON the damage is to what it says, most of the time.
fn check_json(target: &str, check: fn(&[u8])) {
    let seeds = seeds("operator", target);
    let mut random = TestRunner::deterministic();
    for seed in &seeds {
        let bytes = fs::read(seed).unwrap();
        println!("{}", seed.display());
        check(&bytes);
        let all = DAMAGED_JSON / seeds.len() as u64;
        for number in 0..all {
            println!("damaged, number {number}");
            let changed = json::changed(&bytes, number);
            check(&changed.unwrap_or_else(|| damaged(bytes.clone(), random.rng())));
        }
    }
}

/// With up to eight bytes replaced, and one time in eight without its end.
fn damaged(mut bytes: Vec<u8>, random: &mut TestRng) -> Vec<u8> {
    if bytes.is_empty() {
        return bytes;
    }
    for _ in 0..random.random_range(1..=8) {
        let at = random.random_range(0..bytes.len());
        bytes[at] = match random.random_range(0..4) {
            0 => 0,
            1 => 0xff,
            2 => bytes[at] ^ 1 << random.random_range(0..8),
            _ => random.random(),
        };
    }
    if random.random_range(0..8) == 0 {
        bytes.truncate(random.random_range(0..bytes.len()));
    }
    bytes
}

#[test]
fn elf_files() {
    check_all("elf", elf::check);
}

#[test]
fn cgroups_and_mounts() {
    check_all("place", place::check);
}

#[test]
fn profiles() {
    check_all("pprof", pprof::check);
}

#[test]
fn tables_stacks_and_registers() {
    check_all("unwind", unwind::check);
}

#[test]
fn notes_of_usdt_probes() {
    check_all("usdt", usdt::check);
}

#[test]
fn spans_that_programs_emit() {
    check_all("zipkin", zipkin::check);
}

#[test]
fn ckb_probes() {
    check_json("ckb_probe", ckb_probe::check);
}

#[test]
fn parts_of_profiles() {
    check_json("part", part::check);
}

#[test]
fn reports() {
    check_json("report", report::check);
}
