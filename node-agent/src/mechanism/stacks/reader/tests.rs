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

    // What one of them has met the other one knows by the same number.
    let number = held(&one.code).number(known_function());
    assert_eq!(held(&other.code).number(known_function()), number);
    let names = other.names();
    let name = names[number as usize].function.as_deref().unwrap();
    assert!(name.ends_with("tests::known_function"), "{name}");
    assert_eq!(names.len(), 2);

    drop(one);
    let code = Arc::downgrade(&other.code);
    drop(other);
    assert!(code.upgrade().is_none());
    let again = Reader::of(process).unwrap();
    assert_eq!(held(&again.code).names.len(), 1);
}

#[test]
fn what_one_process_does_to_those_who_look_at_it_keeps_nobody_waiting_who_looks_at_another() {
    let slow = Reader::of(of(2)).unwrap();
    // Its files do not answer.
    let _held = held(&slow.code);
    let other = Reader::of(of(3)).unwrap();
    assert!(!Arc::ptr_eq(&slow.code, &other.code));
}

#[test]
fn functions_are_told_apart_up_to_a_limit() {
    let reader = Reader::of(of(4)).unwrap();
    let mut code = held(&reader.code);
    let name = |number: usize| FunctionName {
        function: Some(Arc::from(format!("function_{number}"))),
        file: Arc::from("jit"),
    };
    for number in 1..NAME_LIMIT {
        assert_eq!(code.number_of(name(number)) as usize, number);
    }
    assert_eq!(code.number_of(name(NAME_LIMIT)), 0);
    assert_eq!(
        code.number_of(name(NAME_LIMIT - 1)) as usize,
        NAME_LIMIT - 1
    );
    assert_eq!(code.names.len(), NAME_LIMIT);
    assert_eq!(code.names[0], FunctionName::default());
}

#[test]
fn where_there_is_no_room_for_its_files_it_is_said_how_much_is_lacking_until_there_is() {
    static ACCOUNT: Account = Account::new();
    ACCOUNT.limit((48 << 20) + (1 << 20));
    let mut code = Code::unread(of(5), ACCOUNT.empty());
    for _ in 0..2 {
        let refused = code.read_again().unwrap_err().to_string();
        assert!(
            refused.starts_with("there is no room for what its stacks are unwound by: it takes ")
                && refused.contains("raise agent.resources.limits.memory"),
            "{refused}"
        );
        assert_eq!(ACCOUNT.maps(), code.space.kept(), "what is kept is taken");
    }
    assert!(code.space.name(known_function()).function.is_none());

    ACCOUNT.limit(u64::MAX);
    code.read_again().unwrap();
    assert!(code.space.name(known_function()).function.is_some());
    assert_eq!(ACCOUNT.maps(), code.space.kept());
    drop(code);
    assert_eq!(ACCOUNT.maps(), 0);
}
