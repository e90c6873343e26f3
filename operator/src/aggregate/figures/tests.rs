use ckb_probe_crds::{InstanceReport, histogram::BUCKETS};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    aggregate::tests::{Scene, scene, wild_operation},
    testing::{firing, node_probe, operation, reports, runs},
};

/// Calls of `Get` in a window of a second, of which so many milliseconds were recorded.
fn recorded(count: u64, recorded_milliseconds: u64) -> OperationReport {
    let mut report = operation("Get", count, "119:1");
    report.window.recorded_milliseconds = recorded_milliseconds;
    report.window.samples = count * recorded_milliseconds / 1000;
    report
}

/// One target for each of these reports.
fn targets(reported: Vec<OperationReport>) -> Scene {
    scene(json!({}), |probe, pod| {
        let instances = reported.iter().enumerate().map(|(n, operation)| {
            let name = format!("ckb-{n}");
            let pod = crate::testing::pod(&pod.reference.namespace, &name, Some("n"));
            let report = InstanceReport {
                operations: vec![operation.clone()],
                ..firing(probe, &pod)
            };
            (runs(&pod), report)
        });
        let (pods, instances): (Vec<_>, Vec<_>) = instances.unzip();
        let report = reports(node_probe("n", 1, instances));
        pods.into_iter().chain([report]).collect()
    })
}

#[test]
fn a_sampled_operation_says_in_how_much_of_the_time_it_was_recorded() {
    let status = targets(vec![recorded(1000, 46)]).status();
    let get = &status.operations[0];
    assert_eq!(get.per_second, "1000", "agents scale");
    assert_eq!(get.sampling_percent.as_deref(), Some("4.6"));
    assert_eq!(get.samples, 46);
    assert_eq!(status.overhead.sampling_percent.as_deref(), Some("4.6"));
    assert_eq!(
        status.overhead.summary.as_deref(),
        Some("0.4% (4.6% sampled)")
    );
}

#[test]
fn sampled_and_unsampled_targets_add_up_and_share_their_time() {
    let status = targets(vec![recorded(1000, 100), recorded(20, 1000)]).status();
    let get = &status.operations[0];
    assert_eq!(get.per_second, "1020");
    assert_eq!(get.sampling_percent.as_deref(), Some("55"));
    assert_eq!(get.samples, 120);
}

#[test]
fn the_operation_that_is_sampled_most_sparsely_speaks_for_all() {
    let scene = scene(json!({}), |probe, pod| {
        let mut rare = operation("Write", 3, "119:3");
        rare.window.samples = 3;
        let report = InstanceReport {
            operations: vec![recorded(1000, 250), rare],
            ..firing(probe, pod)
        };
        vec![reports(node_probe("n", 1, vec![report]))]
    });
    let status = scene.status();
    let shares = status.operations.iter().map(|o| o.sampling_percent.clone());
    assert_eq!(
        shares.collect::<Vec<_>>(),
        [Some("25".into()), Some("100".into())]
    );
    assert_eq!(status.overhead.sampling_percent.as_deref(), Some("25"));
}

#[test]
fn an_interval_of_which_nothing_is_known_is_no_rate_of_zero() {
    let mut unknown = recorded(0, 0);
    unknown.window.histogram = Histogram::default();
    let status = targets(vec![unknown.clone()]).status();
    let get = &status.operations[0];
    assert_eq!((&*get.per_second, &get.p50), ("", &None));
    assert_eq!(get.bytes_per_second, None);
    assert_eq!(get.sampling_percent.as_deref(), Some("0"));
    assert_eq!(status.totals.per_second, None);

    let status = targets(vec![unknown, recorded(500, 1000)]).status();
    let get = &status.operations[0];
    assert_eq!(get.per_second, "500");
    assert_eq!(get.sampling_percent.as_deref(), Some("50"));
}

#[test]
fn before_the_first_interval_has_ended_no_share_is_known() {
    let mut fresh = recorded(0, 0);
    fresh.window = Window::default();
    let status = targets(vec![fresh]).status();
    assert_eq!(status.operations[0].sampling_percent, None);
    assert_eq!(status.overhead.sampling_percent, None);
    assert_eq!(status.overhead.summary.as_deref(), Some("0.4%"));
}

#[test]
fn calls_that_were_counted_and_not_timed_have_a_rate_and_no_quantiles() {
    let mut untimed = operation("Get", 300, "");
    untimed.window.max_nanoseconds = 0;
    let status = targets(vec![untimed]).status();
    let get = &status.operations[0];
    assert_eq!(get.per_second, "300");
    assert_eq!((&get.p50, &get.p99, &get.max), (&None, &None, &None));
}

#[test]
fn background_work_is_listed_and_is_no_part_of_the_totals() {
    let probes = json!([{ "name": "storage", "rocksdb": { "operations": ["Get", "Compaction"] } }]);
    let scene = scene(json!({ "probes": probes }), |probe, pod| {
        let mut compaction = operation("Compaction", 1, "500:1");
        compaction.window.max_nanoseconds = 3_000_000_000;
        let report = InstanceReport {
            operations: vec![operation("Get", 100, "119:100"), compaction],
            ..firing(probe, pod)
        };
        vec![reports(node_probe("n", 1, vec![report]))]
    });
    let status = scene.status();
    assert_eq!(status.operations[1].max.as_deref(), Some("3s"));
    assert_eq!(status.totals.max.as_deref(), Some("1.48us"));
    assert_eq!(status.totals.per_second.as_deref(), Some("100"));
    assert_eq!(status.totals.slow, 2);
}

/// The operation with these calls in each of these families.
fn families(names: &[(&str, u64)]) -> OperationReport {
    let mut report = operation("Get", 100, "119:100");
    report.column_families = names
        .iter()
        .map(|(name, count)| {
            let OperationReport { total, window, .. } = operation("Get", *count, "119:1");
            ColumnFamilyReport {
                name: (*name).to_owned(),
                total,
                window,
            }
        })
        .collect();
    report
}

#[test]
fn column_families_are_merged_by_name_and_the_busiest_comes_first() {
    let status = targets(vec![
        families(&[("CELL", 20), ("EPOCH", 5), ("BLOCK_BODY", 5)]),
        families(&[("EPOCH", 30), ("CELL", 1)]),
    ])
    .status();
    let shown: Vec<_> = status.operations[0]
        .column_families
        .iter()
        .map(|family| (&*family.name, &*family.per_second, family.count))
        .collect();
    assert_eq!(
        shown,
        [
            ("EPOCH", "35", 350),
            ("CELL", "21", 210),
            ("BLOCK_BODY", "5", 50)
        ]
    );
    let cell = &status.operations[0].column_families[1];
    assert_eq!(cell.p50.as_deref(), Some("1.48us"));
    assert_eq!(cell.max.as_deref(), Some("1.48us"));
    assert_eq!(cell.slow, 4);
}

#[test]
fn of_many_column_families_the_busiest_are_listed() {
    let names: Vec<_> = (0..70).map(|n| format!("family-{n}")).collect();
    let many: Vec<_> = names.iter().map(|name| &**name).zip(1..).collect();
    let status = targets(vec![families(&many)]).status();
    let listed = &status.operations[0].column_families;
    assert_eq!(listed.len(), MAX_COLUMN_FAMILIES);
    assert_eq!(
        (&*listed[0].name, &*listed[63].name),
        ("family-69", "family-6")
    );
}

/// Counts and whole-second windows, so that sums are exact.
fn tame_operation() -> impl Strategy<Value = OperationReport> {
    let buckets = prop::collection::vec((0..BUCKETS, 1..1000_u64), 0..6);
    let families = prop::collection::vec((0..4_usize, 0..1000_u64), 0..6);
    let name = |index: usize| ["CELL", "EPOCH", "INDEX", "other"][index];
    (buckets, 0..1_000_000_u64, 0..=1000_u64, families).prop_map(
        move |(buckets, max, milliseconds, calls)| {
            let histogram: Histogram = buckets.into_iter().collect();
            let count = histogram.count();
            let calls: Vec<_> = calls
                .into_iter()
                .map(|(index, count)| (name(index), count))
                .collect();
            OperationReport {
                window: Window {
                    max_nanoseconds: max,
                    histogram,
                    ..recorded(count, milliseconds).window
                },
                ..families_of(&calls, count)
            }
        },
    )
}

fn families_of(calls: &[(&str, u64)], count: u64) -> OperationReport {
    OperationReport {
        column_families: families(calls).column_families,
        ..operation("Get", count, "")
    }
}

fn merged(reports: &[OperationReport]) -> Sum {
    reports.iter().fold(Sum::default(), |mut sum, report| {
        sum.merge(&Sum::of(report, true));
        sum
    })
}

proptest! {
    #[test]
    fn merging_is_associative_and_commutative(
        a in tame_operation(),
        b in tame_operation(),
        c in tame_operation(),
    ) {
        let left = merged(&[a.clone(), b.clone(), c.clone()]);
        let mut right = Sum::of(&a, true);
        right.merge(&merged(&[b.clone(), c.clone()]));
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(&left, &merged(&[c, a, b]));
    }

    #[test]
    fn what_is_scaled_counts_as_much_as_what_was_seen(report in tame_operation(), recorded in 1..=1000_u64) {
        let mut whole = report.clone();
        whole.window.recorded_milliseconds = whole.window.milliseconds;
        let mut sampled = report;
        sampled.window.recorded_milliseconds = recorded;
        prop_assert_eq!(merged(&[whole]).calls, merged(&[sampled]).calls);
    }

    #[test]
    fn what_is_unknown_changes_no_rate(reports in prop::collection::vec(tame_operation(), 1..4), unknown in tame_operation()) {
        let mut unknown = unknown;
        unknown.window.recorded_milliseconds = 0;
        let before = merged(&reports);
        let mut after = before.clone();
        after.merge(&Sum::of(&unknown, true));
        prop_assert_eq!(after.calls.per_second, before.calls.per_second);
        prop_assert_eq!(after.calls.histogram, before.calls.histogram);
        prop_assert!(after.share.sparseness(&before.share).is_le());
    }

    #[test]
    fn a_share_of_many_lies_between_those_of_each(reports in prop::collection::vec(wild_operation(), 1..5)) {
        let each: Vec<_> = reports.iter().filter_map(|r| Share::of(&r.window).of_an_interval()).collect();
        if let Some(share) = merged(&reports).share.of_an_interval() {
            let least = each.iter().copied().min_by(Share::sparseness).unwrap();
            let most = each.iter().copied().max_by(Share::sparseness).unwrap();
            prop_assert!(least.sparseness(&share).is_le() && share.sparseness(&most).is_le());
        }
    }

    #[test]
    fn quantiles_rise_and_stay_below_the_longest(reports in prop::collection::vec(wild_operation(), 1..5)) {
        let sum = merged(&reports);
        let shown = [0.5, 0.9, 0.99].map(|quantile| sum.calls.quantile(quantile));
        prop_assert!(shown.is_sorted(), "{:?}", shown);
        prop_assert!(shown[2] <= sum.calls.longest(), "{:?} {:?}", shown, sum.calls.longest());
    }
}
