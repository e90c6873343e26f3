mod agents;
mod garbage;
mod pods;

use ckb_probe_crds::{InstanceReport, ProfileMode, Reason, RowStatus, condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::watcher::Event;
use serde_json::json;

use super::*;
use crate::{
    profiles::rows::{News, ProfileEntry},
    testing::{
        agent, at, firing, has, has_agent, node, node_probe, pod, probe, reports, runs, without,
        world,
    },
    world::{Change, ObjectKey, Row as _, TargetPod},
};

/// One probe and one pod on node `n`, whose agent runs; `changes` come on top.
pub struct Scene {
    pub probe: CkbProbeEntry,
    pub world: World,
}

pub fn scene(
    overrides: serde_json::Value,
    changes: impl FnOnce(&CkbProbeEntry, &TargetPod) -> Vec<Change>,
) -> Scene {
    let probe = probe("a", "p", overrides);
    let pod = pod("a", "ckb-0", Some("n"));
    let base = [has(&probe), runs(&pod), node("n"), has_agent(agent("n"))];
    let world = world(base.into_iter().chain(changes(&probe, &pod)));
    Scene { probe, world }
}

/// The same of which the agent tells this of the pod.
pub fn scene_of(
    overrides: serde_json::Value,
    report: impl FnOnce(&CkbProbeEntry, &TargetPod) -> InstanceReport,
) -> Scene {
    scene(overrides, |probe, pod| {
        vec![reports(node_probe("n", 1, vec![report(probe, pod)]))]
    })
}

impl Scene {
    pub fn status(&self) -> CkbProbeStatus {
        self.status_at(0)
    }

    pub fn status_at(&self, seconds: i64) -> CkbProbeStatus {
        aggregate(
            &self.probe,
            &self.world,
            None,
            &mut Past::default(),
            at(seconds),
        )
    }
}

/// Where nothing is wrong: of Ready, Progressing, Degraded and WithinBudget.
pub const WELL: [(&str, &str); 4] = [
    ("True", "Firing"),
    ("False", "Done"),
    ("False", "Done"),
    ("True", "UnderBudget"),
];

/// Status and reason of a condition.
pub fn answer<'a>(status: &'a CkbProbeStatus, type_: &str) -> (&'a str, &'a str) {
    let condition = found(status, type_);
    (&condition.status, &condition.reason)
}

/// A condition has this status and this reason.
#[track_caller]
pub fn is(status: &CkbProbeStatus, type_: &str, is: &str, reason: &str) {
    assert_eq!(answer(status, type_), (is, reason), "{type_}");
}

/// A message has all of these words.
#[track_caller]
pub fn assert_says<'a>(message: &str, words: impl IntoIterator<Item = &'a str>) {
    for words in words {
        assert!(message.contains(words), "{words:?} is not in {message}");
    }
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
    assert_eq!(answers(&status), WELL);
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
fn what_became_of_spans_is_added_up_over_all_targets() {
    let spans = |started, dropped, message: &str| {
        Some(SpanCounts {
            started,
            exported: started - dropped,
            dropped,
            queued: 0,
            message: message.to_owned(),
        })
    };
    let scene = scene(json!({ "traces": {} }), |probe, first| {
        let second = pod("a", "ckb-1", Some("n"));
        let one = InstanceReport {
            spans: spans(10, 1, ""),
            ..firing(probe, first)
        };
        let other = InstanceReport {
            spans: spans(5, 5, "nobody takes them"),
            ..firing(probe, &second)
        };
        let report = node_probe("n", 1, vec![one, other]);
        vec![runs(&second), reports(report)]
    });
    let status = scene.status();
    assert_eq!(status.traces, spans(15, 6, "nobody takes them"));
    // Counts alone are figures, which need not be written at once.
    let mut later = status.clone();
    later.traces = spans(20, 6, "nobody takes them");
    assert!(same_but_figures(&status, &later));
    later.traces = spans(20, 6, "");
    assert!(!same_but_figures(&status, &later));
}

#[test]
fn a_missing_symbol_degrades_what_is_ready_all_the_same() {
    let scene = scene_of(json!({}), |probe, pod| {
        let report = InstanceReport {
            message: "measuring process 7; not measured: Write, since rocksdb_write was not found"
                .into(),
            ..firing(probe, pod)
        };
        without(report, Reason::SymbolNotFound, "Write")
    });
    let status = scene.status();
    is(&status, condition::READY, "True", "Firing");
    is(&status, condition::DEGRADED, "True", "SymbolNotFound");
    let message = &found(&status, condition::DEGRADED).message;
    assert_says(message, ["a/ckb-0", "rocksdb_write"]);
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
    let scene = scene_of(json!({}), |probe, pod| InstanceReport {
        state: InstanceState::Detached,
        reason: Some(Reason::OverBudget),
        firing: false,
        ..firing(probe, pod)
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
    let status = aggregate(
        &broken,
        &world([has(&broken)]),
        None,
        &mut Past::default(),
        at(0),
    );
    is(&status, condition::READY, "False", "InvalidSpec");
    is(&status, condition::DEGRADED, "True", "InvalidSpec");
}

#[test]
fn a_time_of_transition_is_kept_until_the_status_changes() {
    let mut scene = scene(json!({}), |probe, pod| {
        vec![reports(node_probe("n", 0, vec![firing(probe, pod)]))]
    });
    let first = scene.status_at(1);
    scene.probe.status = Some(first.clone().into());
    let second = scene.status_at(2);
    assert_eq!(first.conditions, second.conditions);
    assert!(same(&first, &second));
    scene.probe.status = Some(second.into());
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
fn the_newest_profile_of_each_mode_is_named_and_those_of_before_until_they_are_listed() {
    let probes = json!([
        { "name": "storage", "rocksdb": { "stacks": true } },
        { "name": "flames", "profile": { "modes": ["Cpu", "OffCpu"] } },
    ]);
    let mut scene = scene(json!({ "probes": probes }), |_, _| Vec::new());
    let key = scene.probe.key();
    let named = |scene: &Scene| {
        let probes = scene.status().probes.into_iter();
        let named: Vec<Vec<String>> = probes.map(|probe| probe.profiles).collect();
        named
    };
    assert_eq!(named(&scene), [vec![], vec![] as Vec<String>]);
    let mut status = scene.status();
    status.probes[0].profiles = vec!["p.storage.slowcalls.6".into()];
    scene.probe.status = Some(status.into());
    assert_eq!(
        named(&scene),
        [vec!["p.storage.slowcalls.6".to_string()], vec![]]
    );

    let row = |probe: &str, mode: ProfileMode, window: u64, created: i64| ProfileEntry {
        key: ObjectKey::new(
            "a",
            format!("p.{probe}.{}.{window}", mode.as_str().to_lowercase()),
        ),
        uid: window.to_string(),
        owner: Some(scene.probe.reference.uid.clone()),
        probe: probe.into(),
        mode: Some(mode),
        window,
        bytes: 1,
        created: at(created),
        deleting: false,
    };
    let mut strangers = row("storage", ProfileMode::SlowCalls, 9, 9);
    strangers.owner = Some("an earlier one".into());
    let mut leaving = row("storage", ProfileMode::SlowCalls, 10, 10);
    leaving.deleting = true;
    let rows = [
        row("storage", ProfileMode::SlowCalls, 8, 2),
        row("storage", ProfileMode::SlowCalls, 7, 1),
        strangers,
        leaving,
        row("flames", ProfileMode::OffCpu, 1, 1),
        row("flames", ProfileMode::Cpu, 900, 1),
        // Its `every` was made longer meanwhile: numbers begin anew.
        row("flames", ProfileMode::Cpu, 90, 2),
    ];
    let listed = Change::Profiles(News::Profile(Event::InitDone));
    scene.world.apply(listed, at(0));
    for row in rows {
        let owned = row.owner != Some("an earlier one".into());
        let touched = scene
            .world
            .apply(Change::Profiles(News::Profile(Event::Apply(row))), at(0));
        assert_eq!(touched.probes.contains(&key), owned, "{touched:?}");
    }
    let of_storage = vec!["p.storage.slowcalls.8".to_string()];
    let of_flames = vec![
        "p.flames.cpu.90".to_string(),
        "p.flames.offcpu.1".to_string(),
    ];
    assert_eq!(named(&scene), [of_storage, of_flames]);
}
