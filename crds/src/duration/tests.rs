use super::*;

fn parse(text: &str) -> Result<Duration, String> {
    text.parse()
}

#[test]
fn durations_are_read_as_kubernetes_users_write_them() {
    for (text, nanos) in [
        ("10s", 10_000_000_000),
        ("500us", 500_000),
        ("1m30s", 90_000_000_000),
        ("1.5ms", 1_500_000),
        ("7ns", 7),
    ] {
        assert_eq!(parse(text).map(Duration::as_nanos), Ok(nanos), "{text}");
    }
}

#[test]
fn what_is_no_duration_is_refused_with_the_text_in_the_message() {
    for text in ["", "10", "ten", "-1s", "1 day"] {
        let message = parse(text).unwrap_err();
        assert!(message.contains(&format!("{text:?}")), "{message}");
    }
}

#[test]
fn a_duration_survives_the_way_through_json() {
    for text in ["10s", "1m30s", "2h", "250ms"] {
        let duration: Duration = text.parse().unwrap();
        let json = serde_json::to_string(&duration).unwrap();
        assert_eq!(serde_json::from_str::<Duration>(&json).unwrap(), duration);
    }
}
