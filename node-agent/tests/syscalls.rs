//! `ckb-probe syscalls` on a program that makes so many of each: on this machine's kernel, as root.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "where it panics, a test fails"
)]

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use ckb_probe_testkit::{Fixture, Folder, Probe, refusal, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

fn fixture(folder: &Folder) -> PathBuf {
    folder.compile("cc", "syscalls.c", "syscalls", &[])
}

/// Attached: a call that is made shows.
fn attached(fixture: &mut Fixture, arguments: &[&str]) -> Probe {
    let arguments = [&["syscalls", "--json"], arguments].concat();
    let mut probe = Probe::start(fixture.pid(), &arguments);
    probe.line_while(|line| line["row"] == "getuid", || drop(fixture.tell("uid")));
    probe
}

#[test]
fn each_call_is_counted_and_each_error_by_its_name_as_by_strace() {
    let folder = Folder::new();
    let program = fixture(&folder);
    let (mut target, mut other) = (Fixture::start(&program), Fixture::start(&program));
    let probe = attached(&mut target, &[]);
    for _ in 0..3 {
        target.tell("work");
        other.tell("work");
    }
    let (rows, said) = probe.rows();
    assert_eq!(said, "");
    let counts = [
        ("getppid", 3000),
        ("openat", 3 * 321),
        ("read", 750),
        ("pread64", 30),
        ("clock_nanosleep", 15),
        ("close", 3),
        ("other", 3),
    ];
    for (row, count) in counts {
        assert_eq!(rows.count(row), count, "{row}");
    }
    // And what it is told by.
    let known = counts.map(|(row, _)| row);
    let rest = rows.names().into_iter().filter(|row| !known.contains(row));
    assert_eq!(rest.collect::<Vec<_>>(), ["getuid", "readv", "writev"]);
    let errors = |row: &str| rows.row(row).parts("errors");
    assert_eq!(
        errors("openat"),
        BTreeMap::from([("ENOENT", 900), ("ENOTDIR", 60)])
    );
    assert_eq!(rows.row("openat").figure("errors"), 960);
    assert_eq!(errors("read"), BTreeMap::from([("EBADF", 150)]));
    assert_eq!(errors("pread64"), BTreeMap::new());
    assert_eq!(errors("other"), BTreeMap::from([("ENOSYS", 3)]));

    let mut traced = Fixture::start(&program);
    let strace = Strace::start(&folder, &mut traced);
    for _ in 0..3 {
        traced.tell("work");
    }
    let theirs = strace.end();
    for (row, _) in counts.into_iter().filter(|(row, _)| *row != "other") {
        let ours = (rows.count(row), rows.row(row).figure("errors"));
        assert_eq!(theirs.get(row), Some(&ours), "{row}");
    }
}

#[test]
fn a_name_that_is_none_is_refused() {
    let folder = Folder::new();
    let target = Fixture::start(&fixture(&folder));
    assert_eq!(
        refusal(target.pid(), &["syscalls", "--names", "read,opnat"]),
        "there is no system call \"opnat\" on x86-64: their names are those of the manual pages, such as openat, pread64 or \
         fdatasync"
    );
}

#[test]
fn a_slow_call_is_told_with_its_path_or_its_file() {
    let folder = Folder::new();
    let fifo = folder.path("fifo");
    run(Command::new("mkfifo").arg(&fifo));
    let fifo = fifo.to_str().unwrap();
    let mut target = Fixture::start_with(&fixture(&folder), &[fifo]);
    let mut probe = Probe::start(
        target.pid(),
        &["syscalls", "--events", "--slow-threshold", "20ms"],
    );
    let agent = probe.pid();
    let open = probe.line_while(
        |line| line["syscall"] == "openat",
        || {
            // It looks only when all is over.
            kill_process(agent, Signal::STOP).unwrap();
            target.tell("slow");
            kill_process(agent, Signal::CONT).unwrap();
        },
    );
    assert_eq!(open["path"], json!(fifo));
    assert_eq!(open["threadName"], "syscalls");
    assert!(open["result"].as_i64().unwrap() > 2, "{open}");
    let nanos = open["durationNanoseconds"].as_u64().unwrap();
    assert!((20_000_000..10_000_000_000).contains(&nanos), "{open}");
    assert_eq!(open["errno"], Value::Null);
    let open_yet = probe.line_while(|line| line["syscall"] == "read", || {});
    assert_eq!(open_yet["file"], json!(fifo));
    let read = probe.line_while(|line| line["syscall"] == "read", || {});
    assert_eq!(
        (&read["result"], &read["arguments"][2]),
        (&json!(1), &json!("0x1"))
    );
    // Something else is open under that number by now, and its path is not told.
    assert_eq!(read["file"], "fifo");
    let receive = probe.line_while(|line| line["syscall"] == "recvfrom", || {});
    assert_eq!(
        (&receive["result"], &receive["errno"]),
        (&json!(-11), &json!("EAGAIN"))
    );
    let file = receive["file"].as_str().unwrap();
    assert!(file.starts_with("socket:["), "{file}");
    let (events, _) = probe.events();
    let waits = ["clock_nanosleep", "futex"].map(|name| json!(name));
    assert!(
        events
            .iter()
            .all(|event| !waits.contains(&event["syscall"]))
    );
}

/// `strace -c` on a process.
struct Strace {
    child: Child,
    table: PathBuf,
}

impl Strace {
    fn start(folder: &Folder, target: &mut Fixture) -> Self {
        let table = folder.path("strace");
        let child = Command::new("strace")
            .args(["-c", "-f", "-U", "name,calls,errors", "-o"])
            .arg(&table)
            .args(["-p", &target.pid().to_string()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let status = format!("/proc/{}/status", target.pid());
        let traced = || {
            let status = std::fs::read_to_string(&status).unwrap();
            !status.contains("TracerPid:\t0\n")
        };
        while !traced() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // By the end of this it goes on under strace.
        target.tell("uid");
        Self { child, table }
    }

    /// Calls and errors by name.
    fn end(mut self) -> BTreeMap<String, (u64, u64)> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap();
        let table = std::fs::read_to_string(&self.table).unwrap();
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let name = words.next()?.to_string();
            let calls = words.next()?.parse().ok()?;
            let errors = words.next().map_or(Some(0), |errors| errors.parse().ok())?;
            Some((name, (calls, errors)))
        };
        table.lines().filter_map(row).collect()
    }
}
