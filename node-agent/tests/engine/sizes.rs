//! The size of a payload is whatever the target has in its place.

use super::*;

const NAME: &str = "sizes";

#[tokio::test]
async fn a_size_that_no_payload_has_is_lost_and_spoils_no_sum() {
    let folder = Folder::new();
    let program = folder.compile("cc", "sizes.c", "sizes", &[]);
    let target = Container::run(450, &program);
    let mut agent = Agent::start();
    let calls = RocksDbProbe {
        operations: vec![Operation::Put],
        ..RocksDbProbe::default()
    };
    let probes = vec![Probe::new("storage", calls.into())];
    agent.assign(vec![order_of(NAME, &target.id, &target.executable, probes)]);
    let is_attached = |agent: &mut Agent| agent.state(&target).0 == InstanceState::Attached;
    agent.until(PATIENCE, is_attached).await;
    let pid = Pid::from_raw(target.pid() as i32).unwrap();
    kill_process(pid, Signal::USR1).unwrap();
    agent
        .until(PATIENCE, |agent| agent.samples(&target) == 5)
        .await;
    let report = agent.report_to(NAME, &target).unwrap();
    let probe = &report.probes[0];
    assert_eq!(probe.rows[0].total.sums["bytes"], 3 * 30);
    assert_eq!(probe.lost["sizes"], 2);
}
