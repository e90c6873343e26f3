//! A target on a file system that does not answer any more, and others beside it.

use std::{sync::mpsc, thread};

use ckb_probe_crds::ProfileMode;
use ckb_probe_testkit::mount::Mount;
use nix::unistd::{Pid, gettid};

use super::{profiles, slow_calls, *};

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
    assert!(mount.is_waited_for() && mount.has_kept_waiting(another.as_raw().cast_unsigned()));
    assert!(!mount.has_kept_waiting(gettid().as_raw().cast_unsigned()));

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
    assert!(mount.is_waited_for() && !mount.has_kept_waiting(gettid().as_raw().cast_unsigned()));
    mount.speak();
    drop(target);
}

#[tokio::test]
async fn who_made_slow_calls_is_told_after_the_file_system_fell_silent_too() {
    let folder = Folder::new();
    let program = slow_calls::program(&folder);
    let mount = Mount::with(&program, &folder.path("mount"));
    let local = slow_calls::run(&program, 5);
    let mute = slow_calls::run(&mount.program(), 6);
    let both = [&local, &mute];
    let mut agent = Agent::start();
    agent.assign(both.map(|one| slow_calls::order(one, true)).into());
    for target in both {
        slow_calls::attached(&mut agent, target).await;
    }

    mount.fall_silent();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let another = asks(&mount);
    for target in both {
        // Names and tables were read when it was attached to.
        let lines = slow_calls::known(&mut agent, target, &mut Vec::new()).await;
        for line in &lines {
            assert_eq!(line["pod"], target.id);
            let callers = slow_calls::callers(line);
            let known: [&[&str]; 2] = [
                &["first_caller", "run"],
                &["second_caller", "callers_caller", "run"],
            ];
            let is_known = known.iter().any(|known| callers.starts_with(known));
            assert!(callers.is_empty() || is_known, "{line}");
        }
    }
    // Its file is what nobody gets an answer about; the loop, which is this thread, never asked.
    assert!(mount.is_waited_for() && mount.has_kept_waiting(another.as_raw().cast_unsigned()));
    assert!(!mount.has_kept_waiting(gettid().as_raw().cast_unsigned()));
    mount.speak();
    drop(mute);
}

#[tokio::test]
async fn a_stack_on_a_file_system_that_falls_silent_keeps_nobody_from_detaching() {
    let folder = Folder::new();
    let neighbour = folder.compile("cc", FIXTURE, "neighbour", &[]);
    let astray = folder.compile("cc", "astray.c", "astray", &["-pthread"]);
    let zeros = folder.path("zeros");
    fs::write(&zeros, [0; 64 << 10]).unwrap();
    for (number, mode) in [(7, ProfileMode::OffCpu), (8, ProfileMode::Threads)] {
        // Another one: what was read once is remembered.
        let mount = Mount::with(&zeros, &folder.path(&format!("mount-{number}")));
        let stack = mount.program();
        let hostile = Container::run_with(number, &astray, &[stack.to_str().unwrap()], None);
        let local = Container::run(number + 2, &neighbour);
        mount.fall_silent();
        let window = profiles::windows(&[mode], Duration::from_secs(1), None);
        let profile = profiles::order("hostile", &hostile, &window, 20.0);
        let mut agent = Agent::start();
        agent.assign(vec![profile.clone()]);
        agent.until(PATIENCE, |_| mount.is_waited_for()).await;

        // A slice begins when those before it have gone.
        agent.assign(vec![profile, agent::order(&local.id, &local.executable)]);
        for _ in 0..3 {
            let before = agent.samples(&local);
            agent
                .until(Duration::from_secs(5), |agent| {
                    agent.samples(&local) > before
                })
                .await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!(mount.is_waited_for(), "{mode:?}");
        // Who asks for its stacks is told why none come, and no more once they do.
        let lacks = |agent: &mut Agent| {
            let report = agent.report_to("hostile", &hostile).unwrap();
            let probe = report.probes.first().cloned().unwrap_or_default();
            let lacks: Vec<Reason> = probe.lacks.iter().map(|lack| lack.reason).collect();
            let why = "a file system that does not answer";
            assert_eq!(probe.message.contains(why), !lacks.is_empty());
            lacks
        };
        let is_told = |agent: &mut Agent| lacks(agent) == [Reason::AttachFailed];
        agent.until(PATIENCE, is_told).await;
        assert!(!mount.has_kept_waiting(gettid().as_raw().cast_unsigned()));
        mount.speak();
        agent.until(PATIENCE, |agent| lacks(agent).is_empty()).await;
        drop((agent, hostile, local));
    }
}
