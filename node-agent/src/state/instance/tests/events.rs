//! What is listed one by one of several probes of one target.

use ckb_probe_crds::EventReport;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{probes::two_probes, *};
use crate::mechanism::{Breakdown, Detail, GroupId, RowId};

fn slow_call(group: u16, nanoseconds: u64) -> Event {
    Event {
        time: "2026-01-02T03:04:05.678901Z".parse::<Timestamp>().unwrap(),
        group: GroupId(group),
        row: None,
        part: None,
        thread: 42,
        thread_name: "verify_blocks".to_string(),
        weight: nanoseconds,
        details: vec![
            ("duration", Detail::Nanoseconds(nanoseconds)),
            ("bytes", Detail::Bytes(17)),
            (
                "during",
                Detail::List(vec!["Flush".to_string(), "FileSync".to_string()]),
            ),
        ],
    }
}

#[test]
fn a_slow_call_is_a_line_with_all_that_is_known_of_it() {
    let mut instance = two_probes();
    let mut line = json!({
        "time": "2026-01-02T03:04:05.678901Z",
        "probe": "reads",
        "operation": "Get",
        "thread": 42,
        "threadName": "verify_blocks",
        "durationNanoseconds": 2_000_000,
        "bytes": 17,
        "during": ["Flush", "FileSync"],
    });
    let call = slow_call(0, 2_000_000);
    assert_eq!(instance.event(&call), [line.clone()]);
    let part = Some(RowId {
        place: 1,
        number: 11,
        text: "10".to_string(),
    });
    let of_family = Event { part, ..call };
    // It is told apart for somebody else.
    assert_eq!(instance.clone().event(&of_family), [line.clone()]);
    for series in &mut instance.probes[0].series {
        series.subscription.parts = Breakdown::All;
    }
    line["columnFamily"] = json!("CELL");
    assert_eq!(instance.event(&of_family), [line]);
    instance.close_interval(seconds(2), None);
    let report = instance.report(seconds(2));
    assert!(report.probes[1].events.is_empty());
    let [all, of_family] = &report.probes[0].events[..] else {
        panic!("{report:?}");
    };
    assert_eq!(
        (&all.part, of_family.part.as_deref()),
        (&None, Some("CELL"))
    );
    let EventReport {
        row,
        thread,
        text,
        details,
        ..
    } = all;
    assert_eq!((row.as_str(), thread.as_str()), ("Get", "verify_blocks"));
    assert_eq!(text, "2ms, 17 bytes, during Flush, FileSync");
    let details: Vec<_> = details
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        details,
        [
            ("bytes", "17"),
            ("duration", "2ms"),
            ("during", "Flush, FileSync")
        ]
    );
}

#[test]
fn what_ran_beside_a_slow_call_is_no_detail_where_nothing_did() {
    let mut call = slow_call(0, 2_000_000);
    call.details[2].1 = Detail::List(Vec::new());
    let report = call.report("Get", None);
    assert_eq!(report.text, "2ms, 17 bytes");
    assert_eq!(
        report.details.into_keys().collect::<Vec<_>>(),
        ["bytes", "duration"]
    );
}

#[test]
fn nobodys_event_is_no_event() {
    let mut instance = two_probes();
    assert!(instance.event(&slow_call(2, 5)).is_empty());
    instance.process_gone(seconds(1));
    assert!(instance.event(&slow_call(0, 5)).is_empty());
}

#[test]
fn the_weightiest_events_of_an_interval_are_listed_weightiest_first() {
    let mut instance = attached();
    for nanoseconds in [5, 90, 20, 70, 10, 60, 30, 80, 40, 50, 100, 15] {
        assert_eq!(instance.event(&slow_call(0, nanoseconds)).len(), 1);
    }
    assert!(instance.report(seconds(1)).probes[0].events.is_empty());
    instance.close_interval(seconds(2), None);
    let listed = |instance: &Instance| -> Vec<u64> {
        let events = &instance.report(seconds(2)).probes[0].events;
        events.iter().map(|event| event.weight).collect()
    };
    assert_eq!(listed(&instance), [100, 90, 80, 70, 60, 50, 40, 30, 20, 15]);
    instance.close_interval(seconds(12), None);
    assert_eq!(listed(&instance), [0; 0]);
}

#[test]
fn a_line_that_is_not_written_is_counted_for_the_probe_that_it_is_of() {
    let mut instance = two_probes();
    let line = json!({ "probe": "writes" });
    instance.leave_out(&line);
    instance.leave_out(&line);
    let report = instance.report(seconds(1));
    let lost: Vec<_> = report
        .probes
        .iter()
        .map(|probe| probe.lost.get("lines").copied())
        .collect();
    assert_eq!(lost, [None, Some(2)]);
    assert_eq!(instance.lost.get("lines"), Some(&2));
}
