//! Ctrl-C ends it whenever it comes: also in the moment in which something else is due. Ctrl-Z does not leave a target to itself.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

use ckb_probe_testkit::{Fixture, Folder, ckb_probe, wait_until};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

/// One test at a time: what one has attached and measures, another would find in its times.
fn in_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which of two things that are due is done first, is left to chance.
const TRIES: usize = 6;

#[test]
fn an_interrupt_is_not_lost_to_what_is_due_with_it() {
    let _turn = in_turn();
    let folder = Folder::new();
    let mut target = Fixture::start(&folder.compile("cc", "syscalls.c", "syscalls", &[]));
    for _ in 0..TRIES {
        let mut child = Command::new(ckb_probe())
            .args(["syscalls", "--pid", &target.pid().to_string(), "--json"])
            .args(["--interval", "200ms", "--on-breach", "report"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (printed, prints) = channel();
        thread::spawn(move || lines.for_each(|line| drop(printed.send(line))));
        // There is nothing to print before anything was called.
        while prints.recv_timeout(Duration::from_millis(50)).is_err() {
            target.tell("uid");
        }
        kill_process(pid, Signal::STOP).unwrap();
        // The end of an interval is due by then.
        thread::sleep(Duration::from_millis(400));
        kill_process(pid, Signal::INT).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
        ends(&mut child);
    }
}

/// Goes with the test, whatever becomes of that.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Well, and by itself.
fn ends(child: &mut Child) {
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "it did not end by itself: {status}");
}

/// As in a pager that shows the first page, or a terminal that is halted.
#[test]
fn who_reads_nothing_keeps_it_neither_from_its_budget_nor_from_ending() {
    let _turn = in_turn();
    let folder = Folder::new();
    let mut target = Fixture::start(&folder.compile("cc", "functions.c", "functions", &[]));
    let pid = target.pid();
    let mut calls = |count: u64| {
        let began = Instant::now();
        target.tell(&format!("alpha_one {count}"));
        began.elapsed()
    };
    let unprobed = (0..4).map(|_| calls(1_000_000)).max().unwrap();
    let mut probe = Killed(
        Command::new(ckb_probe())
            .args(["functions", "--match", "alpha_one", "--threshold", "0s"])
            .args(["--events", "--interval", "200ms", "--pid"])
            .arg(pid.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let child = &mut probe.0;
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let is_heard = thread::spawn(move || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        // And never again, though it could.
        (out, line)
    });
    while !is_heard.is_finished() {
        calls(1);
        thread::sleep(Duration::from_millis(20));
    }
    let (out, _) = is_heard.join().unwrap();
    // So few that each is listed, and more than a pipe has room for.
    for _ in 0..20 {
        calls(50);
        thread::sleep(Duration::from_millis(100));
    }
    let mut probed: Vec<Duration> = (0..8).map(|_| calls(1_000_000)).collect();
    probed.sort();
    // Each of them told would take a hundred times as long.
    assert!(
        probed[4] < 10 * unprobed,
        "{unprobed:?} unprobed: {probed:?}"
    );
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
    ends(child);
    let mut said = String::new();
    let mut errors = child.stderr.take().unwrap();
    errors.read_to_string(&mut said).unwrap();
    assert!(said.contains("nobody read what was printed last"), "{said}");
    drop(out);
}

/// Of a process, as /proc tells it.
fn status_of(pid: u32, what: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

#[test]
fn what_has_attached_something_is_not_suspended_and_says_why() {
    let _turn = in_turn();
    let folder = Folder::new();
    let target = Fixture::start(&folder.compile("cc", "syscalls.c", "syscalls", &[]));
    let pid = target.pid().to_string();
    for verb in [
        "syscalls",
        "profile",
        "heatmap --preset disk",
        "cost syscalls",
        "record --preset disk -o",
    ] {
        let mut probe = Command::new(ckb_probe());
        probe.args(verb.split(' '));
        if verb == "record --preset disk -o" {
            probe.arg(folder.path("record"));
        }
        let mut probe = Killed(
            probe
                .args(["--pid", &pid])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let child = &mut probe.0;
        let own = child.id();
        wait_until("it knows of Ctrl-Z", || {
            let caught = u64::from_str_radix(&status_of(own, "SigCgt"), 16).unwrap();
            caught & 1 << (Signal::TSTP.as_raw() - 1) != 0
        });
        kill_process(Pid::from_child(child), Signal::TSTP).unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let mut lines = errors.lines().map_while(Result::ok);
        let said = lines.find(|line| line.contains("suspended"));
        assert_eq!(
            said.as_deref(),
            Some(
                "ckb-probe: not suspended: what is attached would stay so, with nobody to keep it within the budget. Ctrl-C ends this; \
                 with & behind it, a command runs in the background"
            ),
            "{verb}"
        );
        assert!(!status_of(own, "State").starts_with('T'), "{verb}");
        drop(probe);
    }
}
