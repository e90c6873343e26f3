//! `ckb-probe profile --mode allocations` on a program with the allocator of CKB, which says itself who allocated and who freed how much:
//! on this machine's kernel, as root.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "where it panics, a test fails"
)]

#[path = "allocations/jeprof.rs"]
mod jeprof;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use ckb_probe_profiles::{Profile, Stack, pprof::Limits};
use ckb_probe_testkit::{
    Fixture, Folder, assert_contains, ckb_probe, refusal, repository, run, wait_until, words,
};
use rustix::process::{Pid, Signal, kill_process};

/// Points by which a share of a caller may be off.
const OFF: f64 = 3.0;

/// Where what takes long to build is kept between clones, as for scripts/lib.sh.
fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var("HOME").unwrap()).join(".cache/ckb-probe");
    std::env::var("CKB_PROBE_CACHE").map_or_else(|_| home(), PathBuf::from)
}

/// The program, compiled into a folder where it is older than its source: its allocator takes minutes, once on a machine.
fn build(target: &Path, features: &str) -> PathBuf {
    let options = words("build --quiet --release --locked --manifest-path");
    run(Command::new("cargo")
        .args(options)
        .arg(repository().join("tests/allocates/Cargo.toml"))
        .args(["--features", features])
        .arg("--target-dir")
        .arg(target)
        // What these tests were compiled with is not what the program is to be.
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS"));
    target.join("release/allocates")
}

/// The program as CKB is built.
fn allocates() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build(&cache().join("allocates"), ""))
}

/// Waits until a process holds its two links for good: to what names are read by, and to the allocator.
fn attached(sampling: &mut Child) {
    let number = sampling.id();
    let held = || {
        let descriptors = fs::read_dir(format!("/proc/{number}/fdinfo"));
        let descriptors = descriptors.into_iter().flatten().flatten();
        let said = descriptors.filter_map(|one| fs::read_to_string(one.path()).ok());
        // How functions are attached to is tried out first, by links to its own program that go again, one after the other: where others
        // load the machine, two of them may stand for seconds.
        let own = format!("path:\t{}\n", ckb_probe().display());
        said.filter(|said| said.contains("link_id:") && !said.contains(&own))
            .count()
    };
    // A kernel that does not say what a link is to has those of the trial among them.
    let mut since = Instant::now();
    wait_until("a sampler that is attached", || {
        if let Some(ended) = sampling.try_wait().unwrap() {
            let mut said = String::new();
            sampling
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            panic!("the sampler has ended: {ended}: {said}");
        }
        if held() != 2 {
            since = Instant::now();
        }
        since.elapsed() > Duration::from_millis(1_500)
    });
}

/// By caller: bytes that were allocated, and that were freed of them.
type Bytes = BTreeMap<String, [u64; 2]>;

/// What is told of a process while something is done with it, and the summary.
fn watched<T>(fixture: &mut Fixture, work: impl FnOnce(&mut Fixture) -> T) -> (T, Profile, String) {
    let folder = Folder::new();
    let file = folder.path("allocations.pb.gz");
    let mut sampling = Command::new(ckb_probe())
        .args(words("profile --mode allocations --duration 10m --pid"))
        .arg(fixture.pid().to_string())
        .arg("-o")
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    attached(&mut sampling);
    let result = work(fixture);
    thread::sleep(Duration::from_millis(200));
    kill_process(Pid::from_child(&sampling), Signal::INT).unwrap();
    let output = sampling.wait_with_output().unwrap();
    let summary = String::from_utf8(output.stderr).unwrap();
    let profile = Profile::from_pprof(&fs::read(file).unwrap(), &Limits::PART).unwrap();
    (result, profile, summary)
}

/// What the program says that it did, what was told of it, and the summary.
fn profiled(order: &str) -> (Bytes, Bytes, String) {
    let mut fixture = Fixture::start(allocates());
    let (truth, profile, summary) = watched(&mut fixture, |fixture| fixture.tell(order));
    let truth: Bytes = serde_json::from_str(&truth).unwrap();
    let told = by_caller(&profile);
    println!("{order}: {truth:?}, told {told:?}; {summary}");
    (truth, told, summary)
}

/// What was told of functions that are named as callers.
fn by_caller(profile: &Profile) -> Bytes {
    let mut told = Bytes::new();
    for stack in profile.stacks.iter() {
        let known = stack.frames.iter().rev().find_map(|frame| {
            let caller = frame.name.strip_prefix("caller_");
            caller.or_else(|| frame.name.strip_prefix("freer_"))
        });
        let bytes = told.entry(known.unwrap_or("none").to_owned()).or_default();
        for (sum, weight) in bytes.iter_mut().zip(stack.weights) {
            *sum += weight;
        }
    }
    told
}

fn shares(bytes: &Bytes, side: usize) -> BTreeMap<&str, f64> {
    let all: u64 = bytes.values().map(|bytes| bytes[side]).sum();
    let share = |bytes: &[u64; 2]| 100.0 * bytes[side] as f64 / all.max(1) as f64;
    bytes
        .iter()
        .map(|(caller, bytes)| (&**caller, share(bytes)))
        .collect()
}

/// That shares of all callers, and sums, are as they are.
fn is_true(order: &str) {
    let (truth, told, summary) = profiled(order);
    for side in 0..2 {
        let (known, found) = (shares(&truth, side), shares(&told, side));
        for (caller, share) in &known {
            let found = found.get(caller).copied().unwrap_or_default();
            assert!(
                (found - share).abs() <= OFF,
                "{order}, side {side}: {caller} has {share:.1} %, told {found:.1} %"
            );
        }
        let sum = |bytes: &Bytes| bytes.values().map(|bytes| bytes[side]).sum::<u64>() as f64;
        let ratio = sum(&told) / sum(&truth);
        assert!(
            (0.98..1.02).contains(&ratio),
            "{order}, side {side}: {ratio}"
        );
    }
    assert!(!summary.contains("in step"), "{summary}");
}

#[test]
fn who_allocates_and_frees_small_blocks_at_once_is_told_by_its_share() {
    is_true("churn 1 600 2");
    is_true("churn 16 600 2");
    is_true("one-class 2 600 2");
}

#[test]
fn who_allocates_blocks_of_all_sizes_is_told_by_its_share() {
    is_true("mixed 1 1500 3");
    is_true("mixed 16 1500 3");
    is_true("large-and-small 2 1500 3");
    is_true("middle 2 1000 2");
}

#[test]
fn who_allocates_in_bursts_or_at_the_end_only_is_told_by_its_share() {
    is_true("bursts 1 600 2");
    is_true("bursts 16 600 2");
    is_true("late 2 1000 3");
}

#[test]
fn callers_that_take_turns_in_step_with_the_allocator_are_told_as_that() {
    let (truth, told, summary) = profiled("in-step 1 300 2");
    assert_eq!(truth.values().filter(|bytes| bytes[0] > 0).count(), 4);
    // One of the four is all that is seen, and nothing else could be: so it is said.
    assert_eq!(told.values().filter(|bytes| bytes[0] > 0).count(), 1);
    assert_contains(&summary, "of the stacks came in step with the allocator");
}

/// One that says itself what it allocates is believed: each word of it counts, for as much as it says, and nothing else does.
#[test]
fn a_process_that_says_what_it_allocates_is_told_by_what_it_says() {
    let mut fixture = Fixture::named("says-allocated", &[]);
    assert_eq!(fixture.answer(), "ready");
    assert_eq!(fixture.tell("semaphores"), "0 0");
    // What nobody looks at is not said, and what is freed of it is not known.
    let unseen = fixture.tell("work 100");
    assert!(unseen.starts_with("small 0 "), "{unseen}");
    let (answer, profile, summary) = watched(&mut fixture, |fixture| {
        assert_eq!(fixture.tell("semaphores"), "1 1");
        fixture.tell("work 10000")
    });
    println!("{answer}; {summary}");
    assert_eq!(fixture.tell("semaphores"), "0 0");
    let mut words = answer.split_whitespace();
    let mut truth: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    while let Some(caller) = words.next() {
        let mut number = || words.next().unwrap().parse().unwrap();
        truth.insert(caller, [number(), number()]);
    }
    let told = by_caller(&profile);
    println!("{told:?}");
    for (caller, [said, _]) in &truth {
        let sides = told[*caller];
        let expected = if *caller == "frees" {
            [0, *said]
        } else {
            [*said, 0]
        };
        assert_eq!(sides, expected, "{caller}");
    }
    assert_eq!(told.len(), truth.len());
    // What it calls to say so is left out, and so is its allocator.
    let innermost = |stack: &Stack<'_>| stack.frames.last().unwrap().name.to_owned();
    let innermost: BTreeSet<String> = profile
        .stacks
        .iter()
        .map(|stack| innermost(&stack))
        .collect();
    let callers = truth.keys().map(|caller| format!("caller_{caller}"));
    assert_eq!(innermost, callers.collect());
    assert_contains(&summary, "as the process says it itself");
    // And what it says is so: one in 64 KiB, at random.
    let frees = truth.remove("frees").unwrap();
    let sums = [0, 1].map(|of| truth.values().map(|bytes| bytes[of]).sum::<u64>() as f64);
    for (caller, [said, really]) in truth {
        let [said, really] =
            [(said, sums[0]), (really, sums[1])].map(|(own, all)| 100.0 * own as f64 / all);
        assert!(
            (said - really).abs() <= OFF,
            "{caller}: {said} of {really} %"
        );
    }
    assert!(
        (0.8..1.2).contains(&(frees[0] as f64 / frees[1] as f64)),
        "{frees:?}"
    );
}

#[test]
fn of_a_process_that_does_not_say_what_it_frees_that_is_not_known() {
    let mut fixture = Fixture::named("says-only-allocated", &[]);
    assert_eq!(fixture.answer(), "ready");
    let (_, profile, summary) = watched(&mut fixture, |fixture| fixture.tell("work 1000"));
    assert_contains(
        &summary,
        "what was freed meanwhile is not known: the process does not say it",
    );
    assert!(by_caller(&profile).values().all(|[_, freed]| *freed == 0));
}

#[test]
fn a_process_with_another_allocator_is_refused_and_told_why() {
    let (_folder, fixture) = Fixture::made(|folder: &Folder| folder.compile_optimised("stacks"));
    let said = refusal(fixture.pid(), &words("profile --mode allocations"));
    assert_contains(
        &said,
        "the process has no jemalloc 5.3 whose functions have names (_rjem_je_te_event_trigger is not there)",
    );
}
