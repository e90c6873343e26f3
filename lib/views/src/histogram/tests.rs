use ckb_probe_crds::histogram::bucket;

use super::*;

fn histogram(values: &[(u64, u64)]) -> Histogram {
    values
        .iter()
        .map(|(value, count)| (bucket(*value), *count))
        .collect()
}

fn probe() -> CkbProbe {
    serde_yaml::from_str(include_str!("../diagnosis/tests/objects/ckbprobe.yaml")).unwrap()
}

/// The report of a node, with rows of these keys, each with one value so often.
fn order(rows: &[(&str, u64, u64)]) -> NodeProbe {
    let text = include_str!("../diagnosis/tests/objects/nodeprobe.yaml");
    let mut order: NodeProbe = serde_yaml::from_str(text).unwrap();
    let each = rows.iter().map(|(key, value, count)| {
        let mut row = RowReport {
            key: (*key).to_owned(),
            ..RowReport::default()
        };
        let distribution = ckb_probe_crds::Distribution {
            histogram: histogram(&[(*value, *count)]),
            ..ckb_probe_crds::Distribution::default()
        };
        row.window.figures.distributions = [("duration".into(), distribution)].into();
        row
    });
    order.status.as_mut().unwrap().instances[0].probes[0].rows = each.collect();
    order
}

#[test]
fn bounds_are_1_2_5_and_nothing_is_left_out_between_the_first_and_the_last() {
    let bars = bars(&histogram(&[(1_500, 3), (1_900, 4), (12_000, 1)]));
    let told: Vec<_> = bars
        .iter()
        .map(|bar| (bar.from, bar.to, bar.count))
        .collect();
    assert_eq!(
        told,
        [
            (1_000, 2_000, 7),
            (2_000, 5_000, 0),
            (5_000, 10_000, 0),
            (10_000, 20_000, 1)
        ]
    );
    assert_eq!(around(0), (0, 1));
    assert_eq!(around(1), (1, 2));
    assert_eq!(around(u64::MAX).1, u64::MAX);
    assert_eq!(super::bars(&Histogram::default()), []);
}

#[test]
fn what_all_nodes_told_of_a_row_is_together_and_the_busiest_row_first() {
    let orders = [
        order(&[("Get", 1_500, 3), ("TxnCommit", 300_000, 10), ("Put", 5, 0)]),
        order(&[("Get", 12_000, 9)]),
    ];
    let found = of(&probe(), &orders, Which::default());
    let rows: Vec<_> = found
        .iter()
        .map(|one| (one.row.as_str(), one.count))
        .collect();
    assert_eq!(rows, [("Get", 12), ("TxnCommit", 10)]);
    let which = Which {
        row: Some("TxnCommit"),
        ..Which::default()
    };
    let found = of(&probe(), &orders, which);
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].text(),
        "e2e-soak/steady storage: TxnCommit: duration of 10, in the last report interval\n    \
         200us - 500us               10  ####################################\n"
    );
    let other = Which {
        probe: Some("other"),
        ..Which::default()
    };
    assert_eq!(of(&probe(), &orders, other), []);
}

#[test]
fn a_report_in_the_name_of_another_that_asks_the_same_counts_and_another_pods_does_not() {
    let mut same = order(&[("Get", 1_500, 3)]);
    let instance = &mut same.status.as_mut().unwrap().instances[0];
    instance.probe.uid = "another".to_owned();
    assert_eq!(of(&probe(), &[same.clone()], Which::default()).len(), 1);
    let instance = &mut same.status.as_mut().unwrap().instances[0];
    instance.pod.name = "another".to_owned();
    assert_eq!(of(&probe(), &[same], Which::default()).len(), 0);
}

#[test]
fn few_are_seen_beside_many_and_no_line_is_too_wide() {
    let many = order(&[("Get", 1_500, u64::MAX / 4), ("Get", 12_000, 1)]);
    let text = of(&probe(), &[many], Which::default())[0].text();
    assert!(text.lines().last().unwrap().ends_with("1  #"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}
