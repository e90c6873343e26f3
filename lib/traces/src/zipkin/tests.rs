use proptest::{collection::vec, option, prelude::*};
use serde_json::json;

use super::*;
use crate::{messages, span::Value};

const NOW_NS: u64 = 1_700_000_000_000_000_000;

fn spans(text: &str) -> Vec<Span> {
    read(text.as_bytes(), NOW_NS).unwrap()
}

/// The only one.
fn span(text: &str) -> Span {
    let [one] = spans(text).try_into().unwrap();
    one
}

fn told<'a>(span: &'a Span, name: &str) -> Option<&'a Value> {
    let mut all = span.attributes.iter();
    all.find(|(key, _)| key == name).map(|(_, value)| value)
}

/// As Core Lightning writes one.
const LIGHTNING: &str = r#"[{"id":"00f067aa0ba902b7","name":"jsonrpc","timestamp":1700000000000123,"duration":456,"localEndpoint":{"serviceName":"lightningd"},"parentId":"0000000000000002","tags":{"rpc":"getinfo"},"traceId":"4bf92f3577b34da6a3ce929d0e0e4736"}]"#;

#[test]
fn a_span_of_core_lightning_is_read_as_it_was_written() {
    let span = span(LIGHTNING);
    assert_eq!(span.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(span.id.to_string(), "00f067aa0ba902b7");
    assert_eq!(span.parent.unwrap().to_string(), "0000000000000002");
    assert_eq!(
        (span.name.as_str(), span.kind),
        ("jsonrpc", SpanKind::Internal)
    );
    let start_ns = 1_700_000_000_000_123_000;
    assert_eq!((span.start_ns, span.end_ns), (start_ns, start_ns + 456_000));
    let expected: Attributes = vec![
        ("ckb_probe.service".into(), "lightningd".into()),
        ("rpc".into(), "getinfo".into()),
    ];
    assert_eq!(span.attributes, expected);
}

#[test]
fn all_that_a_span_says_is_told() {
    let text = json!({
        "traceId": "f", "id": "1", "kind": "CLIENT", "name": "get",
        "timestamp": 1, "duration": 2, "debug": true, "shared": false, "unheard of": [1, {}],
        "localEndpoint": {"serviceName": "a", "ipv4": "10.0.0.1", "port": 1},
        "remoteEndpoint": {"serviceName": "b", "ipv6": "::1", "port": 65535},
        "annotations": [{"timestamp": 2, "value": "sent"}, {"timestamp": 3, "value": "lost"}],
        "tags": {"text": "x", "number": 7, "flag": true, "nothing": null},
    });
    let span = span(&text.to_string());
    assert_eq!(span.trace.to_string(), format!("{:032x}", 15));
    assert_eq!((span.kind, span.parent), (SpanKind::Client, None));
    let moment = |time_ns, name: &str| Moment {
        time_ns,
        name: name.to_string(),
    };
    assert_eq!(span.events, [moment(2000, "sent"), moment(3000, "lost")]);
    for (name, value) in [
        ("ckb_probe.service", "a".into()),
        ("network.local.address", "10.0.0.1".into()),
        ("network.local.port", Value::Number(1)),
        ("peer.service", "b".into()),
        ("network.peer.address", "::1".into()),
        ("network.peer.port", Value::Number(65535)),
        ("text", "x".into()),
        ("number", "7".into()),
        ("flag", "true".into()),
        ("nothing", "null".into()),
    ] {
        assert_eq!(told(&span, name), Some(&value), "{name}");
    }
    assert_eq!(span.attributes.len(), 10);
    let kinds = ["CLIENT", "SERVER", "PRODUCER", "CONSUMER"].map(|kind| {
        let text = format!(r#"{{"traceId":"1","id":"1","kind":"{kind}"}}"#);
        super::read(text.as_bytes(), 0).unwrap()[0].kind as i32
    });
    // SPAN_KIND_CLIENT, _SERVER, _PRODUCER, _CONSUMER.
    assert_eq!(kinds, [3, 2, 4, 5]);
    let sent: messages::Span = span.message();
    assert_eq!(
        (sent.kind, sent.events.len(), sent.events[1].time_unix_nano),
        (3, 2, 3000)
    );
}

#[test]
fn what_does_not_say_when_it_was_ended_as_it_was_handed_over() {
    let ended = |text: &str| {
        let span = span(text);
        (span.start_ns, span.end_ns)
    };
    assert_eq!(ended(r#"{"traceId":"1","id":"1"}"#), (NOW_NS, NOW_NS));
    assert_eq!(
        ended(r#"{"traceId":"1","id":"1","timestamp":0,"duration":5}"#),
        (NOW_NS - 5000, NOW_NS)
    );
    assert_eq!(
        ended(r#"{"traceId":"1","id":"1","timestamp":null,"duration":null}"#),
        (NOW_NS, NOW_NS)
    );
}

#[test]
fn a_span_is_not_its_own_parent() {
    assert_eq!(
        span(r#"{"traceId":"1","id":"00a","parentId":"a"}"#).parent,
        None
    );
}

#[test]
fn what_is_none_is_taken_as_a_whole_for_none() {
    let good = r#"{"traceId":"1","id":"1"}"#;
    let none = [
        "".to_string(),
        " ".to_string(),
        "null".to_string(),
        "7".to_string(),
        "{}".to_string(),
        // Cut off, and more than there may be.
        good[..good.len() - 1].to_string(),
        format!("{good}{good}"),
        format!("[{good}"),
        format!("[{good}]x"),
        format!("[[{good}]]"),
        // One that is none is none of all.
        format!("[{good},{{}}]"),
        r#"{"id":"1"}"#.to_string(),
        r#"{"traceId":"1"}"#.to_string(),
        r#"{"traceId":"0","id":"1"}"#.to_string(),
        r#"{"traceId":"1","id":"0000"}"#.to_string(),
        r#"{"traceId":"1","id":"1","parentId":""}"#.to_string(),
        r#"{"traceId":"1","id":"A"}"#.to_string(),
        r#"{"traceId":"1","id":"+1"}"#.to_string(),
        r#"{"traceId":"1","id":1}"#.to_string(),
        format!(r#"{{"traceId":"{}","id":"1"}}"#, "1".repeat(33)),
        format!(r#"{{"traceId":"1","id":"{}"}}"#, "1".repeat(17)),
        r#"{"traceId":"1","id":"1","id":"2"}"#.to_string(),
        r#"{"traceId":"1","id":"1","kind":"client"}"#.to_string(),
        r#"{"traceId":"1","id":"1","timestamp":-1}"#.to_string(),
        r#"{"traceId":"1","id":"1","timestamp":1.5}"#.to_string(),
        r#"{"traceId":"1","id":"1","timestamp":18446744073709551615}"#.to_string(),
        r#"{"traceId":"1","id":"1","timestamp":18446744073709551,"duration":18446744073709551}"#
            .to_string(),
        r#"{"traceId":"1","id":"1","annotations":[{"timestamp":18446744073709552,"value":""}]}"#
            .to_string(),
        r#"{"traceId":"1","id":"1","tags":["a"]}"#.to_string(),
        format!(r#"{{"traceId":"1","id":"1","x":{}"#, "[".repeat(2000)),
        format!(
            r#"{{"traceId":"1","id":"1","tags":{{"x":{}1{}}}}}"#,
            "[".repeat(900),
            "]".repeat(900)
        ),
    ];
    for text in none {
        assert!(read(text.as_bytes(), NOW_NS).is_err(), "{text}");
    }
    assert!(
        read(
            b"{\"traceId\":\"1\",\"id\":\"1\",\"name\":\"\xff\"}",
            NOW_NS
        )
        .is_err()
    );
    assert_eq!(spans("[]"), []);
    assert_eq!(spans(&format!(" \n[ {good} , {good} ] ")).len(), 2);
}

#[test]
fn what_a_program_calls_a_tag_is_not_taken_for_what_is_said_by_whoever_measures() {
    let text = json!({"traceId": "1", "id": "1", "localEndpoint": {"serviceName": "mine"}, "remoteEndpoint": {"serviceName": "yours"},
        "tags": {"ckb_probe.probe": "x", "thread.id": "1", "peer.service": "z", "tag.peer.service": "y", "a\u{1b}[2J\u{202e}": "b\u{7}"}});
    let span = span(&text.to_string());
    let names: Vec<&str> = span
        .attributes
        .iter()
        .map(|(name, _)| name.as_ref())
        .collect();
    assert_eq!(
        names,
        [
            "ckb_probe.service",
            "peer.service",
            "a\u{fffd}[2J\u{fffd}",
            "tag.ckb_probe.probe",
            "tag.peer.service",
            "tag.tag.peer.service",
            "tag.thread.id"
        ]
    );
    assert_eq!(
        told(&span, "a\u{fffd}[2J\u{fffd}"),
        Some(&"b\u{fffd}".into())
    );
    assert_eq!(told(&span, "peer.service"), Some(&"yours".into()));
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_as_it_was(
        written in vec(
            (1_u128.., 1_u64.., option::of(1_u64..), "[a-z]{0,9}", 1..u64::from(u32::MAX) << 20, 0..1_u64 << 40,
             proptest::collection::btree_map("[a-z]{1,5}", "[ -~é]{0,9}", 0..4)),
            0..9,
        ),
    ) {
        let all = written.iter().map(|(trace, id, parent, name, start, length, tags)| json!({
            "traceId": format!("{trace:032x}"), "id": format!("{id:016x}"), "parentId": parent.map(|parent| format!("{parent:x}")),
            "name": name, "timestamp": start, "duration": length, "tags": tags,
        }));
        let text = serde_json::to_vec(&all.collect::<Vec<_>>()).unwrap();
        let spans = read(&text, 0).unwrap();
        prop_assert_eq!(spans.len(), written.len());
        for (span, (trace, id, parent, name, start, length, tags)) in spans.iter().zip(&written) {
            prop_assert_eq!(span.trace.bytes(), &trace.to_be_bytes());
            prop_assert_eq!(span.id.bytes(), &id.to_be_bytes());
            let parent = parent.filter(|parent| parent != id);
            prop_assert_eq!(span.parent, parent.map(|parent| SpanId::from_bytes(parent.to_be_bytes())));
            prop_assert_eq!(&span.name, name);
            prop_assert_eq!((span.start_ns, span.end_ns), (start * 1000, (start + length) * 1000));
            let told: Attributes = tags.iter().map(|(name, value)| (name.clone().into(), value.clone().into())).collect();
            prop_assert_eq!(&span.attributes, &told);
        }
    }

    #[test]
    fn no_bytes_are_too_odd(text in vec(any::<u8>(), 0..2048)) {
        let _ = read(&text, u64::MAX);
    }

    /// A text that was changed while it was read.
    #[test]
    fn no_byte_of_a_span_makes_it_anything_that_it_cannot_be(place in 0..LIGHTNING.len(), byte: u8, cut in 0..LIGHTNING.len()) {
        let mut text = LIGHTNING.as_bytes().to_vec();
        text[place] = byte;
        for text in [&text[..], &text[..cut]] {
            for span in read(text, NOW_NS).unwrap_or_default() {
                prop_assert!(span.end_ns >= span.start_ns);
                let texts = span.attributes.iter().flat_map(|(name, value)| match value {
                    Value::Text(text) => vec![name.as_ref(), text.as_str()],
                    _ => vec![name.as_ref()],
                });
                let mut texts = texts.chain([span.name.as_str()]);
                prop_assert!(texts.all(|text| text.chars().all(|letter| shown(letter) == letter)));
            }
        }
    }
}
