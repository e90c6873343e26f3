//! Agents that cannot start, say nothing, or speak of others.

use std::time::Duration;

use ckb_probe_crds::condition;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::SignedDuration};
use serde_json::json;

use super::{answer, figure, found, is, row_of, scene, scene_of};
use crate::{
    aggregate::next_change,
    testing::{agent, at, firing, has_agent, node_probe, reports},
    world::AgentPod,
};

#[test]
fn an_agent_that_cannot_start_says_why() {
    let scene = scene(json!({}), |_, _| {
        vec![has_agent(AgentPod {
            trouble: Some("ImagePullBackOff: no such image".into()),
            ..agent("n")
        })]
    });
    let status = scene.status();
    is(&status, condition::DEGRADED, "True", "AgentUnavailable");
    let message = &found(&status, condition::DEGRADED).message;
    assert!(message.contains("ckb-probe-agent-n"), "{message}");
    assert!(
        message.contains("ImagePullBackOff: no such image"),
        "{message}"
    );
}

#[test]
fn an_agent_has_three_intervals_and_never_less_than_five_seconds() {
    for (interval, last) in [("10s", 30), ("1s", 5)] {
        let scene = scene(json!({ "reportInterval": interval }), |probe, pod| {
            vec![reports(node_probe("n", 0, vec![firing(probe, pod)]))]
        });
        assert_eq!(
            next_change(&scene.probe, &scene.world, at(0)),
            Some(at(last))
        );
        let status = scene.status_at(last);
        assert_eq!(
            answer(&status, condition::READY),
            ("True", "Firing"),
            "{interval}"
        );
        let status = scene.status_at(last + 1);
        assert_eq!(
            answer(&status, condition::DEGRADED),
            ("True", "AgentSilent"),
            "{interval}"
        );
        assert_eq!(status.targets.summary, "0/1");
        assert_eq!(status.headline, "storage 2 slow");
        let get = row_of(&status, "Get");
        assert_eq!(figure(get, "count"), "1000", "counts do not go back");
        assert_eq!(figure(get, "p99"), "");
        assert_eq!(next_change(&scene.probe, &scene.world, at(last + 1)), None);
    }
}

#[test]
fn an_agent_that_reports_less_often_than_asked_has_three_of_its_own_intervals() {
    for (kept, last) in [(Some(20), 60), (Some(5), 30), (None, 30)] {
        let scene = scene(json!({ "reportInterval": "10s" }), |probe, pod| {
            let mut row = node_probe("n", 0, vec![firing(probe, pod)]);
            if let Some(status) = &mut row.status {
                status.report_interval = kept.map(|kept| Duration::from_secs(kept).into());
            }
            vec![reports(row)]
        });
        assert_eq!(
            next_change(&scene.probe, &scene.world, at(0)),
            Some(at(last))
        );
        let answers = [last, last + 1].map(|time| {
            let status = scene.status_at(time);
            found(&status, condition::READY).reason.clone()
        });
        assert_eq!(answers, ["Firing", "AgentSilent"], "{kept:?}");
    }
}

#[test]
fn one_that_is_heard_late_is_called_silent_once_and_not_with_each_report() {
    // Seconds at which it is heard: each report 40 s after the one before.
    let late = [40, 80, 120, 160, 200];
    let mut scene = scene(json!({ "reportInterval": "10s" }), |probe, pod| {
        vec![reports(node_probe("n", 0, vec![firing(probe, pod)]))]
    });
    let report = scene
        .world
        .node_probe("n")
        .cloned()
        .unwrap_or_else(|| panic!("no report"));
    let mut silent = Vec::new();
    for second in 1..240 {
        if late.contains(&second) {
            let mut report = report.clone();
            if let Some(status) = &mut report.status {
                status.reported_at = Some(MicroTime(at(second)));
            }
            scene.world.apply(reports(report), at(second));
        }
        let status = scene.status_at(second);
        if found(&status, condition::READY).reason == "AgentSilent" {
            silent.push(second);
        }
    }
    assert_eq!(silent, (31..40).collect::<Vec<_>>());
    // It is not forgiven for ever: when it ends for good that is told, four times as late as of others at the most.
    assert_eq!(
        found(&scene.status_at(280), condition::READY).reason,
        "Firing"
    );
    assert_eq!(
        found(&scene.status_at(281), condition::READY).reason,
        "AgentSilent"
    );
}

#[test]
fn an_agent_that_never_reported_is_starting_and_then_silent() {
    let scene = scene(json!({}), |_, _| {
        let mut silent = node_probe("n", 0, vec![]);
        silent.status = None;
        vec![
            reports(silent),
            has_agent(AgentPod {
                running_since: Some(at(0)),
                ..agent("n")
            }),
        ]
    });
    assert_eq!(
        answer(&scene.status_at(30), condition::PROGRESSING),
        ("True", "AgentStarting")
    );
    assert_eq!(
        answer(&scene.status_at(31), condition::DEGRADED),
        ("True", "AgentSilent")
    );
    assert_eq!(next_change(&scene.probe, &scene.world, at(0)), Some(at(30)));
}

#[test]
fn only_reports_on_this_very_probe_and_pod_count() {
    for stranger in ["probe", "pod"] {
        let scene = scene_of(json!({}), |probe, pod| {
            let mut report = firing(probe, pod);
            match stranger {
                "probe" => report.probe.uid = "older".into(),
                _ => report.pod.uid = "older".into(),
            }
            report
        });
        let status = scene.status();
        assert_eq!(status.targets.summary, "0/1");
        assert_eq!(status.probes[0].rows, []);
        is(&status, condition::PROGRESSING, "True", "AgentStarting");
    }
}

#[test]
fn a_status_says_since_when_it_counts_and_another_agent_is_a_later_time() {
    let mut scene = scene(json!({}), |probe, pod| {
        vec![reports(node_probe("n", 1, vec![firing(probe, pod)]))]
    });
    let row = scene
        .world
        .node_probe("n")
        .cloned()
        .unwrap_or_else(|| panic!("no report"));
    let mut since = |microseconds: i64| {
        let mut row = row.clone();
        if let Some(status) = &mut row.status {
            let began = at(0) + SignedDuration::from_micros(microseconds);
            status.agent.started_at = Some(MicroTime(began));
        }
        scene.world.apply(reports(row), at(0));
        let status = scene.status();
        status.instances[0]
            .counted_since
            .as_ref()
            .map(|time| time.0)
    };
    // As the API server keeps it, to the second: what is read there is not to differ from what is said.
    assert_eq!(since(-90_000_000), Some(at(-90)));
    assert_eq!(since(-2_300_000), Some(at(-3)));
}
