//! Held against jemalloc's own profile of the same stretch, as its `jeprof` reckons it: of a build with `profiling`, whose other functions
//! are the same.

use std::{path::Path, process::Command, sync::OnceLock};

use ckb_probe_testkit::{
    Fixture, Folder,
    jeprof::{Allocated, Jeprof},
};

use super::{OFF, build, cache, watched};

/// The program whose jemalloc was built to have profiles.
fn profiling() -> &'static Jeprof {
    static PROFILING: OnceLock<Jeprof> = OnceLock::new();
    PROFILING.get_or_init(|| {
        let target = cache().join("allocates-profiling");
        let program = build(&target, "profiling");
        Jeprof::built_in(&target.join("release"), program)
    })
}

/// It, as it samples what it allocates each so many bytes at random, by the power of two.
fn start(log_of_bytes: u32) -> Fixture {
    let options =
        format!("prof:true,prof_active:true,prof_accum:true,lg_prof_sample:{log_of_bytes}");
    let mut command = Command::new(&profiling().program);
    let mut fixture = Fixture::run(command.env("MALLOC_CONF", options));
    assert_eq!(fixture.tell("ready"), "");
    fixture
}

/// That the callers with most of the one have the same share of the other.
fn are_alike(order: &str, theirs: &Allocated, ours: &Allocated, log_of_bytes: u32) {
    let mut off = Vec::new();
    for caller in theirs.beside(ours, log_of_bytes) {
        let (name, known, told, error) = (&caller.name, caller.known, caller.told, caller.error);
        println!("{order}: {known:5.2} % (± {error:.2}), told {told:5.2} %  {name}");
        assert!(
            error < 1.0,
            "{order}: jeprof has too few samples of {name} to be held against: ± {error:.2} points"
        );
        if caller.off().abs() > OFF {
            off.push(format!("{name} has {known:.1} %, told {told:.1} %"));
        }
    }
    assert!(off.is_empty(), "{order}: {off:?}");
}

/// That both say the same of one stretch of a program's work.
fn is_as_jeprof_tells(order: &str, log_of_bytes: u32) {
    let folder = Folder::new();
    let [before, after] = ["before", "after"].map(|name| folder.path(name));
    let dump = |fixture: &mut Fixture, to: &Path| {
        assert_eq!(fixture.tell(&format!("dump {}", to.display())), "0");
    };
    let mut fixture = start(log_of_bytes);
    let ((), profile, summary) = watched(&mut fixture, |fixture| {
        dump(fixture, &before);
        fixture.tell(&order.replace("FOLDER", &folder.path("db").display().to_string()));
        dump(fixture, &after);
    });
    println!("{order}: {summary}");
    let (theirs, ours) = (
        profiling().between(Some(&before), &after),
        Allocated::told(&profile),
    );
    let [known, found] = [&theirs, &ours].map(|all| all.bytes() as f64);
    // jeprof's sum is an estimate, too.
    let ratio = found / known;
    println!("{order}: {known} bytes, told {found}");
    assert!((0.95..1.05).contains(&ratio), "{order}: {ratio}");
    are_alike(order, &theirs, &ours, log_of_bytes);
}

#[test]
fn who_allocates_in_rocksdb_at_full_speed_is_told_as_by_jeprof() {
    // As long as jeprof has enough samples of it, on a machine that is slow or has other things to do, too.
    is_as_jeprof_tells("rocksdb FOLDER 0 12", 16);
}

#[test]
fn who_allocates_in_rocksdb_that_is_mostly_idle_is_told_as_by_jeprof() {
    is_as_jeprof_tells("rocksdb FOLDER 80 10", 13);
}

#[test]
fn who_allocates_small_blocks_or_large_ones_is_told_as_by_jeprof() {
    is_as_jeprof_tells("churn 1 1000 2", 16);
    is_as_jeprof_tells("mixed 16 1500 2", 17);
    is_as_jeprof_tells("large 2 3000 2", 17);
}

#[test]
fn who_allocates_in_bursts_or_late_is_told_as_by_jeprof() {
    is_as_jeprof_tells("bursts 16 1000 2", 16);
    is_as_jeprof_tells("late 2 1000 2", 16);
}
