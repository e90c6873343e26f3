//! What programs that count and tell hand over: on this machine's kernel, as root.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

mod begun;
mod trial;

use std::{
    collections::BTreeMap,
    process::{Child, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ckb_probe_agent::mechanism::{
    Detail, GroupId, GroupIds, Mechanism, Node, RowId,
    counts::{Counted, CountsConfig, Decode, DecodedEvent, Membership, RawEvent},
};
use ckb_probe_common::counts::{KEY_BYTES, MAX_FOLDED, MAX_ROWS};
use ckb_probe_crds::{Figures, report::OTHER};
use trial::{PROGRAM, call};

#[derive(Debug)]
struct Numbers;

impl Decode for Numbers {
    fn raw(&self, key: &[u8; KEY_BYTES]) -> RowId {
        RowId {
            text: format!("{}", u16::from_le_bytes([key[0], key[1]])),
            ..RowId::default()
        }
    }

    fn figures(&self, counted: &Counted) -> Figures {
        trial::figures(counted)
    }

    fn event(&self, seen: &RawEvent<'_>) -> Option<DecodedEvent> {
        assert_eq!(seen.what, 7);
        let number = u64::from_ne_bytes(seen.payload.try_into().unwrap());
        Some(DecodedEvent {
            row: [0; KEY_BYTES],
            weight: 1,
            details: vec![("number", Detail::Number(number as i64))],
        })
    }
}

/// Tests count this process's calls: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn begin(node: &mut Node, pid: u32, wants: u32) -> Box<dyn Mechanism> {
    let ask = CountsConfig {
        program: &PROGRAM,
        belonging: Membership::Process,
        wants,
        sliced: true,
        decode: Arc::new(Numbers),
    };
    begun::begin(node, GroupId(3), ask, pid, "").unwrap().1
}

fn own() -> u32 {
    std::process::id()
}

fn all() -> GroupIds {
    GroupIds::from([GroupId(3)])
}

/// Rows with what was counted and what is in their distribution, and what was lost.
type Read = (BTreeMap<String, (u64, u64)>, BTreeMap<String, u64>);

fn read(counts: &mut dyn Mechanism) -> Read {
    let reading = counts.read().unwrap();
    let rows = reading.groups[&GroupId(3)].iter().map(|row| {
        let sums = &row.figures.sums;
        (
            row.row.as_ref().unwrap().text.clone(),
            (sums["calls"], sums["measured"]),
        )
    });
    let lost = reading.lost[0].counts.iter();
    let lost = lost.map(|(what, count)| (what.to_string(), *count));
    (rows.collect(), lost.collect())
}

fn rows(counts: &mut dyn Mechanism) -> BTreeMap<String, (u64, u64)> {
    read(counts).0
}

fn row(name: &str, calls: u64) -> BTreeMap<String, (u64, u64)> {
    BTreeMap::from([(name.to_string(), (calls, calls))])
}

#[test]
fn everything_is_counted_while_it_is_open_and_nothing_else() {
    let _alone = alone();
    let mut node = Node::default();
    let mut counts = begin(&mut node, own(), 0);
    call(1, 10);
    assert!(counts.attach(&all()).unwrap().is_none());
    call(1, 1000);
    assert_eq!(rows(&mut *counts), row("1", 1000));
    let links = counts.attach(&GroupIds::new()).unwrap();
    assert!(links.is_some(), "nobody else has it attached");
    drop(links);
    call(1, 10);
    assert_eq!(rows(&mut *counts), row("1", 1000));
    counts.open_slice(&all()).unwrap();
    call(1, 100);
    assert!(counts.close_slice().unwrap().is_some());
    call(1, 10);
    assert_eq!(rows(&mut *counts), row("1", 1100));
    assert!(counts.events().is_empty(), "nobody wants any");
}

#[test]
fn two_who_ask_for_the_same_see_what_happened_while_each_was_open() {
    let _alone = alone();
    let mut node = Node::default();
    let mut always = begin(&mut node, own(), 0);
    let mut sliced = begin(&mut node, own(), 1);
    always.attach(&all()).unwrap();
    call(2, 100);
    sliced.open_slice(&all()).unwrap();
    call(2, 30);
    assert!(
        sliced.close_slice().unwrap().is_none(),
        "the other one stays"
    );
    call(2, 200);
    assert_eq!(rows(&mut *always), row("2", 330));
    assert_eq!(rows(&mut *sliced), row("2", 30));
    // What one of them wants told is told to both: kinds leave out what they did not ask for.
    assert_eq!(sliced.events().len(), 30);
    assert_eq!(always.events().len(), 30);
    drop(always);
    call(2, 10);
    sliced.open_slice(&all()).unwrap();
    call(2, 5);
    assert_eq!(rows(&mut *sliced), row("2", 35));
    let events = sliced.events();
    assert_eq!(events.len(), 5);
    let event = &events[0];
    assert_eq!(event.details, [("number", Detail::Number(2))]);
    assert_eq!((event.thread, event.group), (own(), GroupId(3)));
}

#[test]
fn rows_that_find_no_room_are_others_and_no_call_is_missing() {
    let _alone = alone();
    let mut node = Node::default();
    let mut counts = begin(&mut node, own(), 0);
    counts.attach(&all()).unwrap();
    for number in 0..200 {
        call(number, 3);
    }
    let folded = |counts: &mut dyn Mechanism| counts.read().unwrap().folded[&GroupId(3)];
    assert_eq!(folded(&mut *counts), 200 - u64::from(MAX_ROWS));
    let (rows, lost) = read(&mut *counts);
    assert_eq!(rows.len(), MAX_ROWS as usize + 1);
    let others = 3 * (200 - u64::from(MAX_ROWS));
    assert_eq!(rows[OTHER], (others, 0));
    assert_eq!(rows["126"], (3, 3));
    assert_eq!(rows.values().map(|(calls, _)| calls).sum::<u64>(), 600);
    assert_eq!((lost["counts"], lost["events"]), (0, 0));
    // And whoever comes next begins with nothing.
    drop(counts);
    let mut next = begin(&mut node, own(), 0);
    next.attach(&all()).unwrap();
    assert_eq!(read(&mut *next).0, BTreeMap::new());
    assert_eq!(folded(&mut *next), 0);
    // Of ever more names no more are counted than there is room for, and again when that is left.
    for _ in 0..2 {
        for number in 0..i64::from(MAX_ROWS + MAX_FOLDED) + 9 {
            call(number, 1);
        }
        assert_eq!(folded(&mut *next), u64::from(MAX_FOLDED));
        drop(next);
        next = begin(&mut node, own(), 0);
        next.attach(&all()).unwrap();
    }
}

#[test]
fn an_event_is_told_or_counted_as_lost() {
    let _alone = alone();
    let mut node = Node::default();
    let mut counts = begin(&mut node, own(), 1);
    counts.attach(&all()).unwrap();
    call(4, 30_000);
    let (rows, lost) = read(&mut *counts);
    assert_eq!(rows["4"], (30_000, 30_000));
    let told = counts.events().len() as u64;
    assert!(told > 1000, "{told}");
    assert!(
        lost["events"] > 0,
        "the ring is greater than this test thinks"
    );
    assert_eq!(told + lost["events"], 30_000);
}

#[test]
fn who_is_nobody_is_paid_for_in_equal_parts() {
    let _alone = alone();
    let mut node = Node::default();
    let mut sleepers: Vec<Child> = (0..2)
        .map(|_| Command::new("sleep").arg("60").spawn().unwrap())
        .collect();
    let mut counts: Vec<_> = sleepers
        .iter()
        .map(|child| begin(&mut node, child.id(), 0))
        .collect();
    for one in &mut counts {
        one.attach(&all()).unwrap();
    }
    let hits = |counts: &[Box<dyn Mechanism>]| -> Vec<u64> {
        // Who asks too soon is told what was known before.
        std::thread::sleep(Duration::from_millis(60));
        counts.iter().map(|one| one.hits().unwrap()[0]).collect()
    };
    let before = hits(&counts);
    call(5, 100_000);
    let after = hits(&counts);
    let paid: Vec<u64> = (0..2).map(|one| after[one] - before[one]).collect();
    assert!(paid[0].abs_diff(paid[1]) <= 1, "{paid:?}");
    let miss = (paid[0] + paid[1]) / 100_000;
    assert!((50..5_000).contains(&miss), "{miss} ns");
    println!("a miss: {miss} ns");
    for child in &mut sleepers {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
