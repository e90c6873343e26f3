use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::*;
use crate::{
    kernel::Links,
    mechanism::{Lost, Mechanism, Reading, RowReading},
};

/// A mechanism with as many loads as costs, which is told what was hit.
struct Trial {
    costs: Vec<Option<Duration>>,
    first: LoadId,
    hits: Arc<AtomicU64>,
    refuses: bool,
    attached: Loads,
}

impl Mechanism for Trial {
    fn costs(&self) -> &[Option<Duration>] {
        &self.costs
    }

    fn attach(&mut self, loads: &Loads) -> Result<Option<Links>, AttachError> {
        if self.refuses {
            return Err(AttachError::NoUprobePmu(io::Error::other("no")));
        }
        self.attached = loads.clone();
        Ok(None)
    }

    fn open_slice(&mut self, _: &Loads) -> Result<(), AttachError> {
        Ok(())
    }

    fn close_slice(&mut self) -> Result<Option<Links>, ReadError> {
        Ok(None)
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        let hits = self.hits.load(Ordering::Relaxed);
        Ok(self.costs.iter().map(|_| hits).collect())
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        let loads = (0..self.costs.len()).map(|index| self.first.offset(index));
        Ok(Reading {
            loads: loads
                .map(|load| (load, vec![RowReading::default()]))
                .collect(),
            lost: vec![Lost::default()],
        })
    }

    fn events(&mut self) -> Vec<Event> {
        Vec::new()
    }
}

fn trial(first: u16, costs: &[Option<u64>], refuses: bool) -> (Running, Arc<AtomicU64>) {
    let hits = Arc::new(AtomicU64::new(0));
    let costs = costs.iter().map(|cost| cost.map(Duration::from_nanos));
    let mechanism = Trial {
        costs: costs.collect(),
        first: LoadId(first),
        hits: Arc::clone(&hits),
        refuses,
        attached: Loads::new(),
    };
    let running = Running {
        mechanism: Box::new(mechanism),
        first: LoadId(first),
    };
    (running, hits)
}

fn ourselves() -> ProcessId {
    let pid = std::process::id();
    let all = observe::processes(|_| true).unwrap();
    all.into_iter().find(|one| one.id.pid == pid).unwrap().id
}

fn begin(mechanisms: Vec<Running>, max_percent: f64, on_breach: Breach) -> Begun {
    let overhead = Overhead {
        max_percent,
        on_breach,
    };
    let at = || Duration::from_secs(1);
    Measurement::begin(ourselves(), mechanisms, &overhead, &Reaper::start(), at)
}

fn ids<const N: usize>(loads: [u16; N]) -> Loads {
    loads.map(LoadId).into()
}

#[test]
fn what_cannot_be_attached_leaves_the_others_their_numbers() {
    let (calls, _) = trial(0, &[Some(1_000), None], false);
    let (refused, _) = trial(2, &[Some(1_000)], true);
    let (ticks, hits) = trial(3, &[Some(0), Some(0)], false);
    let begun = begin(vec![calls, refused, ticks], 1.0, Breach::Report);
    let [(loads, error)] = &begun.refused[..] else {
        panic!("{:?}", begun.refused);
    };
    assert_eq!(*loads, ids([2]));
    assert!(matches!(error, AttachError::NoUprobePmu(_)), "{error}");
    let mut measurement = begun.measurement.unwrap();
    hits.store(7, Ordering::Relaxed);
    assert_eq!(measurement.hits().unwrap(), [0, 0, 0, 7, 7]);
    let sampled = [0, 1, 2, 3, 4].map(|load| measurement.is_sampled(LoadId(load)));
    assert_eq!(sampled, [false, true, true, false, false]);
    measurement.read(Duration::from_secs(2)).unwrap();
    let entries = measurement.entries();
    let [
        Entry {
            at,
            fact: Fact::Read(reading),
        },
    ] = &entries[..]
    else {
        panic!("{entries:?}");
    };
    assert_eq!(*at, Duration::from_secs(2));
    let read: Loads = reading.loads.keys().copied().collect();
    assert_eq!((read, reading.lost.len()), (ids([0, 1, 3, 4]), 2));
    assert!(measurement.entries().is_empty(), "once");
    assert_eq!(measurement.next_step(), None, "nothing is to be kept");
}

#[test]
fn where_nothing_can_be_attached_nothing_is_measured() {
    let (refused, _) = trial(0, &[Some(1_000)], true);
    let begun = begin(vec![refused], 1.0, Breach::Sample);
    assert!(begun.measurement.is_none());
    assert_eq!(begun.refused.len(), 1);
}

/// The loads that are not recorded from some time on, or are again.
fn switched(entries: &[Entry]) -> (Loads, Loads) {
    let (mut paused, mut resumed) = (Loads::new(), Loads::new());
    for entry in entries {
        match &entry.fact {
            Fact::Paused { loads, .. } => paused.extend(loads),
            Fact::Resumed(loads) => resumed.extend(loads),
            Fact::Read(_) => {}
        }
    }
    (paused, resumed)
}

#[test]
fn one_mechanism_s_busy_load_is_sliced_and_the_free_one_s_is_left_alone() {
    let (calls, busy) = trial(0, &[Some(1_000)], false);
    let (ticks, free) = trial(1, &[Some(0)], false);
    let begun = begin(vec![calls, ticks], 0.01, Breach::Sample);
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
    assert!(measurement.is_sampled(LoadId(0)));
    assert!(!measurement.is_sampled(LoadId(1)));
    let (paused, _) = switched(&entries);
    assert_eq!(paused, ids([0]));
}
