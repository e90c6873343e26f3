use ckb_probe_crds::Contention;
use ckb_probe_profiles::{Frame, ProfileMode, Stack};

use super::*;
use crate::{
    html, markdown,
    record::{End, Row},
    testing::{header, interval, row},
};

/// A record of so many intervals, whose calls take so long.
fn history(intervals: u64, nanos: impl Fn(u64) -> u64, names: &[&str]) -> History {
    let rows = |number: u64| -> Vec<Row> {
        let named = names.iter().map(|name| {
            let mut whole = row(name, 100, nanos(number), 100 * (number + 1));
            whole.parts = vec![row("COLUMN_CELL", 60, nanos(number), 60 * (number + 1))];
            whole
        });
        named.collect()
    };
    let run = crate::history::Run {
        header: header(),
        intervals: (0..intervals)
            .map(|number| interval(number, rows(number)))
            .collect(),
        coarse: Vec::new(),
        end: Some(End {
            at: 0,
            reason: "the time was up".to_owned(),
        }),
    };
    History {
        runs: vec![run],
        ..History::default()
    }
}

fn stacks(name: &str) -> Vec<(String, Profile)> {
    let mut profile = Profile::of(ProfileMode::Cpu);
    profile.stacks.add(&Stack {
        frames: vec![Frame::user("main", "ckb"), Frame::user(name, "ckb")],
        thread: "verify",
        weights: &[10, 100_000_000],
        ..Stack::default()
    });
    vec![("flames cpu".to_owned(), profile)]
}

#[test]
fn a_page_and_markdown_say_the_same_numbers() {
    let history = history(50, |_| 900, &["Get"]);
    let content = content("a.record", &history, stacks("read"), None);
    let (page, text) = (html::page(&content), markdown::text(&content));
    for said in [
        "Get",
        "5000",
        "COLUMN",
        "900ns",
        "session, 1030 ns a call",
        "the time was up",
        "read",
        "100.0 %",
    ] {
        assert!(page.contains(said), "{said} in the page");
        assert!(text.contains(said), "{said} in Markdown: {text}");
    }
    assert_eq!(page.matches("<figure>").count(), 6);
    assert!(page.contains("Nothing is missing between"));
}

#[test]
fn of_a_record_without_a_whole_interval_nothing_is_known_and_the_damage_is_said() {
    let told = |lines, packed| {
        let mut damaged = history(0, |_| 900, &[]);
        damaged.damage.lines = lines;
        damaged.damage.packed = packed;
        markdown::text(&content("a.record", &damaged, Vec::new(), None))
    };
    let text = told(0, true);
    for said in [
        "Nothing: the record has no interval that is whole.",
        "The record is damaged: a segment could not be unpacked to its end. What is not whole is in no figure.",
        "Nothing is known of it.",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("Nothing of it happened"), "{text}");
    assert!(told(1, false).contains("damaged: 1 line is not what was written. What"));
    let both = "damaged: 2 lines are not what was written, and a segment could not be unpacked to its end.";
    assert!(told(2, true).contains(both));
    assert!(!told(0, false).contains("damaged"));
}

#[test]
fn that_nothing_happened_is_said_only_of_what_was_measured() {
    let with = |unmeasured: fn(u64) -> bool| {
        let mut record = history(4, |_| 900, &[]);
        for (number, interval) in (0..).zip(&mut record.runs[0].intervals) {
            for probe in &mut interval.probes {
                probe.unmeasured = unmeasured(number).then(|| "SymbolNotFound".to_owned());
            }
        }
        markdown::text(&content("a.record", &record, Vec::new(), None))
    };
    let happened = "Nothing of it happened";
    let all = with(|_| false);
    assert!(all.contains("Nothing of it happened."), "{all}");
    let none = with(|_| true);
    assert!(!none.contains(happened), "{none}");
    assert!(none.contains("It was not measured (SymbolNotFound): whether"));
    assert!(none.contains("| storage | rocksdb | - | - | none | 20.0 s SymbolNotFound |"));
    let some = with(|number| number == 1);
    let said =
        "Nothing of it happened while it was measured; for 5.0 s it was not (SymbolNotFound).";
    assert!(some.contains(said), "{some}");
}

#[test]
fn rows_of_which_nothing_was_seen_are_neither_none_nor_left_out_of_what_is_said() {
    let mut record = history(4, |_| 900, &["Get", "Put"]);
    for interval in &mut record.runs[0].intervals {
        let window = &mut interval.probes[0].rows[0].window;
        (window.recorded_milliseconds, window.figures) = (0, Default::default());
    }
    let text = markdown::text(&content("a.record", &record, Vec::new(), None));
    assert!(
        text.contains("| storage | rocksdb | 0% | at least |"),
        "{text}"
    );
    assert!(text.contains("Over all of the time: ≥20/s p99 900ns, 1 row not seen."));
}

#[test]
fn a_heat_map_has_all_that_its_table_has() {
    let mut record = history(4, |_| 900, &["Get"]);
    let intervals = &mut record.runs[0].intervals;
    // What the first slices saw, which are too few to know in how much of the time; and an interval of which nothing was seen.
    intervals[0].probes[0].rows[0].window.recorded_milliseconds = 0;
    let blind = &mut intervals[2].probes[0].rows[0];
    blind.window = Default::default();
    blind.window.milliseconds = 5000;
    blind.total.clone_from(&row("Get", 0, 900, 200).total);
    for (number, interval) in intervals.iter_mut().enumerate().skip(3) {
        let total = 100 * number as u64;
        interval.probes[0].rows[0].total = row("Get", 0, 900, total).total;
    }
    let content = content("a.record", &record, Vec::new(), None);
    let text = markdown::text(&content);
    assert!(text.contains("`Get`") || text.contains("| Get |"), "{text}");
    let heats = content.sections.iter().flat_map(|one| &one.blocks);
    let heat = heats
        .filter_map(|block| match block {
            Block::Heat(heat) if heat.title == "duration of Get" => Some(&heat.counts),
            _ => None,
        })
        .next()
        .unwrap();
    let counts = heat.iter().map(|column| {
        let column = column.as_ref();
        column.map(|buckets| buckets.iter().map(|(_, count)| count).sum::<u64>())
    });
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [Some(100), Some(100), None, Some(100)]
    );
    assert!(text.contains("of all 300:"), "{text}");
}

#[test]
fn whatever_names_are_they_are_no_markup_and_nothing_is_fetched() {
    let evil = "<script>alert(1)</script>\"'&|`\u{202e}[x](http://evil)";
    let mut history = history(3, |_| 900, &[evil]);
    history.runs[0].header.target = evil.to_owned();
    let content = content(evil, &history, stacks(evil), Some((evil, &history)));
    let page = html::page(&content);
    assert!(!page.contains("<script"), "{page}");
    assert!(!page.contains('\u{202e}'));
    assert!(page.contains("&lt;script&gt;"));
    assert!(page.contains("default-src 'none'"));
    for fetched in ["src=", "href=\"http", "url(", "@import", "<link", " on"] {
        let tags = page
            .split('<')
            .filter_map(|tag| tag.split_once('>'))
            .map(|(tag, _)| tag);
        let with: Vec<&str> = tags
            .filter(|tag| !tag.starts_with("meta") && tag.contains(fetched))
            .collect();
        assert_eq!(with, Vec::<&str>::new(), "{fetched}");
    }
    let text = markdown::text(&content);
    assert!(!text.contains("<script"));
    assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;\"'&amp;\\|\\`"));
    let cells = text
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("alert"));
    assert!(cells.clone().count() > 1);
}

#[test]
fn of_two_records_what_has_changed_is_told_and_nothing_else() {
    let noisy = |number: u64| 900 + 400 * (number % 7);
    let before = history(400, noisy, &["Get"]);
    let after = history(400, |number| 2 * noisy(number), &["Get"]);
    let content = difference("after.record", &after, ("before.record", &before));
    let titles: Vec<&str> = content.sections.iter().map(|one| &*one.title).collect();
    assert_eq!(titles, ["What has changed"]);
    let text = markdown::text(&content);
    assert!(text.starts_with("# ckb-probe: after.record\n"), "{text}");
    assert!(text.contains(" Before is before.record. "), "{text}");
    let p99 = text.lines().find(|line| line.contains("| P99 |"));
    let told = p99.is_some_and(|line| line.ends_with("| more |"));
    assert!(told, "{text}");
}

#[test]
fn an_effect_is_told_with_its_bounds_and_noise_is_called_noise() {
    // 900 and 950 by turns are of one distribution, whoever looks first.
    let noisy = |number: u64| 900 + 400 * (number % 7);
    let before = history(400, noisy, &["Get", "Put"]);
    let same = history(400, |number| noisy(number + 3), &["Get", "Put"]);
    let (changes, _) = compare(&before, &same);
    assert_eq!(changes.len(), 14, "{changes:?}");
    assert!(
        changes.iter().all(|one| one.comparison.is_noise()),
        "{changes:?}"
    );
    let slower = history(400, |number| 2 * noisy(number), &["Get", "Put"]);
    let (changes, few) = compare(&before, &slower);
    let changed: Vec<&Change> = changes
        .iter()
        .filter(|one| !one.comparison.is_noise())
        .collect();
    // What took time takes longer; as often as before.
    assert!(changed.iter().all(|one| one.figure.starts_with('P')
        && one.word() == "more"
        && !one.figure.starts_with("PER")));
    assert_eq!((changed.len(), few), (changes.len() - 4, 0));
    for one in changed {
        let of = &one.comparison;
        let share = of.of_before(of.change()).unwrap();
        assert!((0.9..1.1).contains(&share), "{one:?}");
        assert!(of.low > 0.0 && of.low <= of.change() && of.change() <= of.high);
    }
    let few = compare(&history(39, noisy, &["Get"]), &before);
    assert_eq!(few.0.len(), 0);
}

/// Nine hours of half minutes, and ten minutes in the seventh in which calls take ten times as long, and the container waits for so much of its
/// periods, in percent, where anything of it is recorded.
fn with_slow_minutes(throttled: Option<u64>) -> History {
    let is_slow = |number| (840..860).contains(&number);
    let nanos = |number| match is_slow(number) {
        true => 9000,
        false => 900 + 10 * (number % 5),
    };
    let mut history = history(1080, nanos, &["Get"]);
    for (number, one) in (0..).zip(&mut history.runs[0].intervals) {
        one.milliseconds = 30_000;
        one.at = crate::testing::BEGAN + 30_000 * (number + 1);
        one.contention = throttled.map(|throttled| Contention {
            throttled_millipercent: Some(if is_slow(number) { throttled * 1000 } else { 0 }),
            retransmitted_millipercent: Some(0),
            ..Contention::default()
        });
        for row in &mut one.probes[0].rows {
            row.window.milliseconds = 30_000;
            row.window.recorded_milliseconds = 30_000;
            row.window.samples = 2000;
            row.window.figures = crate::testing::calls(2000, row.window.figures.maxima["duration"]);
        }
    }
    history
}

fn unusual_section(history: &History) -> (String, Table) {
    let section = anomalies::section(String::new(), history);
    match <[Block; 2]>::try_from(section.blocks) {
        Ok([Block::Text(said), Block::Table(table)]) => (said, table),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_as_usual_is_found_in_a_record() {
    let history = with_slow_minutes(None);
    let (said, table) = unusual_section(&history);
    assert!(
        said.starts_with("Once something was not as it usually is. Rates"),
        "{said}"
    );
    assert_eq!(anomalies::count(&history), 1);
    assert_eq!(table.rows[0][..2], ["storage Get", "P99"]);
    // Of a record that has nothing of what was waited for nothing is said of it.
    assert_eq!((table.head.len(), table.rows[0].len()), (5, 5));
    assert!(!said.contains("waited"), "{said}");
}

#[test]
fn what_the_container_waited_for_is_beside_what_is_not_as_usual() {
    let beside = |throttled| {
        let history = with_slow_minutes(Some(throttled));
        let (said, table) = unusual_section(&history);
        assert!(said.ends_with("which need not be why."), "{said}");
        assert_eq!(table.head[5], "IN THE SAME INTERVAL");
        let listed: Vec<String> = unusual(&history)
            .into_iter()
            .map(|one| one.beside)
            .collect();
        assert_eq!(listed, [&*table.rows[0][5]]);
        table.rows[0][5].clone()
    };
    assert_eq!(
        beside(38),
        "38% of the CPU limit's periods throttled, usually 0%; unknown: waiting for a CPU, waiting for a disk; \
         as usual: TCP segments sent again"
    );
    assert_eq!(
        beside(0),
        "unknown: waiting for a CPU, waiting for a disk; as usual: throttling by the CPU limit, TCP segments sent again"
    );
}

#[test]
fn what_ran_on_its_own_account_is_beside_what_is_not_as_usual() {
    let mut history = with_slow_minutes(None);
    for (number, one) in (0..).zip(&mut history.runs[0].intervals) {
        // Half of the time, where it is usually a hundredth of it.
        let nanos = match (840..860).contains(&number) {
            true => 7_500_000,
            false => 150_000,
        };
        let mut compaction = one.probes[0].rows[0].clone();
        compaction.key = "Compaction".to_owned();
        compaction.parts = Vec::new();
        compaction.window.figures = crate::testing::calls(2000, nanos);
        one.probes[0].rows.push(compaction);
    }
    let found = unusual(&history);
    let gets: Vec<&Unusual> = found.iter().filter(|one| one.row == "Get").collect();
    let [get] = gets[..] else {
        panic!("{found:?}");
    };
    let expected = "Compaction under way for 50% of the time, usually 1%; unknown: throttling";
    assert!(get.beside.starts_with(expected), "{}", get.beside);
}

/// Two days of all operations by families, each interval of different durations.
fn two_days(intervals: u64) -> History {
    let names: Vec<String> = (0..16).map(|one| format!("Operation{one}")).collect();
    let families: Vec<String> = (0..19).map(|one| format!("COLUMN_{one}")).collect();
    let each = 172_800_000 / intervals;
    let intervals = (0..intervals).map(|number| {
        let rows = names.iter().zip(1..).map(|(name, at)| {
            let mut whole = row(name, 1000, 900 * at, 9);
            let parts = families.iter().zip(1..);
            whole.parts = parts
                .map(|(family, of)| row(family, 50 + number % 13 * of, 500 * at * of, 9))
                .collect();
            let parts = whole.parts.iter_mut().map(|part| &mut part.window);
            for window in std::iter::once(&mut whole.window).chain(parts) {
                let values = window.figures.distributions.get_mut("duration").unwrap();
                for size in 0..20 {
                    let bucket = 100 + (number as u32 * 7 + size * 13 + at as u32) % 300;
                    values.histogram.add(bucket, 1 + u64::from(size));
                }
            }
            whole
        });
        let mut one = interval(number, rows.collect());
        one.milliseconds = each;
        one.at = crate::testing::BEGAN + each * (number + 1);
        one
    });
    let run = crate::history::Run {
        header: header(),
        intervals: intervals.collect(),
        coarse: Vec::new(),
        end: None,
    };
    History {
        runs: vec![run],
        ..History::default()
    }
}

#[test]
fn two_days_of_all_operations_by_families_are_no_more_than_five_megabytes() {
    // As many intervals as a chart has columns.
    let history = two_days(240);
    let content = content("days", &history, Vec::new(), Some(("days", &history)));
    let page = html::page(&content);
    println!("{} bytes", page.len());
    assert!(page.len() <= 5_000_000, "{}", page.len());
}

#[test]
#[ignore = "a figure of optimised code: scripts/nightly.sh report"]
fn two_days_of_all_operations_by_families_are_drawn_within_five_seconds() {
    // By minutes, as such a record is read.
    let minutes = two_days(2880).runs.remove(0);
    let all = minutes
        .intervals
        .into_iter()
        .map(crate::record::Line::Interval);
    let all = std::iter::once(crate::record::Line::Header(minutes.header)).chain(all);
    let segments: Vec<(bool, Vec<u8>)> = all
        .collect::<Vec<_>>()
        .chunks(10)
        .map(|lines| {
            let bytes: Vec<u8> = lines.iter().flat_map(crate::lines::encode).collect();
            (true, crate::lines::pack(&bytes).unwrap())
        })
        .collect();
    let bytes: usize = segments.iter().map(|(_, bytes)| bytes.len()).sum();
    let parts = Some(crate::history::parts_each(segments.len(), 600_000, false));
    let began = std::time::Instant::now();
    let history = History::of(crate::lines::read_all(&segments, parts).unwrap());
    let took = began.elapsed();
    let content = content("days", &history, Vec::new(), None);
    let made = began.elapsed();
    let page = html::page(&content);
    let drawn = began.elapsed();
    println!(
        "{bytes} bytes packed, read in {took:?}, made of it after {made:?}, and drawn after {drawn:?}: {} bytes",
        page.len()
    );
    assert!(drawn <= std::time::Duration::from_secs(5), "{drawn:?}");
}

/// What `lib/figures/src/anomaly/tests/recorded` has, of the record that CKB_PROBE_RECORD names, in intervals of CKB_PROBE_EACH milliseconds.
#[test]
#[ignore = "it prints figures of a record that somebody made"]
fn figures_of_a_record() {
    use ckb_probe_figures::{Value, anomaly::Known};

    let set = |name| std::env::var(name).unwrap();
    let files = std::fs::read_dir(set("CKB_PROBE_RECORD")).unwrap();
    let mut segments: Vec<_> = files
        .filter_map(|file| {
            let path = file.unwrap().path();
            let (number, part) = crate::lines::Part::of(path.file_name()?.to_str()?)?;
            let packed = part != crate::lines::Part::Open;
            Some((number, (packed, std::fs::read(path).unwrap())))
        })
        .collect();
    segments.sort();
    let segments: Vec<_> = segments.into_iter().map(|(_, one)| one).collect();
    let history = History::of(crate::lines::read_all(&segments, None).unwrap()).without_parts();
    let intervals = history.merged(set("CKB_PROBE_EACH").parse().unwrap());
    for probe in history.probes(&intervals) {
        let columns = probe.descriptor.columns.iter();
        let watched =
            columns.filter(|one| matches!(one.value, Value::Rate(_) | Value::Quantile(_, 0.99)));
        for (series, column) in probe
            .series
            .iter()
            .flat_map(|one| watched.clone().map(move |column| (one, column)))
        {
            let values = (0..intervals.len()).map(|place| {
                let known = Known::of(&series.column(place)?, column.value, 1)?;
                Some(format!("{:.2e}~{:.0}", known.value, known.error * 1e3))
            });
            let values: Vec<_> = values.collect();
            // Of what is mostly not known there is not much to be learned.
            if values.iter().flatten().count() * 2 < values.len() {
                continue;
            }
            let values = values.into_iter();
            let values: Vec<_> = values
                .map(|one| one.unwrap_or_else(|| "-".to_owned()))
                .collect();
            println!(
                "{} {} {}: {}",
                probe.asked.name,
                series.name(),
                column.head,
                values.join(" ")
            );
        }
    }
}
