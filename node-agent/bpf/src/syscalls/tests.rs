mod child;
mod restarts;
mod shares;
mod slices;

use std::io;

use child::{Child, DO, until};

use super::{super::tests::let_go, *};

const GETPPID: u32 = libc::SYS_getppid as u32;
const READ: u32 = libc::SYS_read as u32;
const OPENAT: u32 = libc::SYS_openat as u32;
const WRITE: u32 = libc::SYS_write as u32;
const EXECVE: u32 = libc::SYS_execve as u32;
const SIGNAL_RETURN: u32 = libc::SYS_rt_sigreturn as u32;

const SIZES: SyscallSizes = SyscallSizes {
    rows: 32,
    errors: 64,
    ring_bytes: 64 << 10,
};

/// 1,000 getppid, 200 read, 50 openat of what is not there.
fn known_calls() -> u64 {
    let mut byte = 0u8;
    // SAFETY: paths are terminated, buffers as long as is said.
    unsafe {
        for _ in 0..1000 {
            libc::syscall(libc::SYS_getppid);
        }
        for _ in 0..200 {
            // Of nothing: 0 bytes.
            libc::syscall(libc::SYS_read, ZERO, &raw mut byte, 0);
        }
        for _ in 0..50 {
            let path = c"/no/such/file".as_ptr();
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY);
        }
    }
    0
}
const KNOWN_CALLS: u64 = 1250;

/// Of the test binary: whatever it is, zero bytes can be read of it.
const ZERO: i32 = 0;

/// Who has the number now.
fn now(process: u32) -> Identity {
    Identity::of_now(process).unwrap()
}

/// A child that does this whenever it is told to, and whose calls are counted from now on.
fn traced(
    sizes: &SyscallSizes,
    what: fn() -> u64,
    options: &SyscallOptions,
) -> (SyscallTracer, Child, TargetId) {
    let mut tracer = SyscallTracer::load(sizes).unwrap();
    let child = Child::new(what);
    let target = tracer.add_target(now(child.id()), options).unwrap();
    tracer.attach().unwrap();
    tracer.set_gate(target, true).unwrap();
    (tracer, child, target)
}

/// Has the child do its thing: so many calls are taken up, its answer and its wait besides.
fn run_traced(child: &mut Child, tracer: &SyscallTracer, target: TargetId, calls: u64) {
    let before = tracer.hits(target).unwrap().taken;
    child.run();
    assert_eq!(tracer.hits(target).unwrap().taken, before + calls + 2);
}

fn counts(reading: &TargetReading) -> Vec<(Option<u32>, u64)> {
    let mut counts: Vec<_> = reading
        .calls
        .iter()
        .map(|call| (call.number, call.histogram.count()))
        .collect();
    counts.sort_unstable();
    counts
}

fn call(reading: &TargetReading, number: u32) -> SyscallReading {
    let found = reading
        .calls
        .iter()
        .find(|call| call.number == Some(number));
    found.cloned().unwrap_or_default()
}

fn only(numbers: &[u32]) -> SyscallOptions {
    SyscallOptions {
        wanted: Some(numbers.iter().copied().collect()),
        ..SyscallOptions::default()
    }
}

#[test]
fn every_call_of_a_target_is_counted_and_none_of_another() {
    let mut tracer = SyscallTracer::load(&SIZES).unwrap();
    let mut child = Child::new(known_calls);
    let mut bystander = Child::new(known_calls);
    let target = tracer
        .add_target(now(child.id()), &SyscallOptions::default())
        .unwrap();
    tracer.attach().unwrap();
    // Its gate is closed.
    child.run();
    assert_eq!(tracer.hits(target).unwrap().left, KNOWN_CALLS + 2);
    tracer.set_gate(target, true).unwrap();
    let misses = tracer.misses().unwrap();
    bystander.run();
    assert!(tracer.misses().unwrap() >= misses + KNOWN_CALLS);
    run_traced(&mut child, &tracer, target, KNOWN_CALLS);
    let reading = &tracer.read(&[target]).unwrap()[0];
    // Of the child's own reads, it waited in the first when the gate was opened, and waits in the last.
    let mut expected = vec![
        (Some(READ), 200),
        (Some(WRITE), 1),
        (Some(GETPPID), 1000),
        (Some(OPENAT), 50),
    ];
    expected.sort_unstable();
    assert_eq!(counts(reading), expected);
    let failed = call(reading, OPENAT);
    assert_eq!(failed.failed, 50);
    assert_eq!(failed.errors, [(libc::ENOENT as u32, 50)]);
    assert_eq!(call(reading, READ).failed, 0);
    let getppid = call(reading, GETPPID);
    assert!(getppid.max_ns > 0 && getppid.max_ns <= getppid.sum_ns);
    assert!(getppid.sum_ns >= 1000 * 10);
    assert_eq!(getppid.slow, 0);

    // Nothing more: the maxima are those of the interval.
    let again = &tracer.read(&[target]).unwrap()[0];
    assert_eq!(counts(again), expected);
    assert_eq!(call(again, GETPPID).max_ns, 0);

    // Detached, and attached again while the child waits.
    let_go(tracer.detach());
    child.run();
    tracer.attach().unwrap();
    run_traced(&mut child, &tracer, target, KNOWN_CALLS);
    let reading = &tracer.read(&[target]).unwrap()[0];
    assert_eq!(call(reading, READ).histogram.count(), 400);
    assert_eq!(call(reading, GETPPID).histogram.count(), 2000);
    let lost = tracer.hits(target).unwrap();
    assert_eq!(
        (lost.calls_lost, lost.events_lost, lost.error_numbers_lost),
        (0, 0, 0)
    );
    child.end();
    bystander.end();
}

#[test]
fn what_is_not_wanted_is_left_alone() {
    let (mut tracer, mut child, target) = traced(&SIZES, known_calls, &only(&[OPENAT]));
    child.run();
    assert_eq!(tracer.hits(target).unwrap().left, 1202);
    assert_eq!(tracer.hits(target).unwrap().taken, 50);
    let reading = &tracer.read(&[target]).unwrap()[0];
    assert_eq!(counts(reading), [(Some(OPENAT), 50)]);
    child.end();
}

#[test]
fn what_has_no_row_is_counted_with_others_and_rows_are_given_back() {
    let sizes = SyscallSizes { rows: 2, ..SIZES };
    let mut tracer = SyscallTracer::load(&sizes).unwrap();
    let mut child = Child::new(known_calls);
    tracer.attach().unwrap();
    for round in 0..5 {
        let options = SyscallOptions {
            most_rows: 2,
            ..only(&[GETPPID, READ, OPENAT])
        };
        let target = tracer.add_target(now(child.id()), &options).unwrap();
        let again = tracer.add_target(now(child.id()), &options).unwrap_err();
        assert!(matches!(again, AttachError::NoRoom(_)));
        tracer.set_gate(target, true).unwrap();
        child.run();
        assert_eq!(tracer.hits(target).unwrap().taken, KNOWN_CALLS + 1);
        let reading = &tracer.read(&[target]).unwrap()[0];
        let expected = [(None, 50), (Some(READ), 200), (Some(GETPPID), 1000)];
        assert_eq!(counts(reading), expected, "round {round}");
        let others = reading.calls.last().unwrap();
        assert_eq!(others.errors, [(libc::ENOENT as u32, 50)]);
        tracer.remove_target(target).unwrap();
        assert!(tracer.read(&[target]).unwrap()[0].calls.is_empty());
        assert_eq!(tracer.errors.keys().unwrap().len(), 0);
    }
    child.end();
}

#[test]
fn there_is_room_for_so_many_targets() {
    let sizes = SyscallSizes { rows: 0, ..SIZES };
    let mut tracer = SyscallTracer::load(&sizes).unwrap();
    let options = SyscallOptions::default();
    // Numbers that share their lower bits.
    let ids: Vec<TargetId> = (1..=64)
        .map(|n| {
            tracer
                .add_target(Identity::new((1 << 22) + n / 2 * 4096 + n % 2, 0), &options)
                .unwrap()
        })
        .collect();
    let error = tracer
        .add_target(Identity::new(7, 0), &options)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no room for another process: as many are traced as can be"
    );
    for id in ids {
        tracer.remove_target(id).unwrap();
    }
    let none = Cell::default();
    assert!((0..CELLS).all(|index| tracer.finder.get(index).unwrap() == none));
    tracer.add_target(Identity::new(7, 0), &options).unwrap();
}

#[test]
fn errors_whose_numbers_find_no_room_are_counted_as_lost() {
    fn two_errors() -> u64 {
        // SAFETY: no such descriptor; no such process.
        unsafe {
            libc::syscall(libc::SYS_close, -1);
            libc::syscall(libc::SYS_kill, 1 << 30, 0);
        }
        0
    }
    let sizes = SyscallSizes { errors: 1, ..SIZES };
    let (mut tracer, mut child, target) = traced(&sizes, two_errors, &SyscallOptions::default());
    run_traced(&mut child, &tracer, target, 2);
    let reading = &tracer.read(&[target]).unwrap()[0];
    let kill = call(reading, libc::SYS_kill as u32);
    assert_eq!(call(reading, libc::SYS_close as u32).errors, [(9, 1)]);
    assert_eq!((kill.failed, kill.errors), (1, vec![]));
    assert_eq!(tracer.hits(target).unwrap().error_numbers_lost, 1);
    child.end();
}

#[test]
fn slow_calls_say_what_they_were_called_with() {
    let options = SyscallOptions {
        slow_threshold_ns: 0,
        ..only(&[OPENAT])
    };
    let (mut tracer, mut child, target) = traced(&SIZES, known_calls, &options);
    child.run();
    assert_eq!(tracer.hits(target).unwrap().left, 1202);
    let calls = tracer.slow_calls();
    assert_eq!(calls.len(), 50);
    for (id, call) in calls {
        assert_eq!(id, target);
        assert_eq!(call.number, OPENAT);
        assert_eq!(call.result, i64::from(-libc::ENOENT));
        assert_eq!(call.arguments[0] as i32, libc::AT_FDCWD);
        assert_eq!(call.arguments[2] as i32, libc::O_RDONLY);
        assert_eq!((call.process, call.thread), (child.id(), child.id()));
        assert!(call.path.starts_with(b"/no/such/file\0"));
        assert!(call.duration_ns > 0);
    }
    let reading = &tracer.read(&[target]).unwrap()[0];
    assert_eq!(call(reading, OPENAT).slow, 50);
    tracer
        .set_slow_threshold(target, 3_600_000_000_000)
        .unwrap();
    child.run();
    assert_eq!(tracer.hits(target).unwrap().left, 2404);
    assert!(tracer.slow_calls().is_empty());
    child.end();
}

#[test]
fn events_that_the_ring_cannot_take_are_counted_as_lost() {
    let sizes = SyscallSizes {
        ring_bytes: 4096,
        ..SIZES
    };
    let options = SyscallOptions {
        slow_threshold_ns: 0,
        ..only(&[GETPPID])
    };
    let (mut tracer, mut child, target) = traced(&sizes, known_calls, &options);
    child.run();
    assert_eq!(tracer.hits(target).unwrap().left, 252);
    let seen = tracer.slow_calls().len() as u64;
    assert!(seen > 0);
    assert_eq!(seen + tracer.hits(target).unwrap().events_lost, 1000);
    let reading = &tracer.read(&[target]).unwrap()[0];
    assert_eq!(call(reading, GETPPID).slow, 1000);
    child.end();
}

#[test]
fn a_call_counts_under_the_gate_under_which_it_began() {
    let mut tracer = SyscallTracer::load(&SIZES).unwrap();
    let mut child = Child::new(|| 0);
    let target = tracer
        .add_target(now(child.id()), &SyscallOptions::default())
        .unwrap();
    tracer.attach().unwrap();
    // It is in its read, which began before: that is not recorded.
    tracer.set_gate(target, true).unwrap();
    run_traced(&mut child, &tracer, target, 0);
    let told = |tracer: &mut SyscallTracer| {
        let reading = &tracer.read(&[target]).unwrap()[0];
        let told = reading.calls.iter();
        let told = told.map(|call| (call.number, call.histogram.count(), call.cut));
        let mut told: Vec<_> = told.collect();
        told.sort_unstable();
        told
    };
    assert_eq!(told(&mut tracer), [(Some(WRITE), 1, 0)]);
    // In its read again, which began under this gate, and ends under another.
    tracer.set_gate(target, false).unwrap();
    tracer.set_gate(target, true).unwrap();
    run_traced(&mut child, &tracer, target, 0);
    let expected = [(Some(READ), 0, 1), (Some(WRITE), 2, 0)];
    assert_eq!(told(&mut tracer), expected);
    // And one that begins and ends under the same.
    run_traced(&mut child, &tracer, target, 0);
    let expected = [(Some(READ), 1, 1), (Some(WRITE), 3, 0)];
    assert_eq!(told(&mut tracer), expected);
    tracer.set_gate(target, false).unwrap();
    let expected = [(Some(READ), 1, 2), (Some(WRITE), 3, 0)];
    assert_eq!(told(&mut tracer), expected);
    assert_eq!(told(&mut tracer), expected, "once");
    child.end();
}

#[test]
fn exec_is_counted_and_what_never_returns_is_not() {
    fn become_true() -> u64 {
        let path = c"/bin/true".as_ptr();
        // SAFETY: both lists end in null.
        unsafe { libc::execv(path, [path, std::ptr::null()].as_ptr()) as u64 }
    }
    let (mut tracer, mut child, target) = traced(&SIZES, become_true, &SyscallOptions::default());
    io::Write::write_all(&mut child.orders, &[DO]).unwrap();
    child.end();
    let reading = &tracer.read(&[target]).unwrap()[0];
    let exec = call(reading, EXECVE);
    assert_eq!((exec.histogram.count(), exec.failed), (1, 0));
    assert_eq!(
        call(reading, libc::SYS_exit_group as u32),
        SyscallReading::default()
    );
    // All of the others returned.
    let returned: u64 = counts(reading).iter().map(|(_, count)| count).sum();
    assert_eq!(tracer.hits(target).unwrap().taken, returned + 1);
}

#[test]
fn what_a_signals_return_leaves_in_the_register_is_no_error() {
    extern "C" fn handle(_: libc::c_int) {}
    fn signals() -> u64 {
        // SAFETY: the handler does nothing.
        unsafe {
            let handler = handle as *const () as libc::sighandler_t;
            libc::signal(libc::SIGUSR1, handler);
            for _ in 0..10 {
                // The signal comes when kill returns, 0; the register then has that.
                libc::kill(libc::getpid(), libc::SIGUSR1);
            }
            // It comes when this returns, with an error that the kernel makes EINTR of on the way.
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut mask);
            libc::sigaddset(&raw mut mask, libc::SIGUSR1);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const mask, std::ptr::null_mut());
            libc::kill(libc::getpid(), libc::SIGUSR1);
            libc::sigemptyset(&raw mut mask);
            libc::sigsuspend(&raw const mask);
        }
        0
    }
    let numbers = [SIGNAL_RETURN, libc::SYS_rt_sigsuspend as u32];
    let (mut tracer, mut child, target) = traced(&SIZES, signals, &only(&numbers));
    child.run();
    assert_eq!(tracer.hits(target).unwrap().taken, 12);
    let reading = &tracer.read(&[target]).unwrap()[0];
    let returns = call(reading, SIGNAL_RETURN);
    assert_eq!((returns.histogram.count(), returns.failed), (11, 0));
    let suspended = call(reading, libc::SYS_rt_sigsuspend as u32);
    assert_eq!(suspended.errors, [(libc::EINTR as u32, 1)]);
    assert_eq!(suspended.restarts, 0);
    child.end();
}

#[test]
fn calls_of_32_bit_programs_are_others() {
    /// semget of x86-64.
    const GETPPID_OF_I386: u32 = 64;
    fn ten() -> u64 {
        for _ in 0..10 {
            // SAFETY: getppid changes nothing but the register.
            unsafe {
                std::arch::asm!("int 0x80", inlateout("eax") GETPPID_OF_I386 => _);
            }
        }
        0
    }
    let (mut tracer, mut child, target) = traced(&SIZES, ten, &SyscallOptions::default());
    run_traced(&mut child, &tracer, target, 10);
    let reading = &tracer.read(&[target]).unwrap()[0];
    assert_eq!(counts(reading), [(None, 10), (Some(WRITE), 1)]);
    child.end();
}
