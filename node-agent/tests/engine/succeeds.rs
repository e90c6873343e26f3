//! A target that executes another file: its number and when it began stay, and nothing is attached to what it runs by then.

use super::*;

#[tokio::test]
async fn a_target_that_executes_a_newer_file_of_its_name_is_measured_in_that_one() {
    let folder = Folder::new();
    let [older, newer] = ["older", "newer"].map(|version| {
        fs::create_dir(folder.path(version)).unwrap();
        folder.compile("cc", "succeeds.c", &format!("{version}/succeeds"), &[])
    });
    let told = newer.to_str().unwrap();
    let target = Container::run_with(610, &older, &[told], None);
    let mut agent = Agent::start().told_of_execs();
    agent.assign(vec![without_budget(agent::order(
        &target.id,
        &target.executable,
    ))]);
    let target = &target;
    let counts = |least: u64| move |agent: &mut Agent| agent.samples_of_now(target) >= least;
    agent.until(PATIENCE, counts(1000)).await;
    let link = format!("/proc/{}/exe", target.pid());
    kill_process(Pid::from_raw(target.pid() as i32).unwrap(), Signal::USR1).unwrap();
    agent
        .until(PATIENCE, |_| fs::read_link(&link).unwrap() == newer)
        .await;
    let before = agent.samples_of_now(target);
    agent.until(PATIENCE, counts(before + 1000)).await;
    assert_eq!(agent.state(target).0, InstanceState::Attached);
    assert!(agent.gap(target) > Duration::ZERO);
}
