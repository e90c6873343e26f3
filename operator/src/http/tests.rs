use std::time::Duration;

use super::*;

fn pages() -> Pages {
    Pages {
        metrics: Metrics::new().unwrap(),
        ready: Arc::default(),
    }
}

#[tokio::test]
async fn health_says_whether_it_lives_and_is_ready() {
    let pages = pages();
    let ok = Page::Text("ok\n".to_owned());
    assert_eq!(pages.health("/healthz").await, ok);
    let page = pages.health("/readyz").await;
    assert_eq!(
        page,
        Page::Unavailable("the caches are not complete yet\n".to_owned())
    );
    pages.ready.store(true, Ordering::Relaxed);
    assert_eq!(pages.health("/readyz").await, ok);
    assert!(matches!(pages.health("/metrics").await, Page::Unknown(_)));
}

#[tokio::test]
async fn metrics_are_as_they_are_now() {
    let pages = pages();
    pages.metrics.reconciled("node", Duration::from_millis(3));
    pages.metrics.set_leader(true);
    let Page::Text(text) = pages.metrics("/metrics").await else {
        panic!("no text");
    };
    assert!(text.contains("ckb_probe_operator_leader 1\n"), "{text}");
    let bucket = "ckb_probe_reconcile_duration_seconds_bucket{kind=\"node\",le=\"0.005\"} 1\n";
    assert!(text.contains(bucket), "{text}");
    // Who may read metrics, and who may ask for health, is settled at the door.
    assert!(matches!(pages.metrics("/healthz").await, Page::Unknown(_)));
}
