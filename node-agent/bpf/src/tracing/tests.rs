use std::{
    io::Read,
    process::{Command, Stdio},
};

use super::*;
use crate::{btf, programs, tests::let_go, typed::Values};

fn load(types: &Types) -> Object {
    let fields = types.fields(&[
        ("task_struct", "tgid"),
        ("task_struct", "comm"),
        ("task_struct", "real_parent"),
    ]);
    let fields = btf::as_bytes(&fields.unwrap());
    Object::load_with(
        programs::named("trial").unwrap(),
        &[],
        &[("FIELDS", &fields)],
    )
    .unwrap()
}

fn getppid(times: u32) {
    for _ in 0..times {
        // SAFETY: no preconditions.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

#[test]
fn a_tracepoints_program_counts_while_it_is_attached() {
    let types = Types::read().unwrap();
    let mut object = load(&types);
    let tracepoints = Tracepoints::load(&object, &types, &[("count", "sys_enter")]).unwrap();
    let mut thread = Values::take(&mut object, "THREAD").unwrap();
    let calls: Values<u64> = Values::take(&mut object, "CALLS").unwrap();
    // SAFETY: no preconditions.
    thread.set(0, unsafe { libc::gettid() } as u32).unwrap();
    getppid(10);
    assert_eq!(calls.get(0).unwrap(), 0);
    let links = tracepoints.attach().unwrap();
    getppid(1000);
    let_go(links);
    getppid(10);
    assert_eq!(calls.get(0).unwrap(), 1000);
}

#[test]
fn a_tracepoint_that_is_not_there_is_said() {
    let types = Types::read().unwrap();
    let object = load(&types);
    let error = Tracepoints::load(&object, &types, &[("count", "no_such")]).err();
    assert_eq!(
        error.unwrap().to_string(),
        "this kernel has no tracepoint no_such"
    );
}

#[test]
fn an_iterator_goes_through_one_process() {
    let types = Types::read().unwrap();
    let object = load(&types);
    let iterator = Iterator::load(&object, &types, "list", "task").unwrap();
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Its name is right once it has answered.
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"x").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let iteration = iterator.over(child.id()).unwrap();
    for _ in 0..2 {
        let records = all(&iteration);
        let mut expected = Vec::new();
        expected.extend(child.id().to_ne_bytes());
        expected.extend(std::process::id().to_ne_bytes());
        expected.extend(b"cat\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(records, expected);
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(all(&iteration).is_empty());
}

fn all(iteration: &Iteration) -> Vec<u8> {
    let mut records = Vec::new();
    let mut reading = iteration.begin().unwrap();
    reading.read_to_end(&mut records).unwrap();
    records
}
