mod kept;

use std::time::Duration;

use ckb_probe_crds::{
    Overhead, PodReference, Reason, Variance,
    histogram::bucket,
    kinds::rocksdb::{Operation, RocksDbProbe},
};

use super::{
    super::exposition::{Format, page},
    *,
};
use crate::{
    kernel::{Calibration, SlotReading, Tier},
    kinds::Instrumented,
    mechanism::{GroupId, Reading, Refusal, RowId, RowReading},
    observe::ProcessId,
    state::{
        fixtures::{lost, opened, raw, read, reading, whole},
        instance::{EARLY_DEATH, Terms},
        slow_calls,
    },
    target::InstanceKey,
};

const MEANS: CalibratedTier = CalibratedTier {
    tier: Tier::Session,
    calibration: Calibration {
        cost_per_call_ns: 1_200,
        counted_cost_ns: 900,
        further_cost_ns: 600,
        single_step_cost_ns: 19_000,
        trap_ns: 600,
        inner_ns: 0,
        calls: 1,
        counted: 1,
    },
    returns_kill_confined: false,
};

const PROCESS: ProcessId = ProcessId {
    pid: 4321,
    start_ticks: 1,
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
        by_column_family: true,
        slow_threshold: Duration::from_millis(1).into(),
        ..RocksDbProbe::default()
    };
    let probe = Instrumented::new("storage", kind);
    let opened = opened(&probe, 0);
    let mut instance = Instance::new(
        key,
        vec![probe],
        Terms {
            interval: Duration::from_secs(1),
            overhead: Overhead::default(),
            early_death: EARLY_DEATH,
            profile_window: slow_calls::WINDOW,
        },
        Duration::ZERO,
    );
    instance.answered(PROCESS, 0, vec![Ok(opened)], Duration::ZERO);
    let mut get = SlotReading {
        sum_ns: 4_000,
        bytes: 70,
        ..SlotReading::default()
    };
    get.histogram.add(bucket(1_000), 3);
    let mut of_cells = SlotReading {
        sum_ns: 1_000,
        bytes: 7,
        slow: 1,
        ..SlotReading::default()
    };
    of_cells.histogram.add(bucket(2_000_000), 1);
    let mut counted = reading([(0, whole(get)), (1, commits())]);
    let cells = RowReading {
        part: Some(RowId {
            number: 11,
            ..raw(0, "10")
        }),
        ..whole(of_cells)
    };
    counted.groups.entry(GroupId(0)).or_default().push(cells);
    let counted = Reading {
        lost: vec![lost([0, 1], 0, 2)],
        ..counted
    };
    instance.take(&read(counted, Duration::ZERO));
    instance
}

/// None yet, and their bytes would not be known.
fn commits() -> RowReading {
    let mut none = whole(SlotReading::default());
    none.figures.sums.remove("bytes");
    none
}

/// The text of a page of these.
fn render<'a>(
    means: Option<CalibratedTier>,
    now: Duration,
    instances: impl IntoIterator<Item = &'a Instance>,
) -> Result<String, prometheus::Error> {
    let families = families(means, now, instances, &Exemplars::default());
    page(&families, Format::Text)
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn counts_below_each_bound_are_exact() {
    let instance = instance();
    let text = render(Some(MEANS), Duration::ZERO, [&instance]).unwrap();
    let labels = r#"namespace="ckb",pod="ckb-0",container="ckb",ckbprobe="",probe="storage",operation="Get""#;
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
        format!("ckb_probe_operation_calls_total{{{labels}}} 4"),
        format!("ckb_probe_samples_total{{{labels}}} 4"),
        format!("ckb_probe_slow_operations_total{{{labels}}} 1"),
        format!(
            "ckb_probe_column_family_operation_duration_seconds_count{{{labels},column_family=\"CELL\"}} 1"
        ),
        format!(
            "ckb_probe_column_family_operation_duration_seconds_sum{{{labels},column_family=\"other\"}} 0.000004"
        ),
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
    let text = render(Some(MEANS), Duration::ZERO, [&instance]).unwrap();
    for (name, value) in [
        ("ckb_probe_target_attached", 1),
        ("ckb_probe_target_firing", 1),
        ("ckb_probe_reattaches_total", 0),
    ] {
        let line =
            format!(r#"{name}{{namespace="ckb",pod="ckb-0",container="ckb",ckbprobe=""}} {value}"#);
        assert!(
            lines(&text).contains(&line.as_str()),
            "no {line} in\n{text}"
        );
    }
    let attached: Vec<&str> = lines(&text)
        .into_iter()
        .filter(|line| line.starts_with("ckb_probe_attached{"))
        .collect();
    let own =
        r#"namespace="ckb",pod="ckb-0",container="ckb",ckbprobe="",probe="storage",kind="rocksdb""#;
    assert_eq!(attached, [format!("ckb_probe_attached{{{own}}} 1")]);
    let lost = r#"ckb_probe_lost_total{namespace="ckb",pod="ckb-0",container="ckb",ckbprobe="","#;
    let lost: Vec<&str> = lines(&text)
        .into_iter()
        .filter_map(|line| line.strip_prefix(lost))
        .collect();
    assert_eq!(lost, [r#"what="calls"} 0"#, r#"what="events"} 2"#]);
}

#[test]
fn operations_without_known_bytes_have_no_byte_count() {
    let instance = instance();
    let text = render(Some(MEANS), Duration::ZERO, [&instance]).unwrap();
    let bytes = lines(&text)
        .iter()
        .filter(|line| line.contains("operation_bytes_total"))
        .count();
    assert_eq!(bytes, 1);
}

#[test]
fn no_label_holds_a_pid() {
    let instance = instance();
    assert!(
        !render(Some(MEANS), Duration::ZERO, [&instance])
            .unwrap()
            .contains("4321")
    );
}

#[test]
fn without_targets_only_the_node_is_told_of() {
    let text = render(Some(MEANS), Duration::ZERO, []).unwrap();
    assert_eq!(
        lines(&text),
        [
            "ckb_probe_cost_per_call_seconds 0.0000012",
            "ckb_probe_single_step_cost_seconds 0.000019",
            r#"ckb_probe_tier_info{tier="session"} 1"#,
        ]
    );
}

#[test]
fn the_sampling_ratio_is_told_of_what_is_measured_now() {
    let mut instance = instance();
    let ratios = |instance: &Instance| {
        let text = render(Some(MEANS), Duration::ZERO, [instance]).unwrap();
        let lines = text.lines();
        let ratios = lines.filter(|line| line.starts_with("ckb_probe_sampling_ratio"));
        let values = ratios.map(|line| line.rsplit(' ').next().unwrap().to_string());
        values.collect::<Vec<_>>()
    };
    assert!(ratios(&instance).is_empty(), "no interval has ended");
    instance.close_interval(Duration::from_secs(1), None);
    assert_eq!(ratios(&instance), ["1", "1"]);
    instance.process_gone(Duration::from_secs(2));
    assert!(ratios(&instance).is_empty());
}

#[test]
fn what_is_not_sampled_has_no_error() {
    let mut instance = instance();
    instance.close_interval(Duration::from_secs(1), None);
    let text = render(Some(MEANS), Duration::ZERO, [&instance]).unwrap();
    let errors = lines(&text).into_iter();
    let errors = errors.filter(|line| line.starts_with("ckb_probe_relative_error_ratio{"));
    let values: Vec<_> = errors.map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(values, [Some("0"); 2]);
}

#[test]
fn the_error_of_what_is_sampled_is_told_unless_no_slice_saw_any() {
    let window = |count: u64, recorded_milliseconds| IntervalFigures {
        milliseconds: 1000,
        recorded_milliseconds,
        samples: count / 10,
        figures: ckb_probe_crds::Figures {
            sums: [("duration".into(), count)].into(),
            variances: [(
                "duration".into(),
                Variance::new((count * count) as f64 / 625.0),
            )]
            .into(),
            ..Default::default()
        },
    };
    for (window, expected) in [
        (window(1000, 100), Some(0.04)),
        (window(0, 100), None),
        (window(0, 1000), Some(0.0)),
    ] {
        assert_eq!(relative_error(&window, "duration"), expected);
    }
}

/// They once vanished, and came back as if they had been reset.
#[test]
fn what_was_counted_is_told_while_the_next_process_cannot_be_attached_to() {
    let mut instance = instance();
    let told = |instance: &Instance| -> Vec<String> {
        let text = render(Some(MEANS), Duration::ZERO, [instance]).unwrap();
        let counts = lines(&text)
            .into_iter()
            .filter(|line| line.contains("ckb_probe_operation_duration_seconds_count"));
        counts.map(str::to_string).collect()
    };
    let before = told(&instance);
    assert_eq!(before.len(), 2);
    instance.process_gone(Duration::from_secs(1));
    assert_eq!(told(&instance), before);
    let successor = ProcessId {
        pid: 4322,
        start_ticks: 2,
    };
    let refusal = Refusal::new(Reason::AttachFailed, "no");
    instance.answered(successor, 0, vec![Err(refusal)], Duration::from_secs(2));
    assert_eq!(told(&instance), before);
}

#[test]
fn what_is_no_time_has_bounds_in_its_own_unit() {
    let mut histogram = Histogram::default();
    histogram.add(bucket(600), 2);
    let values = Values {
        histogram,
        sum: 1_200,
        ..Values::default()
    };
    let metric = distribution(vec![], &values, |bytes| bytes as f64);
    let told = metric.get_histogram();
    assert_eq!(told.get_sample_sum(), 1_200.0);
    let first: Vec<_> = told.get_bucket().iter().take(2).collect();
    let bounds = first
        .iter()
        .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
    assert_eq!(bounds.collect::<Vec<_>>(), [(512.0, 0), (1024.0, 2)]);
}

#[test]
fn targets_with_few_rows_are_told_before_those_with_many() {
    let (many, none) = (instance(), without_probes());
    let rows = that_fit(&[&many], 0).1[0].1;
    assert!(rows > 1);
    let counts = |most: usize| {
        let (told, left_out) = that_fit(&[&many, &none, &many], most);
        let left_out: Vec<usize> = left_out.iter().map(|(_, rows)| *rows).collect();
        (told.len(), left_out)
    };
    assert_eq!(counts(2 * rows), (3, vec![]));
    // Of two with as many, the first.
    assert_eq!(counts(2 * rows - 1), (2, vec![rows]));
    assert_eq!(counts(rows - 1), (1, vec![rows, rows]));
}

fn without_probes() -> Instance {
    let terms = Terms {
        interval: Duration::from_secs(1),
        overhead: Overhead::default(),
        early_death: EARLY_DEATH,
        profile_window: slow_calls::WINDOW,
    };
    Instance::new(InstanceKey::default(), vec![], terms, Duration::ZERO)
}
