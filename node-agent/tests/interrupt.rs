//! Ctrl-C ends it whenever it comes: also while it does something else than wait for it.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

mod host;

use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use host::{CKB_PROBE, Fixture, Folder};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn an_interrupt_while_nobody_takes_what_it_prints_is_not_lost() {
    let folder = Folder::new();
    let mut target = Fixture::start(&folder.compile("cc", "syscalls.c", "syscalls", &[]));
    let mut child = Command::new(CKB_PROBE)
        .args(["syscalls", "--pid", &target.pid().to_string(), "--json"])
        .args(["--interval", "100ms", "--on-breach", "report"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let end = Instant::now() + PATIENCE;
    let call = format!("/proc/{}/syscall", child.id());
    // It prints until the pipe is full, and then waits in a write to it.
    while !fs::read_to_string(&call).unwrap().starts_with("1 0x1 ") {
        assert!(Instant::now() < end, "it does not print");
        target.tell("work");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut output = child.stdout.take().unwrap();
    let (done, is_done) = channel();
    thread::spawn(move || {
        let mut printed = String::new();
        output.read_to_string(&mut printed).unwrap();
        done.send(printed).unwrap();
    });
    let printed = is_done.recv_timeout(PATIENCE);
    child.kill().unwrap();
    assert!(printed.unwrap().ends_with("}\n"));
    assert!(child.wait().unwrap().success());
}
