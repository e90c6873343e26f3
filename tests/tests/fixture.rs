//! The ground truth itself, without any probe: it does what its plan says, and tells what it did.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
    time::Duration,
};

use ckb_probe_testkit::{
    Call, EVERY_FUNCTION as PLAN, FunctionTruth, GroundTruth, Truth, fixtures,
};

const CAUSES: [&str; 5] = [
    "rocksdb::CompactionJob::Run",
    "rocksdb::FlushJob::Run",
    "rocksdb::DBImpl::SyncWAL",
    "rocksdb::WritableFileWriter::Sync",
    "rocksdb::DBImpl::DelayWrite",
];

fn run(options: &[&str], plan: &[&str]) -> Truth {
    let mut fixture = GroundTruth::start("ground-truth", options, plan).unwrap();
    fixture.go().unwrap()
}

fn calls(truth: &Truth) -> BTreeMap<&str, u64> {
    let functions = truth.functions.iter();
    functions
        .map(|(name, function)| (name.as_str(), function.calls))
        .collect()
}

fn sorted(durations: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut sorted: Vec<_> = durations.into_iter().collect();
    sorted.sort_unstable();
    sorted
}

/// Whether each call took its caller as long as the function, or longer.
fn is_around(function: &FunctionTruth) -> bool {
    let (inner, outer) = (&function.durations_ns, &function.outer_durations_ns);
    inner.len() == outer.len() && inner.iter().zip(outer).all(|(inner, outer)| inner <= outer)
}

#[test]
fn every_function_is_called_as_often_as_the_plan_says() {
    let planned: BTreeMap<&str, u64> = PLAN
        .iter()
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            (name, words.next().unwrap().parse().unwrap())
        })
        .collect();
    for threads in ["1", "3"] {
        let truth = run(&["--threads", threads], &PLAN);
        assert_eq!(calls(&truth), planned);
        for (name, function) in &truth.functions {
            assert_eq!(function.durations_ns.len() as u64, function.calls, "{name}");
            let least = function.durations_ns.iter().min().unwrap();
            assert!(*least >= 500, "{name} took {least} ns");
            assert!(is_around(function), "{name}");
        }
        let causes = CAUSES.map(|name| planned[name]).iter().sum::<u64>();
        assert_eq!(truth.causes.len() as u64, causes);
        assert!(truth.slow_calls.is_empty());
    }
}

#[test]
fn what_the_column_families_did_is_what_the_function_did() {
    let options = ["--families", "30:cells-", "--handles", "3"];
    let truth = run(&options, &PLAN);
    for (name, function) in &truth.functions {
        if !name.ends_with("_cf") {
            assert!(function.column_families.is_empty(), "{name}");
            continue;
        }
        let families: Vec<&FunctionTruth> = function.column_families.values().collect();
        let sum =
            |figure: fn(&FunctionTruth) -> u64| families.iter().copied().map(figure).sum::<u64>();
        assert_eq!(sum(|family| family.calls), function.calls, "{name}");
        assert_eq!(sum(|family| family.key_bytes), function.key_bytes, "{name}");
        assert_eq!(
            sum(|family| family.value_bytes),
            function.value_bytes,
            "{name}"
        );
        let durations = families
            .iter()
            .flat_map(|family| family.durations_ns.iter().copied());
        assert_eq!(
            sorted(durations),
            sorted(function.durations_ns.iter().copied()),
            "{name}"
        );
    }
    let families = &truth.functions["rocksdb_get_pinned_cf"].column_families;
    assert_eq!(families.len(), 31);
    for name in ["cells-0", "cells-29", "default"] {
        assert_eq!(families[name].handles, 3, "{name}");
    }
}

#[test]
fn the_same_seed_gives_the_same_calls() {
    // Timed lines and those that fill the time between them, which time does not change.
    let mut plan = PLAN.map(String::from);
    for timed in &mut plan[..5] {
        timed.push_str(" rate:20000");
    }
    let plan: Vec<_> = plan.iter().map(String::as_str).collect();
    let drawn = |seed| {
        let truth = run(&["--threads", "2", "--seed", seed], &plan);
        let figures = |one: &FunctionTruth| (one.calls, one.key_bytes, one.value_bytes);
        let functions = truth.functions.into_iter().map(|(name, function)| {
            let families = function.column_families.iter();
            let families: Vec<_> = families
                .map(|(name, family)| (name.clone(), figures(family)))
                .collect();
            (name, figures(&function), families)
        });
        functions.collect::<Vec<_>>()
    };
    assert_eq!(drawn("7"), drawn("7"));
    assert_ne!(drawn("7"), drawn("8"));
}

#[test]
fn a_phase_makes_its_own_calls_and_no_others() {
    let plan = [
        "rocksdb_put 5 constant:1000",
        "[quiet]",
        "rocksdb_get_pinned_cf 20 constant:1000 rate:200",
        "[busy]",
        "rocksdb_get_pinned_cf 5000 constant:1000",
        "rocksdb_write 7 constant:1000",
    ];
    let mut fixture = GroundTruth::start("ground-truth", &[], &plan).unwrap();
    let made = |truth: Truth| {
        let names = ["rocksdb_put", "rocksdb_get_pinned_cf", "rocksdb_write"];
        names.map(|name| truth.functions[name].calls)
    };
    assert_eq!(made(fixture.go().unwrap()), [5, 0, 0]);
    assert_eq!(made(fixture.go_phase("quiet").unwrap()), [0, 20, 0]);
    assert_eq!(made(fixture.go_phase("busy").unwrap()), [0, 5000, 7]);
    assert_eq!(made(fixture.go_phase("quiet").unwrap()), [0, 20, 0]);
    let error = fixture.go_phase("loud").unwrap_err();
    assert!(error.to_string().contains("said \"\""), "{error}");
}

#[test]
fn timed_calls_are_made_when_they_are_due() {
    let plan = [
        "rocksdb_get_pinned_cf 20001 constant:1000 rate:20000",
        "rocksdb_write 21 constant:1000 rate:20",
        "rocksdb::FlushJob::Run 3 constant:1000 at:500000000 in:rocksdb:high0",
    ];
    let truth = run(&["--threads", "2"], &plan);
    // The last call of both is due after a second.
    assert!(truth.elapsed_ns >= 1_000_000_000, "{}", truth.elapsed_ns);
    // Long enough for a busy machine, and too short for a sleep before each of 20,000 calls.
    assert!(truth.elapsed_ns < 2_000_000_000, "{}", truth.elapsed_ns);
    assert_eq!(truth.causes.len(), 3);
    assert!(truth.causes[0].entered_ns >= truth.began_ns + 500_000_000);
}

/// Whether one call was under way at some time during another.
fn overlap(one: &Call, other: &Call) -> bool {
    one.entered_ns <= other.left_ns() && other.entered_ns <= one.left_ns()
}

#[test]
fn a_slow_call_names_what_ran_during_it() {
    // Milliseconds: writes at 100..140, 300..340 and so on; within every other one a compaction; between them a flush; and a
    // sync throughout. A quarter of a write is slack enough for a busy machine.
    let plan = [
        "rocksdb_write 10 constant:40000000 rate:5 at:100000000 in:writer",
        "rocksdb_put_cf 1000 constant:1000 rate:500 in:writer",
        "rocksdb::CompactionJob::Run 5 constant:20000000 at:110000000 rate:2 in:rocksdb:low0",
        "rocksdb::FlushJob::Run 5 constant:20000000 rate:5 at:210000000 in:rocksdb:high0",
        "rocksdb::DBImpl::SyncWAL 1 constant:3000000000 at:0 in:syncer",
        "rocksdb::DBImplReadOnly::SyncWAL 1 constant:3000000000 at:0 in:decoy",
        "rocksdb::CompactionJob::Run.cold 1 constant:3000000000 at:0 in:decoy",
    ];
    let truth = run(&["--slow", "10000000"], &plan);
    for slow in &truth.slow_calls {
        let others = truth.causes.iter().filter(|cause| {
            (cause.thread, cause.entered_ns) != (slow.call.thread, slow.call.entered_ns)
        });
        let during = others.filter(|cause| overlap(cause, &slow.call));
        let during = during.map(|cause| cause.function.clone()).collect();
        assert_eq!(slow.during, during, "{slow:?}");
    }
    let of = |name: &str| {
        let slow = truth
            .slow_calls
            .iter()
            .filter(|slow| slow.call.function == name);
        slow.map(|slow| {
            let during: Vec<_> = slow
                .during
                .iter()
                .map(|name| name.rsplit("::").nth(1).unwrap())
                .collect();
            (slow.call.thread_name.as_str(), during.join(" "))
        })
        .collect::<Vec<_>>()
    };
    // Compactions come every 500 ms: during the writes of 100 ms, 1,100 ms and 2,100 ms, and between others at 610 ms.
    let expected = [
        "CompactionJob DBImpl",
        "DBImpl",
        "DBImpl",
        "DBImpl",
        "DBImpl",
        "CompactionJob DBImpl",
        "DBImpl",
        "DBImpl",
        "DBImpl",
        "DBImpl",
    ];
    assert_eq!(
        of("rocksdb_write"),
        expected.map(|during| ("writer", during.to_string()))
    );
    assert_eq!(of("rocksdb_put_cf"), []);
    assert_eq!(
        of("rocksdb::CompactionJob::Run")[0],
        ("rocksdb:low0", "DBImpl".to_string())
    );
    let sync = ("syncer", "CompactionJob FlushJob".to_string());
    assert_eq!(of("rocksdb::DBImpl::SyncWAL"), [sync]);
    assert_eq!(of("rocksdb::DBImplReadOnly::SyncWAL")[0].0, "decoy");
}

#[test]
fn threads_have_the_names_that_slow_calls_tell() {
    let plan = [
        "rocksdb_put 2 constant:1000000000",
        "rocksdb_write 1 constant:1000000000 in:a-name-of-15-by",
        "rocksdb::FlushJob::Run 1 constant:1000000000 in:rocksdb:high0",
    ];
    let options = ["--threads", "2", "--slow", "1000"];
    let mut fixture = GroundTruth::start("ground-truth", &options, &plan).unwrap();
    fixture.begin().unwrap();
    let process = procfs::process::Process::new(fixture.pid() as i32).unwrap();
    let names = || {
        let threads = process.tasks().unwrap().map(Result::unwrap);
        let others = threads.filter(|thread| thread.tid != process.pid);
        others
            .map(|thread| (thread.tid as u32, thread.stat().unwrap().comm))
            .collect::<BTreeMap<_, _>>()
    };
    // It is each thread's first statement, and the calls take a second.
    let named = (0..500)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            names()
        })
        .find(|names| names.len() == 4 && !names.values().any(|name| name == "ground-truth"))
        .unwrap();
    let truth = fixture.finish().unwrap();
    let told = truth.slow_calls.into_iter();
    let told: BTreeMap<_, _> = told
        .map(|slow| (slow.call.thread, slow.call.thread_name))
        .collect();
    assert_eq!(named, told);
}

#[test]
fn a_call_may_make_others_inside_it() {
    let plan = [
        "rocksdb_write 30 constant:1000 calls:rocksdb::DBImpl::DelayWrite,constant:2000000 \
         calls:rocksdb::WritableFileWriter::Sync,uniform:1000000..1500000",
        "rocksdb_transaction_put_cf 300 constant:1000",
    ];
    let truth = run(&["--threads", "2", "--slow", "3000000"], &plan);
    assert_eq!(truth.functions["rocksdb::DBImpl::DelayWrite"].calls, 30);
    assert_eq!(
        truth.functions["rocksdb::WritableFileWriter::Sync"].calls,
        30
    );
    let writes: Vec<_> = truth
        .slow_calls
        .iter()
        .filter(|slow| slow.call.function == "rocksdb_write")
        .collect();
    assert_eq!(writes.len(), 30);
    for write in writes {
        let own = truth
            .causes
            .iter()
            .filter(|cause| cause.thread == write.call.thread);
        let inside: Vec<_> = own
            .filter(|cause| overlap(cause, &write.call))
            .map(|cause| cause.function.as_str())
            .collect();
        assert_eq!(
            inside,
            [
                "rocksdb::DBImpl::DelayWrite",
                "rocksdb::WritableFileWriter::Sync"
            ]
        );
        assert!(
            write.during.iter().map(String::as_str).eq(inside),
            "{write:?}"
        );
    }
}

#[test]
fn a_confined_fixture_does_the_same() {
    let seccomp = |fixture: &GroundTruth| {
        let process = procfs::process::Process::new(fixture.pid() as i32).unwrap();
        process.status().unwrap().seccomp
    };
    let mut fixture =
        GroundTruth::start("ground-truth", &["--confined", "--threads", "4"], &PLAN).unwrap();
    assert_eq!(seccomp(&fixture), Some(2));
    for _ in 0..2 {
        assert_eq!(
            fixture.go().unwrap().functions["rocksdb_get_pinned_cf"].calls,
            20_000
        );
    }
    let free = GroundTruth::start("ground-truth", &[], &PLAN).unwrap();
    assert_eq!(seccomp(&free), Some(0));
}

#[test]
fn a_plan_that_cannot_be_followed_is_refused() {
    let refusals = [
        (
            "rocksdb_open 1 constant:1",
            "rocksdb_open: no such function in this build",
        ),
        ("rocksdb_put 1", "expected: FUNCTION CALLS DELAY"),
        ("rocksdb_put many constant:1", "not a number in range"),
        ("rocksdb_put 1 always:1", "expected constant:NS"),
        ("rocksdb_put 1 constant:1 rate:0", "not a number in range"),
        (
            "rocksdb_put 1 constant:1 in:a-name-of-16-byte",
            "expected a name of 1 to 15 bytes",
        ),
        (
            "rocksdb_put 1 constant:1 calls:rocksdb_write",
            "expected at most 4 of calls:",
        ),
        (
            "rocksdb_put 1 constant:1 after:1",
            "expected rate:N, at:NS, in:THREAD or calls:",
        ),
        ("[two words]", "expected: [PHASE]"),
    ];
    for (line, sentence) in refusals {
        let output = Command::new(fixtures().join("ground-truth"))
            .args(["--out", "/dev/null", line])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(sentence), "{line}: {said}");
    }
}
