//! A process whose number another one has before the agent comes round to seeing that it has ended.

use std::{
    process::{Child, Command, Stdio},
    thread,
};

use ckb_probe_crds::kinds::syscalls::SyscallsProbe;

use super::*;

/// Starts a command under this number, which nobody has.
fn under(number: u32, mut command: Command) -> Child {
    for _ in 0..10_000 {
        fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).unwrap();
        let mut child = command.spawn().unwrap();
        if child.id() == number {
            return child;
        }
        // Somebody else was quicker.
        child.kill().unwrap();
        child.wait().unwrap();
    }
    panic!("the number is taken");
}

#[tokio::test]
async fn what_a_later_process_of_the_number_does_is_not_told_of_the_earlier_one() {
    let folder = Folder::new();
    let program = folder.compile("cc", FIXTURE, "earlier", &[]);
    let mut target = Container::run(600, &program);
    let mut agent = Agent::start();
    let asked = SyscallsProbe {
        names: vec!["read".to_string(), "write".to_string()],
        slow_threshold: Duration::from_micros(1).into(),
    };
    let probes = vec![Probe::new("calls", asked.into())];
    let order = order_of("calls", &target.id, &target.executable, probes);
    agent.assign(vec![without_budget(order)]);
    let is_attached = |agent: &mut Agent| agent.state(&target).0 == InstanceState::Attached;
    agent.until(PATIENCE, is_attached).await;
    let before = agent.samples(&target);

    let number = target.pid();
    target.end();
    let mut later = Command::new("dd");
    later.args(["if=/dev/zero", "of=/dev/null", "bs=1", "count=1000000000"]);
    later.stderr(Stdio::null());
    let mut later = under(number, later);
    // The agent is busy with something else, as its loop is this thread.
    thread::sleep(Duration::from_secs(1));
    let has_gone = |agent: &mut Agent| agent.state(&target).0 != InstanceState::Attached;
    agent.until(PATIENCE, has_gone).await;
    later.kill().unwrap();
    later.wait().unwrap();
    assert_eq!(agent.samples(&target), before);
    let lines = agent.events();
    let told = lines.iter().filter(|line| line["threadName"] == "dd");
    assert_eq!(told.count(), 0);
}
