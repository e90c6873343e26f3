//! What one target takes of what there is once for all.

use super::*;

#[test]
fn who_makes_slow_calls_without_end_takes_no_others_room_in_the_ring() {
    const OTHERS: usize = 50;
    fn without_end() -> u64 {
        for _ in 0..300_000 {
            // SAFETY: it changes nothing.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        0
    }
    fn some() -> u64 {
        for _ in 0..OTHERS {
            // SAFETY: the same.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        0
    }
    let mut tracer = SyscallTracer::load(&SIZES).unwrap();
    let mut hostile = Child::new(without_end);
    let mut other = Child::new(some);
    let mut targets = Vec::new();
    for (child, payer) in [(&hostile, 0), (&other, 1)] {
        let options = SyscallOptions {
            slow_threshold_ns: 0,
            payer,
            ..only(&[GETPPID])
        };
        let target = tracer.add_target(now(child.id()), &options).unwrap();
        tracer.set_gate(target, true).unwrap();
        targets.push(target);
    }
    let [hostile_target, other_target] = targets[..] else {
        panic!("two were added");
    };
    tracer.attach().unwrap();
    let mut told = BTreeMap::<TargetId, u64>::new();
    let mut drain = |tracer: &mut SyscallTracer| {
        for (target, _) in tracer.slow_calls() {
            *told.entry(target).or_default() += 1;
        }
        told.clone()
    };
    // What was taken out makes room again, for both.
    for round in 1..=3 {
        hostile.run();
        other.run();
        let told = drain(&mut tracer);
        assert_eq!(told[&other_target], round * OTHERS as u64);
        // Half of the ring: so much as it leaves, and the one that makes it so.
        let most = (64 << 10) / 2 / (size_of::<SlowSyscall>() as u64 + 8) + 1;
        assert!(told[&hostile_target] <= round * most, "{told:?}");
    }
    // And while it goes on: a record that is just being written keeps those behind it for no longer than that takes.
    std::thread::scope(|scope| {
        let hostile = &mut hostile;
        let running = scope.spawn(move || (0..5).map(|_| hostile.run()).sum::<u64>());
        let mut rounds = 3;
        while !running.is_finished() {
            other.run();
            rounds += 1;
            let all = rounds * OTHERS as u64;
            until(|| drain(&mut tracer)[&other_target] >= all);
            assert_eq!(drain(&mut tracer)[&other_target], all);
        }
    });
    let told = drain(&mut tracer);
    let lost = |target| tracer.hits(target).unwrap().events_lost;
    assert_eq!(lost(other_target), 0);
    let all = told[&hostile_target] + lost(hostile_target);
    assert_eq!(all, 8 * 300_000);
    println!("{told:?}, and {} lost", lost(hostile_target));
    hostile.end();
    other.end();
}

#[test]
fn who_fails_in_all_ways_leaves_numbers_of_errors_to_others() {
    /// Five calls, each of which fails.
    fn fails() -> u64 {
        // SAFETY: nothing is changed.
        unsafe {
            libc::syscall(libc::SYS_kill, 1 << 30, 0);
            libc::syscall(libc::SYS_dup, -1);
            libc::syscall(libc::SYS_fsync, -1);
            libc::syscall(libc::SYS_close, -1);
            libc::syscall(libc::SYS_fchdir, -1);
        }
        0
    }
    let sizes = SyscallSizes { errors: 6, ..SIZES };
    let mut tracer = SyscallTracer::load(&sizes).unwrap();
    let mut many = Child::new(fails);
    let mut few = Child::new(known_calls);
    let options = SyscallOptions {
        most_errors: 3,
        ..SyscallOptions::default()
    };
    let many_target = tracer.add_target(now(many.id()), &options).unwrap();
    let few_target = tracer.add_target(now(few.id()), &options).unwrap();
    tracer.attach().unwrap();
    for target in [many_target, few_target] {
        tracer.set_gate(target, true).unwrap();
    }
    many.run();
    few.run();
    assert_eq!(tracer.hits(many_target).unwrap().error_numbers_lost, 2);
    assert_eq!(tracer.hits(few_target).unwrap().error_numbers_lost, 0);
    let reading = &tracer.read(&[few_target]).unwrap()[0];
    assert_eq!(call(reading, OPENAT).errors, [(libc::ENOENT as u32, 50)]);
    many.end();
    few.end();
}
