use ckb_probe_crds::{Name, report::MAX_PARTS};

use super::*;
use crate::{kernel::memory::MemoryBudget, mechanism::Breakdown};

/// Calls of one operation by column family, attached at 0.
fn by_family() -> (Series, Instrumented) {
    let kind = RocksDbProbe {
        operations: vec![Operation::Get],
        by_column_family: true,
        ..RocksDbProbe::default()
    };
    let probe = Instrumented::new("storage", kind);
    let mut series = Series::new(subscription(&probe));
    series.attached(subscription(&probe), at(0));
    (series, probe)
}

/// One whose rows come by.
fn rows() -> (Series, Instrumented) {
    let subscription = Subscription {
        parts: Breakdown::All,
        ..Subscription::default()
    };
    let mut series = Series::new(subscription.clone());
    series.attached(subscription, at(0));
    (series, peers("sockets"))
}

/// What was counted of one column family, by the place of its handle.
fn family(place: u64, number: u64, name: &str, count: u64) -> RowReading {
    RowReading {
        part: Some(RowId {
            number,
            ..raw(place, name)
        }),
        ..whole(gets(count))
    }
}

fn parts(series: &Series) -> Vec<(String, u64)> {
    let row = series.report().next().unwrap();
    let parts = row.parts.into_iter();
    parts.map(|part| (part.key, count(&part.total))).collect()
}

#[test]
fn column_families_add_up_to_their_operation() {
    let (mut series, probe) = by_family();
    let readings = [
        whole(gets(4)),
        family(0, 11, "10", 20),
        family(1, 5, "4", 3),
        // Another handle of the first one.
        family(2, 11, "10", 1),
    ];
    assert!(series.observe(&readings, &*probe.instrument, at(10)));
    let expected = [("CELL", 21), ("META", 3), ("other", 4)];
    assert_eq!(
        parts(&series),
        expected.map(|(name, n)| (name.to_string(), n))
    );
    assert_eq!(total(&series), 28);
}

#[test]
fn a_column_family_beyond_the_limit_is_with_the_others_from_then_on() {
    let (mut series, probe) = by_family();
    // Whether the kernel knows others or not: nobody's calls move to another name.
    for (own, each) in [(0, 2), (5, 2), (5, 3)] {
        let families = (0..70).map(|id| family(id, id, &format!("family-{id}"), each));
        let readings: Vec<_> = families.chain([whole(gets(own))]).collect();
        series.observe(&readings, &*probe.instrument, at(each));
        assert_eq!(total(&series), own + 70 * each);
        let parts = parts(&series);
        assert_eq!(parts.len(), MAX_PARTS);
        for (name, counted) in parts {
            let expected = if name == OTHER { own + 7 * each } else { each };
            assert_eq!(counted, expected, "{name}");
        }
        let (rows, parts) = series.folded();
        assert_eq!((rows, parts.collect::<Vec<_>>()), (0, vec![("Get", 7)]));
    }
}

#[test]
fn a_column_family_is_told_of_once_a_call_on_it_has_returned() {
    let (mut series, probe) = by_family();
    let readings = [whole(gets(0)), family(0, 0, "", 0)];
    assert!(!series.observe(&readings, &*probe.instrument, at(1)));
    assert!(series.rows["Get"].parts.is_empty());
}

#[test]
fn rows_beyond_the_limit_are_with_the_others_and_nothing_is_lost() {
    let (mut series, probe) = rows();
    for each in [2, 5] {
        let readings = (0..200).map(|id| peer(raw(id, &format!("peer-{id}")), None, each, 1));
        let readings: Vec<_> = readings.collect();
        assert!(series.observe(&readings, &*probe.instrument, at(each)));
        let rows: Vec<_> = series.report().collect();
        assert_eq!(rows.len(), MAX_ROWS);
        for row in &rows {
            let there = if row.key == OTHER { 73 } else { 1 };
            let figures = &row.total;
            assert_eq!(figures.sums["bytes"], there * each, "{}", row.key);
            assert_eq!(figures.levels["open"], there, "{}", row.key);
        }
        let all: u64 = rows.iter().map(|row| row.total.sums["bytes"]).sum();
        assert_eq!(all, 200 * each);
        let (folded, mut parts) = series.folded();
        assert_eq!((folded, parts.next()), (73, None));
    }
}

/// Levels by row and by part.
fn levels(series: &Series) -> Vec<(String, u64)> {
    let mut levels = Vec::new();
    for row in series.report() {
        levels.push((row.key.clone(), row.total.levels["open"]));
        let parts = row.parts.iter();
        let parts = parts.map(|part| {
            (
                format!("{}/{}", row.key, part.key),
                part.total.levels["open"],
            )
        });
        levels.extend(parts);
    }
    levels
}

fn named<const N: usize>(levels: [(&str, u64); N]) -> Vec<(String, u64)> {
    levels.map(|(name, level)| (name.to_string(), level)).into()
}

#[test]
fn what_is_not_in_a_reading_does_not_stand_any_more() {
    let (mut series, probe) = rows();
    let one = |part, bytes, open| {
        peer(
            raw(1, "one"),
            Some(raw(part, &format!("p{part}"))),
            bytes,
            open,
        )
    };
    let two = peer(raw(2, "two"), None, 7, 3);
    let read = |series: &mut Series, readings: &[RowReading], now| {
        series.observe(readings, &*probe.instrument, at(now));
        levels(series)
    };
    let all = [one(1, 5, 2), one(2, 5, 4), two];
    let expected = [
        ("one", 6),
        ("one/p1", 2),
        ("one/p2", 4),
        ("two", 3),
        ("two/other", 3),
    ];
    assert_eq!(read(&mut series, &all, 1), named(expected));
    let part_gone = [one(1, 5, 1)];
    let expected = [
        ("one", 1),
        ("one/p1", 1),
        ("one/p2", 0),
        ("two", 0),
        ("two/other", 0),
    ];
    assert_eq!(read(&mut series, &part_gone, 2), named(expected));
    // What was counted is not forgotten.
    let sums: Vec<u64> = series.report().map(|row| row.total.sums["bytes"]).collect();
    assert_eq!(sums, [10, 7]);
}

#[test]
fn a_slice_that_stands_for_more_time_does_not_bring_back_what_stood_in_it() {
    let (mut series, probe) = rows();
    let one = |open| [peer(raw(1, "one"), None, 5, open)];
    let shape = SliceShape {
        open: 0.1,
        cell: 1.0,
        long: false,
    };
    let cell = |series: &mut Series, begin: u64, seen: &[RowReading]| {
        series.begin_cell(shape, at(begin), at(begin));
        series.begin_slice(at(begin + 900), at(begin + 900), Passed::default());
        series.observe(seen, &*probe.instrument, at(begin + 1_000));
        series.end_slice(at(begin + 1_000), at(begin + 1_000), 0.0);
        series.end_cell(at(begin + 1_000), at(begin + 1_000));
    };
    cell(&mut series, 0, &one(8));
    assert_eq!(levels(&series), named([("one", 8), ("one/other", 8)]));
    cell(&mut series, 1_000, &[]);
    assert_eq!(levels(&series), named([("one", 0), ("one/other", 0)]));
    series.observe(&one(3), &*probe.instrument, at(2_500));
    series.end(at(3_000));
    // Its part has nothing to tell but what was counted.
    assert_eq!(levels(&series), named([("one", 0), ("one/other", 0)]));
}

/// A row of two distributions, as those of `tcp` are.
fn busy_peer(place: u64) -> RowReading {
    let mut reading = RowReading {
        row: Some(raw(place, &format!("peer-{place}"))),
        ..whole(gets(1))
    };
    let distributions = &mut reading.figures.distributions;
    let duration = distributions.values().next().unwrap().clone();
    distributions.insert(Name::Borrowed("lifetime"), duration);
    reading
}

#[test]
fn rows_are_charged_as_they_come_and_what_there_is_no_room_for_counts_with_the_others() {
    let subscription = Subscription::default();
    let expected = crate::state::bytes([&subscription]);
    let of_a_row = 2 * crate::state::ROW_BYTES + 1024;
    let within = expected / of_a_row;
    for more in [0, 5] {
        let account: &'static MemoryBudget = Box::leak(Box::default());
        // What the agent takes for itself, what was taken in advance, and room for so many rows more.
        account.limit((48 << 20) + expected + more * of_a_row);
        account.set_books([("some".into(), expected)].into());
        let mut series = Series::new(subscription.clone());
        series.room = series.room.on(account);
        series.attached(subscription.clone(), at(0));
        let all: Vec<RowReading> = (0..100).map(busy_peer).collect();
        let probe = peers("sockets");
        assert!(series.observe(&all, &*probe.instrument, at(10)));
        let told = series.rows.keys().filter(|name| *name != OTHER).count() as u64;
        assert!(
            (within + more - 1..=within + more).contains(&told),
            "{told}"
        );
        // None is lost, and it is said how many are not told apart.
        let counts = series.rows.values().map(|row| count(&row.all.total));
        assert_eq!(counts.sum::<u64>(), 100);
        assert_eq!(series.folded().0, 100 - told);
        assert!(series.beyond() <= more * of_a_row);
        assert_eq!(account.left(), more * of_a_row - series.beyond());
        // Once given a name stays, whatever room there is by then.
        account.limit(u64::MAX);
        series.observe(&all, &*probe.instrument, at(20));
        assert_eq!(series.folded().0, 100 - told);
    }
}
