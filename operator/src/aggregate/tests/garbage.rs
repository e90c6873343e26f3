//! Whatever agents report.

use ckb_probe_crds::{
    AgentStatus, Distribution, EventReport, InstanceReport, InstanceState, ProbeReport,
    ProbeStatus, Reason, RowReport, histogram::BUCKETS,
};
use proptest::{prelude::*, sample::Index};
use serde_json::json;

use crate::{
    aggregate::{Past, aggregate},
    desired::tests::shuffled,
    testing::{
        at, container, has, measuring, node, node_probe, pod, probe, reports, row, runs, untimed,
        without, world,
    },
};

fn garbage() -> impl Strategy<Value = InstanceReport> {
    let states = prop::sample::select(vec![
        InstanceState::Failed,
        InstanceState::Waiting,
        InstanceState::Detached,
        InstanceState::Attached,
    ]);
    let reasons = prop::option::of(prop::sample::select(vec![
        Reason::Firing,
        Reason::Silent,
        Reason::OverBudget,
        Reason::ExecutableNotFound,
        Reason::TargetDied,
        Reason::Paused,
    ]));
    let events = prop::collection::vec((0..3_u64, "[ab]"), 0..4).prop_map(|events| {
        let event = |(weight, row)| EventReport {
            weight,
            row,
            ..EventReport::default()
        };
        events.into_iter().map(event).collect::<Vec<_>>()
    });
    let probe = (
        (
            prop::sample::select(vec!["storage", "other"]),
            states.clone(),
            reasons.clone(),
        ),
        prop::collection::vec(wild_row(), 0..4),
        events,
        any::<(bool, u64)>(),
        prop::collection::vec("[a-z]{0,3}", 0..3),
    );
    let probe = probe.prop_map(
        |((name, state, reason), rows, events, (firing, lost), lacks)| {
            let report = InstanceReport {
                probes: vec![ProbeReport {
                    state,
                    reason,
                    firing,
                    events,
                    lost: [("calls".to_owned(), lost)].into(),
                    ..measuring(name, rows)
                }],
                ..InstanceReport::default()
            };
            let report = lacks.iter().fold(report, |report, item| {
                without(report, Reason::SymbolNotFound, item)
            });
            report.probes
        },
    );
    (
        states,
        reasons,
        prop::collection::vec(probe, 0..3),
        any::<(bool, u64, u64)>(),
        prop::option::of("[a-z]{0,3}"),
    )
        .prop_map(
            |(state, reason, probes, (firing, gap, over), container)| InstanceReport {
                state,
                reason,
                probes: probes.concat(),
                firing,
                container,
                reattaches: gap,
                gap_milliseconds: gap,
                overhead_millipercent: Some(over),
                ..InstanceReport::default()
            },
        )
}

fn wild_row() -> impl Strategy<Value = RowReport> {
    let names = prop::sample::select(vec!["Get", "Write", "Fly"]);
    let buckets = prop::collection::vec((0..BUCKETS + 9, any::<u64>()), 0..4);
    (names, buckets, any::<(u64, u64, u64)>()).prop_map(|(name, buckets, (count, millis, max))| {
        let mut wild = row(name, 0, "");
        wild.total.sums.insert("slow".into(), count);
        let duration = "duration".into();
        wild.total.distributions.insert(duration, untimed(count));
        wild.window.milliseconds = millis % 3;
        wild.window.recorded_milliseconds = millis % 5;
        wild.window.samples = count;
        let figures = &mut wild.window.figures;
        figures.sums.insert("bytes".into(), count);
        figures.maxima.insert("duration".into(), max);
        let timed = Distribution {
            histogram: buckets.into_iter().collect(),
            ..untimed(count)
        };
        figures.distributions.insert("duration".into(), timed);
        wild
    })
}

/// All but what rests on rates, whose last bit depends on the order.
fn certain(probes: &[ProbeStatus]) -> Vec<ProbeStatus> {
    let certain = |probe: &ProbeStatus| {
        let mut probe = probe.clone();
        probe.headline.clear();
        for row in &mut probe.rows {
            row.figures.retain(|name, _| !name.ends_with("erSecond"));
        }
        probe.rows.sort_by(|a, b| a.key.cmp(&b.key));
        probe
    };
    probes.iter().map(certain).collect()
}

proptest! {
    #[test]
    fn whatever_agents_report_makes_a_status_and_in_any_order_the_same(
        garbage in prop::collection::vec((garbage(), 0..3_u8), 0..8),
        picks in prop::collection::vec(any::<Index>(), 8),
        age in -100..100_i64,
    ) {
        let probe = probe("a", "p", json!({}));
        let mut pods = [0, 1, 2].map(|n| pod("a", &format!("ckb-{n}"), Some("n")));
        let instances: Vec<InstanceReport> = garbage
            .into_iter()
            .enumerate()
            .map(|(pid, (report, n))| InstanceReport {
                probe: probe.reference.clone(),
                pod: pods[usize::from(n)].reference.clone(),
                // Distinct: equals would be listed in the order of the report.
                container: report.container.map(|name| format!("{name}{pid}")),
                ..report
            })
            .collect();
        for pod in &mut pods {
            let names = instances.iter().filter_map(|report| report.container.as_deref());
            pod.containers = names.map(container).collect();
        }
        let with = |instances: Vec<InstanceReport>| {
            let mut row = node_probe("n", age, instances);
            if let Some(status) = &mut row.status {
                status.agent = AgentStatus::default();
            }
            let pods = pods.iter().map(runs);
            world(pods.chain([has(&probe), node("n"), reports(row)]))
        };
        let first = aggregate(&probe, &with(instances.clone()), None, &mut Past::default(), at(0));
        let second = aggregate(&probe, &with(shuffled(&instances, &picks)), None, &mut Past::default(), at(0));
        prop_assert!(first.targets.attached <= first.targets.matched);
        prop_assert!(first.targets.firing <= first.targets.attached);
        let processes = instances.iter().all(|report| report.container.is_some());
        if processes {
            prop_assert_eq!(&first.targets, &second.targets);
            prop_assert_eq!(&first.instances, &second.instances);
            prop_assert_eq!(&first.conditions, &second.conditions);
            prop_assert_eq!(certain(&first.probes), certain(&second.probes));
            prop_assert_eq!(&first.overhead, &second.overhead);
        }
        serde_json::to_string(&first).unwrap();
    }
}
