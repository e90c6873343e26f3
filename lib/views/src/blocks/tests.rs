use ckb_probe_crds::EventStatus;
use serde_json::json;

use super::*;

fn event(height: u64, duration: &str, row: &str) -> EventStatus {
    let event = json!({
        "time": format!("2026-11-26T10:12:{:02}.000000Z", height % 60), "pod": "ckb-0", "container": "ckb", "row": row, "text": duration,
        "details": { "height": height.to_string(), "duration": duration, "rocksdb": "12ms", "cpu": "100ms", "transactions": "3" },
    });
    serde_json::from_value(event).unwrap()
}

fn probe(events: Vec<EventStatus>) -> CkbProbe {
    let text = include_str!("../diagnosis/tests/objects/ckbprobe.yaml");
    let text = text.replace("rocksdb\n    lost", "chain\n    lost");
    let mut probe: CkbProbe = serde_yaml::from_str(&text).unwrap();
    probe.status.as_mut().unwrap().probes[0].events = events;
    probe
}

#[test]
fn the_newest_and_the_slowest_are_told_each_once() {
    let mut blocks = Blocks::default();
    let first = [
        event(100, "310ms", "accepted"),
        event(101, "1.2s", "accepted"),
    ];
    assert_eq!(blocks.take(&probe(first.to_vec())).len(), 2);
    let second = [
        event(101, "1.2s", "accepted"),
        event(102, "150ms", "abandoned"),
    ];
    let new = blocks.take(&probe(second.to_vec()));
    assert_eq!(
        (new.len(), new[0].event.details["height"].as_str()),
        (1, "102")
    );
    assert_eq!(
        blocks.text("ckb/ckb chain: height 102 0.1 blocks/s", 2),
        "ckb/ckb chain: height 102 0.1 blocks/s

newest
HEIGHT    DURATION ROCKSDB  VERIFY  COMMIT     CPU     TXS  POD
102          150ms    12ms       -       -   100ms       3  ckb-0 abandoned
101           1.2s    12ms       -       -   100ms       3  ckb-0

slowest
HEIGHT    DURATION ROCKSDB  VERIFY  COMMIT     CPU     TXS  POD
101           1.2s    12ms       -       -   100ms       3  ckb-0
100          310ms    12ms       -       -   100ms       3  ckb-0
"
    );
}

#[test]
fn the_slowest_are_told_however_many_came_after_them() {
    let mut blocks = Blocks::default();
    for thousand in 0..3 {
        let heights = thousand * 1_000..(thousand + 1) * 1_000;
        let told = heights.map(|height| {
            let duration = if height == 7 { "1.2s" } else { "150ms" };
            event(height, duration, "accepted")
        });
        blocks.take(&probe(told.collect()));
    }
    let text = blocks.text("ckb/ckb chain", 2);
    let heights: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|word| word.parse::<u64>().is_ok())
        .collect();
    assert_eq!(heights, ["2999", "2998", "7", "2999"]);
    assert_eq!(blocks.blocks.len(), KEPT);
}

#[test]
fn what_has_no_height_is_no_block_and_nothing_is_too_wide() {
    let mut other = event(1, "5ms", "accepted");
    other.details.remove("height");
    let mut blocks = Blocks::default();
    assert_eq!(blocks.take(&probe(vec![other])).len(), 0);
    assert!(blocks.is_empty());
    let mut long = event(u64::MAX, "5ms", "accepted");
    long.pod = format!("\u{1b}[2J{}", "x".repeat(200));
    blocks.take(&probe(vec![long]));
    let text = blocks.text(&"h".repeat(200), 5);
    assert!(
        text.lines().all(|line| line.chars().count() <= WIDTH),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn a_ckbprobe_without_a_probe_of_blocks_has_none() {
    assert_eq!(headline(&probe(Vec::new())), None);
    let mut chain = probe(Vec::new());
    let asked = json!({ "name": "storage", "chain": {} });
    chain.spec.probes[0] = serde_json::from_value(asked).unwrap();
    assert_eq!(
        headline(&chain).as_deref(),
        Some("e2e-soak/steady storage: 733/s p99 96.3us")
    );
}
