use ckb_probe_crds::{
    AgentStatus, Distribution, EventReport, InstanceReport, ProbeReport, ProbeStatus, Reason,
    RowReport, RowStatus, condition, histogram::BUCKETS,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use proptest::{prelude::*, sample::Index};
use serde_json::json;

use super::*;
use crate::{
    desired::tests::shuffled,
    testing::{
        agent, at, container, firing, has, has_agent, measuring, node, node_probe, pod, probe,
        reports, row, runs, untimed, without, world,
    },
    world::{AgentPod, Change, TargetPod},
};

/// One probe and one pod on node `n`, whose agent runs; `changes` come on top.
pub struct Scene {
    pub probe: ProbeRow,
    pub world: World,
}

pub fn scene(
    overrides: serde_json::Value,
    changes: impl FnOnce(&ProbeRow, &TargetPod) -> Vec<Change>,
) -> Scene {
    let probe = probe("a", "p", overrides);
    let pod = pod("a", "ckb-0", Some("n"));
    let base = [has(&probe), runs(&pod), node("n"), has_agent(agent("n"))];
    let world = world(base.into_iter().chain(changes(&probe, &pod)));
    Scene { probe, world }
}

impl Scene {
    pub fn status(&self) -> CkbProbeStatus {
        self.status_at(0)
    }

    pub fn status_at(&self, seconds: i64) -> CkbProbeStatus {
        aggregate(&self.probe, &self.world, at(seconds))
    }
}

/// Status and reason of a condition.
pub fn answer<'a>(status: &'a CkbProbeStatus, type_: &str) -> (&'a str, &'a str) {
    let condition = found(status, type_);
    (&condition.status, &condition.reason)
}

pub fn found<'a>(status: &'a CkbProbeStatus, type_: &str) -> &'a Condition {
    status.conditions.iter().find(|c| c.type_ == type_).unwrap()
}

/// A row of the first probe.
pub fn row_of<'a>(status: &'a CkbProbeStatus, key: &str) -> &'a RowStatus {
    let mut rows = status.probes[0].rows.iter();
    rows.find(|row| row.key == key).unwrap()
}

/// One figure of it; empty where it is not known.
pub fn figure<'a>(row: &'a RowStatus, name: &str) -> &'a str {
    row.figures.get(name).map_or("", |figure| figure)
}

pub fn answers(status: &CkbProbeStatus) -> [(&str, &str); 4] {
    [
        condition::READY,
        condition::PROGRESSING,
        condition::DEGRADED,
        condition::WITHIN_BUDGET,
    ]
    .map(|type_| answer(status, type_))
}

#[test]
fn a_target_that_fires_makes_the_probe_ready() {
    let scene = scene(json!({}), |probe, pod| {
        vec![reports(node_probe("n", 1, vec![firing(probe, pod)]))]
    });
    let status = scene.status();
    assert_eq!(
        answers(&status),
        [
            ("True", "Firing"),
            ("False", "Done"),
            ("False", "Done"),
            ("True", "UnderBudget")
        ]
    );
    assert_eq!(status.targets.summary, "1/1");
    assert_eq!(status.targets.firing, 1);
    assert_eq!(status.overhead.summary.as_deref(), Some("0.4%"));
    assert_eq!(status.overhead.estimated_percent.as_deref(), Some("0.412"));
    assert_eq!(status.overhead.sampling_percent.as_deref(), Some("100"));
    assert_eq!(status.instances[0].tier.as_deref(), Some("session"));
    assert_eq!(status.observed_generation, Some(3));
    assert!(
        status
            .conditions
            .iter()
            .all(|c| c.observed_generation == Some(3))
    );
    let [probe] = &status.probes[..] else {
        panic!("{:?}", status.probes);
    };
    assert_eq!((&*probe.name, &*probe.kind), ("storage", "rocksdb"));
    assert_eq!(
        (probe.targets.matched, probe.targets.firing, &*probe.message),
        (1, 1, "")
    );
    assert_eq!(probe.sampling_percent.as_deref(), Some("100"));
    let get = row_of(&status, "Get");
    assert_eq!(get.sampling_percent.as_deref(), Some("100"));
    // Bucket 119 is 1.472 to 1.536 us; the longest call was 1.48 us.
    let expected = [
        ("bytesPerSecond", "3200"),
        ("count", "1000"),
        ("max", "1.48us"),
        ("p50", "1.48us"),
        ("p90", "1.48us"),
        ("p99", "1.48us"),
        ("perSecond", "100"),
        ("slow", "2"),
    ];
    let expected = expected.map(|(name, shown)| (name.to_owned(), shown.to_owned()));
    assert_eq!(get.figures, expected.into());
    assert_eq!(probe.headline, "100/s p99 1.48us 2 slow");
    assert_eq!(status.headline, "storage 100/s p99 1.48us 2 slow");
}

#[test]
fn no_matching_pod_is_named_with_selector_and_namespace() {
    let probe = probe("a", "p", json!({}));
    let status = aggregate(&probe, &world([has(&probe)]), at(0));
    assert_eq!(
        answers(&status),
        [
            ("False", "NoMatchingPods"),
            ("False", "NoMatchingPods"),
            ("True", "NoMatchingPods"),
            ("True", "NothingAttached"),
        ]
    );
    let message = &found(&status, condition::DEGRADED).message;
    assert!(
        message.contains("namespace a ") && message.contains("app=ckb"),
        "{message}"
    );
    assert_eq!(status.targets.summary, "0/0");
}

#[test]
fn a_pod_that_does_not_run_is_waited_for_and_says_why() {
    let mut unbound = pod("a", "ckb-0", None);
    unbound.trouble = Some("Unschedulable: 0/1 nodes".into());
    let mut pulling = pod("a", "ckb-0", Some("n"));
    pulling.phase = crate::world::Phase::Pending;
    pulling.trouble = Some("container ckb waits: ErrImagePull".into());
    for pod in [unbound, pulling] {
        let why = pod.trouble.clone().unwrap();
        let scene = scene(json!({}), |_, _| vec![runs(&pod)]);
        let status = scene.status();
        assert_eq!(
            answer(&status, condition::PROGRESSING),
            ("True", "PodNotRunning")
        );
        assert_eq!(answer(&status, condition::DEGRADED), ("False", "Done"));
        let message = &status.instances[0].message;
        assert!(
            message.contains("a/ckb-0") && message.contains(&why),
            "{message}"
        );
    }
}

#[test]
fn a_container_that_the_pod_lacks_is_named() {
    let target = json!({ "selector": { "matchLabels": { "app": "ckb" } }, "container": "node" });
    let scene = scene(json!({ "target": target }), |_, _| vec![]);
    let status = scene.status();
    assert_eq!(
        answer(&status, condition::DEGRADED),
        ("True", "ExecutableNotFound")
    );
    let message = &found(&status, condition::DEGRADED).message;
    assert!(
        message.contains("\"node\"") && message.contains("it has ckb"),
        "{message}"
    );
}

#[test]
fn pods_none_of_which_runs_the_executable_are_named_with_it() {
    let scene = scene(json!({}), |probe, pod| {
        let report = InstanceReport {
            container: None,
            state: InstanceState::Waiting,
            reason: Some(Reason::ExecutableNotFound),
            message: "no process in container ckb runs an executable named ckb".into(),
            firing: false,
            probes: vec![],
            ..firing(probe, pod)
        };
        vec![reports(node_probe("n", 1, vec![report]))]
    });
    let status = scene.status();
    assert_eq!(
        answer(&status, condition::DEGRADED),
        ("True", "ExecutableNotFound")
    );
    assert_eq!(
        answer(&status, condition::READY),
        ("False", "ExecutableNotFound")
    );
    let message = &found(&status, condition::DEGRADED).message;
    assert!(
        message.contains("pod a/ckb-0") && message.contains("is \"ckb\""),
        "{message}"
    );
    assert_eq!(status.targets.summary, "0/1");
}

#[test]
fn a_process_that_is_between_two_lives_is_waited_for() {
    let scene = scene(json!({}), |probe, pod| {
        let report = InstanceReport {
            state: InstanceState::Waiting,
            reason: Some(Reason::ExecutableNotFound),
            firing: false,
            ..firing(probe, pod)
        };
        vec![reports(node_probe("n", 1, vec![report]))]
    });
    let status = scene.status();
    assert_eq!(answer(&status, condition::DEGRADED), ("False", "Done"));
    assert_eq!(
        answer(&status, condition::PROGRESSING),
        ("True", "ExecutableNotFound")
    );
    let get = row_of(&status, "Get");
    assert_eq!(figure(get, "count"), "1000", "what was counted stays");
    assert_eq!(figure(get, "perSecond"), "", "nothing is known of now");
}

#[test]
fn a_missing_symbol_degrades_what_is_ready_all_the_same() {
    let scene = scene(json!({}), |probe, pod| {
        let report = InstanceReport {
            message: "measuring process 7; not measured: Write, since rocksdb_write was not found"
                .into(),
            ..firing(probe, pod)
        };
        let report = without(report, Reason::SymbolNotFound, "Write");
        vec![reports(node_probe("n", 1, vec![report]))]
    });
    let status = scene.status();
    assert_eq!(answer(&status, condition::READY), ("True", "Firing"));
    assert_eq!(
        answer(&status, condition::DEGRADED),
        ("True", "SymbolNotFound")
    );
    let message = &found(&status, condition::DEGRADED).message;
    assert!(
        message.contains("a/ckb-0") && message.contains("rocksdb_write"),
        "{message}"
    );
}

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

#[test]
fn each_process_is_a_target_and_a_pod_without_any_is_one() {
    let scene = scene(json!({}), |probe, pod| {
        let second = InstanceReport {
            container: Some("sidecar".into()),
            ..firing(probe, pod)
        };
        let other = crate::testing::pod("a", "ckb-1", Some("n"));
        vec![
            runs(&other),
            reports(node_probe("n", 1, vec![firing(probe, pod), second])),
        ]
    });
    let status = scene.status();
    assert_eq!(status.targets.summary, "2/3");
    assert_eq!(status.instances[0].pod, "ckb-1", "the worst first");
    assert_eq!(
        answer(&status, condition::READY),
        ("False", "AgentStarting")
    );
}

#[test]
fn a_pause_detaches_and_an_end_of_time_does_too() {
    for (overrides, reason) in [
        (json!({ "paused": true }), "Paused"),
        (json!({ "duration": "100s" }), "Expired"),
    ] {
        let held = scene(overrides.clone(), |probe, pod| {
            vec![reports(node_probe("n", 1, vec![firing(probe, pod)]))]
        });
        assert_eq!(
            answer(&held.status(), condition::PROGRESSING),
            ("True", reason)
        );
        let free = scene(overrides, |_, _| vec![reports(node_probe("n", 1, vec![]))]);
        let status = free.status();
        assert_eq!(
            answers(&status),
            [
                ("False", reason),
                ("False", "Done"),
                ("False", reason),
                ("True", "NothingAttached")
            ]
        );
        assert_eq!(status.instances[0].state, InstanceState::Detached);
    }
}

#[test]
fn a_target_detached_over_budget_is_degraded() {
    let scene = scene(json!({}), |probe, pod| {
        let report = InstanceReport {
            state: InstanceState::Detached,
            reason: Some(Reason::OverBudget),
            firing: false,
            ..firing(probe, pod)
        };
        vec![reports(node_probe("n", 1, vec![report]))]
    });
    let status = scene.status();
    assert_eq!(
        answers(&status),
        [
            ("False", "OverBudget"),
            ("False", "OverBudget"),
            ("True", "OverBudget"),
            ("False", "OverBudget")
        ]
    );
}

#[test]
fn a_spec_that_makes_no_sense_says_so() {
    let mut broken = probe("a", "p", json!({}));
    broken.spec = ValidSpec::parse(Some(json!({ "probes": 1 })));
    let status = aggregate(&broken, &world([has(&broken)]), at(0));
    assert_eq!(answer(&status, condition::READY), ("False", "InvalidSpec"));
    assert_eq!(
        answer(&status, condition::DEGRADED),
        ("True", "InvalidSpec")
    );
}

#[test]
fn a_time_of_transition_is_kept_until_the_status_changes() {
    let mut scene = scene(json!({}), |probe, pod| {
        vec![reports(node_probe("n", 0, vec![firing(probe, pod)]))]
    });
    let first = scene.status_at(1);
    scene.probe.status = Some(first.clone());
    let second = scene.status_at(2);
    assert_eq!(first.conditions, second.conditions);
    assert!(same(&first, &second));
    scene.probe.status = Some(second);
    let silent = scene.status_at(99);
    assert_eq!(
        found(&silent, condition::READY).last_transition_time.0,
        at(99)
    );
    assert_eq!(
        found(&silent, condition::PROGRESSING)
            .last_transition_time
            .0,
        at(1)
    );
    assert!(!same(&first, &silent));
}

#[test]
fn the_list_of_targets_is_bounded_and_says_what_it_leaves_out() {
    let probe = probe("a", "p", json!({}));
    let pods = (0..60).map(|n| runs(&pod("a", &format!("ckb-{n:02}"), Some("n"))));
    let world = world([has(&probe), node("n")].into_iter().chain(pods));
    let status = aggregate(&probe, &world, at(0));
    assert_eq!(status.targets.matched, 60);
    assert_eq!((status.instances.len(), status.instances_omitted), (50, 10));
    let message = &found(&status, condition::READY).message;
    assert!(message.len() < 1000, "{message}");
}

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
        let pods = [0, 1, 2].map(|n| pod("a", &format!("ckb-{n}"), Some("n")));
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
        let with = |instances: Vec<InstanceReport>| {
            let mut row = node_probe("n", age, instances);
            if let Some(status) = &mut row.status {
                status.agent = AgentStatus::default();
            }
            let pods = pods.iter().map(runs);
            world(pods.chain([has(&probe), node("n"), reports(row)]))
        };
        let first = aggregate(&probe, &with(instances.clone()), at(0));
        let second = aggregate(&probe, &with(shuffled(&instances, &picks)), at(0));
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

#[test]
fn containers_of_a_pod_are_looked_up_by_the_spec() {
    let scene = scene(json!({}), |_, _| {
        let mut pod = pod("a", "ckb-0", Some("n"));
        pod.containers = vec![container("x"), container("y")];
        vec![runs(&pod)]
    });
    assert_eq!(scene.status().targets.matched, 1);
}
