use super::*;
use crate::{
    lines::{encode, read_all, read_segment},
    record::Line,
    testing::{BEGAN, header, interval, row},
};

fn segment(run: u64, intervals: &[u64], end: bool) -> Segment {
    let all = intervals
        .iter()
        .map(|one| interval(*one, vec![row("Get", 3, 900, 3 * (one + 1))]));
    Segment {
        header: Some(Header {
            run: BEGAN + run,
            ..header()
        }),
        intervals: all.collect(),
        coarse: Vec::new(),
        end: end.then(|| End {
            at: 0,
            reason: "the time was up".to_owned(),
        }),
        damage: Damage::default(),
    }
}

#[test]
fn what_is_missing_is_told_wherever_it_is() {
    let history = History::of(vec![
        segment(0, &[4, 5], false),
        segment(0, &[8, 9], true),
        segment(90_000, &[20], false),
    ]);
    assert_eq!(history.runs.len(), 2);
    let told: Vec<(u64, Option<u64>, &str)> = history
        .gaps
        .iter()
        .map(|gap| {
            let first = gap.why.split([',', ':']).next().unwrap();
            (gap.from - BEGAN, gap.to.map(|to| to - BEGAN), first)
        })
        .collect();
    assert_eq!(
        told,
        [
            (
                0,
                Some(20_000),
                "the oldest part was removed for want of room"
            ),
            (
                30_000,
                Some(40_000),
                "what was recorded was removed for want of room"
            ),
            (50_000, Some(100_000), "nobody recorded"),
            (105_000, None, "the end is missing"),
        ]
    );
    assert_eq!(history.known(), 25_000);
}

#[test]
fn a_record_that_was_cut_has_its_whole_intervals_and_says_that_the_end_is_missing() {
    let mut bytes: Vec<u8> = encode(&Line::Header(header()));
    for number in 0..3 {
        bytes.extend(encode(&Line::Interval(interval(number, Vec::new()))));
    }
    bytes.truncate(bytes.len() - 5);
    let history = History::of(vec![read_segment(&bytes).unwrap()]);
    assert_eq!(history.intervals().count(), 2);
    assert!(history.damage.cut);
    assert_eq!(history.gaps.len(), 1);
    assert!(history.gaps[0].why.starts_with("the end is missing"));
}

#[test]
fn totals_are_those_of_all_runs_and_intervals_those_that_are_there() {
    let history = History::of(vec![
        segment(0, &[0, 1], true),
        segment(90_000, &[18, 19, 20], true),
    ]);
    let columns = history.columns();
    let probes = history.probes(&columns);
    let series = &probes[0].series[0];
    assert_eq!(series.window.figures.count("duration"), Some(15));
    // As the last interval of each run has it.
    assert_eq!(series.total.count("duration"), Some(6 + 63));
    assert_eq!(series.window.milliseconds, 25_000);
    assert_eq!(series.columns.len(), columns.len());
}

#[test]
fn parts_that_are_put_together_as_they_are_read_are_all_there() {
    let segments: Vec<(bool, Vec<u8>)> = (0..3)
        .map(|segment| {
            let mut bytes = encode(&Line::Header(header()));
            for number in 10 * segment..10 * segment + 10 {
                let mut whole = row("Get", 3, 900, 3 * (number + 1));
                // One part is there now and then, the other always.
                whole.parts = vec![row("CELL", 2, 800, 2 * (number + 1))];
                if number % 3 == 1 {
                    whole.parts.push(row("HEADER", 1, 700, number));
                }
                bytes.extend(encode(&Line::Interval(interval(number, vec![whole]))));
            }
            (false, bytes)
        })
        .collect();
    let read = |parts| History::of(read_all(&segments, parts).unwrap());
    let (fine, coarse) = (read(None), read(Some(20_000)));
    let told = |history: &History| -> Vec<_> {
        let columns = history.merged(40_000);
        let all = history.probes(&columns).remove(0).series.into_iter();
        all.map(|one| (one.row, one.part, one.total, one.window))
            .collect()
    };
    assert_eq!(told(&fine).len(), 3);
    assert_eq!(told(&coarse), told(&fine));
    assert_eq!(coarse.known(), fine.known());
    assert_eq!(coarse.span(), fine.span());
    // Rows are as fine as they were, and parts are where they were put together.
    let parts = |interval: &Interval| interval.probes[0].rows[0].parts.len();
    assert_eq!(coarse.intervals().count(), 30);
    assert!(coarse.intervals().all(|one| parts(one) == 0));
    assert_eq!(coarse.runs[0].coarse.len(), 9, "4, 4 and 2 of each segment");
    assert_eq!(coarse.without_parts().merged(0).len(), 30);
}

#[test]
fn parts_are_put_together_to_whole_shares_of_a_segment() {
    let of = |segments, compared| parts_each(segments, 600_000, compared) / 60_000;
    // Two days: a column has 12 minutes, and a value of a comparison one and a half.
    assert_eq!((of(288, false), of(288, true)), (10, 2));
    // Half a day: a column has three minutes, of which a segment has three.
    assert_eq!(of(72, false), 4);
    assert_eq!(of(13, false), 1);
    assert_eq!(of(10_000, false), 10);
}

#[test]
fn a_level_of_several_runs_is_that_of_the_last() {
    let with = |run: u64, at: u64, level: u64| {
        let mut segment = segment(run, &[at], true);
        let row = &mut segment.intervals[0].probes[0].rows[0];
        row.total.levels.insert("lasting".into(), level);
        segment
    };
    let history = History::of(vec![with(0, 1, 7), with(90_000, 20, 2)]);
    let of = history.probes(&history.columns()).remove(0);
    assert_eq!(of.series[0].total.levels["lasting"], 2);
}
