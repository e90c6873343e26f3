use std::{
    collections::BTreeMap,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::*;

/// On the stack of each thread that waits here.
const PATTERN: u64 = 0x5ec2_e7a7_1234_abcd;

fn own() -> u32 {
    std::process::id()
}

fn has_pattern(bytes: &[u8]) -> bool {
    let pattern = PATTERN.to_ne_bytes();
    bytes.windows(8).any(|window| window == pattern)
}

#[test]
fn a_pass_sees_each_thread_once_with_what_is_on_its_stack_and_leaves_nothing_of_it() {
    const THREADS: usize = 40;
    let barrier = Arc::new(Barrier::new(THREADS + 1));
    let waiting: Vec<_> = (0..THREADS)
        .map(|number| {
            let barrier = Arc::clone(&barrier);
            let waits = move || {
                let secret = std::hint::black_box([PATTERN; 4]);
                barrier.wait();
                barrier.wait();
                std::hint::black_box(secret);
            };
            let name = format!("waits-{number}");
            thread::Builder::new().name(name).spawn(waits).unwrap()
        })
        .collect();
    barrier.wait();
    thread::sleep(Duration::from_millis(50));
    let skip_unchanged = true;
    let mut stacks = Stacks::begin(own(), Sampled::All { skip_unchanged }).unwrap();
    let mut seen = BTreeMap::new();
    stacks
        .pass(|head, stack| {
            if head.name.starts_with(b"waits-") {
                assert_eq!(head.process, own());
                assert_eq!(head.flags, 0, "{head:?}");
                assert_eq!(head.call, libc::SYS_futex, "{head:?}");
                assert!(has_pattern(stack.bytes));
                let before = seen.insert(
                    head.thread,
                    head.kernel[..head.kernel_frames as usize].to_vec(),
                );
                assert_eq!(before, None);
            }
        })
        .unwrap();
    assert_eq!(seen.len(), THREADS);
    let kernel = seen.values().next().unwrap();
    let names = stacks.names(kernel).unwrap();
    assert!(names.iter().any(|name| name.contains("futex")), "{names:?}");
    let mut unchanged = 0;
    stacks
        .pass(|head, stack| {
            if head.name.starts_with(b"waits-") {
                assert_eq!((head.flags, stack.bytes.len()), (UNCHANGED, 0));
                unchanged += 1;
            }
        })
        .unwrap();
    assert_eq!(unchanged, THREADS);
    for index in 0..THREAD_SLOTS as usize {
        let slot = stacks
            .slots
            .element::<[u8; size_of::<Slot>()]>(index)
            .unwrap();
        // SAFETY: nobody writes to it now.
        assert!(!has_pattern(unsafe { slot.as_ref() }));
    }
    barrier.wait();
    for thread in waiting {
        thread.join().unwrap();
    }
}

#[test]
fn the_tick_meets_who_runs_at_the_pace_that_was_asked_for() {
    let over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&over);
    let busy = thread::Builder::new()
        .name("busy".to_string())
        .spawn(move || {
            let secret = std::hint::black_box([PATTERN; 4]);
            while !until.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            std::hint::black_box(secret);
        });
    let period = Duration::from_millis(10);
    let mut stacks = Stacks::begin(own(), Sampled::Running { period }).unwrap();
    assert_ne!(stacks.told.tick, ANY, "the tick is not found");
    let mut met = 0;
    let end = Instant::now() + Duration::from_secs(60);
    // However busy the machine is.
    while met <= 10 && Instant::now() < end || stacks.taken().unwrap().looks < 50 {
        thread::sleep(Duration::from_millis(20));
        stacks.samples(|head, stack| {
            assert_eq!(head.process, own());
            assert_eq!(head.flags & ON_CPU, ON_CPU);
            if head.name.starts_with(b"busy\0") {
                assert!(has_pattern(stack.bytes));
                met += 1;
            }
        });
    }
    stacks.stop();
    over.store(true, Ordering::Relaxed);
    busy.unwrap().join().unwrap();
    assert!(met > 10, "{met}");
    let taken = stacks.taken().unwrap();
    // Who was met, and was not lost, was handed over; the last ones may still wait.
    assert!(taken.met >= met, "{taken:?}");
    let pace = taken.ticking.as_secs_f64() / taken.looks as f64;
    assert!((0.009..0.013).contains(&pace), "{pace} s, {taken:?}");
}
