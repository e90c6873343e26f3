//! A process whose number another one has before the agent comes round to seeing that it has ended.

use std::{
    process::{Command, Stdio},
    thread,
};

use ckb_probe_crds::kinds::{processes::ProcessesProbe, syscalls::SyscallsProbe};
use ckb_probe_testkit::number::under;
use serde_json::Value;

use super::*;

/// Of its own end the earlier one has so many counts. As its loop is this thread, which runs the later process to its end, the agent is busy with something else: by the time that it comes round
/// nobody has the number any more.
async fn nothing_is_told_of_a_later_process(
    container: u32,
    (probe, of_its_end): (Probe, u64),
    commands: &str,
) {
    let folder = Folder::new();
    let program = folder.compile("cc", FIXTURE, "earlier", &[]);
    let mut target = Container::run(container, &program);
    let mut agent = Agent::start();
    let order = order_of("calls", &target.id, &target.executable, vec![probe]);
    agent.assign(vec![without_budget(order)]);
    let is_attached = |agent: &mut Agent| agent.state(&target).0 == InstanceState::Attached;
    agent.until(PATIENCE, is_attached).await;
    let before = agent.samples(&target);

    let number = target.pid();
    target.end();
    // What tells the one from the other is a tick.
    thread::sleep(Duration::from_millis(20));
    let mut later = Command::new("bash");
    later.args(["-c", commands]).stderr(Stdio::null());
    under(number, &mut later).wait().unwrap();
    let has_gone = |agent: &mut Agent| agent.state(&target).0 != InstanceState::Attached;
    agent.until(PATIENCE, has_gone).await;
    assert_eq!(agent.samples(&target), before + of_its_end);
    let told = agent.events();
    let of_the_later = told.iter().filter(|line| line["threadName"] != "earlier");
    assert_eq!(of_the_later.collect::<Vec<_>>(), Vec::<&Value>::new());
}

#[tokio::test]
async fn what_a_later_process_of_the_number_does_is_not_told_of_the_earlier_one() {
    let asked = SyscallsProbe {
        names: vec!["read".to_string(), "write".to_string()],
        slow_threshold: Duration::from_micros(1).into(),
    };
    let probe = Probe::new("calls", asked.into());
    let reading = "exec dd if=/dev/zero of=/dev/null bs=1 count=10000";
    nothing_is_told_of_a_later_process(600, (probe, 0), reading).await;
}

#[tokio::test]
async fn what_a_later_process_of_the_number_runs_is_not_told_of_the_earlier_one() {
    let probe = Probe::new("commands", ProcessesProbe::default().into());
    let commands = "for i in {1..20}; do /bin/true; done";
    nothing_is_told_of_a_later_process(601, (probe, 1), commands).await;
}
