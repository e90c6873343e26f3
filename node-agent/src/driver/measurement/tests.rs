use std::{
    cell::Cell,
    io::{self, PipeReader},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use ckb_probe_crds::Name;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::*;
use crate::{
    kernel::Links,
    mechanism::{Foreseen, Lost, Mechanism, Reading, RowReading},
};

/// A mechanism with as many groups as costs, which is told what was hit.
struct Trial {
    costs: Vec<Option<Duration>>,
    first: GroupId,
    hits: Arc<AtomicU64>,
    refuses: bool,
    /// It can be attached so often, and no more.
    attaches: usize,
    /// What was attached, for good or for a slice, one time after the other.
    attached: Arc<Mutex<Vec<GroupIds>>>,
    foreseen: Foreseen,
    /// What a slice leaves to be closed.
    link: Option<OwnedFd>,
    node_share: Option<f64>,
    /// What it takes to read what was counted, of the processor's time.
    reading: Duration,
}

/// Works for so long.
fn spin(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

impl Mechanism for Trial {
    fn costs(&self) -> &[Option<Duration>] {
        &self.costs
    }

    fn attach(&mut self, groups: &GroupIds) -> Result<Option<Links>, AttachError> {
        if self.refuses {
            return Err(AttachError::NoUprobePmu(io::Error::other("no")));
        }
        let room = self.attaches.checked_sub(1);
        self.attaches =
            room.ok_or_else(|| AttachError::NoUprobePmu(io::Error::other("no more")))?;
        self.attached.lock().unwrap().push(groups.clone());
        Ok(None)
    }

    fn foreseen(&self) -> Foreseen {
        self.foreseen.clone()
    }

    fn open_slice(&mut self, groups: &GroupIds) -> Result<(), AttachError> {
        self.attached.lock().unwrap().push(groups.clone());
        Ok(())
    }

    fn close_slice(&mut self) -> Result<Option<Links>, ReadError> {
        Ok(self.link.take().map(|link| Links::of(vec![link])))
    }

    fn node_share(&self) -> Option<f64> {
        self.node_share
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        let hits = self.hits.load(Ordering::Relaxed);
        Ok(self.costs.iter().map(|_| hits).collect())
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        spin(self.reading);
        let groups = (0..self.costs.len()).map(|index| self.first.offset(index));
        Ok(Reading {
            groups: groups
                .map(|group| {
                    let mut row = RowReading::default();
                    let hits = self.hits.load(Ordering::Relaxed);
                    row.figures.sums.insert(Name::Borrowed("hits"), hits);
                    (group, vec![row])
                })
                .collect(),
            lost: vec![Lost::default()],
            ..Reading::default()
        })
    }

    fn events(&mut self) -> Vec<Event> {
        Vec::new()
    }
}

fn trial(first: u16, costs: &[Option<u64>], refuses: bool) -> (Running, Arc<AtomicU64>) {
    trial_of_attaches(first, costs, refuses, usize::MAX)
}

fn trial_of_attaches(
    first: u16,
    costs: &[Option<u64>],
    refuses: bool,
    attaches: usize,
) -> (Running, Arc<AtomicU64>) {
    let mechanism = Trial {
        refuses,
        attaches,
        ..Trial::new(first, costs)
    };
    let hits = Arc::clone(&mechanism.hits);
    (mechanism.runs(), hits)
}

impl Trial {
    fn new(first: u16, costs: &[Option<u64>]) -> Self {
        let costs = costs.iter().map(|cost| cost.map(Duration::from_nanos));
        Self {
            costs: costs.collect(),
            first: GroupId(first),
            hits: Arc::new(AtomicU64::new(0)),
            refuses: false,
            attaches: usize::MAX,
            attached: Arc::default(),
            foreseen: Foreseen::default(),
            link: None,
            node_share: None,
            reading: Duration::ZERO,
        }
    }

    fn runs(self) -> Running {
        Running {
            first: self.first,
            mechanism: Box::new(self),
        }
    }
}

fn ourselves() -> ProcessId {
    let pid = std::process::id();
    let all = observe::processes(|_| true).unwrap().processes;
    all.into_iter().find(|one| one.id.pid == pid).unwrap().id
}

fn begin(mechanisms: Vec<Running>, sampled: Option<f64>) -> Begun {
    let at = || Duration::from_secs(1);
    let sampled = sampled.map(|percent| Allowance {
        percent,
        floor: 0.0,
    });
    Measurement::begin(ourselves(), mechanisms, sampled, &Reaper::start(), at)
}

fn ids<const N: usize>(groups: [u16; N]) -> GroupIds {
    groups.map(GroupId).into()
}

#[test]
fn what_cannot_be_attached_leaves_the_others_their_numbers() {
    let (calls, _) = trial(0, &[Some(1_000), None], false);
    let (refused, _) = trial(2, &[Some(1_000)], true);
    let (ticks, hits) = trial(3, &[Some(0), Some(0)], false);
    let begun = begin(vec![calls, refused, ticks], None);
    let [(groups, error)] = &begun.refused[..] else {
        panic!("{:?}", begun.refused);
    };
    assert_eq!(*groups, ids([2]));
    assert!(matches!(error, AttachError::NoUprobePmu(_)), "{error}");
    let mut measurement = begun.measurement.unwrap();
    hits.store(7, Ordering::Relaxed);
    assert_eq!(measurement.hits().unwrap(), [0, 0, 0, 7, 7]);
    let sampled = [0, 1, 2, 3, 4].map(|group| measurement.is_sampled(GroupId(group)));
    assert_eq!(sampled, [false, true, true, false, false]);
    measurement.read(Duration::from_secs(2)).unwrap();
    let entries = measurement.entries();
    let [
        TimedFact {
            at,
            fact: Fact::Read(reading),
            ..
        },
    ] = &entries[..]
    else {
        panic!("{entries:?}");
    };
    assert_eq!(*at, Duration::from_secs(2));
    let read: GroupIds = reading.groups.keys().copied().collect();
    assert_eq!((read, reading.lost.len()), (ids([0, 1, 3, 4]), 2));
    assert!(measurement.entries().is_empty(), "once");
    assert_eq!(measurement.next_step(), None, "nothing is to be kept");
}

#[test]
fn where_nothing_can_be_attached_nothing_is_measured() {
    let (refused, _) = trial(0, &[Some(1_000)], true);
    let begun = begin(vec![refused], Some(1.0));
    assert!(begun.measurement.is_none());
    assert_eq!(begun.refused.len(), 1);
}

/// The groups that are not recorded from some time on, or are again.
fn switched(entries: &[TimedFact]) -> (GroupIds, GroupIds) {
    let (mut paused, mut resumed) = (GroupIds::new(), GroupIds::new());
    for entry in entries {
        match &entry.fact {
            Fact::Paused(groups) => paused.extend(groups),
            Fact::Resumed(groups) => resumed.extend(groups),
            _ => {}
        }
    }
    (paused, resumed)
}

#[test]
fn one_mechanism_s_busy_load_is_sliced_and_the_free_one_s_is_left_alone() {
    let (calls, busy) = trial(0, &[Some(1_000)], false);
    let (ticks, free) = trial(1, &[Some(0)], false);
    let begun = begin(vec![calls, ticks], Some(0.01));
    let mut measurement = begun.measurement.unwrap();
    let mut entries = Vec::new();
    let start = Duration::from_secs(1);
    for step in 1..=100 {
        // A hundred thousand hits a second.
        busy.fetch_add(1_000, Ordering::Relaxed);
        free.fetch_add(1_000, Ordering::Relaxed);
        let now = start + Duration::from_millis(10) * step;
        measurement.step(&|| now).unwrap();
        assert!(measurement.next_step().is_some());
        entries.extend(measurement.entries());
    }
    assert!(measurement.is_sampled(GroupId(0)));
    assert!(!measurement.is_sampled(GroupId(1)));
    let (paused, _) = switched(&entries);
    assert_eq!(paused, ids([0]));
}

#[test]
fn what_was_counted_until_it_could_not_be_attached_anew_can_be_read() {
    let (calls, busy) = trial_of_attaches(0, &[Some(1_000)], false, 1);
    let begun = begin(vec![calls], Some(0.01));
    let mut measurement = begun.measurement.unwrap();
    let mut now = Duration::from_secs(1);
    let error = loop {
        busy.fetch_add(1_000, Ordering::Relaxed);
        now += Duration::from_millis(10);
        if let Err(error) = measurement.step(&|| now) {
            break error;
        }
    };
    assert!(error.to_string().contains("no more"), "{error}");
    // The whole of it, up to now.
    measurement.stop(now).unwrap();
    measurement.read(now).unwrap();
    assert_eq!(measurement.read_at(), now);
    let last = measurement.entries().pop().unwrap();
    let Fact::Read(reading) = last.fact else {
        panic!("{last:?}");
    };
    let counted = reading.groups[&GroupId(0)][0].figures.sums["hits"];
    assert_eq!(counted, busy.load(Ordering::Relaxed));
}

#[test]
fn attaching_is_left_to_who_can_wait_and_the_rest_is_not() {
    let (calls, busy) = trial(0, &[Some(1_000)], false);
    let begun = begin(vec![calls], Some(0.01));
    let mut measurement = begun.measurement.unwrap();
    let mut now = Duration::from_secs(1);
    while !measurement.decide(&|| now).unwrap() {
        busy.fetch_add(1_000, Ordering::Relaxed);
        now += Duration::from_millis(10);
    }
    // Decided, and nothing is changed yet: not even if it is asked again.
    assert!(!measurement.is_sampled(GroupId(0)));
    assert!(measurement.decide(&|| now).unwrap());
    measurement.attach(&|| now).unwrap();
    assert!(measurement.is_sampled(GroupId(0)));
}

#[test]
fn once_it_counts_nothing_any_more_nothing_is_attached_not_even_what_was_decided() {
    let mechanism = Trial::new(0, &[Some(1_000)]);
    let hits = Arc::clone(&mechanism.hits);
    let attached = Arc::clone(&mechanism.attached);
    let begun = begin(vec![mechanism.runs()], Some(0.01));
    let mut measurement = begun.measurement.unwrap();
    let mut now = Duration::from_secs(1);
    while !measurement.decide(&|| now).unwrap() {
        hits.fetch_add(1_000, Ordering::Relaxed);
        now += Duration::from_millis(10);
    }
    let before = attached.lock().unwrap().clone();
    measurement.stop(now).unwrap();
    assert_eq!(measurement.next_step(), None);
    for _ in 0..200 {
        hits.fetch_add(1_000, Ordering::Relaxed);
        now += Duration::from_millis(10);
        measurement.step(&|| now).unwrap();
    }
    assert_eq!(*attached.lock().unwrap(), before);
    assert!(!measurement.is_sampled(GroupId(0)));
}

/// Whether the other end is closed, or is so a moment later.
fn is_closed(link: &PipeReader) -> bool {
    // Whoever is to close it would have long done so.
    thread::sleep(Duration::from_millis(20));
    let mut polled = [PollFd::new(link, PollFlags::empty())];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).unwrap();
    polled[0].revents().contains(PollFlags::HUP)
}

#[test]
fn a_slice_ends_before_anybody_is_woken_to_detach() {
    let (reader, writer) = io::pipe().unwrap();
    let mechanism = Trial {
        link: Some(writer.into()),
        ..Trial::new(0, &[Some(1_000)])
    };
    let hits = Arc::clone(&mechanism.hits);
    let mut measurement = begin(vec![mechanism.runs()], Some(0.01))
        .measurement
        .unwrap();
    let mut now = Duration::from_secs(1);
    while measurement.attached.slice.is_none() {
        hits.fetch_add(1_000, Ordering::Relaxed);
        now += Duration::from_millis(10);
        measurement.step(&|| now).unwrap();
    }
    let asked = Cell::new(None);
    let clock = || {
        if asked.get().is_none() {
            asked.set(Some(is_closed(&reader)));
        }
        now
    };
    measurement.close_slice(&clock).unwrap();
    assert_eq!(asked.get(), Some(false));
    assert!(is_closed(&reader), "and then it is detached");
}

/// A target goes on while it is read what was counted before a slice: that is no part of the slice.
#[test]
fn a_slice_lasts_as_long_as_it_was_drawn_however_long_it_takes_to_begin_to_count() {
    let mechanism = Trial {
        reading: Duration::from_millis(40),
        ..Trial::new(0, &[Some(1_000)])
    };
    let hits = Arc::clone(&mechanism.hits);
    let began = Instant::now();
    let now = || Duration::from_secs(1) + began.elapsed();
    let mut measurement = begin(vec![mechanism.runs()], Some(2.0))
        .measurement
        .unwrap();
    // Of each cell that was entered: what its slice was drawn to last, and how long it did, in the process's own time.
    let (mut cells, mut drawn, mut counting) = (Vec::new(), Duration::ZERO, None);
    let mut lasted = Duration::ZERO;
    // And what probes were believed to take in it: 50 hits of a microsecond in half a millisecond.
    let mut probed = Duration::ZERO;
    while cells.len() < 12 {
        spin(Duration::from_micros(500));
        if measurement.attached.slice.is_some() || !measurement.is_sampled(GroupId(0)) {
            hits.fetch_add(50, Ordering::Relaxed);
        }
        measurement.step(&now).unwrap();
        for entry in measurement.entries() {
            match entry.fact {
                Fact::CellBegan { groups, slice, .. } if !groups.is_empty() => {
                    drawn = Duration::from_secs_f64(slice.open);
                }
                Fact::SliceBegan { time, .. } => counting = Some(time),
                Fact::SliceEnded { time, probing, .. } => {
                    let own = time - counting.take().unwrap();
                    lasted += own;
                    probed += own.mul_f64(probing);
                }
                Fact::CellEnded { groups, .. } if !groups.is_empty() => {
                    cells.push((drawn, std::mem::take(&mut lasted)));
                }
                _ => {}
            }
        }
    }
    // Of the first cell a part was over before it was one.
    let sum = |of: fn(&(Duration, Duration)) -> Duration| cells[1..].iter().map(of).sum();
    let [drawn, lasted]: [Duration; 2] = [sum(|cell| cell.0), sum(|cell| cell.1)];
    assert!(lasted >= drawn.mul_f64(0.85), "{lasted:?} of {drawn:?}");
    let part = probed.as_secs_f64() / lasted.as_secs_f64();
    assert!((0.05..0.3).contains(&part), "{part}");
}

/// A process that ends is told of at once, in the middle of a cell that may be longer than all of those before.
#[test]
fn what_passed_of_a_cell_is_told_as_nothing_more_is_to_be() {
    for is_sliced in [false, true] {
        let mechanism = Trial::new(0, &[Some(1_000)]);
        let hits = Arc::clone(&mechanism.hits);
        let began = Instant::now();
        let now = || Duration::from_secs(1) + began.elapsed();
        let mut measurement = begin(vec![mechanism.runs()], Some(2.0))
            .measurement
            .unwrap();
        // Before its slice, or in it.
        while !measurement.is_sampled(GroupId(0))
            || is_sliced && measurement.attached.slice.is_none()
        {
            spin(Duration::from_micros(500));
            hits.fetch_add(50, Ordering::Relaxed);
            measurement.step(&now).unwrap();
        }
        measurement.entries();
        spin(Duration::from_millis(5));
        let at = now();
        measurement.finish(at).unwrap();
        let entries = measurement.entries();
        let [read, ended] = &entries[..] else {
            panic!("{entries:?}");
        };
        assert!(matches!(read.fact, Fact::Read(_)), "{read:?}");
        let Fact::CellEnded { groups, time } = &ended.fact else {
            panic!("{ended:?}");
        };
        assert_eq!((groups, ended.at), (&ids([0]), at));
        // What it used since the last look is in it.
        assert!(
            *time >= read.time + Duration::from_millis(2),
            "{time:?} {read:?}"
        );
        assert_eq!(measurement.next_step(), None);
        measurement.step(&now).unwrap();
        measurement.read(now()).unwrap();
        let more = measurement.entries();
        assert!(matches!(&more[..], [one] if matches!(one.fact, Fact::Read(_))));
    }
}

#[test]
fn what_others_pay_for_is_looked_at_sooner_and_what_was_owed_before_is_owed_still() {
    let of = |node_share| {
        let trial = Trial {
            node_share,
            ..Trial::new(0, &[Some(1_000)])
        };
        let begun = begin(vec![trial.runs()], Some(1.0));
        begun.measurement.unwrap()
    };
    let looked_at = |measurement: &Measurement| {
        let first = measurement.next_step().unwrap();
        first - Duration::from_secs(1)
    };
    assert_eq!(looked_at(&of(None)), Duration::from_millis(50));
    let mut shared = of(Some(0.01));
    assert_eq!(looked_at(&shared), Duration::from_millis(10));
    assert_eq!(shared.debt(), 0.0);
    shared.owe(0.5);
    // Also where it is asked for something else before the first look.
    assert_eq!(shared.debt(), 0.5);
    shared.step(&|| Duration::from_millis(1_010)).unwrap();
    assert_eq!(
        shared.next_step().unwrap(),
        Duration::from_millis(1_060),
        "it is known now"
    );
}

#[test]
fn what_is_foreseen_to_be_busy_is_attached_in_slices_from_the_beginning_on() {
    let of = |rate| Trial {
        node_share: Some(0.01),
        foreseen: Foreseen {
            rates: vec![Some(rate), Some(10.0)],
            edge: Duration::from_millis(20),
        },
        ..Trial::new(0, &[Some(1_000), Some(1_000)])
    };
    // Little enough to be attached all of the time.
    let quiet = of(1_000.0);
    let attached = Arc::clone(&quiet.attached);
    let begun = begin(vec![quiet.runs()], Some(10.0));
    assert_eq!(*attached.lock().unwrap(), [ids([0, 1])]);
    assert!(begun.measurement.unwrap().entries().is_empty());
    // Twenty percent of a CPU, and others may pay one.
    let busy = of(200_000.0);
    let attached = Arc::clone(&busy.attached);
    let begun = begin(vec![busy.runs()], Some(50.0));
    assert_eq!(*attached.lock().unwrap(), [ids([1])]);
    let mut measurement = begun.measurement.unwrap();
    assert!(measurement.is_sampled(GroupId(0)) && !measurement.is_sampled(GroupId(1)));
    let entries = measurement.entries();
    let of_it = entries.iter().map(|entry| match &entry.fact {
        Fact::Paused(groups) => ("paused", groups.clone()),
        Fact::CellBegan { groups, .. } => ("a cell", groups.clone()),
        fact => panic!("{fact:?}"),
    });
    // None takes turns.
    let expected = [
        ("paused", ids([0])),
        ("a cell", ids([0])),
        ("a cell", ids([])),
    ];
    assert_eq!(of_it.collect::<Vec<_>>(), expected);
    // It is measured when its slice comes.
    let began = Instant::now();
    let now = || Duration::from_secs(1) + began.elapsed();
    while attached.lock().unwrap().len() < 2 {
        spin(Duration::from_micros(500));
        measurement.step(&now).unwrap();
    }
    assert_eq!(*attached.lock().unwrap(), [ids([1]), ids([0])]);
    // Where nobody keeps a budget, all is attached.
    let busy = of(200_000.0);
    let attached = Arc::clone(&busy.attached);
    let begun = begin(vec![busy.runs()], None);
    assert_eq!(*attached.lock().unwrap(), [ids([0, 1])]);
    assert!(begun.measurement.unwrap().entries().is_empty());
    // Far more than the rarest slices may cost: not at all.
    let wild = of(1e9);
    let attached = Arc::clone(&wild.attached);
    let begun = begin(vec![wild.runs()], Some(50.0));
    assert_eq!(*attached.lock().unwrap(), [ids([1])]);
    let mut measurement = begun.measurement.unwrap();
    let entries = measurement.entries();
    assert!(
        matches!(&entries[..], [one] if matches!(one.fact, Fact::Paused(_))),
        "{entries:?}"
    );
}
