//! The plan, what it is out of date of, and what was done of it.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::{
    desired::{Desired, Stale, View, next_expiry},
    plan::{Action, Plan, Revised, Rollout},
    queue::Key,
    world::World,
};

/// Keeps the plan up to date.
#[derive(Default)]
pub struct Planner {
    plan: Plan,
    /// When it was made.
    made: Option<Timestamp>,
    /// Of what it is out of date.
    stale: Stale,
    /// When time alone will next change it.
    expiry: Option<Timestamp>,
    /// What was last done on nodes for which there was something to do. It is not done again at once only because
    /// the watches have yet to tell of it.
    attempted: BTreeMap<String, Vec<Action>>,
    rollout: Rollout,
    /// There is news of nodes since it was last asked which agents may be replaced.
    moved: bool,
}

impl Planner {
    /// Begins anew, for nobody knows what was done meanwhile.
    pub fn forget(&mut self) {
        self.made = None;
        self.attempted.clear();
        self.rollout.forget();
    }

    /// There is news of this, or of everything.
    pub fn touch(&mut self, everything: bool, stale: Stale) {
        if everything {
            self.made = None;
        }
        self.moved |= everything || !stale.nodes.is_empty();
        self.stale.nodes.extend(stale.nodes);
        self.stale.namespaces.extend(stale.namespaces);
    }

    /// Asks anew what is to be done where anything may be another than before, and returns what is to be looked at for that;
    /// None when nothing may be.
    pub fn plan(&mut self, view: View<'_>, template_hash: &str) -> Option<Vec<Key>> {
        let stale = std::mem::take(&mut self.stale);
        let expired = self.expiry.is_some_and(|expiry| expiry <= view.now);
        // A clock that was set back puts off an end that had come.
        let known = self.made.is_some_and(|made| made <= view.now) && !expired;
        if known && stale == Stale::default() {
            return None;
        }
        if !known || !stale.namespaces.is_empty() {
            self.expiry = next_expiry(view.world, view.now);
        }
        self.made = Some(view.now);
        let Revised { nodes, probes } = match known {
            true => self.plan.revise(stale, view, template_hash),
            false => self.plan.renew(view, template_hash),
        };
        let to_do = |node: &String| {
            let actions = self.plan.of(node);
            actions.is_some() && self.attempted.get(node) != actions
        };
        let nodes = nodes.into_iter().filter(to_do).map(Key::Node);
        Some(nodes.chain(probes.into_iter().map(Key::Probe)).collect())
    }

    /// The nodes whose agents may be replaced now, for others have become ready.
    pub fn freed(&mut self, world: &World) -> Vec<Key> {
        match std::mem::take(&mut self.moved) {
            true => self
                .rollout
                .freed(world)
                .into_iter()
                .map(Key::Node)
                .collect(),
            false => Vec::new(),
        }
    }

    /// What is to be done on a node, which is about to be; None when that is nothing, or nothing for now.
    pub fn attempt(&mut self, node: &str, world: &World) -> Option<Vec<Action>> {
        let actions = self.plan.of(node);
        match actions {
            Some(actions) => self.attempted.insert(node.to_owned(), actions.clone()),
            None => self.attempted.remove(node),
        };
        let permitted = self.rollout.permitted(node, actions?.clone(), world);
        (!permitted.is_empty()).then_some(permitted)
    }

    /// What is desired.
    pub fn desired(&self) -> &Desired {
        self.plan.desired()
    }

    /// When time alone will next change the plan.
    pub fn expiry(&self) -> Option<Timestamp> {
        self.expiry
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        limits::Limits,
        testing::{
            HASH, agent, at, has, has_agent, node, node_probe, pod, probe, reports, runs, world,
        },
        world::Touched,
    };

    fn plan(planner: &mut Planner, world: &World, limits: &Limits, now: i64) -> Option<Vec<Key>> {
        let now = at(now);
        let view = View { world, limits, now };
        planner.plan(view, HASH)
    }

    fn touch(planner: &mut Planner, touched: Touched) {
        let Touched {
            nodes, namespaces, ..
        } = touched;
        planner.touch(touched.fleet, Stale { nodes, namespaces });
    }

    fn key(node: &str) -> Key {
        Key::Node(node.into())
    }

    /// Pods of one namespace on ten nodes.
    fn ten() -> World {
        let on = |n: usize| format!("n{n}");
        let pods = (0..10).map(|n| runs(&pod("a", &format!("ckb-{n}"), Some(&on(n)))));
        let nodes = (0..10).map(|n| node(&on(n)));
        let probe = has(&probe("a", "p", json!({})));
        world(nodes.chain(pods).chain([probe]))
    }

    #[test]
    fn a_change_of_a_pod_has_its_node_planned_and_no_other() {
        let (mut world, mut planner, limits) = (ten(), Planner::default(), Limits::default());
        let keys = plan(&mut planner, &world, &limits, 0).unwrap();
        assert_eq!(keys.len(), 10);
        for key in keys {
            let Key::Node(node) = key else {
                panic!("{key}")
            };
            assert!(planner.attempt(&node, &world).is_some());
        }
        assert_eq!(plan(&mut planner, &world, &limits, 0), None);
        let mut restarted = pod("a", "ckb-3", Some("n3"));
        restarted.containers[0].id = Some("another".into());
        touch(&mut planner, world.apply(runs(&restarted), at(0)));
        let keys = plan(&mut planner, &world, &limits, 0);
        assert_eq!(keys, Some(vec![key("n3")]));
    }

    #[test]
    fn another_template_has_agents_replaced_one_after_the_other() {
        let (mut world, mut planner, limits) = (ten(), Planner::default(), Limits::default());
        plan(&mut planner, &world, &limits, 0);
        for n in 0..10 {
            let node = format!("n{n}");
            let Some(Action::ApplyNodeProbe { spec, .. }) =
                planner.plan.of(&node).and_then(|actions| actions.first())
            else {
                panic!("no order for {node}");
            };
            let mut order = node_probe(&node, 0, vec![]);
            order.spec = Some(spec.as_ref().clone());
            touch(&mut planner, world.apply(reports(order), at(0)));
            let mut older = agent(&node);
            older.template_hash = Some("older".into());
            touch(&mut planner, world.apply(has_agent(older), at(0)));
        }
        let keys = plan(&mut planner, &world, &limits, 0).unwrap();
        assert_eq!(keys.len(), 10);
        let attempt = |planner: &mut Planner, world: &World| {
            let nodes = (0..10).map(|n| format!("n{n}"));
            let gone = nodes.filter(|node| planner.attempt(node, world).is_some());
            gone.collect::<Vec<_>>()
        };
        assert_eq!(attempt(&mut planner, &world), ["n0"]);
        assert_eq!(planner.freed(&world), []);
        let mut newer = agent("n0");
        newer.uid = "newer".into();
        newer.ready = false;
        touch(&mut planner, world.apply(has_agent(newer.clone()), at(0)));
        plan(&mut planner, &world, &limits, 0);
        assert_eq!(planner.freed(&world), []);
        newer.ready = true;
        touch(&mut planner, world.apply(has_agent(newer), at(0)));
        plan(&mut planner, &world, &limits, 0);
        assert_eq!(planner.freed(&world), [key("n1")]);
        assert_eq!(attempt(&mut planner, &world), ["n1"]);
    }

    #[test]
    fn where_a_namespace_may_have_no_more_another_pod_takes_the_place_of_one_that_goes() {
        let limits = Limits {
            targets_per_namespace: 9,
            ..Limits::default()
        };
        let (mut world, mut planner) = (ten(), Planner::default());
        let keys = plan(&mut planner, &world, &limits, 0).unwrap();
        assert!(!keys.contains(&key("n9")), "{keys:?}");
        assert!(keys.contains(&Key::Probe(crate::world::ObjectKey::new("a", "p"))));
        let mut gone = pod("a", "ckb-3", Some("n3"));
        gone.phase = crate::world::Phase::Finished;
        touch(&mut planner, world.apply(runs(&gone), at(0)));
        let keys = plan(&mut planner, &world, &limits, 0).unwrap();
        assert!(keys.contains(&key("n9")), "{keys:?}");
        assert_eq!(planner.desired().targets(), 9);
    }

    #[test]
    fn a_clock_that_is_set_back_puts_an_end_off() {
        let brief = probe("a", "p", json!({ "duration": "110s" }));
        let world = world([node("n"), has(&brief), runs(&pod("a", "ckb-0", Some("n")))]);
        let (mut planner, limits) = (Planner::default(), Limits::default());
        plan(&mut planner, &world, &limits, 0);
        assert_eq!(
            (planner.desired().orders(), planner.expiry()),
            (1, Some(at(10)))
        );
        assert!(plan(&mut planner, &world, &limits, 10).is_some());
        assert_eq!((planner.desired().orders(), planner.expiry()), (0, None));
        assert!(plan(&mut planner, &world, &limits, 5).is_some());
        assert_eq!(
            (planner.desired().orders(), planner.expiry()),
            (1, Some(at(10)))
        );
    }
}
