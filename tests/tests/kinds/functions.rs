//! Functions of the process, by a pattern.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_agent::host::Session;
use ckb_probe_crds::{kinds::functions::FunctionsProbe, report::CUT};
use ckb_probe_testkit::{EVERY_FUNCTION, Fixture};
use ckb_probe_tests::{fixture::GroundTruth, rows};

use crate::{
    usdt::{TRACED, VALID, told_parents},
    way::{in_every_way, lost, total},
};

fn matching(pattern: &str, threshold: Option<Duration>) -> FunctionsProbe {
    FunctionsProbe {
        r#match: pattern.to_string(),
        library: None,
        limit: 50,
        threshold: threshold.map(Into::into),
        arguments: Vec::new(),
        stacks: false,
        include_single_stepped: true,
        to: Vec::new(),
        to_return: Vec::new(),
        key_argument: None,
        key_name: None,
        traceparent_argument: None,
    }
}

/// From the beginning of `begin` to that of either of its ends, by this argument or by thread. They take a number each.
fn from_one_to_another(key_argument: Option<u8>, threshold: Option<Duration>) -> FunctionsProbe {
    FunctionsProbe {
        to: vec!["end".to_string(), "failed".to_string()],
        key_argument,
        ..matching("begin", threshold)
    }
}

const SPANS: &str = "begin to end or failed";

/// From the beginning of `enqueue` to when `handle` returns, or `refuse` begins, by this argument or by thread.
fn to_a_return(key_argument: Option<u8>, threshold: Option<Duration>) -> FunctionsProbe {
    FunctionsProbe {
        to: vec!["refuse".to_string()],
        to_return: vec!["handle".to_string()],
        key_argument,
        ..matching("enqueue", threshold)
    }
}

const RETURNS: &str = "enqueue to refuse or the return of handle";

/// A program of which both have what they have in common as their second argument.
fn returns() -> Fixture {
    Fixture::named("returns", &[])
}

/// What a program says of how long it took: at the least, and at the most.
fn took(answer: &str) -> (u64, u64) {
    let (least, most) = answer.split_once(' ').unwrap();
    (least.parse().unwrap(), most.parse().unwrap())
}

fn program() -> Fixture {
    Fixture::named("usdt-arguments", &[])
}

/// How many were over, how many of those were not seen to end, how many ends were seen of nothing, and how many were timed.
fn ended(session: &Session) -> [u64; 4] {
    ended_of(session, SPANS)
}

fn ended_of(session: &Session, row: &str) -> [u64; 4] {
    let total = total(session, row);
    let durations = &total.distributions["duration"];
    [
        rows::calls(total),
        total.sums["unended"],
        total.sums["unbegun"],
        durations.histogram.count(),
    ]
}

#[test]
fn time_from_one_function_to_another_is_that_of_the_program_and_what_has_no_end_or_no_beginning_is_told()
 {
    let slow = Some(Duration::from_millis(1));
    in_every_way(from_one_to_another(None, slow), |way| {
        let mut chosen = program();
        let mut session = way.attach(chosen.pid());
        let (least, most) = took(&chosen.tell("spans 100"));
        session.read().unwrap();
        assert_eq!(ended(&session), [100, 0, 0, 100]);
        let durations = &total(&session, SPANS).distributions["duration"];
        // What the traps add is taken off as it was measured, which may be some hundred nanoseconds too much.
        let room = 1000 * 100;
        assert!(
            (least.saturating_sub(room)..=most).contains(&durations.sum),
            "{} of {least} to {most}",
            durations.sum
        );
        assert_eq!(rows::slow(total(&session, SPANS)), 100);
        let events = session.events();
        assert_eq!(events.len(), 100);
        assert!(events.iter().all(|event| event["function"] == SPANS));
        chosen.tell("ends 7");
        session.read().unwrap();
        assert_eq!(ended(&session), [100, 0, 7, 100]);
        // Five began: four of them without an end, and one is in flight.
        chosen.tell("begins 5");
        session.read().unwrap();
        assert_eq!(ended(&session), [104, 4, 7, 100]);
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn what_a_function_begins_and_another_ends_in_another_thread_is_known_by_its_argument() {
    in_every_way(from_one_to_another(Some(1), None), |way| {
        let mut chosen = program();
        let mut session = way.attach(chosen.pid());
        chosen.tell("crossed 5000");
        session.read().unwrap();
        assert_eq!(ended(&session), [5000, 0, 0, 5000]);
        assert_eq!(lost(&session), 0);
        // Whoever looks at threads sees nothing end.
        drop(session);
        let by_thread = from_one_to_another(None, None).into();
        let mut session = way.ask(by_thread, chosen.pid()).unwrap();
        chosen.tell("crossed 5000");
        session.read().unwrap();
        assert_eq!(ended(&session), [4999, 4999, 5000, 0]);
    });
}

#[test]
fn time_to_when_a_function_returns_is_that_of_the_program_by_thread_and_by_argument() {
    let slow = Some(Duration::from_millis(3));
    in_every_way(to_a_return(None, slow), |way| {
        for key in [None, Some(2)] {
            let mut chosen = returns();
            let asked = to_a_return(key, slow).into();
            let mut session = way.ask(asked, chosen.pid()).unwrap();
            // Two milliseconds pass before the function begins, and two until it returns.
            let (least, most) = took(&chosen.tell("handled 100"));
            session.read().unwrap();
            assert_eq!(ended_of(&session, RETURNS), [100, 0, 0, 100]);
            let durations = &total(&session, RETURNS).distributions["duration"];
            let room = 1000 * 100;
            assert!(
                (least.saturating_sub(room)..=most).contains(&durations.sum),
                "{} of {least} to {most}",
                durations.sum
            );
            assert_eq!(rows::slow(total(&session, RETURNS)), 100);
            let events = session.events();
            assert_eq!(events.len(), 100);
            assert!(events.iter().all(|event| event["function"] == RETURNS));
            // Either end does, and what begins within the function ends as it returns, too.
            chosen.tell("refused 7");
            chosen.tell("within 9");
            session.read().unwrap();
            assert_eq!(ended_of(&session, RETURNS), [116, 0, 0, 116]);
            chosen.tell("returns 11");
            session.read().unwrap();
            assert_eq!(ended_of(&session, RETURNS), [116, 0, 11, 116]);
            assert_eq!(lost(&session), 0);
        }
    });
}

#[test]
fn what_ends_as_a_function_returns_in_another_thread_is_known_by_its_argument() {
    in_every_way(to_a_return(Some(2), None), |way| {
        let mut chosen = returns();
        let mut session = way.attach(chosen.pid());
        let (least, most) = took(&chosen.tell("crossed 5000"));
        session.read().unwrap();
        assert_eq!(ended_of(&session, RETURNS), [5000, 0, 0, 5000]);
        let sum = total(&session, RETURNS).distributions["duration"].sum;
        // What a trap takes between two readings of the clock scatters by more on a machine that is emulated, and all else takes longer there.
        let scatters = (1000 * 5000).max(least / 1000);
        assert!(
            (least.saturating_sub(scatters)..=most).contains(&sum),
            "{sum} of {least} to {most}"
        );
        assert_eq!(lost(&session), 0);
        drop(session);
        let by_thread = to_a_return(None, None).into();
        let mut session = way.ask(by_thread, chosen.pid()).unwrap();
        chosen.tell("crossed 5000");
        session.read().unwrap();
        assert_eq!(ended_of(&session, RETURNS), [4999, 4999, 5000, 0]);
    });
}

#[test]
fn of_functions_that_call_themselves_the_first_return_ends_and_what_is_not_seen_to_return_is_not_timed()
 {
    in_every_way(to_a_return(None, None), |way| {
        for key in [None, Some(2)] {
            let mut chosen = returns();
            let asked = to_a_return(key, None).into();
            let mut session = way.ask(asked, chosen.pid()).unwrap();
            // The innermost ends it, and of the others nothing had begun.
            chosen.tell("nested 3");
            session.read().unwrap();
            assert_eq!(ended_of(&session, RETURNS), [1, 0, 2, 1]);
            // The kernel sees 64 of them return. The first to do so is none of these.
            chosen.tell("nested 70");
            session.read().unwrap();
            assert_eq!(ended_of(&session, RETURNS), [2, 1, 66, 1]);
            assert_eq!(lost(&session), 0);
        }
    });
}

#[test]
fn what_a_function_ends_that_never_returns_is_unended_and_so_is_what_it_was_not_seen_to_begin() {
    in_every_way(to_a_return(None, None), |way| {
        let mut chosen = returns();
        // It began before anybody looked: that it returns is nobody's end.
        chosen.tell("entered 1");
        let mut session = way.attach(chosen.pid());
        chosen.tell("left 1");
        session.read().unwrap();
        assert_eq!(ended_of(&session, RETURNS), [0, 0, 0, 0]);
        // Each but the last began once more; that one is in flight.
        chosen.tell("jumped 5");
        session.read().unwrap();
        assert_eq!(ended_of(&session, RETURNS), [4, 4, 0, 0]);
        chosen.tell("handled 1");
        session.read().unwrap();
        assert_eq!(ended_of(&session, RETURNS), [6, 5, 0, 1]);
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn calls_in_which_their_threads_end_are_counted_and_in_nobodys_way() {
    in_every_way(matching("nothing*", None), |way| {
        let mut chosen = returns();
        let mut session = way.attach(chosen.pid());
        let seen = |session: &Session, row| {
            let total = total(session, row);
            [rows::calls(total), rows::durations(total).count()]
        };
        let lost = |session: &Session, what| session.instance().lost[what];
        chosen.tell("ended 600");
        session.read().unwrap();
        let told = if way.is_a_session() { 0 } else { 600 };
        assert_eq!(seen(&session, "nothing_returns"), [told, 0]);
        assert_eq!(lost(&session, CUT), told);
        assert_eq!(lost(&session, "calls"), 0);
        // More than there is room for, until it is looked which of them have ended.
        chosen.tell("ended 15000");
        std::thread::sleep(Duration::from_secs(1));
        session.read().unwrap();
        let [counted, timed] = seen(&session, "nothing_returns");
        let all = if way.is_a_session() { 0 } else { 15_600 };
        let missed = lost(&session, "calls");
        assert_eq!((counted + missed, timed), (all, 0));
        assert_eq!(lost(&session, CUT), counted);
        chosen.tell("busy 15000");
        session.read().unwrap();
        assert_eq!(seen(&session, "nothing"), [15_000; 2]);
        assert_eq!(lost(&session, "calls"), missed);
        // Where the kernel remembers what is in flight, that is known at the end.
        session.finish();
        session.read().unwrap();
        let [counted, timed] = seen(&session, "nothing_returns");
        assert_eq!((counted + missed, timed), (15_600, 0));
        assert_eq!(lost(&session, CUT), counted);
        assert_eq!(seen(&session, "nothing"), [15_000; 2]);
    });
}

#[test]
fn what_crosses_threads_is_as_long_as_it_is_however_much_is_measured_of_either() {
    in_every_way(to_a_return(Some(2), None), |way| {
        let mut chosen = returns();
        let questions = [to_a_return(Some(2), None), matching("nothing", None)];
        let questions = questions.map(Into::into);
        let mut session = way.ask_all(questions, chosen.pid()).unwrap();
        // What probing took of the thread in which all begins.
        chosen.tell("busy 20000");
        let (least, most) = took(&chosen.tell("crossed 10"));
        session.read().unwrap();
        assert_eq!(ended_of(&session, RETURNS), [10, 0, 0, 10]);
        let sum = total(&session, RETURNS).distributions["duration"].sum;
        assert!(
            (least.saturating_sub(1000 * 10)..=most).contains(&sum),
            "{sum} of {least} to {most}"
        );
    });
}

#[test]
fn what_an_argument_of_a_function_says_that_it_is_a_part_of_is_told() {
    let question = FunctionsProbe {
        to: vec!["answered".to_string()],
        key_argument: Some(1),
        traceparent_argument: Some(2),
        ..matching("requested", Some(Duration::from_millis(1)))
    };
    in_every_way(question, |way| {
        let mut chosen = program();
        let mut session = way.attach(chosen.pid());
        chosen.tell("handed 11");
        let told = told_parents(&mut session);
        assert_eq!(told.len(), 11);
        let known: Vec<&str> = told.iter().flatten().map(String::as_str).collect();
        assert_eq!(known, VALID);
        assert_eq!(total(&session, TRACED).sums["unended"], 0);
        let lost = &session.instance().lost;
        assert_eq!((lost["traceparents"], lost["arguments"]), (5, 1));
    });
}

#[test]
fn each_call_of_what_matches_is_counted_and_no_other() {
    in_every_way(matching("rocksdb_transaction_*", None), |way| {
        let start =
            || GroundTruth::start("ground-truth", &["--threads", "4"], &EVERY_FUNCTION).unwrap();
        let (mut chosen, mut other) = (start(), start());
        let mut session = way.attach(chosen.pid());
        let truth = chosen.go().unwrap();
        other.go().unwrap();
        session.read().unwrap();
        let expected = truth.functions.iter();
        let expected: BTreeMap<&str, [u64; 2]> = expected
            .filter(|(name, _)| name.starts_with("rocksdb_transaction_"))
            .map(|(name, truth)| (name.as_str(), [truth.calls; 2]))
            .collect();
        assert_eq!(expected.len(), 6);
        let series = session.instance().probes[0].series.iter();
        let counted = series.flat_map(|series| &series.rows);
        let counted: BTreeMap<&str, [u64; 2]> = counted
            .map(|(name, row)| {
                let total = &row.all.total;
                let timed = rows::durations(total).count();
                (name.as_str(), [rows::calls(total), timed])
            })
            .collect();
        assert_eq!(counted, expected);
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn functions_of_cpp_go_by_their_qualified_names_and_slow_calls_are_told() {
    let threshold = Duration::from_millis(20);
    in_every_way(matching("rocksdb::FlushJob::*", Some(threshold)), |way| {
        let plan = ["rocksdb::FlushJob::Run 5 constant:30000000"];
        let mut fixture = GroundTruth::start("ground-truth", &[], &plan).unwrap();
        let mut session = way.attach(fixture.pid());
        fixture.go().unwrap();
        session.read().unwrap();
        let calls = total(&session, "rocksdb::FlushJob::Run");
        assert_eq!((rows::calls(calls), rows::slow(calls)), (5, 5));
        let events = session.events();
        assert_eq!(events.len(), 5);
        for event in &events {
            assert_eq!(event["function"], "rocksdb::FlushJob::Run");
            let nanoseconds = event["durationNanoseconds"].as_u64().unwrap();
            assert!(nanoseconds >= 30_000_000, "{event}");
        }
    });
}

#[test]
fn slow_calls_say_where_they_came_from() {
    let question = FunctionsProbe {
        stacks: true,
        ..matching("rocksdb::FlushJob::*", Some(Duration::from_millis(20)))
    };
    in_every_way(question, |way| {
        let plan = ["rocksdb::FlushJob::Run 5 constant:30000000"];
        let mut fixture = GroundTruth::start("ground-truth", &[], &plan).unwrap();
        let mut session = way.attach(fixture.pid());
        fixture.go().unwrap();
        let events = session.events();
        session.read().unwrap();
        assert_eq!(events.len(), 5);
        let stacks = events.iter().filter_map(|event| event["stack"].as_array());
        let stacks: Vec<Vec<&str>> = stacks
            .map(|stack| stack.iter().filter_map(|name| name.as_str()).collect())
            .collect();
        for stack in &stacks {
            assert_eq!(stack[0], "make_cpp_call", "{stack:?}");
            assert!(stack.contains(&"run_worker"), "{stack:?}");
            assert_ne!(stack.last(), Some(&"[truncated]"));
        }
        // What is not told, where the machine is slow, is said to be missing; what is told reaches to where the thread began.
        assert!(!stacks.is_empty());
        assert_eq!(stacks.len() as u64 + lost(&session), 5);
    });
}
