use std::{
    fs,
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicBool, AtomicUsize},
    thread,
    time::Duration,
};

use super::{
    super::{CALLS, Plan, object::Object, programs},
    *,
};

/// The programs that are there, but for those of tests.
const PROGRAMS: [&str; 6] = ["calls", "syscalls", "tcp", "block_io", "processes", "exec"];

/// Ring buffers must have a size.
const SIZES: [(&str, u32); 6] = [
    ("TOTALS", 40),
    ("HISTOGRAMS", 40),
    ("MORE_CALLS", 8192),
    ("FAMILY_SLOTS", 1024),
    ("SLOW_CALLS", 64 << 10),
    ("ROWS", 700),
];

/// What the kernel says that a descriptor's map takes.
fn told(descriptor: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap();
    let line = text.lines().find(|line| line.starts_with("memlock:"));
    line.unwrap()["memlock:".len()..].trim().parse().unwrap()
}

#[test]
fn each_map_takes_what_the_kernel_says_within_a_tenth() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nothing can be loaded");
        return;
    }
    for program in PROGRAMS {
        let bytes = programs::named(program).unwrap();
        let object = Object::load(bytes, &SIZES).unwrap();
        let expected = shapes(bytes, &SIZES).unwrap();
        for (name, shape) in &expected {
            let reckoned = shape.bytes(possible_cpus());
            let told = told(object.descriptor(name).as_raw_fd());
            // A small map is a page or two, whichever. One whose elements are made as they come is empty now.
            let off = told.abs_diff(reckoned);
            assert!(
                off <= told / 10 || off <= PAGE || (shape.grows && told < reckoned),
                "{program}: {name}: {reckoned} for {told}, {shape:?}"
            );
        }
    }
}

fn plan(slots: u32, families: u32) -> Plan {
    Plan {
        pid: 1,
        slots,
        sites: Vec::new(),
        families,
        ring_bytes: super::super::DEFAULT_RING_BYTES,
        trap_ns: 0,
        inner_ns: Vec::new(),
    }
}

#[test]
fn a_plan_knows_what_it_takes_for_any_number_of_cpus() {
    // 255 functions on 128 CPUs.
    let large = plan(255, 0).bytes(128);
    assert!(large.abs_diff(168_600_000) < 1_000_000, "{large}");
    let mut before = 0;
    for cpus in 1..=512 {
        let bytes = plan(17, 0).bytes(cpus);
        assert!(bytes > before, "{cpus}");
        assert!(bytes < plan(18, 0).bytes(cpus), "{cpus}");
        assert!(bytes < plan(17, 1).bytes(cpus), "{cpus}");
        before = bytes;
    }
}

/// What `values.yaml` says a target costs: by slots, column families and CPUs, in MiB.
const IN_VALUES: [(u32, u32, u32, f64); 4] = [
    (11, 0, 8, 1.6),
    (11, 0, 128, 8.3),
    (255, 0, 8, 11.1),
    (255, 0, 128, 160.8),
];

#[test]
fn the_examples_in_the_chart_are_this_function_s() {
    for (slots, families, cpus, said) in IN_VALUES {
        let bytes = plan(slots, families).bytes(cpus) as f64 / f64::from(1 << 20);
        assert!(
            (bytes - said).abs() < 0.1,
            "{slots} on {cpus}: {bytes:.1} and not {said}"
        );
    }
    let values = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../charts/ckb-probe/values.yaml"
    ))
    .unwrap();
    for (_, _, _, said) in IN_VALUES {
        assert!(values.contains(&format!("{said:.1} MiB")), "{said:.1} MiB");
    }
}

#[test]
fn nothing_that_is_made_with_threads_is_reckoned_before() {
    let all: Vec<_> = PROGRAMS
        .iter()
        .flat_map(|program| shapes(programs::named(program).unwrap(), &SIZES).unwrap())
        .collect();
    assert!(all.iter().any(|(_, shape)| is_storage(shape.map_type)));
    for (name, shape) in all.iter().filter(|(_, shape)| is_storage(shape.map_type)) {
        assert!(shape.bytes(512) < 20_000, "{name}: {shape:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_it_takes_and_what_there_is() {
    static ACCOUNT: MemoryBudget = MemoryBudget::new();
    assert!(ACCOUNT.take(1 << 40, 8).is_ok(), "there is no limit");
    ACCOUNT.limit(128 << 20);
    assert_eq!(ACCOUNT.all(), 80 << 20);
    assert_eq!(ACCOUNT.left_for_a_target(), 40 << 20);
    let held = ACCOUNT.take(60 << 20, 8).unwrap();
    ACCOUNT.set_books([("books".into(), 10 << 20)].into());
    assert_eq!(ACCOUNT.left_for_a_target(), 10 << 20);
    let refused = ACCOUNT.take(11 << 20, 8).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "it takes 11.0 MiB of the agent's memory on this node with room for 8 CPUs, and 10.0 MiB are left: raise \
         agent.resources.limits.memory of the chart (now 128.0 MiB), or ask for less"
    );
    let mut leaving = ACCOUNT.take(10 << 20, 8).unwrap();
    assert_eq!(ACCOUNT.left(), 0);
    leaving.leave();
    drop((leaving, held));
    assert_eq!((ACCOUNT.maps(), ACCOUNT.left()), (0, 70 << 20));
}

#[test]
fn those_who_come_at_the_same_time_do_not_take_the_same_room() {
    static ACCOUNT: MemoryBudget = MemoryBudget::new();
    const ROUNDS: usize = 20_000;
    // There is room for one of the two.
    ACCOUNT.limit(OWN + 1);
    let (came, took) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let both = |count: &AtomicUsize, round: usize| {
        count.fetch_add(1, Ordering::SeqCst);
        let mut looks = 0;
        while count.load(Ordering::SeqCst) < 2 * (round + 1) {
            looks += 1;
            if looks % 1_000 == 0 {
                thread::yield_now();
            }
        }
    };
    let takes = || {
        let rounds = (0..ROUNDS).map(|round| {
            both(&came, round);
            // Now this one is a little later, now that one.
            for _ in 0..fastrand::usize(..64) {
                std::hint::spin_loop();
            }
            let room = ACCOUNT.take(1, 8);
            both(&took, round);
            room.is_ok()
        });
        rounds.filter(|ok| *ok).count()
    };
    let taken = thread::scope(|scope| {
        let threads = [scope.spawn(takes), scope.spawn(takes)];
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(taken[0] + taken[1], ROUNDS);
}

#[test]
fn what_is_about_to_be_gone_is_waited_for_where_both_do_not_fit() {
    static ACCOUNT: MemoryBudget = MemoryBudget::new();
    ACCOUNT.limit(128 << 20);
    let mut leaving = ACCOUNT.take(60 << 20, 8).unwrap();
    leaving.leave();
    // Beside it there is room for that much.
    let small = ACCOUNT.take(20 << 20, 8).unwrap();
    let gone = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            gone.store(true, Ordering::Relaxed);
            drop(leaving);
        });
        let large = ACCOUNT.take(60 << 20, 8).unwrap();
        assert!(gone.load(Ordering::Relaxed));
        assert_eq!(ACCOUNT.left(), 0);
        drop((small, large));
    });
    assert_eq!((ACCOUNT.maps(), ACCOUNT.left()), (0, 80 << 20));
    // What would not fit without it either is refused at once, and what never goes is not waited for for ever.
    let mut stuck = ACCOUNT.take(60 << 20, 8).unwrap();
    stuck.leave();
    assert!(ACCOUNT.take(81 << 20, 8).is_err());
    assert!(ACCOUNT.take(60 << 20, 8).is_ok());
}

#[test]
fn an_object_that_does_not_fit_is_not_made() {
    let bytes = programs::named(CALLS).unwrap();
    let needed = sum(&shapes(bytes, &SIZES).unwrap(), 512);
    assert!(needed > 100 << 20, "{needed}");
}

#[test]
fn what_grows_takes_what_is_left_and_gives_back_what_it_does_not_need() {
    static ACCOUNT: MemoryBudget = MemoryBudget::new();
    ACCOUNT.limit(OWN + 100);
    let mut room = ACCOUNT.empty();
    assert!(room.set(40));
    assert!(!room.set(51), "more than one target may have");
    assert_eq!((room.bytes(), ACCOUNT.left()), (40, 60));
    room.keep(25);
    assert_eq!((room.bytes(), ACCOUNT.left()), (25, 75));
    room.keep(30);
    assert_eq!(room.bytes(), 25, "nothing is added");
    let mut other = ACCOUNT.take(60, 8).unwrap();
    assert!(!room.set(41));
    let refused = room.refusal(41, 8);
    assert_eq!((refused.needed, refused.available), (41, 40));
    // What leaves is still there.
    other.leave();
    assert!(!room.set(41));
    drop(other);
    assert!(room.set(50));
    assert!(room.set(10));
    assert_eq!((room.bytes(), ACCOUNT.left()), (10, 90));
    drop(room);
    assert_eq!((ACCOUNT.maps(), ACCOUNT.left()), (0, 100));
}

#[test]
fn a_namespace_leaves_something_for_others_and_who_comes_and_goes_gives_it_back() {
    static ACCOUNT: MemoryBudget = MemoryBudget::new();
    const MIB: u64 = 1 << 20;
    ACCOUNT.limit(OWN + 80 * MIB);
    let of = |namespace: &str, work: &mut dyn FnMut() -> bool| {
        on_behalf_of(Some(namespace.into()), work)
    };
    let mut held = Vec::new();
    let mut take = |bytes: u64| {
        let taken = ACCOUNT.take(bytes * MIB, 8);
        taken.map(|room| held.push(room)).is_ok()
    };
    // Two targets of the first.
    assert!(of("first", &mut || take(40)));
    assert!(!of("first", &mut || take(21)), "{}", ACCOUNT.left());
    assert!(of("first", &mut || take(20)));
    // Three quarters of what is left are the next one's, of maps and books together.
    ACCOUNT.set_books([("first".into(), 0), ("next".into(), 5 * MIB)].into());
    let take_books =
        |namespace, mebibytes| of(namespace, &mut || ACCOUNT.take_books(mebibytes * MIB));
    assert!(take_books("next", 5));
    assert!(!of("next", &mut || take(6)));
    assert!(of("next", &mut || take(5)));
    assert!(!take_books("next", 1));
    assert!(take_books("third", 2));
    // The node's own programs are nobody's.
    assert!(take(3) && !take(1));
    assert_eq!(ACCOUNT.left(), 0);
    held.clear();
    assert_eq!(ACCOUNT.left(), 68 * MIB);
    assert_eq!(ACCOUNT.payers.held("first"), 0);
    assert_eq!(ACCOUNT.payers.held("next"), 10 * MIB);
    ACCOUNT.set_books(BTreeMap::new());
    assert_eq!(
        format!("{:?}", ACCOUNT.payers),
        format!("{:?}", Payers::new())
    );
}

#[test]
fn who_pays_is_who_did_before_whatever_happens_meanwhile() {
    let one: Arc<str> = "one".into();
    on_behalf_of(Some(Arc::clone(&one)), || {
        assert_eq!(on_behalf_of(None, payer), None);
        let panicked = std::panic::catch_unwind(|| {
            on_behalf_of(None, || std::panic::resume_unwind(Box::new(())))
        });
        assert!(panicked.is_err());
        assert_eq!(payer(), Some(one));
    });
    assert_eq!(payer(), None);
}
