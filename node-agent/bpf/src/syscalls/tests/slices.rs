//! Calls that are longer than a slice.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::*;

/// Not what the standard library sleeps by: nobody else in this process makes it.
const NANOSLEEP: u32 = libc::SYS_nanosleep as u32;

const SLICES: usize = 40;

/// Around what opens and what closes the gate.
struct Slice {
    opening: Instant,
    opened: Instant,
    closing: Instant,
    closed: Instant,
}

fn sleep(duration: Duration) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(duration.subsec_nanos()),
    };
    let none = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: a time to read, and nowhere to write.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, none) };
}

/// A thread that sleeps for 40 ms ten times a second, beside one that makes 20,000 short calls a second: seen in slices of 20 ms.
#[test]
fn a_call_that_is_longer_than_any_slice_counts_once_where_it_began() {
    let mut tracer = SyscallTracer::load(&SIZES).unwrap();
    let target = tracer
        .add_target(now(std::process::id()), &only(&[NANOSLEEP, GETPPID]))
        .unwrap();
    tracer.attach().unwrap();
    let over = AtomicBool::new(false);
    let begun = Mutex::new(Vec::<Instant>::new());
    let mut slices = Vec::new();
    let goes_on = || !over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            while goes_on() {
                begun.lock().unwrap().push(Instant::now());
                sleep(Duration::from_millis(40));
                thread::sleep(Duration::from_millis(60));
            }
        });
        scope.spawn(|| {
            while goes_on() {
                for _ in 0..200 {
                    // SAFETY: it takes nothing.
                    unsafe { libc::syscall(libc::SYS_getppid) };
                }
                thread::sleep(Duration::from_millis(10));
            }
        });
        for slice in 0..SLICES {
            // Never in step with the sleeps, of which some last from one slice into the next.
            thread::sleep(Duration::from_millis(5 + slice as u64 * 7 % 31));
            let opening = Instant::now();
            tracer.set_gate(target, true).unwrap();
            let opened = Instant::now();
            thread::sleep(Duration::from_millis(20));
            let closing = Instant::now();
            tracer.set_gate(target, false).unwrap();
            slices.push(Slice {
                opening,
                opened,
                closing,
                closed: Instant::now(),
            });
            let sleeps = call(&tracer.read(&[target]).unwrap()[0], NANOSLEEP);
            assert_eq!(sleeps.histogram.count(), 0, "none is over within its slice");
        }
        over.store(true, Ordering::Relaxed);
    });
    let reading = &tracer.read(&[target]).unwrap()[0];
    let begun = begun.into_inner().unwrap();
    // The time is read a little before the call.
    const LATE: Duration = Duration::from_micros(200);
    let within = |from: fn(&Slice) -> Instant, to: fn(&Slice) -> Instant, late: Duration| {
        let is_in = |time: Instant| {
            let mut slices = slices.iter();
            slices.any(|slice| from(slice) <= time && time + late <= to(slice))
        };
        begun.iter().filter(|time| is_in(**time)).count() as u64
    };
    let least = within(|slice| slice.opened, |slice| slice.closing, LATE);
    let most = within(
        |slice| slice.opening - LATE,
        |slice| slice.closed,
        Duration::ZERO,
    );
    let sleeps = call(reading, NANOSLEEP);
    assert!(
        (least..=most).contains(&sleeps.cut) && least > 0 && most - least <= 2,
        "{} of {least} to {most}",
        sleeps.cut
    );
    let short = call(reading, GETPPID);
    assert!(short.histogram.count() > 1000 && short.cut <= SLICES as u64);
}
