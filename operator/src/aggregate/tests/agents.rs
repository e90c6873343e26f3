//! Agents that cannot start, say nothing, or speak of others.

use ckb_probe_crds::condition;
use serde_json::json;

use super::{answer, figure, found, row_of, scene};
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
    assert_eq!(
        answer(&status, condition::DEGRADED),
        ("True", "AgentUnavailable")
    );
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
        let scene = scene(json!({}), |probe, pod| {
            let mut report = firing(probe, pod);
            match stranger {
                "probe" => report.probe.uid = "older".into(),
                _ => report.pod.uid = "older".into(),
            }
            vec![reports(node_probe("n", 1, vec![report]))]
        });
        let status = scene.status();
        assert_eq!(status.targets.summary, "0/1");
        assert_eq!(status.probes[0].rows, []);
        assert_eq!(
            answer(&status, condition::PROGRESSING),
            ("True", "AgentStarting")
        );
    }
}
