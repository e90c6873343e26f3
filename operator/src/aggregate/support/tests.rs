use ckb_probe_crds::{CkbProbeStatus, InstanceReport, ProbeReport};
use serde_json::json;

use super::*;
use crate::{
    aggregate::tests::{Scene, WELL, answer, answers, found, is, scene},
    testing::{
        agent, firing, has_agent, measuring, node, node_probe, reports, row, runs, throughout,
        without,
    },
};

const NO_KPROBES: &str = "functions of this node's kernel cannot be probed";

/// Two probes, `storage` and `kernel`, and the targets that `changes` makes.
fn two_probes(
    changes: impl FnOnce(&CkbProbeEntry, &crate::world::TargetPod) -> Vec<crate::world::Change>,
) -> Scene {
    let rocksdb = json!({ "operations": ["Get"] });
    let probes = json!([
        { "name": "storage", "rocksdb": rocksdb },
        { "name": "kernel", "rocksdb": rocksdb },
    ]);
    scene(json!({ "probes": probes }), changes)
}

/// The report of a target on both: `storage` fires, and `kernel` is like this.
fn beside(
    probe: &CkbProbeEntry,
    pod: &crate::world::TargetPod,
    kernel: impl FnOnce(ProbeReport) -> ProbeReport,
) -> InstanceReport {
    let mut report = firing(probe, pod);
    let one = measuring("kernel", vec![row("vfs_read", 10, "119:10")]);
    report.probes.push(kernel(one));
    report
}

fn refused(report: ProbeReport) -> ProbeReport {
    ProbeReport {
        state: InstanceState::Failed,
        reason: Some(Reason::UnsupportedByKernel),
        message: NO_KPROBES.into(),
        firing: false,
        ..report
    }
}

fn like(state: InstanceState, reason: Reason) -> impl FnOnce(ProbeReport) -> ProbeReport {
    move |report| ProbeReport {
        state,
        reason: Some(reason),
        message: "as it is".into(),
        firing: false,
        ..report
    }
}

/// One target, whose probe `kernel` is like this.
fn one_target(kernel: impl FnOnce(ProbeReport) -> ProbeReport) -> Scene {
    two_probes(|probe, pod| {
        let report = beside(probe, pod, kernel);
        vec![reports(node_probe("n", 1, vec![report]))]
    })
}

/// A second target on a node of its own, whose kernel refuses `kernel`; the first is measured in full.
fn mixed_nodes() -> Scene {
    two_probes(|probe, pod| {
        let other = crate::testing::pod("a", "ckb-1", Some("m"));
        let whole = beside(probe, pod, |report| report);
        let part = beside(probe, &other, refused);
        vec![
            node("m"),
            has_agent(agent("m")),
            runs(&other),
            reports(node_probe("n", 1, vec![whole])),
            reports(node_probe("m", 1, vec![part])),
        ]
    })
}

fn supported(status: &CkbProbeStatus) -> (&str, &str) {
    answer(status, condition::SUPPORTED)
}

fn message<'a>(status: &'a CkbProbeStatus, type_: &str) -> &'a str {
    &found(status, type_).message
}

fn counts(status: &CkbProbeStatus) -> (u32, Option<u32>, Option<&str>) {
    let SupportStatus {
        asked,
        supported,
        summary,
    } = &status.support;
    (*asked, *supported, summary.as_deref())
}

#[test]
fn what_the_kernel_does_not_support_keeps_nothing_else_from_being_ready() {
    let status = one_target(refused).status();
    assert_eq!(answers(&status), WELL);
    assert_eq!(supported(&status), ("False", "UnsupportedByKernel"));
    let count = "the kernels of the targets' nodes support 1/2 probes in full";
    assert_eq!(
        [
            message(&status, condition::READY),
            message(&status, condition::PROGRESSING),
            message(&status, condition::DEGRADED),
            message(&status, condition::SUPPORTED),
        ],
        [
            &format!("1 target is attached and firing; {count}: see Supported"),
            "everything that the nodes' kernels support is in place: see Supported",
            "nothing is known to be wrong, but for what the nodes' kernels do not support: see Supported",
            &format!("{count}: pod a/ckb-0: probe kernel: {NO_KPROBES}"),
        ]
    );
    assert_eq!(counts(&status), (2, Some(1), Some("1/2")));
    assert_eq!((status.targets.attached, status.targets.firing), (1, 1));
    let instance = &status.instances[0];
    assert_eq!(
        (instance.reason, &*instance.message),
        (Reason::Firing, "measuring process 7")
    );
    let probes = status.probes.iter();
    let told = probes.map(|probe| (probe.targets.attached, &*probe.message));
    assert_eq!(told.collect::<Vec<_>>(), [(1, ""), (0, NO_KPROBES)]);
}

#[test]
fn where_all_is_supported_that_is_said_and_counted() {
    let status = one_target(|report| report).status();
    assert_eq!(supported(&status), ("True", "Done"));
    assert_eq!(
        message(&status, condition::SUPPORTED),
        "the kernels of the targets' nodes support 2/2 probes in full"
    );
    assert_eq!(
        message(&status, condition::READY),
        "1 target is attached and firing"
    );
    assert_eq!(counts(&status), (2, Some(2), Some("2/2")));
}

#[test]
fn what_the_kernel_does_not_support_hides_nothing_that_is_wrong_beside_it() {
    for (state, reason, told) in [
        (InstanceState::Attached, Reason::Silent, "Silent"),
        (
            InstanceState::Failed,
            Reason::SymbolNotFound,
            "SymbolNotFound",
        ),
        (InstanceState::Failed, Reason::AttachFailed, "AttachFailed"),
    ] {
        let scene = two_probes(|probe, pod| {
            let mut report = beside(probe, pod, refused);
            report.probes[0] = like(state, reason)(report.probes[0].clone());
            report.state = state;
            report.reason = Some(reason);
            vec![reports(node_probe("n", 1, vec![report]))]
        });
        let status = scene.status();
        assert_eq!(answer(&status, condition::READY), ("False", told));
        assert_eq!(answer(&status, condition::DEGRADED), ("True", told));
        let words = "pod a/ckb-0: probe storage: as it is";
        assert_eq!(message(&status, condition::DEGRADED), words);
        assert_eq!(
            message(&status, condition::READY),
            format!("0 of 1 targets fire: {words}")
        );
        assert_eq!(status.instances[0].reason, reason);
        assert_eq!(supported(&status), ("False", "UnsupportedByKernel"));
        assert_eq!(counts(&status), (2, Some(1), Some("1/2")));
    }
}

#[test]
fn what_waits_beside_it_is_waited_for() {
    let scene = two_probes(|probe, pod| {
        let mut report = beside(probe, pod, refused);
        let waiting = like(InstanceState::Waiting, Reason::Attaching);
        report.probes[0] = waiting(report.probes[0].clone());
        vec![reports(node_probe("n", 1, vec![report]))]
    });
    let status = scene.status();
    is(&status, condition::READY, "False", "Attaching");
    is(&status, condition::PROGRESSING, "True", "Attaching");
    is(&status, condition::DEGRADED, "False", "Done");
    assert_eq!(supported(&status), ("False", "UnsupportedByKernel"));
}

#[test]
fn a_target_of_which_the_kernel_supports_nothing_is_for_a_person_to_look_at() {
    let scene = two_probes(|probe, pod| {
        let report = throughout(InstanceReport {
            state: InstanceState::Failed,
            reason: Some(Reason::UnsupportedByKernel),
            message: NO_KPROBES.into(),
            firing: false,
            ..beside(probe, pod, |report| report)
        });
        vec![reports(node_probe("n", 1, vec![report]))]
    });
    let status = scene.status();
    let told = "UnsupportedByKernel";
    assert_eq!(
        answers(&status),
        [
            ("False", told),
            ("False", told),
            ("True", told),
            ("True", "NothingAttached")
        ]
    );
    assert_eq!(supported(&status), ("False", told));
    assert_eq!(
        message(&status, condition::SUPPORTED),
        format!(
            "the kernels of the targets' nodes support 0/2 probes in full: pod a/ckb-0: {NO_KPROBES}"
        )
    );
    assert_eq!(counts(&status), (2, Some(0), Some("0/2")));
    assert_eq!((status.targets.attached, status.targets.firing), (0, 0));
}

#[test]
fn that_each_probe_is_unsupported_for_a_reason_of_its_own_makes_none_of_them_ready() {
    let scene = two_probes(|probe, pod| {
        let mut report = beside(probe, pod, refused);
        report.state = InstanceState::Failed;
        report.reason = Some(Reason::UnsupportedByKernel);
        report.probes[0] = ProbeReport {
            message: "it has no uprobes".into(),
            ..refused(report.probes[0].clone())
        };
        vec![reports(node_probe("n", 1, vec![report]))]
    });
    let status = scene.status();
    let told = "UnsupportedByKernel";
    assert_eq!(answer(&status, condition::READY), ("False", told));
    assert_eq!(answer(&status, condition::DEGRADED), ("True", told));
    assert_eq!(status.instances[0].reason, Reason::UnsupportedByKernel);
    assert_eq!(
        message(&status, condition::DEGRADED),
        format!(
            "pod a/ckb-0: probe kernel: {NO_KPROBES}; pod a/ckb-0: probe storage: it has no uprobes"
        )
    );
    assert_eq!(counts(&status), (2, Some(0), Some("0/2")));
}

#[test]
fn of_mixed_nodes_a_probe_counts_that_every_kernel_supports() {
    let status = mixed_nodes().status();
    is(&status, condition::READY, "True", "Firing");
    is(&status, condition::DEGRADED, "False", "Done");
    assert_eq!(supported(&status), ("False", "UnsupportedByKernel"));
    assert_eq!(
        message(&status, condition::READY),
        "2 targets are attached and firing; the kernels of the targets' nodes support 1/2 probes in full: see Supported"
    );
    assert_eq!(
        message(&status, condition::SUPPORTED),
        format!(
            "the kernels of the targets' nodes support 1/2 probes in full: pod a/ckb-1: probe kernel: {NO_KPROBES}"
        )
    );
    assert_eq!(counts(&status), (2, Some(1), Some("1/2")));
    assert_eq!(status.probes[1].targets.summary, "1/2");
}

#[test]
fn what_is_supported_in_part_is_measured_and_not_in_full() {
    let status = one_target(|report| {
        let report = InstanceReport {
            message: "Memory is not sampled on this kernel".into(),
            probes: vec![report],
            ..InstanceReport::default()
        };
        let mut report = without(report, Reason::UnsupportedByKernel, "Memory");
        report.probes.remove(0)
    })
    .status();
    is(&status, condition::READY, "True", "Firing");
    is(&status, condition::DEGRADED, "False", "Done");
    assert_eq!(
        message(&status, condition::SUPPORTED),
        "the kernels of the targets' nodes support 1/2 probes in full: pod a/ckb-0: probe kernel: Memory is not sampled on \
         this kernel"
    );
    assert_eq!(counts(&status), (2, Some(1), Some("1/2")));
}

#[test]
fn on_a_node_where_nothing_can_be_measured_nothing_is_supported() {
    let scene = two_probes(|_, _| {
        let mut row = node_probe("n", 1, vec![]);
        let status = row.status.as_mut().unwrap();
        status.agent.failure = Some("no way to attach works".into());
        vec![reports(row)]
    });
    let status = scene.status();
    is(&status, condition::DEGRADED, "True", "PreflightFailed");
    assert_eq!(supported(&status), ("False", "PreflightFailed"));
    assert_eq!(counts(&status), (2, Some(0), Some("0/2")));
}

#[test]
fn before_an_agent_has_told_nothing_is_known() {
    let unknown = ("Unknown", "Attaching");
    let unheard = two_probes(|_, _| Vec::new());
    let untaken = two_probes(|_, _| vec![reports(node_probe("n", 1, vec![]))]);
    let attaching = one_target(like(InstanceState::Waiting, Reason::Attaching));
    // Of an older spec.
    let renamed = one_target(|report| ProbeReport {
        name: "an older one".into(),
        ..report
    });
    for scene in [unheard, untaken, attaching, renamed] {
        let status = scene.status();
        assert_eq!(supported(&status), unknown);
        assert_eq!(counts(&status), (2, None, None));
    }
}

#[test]
fn of_several_targets_those_count_that_have_told() {
    let scene = two_probes(|probe, pod| {
        let pending = crate::testing::pod("a", "ckb-1", None);
        let report = beside(probe, pod, |report| report);
        vec![runs(&pending), reports(node_probe("n", 1, vec![report]))]
    });
    assert_eq!(supported(&scene.status()), ("True", "Done"));
}

#[test]
fn what_is_stopped_or_makes_no_sense_is_asked_of_no_kernel() {
    let paused = scene(json!({ "paused": true }), |probe, pod| {
        vec![reports(node_probe("n", 1, vec![firing(probe, pod)]))]
    });
    let status = paused.status();
    assert_eq!(supported(&status), ("Unknown", "Paused"));
    assert_eq!(counts(&status), (1, None, None));
}

#[test]
fn a_kernel_stays_the_same_while_a_process_restarts() {
    for (kernel, told, count) in [
        (
            refused as fn(ProbeReport) -> ProbeReport,
            ("False", "UnsupportedByKernel"),
            "1/2",
        ),
        (|report| report, ("True", "Done"), "2/2"),
    ] {
        let before = one_target(kernel);
        let known = before.status();
        let restarting = two_probes(|probe, pod| {
            let report = throughout(InstanceReport {
                state: InstanceState::Waiting,
                reason: Some(Reason::ExecutableNotFound),
                firing: false,
                ..beside(probe, pod, |report| report)
            });
            vec![reports(node_probe("n", 1, vec![report]))]
        });
        let after = |generation| Scene {
            probe: CkbProbeEntry {
                status: Some(known.clone().into()),
                generation,
                ..before.probe.clone()
            },
            world: restarting.world.clone(),
        };
        let same = after(before.probe.generation).status();
        assert_eq!(supported(&same), told);
        assert_eq!(
            message(&same, condition::SUPPORTED),
            message(&known, condition::SUPPORTED)
        );
        assert_eq!(same.support.summary.as_deref(), Some(count));
        // Something else may be asked now.
        let other = after(before.probe.generation + 1).status();
        assert_eq!(supported(&other), ("Unknown", "Attaching"));
    }
}
