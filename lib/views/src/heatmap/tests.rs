use ckb_probe_crds::histogram::bucket;

use super::*;

fn probes() -> Vec<Probe> {
    let text = include_str!("../diagnosis/tests/objects/ckbprobe.yaml");
    let probe: CkbProbe = serde_yaml::from_str(text).unwrap();
    probe.spec.probes
}

fn heatmap() -> Heatmap {
    let which = Which {
        row: Some("Get"),
        ..Which::default()
    };
    Heatmap::of("ckb/ckb", &probes(), which).unwrap()
}

/// What a target told: so many calls of so many nanoseconds; None where nothing was recorded.
fn told(target: &str, stamp: u64, calls: Option<&[(u64, u64)]>) -> Told {
    let histogram = calls.map(|calls| {
        let each = calls.iter().map(|(value, count)| (bucket(*value), *count));
        each.collect()
    });
    Told {
        target: target.to_owned(),
        stamp,
        interval: Duration::from_secs(10),
        histogram,
    }
}

/// Takes this, of so many seconds.
fn take(map: &mut Heatmap, seconds: u64, each: &[Told]) -> Vec<Distribution> {
    let time = format!("12:{:02}:{:02}", seconds / 60, seconds % 60);
    map.take(each, Duration::from_secs(seconds), &time)
}

#[test]
fn a_picture_has_slow_calls_above_quick_ones_each_by_its_share() {
    let mut map = heatmap();
    let intervals: [&[(u64, u64)]; 4] = [
        &[(1_500, 100)],
        &[(1_500, 60), (12_000, 39), (700_000, 1)],
        &[],
        &[(1_500, 999), (150_000, 1)],
    ];
    for (second, calls) in (0..).zip(intervals) {
        take(&mut map, second * 10, &[told("a", second, Some(calls))]);
    }
    assert_eq!(
        map.text(),
        "ckb/ckb storage: Get: duration, by report interval
          | :
          |
    100us |   .
          |
          |
     10us | #
          |
          |
      1us |@% @
          +----
           12:00:00 to 12:00:30
share of calls: . any : 1% - 2% = 5% + 10% * 20% # 35% % 50% @ 75%   ? not seen
",
        "{}",
        map.text()
    );
}

#[test]
fn what_targets_tell_one_after_the_other_is_one_column() {
    let mut map = heatmap();
    let get = |count| Some([(1_500, count)]);
    take(
        &mut map,
        0,
        &[told("a", 1, get(1).as_ref().map(|one| &one[..]))],
    );
    take(
        &mut map,
        1,
        &[
            told("a", 1, get(1).as_ref().map(|one| &one[..])),
            told("b", 1, get(2).as_ref().map(|one| &one[..])),
        ],
    );
    assert_eq!(map.len(), 1);
    let complete = take(
        &mut map,
        10,
        &[told("a", 2, get(4).as_ref().map(|one| &one[..]))],
    );
    assert_eq!(complete.len(), 1);
    assert_eq!(
        (complete[0].count, complete[0].time.as_deref()),
        (3, Some("12:00:00"))
    );
    assert_eq!(map.close().unwrap().count, 4);
    assert_eq!(map.close(), None);
}

#[test]
fn an_interval_that_nobody_saw_is_marked_and_is_no_distribution() {
    let mut map = heatmap();
    let calls: Option<&[(u64, u64)]> = Some(&[(1_500, 1)]);
    take(&mut map, 0, &[told("a", 1, calls)]);
    take(&mut map, 10, &[told("a", 2, None)]);
    let complete = take(&mut map, 20, &[told("a", 3, calls)]);
    assert_eq!(complete, [], "the second was not seen");
    // The agent is silent.
    take(&mut map, 60, &[told("a", 3, calls)]);
    let text = map.text();
    assert!(text.contains("+-?-??\n"), "{text}");
    assert!(text.contains("1us |@ @\n"), "{text}");
}

#[test]
fn nothing_is_wider_than_80_columns_and_old_intervals_leave() {
    let mut map = heatmap();
    for second in 0..200_u64 {
        let calls = [(1 << (second % 40), second + 1)];
        take(&mut map, second * 10, &[told("a", second, Some(&calls))]);
    }
    let text = map.text();
    assert_eq!(map.len(), COLUMNS);
    assert!(
        text.lines().all(|line| line.chars().count() <= WIDTH),
        "{text}"
    );
    assert!(text.lines().count() <= 24, "{text}");
    assert!(text.contains("12:33:10"), "{text}");
    assert!(text.contains("     <2ms |@@@@@@@@@@"), "{text}");
}

#[test]
fn the_busiest_row_is_chosen_where_nobody_named_one() {
    let mut map = Heatmap::of("ckb/ckb", &probes(), Which::default()).unwrap();
    map.choose(|| None);
    map.choose(|| Some("TxnCommit".to_owned()));
    map.choose(|| Some("Get".to_owned()));
    assert_eq!(map.which().row, Some("TxnCommit"));
    let other = Which {
        probe: Some("other"),
        ..Which::default()
    };
    assert_eq!(Heatmap::of("ckb/ckb", &probes(), other), None);
    assert!(map.is_empty());
}
