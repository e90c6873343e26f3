//! `ckb-probe check` and the confined child that it tries returns on: on this machine's kernel, as root.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::AsRawFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread::sleep,
    time::Duration,
};

use ckb_probe_agent::observe::{ProcessId, is_confined};
use ckb_probe_crds::{Check, Reason};
use ckb_probe_testkit::{Fixture, Folder, GroundTruth, wait_until};
use ckb_probe_views::{
    diagnosis::{Diagnosis, Mark, Place},
    document::{Document, View},
};

const CKB_PROBE: &str = env!("CARGO_BIN_EXE_ckb-probe");

/// Both must be able to be the child: the agent starts itself.
const PROGRAMS: [&str; 2] = [CKB_PROBE, env!("CARGO_BIN_EXE_node-agent")];

const TIERS: [&str; 3] = ["session", "uprobe-multi", "perf-event"];

/// A child that is confined by now.
fn confined_child(program: &str) -> Child {
    let mut child = Command::new(program)
        .arg("confined-child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0];
    let output = child.stdout.as_mut().unwrap();
    output.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"r");
    child
}

fn tell(mut child: Child, order: &[u8]) -> ExitStatus {
    child.stdin.take().unwrap().write_all(order).unwrap();
    child.wait().unwrap()
}

#[test]
fn a_child_that_is_not_probed_calls_the_function_and_ends_in_peace() {
    for program in PROGRAMS {
        let status = tell(confined_child(program), b"c");
        assert_eq!(status.code(), Some(0), "{program}");
    }
}

#[test]
fn a_system_call_that_the_filter_does_not_list_kills_the_child() {
    for program in PROGRAMS {
        let status = tell(confined_child(program), b"x");
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{program}");
        assert!(!status.core_dumped());
    }
}

#[test]
fn the_child_ends_with_the_pipe_from_its_parent() {
    let status = tell(confined_child(CKB_PROBE), b"");
    assert_eq!(status.code(), Some(1));
}

fn check(program: &mut Command, arguments: &[&str]) -> (Vec<Check>, ExitStatus) {
    let command = program.args(["check", "--json"]).args(arguments);
    let Output { status, stdout, .. } = command.output().unwrap();
    let lines = stdout.split(|byte| *byte == b'\n');
    let checks = lines.filter(|line| !line.is_empty());
    let parsed = checks.map(|line| serde_json::from_slice(line).unwrap());
    (parsed.collect(), status)
}

fn passed(checks: &[Check], name: &str) -> Option<bool> {
    let check = checks.iter().find(|check| check.name == name);
    check.map(|check| check.passed)
}

#[test]
fn a_confined_process_survives_a_probe_at_its_return_by_every_tier_that_works() {
    let mut tried = 0;
    for tier in TIERS {
        let (checks, status) = check(&mut Command::new(CKB_PROBE), &["--tier", tier]);
        let works = passed(&checks, tier).unwrap();
        assert_eq!(status.code(), Some(if works { 0 } else { 1 }));
        if works {
            assert_eq!(passed(&checks, "SeccompReturn"), Some(true), "{checks:#?}");
            tried += 1;
        }
    }
    assert!(
        tried > 0,
        "no tier works: run as root, on Linux 5.15 or later"
    );
}

#[test]
fn without_capabilities_nothing_can_be_measured_and_the_checks_say_so() {
    // By a descriptor: whoever it runs as need not be able to get at the path.
    let program = File::open(CKB_PROBE).unwrap();
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    let (checks, status) = check(Command::new(path).uid(65534).gid(65534), &[]);
    assert_eq!(status.code(), Some(1));
    for name in TIERS.into_iter().chain(["Capabilities"]) {
        assert_eq!(passed(&checks, name), Some(false), "{name}");
    }
    assert_eq!(passed(&checks, "SeccompReturn"), None);
}

#[test]
fn a_process_is_confined_once_it_has_a_filter_and_where_that_cannot_be_told() {
    let child = confined_child(CKB_PROBE);
    let id = |pid| ProcessId {
        pid,
        start_ticks: 0,
    };
    assert!(is_confined(id(child.id())));
    tell(child, b"c");
    let no_process = id(u32::MAX >> 1);
    assert!(is_confined(no_process));
    let mut unconfined = Command::new("sleep").arg("60").spawn().unwrap();
    // What runs these tests may be confined, and its children are then too.
    let ours = is_confined(id(std::process::id()));
    assert_eq!(is_confined(id(unconfined.id())), ours);
    unconfined.kill().unwrap();
    unconfined.wait().unwrap();
}

/// What is asked of a process.
fn diagnosing(arguments: &[&str]) -> Command {
    let mut command = Command::new(CKB_PROBE);
    command.args(["check", "-o", "json"]).args(arguments);
    command
}

/// What is found of a process, by our own reader, and the exit code.
fn diagnosed(arguments: &[&str]) -> (Diagnosis, Option<i32>) {
    found(diagnosing(arguments).output().unwrap())
}

fn found(output: Output) -> (Diagnosis, Option<i32>) {
    let text = String::from_utf8(output.stdout).unwrap();
    match Document::read(&text).unwrap().view {
        View::Diagnosis(found) => (found, output.status.code()),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn of_this_host_alone_it_is_told_in_the_one_form_too() {
    let (found, code) = diagnosed(&[]);
    assert_eq!((found.ok, code), (true, Some(0)), "{found:#?}");
    let first = &found.findings[0];
    assert_eq!(first.place, Place::Node);
    assert!(first.text.starts_with("attaches by "), "{first:?}");
    assert_eq!(found.parts[0].name, "command line");
    // A line for each that is not as it should be, and no table.
    let short = Command::new(CKB_PROBE)
        .args(["check", "-o", "short"])
        .output();
    let told = String::from_utf8(short.unwrap().stdout).unwrap();
    assert!(!told.contains("CHECK"), "{told}");
    // Two forms at once are refused.
    let both = Command::new(CKB_PROBE)
        .args(["check", "--json", "-o", "json"])
        .output();
    assert_eq!(both.unwrap().status.code(), Some(2));
}

#[test]
fn of_a_process_each_place_is_looked_at_up_to_its_figures() {
    let folder = Folder::new();
    let mut target = Fixture::start(&folder.compile("cc", "syscalls.c", "syscalls", &[]));
    let pid = target.pid().to_string();
    // It calls nothing of RocksDB, and has none of it.
    let (found, code) = diagnosed(&["--pid", &pid]);
    assert_eq!(code, Some(1));
    let first = found.first_failure().unwrap();
    assert_eq!(
        (first.place, first.reason),
        (Place::Symbols, Some(Reason::SymbolNotFound))
    );
    // Of what may have nothing to tell, that is no fault.
    let (found, code) = diagnosed(&["--pid", &pid, "--preset", "network", "--seconds", "1"]);
    assert_eq!(code, Some(0), "{found:#?}");
    assert_eq!(found.findings.last().unwrap().place, Place::Figures);
    assert_eq!(target.tell("uid"), "");
    drop(target);
    let (found, code) = diagnosed(&["--pid", &pid]);
    assert_eq!(code, Some(1));
    assert_eq!(found.first_failure().unwrap().place, Place::Process);
}

/// Whether a check has attached to a process. What is tried out before that is gone when it looks at the process.
fn counts(checks: &Child, pid: &str) -> bool {
    let held = || {
        let descriptors = fs::read_dir(format!("/proc/{}/fdinfo", checks.id()));
        let descriptors = descriptors.into_iter().flatten().flatten();
        let said = descriptors.filter_map(|one| fs::read_to_string(one.path()).ok());
        let said: Vec<String> = said.collect();
        let watches = format!("Pid:\t{pid}\n");
        let links = said.iter().filter(|said| said.contains("link_id:")).count();
        (links > 0 && said.iter().any(|said| said.contains(&watches))).then_some(links)
    };
    // One link after the other is made.
    let before = held();
    sleep(Duration::from_millis(500));
    before.is_some() && before == held()
}

#[test]
fn a_process_that_ends_while_it_is_counted_is_not_said_to_be_well() {
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = process.id().to_string();
    let mut checks = diagnosing(&["--pid", &pid, "--preset", "network", "--seconds", "600"]);
    let checks = checks.stdout(Stdio::piped()).spawn().unwrap();
    wait_until("a check that counts", || counts(&checks, &pid));
    process.kill().unwrap();
    process.wait().unwrap();
    let (found, code) = found(checks.wait_with_output().unwrap());
    assert_eq!(code, Some(1), "{found:#?}");
    let first = found.first_failure().unwrap();
    assert_eq!(first.place, Place::Process);
    assert_eq!(
        first.text,
        format!("process {pid} (sleep) ended while it was counted")
    );
}

/// Its numbers are others there than in the kernel, where they would be some other process's.
#[test]
fn in_a_pid_namespace_of_its_own_it_measures_nobody_and_says_why() {
    for words in [
        "syscalls --pid 1 --duration 2s",
        "tcp --pid 1 --duration 2s",
        "functions --match main --pid 1 --duration 2s",
        "profile --pid 1 --duration 2s",
        "check --pid 1",
    ] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--mount-proc"]);
        // The first of the namespace is who is asked for.
        command.args(["sh", "-c", "\"$@\"; exit $?", "sh", CKB_PROBE]);
        let output = command.args(words.split(' ')).output().unwrap();
        let [said, complained] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(output.status.code(), Some(1), "{words}: {said}{complained}");
        // Some of them keep to the width of a terminal.
        let whole: Vec<_> = said
            .split_whitespace()
            .chain(complained.split_whitespace())
            .collect();
        let whole = whole.join(" ");
        assert!(
            whole.contains("this runs in a PID namespace of its own, where processes go by other numbers than in the kernel"),
            "{words}: {whole}"
        );
        assert!(!said.contains("estimated cost"), "{words}: {whole}");
    }
}

#[test]
fn what_one_question_lacks_keeps_no_other_from_being_measured_and_is_told_by_name() {
    // Busy enough for slices of it to come soon, where others load the machine, too.
    let plan = ["rocksdb_get_pinned_cf 300000 constant:20000"];
    let mut truth = GroundTruth::start("ground-truth", &["--rate", "5000"], &plan).unwrap();
    let pid = truth.pid().to_string();
    truth.begin().unwrap();
    // It has RocksDB's functions, and none of those by which blocks are known.
    let asked = ["--pid", &pid, "--preset", "latency"];
    let (found, code) = diagnosed(&[&asked[..], &["--seconds", "15"]].concat());
    assert_eq!(code, Some(1), "{found:#?}");
    let failed: Vec<_> = found
        .findings
        .iter()
        .filter(|one| one.mark == Mark::Failed)
        .collect();
    assert_eq!(failed.len(), 1, "{found:#?}");
    assert!(failed[0].text.starts_with("blocks is not measured: "));
    assert_eq!(failed[0].reason, Some(Reason::SymbolNotFound));
    let last = found.findings.last().unwrap();
    let seen = (last.place, last.mark);
    assert_eq!(seen, (Place::Figures, Mark::Passed), "{found:#?}");
    assert!(last.text.contains("storage "), "{last:?}");

    // `top` says the same, and shows the others.
    let output = Command::new(CKB_PROBE)
        .arg("top")
        .args(asked)
        .args(["-o", "json"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with("ckb-probe: attached, but not blocks: "),
        "{said}"
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let View::Top(top) = Document::read(&printed).unwrap().view else {
        panic!("{printed}");
    };
    let of = |probe: &str| top.targets.iter().find(|one| one.probe == probe).unwrap();
    assert_eq!(of("blocks").reason.as_deref(), Some("SymbolNotFound"));
    assert_eq!(of("storage").reason, None);
    assert!(of("storage").rows.iter().any(|row| row.row == "Get"));
}

#[test]
fn a_process_that_calls_nothing_is_told_from_one_that_does() {
    let plan = ["rocksdb_get_pinned_cf 2000 constant:1000"];
    // So few that none is sampled also where calls cost thrice as much, beside others.
    let mut truth = GroundTruth::start("ground-truth", &["--rate", "100"], &plan).unwrap();
    let pid = truth.pid().to_string();
    let (found, code) = diagnosed(&["--pid", &pid, "--seconds", "1"]);
    assert_eq!(code, Some(1));
    let first = found.first_failure().unwrap();
    assert_eq!(
        (first.place, first.reason),
        (Place::Figures, Some(Reason::Silent))
    );
    truth.begin().unwrap();
    let (found, code) = diagnosed(&["--pid", &pid, "--seconds", "2"]);
    assert_eq!(code, Some(0), "{found:#?}");
    let last = found.findings.last().unwrap();
    assert!(last.text.starts_with("within 2 s: "), "{last:?}");
    assert!(last.text.contains("/s p99 "), "{last:?}");
}
