use std::time::Duration;

use ckb_probe_crds::{
    Overhead, PodReference,
    histogram::bucket,
    kinds::rocksdb::{Operation, RocksDbProbe},
};

use super::*;
use crate::{
    attach::Coverage,
    host::slots,
    instance::{EARLY_DEATH, Terms},
    observe::ProcessId,
    probe::{Calibration, Reading, SlotReading, Tier},
    target::InstanceKey,
};

const MEANS: Means = Means {
    tier: Tier::Session,
    calibration: Calibration {
        cost_per_call_ns: 1_200,
        single_step_cost_ns: 19_000,
        trap_ns: 600,
        calls: 1,
        counted: 1,
    },
    returns_kill_confined: false,
};

fn instance() -> Instance {
    let key = InstanceKey {
        pod: PodReference {
            namespace: "ckb".into(),
            name: "ckb-0".into(),
            uid: "uid".into(),
        },
        container: "ckb".into(),
        ..InstanceKey::default()
    };
    let kind = RocksDbProbe {
        operations: vec![Operation::Get, Operation::TxnCommit],
        slow_threshold: Duration::from_millis(1).into(),
        ..RocksDbProbe::default()
    };
    let mut instance = Instance::new(
        key,
        slots(kind),
        Terms {
            interval: Duration::from_secs(1),
            overhead: Overhead::default(),
            early_death: EARLY_DEATH,
        },
        Duration::ZERO,
    );
    let process = ProcessId {
        pid: 4321,
        start_ticks: 1,
    };
    instance.attached(process, 0, Coverage::default(), Duration::ZERO);
    let mut get = SlotReading {
        sum_ns: 5_000,
        bytes: 77,
        slow: 1,
        ..SlotReading::default()
    };
    get.histogram.add(bucket(1_000), 3);
    get.histogram.add(bucket(2_000_000), 1);
    let slots = vec![get, SlotReading::default()];
    instance.observe(
        &Reading {
            slots,
            events_lost: 2,
            ..Reading::default()
        },
        Duration::ZERO,
    );
    instance
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn counts_below_each_bound_are_exact() {
    let instance = instance();
    let text = render(MEANS, Duration::ZERO, [&instance]).unwrap();
    let labels = r#"namespace="ckb",pod="ckb-0",container="ckb",ckbprobe="",probe="rocksdb",operation="Get""#;
    for (bound, count) in [
        ("0.000000512", 0),
        ("0.000001024", 3),
        ("0.001048576", 3),
        ("0.002097152", 4),
        ("+Inf", 4),
    ] {
        let line = format!(
            "ckb_probe_operation_duration_seconds_bucket{{{labels},le=\"{bound}\"}} {count}"
        );
        assert!(
            lines(&text).contains(&line.as_str()),
            "no {line} in\n{text}"
        );
    }
    for line in [
        format!("ckb_probe_operation_duration_seconds_count{{{labels}}} 4"),
        format!("ckb_probe_operation_duration_seconds_sum{{{labels}}} 0.000005"),
        format!("ckb_probe_operation_bytes_total{{{labels}}} 77"),
        format!("ckb_probe_slow_operations_total{{{labels}}} 1"),
    ] {
        assert!(
            lines(&text).contains(&line.as_str()),
            "no {line} in\n{text}"
        );
    }
}

#[test]
fn a_target_says_whether_it_is_attached_firing_and_what_was_lost() {
    let instance = instance();
    let text = render(MEANS, Duration::ZERO, [&instance]).unwrap();
    for (name, value) in [
        ("ckb_probe_target_attached", 1),
        ("ckb_probe_target_firing", 1),
        ("ckb_probe_events_lost_total", 2),
        ("ckb_probe_calls_lost_total", 0),
        ("ckb_probe_reattaches_total", 0),
    ] {
        let line =
            format!(r#"{name}{{namespace="ckb",pod="ckb-0",container="ckb",ckbprobe=""}} {value}"#);
        assert!(
            lines(&text).contains(&line.as_str()),
            "no {line} in\n{text}"
        );
    }
}

#[test]
fn operations_without_known_bytes_have_no_byte_count() {
    let instance = instance();
    let text = render(MEANS, Duration::ZERO, [&instance]).unwrap();
    let bytes = lines(&text)
        .iter()
        .filter(|line| line.contains("bytes_total"))
        .count();
    assert_eq!(bytes, 1);
}

#[test]
fn no_label_holds_a_pid() {
    let instance = instance();
    assert!(
        !render(MEANS, Duration::ZERO, [&instance])
            .unwrap()
            .contains("4321")
    );
}

#[test]
fn without_targets_only_the_node_is_told_of() {
    let text = render(MEANS, Duration::ZERO, []).unwrap();
    assert_eq!(
        lines(&text),
        [
            "ckb_probe_cost_per_call_seconds 0.0000012",
            "ckb_probe_single_step_cost_seconds 0.000019",
            r#"ckb_probe_tier_info{tier="session"} 1"#,
        ]
    );
}
