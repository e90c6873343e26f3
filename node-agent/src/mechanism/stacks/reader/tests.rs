use std::{sync::mpsc::channel, thread};

use super::*;
use crate::kernel::memory::MemoryBudget;

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

/// A thread that was met with a futex, in two functions of the kernel's.
fn met(thread: u32, flags: u32) -> Head {
    let mut kernel = [0; 64];
    kernel[..2].copy_from_slice(&[41, 42]);
    Head {
        state: 0,
        process: std::process::id(),
        thread,
        flags,
        ip: 0,
        sp: 0,
        bp: 0,
        lr: 0,
        call: libc::SYS_futex,
        written: 0,
        bytes: 0,
        argument: 0,
        switches: 0,
        arrived_ns: 0,
        reader_arrived_ns: 0,
        task_state: 1,
        pages: 0,
        kernel_frames: 2,
        stands_for: 0,
        name: *b"first\0\0\0\0\0\0\0\0\0\0\0",
        kernel,
        replaced: [0; 16],
    }
}

const NOTHING: Copied<'static> = Copied {
    begin: 0,
    bytes: &[],
};

#[test]
fn a_thread_that_has_not_run_is_where_it_was_and_waits_for_what_it_did() {
    let mut reader = Reader::of(of(7)).unwrap();
    reader.begin_pass();
    let first = reader.waiting(&met(1, 0), NOTHING);
    assert_eq!(*first.kernel, [41, 42]);
    assert_eq!(first.wait.as_deref(), Some("[futex]"));
    assert!(!first.user.is_empty() || !first.complete, "{first:?}");

    // Of one that is as it was nothing else is looked at.
    let unchanged = Head {
        kernel_frames: 0,
        call: libc::SYS_read,
        ip: 4711,
        ..met(1, UNCHANGED)
    };
    reader.begin_pass();
    assert_eq!(reader.waiting(&unchanged, NOTHING), first);

    // But that somebody has woken it, and has given it a name.
    let woken = Head {
        task_state: 0,
        name: *b"second\0\0\0\0\0\0\0\0\0\0",
        ..unchanged
    };
    let woken = reader.waiting(&woken, NOTHING);
    let expected = Key {
        thread: *b"second\0\0\0\0\0\0\0\0\0\0",
        wait: Some(Arc::from("[a CPU]")),
        ..first.clone()
    };
    assert_eq!(woken, expected);
    assert_eq!(reader.waiting(&unchanged, NOTHING), first);

    // One that was forgotten is not said to be anywhere.
    let unknown = Head {
        thread: 2,
        ..unchanged
    };
    let unknown = reader.waiting(&unknown, NOTHING);
    assert_eq!((unknown.user.len(), unknown.kernel.len()), (0, 0));
    assert_eq!((unknown.complete, unknown.wait), (false, None));
}

#[test]
fn threads_that_have_ended_make_room_for_others() {
    let mut reader = Reader::of(of(8)).unwrap();
    let kernels = |thread| met(thread, NO_USER);
    reader.begin_pass();
    for thread in 0..THREAD_LIMIT as u32 + 1 {
        reader.waiting(&kernels(thread), NOTHING);
    }
    assert_eq!(reader.waiting.len(), THREAD_LIMIT);
    reader.begin_pass();
    reader.waiting(&met(7, UNCHANGED), NOTHING);
    reader.waiting(&kernels(9), NOTHING);
    assert_eq!(reader.waiting.len(), THREAD_LIMIT);
    reader.begin_pass();
    let mut left: Vec<u32> = reader.waiting.keys().copied().collect();
    left.sort_unstable();
    assert_eq!(left, [7, 9]);
    reader.waiting(&kernels(70_000), NOTHING);
    assert_eq!(reader.waiting.len(), 3);
}

#[test]
fn files_that_are_waited_for_are_told_apart_up_to_a_limit() {
    let mut reader = Reader::of(of(9)).unwrap();
    let long = "x".repeat(4_000);
    let most = NAMES_LIMIT / (long.len() + 14);
    for number in 0..most {
        let word = format!("[read /{long}/{number:05}]");
        assert_eq!(*reader.word(&word), *word);
    }
    assert_eq!(*reader.word(&format!("[read /{long}/beyond]")), *"[read]");
    let known = format!("[read /{long}/00000]");
    assert_eq!(*reader.word(&known), *known);
    assert_eq!(*reader.word("[a CPU]"), *"[a CPU]");
    assert_eq!(*reader.word("[futex]"), *"[futex]");
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
    static ACCOUNT: MemoryBudget = MemoryBudget::new();
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
