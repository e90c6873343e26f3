use ckb_probe_crds::Contention;

use super::*;
use crate::{
    content::content,
    html,
    lines::{encode, pack, read_all, read_segment},
    markdown,
    merge::by_time,
    record::Line,
    testing::{header, interval, row},
};

/// Throttling and what was sent again in percent; pressure is unknown, as with cgroups of version 1.
fn told(throttled: u64, again: Option<u64>) -> Option<Contention> {
    Some(Contention {
        throttled_millipercent: Some(throttled * 1000),
        retransmitted_millipercent: again.map(|again| again * 1000),
        ..Contention::default()
    })
}

/// A record of five seconds each, as it is written.
fn written(all: &[Option<Contention>]) -> Vec<u8> {
    let intervals = (0..).zip(all).map(|(number, contention)| {
        let mut one = interval(number, vec![row("Get", 100, 900, 100 * (number + 1))]);
        one.contention = *contention;
        one
    });
    segment(intervals.collect())
}

fn segment(intervals: Vec<Interval>) -> Vec<u8> {
    let lines = intervals.into_iter().map(Line::Interval);
    let lines = std::iter::once(Line::Header(header())).chain(lines);
    lines.flat_map(|line| encode(&line)).collect()
}

fn history(all: &[Option<Contention>]) -> History {
    History::of(vec![read_segment(&written(all)).unwrap()])
}

#[test]
fn a_page_and_markdown_tell_what_was_waited_for_and_what_is_unknown() {
    let history = history(&[told(10, None), told(40, Some(2)), None, told(10, None)]);
    let content = content("a.record", &history, Vec::new(), None);
    let (page, text) = (html::page(&content), markdown::text(&content));
    for line in [
        "| throttling by the CPU limit | 20% | 40% | 15.0 s (75 %) |",
        "| waiting for a CPU | unknown | unknown | - |",
        "| waiting for a disk | unknown | unknown | - |",
        "| TCP segments sent again | 2% | 2% | 5.0 s (25 %) |",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    for cell in ["throttling by the CPU limit", "15.0 s (75 %)", "unknown"] {
        assert!(page.contains(cell), "{cell}");
    }
    assert!(page.contains("What its container waited for, in percent"));
}

#[test]
fn of_a_record_that_has_none_of_it_nothing_is_known_and_nothing_is_drawn() {
    let history = history(&[None, None]);
    assert!(
        waited(&history)
            .iter()
            .all(|one| (one.told, one.known) == (None, 0))
    );
    let section = section(&history, &history.columns());
    assert_eq!(section.blocks.len(), 2);
}

/// Of old segments intervals that were put together are all that is left: they have the mean, and the time for which it is known.
#[test]
fn of_intervals_that_were_put_together_what_is_unknown_is_no_part() {
    let whole = history(&[
        told(10, None),
        told(40, Some(2)),
        None,
        told(10, Some(5)),
        None,
    ]);
    let merged = by_time(&whole.runs[0].intervals, 10_000);
    assert_eq!(merged.len(), 3);
    let bytes = segment(merged);
    let packed = pack(&bytes).unwrap();
    let thin = read_all(&[(true, packed)], Some(60_000)).unwrap();
    let merged = read_segment(&bytes).unwrap();
    let unknown = (None, 0);
    for history in [whole, History::of(vec![merged]), History::of(thin)] {
        let told = waited(&history).map(|one| (one.told.map(|[mean, _]| mean), one.known));
        assert_eq!(
            told,
            [
                (Some(20_000), 15_000),
                unknown,
                unknown,
                (Some(3_500), 10_000)
            ]
        );
    }
}

/// Records that were written before that time was, and what was not put together, are known for all of it.
#[test]
fn what_does_not_say_for_how_long_it_is_known_is_known_for_all_of_it() {
    let bytes = written(&[told(10, Some(2))]);
    assert!(!String::from_utf8_lossy(&bytes).contains("contentionUnknown"));
    let history = History::of(vec![read_segment(&bytes).unwrap()]);
    let known = waited(&history).map(|one| one.known);
    assert_eq!(known, [5_000, 0, 0, 5_000]);
}

/// Of days parts of rows are read apart, put together to columns, and totals once: what was waited for is in both.
#[test]
fn many_segments_are_read_with_it_too() {
    let bytes = pack(&written(&[told(10, None), told(40, Some(2))])).unwrap();
    let segments = read_all(&[(true, bytes)], Some(60_000)).unwrap();
    let history = History::of(segments);
    let [throttled, ..] = waited(&history);
    assert_eq!(throttled.told, Some([25_000, 40_000]));
    assert_eq!(
        history.columns()[0]
            .contention
            .unwrap()
            .throttled_millipercent,
        Some(25_000)
    );
}
