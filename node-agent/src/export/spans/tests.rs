use ckb_probe_crds::Kind;
use ckb_probe_traces::Traceparent;
use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::mechanism::GroupId;

fn event(details: Vec<(&'static str, Detail)>) -> Event {
    Event {
        time: Timestamp::from_nanosecond(1_700_000_000_000_000_500).unwrap(),
        group: GroupId::default(),
        row: None,
        part: None,
        thread: 7,
        thread_name: "verify_blocks".to_string(),
        weight: 400,
        details,
    }
}

fn placed<'a>(kind: &str, row: &str, part: Option<&str>, stands_for: f64) -> Placed<'a> {
    let kind = Kind::ALL.iter().find(|one| one.as_str() == kind).unwrap();
    Placed {
        probe: "mine",
        kind: *kind,
        row: row.to_string(),
        part: part.map(str::to_string),
        stands_for,
    }
}

fn operation(name: &str, calls: u64, nanoseconds: u64, is_last: bool) -> OperationTime {
    OperationTime {
        name: name.to_string(),
        calls,
        nanoseconds,
        is_last,
    }
}

fn value<'a>(span: &'a Span, name: &str) -> Option<&'a Value> {
    let mut all = span.attributes.iter();
    all.find(|(key, _)| key == name).map(|(_, value)| value)
}

#[test]
fn a_block_is_a_trace_with_its_height_and_what_it_consisted_of() {
    let operations = vec![
        operation("TxnGet", 12, 150, false),
        operation("TxnCommit", 1, 100, true),
    ];
    let block = event(vec![
        ("height", Detail::Number(42)),
        ("duration", Detail::Nanoseconds(400)),
        ("offCpu", Detail::Portion(250)),
        ("operations", Detail::Operations(operations)),
    ]);
    let mut ids = Ids::from_seed(1);
    let spans = spans(&block, &placed("chain", "accepted", None, 1.0), &mut ids);
    let told: Vec<_> = spans
        .iter()
        .map(|span| (span.name.as_str(), span.start_ns, span.end_ns))
        .collect();
    let (start, end) = (1_700_000_000_000_000_100, 1_700_000_000_000_000_500);
    assert_eq!(
        told,
        [
            ("chain accepted", start, end),
            ("offCpu", start, start + 250),
            ("TxnGet", start, start + 150),
            ("TxnCommit", end - 100, end),
        ]
    );
    let root = &spans[0];
    assert_eq!(root.parent, None);
    assert!(spans[1..].iter().all(|span| span.parent == Some(root.id)));
    assert!(spans.iter().all(|span| span.trace == root.trace));
    assert_eq!(value(root, "ckb_probe.height"), Some(&Value::Number(42)));
    assert_eq!(value(root, "ckb_probe.outcome"), Some(&"accepted".into()));
    assert_eq!(
        value(root, "ckb_probe.off_cpu_ns"),
        Some(&Value::Number(250))
    );
    assert_eq!(value(root, "thread.name"), Some(&"verify_blocks".into()));
    assert_eq!(
        value(&spans[2], "ckb_probe.calls"),
        Some(&Value::Number(12))
    );
    assert_eq!(value(&spans[2], "ckb_probe.place"), Some(&"unknown".into()));
    assert_eq!(value(&spans[3], "ckb_probe.place"), Some(&"last".into()));
}

#[test]
fn what_a_caller_asked_for_is_a_part_of_its_trace() {
    let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let parent = Traceparent::of(text.as_bytes()).unwrap();
    let request = event(vec![
        ("duration", Detail::Nanoseconds(400)),
        ("traceparent", Detail::Parent(parent)),
        ("cpu", Detail::Portion(100)),
    ]);
    let mut ids = Ids::from_seed(5);
    let place = placed("usdt", "begin to end", None, 1.0);
    let all = spans(&request, &place, &mut ids);
    let [root, below] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(root.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(root.parent.unwrap().to_string(), "00f067aa0ba902b7");
    assert_eq!((below.trace, below.parent), (root.trace, Some(root.id)));
    // It is in the span itself.
    assert_eq!(value(root, "ckb_probe.traceparent"), None);
    // Two that have one caller are two spans.
    let again = spans(&request, &place, &mut ids);
    assert_eq!(again[0].trace, root.trace);
    assert_ne!(again[0].id, root.id);
}

#[test]
fn a_part_is_never_longer_than_the_whole() {
    let block = event(vec![
        ("duration", Detail::Nanoseconds(100)),
        ("cpu", Detail::Portion(101)),
    ]);
    let mut ids = Ids::from_seed(2);
    let spans = spans(&block, &placed("chain", "accepted", None, 1.0), &mut ids);
    assert_eq!(spans[1].end_ns, spans[0].end_ns);
    // What was measured is told all the same.
    assert_eq!(
        value(&spans[0], "ckb_probe.cpu_ns"),
        Some(&Value::Number(101))
    );
}

#[test]
fn a_slow_call_says_its_part_and_how_many_it_stands_for() {
    let call = event(vec![
        ("duration", Detail::Nanoseconds(400)),
        ("bytes", Detail::Bytes(9)),
        ("during", Detail::List(vec!["Flush".to_string()])),
        ("arguments", Detail::List(Vec::new())),
    ]);
    let mut ids = Ids::from_seed(3);
    let spans = spans(
        &call,
        &placed("rocksdb", "Get", Some("CELL"), 12.5),
        &mut ids,
    );
    let [span] = &spans[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(span.name, "rocksdb Get");
    assert_eq!(value(span, "ckb_probe.operation"), Some(&"Get".into()));
    assert_eq!(value(span, "ckb_probe.column_family"), Some(&"CELL".into()));
    assert_eq!(
        value(span, "ckb_probe.stands_for"),
        Some(&Value::Real(12.5))
    );
    assert_eq!(value(span, "ckb_probe.bytes"), Some(&Value::Number(9)));
    assert_eq!(
        value(span, "ckb_probe.during"),
        Some(&Value::List(vec!["Flush".to_string()]))
    );
    assert_eq!(value(span, "ckb_probe.arguments"), None);
}

#[test]
fn what_takes_no_time_is_no_span_and_what_is_private_is_in_none() {
    let exec = event(vec![
        ("what", Detail::Text("exec".to_string())),
        ("ran", Detail::Nanoseconds(5)),
    ]);
    let mut ids = Ids::from_seed(4);
    let place = placed("processes", "sh", None, 1.0);
    assert!(spans(&exec, &place, &mut ids).is_empty());
    let secret = event(vec![
        ("duration", Detail::Nanoseconds(5)),
        ("command", Detail::Number(1)),
        ("line", Detail::Private("sh --password x".to_string(), 3)),
    ]);
    let spans = spans(&secret, &place, &mut ids);
    assert_eq!(value(&spans[0], "ckb_probe.line"), Some(&Value::Number(3)));
    let named = spans[0]
        .attributes
        .iter()
        .filter(|(key, _)| key == "ckb_probe.command");
    assert_eq!(named.count(), 1, "a name stands once");
    assert!(!format!("{spans:?}").contains("password"));
}

#[test]
fn what_a_program_wrote_goes_on_as_it_is_with_what_is_known_of_who_wrote_it() {
    let text = br#"[{"traceId":"a","id":"1","parentId":"2","kind":"CLIENT","name":"call","timestamp":5,"duration":7,"tags":{"rpc":"getinfo"}},
        {"traceId":"b","id":"2","timestamp":5}]"#;
    let written = ckb_probe_traces::zipkin::read(text, 0).unwrap();
    let emitted = event(vec![("spans", Detail::Emitted(written.clone().into()))]);
    let mut ids = Ids::from_seed(6);
    let told = spans(&emitted, &placed("usdt", "span_emit", None, 3.0), &mut ids);
    assert_eq!(told.len(), 2);
    for (span, written) in told.iter().zip(&written) {
        let without = |span: &Span| Span {
            attributes: Vec::new(),
            name: String::new(),
            ..span.clone()
        };
        assert_eq!(without(span), without(written));
        assert_eq!(
            value(span, "ckb_probe.usdt_probe"),
            Some(&"span_emit".into())
        );
        assert_eq!(value(span, "ckb_probe.probe"), Some(&"mine".into()));
        assert_eq!(value(span, "ckb_probe.stands_for"), Some(&Value::Real(3.0)));
        assert_eq!(value(span, "thread.name"), Some(&"verify_blocks".into()));
        assert_eq!(value(span, "ckb_probe.spans"), None);
    }
    assert_eq!(value(&told[0], "rpc"), Some(&"getinfo".into()));
    let names: Vec<&str> = told.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(
        names,
        ["call", "usdt span_emit"],
        "what has no name is called what it was told by"
    );
}
