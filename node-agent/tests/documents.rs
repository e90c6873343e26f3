//! `-o json` of the verbs of a host: one document and nothing else on standard output, read back by our own reader; on this machine's
//! kernel, as root.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "where it panics, a test fails"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::Duration,
};

use ckb_probe_testkit::{Fixture, Folder, GroundTruth, Probe, ckb_probe, fixtures};
use ckb_probe_views::document::{Document, View};
use rustix::process::{Pid, Signal, kill_process};

/// What is printed, which is one document.
fn told(arguments: &[&str]) -> View {
    let output = Command::new(ckb_probe()).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let document = Document::read(&text).unwrap();
    // One line, read back to the last bit.
    assert_eq!(document.line(), text.trim_end(), "{arguments:?}");
    document.view
}

#[test]
fn what_could_be_attached_to_is_told_with_its_places() {
    let folder = Folder::new();
    let program = folder.compile("cc", "functions.c", "functions", &[]);
    let file = program.to_str().unwrap();
    let View::Symbols(found) = told(&["symbols", file, "--match", "alpha_*", "-o", "json"]) else {
        panic!("no symbols");
    };
    assert_eq!(found.subject, format!("file {file}"));
    assert_eq!((found.total, found.functions.len()), (4, 4));
    assert!(!found.stripped && !found.go);
    for function in &found.functions {
        let [place] = &function.places[..] else {
            panic!("{function:?}");
        };
        assert!(place.offset > 0);
        assert_eq!(place.single_stepped, function.name == "alpha_stepped");
    }
    let plan = ["rocksdb_get_pinned_cf 1 constant:1000"];
    let truth = GroundTruth::start("ground-truth", &["--rate", "100"], &plan).unwrap();
    let pid = truth.pid().to_string();
    let View::Symbols(found) = told(&["symbols", "--pid", &pid, "-o", "json"]) else {
        panic!("no symbols");
    };
    let named = found.functions.iter();
    let mut get = named.filter(|one| one.row.as_deref() == Some("Get"));
    assert!(get.any(|one| !one.places.is_empty()), "{found:?}");
}

#[test]
fn usdt_probes_are_told_with_their_arguments() {
    let program = fixtures().join("usdt");
    let file = program.to_str().unwrap();
    let View::Usdt(found) = told(&["symbols", "--usdt", file, "-o", "json"]) else {
        panic!("no USDT probes");
    };
    let [of] = &found.files[..] else {
        panic!("{found:?}");
    };
    let named = |name: &'static str| of.probes.iter().filter(move |one| one.name == name);
    assert_eq!(of.probes.len(), 6);
    assert_eq!(named("twice").count(), 2);
    let plain = named("plain").next().unwrap();
    assert_eq!(plain.arguments.len(), 2);
    assert!(plain.arguments[0].starts_with("-4@%"), "{plain:?}");
    assert_eq!(plain.instruction.as_deref(), Some("nop"));
    assert!(plain.semaphore_offset.is_none() && plain.offset > Some(0));
    assert!(named("guarded").all(|one| one.semaphore_offset.is_some()));
}

#[test]
fn threads_are_told_one_by_one() {
    let folder = Folder::new();
    let fixture = Fixture::start(&folder.compile("cc", "functions.c", "functions", &[]));
    let pid = fixture.pid().to_string();
    let View::Threads(found) = told(&["threads", "--pid", &pid, "-o", "json"]) else {
        panic!("no threads");
    };
    assert_eq!(found.subject, format!("process {pid} (functions)"));
    let [thread] = &found.threads[..] else {
        panic!("{found:?}");
    };
    assert_eq!((thread.thread, &*thread.name), (fixture.pid(), "functions"));
    assert_eq!(thread.waits_for.as_deref(), Some("read pipe"));
    assert!(thread.calls.iter().any(|call| call.name == "main"));
}

#[test]
fn a_record_is_told_with_exact_numbers_and_does_not_differ_from_itself() {
    let folder = Folder::new();
    let to = folder.path("a.record");
    let to = to.to_str().unwrap();
    let plan = ["rocksdb_get_pinned_cf 500 constant:1000"];
    let mut truth = GroundTruth::start("ground-truth", &["--rate", "100"], &plan).unwrap();
    let mut recorder = Command::new(ckb_probe())
        .args(["record", "--pid", &truth.pid().to_string(), "-o", to])
        .args(["--interval", "100ms", "--on-breach", "report"])
        .spawn()
        .unwrap();
    ckb_probe_testkit::wait_until("it records", || {
        let written = fs::read_dir(to).into_iter().flatten().flatten();
        let bytes = written.map(|file| file.metadata().map_or(0, |of| of.len()));
        bytes.sum::<u64>() > 1000
    });
    truth.go().unwrap();
    drop(truth);
    assert_eq!(recorder.wait().unwrap().code(), Some(0));
    let View::Record(found) = told(&["report", to, "-o", "json"]) else {
        panic!("no record");
    };
    assert_eq!((&*found.record, found.runs.len()), (to, 1));
    assert!(found.known_milliseconds > 4_000, "{found:?}");
    assert_eq!(found.runs[0].interval_milliseconds, 100);
    let mut rows = found.probes[0].rows.iter();
    let get = rows.find(|row| row.row == "Get" && row.part.is_none());
    let get = get.unwrap();
    let count = get
        .figures
        .iter()
        .find(|one| one.figure == "count")
        .unwrap();
    assert_eq!((count.value, &*count.unit), (500.0, "count"));
    let View::Changes(same) = told(&["diff", to, to, "-o", "json"]) else {
        panic!("no changes");
    };
    assert!(!same.figures.is_empty(), "{same:?}");
    for figure in &same.figures {
        assert_eq!((figure.change, &*figure.is), (0.0, "noise"), "{figure:?}");
        assert_eq!(figure.probe.as_deref(), Some("storage"));
    }
}

#[test]
fn blocks_of_a_process_are_told_as_they_come_and_the_slowest_in_the_end() {
    let mut node = Fixture::named("blocks", &[]);
    let mut probe = Probe::start(node.pid(), &["blocks", "-o", "json"]);
    let mut height = 0;
    let first = probe.line_while(
        |_| true,
        || {
            height += 1;
            node.tell(&format!("accept {height} {height} 3"));
        },
    );
    node.tell("accept 1001 1040 3");
    let (lines, _) = probe.events();
    let told: Vec<u64> = [first]
        .iter()
        .chain(&lines)
        .map(|line| {
            let Document {
                view: View::Event(event),
                ..
            } = Document::read(&line.to_string()).unwrap()
            else {
                panic!("{line}");
            };
            assert_eq!(
                (event.probe.as_str(), event.event.row.as_str()),
                ("blocks", "accepted")
            );
            event.event.details["height"].parse().unwrap()
        })
        .collect();
    let expected: Vec<u64> = (told[0]..=height).chain(1001..=1040).collect();
    assert_eq!(told, expected);
}

#[test]
fn blocks_of_a_process_are_told_to_people_in_lines_that_end_with_the_slowest() {
    let mut node = Fixture::named("blocks", &[]);
    let pid = node.pid().to_string();
    let mut probe = Command::new(ckb_probe())
        .args([
            "blocks",
            "--interval",
            "100ms",
            "--most",
            "2",
            "--pid",
            &pid,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(probe.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let (told, is_told) = channel();
    let reader = thread::spawn(move || {
        lines
            .by_ref()
            .inspect(|_| told.send(()).unwrap_or_default())
            .collect::<Vec<_>>()
    });
    let mut height = 0;
    while is_told.recv_timeout(Duration::from_millis(50)).is_err() {
        height += 1;
        node.tell(&format!("accept {height} {height} 3"));
    }
    node.tell("accept 1001 1004 3");
    kill_process(Pid::from_child(&probe), Signal::INT).unwrap();
    assert!(probe.wait().unwrap().success());
    let lines = reader.join().unwrap();
    let heads = "HEIGHT    DURATION ROCKSDB  VERIFY  COMMIT     CPU     TXS  EXECUTABLE";
    assert_eq!(lines[0], heads);
    let end = lines.iter().position(String::is_empty).unwrap();
    let heights = |lines: &[String]| -> Vec<u64> {
        lines
            .iter()
            .map(|line| line.split(' ').next().unwrap().parse().unwrap())
            .collect()
    };
    assert!(heights(&lines[1..end]).ends_with(&[1001, 1002, 1003, 1004]));
    let last = &lines[end + 1..];
    assert_eq!(last[0], format!("process {pid} (blocks)"));
    assert_eq!((&*last[2], &*last[3]), ("newest", heads));
    assert_eq!(heights(&last[4..6]), [1004, 1003]);
    assert_eq!((&*last[7], &*last[8], last.len()), ("slowest", heads, 11));
}

#[test]
fn two_runs_of_blocks_are_told_in_the_same_form_and_no_picture_of_them_is_promised() {
    let folder = Folder::new();
    let run = |name: &str, duration: u64| {
        let file = folder.path(name);
        let line = |height: u64| {
            let duration = duration + height % 7;
            format!(
                "{{\"outcome\":\"accepted\",\"height\":{height},\"durationNanoseconds\":{duration}}}\n"
            )
        };
        fs::write(&file, (0..100).map(line).collect::<String>()).unwrap();
        file.display().to_string()
    };
    let (before, after) = (run("before.jsonl", 1_000), run("after.jsonl", 2_000));
    let View::Changes(found) = told(&["diff", &before, &after, "-o", "json"]) else {
        panic!("no changes");
    };
    assert_eq!((&found.before, &found.after), (&before, &after));
    assert_eq!((found.blocks_before, found.paired), (Some(100), true));
    let mut figures = found.figures.iter();
    let median = figures.find(|one| one.statistic == "median").unwrap();
    assert_eq!(median.figure, "durationNanoseconds");
    assert_eq!((&*median.unit, &*median.is), ("nanoseconds", "more"));
    assert!((median.change - 1_000.0).abs() < 1.0, "{median:?}");
    let picture = Command::new(ckb_probe())
        .args(["diff", &before, &after, "-o", "diff.svg"])
        .output()
        .unwrap();
    assert_eq!(picture.status.code(), Some(1));
    let said = String::from_utf8(picture.stderr).unwrap();
    assert!(said.contains("there is no picture of them"), "{said}");
}
