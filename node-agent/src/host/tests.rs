use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use super::*;

fn refusal(pid: Option<u32>, executable: &str) -> String {
    find_process(pid, executable).unwrap_err().to_string()
}

#[test]
fn a_number_of_a_thread_is_refused_with_that_of_its_process() {
    let (tell, told) = channel();
    let (end, ended) = channel::<()>();
    let thread = thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32)
            .unwrap();
        ended.recv().unwrap_err();
    });
    let number = told.recv().unwrap();
    let process = std::process::id();
    assert_eq!(
        refusal(Some(number), "ckb"),
        format!("{number} is a thread of process {process}: name that with --pid {process}")
    );
    drop(end);
    thread.join().unwrap();
}

#[test]
fn a_zombie_is_not_said_to_be_nothing() {
    let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let end = Instant::now() + Duration::from_secs(10);
    while observe::unmeasured(pid).is_none() {
        assert!(Instant::now() < end, "it does not end");
        thread::yield_now();
    }
    assert_eq!(
        refusal(Some(pid), "ckb"),
        format!(
            "process {pid} is a zombie, which has ended: name one that runs with --pid, or an executable with --executable"
        )
    );
    child.wait().unwrap();
    assert!(matches!(
        find_process(Some(pid), "ckb"),
        Err(HostError::NoProcess(_))
    ));
}

#[test]
fn a_thread_of_the_kernel_is_not_said_to_be_nothing() {
    // Number 2 is the parent of all of them; in a container there is none, or somebody else.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        assert_eq!(
            refusal(Some(2), "ckb"),
            "2 is a thread of the kernel, which runs no program: name a process with --pid, or an executable with --executable"
        );
    }
}

#[test]
fn one_that_may_not_be_looked_at_is_not_said_to_be_none() {
    let own = fs::read_to_string("/proc/self/comm").unwrap();
    let found = || Found {
        unreadable: BTreeSet::from([std::process::id()]),
        ..Found::default()
    };
    let pid = std::process::id();
    assert_eq!(
        only(own.trim_end(), found()).unwrap_err().to_string(),
        format!(
            "process {pid} may not be looked at: that takes root, or the capability SYS_PTRACE"
        )
    );
    assert!(matches!(
        only("nobody-runs-this", found()),
        Err(HostError::NoProcess(_))
    ));
}
