//! USDT probes.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_agent::host::Session;
use ckb_probe_crds::{
    Argument,
    kinds::usdt::{Between, ByArgument, UsdtProbe, default_limit},
};
use ckb_probe_testkit::{Fixture, wait_until};

use crate::way::{in_every_way, lost, row, rows_of, total};

mod payloads;

fn question(names: &[&str]) -> UsdtProbe {
    UsdtProbe {
        provider: "fixture".to_string(),
        names: names.iter().map(ToString::to_string).collect(),
        limit: default_limit(),
        by_argument: None,
        between: None,
        payload: None,
    }
}

/// A program that meets its probes as often as it is told: `PROBE TIMES`.
fn fixture() -> Fixture {
    Fixture::named("usdt", &[])
}

#[test]
fn each_hit_is_counted_of_the_target_alone() {
    in_every_way(question(&["*"]), |way| {
        let (mut chosen, mut other) = (fixture(), fixture());
        let mut session = way.attach(chosen.pid());
        for fixture in [&mut chosen, &mut other] {
            for order in [
                "plain 20000",
                "five 3000",
                "ten 400",
                "guarded 321",
                "twice 77",
            ] {
                fixture.tell(order);
            }
        }
        session.read().unwrap();
        let counted = rows_of(&session)
            .into_iter()
            .map(|name| (name, total(&session, name).sums["hits"]));
        assert_eq!(
            counted.collect::<Vec<_>>(),
            [
                ("five", 3000),
                ("guarded", 321),
                ("plain", 20_000),
                ("ten", 400),
                ("twice", 154),
            ]
        );
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn semaphores_are_raised_while_a_probe_is_attached_to_and_no_longer() {
    in_every_way(question(&["guarded"]), |way| {
        let (mut chosen, mut other) = (fixture(), fixture());
        assert_eq!(chosen.tell("semaphores"), "0 0");
        let session = way.attach(chosen.pid());
        assert_eq!(chosen.tell("semaphores"), "1 0");
        assert_eq!(other.tell("semaphores"), "0 0");
        drop(session);
        wait_until("nobody is attached", || chosen.tell("semaphores") == "0 0");
    });
}

/// The hits of probes with arguments, told apart by one of them.
fn by_argument(number: u8, r#type: Argument, names: &[&str]) -> UsdtProbe {
    UsdtProbe {
        provider: "arguments".to_string(),
        by_argument: Some(ByArgument { number, r#type }),
        ..question(names)
    }
}

/// The hits of a row by value.
fn by_value<'a>(session: &'a Session, name: &str) -> BTreeMap<&'a str, u64> {
    let parts = row(session, name).parts.iter();
    parts
        .map(|(value, part)| (value.as_str(), part.total.sums["hits"]))
        .collect()
}

/// What the fixture meets its forms with: the first so often as it is told, the second twice as often, and so on.
const VALUES: [i64; 7] = [0, 5, -1, 200, -300, 40_000, 0x1234_5678_9abc_def0];

/// What a probe of this name is met with, of so many bytes and with or without a sign.
fn read(value: i64, bytes: u32, is_signed: bool) -> String {
    let above = 64 - 8 * bytes;
    match is_signed {
        true => (value << above >> above).to_string(),
        false => (value.cast_unsigned() << above >> above).to_string(),
    }
}

/// Each form, and the bytes and the sign of what it is.
const FORMS: [(&str, u32, bool); 20] = [
    ("register_8", 8, false),
    ("register_8_signed", 8, true),
    ("register_4", 4, false),
    ("register_4_signed", 4, true),
    ("register_2", 2, false),
    ("register_2_signed", 2, true),
    ("register_1", 1, false),
    ("register_1_signed", 1, true),
    // There is no more in the register that the note names.
    #[cfg(target_arch = "x86_64")]
    ("wider_than_its_register", 2, true),
    #[cfg(target_arch = "aarch64")]
    ("wider_than_its_register", 4, true),
    ("memory_8", 8, false),
    ("memory_8_signed", 8, true),
    ("memory_4", 4, false),
    ("memory_4_signed", 4, true),
    ("memory_2", 2, false),
    ("memory_2_signed", 2, true),
    ("memory_1", 1, false),
    ("memory_1_signed", 1, true),
    ("stack", 8, false),
    ("indexed", 4, true),
    ("indexed_by_one", 8, false),
];
/// Those that arm64 has not: a register has no second byte there, an address always has a base, and only what is near the instruction is
/// said by its name, to be loaded first.
#[cfg(target_arch = "x86_64")]
const OWN_FORMS: &[(&str, u32, bool)] = &[
    ("second_byte", 1, false),
    ("second_byte_signed", 1, true),
    ("index_alone", 8, true),
    ("short_address", 4, false),
    ("symbol", 8, true),
    ("symbol_of_a_known_place", 2, false),
    ("symbol_indexed", 8, false),
];
#[cfg(target_arch = "aarch64")]
const OWN_FORMS: &[(&str, u32, bool)] = &[];
const CONSTANTS: [(&str, &str); 3] = [
    ("constant", "-7"),
    ("constant_8", "1311768467463790320"),
    ("constant_cut", "-1"),
];
const TIMES: u64 = 100;

#[test]
fn an_argument_of_every_form_is_read_and_each_hit_is_counted_with_its_value() {
    let forms = || FORMS.iter().chain(OWN_FORMS);
    let mut patterns = vec![
        "register_*",
        "wider_*",
        "memory_*",
        "stack",
        "index*",
        "constant*",
    ];
    if !OWN_FORMS.is_empty() {
        patterns.extend(["second_byte*", "short_*", "symbol*"]);
    }
    in_every_way(by_argument(1, Argument::Integer, &patterns), |way| {
        let (mut chosen, mut other) = (arguments(), arguments());
        let mut session = way.attach(chosen.pid());
        chosen.tell(&format!("forms {TIMES}"));
        other.tell("forms 10");
        session.read().unwrap();
        assert_eq!(rows_of(&session).len(), forms().count() + CONSTANTS.len());
        for &(name, bytes, is_signed) in forms() {
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for (times, value) in (1..).zip(VALUES) {
                *expected.entry(read(value, bytes, is_signed)).or_default() += times * TIMES;
            }
            let counted = by_value(&session, name);
            let counted: BTreeMap<String, u64> = counted
                .into_iter()
                .map(|(value, hits)| (value.to_string(), hits))
                .collect();
            assert_eq!(counted, expected, "{name}");
            assert_eq!(total(&session, name).sums["hits"], 28 * TIMES);
        }
        for (name, value) in CONSTANTS {
            assert_eq!(
                by_value(&session, name),
                [(value, 28 * TIMES)].into(),
                "{name}"
            );
        }
        assert_eq!(lost(&session), 0);
    });
}

/// A program that meets probes with arguments.
fn arguments() -> Fixture {
    Fixture::named("usdt-arguments", &[])
}

#[test]
fn the_first_values_are_told_apart_and_others_together_and_no_hit_is_lost() {
    in_every_way(by_argument(1, Argument::Integer, &["many"]), |way| {
        let mut chosen = arguments();
        let mut session = way.attach(chosen.pid());
        // The first is met once, the second twice, and so on.
        chosen.tell("many 100");
        session.read().unwrap();
        let counted = by_value(&session, "many");
        let mut expected: BTreeMap<String, u64> = (0..32)
            .map(|value| (value.to_string(), value + 1))
            .collect();
        expected.insert("other".to_string(), (33..=100).sum());
        let counted: BTreeMap<String, u64> = counted
            .into_iter()
            .map(|(value, hits)| (value.to_string(), hits))
            .collect();
        assert_eq!(counted, expected);
        assert_eq!(total(&session, "many").sums["hits"], 5050);
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn texts_are_told_apart_and_one_that_is_not_there_is_lost_and_counted() {
    in_every_way(by_argument(1, Argument::String, &["text"]), |way| {
        let mut chosen = arguments();
        let mut session = way.attach(chosen.pid());
        chosen.tell("texts 30");
        session.read().unwrap();
        let expected = [
            ("\"\"", 30),
            ("\"a text of forty-seven bytes, which is all of it\"…", 30),
            ("\"a text of more than forty-seven bytes, of which\"…", 30),
            ("\"alpha\"", 30),
            ("\"other\"", 30),
            ("null", 30),
            // What is nowhere.
            ("other", 30),
        ];
        assert_eq!(by_value(&session, "text"), expected.into());
        assert_eq!(total(&session, "text").sums["hits"], 210);
        let lost = &session.instance().lost;
        assert_eq!(lost.get("arguments"), Some(&30), "{lost:?}");
    });
}

#[test]
fn a_further_argument_tells_hits_apart_as_the_first_does() {
    in_every_way(by_argument(2, Argument::Integer, &["second"]), |way| {
        let mut chosen = arguments();
        let mut session = way.attach(chosen.pid());
        chosen.tell("forms 1");
        session.read().unwrap();
        let expected = VALUES.map(|value| read(value, 4, true));
        let counted = by_value(&session, "second");
        let all: Vec<&str> = counted.into_keys().collect();
        let expected: std::collections::BTreeSet<&str> =
            expected.iter().map(String::as_str).collect();
        assert_eq!(all, expected.into_iter().collect::<Vec<_>>());
    });
}

/// From `begin` to either of its ends, by this argument or by thread.
fn spans(key_argument: Option<u8>) -> UsdtProbe {
    UsdtProbe {
        provider: "arguments".to_string(),
        between: Some(Between {
            from: "begin".to_string(),
            to: vec!["end".to_string(), "failed".to_string()],
            key_argument,
            key_name: None,
            traceparent_argument: None,
            threshold: None,
        }),
        ..question(&["*"])
    }
}

const SPANS: &str = "begin to end or failed";

/// How many were over, and of those how many were not seen to end; and how many ends were seen of nothing.
fn ended(session: &Session) -> [u64; 3] {
    ["hits", "unended", "unbegun"].map(|name| total(session, SPANS).sums[name])
}

#[test]
fn time_from_one_probe_to_another_is_that_of_the_program_and_what_has_no_end_or_no_beginning_is_told()
 {
    in_every_way(spans(None), |way| {
        let mut chosen = arguments();
        let mut session = way.attach(chosen.pid());
        let mut waited = 0;
        let (mut least, mut most) = (0, 0);
        for spans in [40, 60] {
            let answer = chosen.tell(&format!("spans {spans}"));
            let (inner, outer) = answer.split_once(' ').unwrap();
            least += inner.parse::<u64>().unwrap();
            most += outer.parse::<u64>().unwrap();
            waited += spans;
        }
        session.read().unwrap();
        assert_eq!(ended(&session), [100, 0, 0]);
        let durations = &total(&session, SPANS).distributions["duration"];
        assert_eq!(
            (durations.histogram.count(), durations.unmeasured),
            (waited, 0)
        );
        // What the traps add is taken off as it was measured, which may be some hundred nanoseconds too much.
        let room = 1000 * waited;
        assert!(
            (least.saturating_sub(room)..=most).contains(&durations.sum),
            "{} of {least} to {most}",
            durations.sum
        );
        assert!(durations.histogram.quantile(0.0).unwrap() >= 1_900_000);
        // Nothing had begun.
        chosen.tell("ends 7");
        session.read().unwrap();
        assert_eq!(ended(&session), [100, 0, 7]);
        // Five began: four of them without an end, and one is in flight.
        chosen.tell("begins 5");
        session.read().unwrap();
        assert_eq!(ended(&session), [104, 4, 7]);
        chosen.tell("ends 2");
        session.read().unwrap();
        assert_eq!(ended(&session), [105, 4, 8]);
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn what_ends_in_another_thread_is_known_by_its_argument() {
    in_every_way(spans(Some(1)), |way| {
        let mut chosen = arguments();
        let mut session = way.attach(chosen.pid());
        chosen.tell("crossed 5000");
        session.read().unwrap();
        assert_eq!(ended(&session), [5000, 0, 0]);
        let durations = &total(&session, SPANS).distributions["duration"];
        assert_eq!(
            (durations.histogram.count(), durations.unmeasured),
            (5000, 0)
        );
        assert_eq!(lost(&session), 0);
        // Whoever looks at threads sees nothing end.
        drop(session);
        let by_thread = spans(None).into();
        let mut session = way.ask(by_thread, chosen.pid()).unwrap();
        chosen.tell("crossed 5000");
        session.read().unwrap();
        assert_eq!(ended(&session), [4999, 4999, 5000]);
    });
}

#[test]
fn more_than_can_be_in_flight_is_lost_and_what_began_is_what_is_over_in_flight_or_lost() {
    in_every_way(spans(Some(1)), |way| {
        let mut chosen = arguments();
        let mut session = way.attach(chosen.pid());
        chosen.tell("begins 10000");
        session.read().unwrap();
        assert_eq!(ended(&session), [0, 0, 0]);
        let not_seen = session.instance().lost["calls"];
        assert!(not_seen > 0);
        // All end: those that were in flight, and those of which nothing was known.
        chosen.tell("ends 10000");
        session.read().unwrap();
        assert_eq!(ended(&session), [10_000 - not_seen, 0, not_seen]);
    });
}

#[test]
fn times_are_told_apart_by_an_argument_of_what_begins() {
    let question = UsdtProbe {
        by_argument: Some(ByArgument {
            number: 2,
            r#type: Argument::Integer,
        }),
        ..spans(Some(1))
    };
    in_every_way(question, |way| {
        let mut chosen = arguments();
        let mut session = way.attach(chosen.pid());
        chosen.tell("crossed 1002");
        session.read().unwrap();
        let expected = [("0", 251), ("1", 251), ("2", 250), ("3", 250)];
        assert_eq!(by_value(&session, SPANS), expected.into());
        for (value, part) in &row(&session, SPANS).parts {
            let durations = &part.total.distributions["duration"];
            assert_eq!(
                durations.histogram.count(),
                part.total.sums["hits"],
                "{value}"
            );
        }
        assert_eq!(ended(&session), [1002, 0, 0]);
    });
}

/// From a request to its answer, by the number of the request, which came with what it is a part of.
fn traced() -> UsdtProbe {
    UsdtProbe {
        between: Some(Between {
            from: "requested".to_string(),
            to: vec!["answered".to_string()],
            key_argument: Some(1),
            key_name: None,
            traceparent_argument: Some(2),
            threshold: Some(Duration::from_millis(1).into()),
        }),
        ..spans(None)
    }
}

pub const TRACED: &str = "requested to answered";

/// What requests of the fixture come with that is by W3C's grammar, as it is told: of a later version that of this one. Of eleven there are five more
/// that are not, two that are nothing, and one that is nowhere.
pub const VALID: [&str; 3] = [
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01",
];

/// What each slow time of these was told to be a part of, those that ended first being first.
pub fn told_parents(session: &mut Session) -> Vec<Option<String>> {
    let events = session.events();
    session.read().unwrap();
    let parents = events.iter().map(|event| event.get("traceparent"));
    parents
        .map(|parent| Some(parent?.as_str()?.to_string()))
        .collect()
}

#[test]
fn what_a_caller_says_that_it_is_a_part_of_is_told_of_what_is_slow_and_what_says_nothing_is_counted()
 {
    in_every_way(traced(), |way| {
        let mut chosen = arguments();
        let mut session = way.attach(chosen.pid());
        chosen.tell("traced 22");
        let told = told_parents(&mut session);
        let of = |place: usize| told[place].as_deref();
        assert_eq!(told.len(), 22);
        for round in [0, 11] {
            assert_eq!([0, 1, 2].map(|place| of(round + place)), VALID.map(Some));
            assert!((3..11).all(|place| of(round + place).is_none()));
        }
        let hits = total(&session, TRACED).sums["hits"];
        assert_eq!(hits, 22, "whatever they say, they are counted and timed");
        let lost = &session.instance().lost;
        assert_eq!((lost["traceparents"], lost["arguments"]), (10, 2));
        // What is nothing, or nowhere, is none.
        assert_eq!(lost.values().sum::<u64>(), 12);
    });
}

#[test]
fn what_is_slow_is_told_with_its_key_and_what_that_is_the_number_of() {
    let between = traced().between.map(|between| Between {
        key_name: Some("request".to_string()),
        ..between
    });
    let question = UsdtProbe {
        between,
        ..traced()
    };
    in_every_way(question, |way| {
        let mut chosen = arguments();
        let mut session = way.attach(chosen.pid());
        // With a caller that says something, and with none.
        chosen.tell("traced 5");
        let events = session.events();
        session.read().unwrap();
        let told = events.iter().map(|event| event["key"].as_str().unwrap());
        let expected: Vec<String> = (0..5).map(|number| format!("request {number}")).collect();
        assert_eq!(told.collect::<Vec<_>>(), expected);
    });
}

#[test]
fn what_began_once_more_is_a_part_of_what_it_was_told_last() {
    in_every_way(traced(), |way| {
        let mut chosen = arguments();
        let mut session = way.attach(chosen.pid());
        // With one and then with none, with none and then with one, with one and then with another.
        chosen.tell("again 4");
        let told = told_parents(&mut session);
        let expected = [None, Some(VALID[0]), Some(VALID[1])].map(|one| one.map(str::to_string));
        assert_eq!(told, [&expected[..]; 4].concat());
        assert_eq!(total(&session, TRACED).sums["unended"], 12);
        // More than there is room for, if what is given up were kept.
        chosen.tell("forsaken 9000");
        chosen.tell("traced 3");
        let told = told_parents(&mut session);
        // Where the machine is slow, some of those before were slow, too.
        let last: Vec<Option<&str>> = told
            .iter()
            .rev()
            .take(3)
            .rev()
            .map(Option::as_deref)
            .collect();
        assert_eq!(last, VALID.map(Some));
        assert_eq!(lost(&session), 0);
    });
}
