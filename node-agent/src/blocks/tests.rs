use super::*;

/// Blocks of these heights, each of which takes what this says, in microseconds.
fn blocks(heights: std::ops::Range<u64>, duration_us: impl Fn(u64) -> u64) -> Blocks {
    let mut blocks = Blocks::default();
    for height in heights {
        let line = json!({
            "outcome": "accepted",
            "height": height,
            "durationNanoseconds": 1_000 * duration_us(height),
            "rocksdbNanoseconds": 400_000,
            "transactions": 2,
        });
        blocks.take(&line.to_string());
    }
    blocks
}

/// Between 0 and 99, and not in any order.
fn noise(height: u64) -> u64 {
    height.wrapping_mul(6_364_136_223_846_793_005) >> 57
}

#[test]
fn lines_of_no_block_of_the_main_chain_are_passed_over() {
    let mut blocks = Blocks::default();
    for line in [
        "",
        "no JSON",
        "{}",
        r#"{"outcome":"side","durationNanoseconds":7}"#,
        r#"{"outcome":"reorganised","height":7,"durationNanoseconds":7}"#,
        r#"{"outcome":"accepted","height":8,"durationNanoseconds":7}"#,
        r#"{"outcome":"accepted","height":11,"durationNanoseconds":9}"#,
        // After a reorganisation.
        r#"{"outcome":"accepted","height":8,"durationNanoseconds":11}"#,
    ] {
        blocks.take(line);
    }
    assert_eq!((blocks.count(), blocks.missing()), (2, 2));
    assert_eq!(blocks.heights(), Some(Heights { first: 8, last: 11 }));
    assert_eq!(blocks.column(DURATION), [11.0, 9.0]);
    assert_eq!(
        (Blocks::default().missing(), Blocks::default().heights()),
        (0, None)
    );
}

#[test]
fn a_trend_is_of_stretches_of_heights() {
    let stretches = blocks(95..300, |height| height).trend(Some(100));
    let counts: Vec<(u64, usize)> = stretches
        .iter()
        .map(|stretch| (stretch.first, stretch.blocks))
        .collect();
    assert_eq!(counts, [(0, 5), (100, 100), (200, 100)]);
    assert_eq!(stretches[1].quantiles, [149_000.0, 198_000.0]);
    assert_eq!(stretches[1].means[DURATION], 149_500.0);
    let table = trend_table(&stretches);
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        [
            "HEIGHTS", "BLOCKS", "P50", "P99", "DURATION", "ROCKSDB", "TXS"
        ]
    );
    assert_eq!(
        lines[2],
        ["100-199", "100", "149us", "198us", "150us", "400us", "2.0"]
    );
    assert_eq!(stretches[2].line()["lastHeight"], 299);
    assert_eq!(stretches[2].line()["p99DurationNanoseconds"], 298_000.0);
}

#[test]
fn stretches_are_of_round_numbers_and_about_ten() {
    for (blocks, expected) in [
        (1, 1),
        (9, 1),
        (205, 20),
        (1_000, 100),
        (4_999, 200),
        (60_000, 5_000),
    ] {
        assert_eq!(round(blocks / STRETCHES), expected, "{blocks}");
    }
}

#[test]
fn two_ranges_that_differ_by_noise_are_said_to() {
    let run =
        |from: u64, more: u64| blocks(from..from + 1_000, move |height| 500 + more + noise(height));
    let same = Difference::of(&run(1, 0), &run(5_001, 0)).unwrap();
    assert!(!same.paired && same.blocks == [1_000, 1_000]);
    assert!(
        same.rows.iter().all(|row| row.comparison.is_noise()),
        "{}",
        same.table()
    );
    let slower = Difference::of(&run(1, 0), &run(5_001, 60)).unwrap();
    let verdicts: Vec<(String, &str)> = slower
        .rows
        .iter()
        .map(|row| (row.name(), row.verdict()))
        .collect();
    let expected = [
        ("duration, median", "more"),
        ("duration", "more"),
        ("rocksdb", "noise"),
        ("txs", "noise"),
    ];
    assert_eq!(
        verdicts,
        expected.map(|(name, verdict)| (name.to_string(), verdict))
    );
    let change = slower.rows[1].comparison;
    assert!((change.low..=change.high).contains(&60_000.0), "{change:?}");
    assert!(
        slower.table().contains("Welch's test"),
        "{}",
        slower.table()
    );
    assert_eq!(slower.lines()[2]["noise"], true);
}

#[test]
fn the_same_heights_are_compared_in_pairs() {
    // Blocks differ by far more than the two runs do.
    let run = |more: u64| blocks(1..2_001, move |height| 500 + 100 * noise(height) + more);
    let difference = Difference::of(&run(3), &run(0)).unwrap();
    assert!(difference.paired && difference.blocks == [2_000, 2_000]);
    assert_eq!(
        difference.rows[1].verdict(),
        "less",
        "{}",
        difference.table()
    );
    assert!(difference.table().contains("each compared with itself"));
    // One run that was shorter is compared as far as it goes.
    let shorter = run(0).within("500-1199".parse().ok());
    let difference = Difference::of(&run(3), &shorter).unwrap();
    assert!(difference.paired && difference.blocks == [700, 700]);
}

#[test]
fn of_few_blocks_nothing_is_said() {
    let few = blocks(1..30, |_| 1);
    assert_eq!(Difference::of(&few, &blocks(1..1_000, |_| 1)), None);
}

#[test]
fn heights_are_two_numbers() {
    assert_eq!("7-12".parse(), Ok(Heights { first: 7, last: 12 }));
    for text in ["", "7", "12-7", "a-b", "-1-3"] {
        assert!(text.parse::<Heights>().is_err(), "{text}");
    }
    let within = blocks(1..20, |_| 1).within("7-12".parse().ok());
    assert_eq!(within.heights(), Some(Heights { first: 7, last: 12 }));
}
