//! A target on a file system that does not answer any more, and others beside it.

use std::{fs, sync::mpsc, thread, time::Duration};

use ckb_probe_crds::{
    Assignment, Breach, InstanceState, Overhead, Probe, Reason,
    kinds::rocksdb::{Operation, RocksDbProbe},
};
use nix::unistd::{Pid, gettid};
use rustix::process::{self, Signal, kill_process};

use super::{
    FIXTURE, PATIENCE,
    agent::{Agent, order_of},
    container::Container,
    host::Folder,
    mount::Mount,
};

/// Has a thread of its own ask for the file, and tells which.
fn asks(mount: &Mount) -> Pid {
    let program = mount.program();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        tell.send(gettid()).unwrap();
        drop(fs::metadata(program));
    });
    told.recv().unwrap()
}

#[tokio::test]
async fn a_file_system_that_falls_silent_holds_up_nobody_but_its_own_targets() {
    let folder = Folder::new();
    let program = folder.compile("cc", FIXTURE, "silent", &[]);
    let mount = Mount::with(&program, &folder.path("mount"));
    let local = Container::run(1, &program);
    let early = Container::run(2, &mount.program());
    let late = Container::run(3, &mount.program());
    let mut agent = Agent::start();
    agent.order(&[&local, &early]);
    agent
        .until(PATIENCE, |agent| {
            agent.samples(&local) > 1_000 && agent.samples(&early) > 1_000
        })
        .await;

    mount.fall_silent();
    // What was said of its files a moment ago is forgotten.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let another = asks(&mount);
    agent.order(&[&local, &early, &late]);
    agent
        .until(PATIENCE, |agent| {
            agent.state(&late) == (InstanceState::Failed, Reason::AttachFailed)
        })
        .await;
    let message = agent.message(&late);
    assert!(message.contains("has not answered for 5 s"), "{message}");
    // The others go on: what is counted, and reports.
    let (samples, reports) = (agent.samples(&local), agent.windows);
    agent
        .until(PATIENCE, |agent| {
            agent.windows >= reports + 5 && agent.samples(&local) > samples
        })
        .await;
    assert_eq!(agent.state(&local).0, InstanceState::Attached);
    // Others wait for it: the loop, which is this thread, never has.
    assert!(mount.is_waited_for() && mount.has_kept_waiting(another));
    assert!(!mount.has_kept_waiting(gettid()));

    mount.speak();
    agent
        .until(PATIENCE, |agent| agent.samples(&late) > 0)
        .await;
    assert_eq!(agent.gap(&local), Duration::ZERO);
    drop((early, late));
}

#[tokio::test]
async fn an_agent_that_ends_waits_for_no_file_system() {
    let folder = Folder::new();
    let program = folder.compile("cc", FIXTURE, "ending", &[]);
    let mount = Mount::with(&program, &folder.path("mount"));
    let target = Container::run(4, &mount.program());
    mount.fall_silent();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut agent = Agent::start();
    agent.order(&[&target]);
    agent
        .until(PATIENCE, |agent| {
            agent.state(&target).0 == InstanceState::Failed
        })
        .await;
    drop(agent);
    // It has gone, and what waits does so still.
    assert!(mount.is_waited_for() && !mount.has_kept_waiting(gettid()));
    mount.speak();
    drop(target);
}

/// Lists slow calls with who called them.
fn callers(of: &Container) -> Assignment {
    let calls = RocksDbProbe {
        operations: vec![Operation::Put],
        slow_threshold: Duration::from_millis(1).into(),
        stacks: true,
        ..RocksDbProbe::default()
    };
    let probes = vec![Probe::new("storage", calls.into())];
    Assignment {
        overhead: Overhead {
            max_percent: 20.0,
            on_breach: Breach::Report,
        },
        ..order_of("callers", &of.id, &of.executable, probes)
    }
}

#[tokio::test]
async fn who_made_slow_calls_is_told_after_the_file_system_fell_silent_too() {
    let folder = Folder::new();
    let program = folder.compile("cc", "waits.c", "waits", &["-O1", "-fomit-frame-pointer"]);
    let mount = Mount::with(&program, &folder.path("mount"));
    let local = Container::run(5, &program);
    let mute = Container::run(6, &mount.program());
    let mut agent = Agent::start();
    agent.assign(vec![callers(&local), callers(&mute)]);
    let both = [&local, &mute];
    agent
        .until(PATIENCE, |agent| {
            both.map(|one| agent.state(one).0) == [InstanceState::Attached; 2]
        })
        .await;

    mount.fall_silent();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let another = asks(&mount);
    for target in both {
        let pid = process::Pid::from_raw(target.pid() as i32).unwrap();
        kill_process(pid, Signal::USR1).unwrap();
    }
    let mut events = Vec::new();
    agent
        .until(PATIENCE, |agent| {
            events.extend(agent.events());
            events.len() == 10
        })
        .await;
    // Names and tables were read when it was attached to.
    for event in &events {
        assert_eq!(event["stack"][0], "who_calls", "{event}");
        assert_eq!(event["stack"][1], "main", "{event}");
    }
    for target in both {
        let of_it = events.iter().filter(|event| event["pod"] == target.id);
        assert_eq!(of_it.count(), 5);
    }
    // Its file is what nobody gets an answer about; the loop, which is this thread, never asked.
    assert!(mount.is_waited_for() && mount.has_kept_waiting(another));
    assert!(!mount.has_kept_waiting(gettid()));
    mount.speak();
    drop(mute);
}
