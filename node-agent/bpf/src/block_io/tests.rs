//! The programs against /proc/diskstats, by both ways to see requests: as root, on loop devices that nobody else uses.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    os::unix::process::CommandExt,
    process::Command,
};

use super::{super::tests::let_go, *};

use ckb_probe_common::block_io::payer;
use ckb_probe_testkit::{Folder, disk::Disk, mount::Mount};

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

/// What was counted of a disk, by what of two ways, and what /proc/diskstats says; and what could not be recorded, of any disk.
fn count(types: &Types, tells: bool, scheduler: &str) -> (Counts, Counts, DisksLost) {
    let disk = Disk::new(64);
    disk.schedule_by(scheduler);
    let mut disks = Disks::load_as(types, Some(tells)).unwrap();
    disk.read_direct(1, 4096);
    let before = disk.at_rest();
    disks.attach().unwrap();
    disk.read_direct(500, 4096);
    disk.read_direct(3, 4 << 20);
    disk.write_direct(100, 64 << 10);
    disk.write_buffered(16 << 20);
    disk.sync();
    disk.discard(1 << 20);
    let after = disk.at_rest();
    let lost = disks.lost(|name| name == disk.name()).unwrap();
    let_go(disks.detach());
    disk.read_direct(1, 4096);
    disk.at_rest();
    let expected = (0..).zip(after.since(before));
    let expected = expected.map(|(direction, (_, requests, bytes))| (direction, (requests, bytes)));
    let expected = expected.collect();
    (counted(&mut disks, &disk), expected, lost)
}

#[test]
fn every_way_counts_what_diskstats_counts() {
    let types = Types::read().unwrap();
    for tells in [true, false] {
        for scheduler in ["none", "mq-deadline", "bfq"] {
            // What the kernel does not show the programs is told as lost. Once, it shows all.
            let exact = (0..10).any(|_| {
                let (counted, expected, lost) = count(&types, tells, scheduler);
                assert!(expected.values().all(|(requests, _)| *requests > 0));
                let what = format!("{tells} {scheduler} {lost:?}");
                let missing = expected.iter().map(|(direction, (requests, _))| {
                    requests - counted.get(direction).map_or(0, |(counted, _)| *counted)
                });
                let missing: u64 = missing.sum();
                assert!(
                    missing <= lost.requests,
                    "{what}: {counted:?}, not {expected:?}"
                );
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
    disks
        .own(Identity::of_now(std::process::id()).unwrap(), 7, 1)
        .unwrap();
    disk.read_direct(3, 4096);
    disks.disown(std::process::id()).unwrap();
    disk.read_direct(4, 4096);
    disk.at_rest();
    let slots = disks.read().unwrap();
    let own = slots.iter().filter(|slot| slot.disk == disk.name());
    let counts: BTreeMap<u16, u64> = own.map(|slot| (slot.owner, slot.queue.count())).collect();
    assert_eq!(counts, BTreeMap::from([(0, 6), (7, 3)]));
}

#[test]
fn what_began_before_is_nobodys_that_is_known() {
    let types = Types::read().unwrap();
    let folder = Folder::new();
    let content = folder.path("content");
    std::fs::write(&content, vec![7; 64 << 20]).unwrap();
    let mount = Mount::with(&content, &folder.path("mount"));
    for (tells, at) in [(true, 0), (false, 32 << 20)] {
        let disk = Disk::on(&mount.program());
        let mut disks = Disks::load_as(&types, Some(tells)).unwrap();
        disks
            .own(Identity::of_now(std::process::id()).unwrap(), 7, 1)
            .unwrap();
        std::thread::scope(|scope| {
            mount.fall_silent();
            // Not where anything was read before: what is remembered of a file never asks.
            let waits = scope.spawn(|| disk.read_at(at + (8 << 20), 4096));
            while !mount.is_waited_for() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            disks.attach().unwrap();
            mount.speak();
            waits.join().unwrap();
            disk.read_at(at + (16 << 20), 4096);
        });
        disk.at_rest();
        let slots = disks.read().unwrap();
        let own = slots.iter().filter(|slot| slot.disk == disk.name());
        let parts = own.map(|slot| {
            let waited = &slot.queue;
            let counts = (waited.count(), waited.unmeasured, slot.bytes);
            (slot.owner, counts)
        });
        let parts: BTreeMap<u16, (u64, u64, u64)> = parts.collect();
        let expected = [(7, (1, 0, 4096)), (UNKNOWN, (1, 1, 4096))];
        assert_eq!(parts, BTreeMap::from(expected), "{tells}");
        let_go(disks.detach());
    }
}

#[test]
fn a_copy_of_the_links_counts_until_it_is_gone() {
    let disk = Disk::new(8);
    let mut disks = Disks::load().unwrap();
    disks.attach().unwrap();
    let (mut begun, forked) = std::io::pipe().unwrap();
    let (may_go, mut goes) = std::io::pipe().unwrap();
    let child = std::thread::spawn(move || {
        let mut command = Command::new("true");
        // SAFETY: write and read may be called after a fork.
        unsafe {
            command.pre_exec(move || {
                (&forked).write_all(&[1])?;
                (&may_go).read_exact(&mut [0])
            });
        }
        assert!(command.status().unwrap().success());
    });
    begun.read_exact(&mut [0]).unwrap();
    let links = disks.detach().unwrap();
    let ids = links.ids();
    drop(links);
    disk.read_direct(1, 4096);
    disk.at_rest();
    let counted_by_the_copy = counted(&mut disks, &disk)[&0].0;
    goes.write_all(&[1]).unwrap();
    child.join().unwrap();
    assert_eq!(counted_by_the_copy, 1, "{ids:?}");
    disk.read_direct(1, 4096);
    disk.at_rest();
    assert_eq!(counted(&mut disks, &disk)[&0].0, 1, "{ids:?}");
}

#[test]
fn requests_without_end_take_no_others_room_in_the_ring() {
    const MANY: usize = 3000;
    /// As many as are in the ring at once.
    const ROOM: u64 = (128 << 10) / (size_of::<SlowRequest>() as u64 + 8);
    let disk = Disk::new(8);
    let mut disks = Disks::load().unwrap();
    let slow_from = |thresholds: &[u64]| {
        let mut nanos = [u64::MAX; MAX_THRESHOLDS];
        nanos[..thresholds.len()].copy_from_slice(thresholds);
        nanos
    };
    disks.set_thresholds(slow_from(&[1])).unwrap();
    disks.attach().unwrap();
    disk.read_direct(MANY, 4096);
    disk.at_rest();
    // Nobody's have half of the ring. Those of a process that somebody asks about come all the same, and so does what is slow to
    // somebody else.
    let own = Identity::of_now(std::process::id()).unwrap();
    disks.own(own, 7, 1).unwrap();
    disk.read_direct(100, 4096);
    disk.at_rest();
    disks.disown(std::process::id()).unwrap();
    disks.set_thresholds(slow_from(&[1, 2])).unwrap();
    disk.read_direct(100, 4096);
    disk.at_rest();
    let mut told = BTreeMap::<u32, u64>::new();
    for request in disks.slow_requests() {
        // Other tests of this process use disks, too.
        let slot = disks.slot(request.slot).unwrap();
        if slot.disk == disk.name() {
            *told.entry(request.payer).or_default() += 1;
        }
    }
    let untold = disks.untold().unwrap();
    assert_eq!(told[&payer(1, 0)], 100, "{told:?}");
    assert_eq!(told[&payer(0, 1)], 100, "{told:?}");
    assert_eq!(
        (untold[payer(1, 0) as usize], untold[payer(0, 1) as usize]),
        (0, 0)
    );
    let many = (told[&payer(0, 0)], untold[payer(0, 0) as usize]);
    assert!(many.0 <= ROOM / 2, "{told:?}");
    // Others may use disks meanwhile.
    assert!(many.0 + many.1 >= MANY as u64, "{many:?}");
    // Taken out: there is room again. Some kernels do not show each that ends.
    let lost_before = disks.lost(|name| name == disk.name()).unwrap().requests;
    disk.read_direct(100, 4096);
    disk.at_rest();
    let lost = disks.lost(|name| name == disk.name()).unwrap().requests;
    let lost = lost.saturating_sub(lost_before);
    let told = disks.slow_requests().len() as u64;
    assert!(told + lost >= 100, "{told} told, {lost} lost");
}

#[test]
fn what_the_kernel_does_not_show_is_told_as_lost() {
    let disk = Disk::new(8);
    let mut disks = Disks::load().unwrap();
    let before = disk.at_rest();
    disks.attach().unwrap();
    // Two at once: their requests end in softirqs, of which some are not shown on some kernels.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| disk.read_direct(30_000, 4096));
        }
    });
    let (_, requests, _) = disk.at_rest().since(before)[0];
    let lost = disks.lost(|name| name == disk.name()).unwrap().requests;
    let (counted, _) = counted(&mut disks, &disk)[&0];
    // Neighbours may be merged.
    assert!(requests > 30_000);
    assert!(
        counted <= requests && requests <= counted + lost,
        "{requests}: {counted} and {lost} lost"
    );
    println!("{requests}: {counted} and {lost} lost");
}
