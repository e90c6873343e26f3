use std::collections::BTreeMap;

use ckb_probe_crds::{
    AgentStatus, Distribution, EventReport, Figures, InstanceState, IntervalFigures, PartReport,
    PodReference, ProbeReference, Variance,
    report::{OTHER, Omitted},
};
use proptest::prelude::*;

use super::*;

/// What the agent says of itself in these tests takes less.
const OWN: usize = 1_000;

fn figures() -> impl Strategy<Value = Figures> {
    let distribution =
        prop::collection::vec((0..624u32, 1..1_000_000u64), 0..5).prop_map(|buckets| {
            Distribution {
                sum: buckets.iter().map(|(_, count)| count * 7).sum(),
                histogram: buckets.into_iter().collect(),
                unmeasured: 0,
            }
        });
    (0..1_000_000u64, 0..1_000_000u64, distribution).prop_map(|(sum, level, values)| Figures {
        sums: BTreeMap::from([("bytes".into(), sum)]),
        maxima: BTreeMap::from([("duration".into(), sum / 2)]),
        levels: BTreeMap::from([("open".into(), level)]),
        distributions: BTreeMap::from([("duration".into(), values)]),
        variances: BTreeMap::from([("bytes".into(), Variance::new(sum as f64))]),
    })
}

fn window() -> impl Strategy<Value = IntervalFigures> {
    (figures(), 0..2u64, 0..100u64).prop_map(|(figures, known, samples)| IntervalFigures {
        milliseconds: 10_000,
        recorded_milliseconds: known * 10_000,
        samples,
        figures,
    })
}

fn row() -> impl Strategy<Value = RowReport> {
    let part = (figures(), window()).prop_map(|(total, window)| PartReport {
        key: String::new(),
        total,
        window,
    });
    let parts = prop::collection::vec(part, 0..6);
    (figures(), window(), parts).prop_map(|(total, window, parts)| RowReport {
        key: String::new(),
        total,
        window,
        parts: numbered(parts, |part, key| part.key = key),
    })
}

/// Names that differ; the last of some is the one of the others.
fn numbered<T>(mut all: Vec<T>, name: impl Fn(&mut T, String)) -> Vec<T> {
    let many = all.len() > 3;
    for (number, one) in all.iter_mut().enumerate() {
        name(one, format!("name {number}"));
    }
    if let (true, Some(last)) = (many, all.last_mut()) {
        name(last, OTHER.to_string());
    }
    all
}

fn probe() -> impl Strategy<Value = ProbeReport> {
    let event = ".{0,40}".prop_map(|text| EventReport {
        row: "name 0".to_string(),
        text,
        ..EventReport::default()
    });
    (
        prop::collection::vec(row(), 0..6),
        prop::collection::vec(event, 0..=MAX_EVENTS),
        ".{0,300}",
        prop::sample::select(vec!["rocksdb", "tcp", "of another version"]),
    )
        .prop_map(|(rows, events, message, kind)| ProbeReport {
            name: "storage".to_string(),
            kind: kind.to_string(),
            state: InstanceState::Attached,
            rows: numbered(rows, |row, key| row.key = key),
            events,
            message,
            ..ProbeReport::default()
        })
}

fn instance() -> impl Strategy<Value = InstanceReport> {
    (
        prop::collection::vec(probe(), 0..3),
        "[a-z]{1,63}",
        ".{0,500}",
    )
        .prop_map(|(probes, name, message)| InstanceReport {
            probe: ProbeReference {
                name,
                ..ProbeReference::default()
            },
            pod: PodReference::default(),
            message,
            probes,
            ..InstanceReport::default()
        })
}

fn report() -> impl Strategy<Value = NodeProbeStatus> {
    prop::collection::vec(instance(), 0..8).prop_map(|mut instances| {
        // No two of a node's are of one CkbProbe on one container.
        for (number, one) in instances.iter_mut().enumerate() {
            one.probe.name.push_str(&number.to_string());
        }
        NodeProbeStatus {
            agent: AgentStatus {
                kernel: "6.18".to_string(),
                ..AgentStatus::default()
            },
            instances,
            ..NodeProbeStatus::default()
        }
    })
}

/// What all rows of a probe come to.
fn totals(probe: &ProbeReport) -> Figures {
    let rows = probe.rows.iter();
    rows.fold(Figures::default(), |mut all, row| {
        all.merge(&row.total);
        all
    })
}

/// The same of the last interval, of rows of which it is known.
fn recent(probe: &ProbeReport) -> Figures {
    let rows = probe.rows.iter();
    let known = rows.filter(|row| row.window.recorded_milliseconds > 0);
    known.fold(Figures::default(), |mut all, row| {
        all.merge(&row.window.figures);
        all
    })
}

fn omitted(report: &NodeProbeStatus) -> Vec<Omitted> {
    let probes = report.instances.iter().flat_map(|one| &one.probes);
    probes.map(|probe| probe.omitted).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_fits_whatever_it_is_and_to_fit_it_again_changes_nothing(
        report in report(),
        bytes in OWN..20_000usize,
    ) {
        let fitted = fit(report.clone(), bytes);
        prop_assert!(size(&fitted) <= bytes, "{} in {bytes}", size(&fitted));
        prop_assert_eq!(fit(fitted.clone(), bytes), fitted.clone());
        if size(&report) <= bytes {
            prop_assert_eq!(fitted, report);
        }
    }

    #[test]
    fn totals_are_what_they_were_wherever_rows_are_told(report in report(), bytes in OWN..20_000usize) {
        let fitted = fit(report.clone(), bytes);
        let dropped = report.instances.len() - fitted.instances.len();
        prop_assert_eq!(fitted.instances_omitted as usize, dropped);
        for after in &fitted.instances {
            let mut befores = report.instances.iter();
            let before = befores.find(|one| one.probe == after.probe).expect("nobody is made up");
            prop_assert_eq!(before.probes.len(), after.probes.len());
            for (before, after) in before.probes.iter().zip(&after.probes) {
                if after.omitted.untold_rows > 0 {
                    prop_assert!(after.rows.is_empty());
                    continue;
                }
                prop_assert_eq!(totals(before), totals(after));
                prop_assert_eq!(recent(before), recent(after));
                for row in &after.rows {
                    let same = before.rows.iter().find(|one| one.key == row.key);
                    if let (Some(same), false) = (same, row.parts.is_empty()) {
                        let parts = |row: &RowReport| row.parts.iter().fold(Figures::default(), |mut all, part| {
                            all.merge(&part.total);
                            all
                        });
                        prop_assert_eq!(parts(same), parts(row));
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_left_out_is_counted_and_said(report in report(), bytes in OWN..20_000usize) {
        let fitted = fit(report.clone(), bytes);
        for after in &fitted.instances {
            let before = report.instances.iter().find(|one| one.probe == after.probe).expect("nobody is made up");
            for (before, after) in before.probes.iter().zip(&after.probes) {
                let gone = before.events.len() - after.events.len();
                prop_assert_eq!(after.omitted.events as usize, gone);
                let is_said = after.lacks(Reason::ReportTruncated);
                prop_assert_eq!(is_said, !after.omitted.is_nothing());
                prop_assert_eq!(is_said, after.message.contains("more than one object holds"));
                // How a target stands is cut short without another word.
                let same = before.rows == after.rows && before.events == after.events;
                prop_assert_eq!(is_said, !same);
            }
        }
    }
}

/// One with so many rows of 16 parts each, each of some 100 bytes, and ten events.
fn large(name: &str, rows: usize) -> InstanceReport {
    let total = |number: usize| Figures {
        sums: BTreeMap::from([("bytes".into(), number as u64 + 1)]),
        ..Figures::default()
    };
    let part = |number: usize| PartReport {
        key: format!("part {number}"),
        total: total(number),
        ..PartReport::default()
    };
    let row = |number: usize| RowReport {
        key: format!("row {number}"),
        total: total(number),
        parts: (0..16).map(part).collect(),
        ..RowReport::default()
    };
    let event = EventReport {
        text: "slow".repeat(10),
        ..EventReport::default()
    };
    InstanceReport {
        probe: ProbeReference {
            name: name.to_string(),
            ..ProbeReference::default()
        },
        probes: vec![ProbeReport {
            kind: "rocksdb".to_string(),
            rows: (0..rows).map(row).collect(),
            events: vec![event; MAX_EVENTS],
            ..ProbeReport::default()
        }],
        ..InstanceReport::default()
    }
}

fn of(instances: Vec<InstanceReport>) -> NodeProbeStatus {
    NodeProbeStatus {
        instances,
        ..NodeProbeStatus::default()
    }
}

#[test]
fn events_go_first_then_parts_then_rows_then_all_rows_then_targets() {
    let report = of((0..4).map(|number| large(&number.to_string(), 8)).collect());
    let whole = size(&report);
    let mut steps = Vec::new();
    let fewer = |bytes: &usize| Some(bytes * 19 / 20).filter(|bytes| *bytes > 300);
    let less = std::iter::successors(Some(whole - 1), fewer);
    for bytes in std::iter::once(whole).chain(less) {
        let fitted = fit(report.clone(), bytes);
        let all = omitted(&fitted);
        let any = |of: fn(&Omitted) -> u32| all.iter().any(|one| of(one) > 0);
        let step = match fitted.instances_omitted {
            1.. => 5,
            0 if any(|one| one.untold_rows) => 4,
            0 if any(|one| one.rows) => 3,
            0 if any(|one| one.parts) => 2,
            0 if any(|one| one.events) => 1,
            0 => 0,
        };
        // What comes later is not touched before all of what comes first is gone, of everybody.
        let gone = |of: fn(&Omitted) -> u32, all_of_it| all.iter().all(|one| of(one) == all_of_it);
        assert!(step < 2 || gone(|one| one.events, 10), "{bytes}: {all:?}");
        assert!(
            step != 3 || gone(|one| one.parts, 8 * 16),
            "{bytes}: {all:?}"
        );
        steps.push(step);
    }
    assert!(steps.is_sorted(), "{steps:?}");
    steps.dedup();
    assert_eq!(steps, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn who_needs_little_loses_nothing_for_the_sake_of_who_needs_much() {
    let small = InstanceReport {
        probes: vec![ProbeReport {
            events: vec![EventReport::default(); 3],
            ..ProbeReport::default()
        }],
        ..InstanceReport::default()
    };
    let report = of(vec![
        large("greedy", 128),
        small.clone(),
        large("greedy too", 128),
    ]);
    let fitted = fit(report.clone(), size(&report) - 2_000);
    assert_eq!(fitted.instances[1], small);
    assert!(fitted.instances[0].probes[0].omitted.events > 0);
    assert!(fitted.instances[2].probes[0].omitted.events > 0);
}

#[test]
fn of_targets_that_nothing_is_told_of_those_go_first_on_which_nothing_is_attached() {
    let mut attached = large("attached", 0);
    attached.state = InstanceState::Attached;
    let waiting = |number: u32| large(&format!("waiting {number}"), 0);
    let report = of((0..10).map(waiting).chain([attached]).collect());
    let fitted = fit(report, 1_200);
    assert!(fitted.instances_omitted > 0);
    assert!(
        fitted
            .instances
            .iter()
            .any(|one| one.probe.name == "attached")
    );
}

#[test]
fn background_work_is_not_folded_into_what_the_node_asked_for() {
    let mut report = of(vec![large("background", 40)]);
    report.instances[0].probes[0].rows[0].key = "Compaction".to_string();
    let fitted = fit(report, 4_000);
    let rows = &fitted.instances[0].probes[0].rows;
    assert!(rows.iter().any(|row| row.key == "Compaction"), "{rows:#?}");
    assert!(rows.iter().any(|row| row.key == OTHER));
}
