//! Who shares the ring of what is told: on this machine's kernel, as root.

use ckb_probe_common::counts::space;

use super::{super::tests::let_go, *};

static PROGRAM: CountProgram = CountProgram {
    name: "trial_counts",
    tracepoints: &[("enter", "sys_enter")],
    fields: &[("task_struct", "tgid")],
};

/// So many system calls that there are not, each of which is told.
fn call(times: usize) {
    for _ in 0..times {
        // SAFETY: the kernel says ENOSYS.
        unsafe { libc::syscall(100_000) };
    }
}

#[test]
fn who_has_events_without_end_takes_no_others_room_in_the_ring() {
    const MANY: u64 = 50_000;
    const FEW: u64 = 200;
    /// As many bytes as the event, what it says, and what the kernel puts in front of it.
    const BYTES: u64 = size_of::<CountEvent>() as u64 + 8 + 8;
    let mut counter = Counter::load(&PROGRAM).unwrap();
    let own = Identity::of_now(std::process::id()).unwrap();
    let key = TargetKey {
        space: space::PROCESS,
        number: own.number,
    };
    let target = |number| TargetEntry {
        id: number,
        slot: number,
        wants: 1,
        payer: number,
        ..TargetEntry::default()
    };
    counter.set_spaces(space::PROCESS).unwrap();
    for number in [1, 2] {
        counter.prepare(target(number)).unwrap();
    }
    let links = counter.attach().unwrap();
    let mut told = [0; 3];
    for round in 1..=3 {
        // One after the other is this process the one target and the other.
        for (number, times) in [(1, MANY), (2, FEW)] {
            counter.open(key, own, target(number)).unwrap();
            call(times as usize);
            counter.close(key).unwrap();
        }
        for seen in counter.events() {
            told[seen.event.target as usize] += 1;
        }
        assert_eq!(told[2], round * FEW);
        // Half of what is not kept for ends that are asked about, and the one that makes it so.
        let most = u64::from(RING_BYTES) * 3 / 8 / BYTES + 1;
        assert!(told[1] <= round * most, "{told:?}");
    }
    let lost = |slot| counter.tally(slot).unwrap().events_lost;
    assert_eq!(lost(2), 0);
    assert_eq!(lost(1) + told[1], 3 * MANY);
    let_go(Some(links));
}
