//! Pods and their processes: which are targets, and why others are not.

use ckb_probe_crds::{InstanceReport, InstanceState, Reason, condition};
use serde_json::json;

use super::{answers, assert_says, figure, found, is, row_of, scene, scene_of};
use crate::{
    aggregate::{Past, aggregate},
    testing::{at, container, firing, has, node, node_probe, pod, probe, reports, runs, world},
};

#[test]
fn no_matching_pod_is_named_with_selector_and_namespace() {
    let probe = probe("a", "p", json!({}));
    let status = aggregate(
        &probe,
        &world([has(&probe)]),
        None,
        &mut Past::default(),
        at(0),
    );
    assert_eq!(
        answers(&status),
        [
            ("False", "NoMatchingPods"),
            ("False", "NoMatchingPods"),
            ("True", "NoMatchingPods"),
            ("True", "NothingAttached"),
        ]
    );
    let message = &found(&status, condition::DEGRADED).message;
    assert_says(message, ["namespace a ", "app=ckb"]);
    assert_eq!(status.targets.summary, "0/0");
}

#[test]
fn a_pod_that_does_not_run_is_waited_for_and_says_why() {
    let mut unbound = pod("a", "ckb-0", None);
    unbound.trouble = Some("Unschedulable: 0/1 nodes".into());
    let mut pulling = pod("a", "ckb-0", Some("n"));
    pulling.phase = crate::world::Phase::Pending;
    pulling.trouble = Some("container ckb waits: ErrImagePull".into());
    for pod in [unbound, pulling] {
        let why = pod.trouble.clone().unwrap();
        let scene = scene(json!({}), |_, _| vec![runs(&pod)]);
        let status = scene.status();
        is(&status, condition::PROGRESSING, "True", "PodNotRunning");
        is(&status, condition::DEGRADED, "False", "Done");
        let message = &status.instances[0].message;
        assert_says(message, ["a/ckb-0", &why]);
    }
}

#[test]
fn a_container_that_the_pod_lacks_is_named() {
    let target = json!({ "selector": { "matchLabels": { "app": "ckb" } }, "container": "node" });
    let scene = scene(json!({ "target": target }), |_, _| vec![]);
    let status = scene.status();
    is(&status, condition::DEGRADED, "True", "ExecutableNotFound");
    let message = &found(&status, condition::DEGRADED).message;
    assert_says(message, ["\"node\"", "it has ckb"]);
}

#[test]
fn containers_of_a_pod_are_looked_up_by_the_spec() {
    let scene = scene(json!({}), |_, _| {
        let mut pod = pod("a", "ckb-0", Some("n"));
        pod.containers = vec![container("x"), container("y")];
        vec![runs(&pod)]
    });
    assert_eq!(scene.status().targets.matched, 1);
}

#[test]
fn pods_none_of_which_runs_the_executable_are_named_with_it() {
    let scene = scene_of(json!({}), |probe, pod| InstanceReport {
        container: None,
        state: InstanceState::Waiting,
        reason: Some(Reason::ExecutableNotFound),
        message: "no process in container ckb runs an executable named ckb".into(),
        firing: false,
        probes: vec![],
        ..firing(probe, pod)
    });
    let status = scene.status();
    is(&status, condition::DEGRADED, "True", "ExecutableNotFound");
    is(&status, condition::READY, "False", "ExecutableNotFound");
    let message = &found(&status, condition::DEGRADED).message;
    assert_says(message, ["pod a/ckb-0", "is \"ckb\""]);
    assert_eq!(status.targets.summary, "0/1");
}

#[test]
fn a_process_that_is_between_two_lives_is_waited_for() {
    let scene = scene_of(json!({}), |probe, pod| InstanceReport {
        state: InstanceState::Waiting,
        reason: Some(Reason::ExecutableNotFound),
        firing: false,
        ..firing(probe, pod)
    });
    let status = scene.status();
    is(&status, condition::DEGRADED, "False", "Done");
    is(
        &status,
        condition::PROGRESSING,
        "True",
        "ExecutableNotFound",
    );
    let get = row_of(&status, "Get");
    assert_eq!(figure(get, "count"), "1000", "what was counted stays");
    assert_eq!(figure(get, "perSecond"), "", "nothing is known of now");
}

#[test]
fn each_process_is_a_target_and_a_pod_without_any_is_one() {
    let scene = scene(json!({}), |probe, pod| {
        let second = InstanceReport {
            container: Some("sidecar".into()),
            ..firing(probe, pod)
        };
        let other = crate::testing::pod("a", "ckb-1", Some("n"));
        let mut pod = pod.clone();
        pod.containers.push(container("sidecar"));
        vec![
            runs(&pod),
            runs(&other),
            reports(node_probe("n", 1, vec![firing(probe, &pod), second])),
        ]
    });
    let status = scene.status();
    assert_eq!(status.targets.summary, "2/3");
    assert_eq!(status.instances[0].pod, "ckb-1", "the worst first");
    is(&status, condition::READY, "False", "AgentStarting");
}

#[test]
fn an_agent_has_no_say_about_containers_that_its_pod_has_not() {
    let probe = probe("a", "p", json!({}));
    let pods = ["n", "m"].map(|node| pod("a", &format!("ckb-{node}"), Some(node)));
    let [own, neighbour] = &pods;
    let invented = (0..60).map(|number| InstanceReport {
        container: Some(format!("invented-{number}")),
        ..firing(&probe, own)
    });
    // And one that it has, over and over.
    let again = (0..60).map(|_| firing(&probe, own));
    let hostile = node_probe("n", 1, invented.chain(again).collect());
    let good = node_probe("m", 1, vec![firing(&probe, neighbour)]);
    let told = [
        has(&probe),
        node("n"),
        node("m"),
        reports(hostile),
        reports(good),
    ];
    let world = world(pods.iter().map(runs).chain(told));
    let status = aggregate(&probe, &world, None, &mut Past::default(), at(0));
    assert_eq!(status.targets.summary, "2/2");
    let listed = status
        .instances
        .iter()
        .map(|one| (&*one.pod, one.container.as_deref()));
    let listed: Vec<_> = listed.collect();
    assert_eq!(listed, [("ckb-m", Some("ckb")), ("ckb-n", Some("ckb"))]);
    let get = row_of(&status, "Get");
    assert_eq!(figure(get, "count"), "2000", "a thousand of each");
}

#[test]
fn the_list_of_targets_is_bounded_and_says_what_it_leaves_out() {
    let probe = probe("a", "p", json!({}));
    let pods = (0..60).map(|n| runs(&pod("a", &format!("ckb-{n:02}"), Some("n"))));
    let world = world([has(&probe), node("n")].into_iter().chain(pods));
    let status = aggregate(&probe, &world, None, &mut Past::default(), at(0));
    assert_eq!(status.targets.matched, 60);
    assert_eq!((status.instances.len(), status.instances_omitted), (50, 10));
    let message = &found(&status, condition::READY).message;
    assert!(message.len() < 1000, "{message}");
}
