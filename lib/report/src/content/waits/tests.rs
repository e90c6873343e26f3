use ckb_probe_crds::Contention;

use super::*;
use crate::{
    content::content,
    html,
    lines::{encode, pack, read_all, read_segment},
    markdown,
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
    let lines = (0..).zip(all).map(|(number, contention)| {
        let mut one = interval(number, vec![row("Get", 100, 900, 100 * (number + 1))]);
        one.contention = *contention;
        Line::Interval(one)
    });
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
