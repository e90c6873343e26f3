//! What all views of the disks have in common.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ckb_probe_common::block_io::{MAX_OWNERS, MAX_THRESHOLDS};

use crate::kernel::{AttachError, DiskSlot, Disks, DisksLost, Links, ReadError, SlowRequest};

/// Slow requests that wait for a view, at most: it has ten of them listed, in an interval.
const MAX_WAITING: usize = 1024;

/// The programs and counters, and who looks at them.
pub struct Shared {
    /// The kernel's side.
    pub disks: Disks,
    views: BTreeMap<u64, View>,
    views_made: u64,
    /// Requests that were given out to views.
    requests: u64,
    thresholds: [Option<Used<u64>>; MAX_THRESHOLDS],
    /// The processes whose requests are told apart, by their owner's number.
    owners: BTreeMap<u16, Used<u32>>,
}

/// Something that several may use.
#[derive(Clone, Copy)]
struct Used<T> {
    what: T,
    users: usize,
}

/// What is kept for one view.
#[derive(Default)]
struct View {
    /// The disks that it is about; empty: all.
    disks: Vec<String>,
    open: bool,
    /// Its share of the node's requests, while it was open.
    share: f64,
    /// The longest times since it read them, by slot.
    longest: BTreeMap<u32, (u64, u64)>,
    slow: Vec<SlowRequest>,
    slow_lost: u64,
}

impl View {
    fn wants(&self, disk: &str) -> bool {
        self.disks.is_empty() || self.disks.iter().any(|wanted| wanted == disk)
    }
}

impl Shared {
    /// Loads the programs.
    pub fn load() -> Result<Self, AttachError> {
        Ok(Self {
            disks: Disks::load()?,
            views: BTreeMap::new(),
            views_made: 0,
            requests: 0,
            thresholds: [None; MAX_THRESHOLDS],
            owners: BTreeMap::new(),
        })
    }

    /// The place of a threshold; None where there are too many others.
    pub fn take_threshold(&mut self, nanos: u64) -> Result<Option<usize>, ReadError> {
        let same = |held: &Option<Used<u64>>| held.is_some_and(|held| held.what == nanos);
        let mut all = self.thresholds.iter();
        let known = all.position(same);
        let free = || self.thresholds.iter().position(Option::is_none);
        let Some(place) = known.or_else(free) else {
            return Ok(None);
        };
        let held = &mut self.thresholds[place];
        held.get_or_insert(Used {
            what: nanos,
            users: 0,
        })
        .users += 1;
        self.order_thresholds()?;
        Ok(Some(place))
    }

    /// Nobody needs it any more, if nobody else does.
    pub fn leave_threshold(&mut self, place: usize) {
        release(&mut self.thresholds[place]);
        // Where that fails, somebody is told of requests that nobody asked for.
        let _ = self.order_thresholds();
    }

    fn order_thresholds(&mut self) -> Result<(), ReadError> {
        let nanos = self
            .thresholds
            .map(|held| held.map_or(u64::MAX, |held| held.what));
        self.disks.set_thresholds(nanos)
    }

    /// The number of a process whose requests are told apart from now on; 0 where there are too many others.
    pub fn own(&mut self, process: u32) -> Result<u16, ReadError> {
        let mut known = self.owners.iter_mut();
        if let Some((owner, used)) = known.find(|(_, used)| used.what == process) {
            used.users += 1;
            return Ok(*owner);
        }
        let mut numbers = 1..=MAX_OWNERS as u16;
        let Some(owner) = numbers.find(|owner| !self.owners.contains_key(owner)) else {
            return Ok(0);
        };
        self.disks.own(process, owner)?;
        let used = Used {
            what: process,
            users: 1,
        };
        self.owners.insert(owner, used);
        Ok(owner)
    }

    /// Nobody needs it any more, if nobody else does.
    pub fn disown(&mut self, owner: u16) {
        let mut held = self.owners.remove(&owner);
        let process = held.map(|used| used.what);
        release(&mut held);
        match (held, process) {
            (Some(used), _) => drop(self.owners.insert(owner, used)),
            (None, Some(process)) => self.disks.disown(process),
            (None, None) => {}
        }
    }

    /// Gives out the requests that ended since the last time, to who counted them, in equal parts.
    fn share_out(&mut self) -> Result<(), ReadError> {
        let requests = self.disks.requests()?;
        let new = requests.saturating_sub(self.requests);
        self.requests = requests;
        let open = || self.views.values().filter(|view| view.open);
        let part = new as f64 / open().count().max(1) as f64;
        for view in self.views.values_mut().filter(|view| view.open) {
            view.share += part;
        }
        Ok(())
    }

    /// Attaches for the first view that opens.
    fn open(&mut self, view: u64) -> Result<(), AttachError> {
        self.share_out()?;
        if !self.views.values().any(|view| view.open) {
            self.disks.attach()?;
        }
        if let Some(view) = self.views.get_mut(&view) {
            view.open = true;
        }
        Ok(())
    }

    /// Detaches for the last one that closes.
    fn close(&mut self, view: u64) -> Result<Option<Links>, ReadError> {
        self.share_out()?;
        if let Some(view) = self.views.get_mut(&view) {
            view.open = false;
        }
        if self.views.values().any(|view| view.open) {
            return Ok(None);
        }
        Ok(self.disks.detach())
    }

    /// Reads what was counted. The longest times are of an interval that ends now, whoever asked: every view gets them.
    fn read(&mut self, view: u64) -> Result<Vec<DiskSlot>, ReadError> {
        let mut slots = self.disks.read()?;
        for view in self.views.values_mut() {
            for slot in &slots {
                let longest = view.longest.entry(slot.slot).or_default();
                longest.0 = longest.0.max(slot.longest.0);
                longest.1 = longest.1.max(slot.longest.1);
            }
        }
        let own = self.views.get_mut(&view);
        let mut longest = own.map_or_else(BTreeMap::new, |view| std::mem::take(&mut view.longest));
        for slot in &mut slots {
            slot.longest = longest.remove(&slot.slot).unwrap_or_default();
        }
        Ok(slots)
    }

    /// Takes the slow requests that wait: every view that is open gets them.
    fn slow_requests(&mut self, view: u64) -> Vec<SlowRequest> {
        let new = self.disks.slow_requests();
        for view in self.views.values_mut().filter(|view| view.open) {
            let room = MAX_WAITING.saturating_sub(view.slow.len());
            view.slow.extend(new.iter().take(room));
            view.slow_lost += new.len().saturating_sub(room) as u64;
        }
        let own = self.views.get_mut(&view);
        own.map_or_else(Vec::new, |view| std::mem::take(&mut view.slow))
    }

    fn lost(&mut self, view: u64) -> Result<DisksLost, ReadError> {
        let view = self.views.get(&view);
        let wanted = |disk: &str| view.is_none_or(|view| view.wants(disk));
        let mut lost = self.disks.lost(wanted)?;
        lost.events += view.map_or(0, |view| view.slow_lost);
        Ok(lost)
    }
}

fn release<T>(held: &mut Option<Used<T>>) {
    if let Some(used) = held {
        used.users -= 1;
        if used.users == 0 {
            *held = None;
        }
    }
}

/// Who looks. Dropping it ends that.
pub struct Viewer {
    shared: Arc<Mutex<Shared>>,
    number: u64,
}

impl Viewer {
    /// One more, about these disks; about all if they are none.
    pub fn of(shared: Arc<Mutex<Shared>>, disks: Vec<String>) -> Self {
        let mut viewer = Self { shared, number: 0 };
        viewer.number = {
            let mut shared = viewer.lock();
            shared.views_made += 1;
            let number = shared.views_made;
            let view = View {
                disks,
                ..View::default()
            };
            shared.views.insert(number, view);
            number
        };
        viewer
    }

    /// What all have in common. What another thread left as it panicked is still whole: every change is one assignment.
    pub fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts from now on. What was counted before.
    pub fn open(&self) -> Result<(Vec<DiskSlot>, DisksLost), AttachError> {
        let mut shared = self.lock();
        shared.open(self.number)?;
        Ok((shared.disks.counted()?, shared.lost(self.number)?))
    }

    /// Counts no more. What was counted up to now.
    pub fn close(&self) -> Result<(Vec<DiskSlot>, DisksLost, Option<Links>), ReadError> {
        let mut shared = self.lock();
        let slots = shared.disks.counted()?;
        let lost = shared.lost(self.number)?;
        let links = shared.close(self.number)?;
        Ok((slots, lost, links))
    }

    /// Its share of the requests that ended while it counted.
    pub fn share(&self) -> Result<u64, ReadError> {
        let mut shared = self.lock();
        shared.share_out()?;
        let view = shared.views.get(&self.number);
        Ok(view.map_or(0, |view| view.share as u64))
    }

    /// What was counted, and the longest times since it was last asked.
    pub fn read(&self) -> Result<(Vec<DiskSlot>, DisksLost), ReadError> {
        let mut shared = self.lock();
        Ok((shared.read(self.number)?, shared.lost(self.number)?))
    }

    /// The slow requests since it was last asked.
    pub fn slow_requests(&self) -> Vec<SlowRequest> {
        self.lock().slow_requests(self.number)
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut shared = self.lock();
        // What cannot be read is not shared out; the links go all the same.
        let links = shared.close(self.number);
        shared.views.remove(&self.number);
        drop(shared);
        // Not while others wait for the disks.
        drop(links);
    }
}
