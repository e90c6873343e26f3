use ckb_probe_crds::{InstanceReport, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::json;

use crate::{
    aggregate::tests::scene,
    testing::{at, firing, node_probe, reports, runs},
};

use super::*;

fn call(nanoseconds: u64) -> SlowCallReport {
    SlowCallReport {
        time: Some(MicroTime(at(0))),
        probe: "storage".into(),
        operation: "TxnCommit".into(),
        thread: "chain".into(),
        nanoseconds,
        ..SlowCallReport::default()
    }
}

#[test]
fn the_slowest_ten_of_all_targets_are_listed() {
    let scene = scene(json!({}), |probe, pod| {
        let other = crate::testing::pod("a", "ckb-1", Some("n"));
        let with = |pod, millis: [u64; 8]| InstanceReport {
            slow_calls: millis.map(|millis| call(millis * 1_000_000)).to_vec(),
            ..firing(probe, pod)
        };
        let instances = vec![
            with(pod, [80, 70, 60, 50, 40, 30, 20, 10]),
            with(&other, [75, 65, 55, 45, 35, 25, 15, 5]),
        ];
        vec![runs(&other), reports(node_probe("n", 1, instances))]
    });
    let status = scene.status();
    let listed: Vec<_> = status
        .slow_operations
        .iter()
        .map(|call| (&*call.pod, &*call.duration))
        .collect();
    assert_eq!(listed.len(), MAX);
    assert_eq!(listed[..2], [("ckb-0", "80ms"), ("ckb-1", "75ms")]);
    assert_eq!(listed[9], ("ckb-1", "35ms"));
}

#[test]
fn a_slow_call_says_where_it_was_and_what_ran_beside_it() {
    let told = SlowCallReport {
        column_family: Some("CELL".into()),
        bytes: Some(97),
        during: vec!["Compaction".into(), "FileSync".into()],
        ..call(12_340_000)
    };
    let scene = scene(json!({}), |probe, pod| {
        let report = InstanceReport {
            slow_calls: vec![told],
            ..firing(probe, pod)
        };
        vec![reports(node_probe("n", 1, vec![report]))]
    });
    let expected = SlowOperationStatus {
        time: Some(MicroTime(at(0))),
        pod: "ckb-0".into(),
        container: "ckb".into(),
        probe: "storage".into(),
        operation: "TxnCommit".into(),
        column_family: Some("CELL".into()),
        thread: "chain".into(),
        duration: "12.3ms".into(),
        bytes: Some(97),
        during: vec!["Compaction".into(), "FileSync".into()],
    };
    assert_eq!(scene.status().slow_operations, [expected]);
}

#[test]
fn slow_calls_of_what_is_not_attached_now_are_of_the_past() {
    let scene = scene(json!({}), |probe, pod| {
        let report = InstanceReport {
            state: InstanceState::Waiting,
            reason: Some(Reason::ExecutableNotFound),
            slow_calls: vec![call(1)],
            ..firing(probe, pod)
        };
        vec![reports(node_probe("n", 1, vec![report]))]
    });
    assert_eq!(scene.status().slow_operations, []);
}
