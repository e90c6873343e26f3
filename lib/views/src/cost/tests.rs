use super::*;

fn windows(cpu: impl Fn(usize, bool) -> f64, pairs: usize) -> Vec<Window> {
    let of = |pair: usize, probed| Window {
        pair,
        probed,
        account: [(Measure::Cpu, cpu(pair, probed))].into(),
        estimated_percent: probed.then_some(0.8),
        readings: Vec::new(),
        executed: false,
    };
    // In either order.
    (0..pairs)
        .flat_map(|pair| [of(pair, pair % 3 == 0), of(pair, pair % 3 != 0)])
        .collect()
}

fn more_by(part: f64) -> impl Fn(usize, bool) -> f64 {
    move |pair, probed| 1e8 * (1.0 + pair as f64) * if probed { 1.0 + part } else { 1.0 }
}

fn noise(pair: usize, probed: bool) -> f64 {
    1e8 + if pair.is_multiple_of(2) == probed {
        1e6
    } else {
        0.0
    }
}

#[test]
fn an_effect_is_that_of_probes_whichever_came_first() {
    let table = table(&windows(more_by(0.02), 8), "rocksdb of process 7");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines[0],
        "rocksdb of process 7; 8 pairs, each in an order that a coin decided"
    );
    let words: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(
        words,
        [
            "CPU", "time", "a", "second", "450ms", "459ms", "+2.00%", "+2.00%", "to", "+2.00%",
            "0.0078"
        ]
    );
    assert_eq!(
        lines[3],
        "an effect on its CPU time, between +2.00% and +2.00%"
    );
    assert_eq!(
        lines[4],
        "estimated by calls times their cost: 0.80 % of its CPU time, below what was measured"
    );
}

#[test]
fn what_is_noise_is_called_noise_and_the_estimate_may_be_within_it() {
    let table = table(&windows(noise, 8), "rocksdb of process 7");
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[2].starts_with("CPU time") && lines[2].ends_with("noise"),
        "{table}"
    );
    assert!(
        lines[3].starts_with("no effect on its CPU time seen"),
        "{table}"
    );
    assert!(lines[4].ends_with(", within what was measured"), "{table}");
}

#[test]
fn an_estimate_is_below_within_or_above_what_was_measured() {
    // Twice as much as without, and a little more or less.
    let twice = |pair, probed| noise(pair, probed) * if probed { 2.0 } else { 1.0 };
    for (percent, place) in [(50.0, "below"), (100.0, "within"), (150.0, "above")] {
        let mut windows = windows(twice, 8);
        for window in windows.iter_mut().filter(|window| window.probed) {
            window.estimated_percent = Some(percent);
        }
        let said = format!("{percent:.2} % of its CPU time, {place} what was measured");
        assert!(table(&windows, "it").contains(&said), "{said}");
    }
}

#[test]
fn of_too_few_pairs_nothing_is_compared() {
    let few = windows(|_, _| 1e8, 5);
    assert_eq!(compare(&few), []);
    assert!(table(&few, "it").contains("too few pairs to compare"));
    assert_eq!(
        progress(5, &few, std::time::Duration::from_millis(90_400)),
        "5 pairs, 90s left"
    );
}

#[test]
fn a_cost_has_each_pair_for_whoever_reckons_again() {
    let windows = windows(more_by(0.02), 6);
    let cost = Cost {
        subject: "ckb/ckb".to_owned(),
        seed: 7,
        window: "20s".to_owned(),
        settle: "5s".to_owned(),
        ended: Some("interrupted".to_owned()),
        compared: compare(&windows),
        estimated_percent: estimate(&windows),
        windows,
    };
    let text = cost.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "PAIR   FIRST         WITHOUT         WITH  CPU TIME",
            "1      with            100ms        102ms    +2.00%",
            "2      without         200ms        204ms    +2.00%",
        ]
    );
    assert_eq!(
        lines[7],
        "CkbProbe ckb/ckb: windows of 20s, 5s after each change, coins of seed 7; 6 pairs, each in an order that a coin decided"
    );
    assert_eq!(lines.last(), Some(&"it ended before its time: interrupted"));
    assert_eq!(cost.compared[0].pairs, 6);
    assert!(!cost.compared[0].noise);
}
