//! Reports that are not as they should be: that is said, and it is not silence.

use ckb_probe_crds::{NodeProbeStatus, condition, report::Omitted};
use kube::api::ObjectMeta;
use serde_json::json;

use super::super::*;
use crate::{
    aggregate::tests::{Scene, answer, assert_says, found, is, scene, scene_of},
    testing::{firing, node_probe, reports, without},
    world::Raw,
};

/// One target, of whose node there is this.
fn reported(change: impl FnOnce(NodeProbeEntry) -> NodeProbeEntry) -> Scene {
    scene(json!({}), |_, _| {
        vec![reports(change(node_probe("n", 1, vec![])))]
    })
}

fn told(scene: &Scene) -> (String, String) {
    let status = scene.status();
    assert_eq!(answer(&status, condition::READY).0, "False");
    let degraded = found(&status, condition::DEGRADED);
    assert_eq!(degraded.status, "True");
    (degraded.reason.clone(), degraded.message.clone())
}

#[test]
fn a_report_that_cannot_be_read_is_not_taken_for_silence() {
    let scene = reported(|row| {
        let raw = Raw {
            types: None,
            metadata: ObjectMeta {
                name: Some(row.node.clone()),
                uid: Some(row.uid.clone()),
                generation: Some(1),
                ..ObjectMeta::default()
            },
            spec: Some(json!({ "assignments": [] })),
            status: Some(json!({ "instances": [{ "state": "of another version" }] })),
        };
        let row = NodeProbeEntry::from(raw);
        assert_eq!(row.status, None);
        row
    });
    let (reason, message) = told(&scene);
    assert_eq!(reason, "ReportRefused");
    assert_says(&message, ["node n", "one version"]);
}

#[test]
fn a_report_that_the_api_server_refuses_is_told_in_its_words() {
    let refused = |row: NodeProbeEntry| {
        let mut status = row.status.unwrap_or_default();
        status.agent.report_refused = Some("forbidden by policy (403)".to_owned());
        NodeProbeEntry {
            status: Some(status),
            ..row
        }
    };
    let (reason, message) = told(&reported(refused));
    assert_eq!(reason, "ReportRefused");
    assert_says(&message, ["node n", "forbidden by policy (403)"]);
}

#[test]
fn a_target_that_a_full_report_leaves_out_is_not_said_to_be_on_its_way() {
    let full = |row: NodeProbeEntry| {
        let status = row.status.map(|status| NodeProbeStatus {
            instances_omitted: 7,
            ..status
        });
        NodeProbeEntry { status, ..row }
    };
    let (reason, message) = told(&reported(full));
    assert_eq!(reason, "ReportTruncated");
    assert_says(&message, ["node n", "pod a/ckb-0"]);
}

#[test]
fn what_a_full_report_lacks_of_a_target_is_said_though_it_is_measured() {
    let scene = scene_of(json!({}), |probe, pod| {
        let report = InstanceReport {
            message: "12 rows count in the row other".to_owned(),
            ..firing(probe, pod)
        };
        let mut report = without(report, Reason::ReportTruncated, "rows");
        report.probes[0].omitted = Omitted {
            rows: 12,
            ..Omitted::default()
        };
        report
    });
    let status = scene.status();
    is(&status, condition::READY, "True", "Firing");
    is(&status, condition::DEGRADED, "True", "ReportTruncated");
    assert!(status.probes[0].message.contains("12 rows"));
}
