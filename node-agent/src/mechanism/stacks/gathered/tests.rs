use super::*;

fn functions() -> Vec<FunctionName> {
    let name = |function: Option<&str>, file: &str| FunctionName {
        function: function.map(Arc::from),
        file: Arc::from(file),
    };
    vec![
        name(Some("main"), "ckb"),
        name(Some("rocksdb::Get"), "ckb"),
        name(None, "libc.so.6"),
        name(None, ""),
    ]
}

fn gathered() -> Gathered {
    Gathered::within(StackRoom::with(0))
}

fn kernel() -> HashMap<u64, Arc<str>> {
    [
        (1, "tick_nohz_handler"),
        (2, "asm_sysvec_apic_timer_interrupt"),
        (3, "do_syscall_64"),
        (4, "futex_do_wait"),
    ]
    .into_iter()
    .map(|(address, name)| (address, Arc::from(name)))
    .collect()
}

fn key(user: &[u32], kernel: &[u64], complete: bool, wait: Option<&str>) -> Key {
    let mut thread = [0; 16];
    thread[..6].copy_from_slice(b"worker");
    Key {
        thread,
        user: user.into(),
        complete,
        guessed: false,
        kernel: kernel.into(),
        wait: wait.map(Arc::from),
        frees: false,
    }
}

fn told(key: Key, is_running: bool) -> String {
    let mut gathered = gathered();
    gathered.add(key, 5);
    let samples = gathered.samples(&functions(), &kernel(), is_running, Each::Nanoseconds(2.0));
    assert_eq!(samples[0].time, Duration::from_nanos(10));
    folded(&samples, |sample| sample.count)
}

#[test]
fn a_line_has_the_thread_and_the_calls_from_the_outermost_on() {
    let waits = key(&[1, 0], &[4, 3], true, Some("[futex]"));
    let line = "worker;main;rocksdb::Get;do_syscall_64_[k];futex_do_wait_[k];[futex] 1\n";
    assert_eq!(told(waits, false), line);
}

#[test]
fn what_the_tick_does_itself_is_no_part_of_what_ran() {
    let in_user = key(&[1, 0], &[1, 2], true, None);
    assert_eq!(told(in_user, true), "worker;main;rocksdb::Get 1\n");
    let in_kernel = key(&[1, 0], &[1, 2, 3], true, None);
    assert_eq!(
        told(in_kernel, true),
        "worker;main;rocksdb::Get;do_syscall_64_[k] 1\n"
    );
}

#[test]
fn frames_without_a_name_and_frames_that_are_missing_are_told() {
    let cut = key(&[3, 2], &[], false, None);
    assert_eq!(
        told(cut, true),
        "worker;[truncated];[libc.so.6];[unknown] 1\n"
    );
}

#[test]
fn what_is_the_same_is_added_and_counted_as_complete_or_not() {
    let mut gathered = gathered();
    for complete in [true, true, false] {
        gathered.add(key(&[1], &[], complete, None), 7);
    }
    let samples = gathered.samples(&functions(), &kernel(), false, Each::Nanoseconds(1.0));
    let counts: Vec<_> = samples
        .iter()
        .map(|sample| (sample.count, sample.time.as_nanos()))
        .collect();
    assert_eq!(counts, [(1, 7), (2, 14)]);
    assert_eq!((gathered.taken, gathered.complete), (3, 2));
}

#[test]
fn names_break_no_line() {
    let call = Call {
        name: Arc::from("a;b\nc"),
        file: Arc::from(""),
        place: CodeOrigin::User,
    };
    let sample = Sample {
        thread: "x;y".to_string(),
        calls: vec![call],
        count: 3,
        time: Duration::ZERO,
        memory: 0,
        freed: 0,
    };
    assert_eq!(folded(&[sample], |sample| sample.count), "x:y;a:b c 3\n");
}

#[test]
fn stacks_beyond_the_limit_are_counted_by_thread() {
    let mut gathered = gathered();
    for number in 0..STACK_LIMIT as u32 + 10 {
        gathered.add(key(&[number], &[], true, None), 1);
    }
    assert!(gathered.seen.len() <= STACK_LIMIT + 1);
    let rest = gathered.seen.get(&key(&[], &[], false, None));
    assert_eq!(rest, Some(&(10, 10)));
}

#[test]
fn deep_stacks_have_no_more_frames_in_all_than_there_is_room_for() {
    let mut gathered = gathered();
    let mut user: Vec<u32> = (0..1_000).collect();
    let fit = FRAMES_LIMIT as u64 / 1_024;
    for number in 0..fit + 3 {
        user[0] = number as u32;
        gathered.add(key(&user, &[4; 24], true, Some("[futex]")), 1);
    }
    assert_eq!(gathered.seen.len() as u64, fit + 1);
    let rest = gathered.seen.get(&key(&[], &[], false, None));
    assert_eq!(rest, Some(&(3, 3)));
    // What is known is counted where it was.
    user[0] = 0;
    let known = key(&user, &[4; 24], true, Some("[futex]"));
    gathered.add(known.clone(), 1);
    assert_eq!(gathered.seen.get(&known), Some(&(2, 2)));
    assert_eq!((gathered.taken, gathered.complete), (fit + 4, fit + 4));
}

#[test]
fn a_thread_that_changes_its_name_without_end_is_one_of_others_in_the_end() {
    let mut gathered = gathered();
    let most = STACK_LIMIT + THREAD_LIMIT;
    for number in 0..most as u128 + 10 {
        let mut key = key(&[1], &[], true, Some("[futex]"));
        key.thread = number.to_le_bytes();
        gathered.add(key, 1);
    }
    assert_eq!(gathered.seen.len(), most + 1);
    let mut others = key(&[], &[], false, None);
    others.thread = OTHERS;
    assert_eq!(gathered.seen.get(&others), Some(&(10, 10)));
    assert_eq!(gathered.taken, most as u64 + 10);
}

#[test]
fn stacks_that_there_is_no_memory_for_are_counted_by_thread() {
    let mut gathered = Gathered::within(super::super::room::tests::of_bytes(1 << 20));
    for number in 0..1_000 {
        gathered.add(key(&[number; 100], &[], true, None), 1);
    }
    // Each is 384 bytes, and 64 more for each frame.
    assert_eq!(gathered.seen.len(), (1 << 20) / (384 + 6400) + 1);
    assert_eq!((gathered.taken, gathered.sum()), (1_000, 1_000));
}
