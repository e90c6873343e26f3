use super::*;
use crate::messages::{Any, PartialSuccess, RetryDelay};

fn http(status: u16, body: &[u8], retry_after: Option<&str>) -> Outcome {
    of_http(status, body, retry_after, SystemTime::UNIX_EPOCH).outcome
}

fn partial(rejected_spans: i64, error_message: &str) -> Vec<u8> {
    ExportTraceServiceResponse {
        partial_success: Some(PartialSuccess {
            rejected_spans,
            error_message: error_message.to_string(),
        }),
    }
    .encode_to_vec()
}

fn retry_info(seconds: i64, nanos: i32) -> Vec<u8> {
    let info = RetryInfo {
        retry_delay: Some(RetryDelay { seconds, nanos }),
    };
    Status {
        code: 8,
        message: String::new(),
        details: vec![
            Any {
                type_url: "type.googleapis.com/google.rpc.ErrorInfo".to_string(),
                value: vec![1, 2, 3],
            },
            Any {
                type_url: "type.googleapis.com/google.rpc.RetryInfo".to_string(),
                value: info.encode_to_vec(),
            },
        ],
    }
    .encode_to_vec()
}

#[test]
fn a_success_is_taken_but_for_what_it_rejects() {
    assert_eq!(http(200, &[], None), Outcome::Taken { rejected: 0 });
    let some = partial(3, "three are odd");
    assert_eq!(http(200, &some, None), Outcome::Taken { rejected: 3 });
    let answer = of_http(200, &some, None, SystemTime::UNIX_EPOCH);
    assert_eq!(answer.message.as_deref(), Some("three are odd"));
    // Advice alone, a number that is none, and a body that is no message.
    let advice = partial(0, "use gzip");
    assert_eq!(http(200, &advice, None), Outcome::Taken { rejected: 0 });
    let negative = partial(-1, "");
    assert_eq!(http(200, &negative, None), Outcome::Taken { rejected: 0 });
    assert_eq!(http(202, b"{}", None), Outcome::Taken { rejected: 0 });
}

#[test]
fn what_http_may_be_asked_again_is_what_the_specification_names() {
    for status in 100..600 {
        let expected = match status {
            200..=299 => Outcome::Taken { rejected: 0 },
            429 | 502 | 503 | 504 => Outcome::TryAgain(None),
            _ => Outcome::Refused,
        };
        assert_eq!(http(status, &[], None), expected, "{status}");
    }
}

#[test]
fn a_receiver_says_when_in_seconds_or_by_a_date() {
    let after = |text| http(503, &[], Some(text));
    let seconds = |seconds| Outcome::TryAgain(Some(Duration::from_secs(seconds)));
    assert_eq!(after("7"), seconds(7));
    assert_eq!(after("Thu, 01 Jan 1970 00:01:30 GMT"), seconds(90));
    assert_eq!(after("soon"), Outcome::TryAgain(None));
    let past = of_http(
        429,
        &[],
        Some("Thu, 01 Jan 1970 00:01:30 GMT"),
        SystemTime::UNIX_EPOCH + Duration::from_secs(1000),
    );
    assert_eq!(past.outcome, seconds(0));
}

#[test]
fn what_grpc_may_be_asked_again_is_what_the_specification_names() {
    for code in 1..=16 {
        let expected = match code {
            1 | 4 | 10 | 11 | 14 | 15 => Outcome::TryAgain(None),
            _ => Outcome::Refused,
        };
        assert_eq!(of_grpc(code, "", &[], &[]).outcome, expected, "{code}");
    }
    let some = partial(2, "");
    assert_eq!(
        of_grpc(0, "", &[], &some).outcome,
        Outcome::Taken { rejected: 2 }
    );
}

#[test]
fn a_receiver_that_is_exhausted_is_asked_again_only_if_it_says_when() {
    let when = Some(Duration::from_millis(1500));
    let info = retry_info(1, 500_000_000);
    assert_eq!(of_grpc(8, "", &info, &[]).outcome, Outcome::TryAgain(when));
    assert_eq!(of_grpc(14, "", &info, &[]).outcome, Outcome::TryAgain(when));
    assert_eq!(of_grpc(8, "", &[], &[]).outcome, Outcome::Refused);
    assert_eq!(of_grpc(8, "", &[0xff; 9], &[]).outcome, Outcome::Refused);
    // A time that is none.
    let negative = retry_info(-1, 0);
    assert_eq!(of_grpc(8, "", &negative, &[]).outcome, Outcome::Refused);
}

#[test]
fn whatever_a_receiver_says_is_one_short_line() {
    let answer = of_http(
        400,
        "no\nsuch\u{7}thing".as_bytes(),
        None,
        SystemTime::UNIX_EPOCH,
    );
    let message = answer.message.unwrap();
    assert_eq!(message, "HTTP status 400 no such thing");
    let long = of_http(
        500,
        "é".repeat(9999).as_bytes(),
        None,
        SystemTime::UNIX_EPOCH,
    );
    assert!(long.message.unwrap().chars().count() <= MESSAGE_CHARACTERS);
    let status = Status {
        code: 3,
        message: "what is that?".to_string(),
        details: Vec::new(),
    };
    let told = of_http(400, &status.encode_to_vec(), None, SystemTime::UNIX_EPOCH);
    assert_eq!(
        told.message.as_deref(),
        Some("HTTP status 400 what is that?")
    );
}
