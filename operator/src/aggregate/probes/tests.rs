use ckb_probe_crds::{Figures, InstanceReport, IntervalFigures, Variance, condition};
use serde_json::json;

use super::*;
use crate::{
    aggregate::{
        aggregate,
        tests::{Scene, answer, figure, row_of, scene, scene_of},
    },
    testing::{at, firing, measuring, node_probe, reports, row, runs, untimed},
};

/// Calls of `Get` in a window of a second, of which so many milliseconds were recorded.
fn recorded(count: u64, recorded_milliseconds: u64) -> RowReport {
    let mut report = row("Get", count, "119:1");
    report.window.recorded_milliseconds = recorded_milliseconds;
    report.window.samples = count * recorded_milliseconds / 1000;
    report
}

/// A target with each of these probes.
fn targets_with(probes: Vec<ProbeReport>) -> Scene {
    scene(json!({}), |probe, pod| {
        let instances = probes.iter().enumerate().map(|(n, probes)| {
            let name = format!("ckb-{n}");
            let pod = crate::testing::pod(&pod.reference.namespace, &name, Some("n"));
            let report = InstanceReport {
                probes: vec![probes.clone()],
                ..firing(probe, &pod)
            };
            (runs(&pod), report)
        });
        let (pods, instances): (Vec<_>, Vec<_>) = instances.unzip();
        let report = reports(node_probe("n", 1, instances));
        pods.into_iter().chain([report]).collect()
    })
}

/// A target with each of these rows.
fn targets(rows: Vec<RowReport>) -> Scene {
    let probes = rows.into_iter().map(|row| measuring("storage", vec![row]));
    targets_with(probes.collect())
}

/// One target with all of these rows.
fn target(rows: Vec<RowReport>) -> Scene {
    targets_with(vec![measuring("storage", rows)])
}

#[test]
fn a_sampled_row_says_in_how_much_of_the_time_it_was_recorded() {
    let status = targets(vec![recorded(1000, 46)]).status();
    let get = row_of(&status, "Get");
    assert_eq!(figure(get, "perSecond"), "1000", "agents scale");
    assert_eq!(get.sampling_percent.as_deref(), Some("4.6"));
    assert_eq!(get.samples, 46);
    assert_eq!(status.probes[0].sampling_percent.as_deref(), Some("4.6"));
    assert_eq!(status.overhead.sampling_percent.as_deref(), Some("4.6"));
    assert_eq!(
        status.overhead.summary.as_deref(),
        Some("0.4% (4.6% sampled)")
    );
}

#[test]
fn sampled_and_unsampled_targets_add_up_and_share_their_time() {
    let status = targets(vec![recorded(1000, 100), recorded(20, 1000)]).status();
    let get = row_of(&status, "Get");
    assert_eq!(figure(get, "perSecond"), "1020");
    assert_eq!(get.sampling_percent.as_deref(), Some("55"));
    assert_eq!(get.samples, 120);
}

/// These calls, with this standard error: in all there were ten such intervals.
fn with_error(mut report: RowReport, error: f64) -> RowReport {
    let varied = |figures: &mut Figures, variance: f64| {
        figures.variances = [("duration".into(), Variance::new(variance))].into();
    };
    varied(&mut report.window.figures, error * error);
    varied(&mut report.total, error * error * 10.0);
    report
}

#[test]
fn a_sampled_row_and_its_parts_say_how_far_off_they_may_be() {
    let mut get = with_error(recorded(1000, 100), 41.0);
    let RowReport { total, window, .. } = with_error(recorded(100, 100), 10.0);
    get.parts = vec![PartReport {
        key: "CELL".into(),
        total,
        window,
    }];
    let status = targets(vec![get.clone(), recorded(1000, 1000)]).status();
    let row = row_of(&status, "Get");
    // 41 of 2,000, and 130 of 20,000.
    assert_eq!(row.error.as_deref(), Some("±2.1%"));
    assert_eq!(row.count_error.as_deref(), Some("±0.65%"));
    // 10 of 100, and 32 of 1,000.
    assert_eq!(row.parts[0].error.as_deref(), Some("±10%"));
    assert_eq!(row.parts[0].count_error.as_deref(), Some("±3.2%"));

    let status = targets(vec![get.clone(), get]).status();
    let row = row_of(&status, "Get");
    assert_eq!(row.error.as_deref(), Some("±2.9%"), "errors add as squares");

    let status = targets(vec![recorded(1000, 1000)]).status();
    let row = row_of(&status, "Get");
    assert_eq!(
        (&row.error, &row.count_error),
        (&None, &None),
        "all was seen"
    );
}

#[test]
fn what_no_slice_saw_has_no_rate() {
    let none = |recorded_milliseconds| {
        let mut none = row("Get", 0, "");
        none.window.recorded_milliseconds = recorded_milliseconds;
        none
    };
    let status = targets(vec![none(336)]).status();
    let get = row_of(&status, "Get");
    assert_eq!((figure(get, "perSecond"), &get.error), ("", &None));
    assert_eq!(get.sampling_percent.as_deref(), Some("33.6"));
    let status = targets(vec![none(1000)]).status();
    assert_eq!(figure(row_of(&status, "Get"), "perSecond"), "0");
}

#[test]
fn the_row_that_is_sampled_most_sparsely_speaks_for_all() {
    let mut rare = row("Write", 3, "119:3");
    rare.window.samples = 3;
    let status = target(vec![recorded(1000, 250), rare]).status();
    let shares = status.probes[0].rows.iter();
    assert_eq!(
        shares
            .map(|row| row.sampling_percent.as_deref())
            .collect::<Vec<_>>(),
        [Some("25"), Some("100")]
    );
    assert_eq!(status.probes[0].sampling_percent.as_deref(), Some("25"));
    assert_eq!(status.overhead.sampling_percent.as_deref(), Some("25"));
}

#[test]
fn an_interval_of_which_nothing_is_known_is_no_rate_of_zero() {
    let mut unknown = recorded(0, 0);
    unknown.total.sums.clear();
    unknown.window.figures = Default::default();
    let status = targets(vec![unknown.clone()]).status();
    let get = row_of(&status, "Get");
    let shown: Vec<_> = get.figures.iter().collect();
    assert_eq!(shown, [(&"count".to_owned(), &"0".to_owned())]);
    assert_eq!(get.sampling_percent.as_deref(), Some("0"));
    assert_eq!(status.probes[0].headline, "");
    assert_eq!(status.headline, "");

    let status = targets(vec![unknown, recorded(500, 1000)]).status();
    let get = row_of(&status, "Get");
    assert_eq!(figure(get, "perSecond"), "500");
    assert_eq!(get.sampling_percent.as_deref(), Some("50"));
}

#[test]
fn before_the_first_interval_has_ended_no_share_is_known() {
    let mut fresh = recorded(0, 0);
    fresh.window = IntervalFigures::default();
    let status = targets(vec![fresh]).status();
    assert_eq!(row_of(&status, "Get").sampling_percent, None);
    assert_eq!(status.probes[0].sampling_percent, None);
    assert_eq!(status.overhead.sampling_percent, None);
    assert_eq!(status.overhead.summary.as_deref(), Some("0.4%"));
}

#[test]
fn calls_that_were_counted_and_not_timed_have_a_rate_and_no_quantiles() {
    let status = targets(vec![row("Get", 300, "")]).status();
    let get = row_of(&status, "Get");
    assert_eq!(figure(get, "perSecond"), "300");
    assert_eq!(["p50", "p99", "max"].map(|name| figure(get, name)), [""; 3]);
}

#[test]
fn background_work_is_listed_and_is_no_part_of_the_headline() {
    let mut compaction = row("Compaction", 1, "500:1");
    let longest = ("duration".into(), 3_000_000_000);
    compaction.window.figures.maxima = [longest].into();
    let status = target(vec![row("Get", 100, "119:100"), compaction]).status();
    assert_eq!(figure(row_of(&status, "Compaction"), "max"), "3s");
    assert_eq!(status.probes[0].headline, "100/s p99 1.48us 2 slow");
}

#[test]
fn rows_are_listed_the_busiest_first_then_by_their_counts_and_names() {
    let mut once = row("Delete", 0, "");
    once.total
        .distributions
        .insert("duration".into(), untimed(7));
    let rows = ["Write", "Put"].map(|name| row(name, 0, ""));
    let busy = [row("Get", 10, ""), row("TxnGet", 20, "")];
    let status = target(busy.into_iter().chain(rows).chain([once]).collect()).status();
    let keys = status.probes[0].rows.iter().map(|row| &*row.key);
    assert_eq!(
        keys.collect::<Vec<_>>(),
        ["TxnGet", "Get", "Delete", "Put", "Write"]
    );
}

#[test]
fn of_many_rows_the_busiest_are_listed_and_the_others_counted() {
    let many = (1..=70).map(|n| row(&format!("row-{n}"), n, ""));
    let status = target(many.collect()).status();
    let probe = &status.probes[0];
    assert_eq!((probe.rows.len(), probe.rows_omitted), (MAX_ROWS, 6));
    assert_eq!(
        (&*probe.rows[0].key, &*probe.rows[63].key),
        ("row-70", "row-7")
    );
    assert_eq!(
        probe.headline, "2485/s 140 slow",
        "what is not listed counts"
    );
}

/// The row with these calls in each of these parts.
fn parted(names: &[(&str, u64)]) -> RowReport {
    let mut report = row("Get", 100, "119:100");
    report.parts = names
        .iter()
        .map(|(name, count)| {
            let RowReport { total, window, .. } = row("", *count, "119:1");
            PartReport {
                key: (*name).to_owned(),
                total,
                window,
            }
        })
        .collect();
    report
}

#[test]
fn parts_are_merged_by_name_and_the_busiest_comes_first() {
    let status = targets(vec![
        parted(&[("CELL", 20), ("EPOCH", 5), ("BLOCK_BODY", 5)]),
        parted(&[("EPOCH", 30), ("CELL", 1)]),
    ])
    .status();
    let parts = &row_of(&status, "Get").parts;
    let shown: Vec<_> = parts
        .iter()
        .map(|part| {
            let [rate, count] = ["perSecond", "count"].map(|name| &*part.figures[name]);
            (&*part.key, rate, count)
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("EPOCH", "35", "350"),
            ("CELL", "21", "210"),
            ("BLOCK_BODY", "5", "50")
        ]
    );
    let expected = [
        ("count", "210"),
        ("max", "1.48us"),
        ("p50", "1.48us"),
        ("p99", "1.48us"),
        ("perSecond", "21"),
        ("slow", "4"),
    ];
    let expected = expected.map(|(name, shown)| (name.to_owned(), shown.to_owned()));
    assert_eq!(parts[1].figures, expected.into());
}

#[test]
fn of_many_parts_the_busiest_are_listed() {
    let names: Vec<_> = (0..70).map(|n| format!("part-{n}")).collect();
    let many: Vec<_> = names.iter().map(|name| &**name).zip(1..).collect();
    // No target reports so many.
    let (some, others) = many.split_at(35);
    let status = targets(vec![parted(some), parted(others)]).status();
    let listed = &row_of(&status, "Get").parts;
    assert_eq!(listed.len(), MAX_PARTS);
    assert_eq!((&*listed[0].key, &*listed[63].key), ("part-69", "part-6"));
}

/// A CkbProbe whose probes have these names, on one target that reports these.
fn probes_named(names: &[&str], reported: Vec<ProbeReport>) -> Scene {
    let rocksdb = json!({ "operations": ["Get"] });
    let probes: Vec<_> = names
        .iter()
        .map(|name| json!({ "name": name, "rocksdb": rocksdb }))
        .collect();
    scene_of(json!({ "probes": probes }), |probe, pod| InstanceReport {
        probes: reported,
        ..firing(probe, pod)
    })
}

#[test]
fn two_probes_with_rows_of_one_name_keep_them_apart() {
    let rows = |count| vec![row("Get", count, "")];
    let scene = probes_named(
        &["one", "other"],
        vec![measuring("other", rows(5)), measuring("one", rows(3))],
    );
    let status = scene.status();
    let shown: Vec<_> = status
        .probes
        .iter()
        .map(|probe| (&*probe.name, figure(&probe.rows[0], "perSecond")))
        .collect();
    assert_eq!(shown, [("one", "3"), ("other", "5")], "in the spec's order");
    assert_eq!(status.headline, "one 3/s 2 slow · other 5/s 2 slow");
}

#[test]
fn what_another_kind_reported_under_the_name_is_none_of_it() {
    let older = ProbeReport {
        kind: "an older one".into(),
        ..measuring("storage", vec![row("Get", 5, "")])
    };
    let status = targets_with(vec![older]).status();
    let probe = &status.probes[0];
    assert_eq!((&*probe.kind, probe.targets.attached), ("rocksdb", 0));
    assert_eq!(probe.rows, []);
}

#[test]
fn what_is_lost_is_counted_by_what_it_was_and_told() {
    let losing = |lost: &[(&str, u64)]| {
        let lost = lost
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count));
        ProbeReport {
            lost: lost.collect(),
            ..measuring("storage", vec![row("Get", 3, "")])
        }
    };
    let status = targets_with(vec![
        losing(&[("calls", 0), ("events", 0)]),
        losing(&[("calls", 0)]),
    ])
    .status();
    let none = [("calls".to_owned(), 0), ("events".to_owned(), 0)];
    assert_eq!(status.probes[0].lost, none.into(), "none, not unknown");
    assert_eq!(status.probes[0].headline, "6/s 4 slow");

    let status = targets_with(vec![
        losing(&[("calls", 2), ("events", u64::MAX)]),
        losing(&[("calls", 3), ("events", 1)]),
    ])
    .status();
    let some = [("calls".to_owned(), 5), ("events".to_owned(), u64::MAX)];
    assert_eq!(status.probes[0].lost, some.into());
    let told = format!("6/s 4 slow, {} lost", u64::MAX);
    assert_eq!(status.probes[0].headline, told);
}

#[test]
fn more_sorts_of_losses_than_there_may_be_are_others() {
    let reported = ProbeReport {
        lost: (1..=10).map(|n| (format!("sort-{n:02}"), n)).collect(),
        ..measuring("storage", vec![])
    };
    let lost = &targets_with(vec![reported]).status().probes[0].lost;
    assert_eq!(lost.len(), MAX_LOST);
    assert_eq!((lost["other"], lost["sort-07"]), (8 + 9 + 10, 7));
}

#[test]
fn the_line_about_all_probes_is_short_enough_for_a_column() {
    let names: Vec<_> = (0..16).map(|n| format!("probe-{n}")).collect();
    let names: Vec<_> = names.iter().map(|name| &**name).collect();
    let each = names
        .iter()
        .map(|name| measuring(name, vec![row("Get", 3, "")]));
    let status = probes_named(&names, each.collect()).status();
    assert_eq!(status.headline.chars().count(), HEADLINE_LENGTH);
    assert!(
        status
            .headline
            .starts_with("probe-0 3/s 2 slow · probe-1 3/s 2 slow · "),
        "{}",
        status.headline
    );
    assert!(status.headline.ends_with('…'), "{}", status.headline);
}

#[test]
fn a_text_is_cut_between_characters_and_only_when_it_is_too_long() {
    for (text, expected) in [("", ""), ("µµµ", "µµµ"), ("µµµµ", "µµ…"), ("abcd", "ab…")]
    {
        assert_eq!(cut(text, 3), expected);
    }
}

#[test]
fn the_message_is_that_of_the_first_pod_of_which_there_is_something_to_say() {
    let [well, silent, failed] = [
        measuring("storage", vec![]),
        ProbeReport {
            reason: Some(ckb_probe_crds::Reason::Silent),
            firing: false,
            message: "nothing happened".into(),
            ..measuring("storage", vec![])
        },
        ProbeReport {
            state: InstanceState::Failed,
            firing: false,
            message: "the kernel refused".into(),
            ..measuring("storage", vec![])
        },
    ];
    for (probes, expected) in [
        (vec![well.clone()], ""),
        (
            vec![well.clone(), silent.clone(), failed.clone()],
            "nothing happened",
        ),
        (vec![well, failed, silent], "the kernel refused"),
    ] {
        assert_eq!(targets_with(probes).status().probes[0].message, expected);
    }
}

/// A thousand calls of `Get` a second for each of these durations, by its bucket, and as many of `Write`.
fn calls_of(buckets: &[(u32, u64)]) -> Vec<Vec<RowReport>> {
    let rows = |(bucket, writes): &(u32, u64)| {
        let mut get = row("Get", 10_000, &format!("{bucket}:10000"));
        get.window.figures.maxima.clear();
        let mut write = row("Write", *writes, &format!("119:{writes}"));
        get.window.samples = 10_000;
        write.window.samples = *writes;
        vec![get, write]
    };
    buckets.iter().map(rows).collect()
}

fn outliers_of(rows: Vec<Vec<RowReport>>) -> Vec<OutlierStatus> {
    let probes = rows.into_iter().map(|rows| measuring("storage", rows));
    let mut status = targets_with(probes.collect()).status();
    status.probes.remove(0).outliers
}

#[test]
fn the_target_that_differs_from_the_others_is_told_by_the_row_in_which_it_does_so_most() {
    let alike = [(119, 100); 9];
    assert_eq!(outliers_of(calls_of(&alike)), [], "all alike");
    let mut one = alike;
    // Its reads take thirty times as long; and it writes three times as often, which others may by chance.
    one[3] = (279, 300);
    let told = outliers_of(calls_of(&one));
    assert_eq!(told.len(), 1);
    let figure = |bucket: u32| {
        let mut histogram = ckb_probe_crds::Histogram::default();
        histogram.add(bucket, 1);
        ckb_probe_crds::display_nanos(histogram.quantile(0.99).unwrap())
    };
    let OutlierStatus {
        pod,
        row,
        figure: name,
        value,
        median,
        ..
    } = &told[0];
    assert_eq!((&**pod, &**row, &**name), ("ckb-3", "Get", "p99"));
    assert_eq!((value, median), (&figure(279), &figure(119)));
    assert_eq!(outliers_of(calls_of(&one[..5])), [], "of five nobody knows");
}

#[test]
fn a_status_lists_ten_outliers_of_any_number_of_targets() {
    let mut many = vec![(119, 100); 400];
    (0..20).for_each(|place| many[place * 7] = (279 + place as u32, 100));
    let told = outliers_of(calls_of(&many));
    assert_eq!(told.len(), 10);
    assert_eq!(told[0].pod, "ckb-133", "the one that differs most");
}

#[test]
fn rows_that_most_targets_do_not_have_are_not_compared() {
    let mut all = calls_of(&[(119, 100); 20]);
    for (place, rows) in all.iter_mut().enumerate().take(8) {
        let mut own = row("Merge", 10_000, "119:10000");
        if place == 0 {
            own = row("Merge", 10_000, "319:10000");
            own.window.figures.maxima.clear();
        }
        own.window.samples = 10_000;
        rows.push(own);
    }
    assert_eq!(outliers_of(all), []);
}

#[test]
fn a_status_of_five_thousand_targets_stays_small() {
    let mut many = vec![(119, 100); 5000];
    (0..500).for_each(|place| many[place * 9] = (279 + place as u32 % 40, 100));
    let probes = calls_of(&many).into_iter();
    let probes = probes.map(|rows| measuring("storage", rows));
    let status = targets_with(probes.collect()).status();
    assert_eq!(status.targets.attached, 5000);
    assert_eq!(status.probes[0].outliers.len(), 10);
    let bytes = serde_json::to_vec(&status).unwrap().len();
    assert!(bytes < 64 << 10, "{bytes}");
}

/// Two hours and a quarter of report intervals of 10 s, after which calls take four times as long.
#[test]
fn what_is_not_as_usual_is_told_and_by_the_condition_too_unless_nobody_asks_for_it() {
    for asked in [true, false] {
        let Scene { probe, mut world } = scene(json!({ "detectAnomalies": asked }), |_, _| vec![]);
        let pod = crate::testing::pod("a", "ckb-0", Some("n"));
        let mut past = Past::default();
        let mut status = None;
        for interval in 1..810_i64 {
            let (row, now) = (if interval < 806 { 200 } else { 232 }, interval * 10);
            let mut row = row_of_calls(row);
            row.window.milliseconds = 10_000;
            let report = InstanceReport {
                probes: vec![measuring("storage", vec![row])],
                ..firing(&probe, &pod)
            };
            let report = reports(node_probe("n", -now, vec![report]));
            world.apply(report, at(now));
            let told = aggregate(&probe, &world, None, &mut past, at(now));
            let healthy = answer(&told, condition::TARGETS_HEALTHY);
            let expected = match asked && interval >= 808 {
                true => ("False", "Unusual"),
                false => ("True", "Done"),
            };
            assert_eq!(healthy, expected, "{interval}");
            status = Some(told);
        }
        let anomalies = status.unwrap().probes.remove(0).anomalies;
        let told = anomalies
            .iter()
            .map(|one| (&*one.row, &*one.figure, one.intervals));
        let expected: &[_] = if asked { &[("Get", "p99", 4)] } else { &[] };
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }
}

/// A thousand calls a second that take as long as that bucket says.
fn row_of_calls(bucket: u32) -> RowReport {
    let mut rows = calls_of(&[(bucket, 1)]).remove(0);
    rows.truncate(1);
    rows.remove(0)
}

#[test]
fn what_a_target_does_on_its_own_account_is_told_by_its_part_of_the_interval_and_calls_are_not() {
    let spec = |probes: serde_json::Value| -> CkbProbeSpec {
        let target = json!({ "selector": {}, "executable": "ckb" });
        let spec = json!({ "target": target, "probes": probes, "reportInterval": "30s" });
        serde_json::from_value(spec).unwrap()
    };
    let interval = Interval {
        reported: at(30),
        length: std::time::Duration::from_secs(30),
        targets: 2,
    };
    let merged = |count: u64, nanos: u64| {
        let mut report = row("Get", count, "119:1");
        let values = report.window.figures.distributions.get_mut("duration");
        values.unwrap().sum = nanos;
        MergedRow {
            summary: Summary::of(&report.total, &report.window, true),
            parts: BTreeMap::new(),
        }
    };
    let rows: MergedRows = [
        ("Compaction".to_owned(), merged(3, 15_000_000_000)),
        ("Get".to_owned(), merged(1000, 40_000_000_000)),
        ("WriteStall".to_owned(), merged(0, 0)),
    ]
    .into();
    let storage = json!([{ "name": "storage", "rocksdb": {} }]);
    // Of two targets, for half a minute each.
    let expected = [
        ("Compaction".to_owned(), Some(0.25)),
        ("WriteStall".to_owned(), Some(0.0)),
    ];
    assert_eq!(
        work(&spec(storage), &interval, &[rows]),
        Work::from(expected)
    );
}
