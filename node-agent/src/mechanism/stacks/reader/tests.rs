use std::{sync::mpsc::channel, thread};

use super::*;
use crate::kernel::memory::Account;

fn own() -> ProcessId {
    ProcessId {
        pid: std::process::id(),
        start_ticks: 0,
    }
}

#[inline(never)]
fn known_function() -> u64 {
    std::hint::black_box(known_function as fn() -> u64 as usize as u64)
}

/// Of a process that only this test looks at.
fn of(start_ticks: u64) -> ProcessId {
    ProcessId {
        start_ticks,
        ..own()
    }
}

#[test]
fn files_are_read_once_for_all_who_look_at_a_process_and_forgotten_with_the_last() {
    let process = of(1);
    let one = Reader::of(process).unwrap();
    let other = Reader::of(process).unwrap();
    assert!(Arc::ptr_eq(&one.code, &other.code));
    let kept = held(&one.code).space.kept();
    assert_eq!(held(&one.code).room.bytes(), kept);

    // What one of them has met the other one knows.
    let name = held(&one.code).function(known_function()).function.unwrap();
    assert!(name.ends_with("tests::known_function"), "{name}");
    let same = held(&other.code).function(known_function());
    assert!(Arc::ptr_eq(&name, &same.function.unwrap()));
    // They number them each for itself.
    drop(one);
    let code = Arc::downgrade(&other.code);
    drop(other);
    assert!(code.upgrade().is_none());
    let again = Reader::of(process).unwrap();
    assert!(held(&again.code).names.is_empty());
}

#[test]
fn what_one_process_does_to_those_who_look_at_it_keeps_nobody_waiting_who_looks_at_another() {
    let slow = Reader::of(of(2)).unwrap();
    // Its files do not answer, and somebody waits for them.
    let unanswered = held(&slow.code);
    let waits = thread::spawn(|| Reader::of(of(2)).map(drop));
    let (sender, receiver) = channel();
    let other = thread::spawn(move || sender.send(Reader::of(of(3)).is_ok()));
    let answered = receiver.recv_timeout(Duration::from_secs(60));
    assert!(!waits.is_finished());
    drop(unanswered);
    assert_eq!(answered, Ok(true));
    waits.join().unwrap().unwrap();
    other.join().unwrap().unwrap();
}

#[test]
fn names_are_told_apart_up_to_a_limit_and_then_by_their_files() {
    let mut reader = Reader::of(of(4)).unwrap();
    let long = "long ".repeat(1_000);
    let name = |number: usize| FunctionName {
        function: Some(Arc::from(format!("{long}{number:06}"))),
        file: Arc::from("jit"),
    };
    let most = NAMES_LIMIT / (long.len() + 6);
    for number in 0..most {
        assert_eq!(reader.number(name(number)) as usize, number);
    }
    let beyond = reader.number(name(most)) as usize;
    assert_eq!(beyond, most);
    assert_eq!(reader.number(name(most + 1)) as usize, most);
    assert_eq!(reader.number(name(most - 1)) as usize, most - 1);
    assert_eq!(reader.names()[beyond].function, None);
    assert_eq!(&*reader.names()[beyond].file, "jit");

    // And no more are remembered for all.
    let mut code = held(&reader.code);
    for number in 0..3 * most {
        let name = name(number).function.unwrap();
        code.name(name);
        code.function(number as u64);
        assert!(code.bytes <= NAMES_LIMIT + 2 * long.len());
    }
}

#[test]
fn who_panics_while_it_is_read_leaves_nothing_half_read() {
    let reader = Reader::of(of(6)).unwrap();
    let code = Arc::clone(&reader.code);
    let panics = thread::spawn(move || {
        let _held = held(&code);
        panic!("as if a file had not been thought of");
    });
    assert!(panics.join().is_err());
    assert_eq!(held(&reader.code).space.kept(), 0);
    Reader::of(of(6)).unwrap();
    let mut code = held(&reader.code);
    assert!(code.function(known_function()).function.is_some());
    assert_eq!(code.room.bytes(), code.space.kept());
}

#[test]
fn where_there_is_no_room_for_its_files_it_is_said_how_much_is_lacking_until_there_is() {
    static ACCOUNT: Account = Account::new();
    ACCOUNT.limit((48 << 20) + (4 << 20));
    let mut code = Code::unread(of(5), ACCOUNT.empty());
    for _ in 0..2 {
        code.read_again().unwrap();
        let lacking = code.lacking.unwrap();
        assert!(lacking.needed > lacking.available, "{lacking}");
        let error = StacksError::from(lacking).to_string();
        let beginning = "there is no room for what its stacks are unwound by: it takes ";
        assert!(error.starts_with(beginning), "{error}");
        assert_eq!(ACCOUNT.maps(), code.space.kept(), "what is kept is taken");
    }
    assert!(code.function(known_function()).function.is_none());

    ACCOUNT.limit(u64::MAX);
    code.read_again().unwrap();
    assert_eq!(code.lacking, None);
    assert!(code.function(known_function()).function.is_some());
    assert_eq!(ACCOUNT.maps(), code.space.kept());
    drop(code);
    assert_eq!(ACCOUNT.maps(), 0);
}
