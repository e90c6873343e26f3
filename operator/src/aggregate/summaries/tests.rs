use ckb_probe_crds::{InstanceReport, ProbeReport, condition};
use serde_json::json;

use super::*;
use crate::{
    aggregate::tests::{Scene, answer, answers, assert_says, found, is, scene},
    testing::{firing, measuring, node_probe, reports, row, runs, throughout, without},
    world::{NodeProbeEntry, World},
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
    let stepped = |report| {
        let report = InstanceReport {
            message: "measuring process 7; rocksdb_iter_next was left out".into(),
            ..report
        };
        without(report, Reason::SingleStepped, "rocksdb_iter_next")
    };
    let untimed = |report| {
        let report = InstanceReport {
            message: "measuring process 7; calls are counted and not timed".into(),
            ..report
        };
        without(report, Reason::EntryOnly, "Get")
    };
    for (scene, reason, words) in [
        (reported(stepped), "SingleStepped", "was left out"),
        (reported(untimed), "EntryOnly", "not timed"),
    ] {
        let status = scene.status();
        is(&status, condition::READY, "True", "Firing");
        assert_eq!(answer(&status, condition::DEGRADED), ("True", reason));
        let message = degraded(&scene);
        assert_says(&message, ["pod a/ckb-0: ", words]);
    }
}

#[test]
fn a_target_all_of_whose_functions_would_be_single_stepped_is_not_ready() {
    let scene = reported(|report| {
        throughout(InstanceReport {
            state: InstanceState::Failed,
            reason: Some(Reason::SingleStepped),
            message: "nothing is attached to process 7".into(),
            firing: false,
            ..report
        })
    });
    let status = scene.status();
    is(&status, condition::READY, "False", "SingleStepped");
    is(&status, condition::DEGRADED, "True", "SingleStepped");
}

#[test]
fn all_that_is_missing_is_told_the_gravest_first_and_nothing_twice() {
    let scene = scene(json!({}), |probe, pod| {
        let other = crate::testing::pod("a", "ckb-1", Some("n"));
        let all = InstanceReport {
            message: "not measured: MultiGet; not timed".into(),
            ..firing(probe, pod)
        };
        let all = without(all, Reason::EntryOnly, "Get");
        let all = without(all, Reason::SingleStepped, "rocksdb_iter_next");
        let all = without(all, Reason::SymbolNotFound, "MultiGet");
        let silent = throughout(InstanceReport {
            reason: Some(Reason::Silent),
            message: "called nothing".into(),
            firing: false,
            ..firing(probe, &other)
        });
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
        let lacking = without(
            firing(probe, pod),
            Reason::SingleStepped,
            "rocksdb_iter_next",
        );
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
    is(&status, condition::READY, "False", "ExecutableNotFound");
    is(&status, condition::DEGRADED, "True", "SingleStepped");
}

#[test]
fn a_target_that_died_of_each_attach_is_grave() {
    let scene = reported(|report| {
        throughout(InstanceReport {
            state: InstanceState::Detached,
            reason: Some(Reason::TargetDied),
            message: "process 7 died 1.2 s after the attach, and so did the one before it".into(),
            firing: false,
            ..without(report, Reason::SymbolNotFound, "MultiGet")
        })
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
fn unfit(row: NodeProbeEntry) -> NodeProbeEntry {
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
        assert_says(&message, ["node n", "no way to attach works"]);
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
    let scene = reported(|report| {
        throughout(InstanceReport {
            reason: Some(Reason::Silent),
            firing: false,
            ..without(report, Reason::SymbolNotFound, "MultiGet")
        })
    });
    assert_eq!(
        answer(&scene.status(), condition::DEGRADED),
        ("True", "Silent")
    );
}

/// One target with a busy probe, `storage`, beside one that is like this, `steps`.
fn beside_a_busy_one(change: impl FnOnce(ProbeReport) -> ProbeReport) -> Scene {
    let rocksdb = json!({ "operations": ["Get"] });
    let probes = json!([
        { "name": "storage", "rocksdb": rocksdb },
        { "name": "steps", "rocksdb": rocksdb },
    ]);
    scene(json!({ "probes": probes }), |probe, pod| {
        let mut report = firing(probe, pod);
        let steps = measuring("steps", vec![row("IteratorNext", 10, "119:10")]);
        report.probes.push(change(steps));
        vec![reports(node_probe("n", 1, vec![report]))]
    })
}

#[test]
fn a_busy_probe_does_not_hide_one_beside_it_that_is_not_well() {
    for (state, reason, ready, progressing) in [
        (InstanceState::Attached, "Silent", "Silent", "False"),
        (InstanceState::Failed, "MemoryLimit", "MemoryLimit", "False"),
        (
            InstanceState::Failed,
            "SymbolNotFound",
            "SymbolNotFound",
            "False",
        ),
        (
            InstanceState::Failed,
            "TooManyMatches",
            "TooManyMatches",
            "False",
        ),
        (InstanceState::Failed, "Firing", "AttachFailed", "False"),
        (InstanceState::Detached, "OverBudget", "OverBudget", "False"),
        (InstanceState::Waiting, "Attaching", "Attaching", "True"),
        (InstanceState::Attached, "Attaching", "Attaching", "True"),
    ] {
        let scene = beside_a_busy_one(|steps| ProbeReport {
            state,
            reason: serde_json::from_value(json!(reason)).unwrap(),
            message: "there is nothing".into(),
            firing: false,
            ..steps
        });
        let status = scene.status();
        let told = "pod a/ckb-0: probe steps: there is nothing";
        assert_eq!(answer(&status, condition::READY), ("False", ready));
        assert_eq!(
            found(&status, condition::READY).message,
            format!("0 of 1 targets fire: {told}")
        );
        assert_eq!(
            answer(&status, condition::PROGRESSING),
            (progressing, ready)
        );
        let expected = match progressing {
            "True" => ("False", "Done", "nothing is known to be wrong"),
            _ => ("True", ready, told),
        };
        let degraded = found(&status, condition::DEGRADED);
        assert_eq!(
            (&*degraded.status, &*degraded.reason, &*degraded.message),
            expected
        );
        let instance = &status.instances[0];
        assert_eq!(
            (instance.reason.as_str(), instance.state),
            (ready, InstanceState::Attached)
        );
        assert_eq!(status.targets.attached, 1);
        assert_eq!(status.targets.firing, 0);
        let counts = status
            .probes
            .iter()
            .map(|probe| (probe.targets.attached, probe.targets.firing));
        let attached = u32::from(state == InstanceState::Attached);
        assert_eq!(counts.collect::<Vec<_>>(), [(1, 1), (attached, 0)]);
        assert_eq!(
            status.probes[0].headline, "100/s p99 1.48us 2 slow",
            "the figures of the other stay"
        );
    }
}

#[test]
fn a_probe_that_an_agent_has_not_taken_up_is_waited_for() {
    let scene = beside_a_busy_one(|steps| ProbeReport {
        name: "an older one".into(),
        ..steps
    });
    let status = scene.status();
    is(&status, condition::READY, "False", "Attaching");
    assert_eq!(
        found(&status, condition::PROGRESSING).message,
        "pod a/ckb-0: probe steps: the agent has yet to take it up"
    );
    assert_eq!(status.probes[1].rows, []);
}

#[test]
fn what_one_probe_lacks_is_told_with_its_name_and_leaves_both_ready() {
    let scene = beside_a_busy_one(|steps| {
        let report = InstanceReport {
            message: "rocksdb_iter_next was left out".into(),
            probes: vec![steps],
            ..InstanceReport::default()
        };
        without(report, Reason::SingleStepped, "rocksdb_iter_next")
            .probes
            .remove(0)
    });
    let status = scene.status();
    is(&status, condition::READY, "True", "Firing");
    is(&status, condition::DEGRADED, "True", "SingleStepped");
    assert_eq!(
        degraded(&scene),
        "pod a/ckb-0: probe steps: rocksdb_iter_next was left out"
    );
    let messages = status.probes.iter().map(|probe| &*probe.message);
    assert_eq!(
        messages.collect::<Vec<_>>(),
        ["", "rocksdb_iter_next was left out"]
    );
}

/// What the agent said first.
fn first_report(world: &World) -> InstanceReport {
    let row = world.node_probe("n").unwrap();
    let first = &row.status.as_ref().unwrap().instances[0];
    row.reports(&first.probe.uid, None, &first.pod.uid)
        .remove(0)
        .instance
}

#[test]
fn what_a_target_costs_is_not_why_one_of_its_probes_is_silent() {
    let mut scene = beside_a_busy_one(|steps| ProbeReport {
        reason: Some(Reason::Silent),
        message: "there is nothing".into(),
        firing: false,
        ..steps
    });
    let pod = crate::testing::pod("a", "ckb-0", Some("n"));
    let mut report = first_report(&scene.world);
    report.reason = Some(Reason::OverBudget);
    report.message = "costs too much".into();
    assert_eq!(report.pod, pod.reference);
    scene.world.apply(
        reports(node_probe("n", 1, vec![report])),
        crate::testing::at(0),
    );
    let status = scene.status();
    is(&status, condition::READY, "False", "Silent");
    is(&status, condition::DEGRADED, "True", "OverBudget");
    is(&status, condition::WITHIN_BUDGET, "False", "OverBudget");
    assert_eq!(
        degraded(&scene),
        "pod a/ckb-0: costs too much. Silent: pod a/ckb-0: probe steps: there is nothing"
    );
}

#[test]
fn of_a_target_that_failed_in_several_ways_all_are_told() {
    let scene = beside_a_busy_one(|steps| steps);
    let mut world = scene.world.clone();
    let mut report = first_report(&world);
    report.state = InstanceState::Failed;
    report.reason = Some(Reason::AttachFailed);
    report.message = "nothing is attached".into();
    for (probe, reason, message) in [
        (0, Reason::SymbolNotFound, "no such function"),
        (1, Reason::MemoryLimit, "no such room"),
    ] {
        let probe = &mut report.probes[probe];
        probe.state = InstanceState::Failed;
        probe.reason = Some(reason);
        probe.message = message.into();
        probe.firing = false;
    }
    world.apply(
        reports(node_probe("n", 1, vec![report])),
        crate::testing::at(0),
    );
    let scene = Scene { world, ..scene };
    let status = scene.status();
    is(&status, condition::READY, "False", "MemoryLimit");
    assert_eq!(
        degraded(&scene),
        "pod a/ckb-0: probe steps: no such room. \
         SymbolNotFound: pod a/ckb-0: probe storage: no such function"
    );
}
