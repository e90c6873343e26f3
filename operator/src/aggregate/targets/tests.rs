mod refused;

use ckb_probe_crds::{CkbProbeStatus, Kind, condition};
use serde_json::json;

use super::*;
use crate::{
    aggregate::{
        Past, aggregate,
        tests::{answer, found, is},
    },
    limits::Limit,
    testing::{
        agent, at, firing, has, has_agent, node, node_probe, pod, probe, reports, runs, world,
    },
    world::Change,
};

/// A CkbProbe, a pod on a node whose agent runs, and this besides.
fn base(probe: &CkbProbeEntry, more: impl IntoIterator<Item = Change>) -> World {
    let base = [
        has(probe),
        runs(&pod("a", "ckb-0", Some("n"))),
        node("n"),
        has_agent(agent("n")),
    ];
    world(base.into_iter().chain(more))
}

/// The report that the agent makes for the oldest of those that ask what `asking` asks.
fn report(oldest: &CkbProbeEntry, asking: &CkbProbeEntry) -> NodeProbeEntry {
    let pod = pod("a", "ckb-0", Some("n"));
    let report = InstanceReport {
        asks: asking.spec.as_ref().unwrap().asks.clone(),
        ..firing(oldest, &pod)
    };
    node_probe("n", 1, vec![report])
}

fn ready(status: &CkbProbeStatus) -> (&str, &str) {
    answer(status, condition::READY)
}

#[test]
fn a_report_answers_all_that_ask_the_same() {
    let (oldest, same) = (
        probe("a", "oldest", json!({})),
        probe("a", "same", json!({})),
    );
    let world = base(&same, [has(&oldest), reports(report(&oldest, &same))]);
    let statuses =
        [&oldest, &same].map(|probe| aggregate(probe, &world, None, &mut Past::default(), at(0)));
    assert_eq!(ready(&statuses[1]), ("True", "Firing"));
    assert_eq!(statuses[0].probes, statuses[1].probes);
    assert_eq!(
        statuses[1].instances[0].message,
        "measuring process 7; CkbProbe oldest asks the same, so metrics and log lines carry its name"
    );
    assert_eq!(statuses[0].instances[0].message, "measuring process 7");
    // Also while the order names one that is gone.
    let gone = base(&same, [reports(report(&oldest, &same))]);
    let status = aggregate(&same, &gone, None, &mut Past::default(), at(0));
    assert_eq!(ready(&status), ("True", "Firing"));
}

#[test]
fn a_report_answers_nobody_who_asks_for_something_else_or_for_nothing() {
    let oldest = probe("a", "oldest", json!({}));
    for other in [
        json!({ "reportInterval": "1s" }),
        json!({ "overhead": { "maxPercent": 2 } }),
        json!({ "probes": [{ "name": "other", "rocksdb": { "operations": ["Get", "Write"] } }] }),
    ] {
        let other = probe("a", "other", other);
        let world = base(&other, [has(&oldest), reports(report(&oldest, &oldest))]);
        let status = aggregate(&other, &world, None, &mut Past::default(), at(0));
        assert_eq!(ready(&status), ("False", "AgentStarting"));
    }
    let paused = probe("a", "paused", json!({ "paused": true }));
    let world = base(&paused, [has(&oldest), reports(report(&oldest, &oldest))]);
    let status = aggregate(&paused, &world, None, &mut Past::default(), at(0));
    assert_eq!(ready(&status), ("False", "Paused"));
    assert_eq!(status.targets.attached, 0);
    is(&status, condition::PROGRESSING, "False", "Done");
}

#[test]
fn news_of_a_report_touch_all_that_ask_the_same() {
    let (oldest, same) = (
        probe("a", "oldest", json!({})),
        probe("a", "same", json!({})),
    );
    let elsewhere = probe("b", "elsewhere", json!({}));
    let mut world = base(&same, [has(&oldest), has(&elsewhere)]);
    let touched = world.apply(reports(report(&oldest, &oldest)), at(0)).probes;
    let names: Vec<_> = touched.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["a/oldest", "a/same"]);
}

#[test]
fn what_is_beyond_a_limit_says_which_and_who_can_raise_it() {
    let probe = probe("a", "p", json!({}));
    let world = base(&probe, [reports(report(&probe, &probe))]);
    let order = Limit::Order {
        bytes: 458_752,
        entries: 1_024,
    };
    for (limit, words) in [
        (
            Limit::CkbProbesPerNamespace(3),
            ["3 CkbProbes of namespace a", "limits.ckbProbesPerNamespace"],
        ),
        (
            Limit::TargetsPerNamespace(4),
            [
                "4 targets of all CkbProbes of namespace a",
                "limits.targetsPerNamespace",
            ],
        ),
        (
            Limit::CkbProbesPerTarget(5),
            ["5 CkbProbes on one pod", "limits.ckbProbesPerTarget"],
        ),
        (Limit::Containers(64), ["64 containers", "target.container"]),
        (order, ["node n", "1024 entries, or 458752 bytes"]),
        (
            Limit::Kind(Kind::ALL[0]),
            [
                "of the kind rocksdb",
                "add rocksdb to kinds.admitted of its chart",
            ],
        ),
        (
            Limit::Exporter,
            [
                "no exporter of the name in traces.exporter that namespace a may name",
                "otlp.exporters of its chart",
            ],
        ),
    ] {
        let left_out = LeftOut::Pods([("ckb-0".to_owned(), limit)].into());
        let status = aggregate(&probe, &world, Some(&left_out), &mut Past::default(), at(0));
        let reason = match limit {
            Limit::Kind(_) => "KindNotAdmitted",
            Limit::Exporter => "ExporterNotAdmitted",
            _ => "LimitExceeded",
        };
        assert_eq!(ready(&status), ("False", reason));
        assert_eq!(answer(&status, condition::DEGRADED), ("True", reason));
        let message = &found(&status, condition::DEGRADED).message;
        assert!(
            message.starts_with("pod a/ckb-0 is not measured"),
            "{message}"
        );
        for word in words {
            assert!(message.contains(word), "{message}");
        }
        assert_eq!(status.instances[0].reason.as_str(), reason);
    }
    // Another pod is not meant.
    let other = LeftOut::Pods([("ckb-1".to_owned(), Limit::TargetsPerNamespace(4))].into());
    let status = aggregate(&probe, &world, Some(&other), &mut Past::default(), at(0));
    assert_eq!(ready(&status), ("True", "Firing"));
}
