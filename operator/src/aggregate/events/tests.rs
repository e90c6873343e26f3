use ckb_probe_crds::{InstanceReport, InstanceState, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use proptest::{prelude::*, sample::Index};
use serde_json::json;

use crate::{
    aggregate::tests::{Scene, scene, scene_of},
    desired::tests::shuffled,
    testing::{at, firing, node_probe, reports, runs},
    world::{CkbProbeEntry, TargetPod},
};

use super::*;

fn event(weight: u64) -> EventReport {
    EventReport {
        time: Some(MicroTime(at(0))),
        row: "TxnCommit".into(),
        thread: "chain".into(),
        weight,
        text: format!("took {weight}"),
        ..EventReport::default()
    }
}

fn with(probe: &CkbProbeEntry, pod: &TargetPod, events: Vec<EventReport>) -> InstanceReport {
    let mut report = firing(probe, pod);
    report.probes[0].events = events;
    report
}

/// One target with these.
fn told(events: Vec<EventReport>) -> Scene {
    scene(json!({}), |probe, pod| {
        vec![reports(node_probe("n", 1, vec![with(probe, pod, events)]))]
    })
}

#[test]
fn the_weightiest_ten_of_all_targets_are_listed() {
    let scene = scene(json!({}), |probe, pod| {
        let other = crate::testing::pod("a", "ckb-1", Some("n"));
        let instances = vec![
            with(
                probe,
                pod,
                [80, 70, 60, 50, 40, 30, 20, 10].map(event).to_vec(),
            ),
            with(
                probe,
                &other,
                [75, 65, 55, 45, 35, 25, 15, 5].map(event).to_vec(),
            ),
        ];
        vec![runs(&other), reports(node_probe("n", 1, instances))]
    });
    let status = scene.status();
    let listed: Vec<_> = status.probes[0]
        .events
        .iter()
        .map(|event| (&*event.pod, &*event.text))
        .collect();
    assert_eq!(listed.len(), MAX_EVENTS);
    assert_eq!(listed[..2], [("ckb-0", "took 80"), ("ckb-1", "took 75")]);
    assert_eq!(listed[9], ("ckb-1", "took 35"));
}

#[test]
fn an_event_says_where_it_was_and_what_happened() {
    let details = [("duration", "12.3ms"), ("during", "Compaction, FileSync")];
    let details = details.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let scene = told(vec![EventReport {
        part: Some("CELL".into()),
        details: details.clone().into(),
        text: "12.3ms, during Compaction, FileSync".into(),
        ..event(12_340_000)
    }]);
    let expected = EventStatus {
        time: Some(MicroTime(at(0))),
        pod: "ckb-0".into(),
        container: "ckb".into(),
        row: "TxnCommit".into(),
        part: Some("CELL".into()),
        thread: "chain".into(),
        text: "12.3ms, during Compaction, FileSync".into(),
        details: details.into(),
    };
    assert_eq!(scene.status().probes[0].events, [expected]);
}

#[test]
fn events_of_what_is_not_attached_now_are_of_the_past() {
    for whole in [true, false] {
        let scene = scene_of(json!({}), |probe, pod| {
            let mut report = with(probe, pod, vec![event(1)]);
            let state = match whole {
                true => &mut report.state,
                false => &mut report.probes[0].state,
            };
            *state = InstanceState::Waiting;
            report.reason = Some(Reason::ExecutableNotFound);
            report
        });
        assert_eq!(scene.status().probes[0].events, []);
    }
}

proptest! {
    #[test]
    fn equals_are_listed_in_a_lasting_order(
        events in prop::collection::vec((0..2_u64, "[ab]", "[ab]", prop::option::of("[ab]")), 0..9),
        picks in prop::collection::vec(any::<Index>(), 9),
    ) {
        let events: Vec<_> = events
            .into_iter()
            .map(|(weight, row, thread, part)| EventReport { row, thread, part, ..event(weight) })
            .collect();
        let [one, other] = [events.clone(), shuffled(&events, &picks)].map(|events| told(events).status());
        prop_assert_eq!(&one.probes[0].events, &other.probes[0].events);
        prop_assert_eq!(one.probes[0].events.len(), events.len());
    }
}

#[test]
fn of_who_is_not_measured_any_more_only_what_is_notable_is_listed() {
    let notable = EventReport {
        details: [(NOTABLE.to_string(), "true".to_string())].into(),
        ..event(5)
    };
    let scene = scene_of(json!({}), |probe, pod| {
        let mut report = with(probe, pod, vec![event(80), notable]);
        report.state = InstanceState::Waiting;
        report.reason = Some(Reason::ExecutableNotFound);
        report.probes[0].state = InstanceState::Waiting;
        report
    });
    let events = &scene.status().probes[0].events;
    let listed: Vec<_> = events.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(listed, ["took 5"]);
}
