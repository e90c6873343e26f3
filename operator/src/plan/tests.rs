use kube::runtime::watcher::Event;
use proptest::{prelude::*, sample::Index};

use super::*;
use crate::{
    desired::tests::{Orders, changes, desired, in_two_orders, limits, orders, varied},
    limits::Limits,
    testing::{
        HASH, agent, at, has, has_agent, node, node_probe, pod, probe, reports, runs, world,
    },
    world::{Change, Owner},
};

/// A perfect API: what it is told is done at once. What is on its way out is gone at the next round.
fn carry_out(world: &mut World, action: Action, serial: &mut u32) {
    *serial += 1;
    let change = match action {
        Action::ApplyNodeProbe { node, spec } => {
            let known = world.node_probe(&node);
            let uid = known.map_or(format!("uid-{serial}"), |row| row.uid.clone());
            reports(NodeProbeEntry {
                uid,
                spec: Some(spec.as_ref().clone()),
                ..node_probe(&node, 0, vec![])
            })
        }
        Action::DeleteNodeProbe { node, uid } => {
            let row = world.node_probe(&node).unwrap();
            assert_eq!(row.uid, uid);
            Change::NodeProbe(Event::Delete(row.clone()))
        }
        Action::CreateAgent { node, owner } => {
            let name = agent_name(&node);
            assert!(world.agent(&name).is_none(), "{name} is there already");
            has_agent(AgentPod {
                name,
                uid: format!("uid-{serial}"),
                owner: Some(Owner {
                    name: node.clone(),
                    uid: owner,
                }),
                ..agent(&node)
            })
        }
        Action::DeleteAgent { pod, uid, why: _ } => {
            let row = world.agent(&pod).unwrap();
            assert_eq!(row.uid, uid);
            has_agent(AgentPod {
                deleting: true,
                ..row.clone()
            })
        }
    };
    world.apply(change, at(0));
}

fn sweep(world: &mut World) {
    let orders: Vec<_> = world
        .node_probes()
        .filter(|row| row.deleting)
        .cloned()
        .collect();
    let agents: Vec<_> = world.agents().filter(|row| row.deleting).cloned().collect();
    for row in orders {
        world.apply(Change::NodeProbe(Event::Delete(row)), at(0));
    }
    for row in agents {
        world.apply(Change::Agent(Event::Delete(row)), at(0));
    }
}

/// Carries plans out until there is nothing left to do.
fn converge(world: &mut World) -> Result<(), TestCaseError> {
    let mut serial = 0;
    for _ in 0..6 {
        let plan = anew(world, &Limits::default());
        let leaving = world.agents().any(|agent| agent.deleting)
            || world.node_probes().any(|row| row.deleting);
        if plan.steps.is_empty() && !leaving {
            return Ok(());
        }
        for action in plan.steps.into_values().flatten() {
            carry_out(world, action, &mut serial);
        }
        sweep(world);
    }
    Err(TestCaseError::fail("the plan does not end"))
}

fn one_target() -> World {
    world([
        node("n"),
        has(&probe("a", "p", serde_json::json!({}))),
        runs(&pod("a", "ckb-0", Some("n"))),
    ])
}

fn actions(world: &World) -> Vec<Action> {
    let plan = anew(world, &Limits::default());
    plan.steps.into_values().flatten().collect()
}

/// A plan made from nothing but what there is.
fn anew(world: &World, limits: &Limits) -> Plan {
    let mut plan = Plan::default();
    plan.renew(view(world, limits), HASH);
    plan
}

fn view<'a>(world: &'a World, limits: &'a Limits) -> View<'a> {
    let now = at(0);
    View { world, limits, now }
}

/// The end of what the change was about.
fn end(change: &Change) -> Option<Change> {
    Some(match change {
        Change::Probe(Event::Apply(row)) => Change::Probe(Event::Delete(row.clone())),
        Change::Pod(Event::Apply(row)) => Change::Pod(Event::Delete(row.clone())),
        Change::Node(Event::Apply(row)) => Change::Node(Event::Delete(row.clone())),
        Change::NodeProbe(Event::Apply(row)) => Change::NodeProbe(Event::Delete(row.clone())),
        Change::Agent(Event::Apply(row)) => Change::Agent(Event::Delete(row.clone())),
        _ => return None,
    })
}

#[test]
fn a_target_gets_an_order_first_and_then_an_agent_that_the_order_owns() {
    let mut world = one_target();
    let spec = orders(&world).remove("n").unwrap();
    let apply = Action::ApplyNodeProbe {
        node: "n".into(),
        spec: Arc::new(spec.clone()),
    };
    assert_eq!(actions(&world), [apply]);
    let order = NodeProbeEntry {
        spec: Some(spec),
        ..node_probe("n", 0, vec![])
    };
    world.apply(reports(order), at(0));
    let create = Action::CreateAgent {
        node: "n".into(),
        owner: "uid-n".into(),
    };
    assert_eq!(actions(&world), [create]);
    world.apply(has_agent(agent("n")), at(0));
    assert_eq!(actions(&world), []);
}

#[test]
fn the_last_target_takes_the_order_and_the_agent_along() {
    let world = world([
        node("n"),
        reports(node_probe("n", 0, vec![])),
        has_agent(agent("n")),
    ]);
    let delete_agent = Action::DeleteAgent {
        pod: agent_name("n"),
        uid: "uid-agent-n".into(),
        why: Removal::Unwanted,
    };
    let delete_order = Action::DeleteNodeProbe {
        node: "n".into(),
        uid: "uid-n".into(),
    };
    assert_eq!(actions(&world), [delete_agent, delete_order]);
}

#[test]
fn an_agent_that_cannot_stay_is_replaced_and_one_that_goes_is_waited_for() {
    let with = |change: fn(&mut AgentPod)| {
        let mut world = one_target();
        let order = NodeProbeEntry {
            spec: orders(&world).remove("n"),
            ..node_probe("n", 0, vec![])
        };
        let mut agent = agent("n");
        change(&mut agent);
        world.apply(reports(order), at(0));
        world.apply(has_agent(agent), at(0));
        actions(&world)
    };
    let delete = |why| Action::DeleteAgent {
        pod: agent_name("n"),
        uid: "uid-agent-n".into(),
        why,
    };
    assert_eq!(with(|_| {}), []);
    assert_eq!(with(|agent| agent.deleting = true), []);
    assert_eq!(
        with(|agent| agent.template_hash = Some("older".into())),
        [delete(Removal::Outdated)]
    );
    assert_eq!(
        with(|agent| agent.template_hash = None),
        [delete(Removal::Outdated)]
    );
    assert_eq!(
        with(|agent| agent.owner.as_mut().unwrap().uid = "older".into()),
        [delete(Removal::Outdated)]
    );
    assert_eq!(
        with(|agent| agent.phase = Phase::Finished),
        [delete(Removal::Ended)]
    );
}

#[test]
fn a_pod_with_the_labels_that_no_order_owns_is_left_alone() {
    let stranger = AgentPod {
        owner: None,
        ..agent("n")
    };
    assert_eq!(actions(&world([node("n"), has_agent(stranger)])), []);
}

/// Orders and agents of four nodes, in any state, right and wrong.
fn debris() -> impl Strategy<Value = Vec<Change>> {
    let orders = (0..4_u8, any::<bool>(), any::<bool>()).prop_map(|(n, deleting, unreadable)| {
        let mut row = node_probe(&format!("n{n}"), 0, vec![]);
        row.deleting = deleting;
        if unreadable {
            row.spec = None;
        }
        reports(row)
    });
    let agents = (0..4_u8, any::<bool>(), 0..5_u8).prop_map(|(n, deleting, defect)| {
        let mut agent = agent(&format!("n{n}"));
        agent.deleting = deleting;
        match defect {
            0 => agent.phase = Phase::Finished,
            1 => agent.template_hash = None,
            2 => agent.name = "ckb-probe-agent-other".into(),
            3 => agent.owner.as_mut().unwrap().uid = "older".into(),
            _ => {}
        }
        has_agent(agent)
    });
    prop::collection::vec(prop_oneof![orders, agents], 0..12)
}

proptest! {
    #[test]
    fn carried_out_the_plan_leads_to_what_is_desired_and_then_is_empty(
        changes in changes(),
        debris in debris(),
    ) {
        let mut world = world(changes.into_iter().chain(debris));
        converge(&mut world)?;
        let wanted = orders(&world);
        let orders: Orders = world
            .node_probes()
            .map(|row| (row.node.clone(), row.ordered().unwrap().into_owned()))
            .collect();
        prop_assert_eq!(&orders, &wanted);
        let agents: Vec<_> = world.agents().map(|agent| agent.name.clone()).collect();
        let expected: Vec<_> = wanted.keys().map(|node| agent_name(node)).collect();
        prop_assert_eq!(agents, expected);
        for agent in world.agents() {
            let owner = agent.owner.as_ref().unwrap();
            prop_assert_eq!(&owner.uid, &world.node_probe(&owner.name).unwrap().uid);
        }
    }

    #[test]
    fn kept_up_by_the_news_the_plan_is_as_if_it_were_made_anew(
        changes in varied(),
        debris in debris(),
        ends in prop::collection::vec(any::<Index>(), 12),
        more in varied(),
        limits in prop_oneof![limits(), Just(Limits::default())],
        batches in prop::collection::vec(1..5_usize, 80),
    ) {
        // Somebody asks for something on every node: else most of what is made up would change nothing.
        let nodes = (0..3).map(|n| node(&format!("n{n}")));
        let pods = (0..3).map(|n| runs(&pod("a", &format!("ckb-{n}"), Some(&format!("n{n}")))));
        let probe = has(&probe("a", "p0", serde_json::json!({})));
        let base = nodes.chain(pods).chain([probe]);
        let begun: Vec<_> = base.chain(changes).chain(debris).collect();
        let ended: Vec<_> = ends
            .iter()
            .filter(|_| !begun.is_empty())
            .filter_map(|pick| end(&begun[pick.index(begun.len())]))
            .collect();
        let mut all = begun.into_iter().chain(ended).chain(more).peekable();
        let (mut world, mut plan) = (world([]), Plan::default());
        let mut known = desired(&world, at(0), &limits).left_out;
        for batch in batches {
            let mut stale = Stale::default();
            for change in all.by_ref().take(batch) {
                let touched = world.apply(change, at(0));
                prop_assert!(!touched.fleet);
                stale.nodes.extend(touched.nodes);
                stale.namespaces.extend(touched.namespaces);
            }
            let revised = plan.revise(stale, view(&world, &limits), HASH);
            prop_assert_eq!(&plan, &anew(&world, &limits));
            let whole = desired(&world, at(0), &limits);
            prop_assert_eq!(plan.desired().orders(), whole.orders.len());
            let assignments = whole.orders.values().map(|order| order.assignments.len());
            prop_assert_eq!(plan.desired().targets(), assignments.sum::<usize>());
            // Who is left out is told of it, and nobody else.
            let keys = known.keys().chain(whole.left_out.keys());
            let others = keys.filter(|key| known.get(*key) != whole.left_out.get(*key));
            prop_assert_eq!(revised.probes, others.cloned().collect::<BTreeSet<_>>());
            for (probe, left_out) in &whole.left_out {
                let known = plan.desired().left_out(probe);
                prop_assert_eq!(known.as_ref(), Some(left_out));
            }
            known = whole.left_out;
        }
        prop_assert!(all.peek().is_none());
    }

    #[test]
    fn the_order_of_the_news_does_not_matter([one, other] in in_two_orders()) {
        prop_assert_eq!(actions(&world(one)), actions(&world(other)));
    }
}
