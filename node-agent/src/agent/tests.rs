use super::*;

fn assignment(expires_at: Option<&str>) -> Assignment {
    let json = json!({
        "probe": { "namespace": "ckb", "name": "mainnet", "uid": "1" },
        "pod": { "namespace": "ckb", "name": "ckb-0", "uid": "2" },
        "containers": [{ "name": "ckb" }],
        "executable": "ckb",
        "reportInterval": "10s",
        "overhead": { "maxPercent": 1.0, "onBreach": "Report" },
        "probes": [],
        "expiresAt": expires_at,
    });
    serde_json::from_value(json).unwrap()
}

#[test]
fn an_order_holds_until_the_moment_it_expires() {
    let orders = [assignment(None), assignment(Some("2026-01-01T00:00:10Z"))];
    let at = |time: &str| current(&orders, time.parse().unwrap()).len();
    assert_eq!(at("2026-01-01T00:00:09Z"), 2);
    assert_eq!(at("2026-01-01T00:00:10Z"), 1);
}

#[test]
fn retries_go_on_for_ever_with_pauses_that_stay_bounded() {
    let longest = WRITE_AGAIN.1;
    let pauses: Vec<Duration> = backoff(WRITE_AGAIN).build().take(1_000).collect();
    assert_eq!(pauses.len(), 1_000);
    assert!(
        pauses
            .iter()
            .all(|pause| (WRITE_AGAIN.0..=longest * 2).contains(pause))
    );
}
