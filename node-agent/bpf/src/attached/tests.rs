use std::{
    arch::global_asm,
    cell::Cell,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle, sleep},
    time::Duration,
};

use super::super::{
    AttachError, Binary, DEFAULT_RING_BYTES, FamilyArgument, LookedAt, MapsReading, Payload, Plan,
    Probes, Role, Site, SlotReading, Slots, Tier, calibrate, own, tests::let_go,
};

// Two functions that call what they are told to. The kernel emulates their first instruction.
global_asm!(
    ".pushsection .text.ckb_probe_test_through,\"ax\",@progbits",
    ".global ckb_probe_test_through; .type ckb_probe_test_through,@function",
    "ckb_probe_test_through:",
    "push rbp; mov rbp, rsp; call rdi; pop rbp; ret",
    ".size ckb_probe_test_through, . - ckb_probe_test_through",
    ".global ckb_probe_test_beside; .type ckb_probe_test_beside,@function",
    "ckb_probe_test_beside:",
    "push rbp; mov rbp, rsp; call rdi; pop rbp; ret",
    ".size ckb_probe_test_beside, . - ckb_probe_test_beside",
    ".popsection",
);

type Function = unsafe extern "C" fn(extern "C" fn());

unsafe extern "C" {
    fn ckb_probe_test_through(inner: extern "C" fn());
    fn ckb_probe_test_beside(inner: extern "C" fn());
}

const THROUGH: Function = ckb_probe_test_through;
const BESIDE: Function = ckb_probe_test_beside;

/// What a column family's handle leads to, in RocksDB's layout.
#[repr(C)]
struct Family {
    id: u32,
    name: *const u8,
}

/// A call on the column family of this handle.
fn call_on(function: Function, handle: &[usize; 1]) {
    type OnHandle = unsafe extern "C" fn(extern "C" fn(), *const usize);
    // SAFETY: it does not look at its second argument.
    unsafe { std::mem::transmute::<Function, OnHandle>(function)(nothing, handle.as_ptr()) };
}

/// An address at which nothing can be read.
extern "C" fn nowhere() -> usize {
    0x10
}

fn call(function: Function, inner: extern "C" fn()) {
    // SAFETY: it calls what it is told to, and touches nothing else.
    unsafe { function(inner) };
}

extern "C" fn nothing() {}

extern "C" fn fifty_milliseconds() {
    sleep(Duration::from_millis(50));
}

/// Lasts until it is [released](release).
extern "C" fn long() {
    while LONG.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(1));
    }
}

static LONG: AtomicBool = AtomicBool::new(true);

/// Ends the long ones, and sees that they end.
fn release(calls: impl IntoIterator<Item = JoinHandle<()>>) {
    LONG.store(false, Ordering::Relaxed);
    calls.into_iter().for_each(|call| call.join().unwrap());
    LONG.store(true, Ordering::Relaxed);
}

thread_local! {
    static DEEPER: Cell<u32> = const { Cell::new(0) };
}

/// Goes through the function again, as often as it is to.
extern "C" fn deeper() {
    let more = DEEPER.get();
    if more > 0 {
        DEEPER.set(more - 1);
        call(THROUGH, deeper);
    }
}

fn site(slot: u8, function: Function, cause: u8) -> Site {
    let (path, offset) = own::file_offset(function as *const () as u64).unwrap();
    let binary = Arc::new(Binary::open(&path).unwrap());
    Site {
        cause,
        slow_threshold_ns: 10_000_000,
        ..Site::plain("a function of the test's own", binary, offset, slot)
    }
}

/// Two at a time would count each other's calls.
static ALONE: Mutex<()> = Mutex::new(());

/// By each tier that this kernel has; `cause`: that of the calls of the first of the two slots.
fn by_every_tier(cause: u8, test: impl Fn(Tier, &mut Probes)) {
    by_every_tier_at(vec![site(0, THROUGH, cause), site(1, BESIDE, 0)], test);
}

fn by_every_tier_at(sites: Vec<Site>, test: impl Fn(Tier, &mut Probes)) {
    let _alone = ALONE.lock();
    let mut tiers = 0;
    for &tier in Tier::ALL {
        let plan = Plan {
            pid: std::process::id(),
            slots: 2,
            sites: sites.clone(),
            families: 8,
            ring_bytes: DEFAULT_RING_BYTES,
            trap_ns: 0,
            inner_ns: Vec::new(),
        };
        match Probes::load(tier, &plan) {
            Ok(mut probes) => {
                test(tier, &mut probes);
                tiers += 1;
            }
            // One that does not work here is for the tests of preflight.
            Err(AttachError::NoUprobePmu(_)) => {}
            Err(error) => panic!("{tier:?}: {error}"),
        }
    }
    assert!(tiers > 0, "as root, on Linux 5.15 or later");
}

/// Calls, and of those the ones that were timed, not timed, and cut.
fn counted(reading: &SlotReading) -> [u64; 4] {
    let timed = reading.histogram.count();
    [timed + reading.untimed, timed, reading.untimed, reading.cut]
}

/// Ends the slice; one more call comes while its links have not gone.
fn close(probes: &mut Probes) {
    let links = probes.close_slice().unwrap();
    call(THROUGH, nothing);
    let_go(links);
}

/// What is read while these calls have not ended, and once they have.
fn cut_and_later(probes: &mut Probes, calls: Vec<JoinHandle<()>>) -> [MapsReading; 2] {
    let cut = probes.read().unwrap();
    release(calls);
    [cut, probes.read().unwrap()]
}

fn begin(function: Function, inner: extern "C" fn()) -> JoinHandle<()> {
    let begun = thread::spawn(move || call(function, inner));
    // It has long begun then.
    sleep(Duration::from_millis(20));
    begun
}

#[test]
fn a_call_counts_in_the_slice_in_which_it_begins() {
    by_every_tier(0, |tier, probes| {
        let both = Slots::from([0, 1]);
        let mut others = Vec::new();
        for _ in 0..3 {
            let before = begin(THROUGH, fifty_milliseconds);
            probes.open_slice(&both).unwrap();
            for _ in 0..5 {
                call(BESIDE, nothing);
            }
            // Two that do not end before it closes, and one that began before and ends in it.
            others.push(begin(THROUGH, long));
            others.push(begin(THROUGH, long));
            before.join().unwrap();
            close(probes);
        }
        for reading in cut_and_later(probes, others) {
            let slots: Vec<_> = reading.slots.iter().map(counted).collect();
            assert_eq!(slots, [[6, 0, 6, 6], [15, 15, 0, 0]], "by {tier:?}");
        }
    });
}

#[test]
fn a_call_that_is_in_flight_while_another_operation_goes_is_timed_or_counted() {
    by_every_tier(0, |tier, probes| {
        drop(probes.attach(&Slots::from([0, 1])).unwrap());
        let both = [THROUGH, BESIDE].map(|function| begin(function, long));
        let_go(probes.attach(&Slots::from([0])).unwrap());
        call(THROUGH, nothing);
        let at_once = probes.read().unwrap();
        release(both);
        let later = probes.read().unwrap();
        let slots = |reading: MapsReading| {
            let slots = reading.slots.iter().map(counted);
            slots.collect::<Vec<_>>()
        };
        let gone = [1, 0, 1, 1];
        let (stays, ended) = match tier {
            // The kernel does not show the new links the ends of what began before.
            Tier::Session => ([2, 1, 1, 1], [2, 1, 1, 1]),
            Tier::UprobeMulti | Tier::PerfEvent => ([1, 1, 0, 0], [2, 2, 0, 0]),
        };
        assert_eq!(slots(at_once), [stays, gone], "by {tier:?}");
        assert_eq!(slots(later), [ended, gone], "by {tier:?}");
    });
}

/// From when the one begins to when the other returns; and calls of the first, by themselves.
fn to_a_return() -> Vec<Site> {
    let hit = |function, role| Site {
        hit: Some(LookedAt {
            role,
            ..LookedAt::default()
        }),
        entry_only: role == Role::Begins,
        ..site(0, function, 0)
    };
    vec![
        hit(BESIDE, Role::Begins),
        hit(THROUGH, Role::EndsAtReturn),
        site(1, BESIDE, 0),
    ]
}

extern "C" fn begins_and_lasts() {
    call(BESIDE, nothing);
    long();
}

/// Whether what has begun goes on: however long it takes to open a slice.
static GOES_ON: AtomicBool = AtomicBool::new(false);

extern "C" fn begins_later() {
    while !GOES_ON.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(1));
    }
    call(BESIDE, nothing);
}

#[test]
fn what_ends_as_a_function_returns_does_so_whatever_else_goes_meanwhile() {
    by_every_tier_at(to_a_return(), |tier, probes| {
        drop(probes.attach(&Slots::from([0, 1])).unwrap());
        let under_way = begin(THROUGH, begins_and_lasts);
        let_go(probes.attach(&Slots::from([0])).unwrap());
        drop(probes.attach(&Slots::from([0, 1])).unwrap());
        release([under_way]);
        let reading = probes.read().unwrap();
        let slots: Vec<_> = reading.slots.iter().map(counted).collect();
        assert_eq!(slots, [[1, 1, 0, 0]; 2], "by {tier:?}");
        assert_eq!(reading.slots[0].unbegun, 0, "by {tier:?}");
    });
}

#[test]
fn what_is_to_end_as_a_function_returns_is_cut_where_that_was_not_seen_in_the_slice() {
    by_every_tier_at(to_a_return(), |tier, probes| {
        let mut others = Vec::new();
        for _ in 0..3 {
            // Its function began before.
            GOES_ON.store(false, Ordering::Relaxed);
            let before = begin(THROUGH, begins_later);
            probes.open_slice(&Slots::from([0])).unwrap();
            for _ in 0..5 {
                call(BESIDE, nothing);
                call(THROUGH, nothing);
            }
            // And that of this one does not return before the slice closes.
            others.push(begin(THROUGH, begins_and_lasts));
            GOES_ON.store(true, Ordering::Relaxed);
            before.join().unwrap();
            close(probes);
        }
        for reading in cut_and_later(probes, others) {
            let slot = &reading.slots[0];
            assert_eq!(counted(slot), [21, 15, 6, 6], "by {tier:?}");
            assert_eq!(slot.unbegun, 0, "by {tier:?}");
        }
    });
}

#[test]
fn while_links_of_long_ago_have_not_gone_no_call_is_counted_twice() {
    by_every_tier(0, |tier, probes| {
        drop(probes.attach(&Slots::from([0, 1])).unwrap());
        let first = probes.attach(&Slots::from([0])).unwrap();
        let second = probes.attach(&Slots::new()).unwrap();
        assert!(first.is_some(), "by {tier:?}");
        // A busy kernel takes its time.
        let goes = thread::spawn(move || {
            sleep(Duration::from_millis(2500));
            let_go(first);
            let_go(second);
        });
        // As that group again, whose first links are on their way out.
        drop(probes.attach(&Slots::from([0])).unwrap());
        for _ in 0..5 {
            call(THROUGH, nothing);
        }
        goes.join().unwrap();
        let reading = probes.read().unwrap();
        assert_eq!(counted(&reading.slots[0]), [5, 5, 0, 0], "by {tier:?}");
    });
}

/// Programs are run until then, for whoever calls what they are attached to.
#[test]
fn what_is_detached_is_gone_and_so_is_what_others_were_to_detach() {
    by_every_tier(0, |_, probes| {
        let both = Slots::from([0, 1]);
        let nothing = probes.attach(&Slots::from([1])).unwrap();
        assert!(nothing.is_none(), "there was nothing to be attached before");
        probes.open_slice(&Slots::from([0])).unwrap();
        let links = probes.close_slice().unwrap();
        let gone = Arc::new(AtomicBool::new(false));
        let is_gone = Arc::clone(&gone);
        let later = thread::spawn(move || {
            sleep(Duration::from_millis(100));
            is_gone.store(true, Ordering::Relaxed);
            drop(links);
        });
        probes.detach();
        assert!(gone.load(Ordering::Relaxed), "it did not wait");
        later.join().unwrap();
        // Nothing is there to be left alone.
        assert!(probes.attach(&both).unwrap().is_none());
    });
}

#[test]
fn a_cause_is_seen_to_its_end_whatever_else_comes_and_goes() {
    const CAUSE: u8 = 3;
    by_every_tier(CAUSE, |tier, probes| {
        let slow_calls = |probes: &mut Probes, slot| {
            let slow = probes.slow_calls().into_iter().map(|seen| seen.call);
            let of_slot = slow.filter(|call| call.slot == slot);
            of_slot.map(|call| call.during).collect::<Vec<_>>()
        };
        drop(probes.attach(&Slots::from([0, 1])).unwrap());
        let under_way = begin(THROUGH, long);
        let_go(probes.attach(&Slots::from([0])).unwrap());
        drop(probes.attach(&Slots::from([0, 1])).unwrap());
        call(BESIDE, fifty_milliseconds);
        release([under_way]);
        call(BESIDE, fifty_milliseconds);
        let reading = probes.read().unwrap();
        assert_eq!(counted(&reading.slots[0]), [1, 1, 0, 0], "by {tier:?}");
        assert_eq!(slow_calls(probes, 1), [1 << CAUSE, 0], "by {tier:?}");

        // Not watched, it is not named, whether it is under way or not; and what was not seen to its end does not stay.
        let under_way = begin(THROUGH, long);
        let_go(probes.attach(&Slots::from([1])).unwrap());
        probes.open_slice(&Slots::from([0])).unwrap();
        let in_slice = begin(THROUGH, long);
        call(BESIDE, fifty_milliseconds);
        let_go(probes.close_slice().unwrap());
        release([under_way, in_slice]);
        call(BESIDE, fifty_milliseconds);
        probes.read().unwrap();
        drop(probes.attach(&Slots::from([0, 1])).unwrap());
        call(BESIDE, fifty_milliseconds);
        let reading = probes.read().unwrap();
        assert_eq!(counted(&reading.slots[0])[0], 3, "by {tier:?}");
        assert_eq!(slow_calls(probes, 1), [0, 0, 0], "by {tier:?}");
    });
}

#[test]
fn calls_that_are_nested_deeper_than_the_kernel_follows_are_counted() {
    by_every_tier(0, |tier, probes| {
        drop(probes.attach(&Slots::from([0, 1])).unwrap());
        for _ in 0..1000 {
            DEEPER.set(99);
            call(THROUGH, deeper);
        }
        let reading = probes.read().unwrap();
        let seen = [100_000, 64_000, 36_000, 0];
        assert_eq!(counted(&reading.slots[0]), seen, "by {tier:?}");
    });
}

/// Takes a tenth of a millisecond, and makes so many calls meanwhile, which take next to nothing.
fn tenth_of_a_millisecond(calls: u32) {
    const ROUNDS: u32 = 1000;
    for round in 0..ROUNDS {
        if round % (ROUNDS / calls.max(1)) == 0 && calls > 0 {
            call(BESIDE, nothing);
        }
        for step in 0..14 {
            std::hint::black_box(step);
        }
    }
}

extern "C" fn alone() {
    tenth_of_a_millisecond(0);
}

extern "C" fn with_100_calls() {
    tenth_of_a_millisecond(100);
}

extern "C" fn with_1000_calls() {
    tenth_of_a_millisecond(1000);
}

/// How long the outer calls take, in nanoseconds: those that kept their turn, which on a busy machine few of the long ones do.
fn usual(probes: &mut Probes, before: &mut SlotReading, inner: extern "C" fn()) -> f64 {
    for _ in 0..500 {
        call(THROUGH, inner);
    }
    let now = probes.read().unwrap().slots.swap_remove(0);
    let news = now.histogram.since(&before.histogram);
    *before = now;
    news.quantile(0.1).unwrap() as f64
}

#[test]
fn a_duration_does_not_hold_what_it_costs_to_probe_the_calls_in_it() {
    let _alone = ALONE.lock();
    let works = |tier: &&Tier| calibrate(**tier).is_ok();
    for &tier in Tier::ALL.iter().filter(works) {
        // Of several rounds one must be good: a machine that is busy with other things is slower at one time than at another.
        let round = || {
            let costs = calibrate(tier).unwrap();
            let plan = Plan {
                pid: std::process::id(),
                slots: 2,
                sites: vec![site(0, THROUGH, 0), site(1, BESIDE, 0)],
                families: 0,
                ring_bytes: DEFAULT_RING_BYTES,
                trap_ns: costs.trap_ns,
                inner_ns: vec![costs.inner_ns as u32; 2],
            };
            let mut probes = Probes::load(tier, &plan).unwrap();
            let mut reading = SlotReading::default();
            drop(probes.attach(&Slots::from([0])).unwrap());
            let inner = [alone, with_100_calls, with_1000_calls];
            let truth = inner.map(|inner| usual(&mut probes, &mut reading, inner));
            drop(probes.attach(&Slots::from([0, 1])).unwrap());
            let told = inner.map(|inner| usual(&mut probes, &mut reading, inner));
            println!(
                "{tier:?}: {truth:?} told as {told:?}, {} ns each",
                costs.inner_ns
            );
            let is_good = |(index, calls): (usize, f64)| {
                // A bucket of the histogram, and what the estimate may be off by.
                let room = truth[index] / 16.0 + 0.1 * calls * costs.inner_ns as f64;
                (told[index] - truth[index]).abs() <= room
            };
            [(0, 0.0), (1, 100.0), (2, 1000.0)].map(is_good)
        };
        let good = (0..12).any(|_| round() == [true; 3]);
        assert!(good, "by {tier:?}");
    }
}

#[test]
fn a_handle_that_becomes_another_familys_counts_as_that_one() {
    let on_handle = Site {
        family: FamilyArgument::Argument1,
        ..site(0, THROUGH, 0)
    };
    by_every_tier_at(vec![on_handle], |tier, probes| {
        let mut families = [5, 6].map(|id| Family {
            id,
            name: c"cells".as_ptr().cast(),
        });
        let mut representation = [0, (&raw mut families[0]) as usize];
        let handle = [(&raw mut representation) as usize];
        drop(probes.attach(&Slots::from([0])).unwrap());
        let mut counted = |calls: u32| {
            (0..calls).for_each(|_| call_on(THROUGH, &handle));
            let families = probes.read().unwrap().families.into_iter();
            families
                .map(|family| (family.id, family.reading.histogram.count()))
                .collect::<Vec<_>>()
        };
        assert_eq!(counted(3), [(5, 3)], "by {tier:?}");
        // SAFETY: a word of this test's own.
        unsafe { (&raw mut representation[1]).write_volatile((&raw mut families[1]) as usize) };
        assert_eq!(counted(2), [(5, 3), (6, 2)], "by {tier:?}");
        assert_eq!(counted(1), [(5, 3), (6, 3)], "by {tier:?}");
    });
}

#[test]
fn a_size_that_cannot_be_read_at_the_return_is_lost() {
    let sized = Site {
        payload: Payload::ReturnedSlice,
        ..site(0, THROUGH, 0)
    };
    by_every_tier_at(vec![sized], |tier, probes| {
        drop(probes.attach(&Slots::from([0])).unwrap());
        // SAFETY: what it returns is left in the register in which the outer function returns it.
        let nowhere =
            unsafe { std::mem::transmute::<extern "C" fn() -> usize, extern "C" fn()>(nowhere) };
        (0..3).for_each(|_| call(THROUGH, nowhere));
        let reading = probes.read().unwrap();
        assert_eq!(counted(&reading.slots[0]), [3, 3, 0, 0], "by {tier:?}");
        assert_eq!(reading.sizes_lost, 3, "by {tier:?}");
    });
}
