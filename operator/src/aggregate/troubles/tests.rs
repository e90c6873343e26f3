use ckb_probe_crds::condition;
use serde_json::json;

use super::*;
use crate::{
    aggregate::tests::{Scene, answer, answers, found, scene},
    testing::{firing, node_probe, reports, runs},
    world::NodeProbeRow,
};

/// One target, of which this is reported on top of that it fires.
fn reported(change: impl FnOnce(InstanceReport) -> InstanceReport) -> Scene {
    scene(json!({}), |probe, pod| {
        let report = change(firing(probe, pod));
        vec![reports(node_probe("n", 1, vec![report]))]
    })
}

fn degraded(scene: &Scene) -> String {
    found(&scene.status(), condition::DEGRADED).message.clone()
}

#[test]
fn what_is_missing_of_a_target_degrades_what_is_ready_all_the_same() {
    let stepped = |report| InstanceReport {
        single_stepped_symbols: vec!["rocksdb_iter_next".into()],
        message: "measuring process 7; rocksdb_iter_next was left out".into(),
        ..report
    };
    let untimed = |report| InstanceReport {
        entry_only: true,
        message: "measuring process 7; calls are counted and not timed".into(),
        ..report
    };
    for (scene, reason, words) in [
        (reported(stepped), "SingleStepped", "was left out"),
        (reported(untimed), "EntryOnly", "not timed"),
    ] {
        let status = scene.status();
        assert_eq!(answer(&status, condition::READY), ("True", "Firing"));
        assert_eq!(answer(&status, condition::DEGRADED), ("True", reason));
        let message = degraded(&scene);
        assert!(
            message.contains("pod a/ckb-0: ") && message.contains(words),
            "{message}"
        );
    }
}

#[test]
fn a_target_all_of_whose_functions_would_be_single_stepped_is_not_ready() {
    let scene = reported(|report| InstanceReport {
        state: InstanceState::Failed,
        reason: Some(Reason::SingleStepped),
        message: "nothing is attached to process 7".into(),
        firing: false,
        ..report
    });
    let status = scene.status();
    assert_eq!(
        answer(&status, condition::READY),
        ("False", "SingleStepped")
    );
    assert_eq!(
        answer(&status, condition::DEGRADED),
        ("True", "SingleStepped")
    );
}

#[test]
fn all_that_is_missing_is_told_the_gravest_first_and_nothing_twice() {
    let scene = scene(json!({}), |probe, pod| {
        let other = crate::testing::pod("a", "ckb-1", Some("n"));
        let all = InstanceReport {
            entry_only: true,
            single_stepped_symbols: vec!["rocksdb_iter_next".into()],
            missing_operations: vec!["MultiGet".into()],
            message: "not measured: MultiGet; not timed".into(),
            ..firing(probe, pod)
        };
        let silent = InstanceReport {
            reason: Some(Reason::Silent),
            message: "called nothing".into(),
            firing: false,
            ..firing(probe, &other)
        };
        let report = node_probe("n", 1, vec![silent, all]);
        vec![runs(&other), reports(report)]
    });
    assert_eq!(
        answer(&scene.status(), condition::DEGRADED),
        ("True", "SymbolNotFound")
    );
    assert_eq!(
        degraded(&scene),
        "pod a/ckb-0: not measured: MultiGet; not timed. Silent: pod a/ckb-1: called nothing"
    );
}

#[test]
fn what_is_missing_of_one_target_is_not_why_another_does_not_fire() {
    let scene = scene(json!({}), |probe, pod| {
        let other = crate::testing::pod("a", "ckb-1", Some("n"));
        let lacking = InstanceReport {
            single_stepped_symbols: vec!["rocksdb_iter_next".into()],
            ..firing(probe, pod)
        };
        let restarting = InstanceReport {
            state: InstanceState::Waiting,
            reason: Some(Reason::ExecutableNotFound),
            firing: false,
            ..firing(probe, &other)
        };
        let report = node_probe("n", 1, vec![lacking, restarting]);
        vec![runs(&other), reports(report)]
    });
    let status = scene.status();
    assert_eq!(
        answer(&status, condition::READY),
        ("False", "ExecutableNotFound")
    );
    assert_eq!(
        answer(&status, condition::DEGRADED),
        ("True", "SingleStepped")
    );
}

#[test]
fn a_target_that_died_of_each_attach_is_grave() {
    let scene = reported(|report| InstanceReport {
        state: InstanceState::Detached,
        reason: Some(Reason::TargetDied),
        message: "process 7 died 1.2 s after the attach, and so did the one before it".into(),
        firing: false,
        missing_operations: vec!["MultiGet".into()],
        ..report
    });
    let status = scene.status();
    assert_eq!(
        answers(&status),
        [
            ("False", "TargetDied"),
            ("False", "TargetDied"),
            ("True", "TargetDied"),
            ("True", "NothingAttached"),
        ]
    );
    assert!(degraded(&scene).contains("died 1.2 s after"));
}

/// Its agent can measure nothing.
fn unfit(row: NodeProbeRow) -> NodeProbeRow {
    let mut row = row;
    let status = row.status.as_mut().unwrap();
    status.agent.failure = Some("no way to attach works".into());
    row
}

#[test]
fn a_node_where_nothing_can_be_measured_is_named_whatever_else_its_agent_says() {
    let nothing = scene(json!({}), |_, _| {
        vec![reports(unfit(node_probe("n", 1, vec![])))]
    });
    let waiting = scene(json!({}), |probe, pod| {
        let report = InstanceReport {
            container: None,
            state: InstanceState::Waiting,
            reason: Some(Reason::ExecutableNotFound),
            firing: false,
            ..firing(probe, pod)
        };
        vec![reports(unfit(node_probe("n", 1, vec![report])))]
    });
    let told = reported(|report| InstanceReport {
        state: InstanceState::Failed,
        reason: Some(Reason::PreflightFailed),
        message: "node n: no way to attach works".into(),
        firing: false,
        ..report
    });
    for scene in [nothing, waiting, told] {
        let status = scene.status();
        assert_eq!(
            answers(&status),
            [
                ("False", "PreflightFailed"),
                ("False", "PreflightFailed"),
                ("True", "PreflightFailed"),
                ("True", "NothingAttached"),
            ]
        );
        let message = degraded(&scene);
        assert!(
            message.contains("node n") && message.contains("no way to attach works"),
            "{message}"
        );
        assert_eq!(status.instances[0].state, InstanceState::Failed);
    }
}

#[test]
fn what_an_agent_found_long_ago_is_not_held_against_its_node() {
    let scene = scene(json!({}), |_, _| {
        vec![reports(unfit(node_probe("n", 99, vec![])))]
    });
    assert_eq!(
        answer(&scene.status(), condition::DEGRADED),
        ("True", "AgentSilent")
    );
}

#[test]
fn what_a_silent_target_lacks_is_not_what_is_wrong_with_it() {
    let scene = reported(|report| InstanceReport {
        reason: Some(Reason::Silent),
        firing: false,
        missing_operations: vec!["MultiGet".into()],
        ..report
    });
    assert_eq!(
        answer(&scene.status(), condition::DEGRADED),
        ("True", "Silent")
    );
}
