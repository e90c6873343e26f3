use kube::runtime::watcher::Event;

use super::*;
use crate::{
    testing::{HASH, agent, at, has_agent, node, node_probe, reports, world},
    world::{Change, Node},
};

fn name(n: usize) -> String {
    format!("n{n:03}")
}

/// So many nodes with an order and an agent that is ready, made from an older template.
fn fleet(nodes: usize) -> World {
    let nodes = (0..nodes).map(name);
    world(nodes.flat_map(|name| {
        let older = AgentPod {
            template_hash: Some("older".into()),
            ..agent(&name)
        };
        [
            node(&name),
            reports(node_probe(&name, 0, vec![])),
            has_agent(older),
        ]
    }))
}

fn replace(node: &str) -> Vec<Action> {
    vec![Action::DeleteAgent {
        pod: agent_name(node),
        uid: format!("uid-agent-{node}"),
        why: Removal::Outdated,
    }]
}

/// The nodes of these whose agent is told to go.
fn told<'a>(
    rollout: &mut Rollout,
    world: &World,
    nodes: impl IntoIterator<Item = &'a String>,
) -> Vec<String> {
    let told = nodes.into_iter().filter(|node| {
        let permitted = rollout.permitted(node, replace(node), world);
        !permitted.is_empty()
    });
    told.cloned().collect()
}

fn names(nodes: std::ops::Range<usize>) -> Vec<String> {
    nodes.map(name).collect()
}

/// In place of the older one.
fn replacement(node: &str, ready: bool) -> Change {
    has_agent(AgentPod {
        uid: format!("uid-newer-{node}"),
        template_hash: Some(HASH.into()),
        ready,
        ..agent(node)
    })
}

#[test]
fn a_tenth_of_the_agents_goes_and_the_next_when_these_are_ready_again() {
    let (mut world, mut rollout) = (fleet(100), Rollout::default());
    let all = names(0..100);
    assert_eq!(told(&mut rollout, &world, &all), names(0..10));
    assert_eq!(rollout.freed(&world), [] as [String; 0]);

    // They go, come again, and are not ready: a wrong image stops here.
    for node in names(0..10) {
        let leaving = AgentPod {
            deleting: true,
            ..agent(&node)
        };
        world.apply(has_agent(leaving.clone()), at(0));
        assert_eq!(rollout.freed(&world), [] as [String; 0]);
        world.apply(Change::Agent(Event::Delete(leaving)), at(0));
        assert_eq!(rollout.freed(&world), [] as [String; 0]);
        world.apply(replacement(&node, false), at(0));
        assert_eq!(rollout.freed(&world), [] as [String; 0]);
    }
    assert_eq!(told(&mut rollout, &world, &all[10..]), [] as [String; 0]);

    for node in names(0..3) {
        world.apply(replacement(&node, true), at(0));
    }
    assert_eq!(rollout.freed(&world), names(10..13));
    assert_eq!(told(&mut rollout, &world, &names(10..13)), names(10..13));
    assert_eq!(rollout.freed(&world), [] as [String; 0]);
}

#[test]
fn one_goes_however_few_there_are_and_one_that_serves_nobody_at_once() {
    let (mut world, mut rollout) = (fleet(3), Rollout::default());
    let all = names(0..3);
    let unready = AgentPod {
        ready: false,
        ..agent(&name(1))
    };
    world.apply(has_agent(unready), at(0));
    // It is the one that may be missing.
    assert_eq!(told(&mut rollout, &world, &all), names(1..2));
    world.apply(replacement(&name(1), true), at(0));
    assert_eq!(rollout.freed(&world), names(0..1));
    assert_eq!(told(&mut rollout, &world, &names(0..1)), names(0..1));
    assert_eq!(told(&mut rollout, &world, &names(2..3)), [] as [String; 0]);
    // What failed is done again.
    assert_eq!(told(&mut rollout, &world, &names(0..1)), names(0..1));
}

#[test]
fn a_node_that_is_down_keeps_no_other_from_its_new_agent() {
    let (mut world, mut rollout) = (fleet(3), Rollout::default());
    let unready = AgentPod {
        ready: false,
        ..agent(&name(0))
    };
    world.apply(has_agent(unready), at(0));
    assert_eq!(told(&mut rollout, &world, &names(1..2)), [] as [String; 0]);
    let down = Node {
        name: name(0),
        ready: false,
    };
    world.apply(Change::Node(Event::Apply(down)), at(0));
    assert_eq!(rollout.freed(&world), names(1..2));
}

#[test]
fn what_else_is_to_be_done_waits_for_nobody() {
    let (world, mut rollout) = (fleet(2), Rollout::default());
    assert_eq!(told(&mut rollout, &world, &names(0..1)), names(0..1));
    let withdraw = Action::DeleteNodeProbe {
        node: name(1),
        uid: "uid".into(),
    };
    let mut actions = replace(&name(1));
    actions.insert(0, withdraw.clone());
    assert_eq!(rollout.permitted(&name(1), actions, &world), [withdraw]);
    let unwanted = vec![Action::DeleteAgent {
        pod: agent_name(&name(1)),
        uid: "uid".into(),
        why: Removal::Unwanted,
    }];
    let permitted = rollout.permitted(&name(1), unwanted.clone(), &world);
    assert_eq!(permitted, unwanted);
}
