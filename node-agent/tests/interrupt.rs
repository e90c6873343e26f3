//! Ctrl-C ends it whenever it comes: also in the moment in which something else is due.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use ckb_probe_testkit::{Fixture, Folder, ckb_probe};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

/// Which of two things that are due is done first, is left to chance.
const TRIES: usize = 6;

#[test]
fn an_interrupt_is_not_lost_to_what_is_due_with_it() {
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
}
