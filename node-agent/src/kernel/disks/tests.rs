//! The programs against /proc/diskstats, by both ways to see requests: as root, on loop devices that nobody else uses.

use std::collections::BTreeMap;

use super::{super::tests::let_go, *};

#[path = "../../../tests/block_io/disk.rs"]
#[allow(dead_code, reason = "others need the rest")]
mod disk;

use disk::Disk;

/// Requests and bytes by direction.
type Counts = BTreeMap<u16, (u64, u64)>;

fn counted(disks: &mut Disks, disk: &Disk) -> Counts {
    let mut counts = Counts::new();
    for slot in disks.read().unwrap() {
        if slot.disk == disk.name() && slot.queue.count() > 0 {
            let (requests, bytes) = counts.entry(slot.direction).or_default();
            *requests += slot.queue.count();
            *bytes += slot.bytes;
        }
    }
    counts
}

/// Whoever waits for a request goes on before the kernel has its last words on it.
fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(100));
}

/// What was counted of a disk, by what of two ways, and what /proc/diskstats says; and what could not be recorded, of any disk.
fn count(types: &Types, tells: bool, scheduler: &str) -> (Counts, Counts, DisksLost) {
    let disk = Disk::new(64);
    disk.schedule_by(scheduler);
    let mut disks = Disks::load_as(types, Some(tells)).unwrap();
    disk.read_direct(1, 4096);
    settle();
    disks.attach().unwrap();
    let before = disk.statistics();
    disk.read_direct(500, 4096);
    disk.read_direct(3, 4 << 20);
    disk.write_direct(100, 64 << 10);
    disk.write_buffered(16 << 20);
    disk.sync();
    disk.discard(1 << 20);
    settle();
    let after = disk.statistics();
    let lost = disks.lost().unwrap();
    let_go(disks.detach());
    disk.read_direct(1, 4096);
    settle();
    let since = |index: usize| after.0[index] - before.0[index];
    let expected = Counts::from([
        (0, (since(0), since(2) * 512)),
        (1, (since(4), since(6) * 512)),
        (2, (since(11), since(13) * 512)),
        (3, (since(15), 0)),
    ]);
    (counted(&mut disks, &disk), expected, lost)
}

#[test]
fn every_way_counts_what_diskstats_counts() {
    let types = Types::read().unwrap();
    for tells in [true, false] {
        for scheduler in ["none", "mq-deadline", "bfq"] {
            // A loop device's requests end in threads, which other disks' requests interrupt, and other tests' threads: what
            // is lost by that is said to be lost. Once, nobody is in the way.
            let exact = (0..10).any(|_| {
                let (counted, expected, lost) = count(&types, tells, scheduler);
                assert!(expected.values().all(|(requests, _)| *requests > 0));
                let what = format!("{tells} {scheduler} {lost:?}");
                for (direction, (requests, _)) in &expected {
                    let missing =
                        requests - counted.get(direction).map_or(0, |(counted, _)| *counted);
                    assert!(
                        missing <= lost.requests,
                        "{what}: {counted:?}, not {expected:?}"
                    );
                }
                if lost == DisksLost::default() {
                    assert_eq!(counted, expected, "{what}");
                }
                lost == DisksLost::default()
            });
            assert!(exact, "{tells} {scheduler}: something was lost each time");
        }
    }
}

#[test]
fn what_is_remembered_from_before_is_no_beginning() {
    let disk = Disk::new(8);
    let mut disks = Disks::load().unwrap();
    for _ in 0..3 {
        disks.attach().unwrap();
        disk.read_direct(10, 4096);
        let_go(disks.detach());
        disk.read_direct(10, 4096);
    }
    assert_eq!(
        counted(&mut disks, &disk),
        Counts::from([(0, (30, 30 * 4096))])
    );
    let slots = disks.counted().unwrap();
    let own = slots.iter().filter(|slot| slot.disk == disk.name());
    let longest = own.map(|slot| {
        assert_eq!(slot.in_device.unmeasured, 0);
        slot.in_device.histogram.quantile(1.0)
    });
    // No stale beginning makes one of them seem long.
    assert!(longest.max().flatten().unwrap() < 5_000_000_000);
}

#[test]
fn a_process_whose_requests_are_told_apart_has_a_slot_of_its_own() {
    let disk = Disk::new(8);
    let mut disks = Disks::load().unwrap();
    disks.attach().unwrap();
    disk.read_direct(2, 4096);
    disks.own(std::process::id(), 7).unwrap();
    disk.read_direct(3, 4096);
    disks.disown(std::process::id());
    disk.read_direct(4, 4096);
    settle();
    let slots = disks.read().unwrap();
    let own = slots.iter().filter(|slot| slot.disk == disk.name());
    let counts: BTreeMap<u16, u64> = own.map(|slot| (slot.owner, slot.queue.count())).collect();
    assert_eq!(counts, BTreeMap::from([(0, 6), (7, 3)]));
}
