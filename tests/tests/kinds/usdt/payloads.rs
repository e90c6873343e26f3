//! Texts that probes emit, of a program that writes spans of known numbers into texts of known lengths.

use ckb_probe_agent::host::Session;
use ckb_probe_crds::kinds::usdt::{Payload, PayloadFormat, UsdtProbe};
use ckb_probe_testkit::Fixture;
use ckb_probe_traces::{Span, SpanKind};

use super::question;
use crate::way::{in_every_way, lost, total};

const PROBE: &str = "span_emit";

fn emits(argument: u8) -> UsdtProbe {
    UsdtProbe {
        provider: "payloads".to_string(),
        payload: Some(Payload {
            argument,
            format: PayloadFormat::ZipkinV2,
        }),
        ..question(&[PROBE])
    }
}

fn program() -> Fixture {
    Fixture::named("usdt-payloads", &[])
}

/// The spans of each text that was told since the last time, the first first.
fn told(session: &mut Session) -> Vec<Vec<Span>> {
    let events = session.told_events();
    session.read().unwrap();
    let spans = events
        .iter()
        .map(|(event, _)| event.emitted().unwrap().to_vec());
    spans.collect()
}

fn hits(session: &Session) -> u64 {
    total(session, PROBE).sums["hits"]
}

fn lost_of(session: &Session, what: &str) -> u64 {
    session
        .instance()
        .lost
        .get(what)
        .copied()
        .unwrap_or_default()
}

/// What the program makes of a span's number; its parent is the one before, where it has any.
fn is_span(span: &Span, number: u64, is_child: bool) {
    assert_eq!(span.id.bytes(), &number.to_be_bytes());
    assert_eq!(span.trace.bytes(), &u128::from(number).to_be_bytes());
    let parent = span.parent.map(|parent| *parent.bytes());
    assert_eq!(parent, is_child.then(|| (number - 1).to_be_bytes()));
    assert_eq!(span.kind, SpanKind::Server);
    assert_eq!(span.start_ns, 1_700_000_000_000_000_000);
    assert_eq!(span.end_ns, span.start_ns + number * 1000);
    let expected = [("number".into(), number.to_string().into())];
    assert_eq!(span.attributes, expected);
    let letters = (0..span.name.len()).map(|place| char::from(b'a' + (place % 23) as u8));
    assert_eq!(span.name, letters.collect::<String>());
}

/// How long a text of one span without a name is.
const NAMELESS: usize = r#"[{"traceId":"","id":"","kind":"SERVER","timestamp":1700000000000000,"duration":,"tags":{"number":""},"name":""}]"#.len() + 32 + 16;

#[test]
fn each_text_is_told_whole_and_a_longer_one_is_counted() {
    in_every_way(emits(2), |way| {
        let (mut chosen, mut other) = (program(), program());
        let mut session = way.attach(chosen.pid());
        other.tell("length 3 495");
        let mut number = 0;
        for bytes in [495, 2047, 2048] {
            chosen.tell(&format!("length 100 {bytes}"));
            let all = told(&mut session);
            assert_eq!(all.len(), 100, "{bytes}");
            for spans in all {
                number += 1;
                let [span] = &spans[..] else {
                    panic!("{spans:?}");
                };
                is_span(span, number, false);
                let digits = number.to_string().len();
                assert_eq!(span.name.len(), bytes - NAMELESS - 2 * digits);
            }
        }
        assert_eq!((hits(&session), lost(&session)), (300, 0));
        for (bytes, what) in [
            (10, "malformedPayloads"),
            (2049, "longPayloads"),
            (7000, "longPayloads"),
        ] {
            let before = lost_of(&session, what);
            chosen.tell(&format!("length 100 {bytes}"));
            assert_eq!(told(&mut session).len(), 0, "{bytes}");
            assert_eq!(lost_of(&session, what), before + 100, "{bytes}");
        }
        assert_eq!((hits(&session), lost(&session)), (600, 300));
    });
}

#[test]
fn all_spans_of_a_text_are_told() {
    in_every_way(emits(2), |way| {
        let mut chosen = program();
        let mut session = way.attach(chosen.pid());
        chosen.tell("several 50 7");
        chosen.tell("alone 50");
        let all = told(&mut session);
        let lengths: Vec<usize> = all.iter().map(Vec::len).collect();
        assert_eq!(lengths, [[7; 50], [1; 50]].concat());
        let all = (1..).zip(all.iter().flatten());
        for (number, span) in all {
            is_span(span, number, number <= 350 && number % 7 != 1);
        }
        assert_eq!((hits(&session), lost(&session)), (100, 0));
    });
}

#[test]
fn what_is_no_text_of_spans_is_counted_and_nothing_else_is_lost_for_it() {
    in_every_way(emits(2), |way| {
        let mut chosen = program();
        let mut session = way.attach(chosen.pid());
        for round in 1..=2 {
            chosen.tell("malformed 20");
            chosen.tell("nowhere 300");
            chosen.tell("length 3 600");
            assert_eq!(told(&mut session).len(), 3);
            assert_eq!(lost_of(&session, "malformedPayloads"), round * 140);
            assert_eq!(lost_of(&session, "unreadPayloads"), round * 300);
        }
        assert_eq!((hits(&session), lost(&session)), (886, 880));
        // More than the ring has room for, until somebody reads.
        chosen.tell("length 2000 600");
        let first = told(&mut session).len() as u64;
        assert_eq!(lost_of(&session, "payloads"), 2000 - first);
        assert!((400..600).contains(&first), "{first}");
        chosen.tell("length 400 600");
        assert_eq!(told(&mut session).len(), 400);
    });
}

#[test]
fn a_text_that_changes_is_told_as_it_was_at_a_moment_or_counted() {
    in_every_way(emits(2), |way| {
        let mut chosen = program();
        let mut session = way.attach(chosen.pid());
        let mut whole = 0;
        for round in 1..=10 {
            chosen.tell("changing 300");
            whole += told(&mut session).len() as u64;
            assert_eq!(hits(&session), 300 * round);
        }
        chosen.tell("length 5 2048");
        let all = told(&mut session);
        assert_eq!(all.len(), 5);
        let reasons = [
            "payloads",
            "malformedPayloads",
            "longPayloads",
            "unreadPayloads",
        ];
        let counted: u64 = reasons.map(|what| lost_of(&session, what)).iter().sum();
        assert_eq!(counted, lost(&session));
        assert_eq!((hits(&session), whole + counted), (3005, 3000));
    });
}

#[test]
fn several_programs_are_told_apart_each_with_all_of_its_own() {
    in_every_way(emits(2), |way| {
        let mut programs = ["usdt-payloads", "usdt-emitter", "usdt-payloads"].map(|name| {
            let program = Fixture::named(name, &[]);
            let session = way.attach(program.pid());
            (program, session)
        });
        for round in 0..4 {
            for (place, (program, _)) in (1..).zip(&mut programs) {
                program.tell(&format!("several {} {}", 30 * place, place + 1));
            }
            for (place, (_, session)) in (1..).zip(&mut programs) {
                let all = told(session);
                assert_eq!(all.len(), 30 * place as usize);
                assert!(all.iter().all(|spans| spans.len() == place as usize + 1));
                let first = round * 30 * place * (place + 1) + 1;
                is_span(&all[0][0], first, false);
                assert_eq!(
                    (hits(session), lost(session)),
                    ((round + 1) * 30 * place, 0)
                );
            }
        }
    });
}

#[test]
fn an_argument_that_is_not_there_is_refused() {
    in_every_way(emits(2), |way| {
        let chosen = program();
        let refusal = way.ask(emits(3).into(), chosen.pid()).err().unwrap();
        assert_eq!(
            refusal.message,
            "payloads:span_emit has no argument 3: it has 2"
        );
    });
}
