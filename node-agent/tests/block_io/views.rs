//! Several targets look at the same disks, each when it likes.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_agent::{
    kinds::instrument,
    mechanism::{
        BeginContext, Config, Detail, GroupId, GroupIds, Mechanism, Node, NodePolicy,
        block_io::BlockIoConfig,
    },
    observe::ProcessId,
};
use ckb_probe_crds::{KindSpec, kinds::block_io::BlockIoProbe};

use ckb_probe_testkit::{Folder, disk::Disk, mount::Mount, number::start_ticks};

fn view(node: &mut Node, pid: u32, disk: &Disk) -> Box<dyn Mechanism> {
    let question: KindSpec = BlockIoProbe {
        devices: vec![disk.name().to_string()],
        slow_threshold: Duration::from_micros(1).into(),
    }
    .into();
    let config: BlockIoConfig = instrument(&question).config().of().unwrap();
    let context = BeginContext {
        process: ProcessId {
            pid,
            start_ticks: start_ticks(pid),
        },
        namespace: "",
        first: GroupId::default(),
        ratio: None,
        node,
    };
    BlockIoConfig::begin(&[config], context)
        .mechanisms
        .remove(0)
}

/// Reads by part.
fn reads(view: &mut dyn Mechanism) -> BTreeMap<String, u64> {
    let reading = view.read().unwrap();
    let rows = reading.groups.values().flatten();
    let mut reads = BTreeMap::new();
    for row in rows {
        let count = row.figures.count("device").unwrap();
        *reads.entry(row.part.clone().unwrap().text).or_default() += count;
    }
    reads
}

fn of(parts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let parts = parts.iter();
    parts
        .map(|(part, count)| (part.to_string(), *count))
        .collect()
}

#[test]
fn each_target_sees_what_was_done_while_it_looked() {
    let disk = Disk::new(8);
    let mut node = Node::default();
    let load: GroupIds = [GroupId::default()].into();
    let (own, none) = (std::process::id(), GroupIds::new());
    let mut always = view(&mut node, own, &disk);
    let mut sliced = view(&mut node, 1, &disk);
    disk.read_direct(1, 4096);
    assert!(always.attach(&load).unwrap().is_none());
    disk.read_direct(10, 4096);
    sliced.open_slice(&load).unwrap();
    disk.read_direct(100, 4096);
    // The other one still counts: nothing is detached.
    assert!(sliced.close_slice().unwrap().is_none());
    disk.read_direct(1000, 4096);
    sliced.open_slice(&load).unwrap();
    disk.read_direct(200, 4096);
    assert!(always.attach(&none).unwrap().is_none());
    disk.read_direct(400, 4096);
    let links = sliced.close_slice().unwrap();
    assert!(links.is_some());
    drop(links);
    disk.read_direct(3, 4096);
    assert_eq!(reads(&mut *always), of(&[("own", 1310)]));
    assert_eq!(reads(&mut *sliced), of(&[("other", 700)]));
    // What it cost is for those who looked then, in equal parts; others on this machine use disks too.
    let (always, sliced) = (always.hits().unwrap()[0], sliced.hits().unwrap()[0]);
    assert!(always >= 10 + 50 + 1000 + 100, "{always}");
    assert!(sliced >= 50 + 100 + 400, "{sliced}");
    assert!(always + sliced >= 1709, "{always} and {sliced}");
}

/// A disk that has each request for longer than a slice lasts.
#[test]
fn what_began_before_a_slice_is_nobody_elses() {
    let folder = Folder::new();
    let content = folder.path("content");
    std::fs::write(&content, vec![7; 64 << 20]).unwrap();
    let mount = Mount::with(&content, &folder.path("mount"));
    let disk = Disk::on(&mount.program());
    let mut node = Node::default();
    let load: GroupIds = [GroupId::default()].into();
    let mut own = view(&mut node, std::process::id(), &disk);
    for slice in 0..5 {
        std::thread::scope(|scope| {
            mount.fall_silent();
            // Not where anything was read before: what is remembered of a file never asks.
            let (disk, at) = (&disk, slice * (8 << 20) + (4 << 20));
            let waits = scope.spawn(move || disk.read_at(at, 4096));
            while !mount.is_waited_for() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            own.open_slice(&load).unwrap();
            mount.speak();
            waits.join().unwrap();
            disk.read_at(at + (2 << 20), 4096);
            disk.at_rest();
            drop(own.close_slice().unwrap());
        });
    }
    assert_eq!(reads(&mut *own), of(&[("own", 5), ("unknown", 5)]));
}

/// The bytes of all requests, where any are told.
fn bytes(view: &mut dyn Mechanism) -> Option<u64> {
    let reading = view.read().unwrap();
    let rows = reading.groups.values().flatten();
    let told = rows.filter_map(|row| row.figures.sums.get("bytes").copied());
    told.reduce(|all, more| all + more)
}

#[test]
fn of_others_no_more_is_told_than_how_many_requests_there_are_and_how_long_they_take() {
    const READ: usize = 4096;
    let folder = Folder::new();
    let content = folder.path("content");
    std::fs::write(&content, vec![7; 64 << 20]).unwrap();
    let mount = Mount::with(&content, &folder.path("mount"));
    let disk = Disk::on(&mount.program());
    let mut node = Node::default().with_policy(NodePolicy {
        tells_others: false,
        ..NodePolicy::default()
    });
    let load: GroupIds = [GroupId::default()].into();
    let mut own = view(&mut node, std::process::id(), &disk);
    let mut others = view(&mut node, 1, &disk);
    for one in [&mut own, &mut others] {
        one.attach(&load).unwrap();
    }
    std::thread::scope(|scope| {
        mount.fall_silent();
        let read = || disk.read_at(4 << 20, READ);
        let job = std::thread::Builder::new().name("secret-job".to_string());
        let waits = job.spawn_scoped(scope, read).unwrap();
        while !mount.is_waited_for() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(5));
        mount.speak();
        waits.join().unwrap();
    });
    disk.read_direct(100, READ);
    disk.at_rest();
    assert_eq!(reads(&mut *own), of(&[("own", 101)]));
    assert_eq!(reads(&mut *others), of(&[("other", 101)]));
    assert_eq!(bytes(&mut *own), Some(101 * READ as u64));
    assert_eq!(bytes(&mut *others), None);

    let (own, others) = (own.events(), others.events());
    let mut slow = own.iter().filter(|event| event.thread_name == "secret-job");
    let slow = slow.next().unwrap();
    assert!(slow.weight >= 5_000_000 && own.len() > others.len());
    assert!(others.iter().any(|event| event.weight == slow.weight));
    for event in &others {
        assert!(event.weight >= 1_000_000, "{event:?}");
        assert_eq!((event.thread, &*event.thread_name), (0, ""), "{event:?}");
        let mut details = event.details.iter();
        assert!(!details.any(|(_, detail)| matches!(detail, Detail::Bytes(_))));
    }
}
