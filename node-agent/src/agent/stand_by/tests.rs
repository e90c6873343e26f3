use ckb_probe_crds::{InstanceState, NodeProbeSpec, Reason};
use tokio::sync::oneshot;

use super::*;
use crate::agent::tests::assignment;

fn agent() -> StandBy {
    StandBy::new(AgentStatus::default(), Unmeasurable::of("the moon is full"))
}

fn order(generation: i64, assignments: Vec<Assignment>) -> Option<NodeProbe> {
    let mut order = NodeProbe::new("node0", NodeProbeSpec { assignments });
    order.metadata.uid = Some("1".to_string());
    order.metadata.generation = Some(generation);
    Some(order)
}

fn ask(agent: &StandBy, question: Question) -> Result<String, String> {
    let (sender, mut answer) = oneshot::channel();
    agent.answer((question, sender));
    answer.try_recv().unwrap()
}

#[tokio::test]
async fn every_order_is_answered_with_the_reason_why_it_is_not_carried_out() {
    let mut agent = agent();
    assert!(agent.take(order(7, vec![assignment(None)])));
    let report = agent.report();
    assert_eq!(report.observed_generation, Some(7));
    let [instance] = &report.instances[..] else {
        panic!("{:?}", report.instances);
    };
    assert_eq!(instance.state, InstanceState::Failed);
    assert_eq!(instance.reason, Some(Reason::PreflightFailed));
    assert!(instance.message.contains("the moon is full"));
}

#[tokio::test]
async fn only_a_new_order_makes_a_report_and_then_each_interval_does() {
    let mut agent = agent();
    assert_eq!(heartbeat(agent.reported, &agent.assignments), None);
    assert!(agent.take(order(7, vec![assignment(None)])));
    // What was written to the status comes back as a change.
    assert!(!agent.take(order(7, vec![assignment(None)])));
    let next = heartbeat(agent.reported, &agent.assignments);
    assert_eq!(next, Some(agent.reported + Duration::from_secs(10)));
    assert!(agent.take(None));
    assert!(agent.report().instances.is_empty());
}

#[tokio::test]
async fn an_expired_order_is_not_reported_on() {
    let mut agent = agent();
    agent.take(order(1, vec![assignment(Some("2020-01-01T00:00:00Z"))]));
    assert!(agent.report().instances.is_empty());
}

#[tokio::test]
async fn it_lives_and_is_not_ready_and_says_why() {
    let agent = agent();
    assert_eq!(ask(&agent, Question::Healthy), Ok("ok\n".to_string()));
    let sentence =
        "nothing can be measured on this node: no way to attach works: the moon is full\n";
    assert_eq!(ask(&agent, Question::Ready), Err(sentence.to_string()));
    assert_eq!(ask(&agent, Question::Metrics), Ok(format!("# {sentence}")));
}
