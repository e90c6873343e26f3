//! What all views of the disks have in common.

use std::collections::BTreeMap;

use ckb_probe_common::block_io::{MAX_OWNERS, MAX_THRESHOLDS};
use ckb_probe_crds::Name;

use super::devices::is_wanted;
use crate::{
    kernel::{AttachError, DiskSlot, Disks, Links, ReadError, SlowRequest},
    mechanism::shared::{Losses, NodeEvent, NodeProgram, Spent},
};

/// The programs and counters, and what those who subscribe to them share besides.
pub struct NodeDisks {
    /// The kernel's side.
    pub disks: Disks,
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
pub struct View {
    /// The disks that it is about; empty: all.
    disks: Vec<String>,
    /// Which of the thresholds is its own.
    pub threshold: usize,
    /// Whose requests are its own; 0 where that is not told.
    pub owner: u16,
    /// The longest times since it read them, by slot.
    longest: BTreeMap<u32, (u64, u64)>,
}

impl View {
    fn wants(&self, disk: &str) -> bool {
        is_wanted(&self.disks, disk)
    }

    /// Takes in what was read: its longest times are of an interval that ended then, whoever asked.
    pub fn see(&mut self, slots: &[DiskSlot]) {
        for slot in slots {
            let longest = self.longest.entry(slot.slot).or_default();
            longest.0 = longest.0.max(slot.longest.0);
            longest.1 = longest.1.max(slot.longest.1);
        }
    }

    /// Has the slots tell the longest times since it last asked.
    pub fn take_longest(&mut self, slots: &mut [DiskSlot]) {
        let mut longest = std::mem::take(&mut self.longest);
        for slot in slots {
            slot.longest = longest.remove(&slot.slot).unwrap_or_default();
        }
    }
}

impl NodeDisks {
    /// Loads the programs.
    pub fn load() -> Result<Self, AttachError> {
        Ok(Self {
            disks: Disks::load()?,
            thresholds: [None; MAX_THRESHOLDS],
            owners: BTreeMap::new(),
        })
    }

    /// One more view, of these disks; of all if they are none. None where there are too many other thresholds.
    pub fn view(
        &mut self,
        disks: &[String],
        slow_threshold_ns: u64,
        process: u32,
    ) -> Result<Option<View>, ReadError> {
        let Some(threshold) = self.take_threshold(slow_threshold_ns)? else {
            return Ok(None);
        };
        let owner = match self.own(process) {
            Ok(owner) => owner,
            Err(error) => {
                self.leave_threshold(threshold)?;
                return Err(error);
            }
        };
        Ok(Some(View {
            disks: disks.to_vec(),
            threshold,
            owner,
            longest: BTreeMap::new(),
        }))
    }

    /// The place of a threshold; None where there are too many others.
    fn take_threshold(&mut self, nanos: u64) -> Result<Option<usize>, ReadError> {
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
        match self.order_thresholds() {
            Ok(()) => Ok(Some(place)),
            Err(error) => {
                release(&mut self.thresholds[place]);
                Err(error)
            }
        }
    }

    /// Nobody needs it any more, if nobody else does.
    fn leave_threshold(&mut self, place: usize) -> Result<(), ReadError> {
        release(&mut self.thresholds[place]);
        self.order_thresholds()
    }

    fn order_thresholds(&mut self) -> Result<(), ReadError> {
        let nanos = self
            .thresholds
            .map(|held| held.map_or(u64::MAX, |held| held.what));
        self.disks.set_thresholds(nanos)
    }

    /// The number of a process whose requests are told apart from now on; 0 where there are too many others.
    fn own(&mut self, process: u32) -> Result<u16, ReadError> {
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
    fn disown(&mut self, owner: u16) -> Result<(), ReadError> {
        let mut held = self.owners.remove(&owner);
        let process = held.map(|used| used.what);
        release(&mut held);
        match (held, process) {
            (Some(used), _) => {
                self.owners.insert(owner, used);
                Ok(())
            }
            (None, Some(process)) => self.disks.disown(process),
            (None, None) => Ok(()),
        }
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

/// What disks do is everybody's, whoever looks.
impl NodeProgram for NodeDisks {
    type Subscriber = View;
    type Key = ();
    type Event = SlowRequest;

    /// A view has ten of them listed, in an interval.
    const MAX_WAITING: usize = 1024;
    const EVENTS_LOST: &'static str = "events";

    fn key(_: &View) {}

    fn attach(&mut self) -> Result<(), AttachError> {
        self.disks.attach()
    }

    fn detach(&mut self) -> Option<Links> {
        self.disks.detach()
    }

    fn open(&mut self, _: &mut View, _: &[&View]) -> Result<(), AttachError> {
        Ok(())
    }

    fn close(&mut self, _: &mut View, _: &[&View]) -> Result<(), ReadError> {
        Ok(())
    }

    fn forget(&mut self, view: View, _: &[&View]) -> Result<(), ReadError> {
        // Where that fails, somebody is told of requests that nobody asked for.
        let left = self.leave_threshold(view.threshold);
        left.and(self.disown(view.owner))
    }

    /// Requests that ended.
    fn costs(&self) -> Result<Spent<()>, ReadError> {
        Ok(vec![(None, self.disks.requests()?)])
    }

    fn lost(&mut self, view: &View) -> Result<Losses, ReadError> {
        let lost = self.disks.lost(|disk| view.wants(disk))?;
        let counts = [
            ("requests", lost.requests),
            ("times", lost.times),
            (Self::EVENTS_LOST, lost.events),
        ];
        Ok(counts
            .map(|(what, count)| (Name::Borrowed(what), count))
            .into())
    }

    fn drain(&mut self) -> Vec<NodeEvent<(), SlowRequest>> {
        let requests = self.disks.slow_requests().into_iter();
        let told = requests.map(|request| NodeEvent {
            key: None,
            time_ns: request.time_ns,
            event: request,
        });
        told.collect()
    }
}
