use proptest::prelude::*;

use super::*;
use crate::testing::{header, interval, row};

/// A segment of so many intervals that ended.
fn segment(intervals: u64) -> (Vec<Line>, Vec<u8>) {
    let mut lines = vec![Line::Header(header())];
    let all = (0..intervals).map(|one| interval(one, vec![row("Get", 3 + one, 900, 9)]));
    lines.extend(all.map(Line::Interval));
    lines.push(Line::End(End {
        at: 9,
        reason: "Ctrl-C".to_owned(),
    }));
    let bytes = lines.iter().flat_map(encode).collect();
    (lines, bytes)
}

#[test]
fn what_is_written_is_read_packed_or_not() {
    let (lines, bytes) = segment(3);
    let read = read_segment(&bytes).unwrap();
    assert_eq!(read.header, Some(header()));
    let all = read.intervals.iter().cloned().map(Line::Interval);
    assert_eq!(all.collect::<Vec<_>>(), lines[1..4]);
    assert_eq!(read.end.as_ref().unwrap().reason, "Ctrl-C");
    assert_eq!(read.damage, Damage::default());
    assert_eq!(read_packed(&pack(&bytes).unwrap()).unwrap(), read);
}

#[test]
fn another_form_is_refused() {
    let other = Header {
        schema: "ckbprobe.dev/record/v2".to_owned(),
        ..header()
    };
    let error = read_segment(&encode(&Line::Header(other))).unwrap_err();
    assert!(matches!(error, RecordError::Schema(of) if of == "ckbprobe.dev/record/v2"));
}

#[test]
fn files_have_names_that_tell_what_they_are_and_others_are_left_alone() {
    for part in Part::ALL {
        assert_eq!(Part::of(&part.file(12)), Some((12, part)));
    }
    for other in [
        "00000001.jsonl.gz.tmp",
        "1.jsonl.gz",
        "flames.pb.gz",
        "0000000x.jsonl.gz",
    ] {
        assert_eq!(Part::of(other), None, "{other}");
    }
}

#[test]
fn the_oldest_wholes_go_first_and_then_the_oldest_minutes_and_what_is_written_never() {
    let files = BTreeMap::from([
        ((1, Part::Minutes), 10),
        ((2, Part::Whole), 100),
        ((2, Part::Minutes), 10),
        ((3, Part::Whole), 100),
        ((3, Part::Minutes), 10),
        ((4, Part::Open), 50),
    ]);
    assert_eq!(without_room(&files, 280), []);
    assert_eq!(without_room(&files, 279), [(2, Part::Whole)]);
    assert_eq!(
        without_room(&files, 75),
        [(2, Part::Whole), (3, Part::Whole), (1, Part::Minutes)]
    );
    assert_eq!(without_room(&files, 0).len(), 5);
}

proptest! {
    #[test]
    fn a_segment_that_is_cut_anywhere_has_all_its_whole_lines_and_says_so(intervals in 0_u64..6, at in 0.0..1.0) {
        let (lines, bytes) = segment(intervals);
        let cut = (bytes.len() as f64 * at) as usize;
        let read = read_segment(&bytes[..cut]).unwrap();
        let whole = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
        let told = usize::from(read.header.is_some()) + read.intervals.len() + usize::from(read.end.is_some());
        prop_assert_eq!(told, whole);
        prop_assert_eq!(read.damage, Damage { cut: cut > 0 && bytes[cut - 1] != b'\n', ..Damage::default() });
        let first = read.intervals.into_iter().map(Line::Interval);
        prop_assert!(first.eq(lines.into_iter().skip(1).take(whole.saturating_sub(1)).filter(|line| matches!(line, Line::Interval(_)))));
    }

    #[test]
    fn what_is_not_what_was_written_is_never_taken_for_it(intervals in 1_u64..6, at in 0.0..1.0, flip in 1_u8..=255) {
        let (lines, mut bytes) = segment(intervals);
        let at = (bytes.len() as f64 * at) as usize;
        bytes[at] ^= flip;
        let read = read_segment(&bytes).unwrap();
        let intervals: Vec<Line> = read.intervals.into_iter().map(Line::Interval).collect();
        prop_assert!(intervals.iter().all(|one| lines.contains(one)));
        // A line is damaged, or has become two; or its end has become something else, and two are one.
        prop_assert!(read.damage.is_any());
        prop_assert!(intervals.len() + 2 >= lines.len() - 2);
    }

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = read_segment(&bytes);
        let _ = read_packed(&bytes);
    }

    #[test]
    fn a_packed_segment_that_is_cut_tells_what_is_left_and_says_so(at in 0.0..1.0) {
        let (lines, bytes) = segment(5);
        let packed = pack(&bytes).unwrap();
        let cut = (packed.len() as f64 * at) as usize;
        let read = read_packed(&packed[..cut]).unwrap();
        prop_assert!(read.damage.packed);
        prop_assert!(read.intervals.into_iter().map(Line::Interval).all(|one| lines.contains(&one)));
    }
}
