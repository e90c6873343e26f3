use ckb_probe_crds::{CkbProbeStatus, InstanceReport};
use serde_json::{Value, json};

use crate::{
    aggregate::tests::{Scene, answer, assert_says, found, scene, scene_of},
    testing::{firing, node_probe, reports},
};

use super::*;

const OVER: (&str, &str) = ("False", "OverBudget");
const UNDER: (&str, &str) = ("True", "UnderBudget");

/// One target that pays so many thousandths of a percent.
fn paying(overhead: Value, millipercent: u64) -> Scene {
    scene_of(json!({ "overhead": overhead }), |probe, pod| {
        InstanceReport {
            overhead_millipercent: Some(millipercent),
            ..firing(probe, pod)
        }
    })
}

fn verdict(status: &CkbProbeStatus) -> (&str, &str) {
    answer(status, condition::WITHIN_BUDGET)
}

fn message(status: &CkbProbeStatus) -> &str {
    &found(status, condition::WITHIN_BUDGET).message
}

#[test]
fn a_breach_of_the_budget_names_the_pod_and_the_figures() {
    for on_breach in ["Report", "Detach"] {
        let overhead = json!({ "maxPercent": 0.4, "onBreach": on_breach });
        let status = paying(overhead, 412).status();
        assert_eq!(verdict(&status), OVER);
        let message = message(&status);
        assert_says(message, ["a/ckb-0 0.412 %", "maxPercent 0.4"]);
    }
}

#[test]
fn the_ceiling_itself_is_no_breach_and_sampling_may_touch_it() {
    for (on_breach, millipercent, expected) in [
        ("Report", 1000, UNDER),
        ("Report", 1001, OVER),
        ("Detach", 1000, UNDER),
        ("Detach", 1001, OVER),
        ("Sample", 1000, UNDER),
        ("Sample", 1100, UNDER),
        ("Sample", 1101, OVER),
    ] {
        let overhead = json!({ "maxPercent": 1, "onBreach": on_breach });
        let status = paying(overhead, millipercent).status();
        assert_eq!(verdict(&status), expected, "{on_breach} {millipercent}");
    }
}

#[test]
fn a_breach_lasts_until_the_estimate_is_back_at_the_ceiling() {
    let after = |scene: &Scene, status: CkbProbeStatus| Scene {
        probe: CkbProbeEntry {
            status: Some(status.into()),
            ..scene.probe.clone()
        },
        world: scene.world.clone(),
    };
    let [ceiling, between, above] =
        [1000, 1050, 1150].map(|millipercent| paying(json!({}), millipercent));
    let breach = above.status();
    assert_eq!(verdict(&breach), OVER);
    let still = after(&between, breach).status();
    assert_eq!(verdict(&still), OVER);
    let over = after(&ceiling, still).status();
    assert_eq!(verdict(&over), UNDER);
    let calm = after(&between, over).status();
    assert_eq!(verdict(&calm), UNDER);
}

#[test]
fn the_agent_knows_better_when_sampling_does_not_suffice() {
    let scene = scene_of(json!({}), |probe, pod| InstanceReport {
        reason: Some(Reason::OverBudget),
        message: "rare operations alone cost more than maxPercent".into(),
        ..firing(probe, pod)
    });
    let status = scene.status();
    assert_eq!(verdict(&status), OVER);
    assert!(message(&status).contains("rare operations alone"));
}

#[test]
fn a_budget_that_is_kept_by_sampling_says_so_without_figures_that_change() {
    let sampled = |recorded, millipercent| {
        scene_of(json!({}), |probe, pod| {
            let mut report = InstanceReport {
                overhead_millipercent: Some(millipercent),
                ..firing(probe, pod)
            };
            report.probes[0].rows[0].window.recorded_milliseconds = recorded;
            report
        })
        .status()
    };
    let [one, other] = [sampled(40, 950), sampled(60, 1010)];
    assert_eq!(verdict(&one), UNDER);
    assert_eq!(
        message(&one),
        "probing is kept below overhead.maxPercent 1 by sampling: see status.probes[].rows[].samplingPercent"
    );
    assert_eq!(message(&one), message(&other));
    assert_eq!(
        message(&sampled(1000, 300)),
        "probing is estimated to cost no more than overhead.maxPercent 1"
    );
}

/// One target that pays so much, may pay so much, and whose agent has a ceiling.
fn allowed(overhead: Value, millipercent: u64, budget: u64) -> Scene {
    scene(json!({ "overhead": overhead }), |probe, pod| {
        let mut report = InstanceReport {
            overhead_millipercent: Some(millipercent),
            own_overhead_millipercent: Some(millipercent / 2),
            budget_millipercent: Some(budget),
            floor_millipercent: Some(50),
            ..firing(probe, pod)
        };
        report.probes[0].rows[0].window.recorded_milliseconds = 40;
        let mut row = node_probe("n", 1, vec![report]);
        if let Some(status) = &mut row.status {
            status.agent.ceiling_millipercent = Some(5_000);
        }
        vec![reports(row)]
    })
}

/// One that may pay 1.05 % and paid twice as much in its last interval, and in the last minute so many percent of what it might.
fn paid(used: u64) -> Scene {
    scene(json!({ "overhead": { "maxPercent": 1 } }), |probe, pod| {
        let report = InstanceReport {
            overhead_millipercent: Some(2_100),
            budget_millipercent: Some(1_000),
            floor_millipercent: Some(50),
            budget_used_millipercent: Some(used * 1_000),
            ..firing(probe, pod)
        };
        vec![reports(node_probe("n", 1, vec![report]))]
    })
}

#[test]
fn a_slice_that_a_minute_pays_for_is_no_breach() {
    let status = paid(110).status();
    assert_eq!(verdict(&status), UNDER);
    assert_eq!(
        status.overhead.budget_used_percent.as_deref(),
        Some("110"),
        "{:?}",
        status.overhead
    );
    assert_eq!(verdict(&paid(111).status()), OVER);
}

#[test]
fn what_others_allow_is_no_breach_of_ones_own_budget() {
    let status = allowed(json!({ "maxPercent": 1 }), 2_400, 2_500).status();
    assert_eq!(verdict(&status), UNDER);
    assert_eq!(
        message(&status),
        "probing is kept below the overhead.maxPercent 2.5 that another CkbProbe allows by sampling: see \
         status.probes[].rows[].samplingPercent"
    );
    let overhead = &status.overhead;
    let told = [
        &overhead.estimated_percent,
        &overhead.own_percent,
        &overhead.budget_percent,
        &overhead.floor_percent,
    ];
    assert_eq!(
        told.map(Option::as_deref),
        [Some("2.4"), Some("1.2"), Some("2.5"), Some("0.05")]
    );
    assert_eq!(
        status.instances[0].own_overhead_percent.as_deref(),
        Some("1.2")
    );
    // But for those who want to be told.
    let status = allowed(
        json!({ "maxPercent": 1, "onBreach": "Report" }),
        2_600,
        2_500,
    )
    .status();
    assert_eq!(verdict(&status), OVER);
}

#[test]
fn the_ceiling_of_the_installation_is_named_where_it_is_what_limits() {
    let status = allowed(json!({ "maxPercent": 20 }), 4_900, 5_000).status();
    assert_eq!(verdict(&status), UNDER);
    assert!(
        message(&status).starts_with(
            "probing is kept below the ceiling of this installation, agent.maxOverheadPercent 5 by sampling"
        ),
        "{}",
        message(&status)
    );
    let status = allowed(
        json!({ "maxPercent": 1, "onBreach": "Report" }),
        4_900,
        1_000,
    )
    .status();
    assert_eq!(verdict(&status), OVER);
    let message = message(&status);
    assert!(
        message.contains("4.9 % of its CPU time, above overhead.maxPercent 1: raise it")
            && message
                .contains("below the ceiling of this installation, agent.maxOverheadPercent 5"),
        "{message}"
    );
}
