//! A process that is nobody's target executes, over and over, a file of the name that targets have.

use super::*;

/// Execs a second, of so many threads.
const RATE: &str = "200";
const THREADS: &str = "2";

/// So many are looked at: what they cost is for the benchmark.
const EXECS: usize = 500;

#[tokio::test]
async fn what_others_execute_has_nobody_search_whether_a_target_waits_or_not() {
    let folder = Folder::new();
    let program = folder.compile("cc", FIXTURE, "namesake", &[]);
    let fixtures = "../../../tests/fixtures/";
    let storm = folder.compile("cc", &format!("{fixtures}storm.c"), "storm", &["-pthread"]);
    fs::create_dir(folder.path("other")).unwrap();
    let other = folder.compile(
        "cc",
        &format!("{fixtures}nothing.c"),
        "other/namesake",
        &["-static", "-nostdlib"],
    );
    let (attached, stormy) = (
        Container::run(200, &program),
        Container::run_with(
            201,
            &storm,
            &[other.to_str().unwrap(), RATE, THREADS],
            Some("pod"),
        ),
    );
    let mut agent = Agent::start().told_of_execs();
    agent.order(&[&attached]);
    agent
        .until(PATIENCE, |agent| {
            agent.state(&attached).0 == InstanceState::Attached
        })
        .await;
    for waiting in [None, Some("namesake")] {
        agent.order_besides(&[&attached], waiting);
        (agent.execs, agent.searches_for_execs) = (0, 0);
        agent.until(PATIENCE, |agent| agent.execs >= EXECS).await;
        assert_eq!(
            agent.searches_for_execs, 0,
            "for {} execs, with {waiting:?} waiting",
            agent.execs
        );
    }
    assert!(agent.searches() > 0, "it did search for the orders' sake");
    drop(stormy);
}
