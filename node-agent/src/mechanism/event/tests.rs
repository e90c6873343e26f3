use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::mechanism::stacks::{Call, CodeOrigin};

fn callers(names: &[&str], complete: bool) -> Detail {
    let calls = names.iter().map(|name| Call {
        name: Arc::from(*name),
        file: Arc::from("ckb"),
        place: CodeOrigin::User,
    });
    Detail::Callers(Arc::new(Callers {
        calls: calls.collect(),
        complete,
        guessed: false,
    }))
}

#[test]
fn who_called_is_told_from_the_innermost_on_and_where_frames_are_missing() {
    let whole = callers(&["put", "commit", "insert", "run"], true);
    assert_eq!(
        whole.json("stack"),
        (
            "stack".to_string(),
            json!(["put", "commit", "insert", "run"])
        )
    );
    assert_eq!(whole.to_string(), "put, commit, insert, run");
    let phrase = whole.phrase("stack").unwrap();
    assert_eq!(phrase, "called by put, commit, insert, …");
    let cut = callers(&["put", "commit"], false);
    assert_eq!(cut.to_string(), "put, commit, [truncated]");
    assert_eq!(
        cut.phrase("stack").unwrap(),
        "called by put, commit, [truncated]"
    );
    assert_eq!(callers(&[], false).to_string(), "[truncated]");
}

#[test]
fn whatever_called_a_line_and_a_report_have_their_bounds() {
    let long = "n".repeat(1000);
    let deep = vec![&*long; 200];
    let deep = callers(&deep, true);
    let (_, names) = deep.json("stack");
    let names = names.as_array().unwrap();
    assert_eq!(names.len(), LISTED + 1);
    assert_eq!(names[LISTED], MORE);
    let characters = |name: &Value| name.as_str().unwrap().chars().count();
    assert_eq!(characters(&names[0]), NAME_CHARACTERS + 1);
    let told = deep.to_string();
    assert!(told.ends_with(", …"), "{told}");
    assert!(told.len() <= STATUS_BYTES, "{}", told.len());
    // Not even one name has room.
    assert_eq!(deep.phrase("stack").unwrap(), "called by …");
}

#[test]
fn no_weight_is_more_than_the_api_server_takes_for_a_whole_number() {
    let heavy = Event {
        time: Timestamp::UNIX_EPOCH,
        group: GroupId::default(),
        row: None,
        part: None,
        thread: 1,
        thread_name: String::new(),
        weight: u64::MAX,
        details: Vec::new(),
    };
    let written = serde_json::to_string(&heavy.report("Get", None)).unwrap();
    assert!(
        written.contains(r#""weight":9223372036854775807"#),
        "{written}"
    );
}

#[test]
fn what_may_hold_secrets_stands_in_lines_and_in_no_report() {
    let secret = Event {
        time: Timestamp::UNIX_EPOCH,
        group: GroupId::default(),
        row: None,
        part: None,
        thread: 1,
        thread_name: "sh".to_string(),
        weight: 1,
        details: vec![(
            "arguments",
            Detail::Private("sh --password=x".to_string(), 2),
        )],
    };
    let line = secret.line("processes", ("command", "sh"), None);
    assert_eq!(line["arguments"], "sh --password=x");
    let report = secret.report("sh", None);
    assert_eq!(report.text, "arguments 2");
    assert_eq!(report.details["arguments"], "2");
    assert!(!format!("{report:?}").contains("password"));
}

#[test]
fn of_spans_that_a_program_wrote_the_first_are_told_and_names_have_their_bounds() {
    let of = |count: usize, letters: usize| {
        let name = "n".repeat(letters);
        let all = (1..=count).map(
            |number| json!({"traceId": "1", "id": number.to_string(), "name": name, "duration": 2}),
        );
        let text = serde_json::to_vec(&all.collect::<Vec<_>>()).unwrap();
        Detail::Emitted(ckb_probe_traces::zipkin::read(&text, 0).unwrap().into())
    };
    assert_eq!(of(2, 1).phrase("spans").unwrap(), "spans n 2us, n 2us");
    let many = of(9, 1000).to_string();
    assert!(
        many.ends_with(", …") && many.len() < 3 * (NAME_CHARACTERS + 8),
        "{many}"
    );
    let (name, line) = of(1, 1).json("spans");
    assert_eq!(name, "spans");
    let trace = format!("{:032x}", 1);
    assert_eq!(
        line,
        json!([{"trace": trace, "id": &trace[16..], "parent": null, "name": "n", "durationNanoseconds": 2000}])
    );
}
