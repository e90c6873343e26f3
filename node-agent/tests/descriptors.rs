//! An agent that is out of file descriptors takes nobody for gone. The limit is the whole process's: one test, in a program of its
//! own.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    fs::{File, read_dir},
    process::Command,
    time::{Duration, Instant},
};

use ckb_probe_agent::observe;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn what_cannot_be_read_is_not_taken_for_gone() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    let look = || observe::process(pid, |name| name == "sleep");
    // It is this program until its exec.
    let begun = Instant::now();
    while look().unwrap().is_none() {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{pid} is no sleep"
        );
    }

    let before = getrlimit(Resource::Nofile);
    let open = read_dir("/proc/self/fd").unwrap().count() as u64;
    let limit = |number| Rlimit {
        current: Some(number),
        ..before
    };
    setrlimit(Resource::Nofile, limit(open + 8)).unwrap();
    let mut held = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        held.push(file);
    }
    // Not even the list can be read.
    let nothing = observe::processes(|name| name == "sleep");
    // One descriptor is enough for the list, and not for a process as well.
    held.pop();
    let found = observe::processes(|name| name == "sleep");
    let one = look().map(|process| process.is_some());
    setrlimit(Resource::Nofile, before).unwrap();

    assert!(matches!(nothing, Err(observe::ObserveError::List(_))));
    let found = found.unwrap();
    assert_eq!(found.processes, []);
    assert!(found.unreadable.contains(&pid));
    assert!(one.is_err(), "{one:?}");
    assert_eq!(look().unwrap().unwrap().id.pid, pid);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(look().unwrap(), None);
}
