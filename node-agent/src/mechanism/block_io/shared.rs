//! What all views of the disks have in common.

use std::{collections::BTreeMap, sync::Arc};

use ckb_probe_common::block_io::{MAX_OWNERS, MAX_PAYERS, MAX_THRESHOLDS, payer};
use ckb_probe_crds::Name;

use super::devices::is_wanted;
use crate::{
    kernel::{AttachError, DiskSlot, Disks, Identity, Links, ReadError, SlowRequest},
    mechanism::shared::{Losses, NodeEvent, NodeProgram, Spent},
    share,
};

/// The programs and counters, and what those who subscribe to them share besides.
pub struct NodeDisks {
    /// The kernel's side.
    pub disks: Disks,
    thresholds: Places<u64>,
    /// The processes whose requests are told apart, by their owner's number, less one.
    owners: Places<Identity>,
    /// By their place: their namespace, and its number.
    namespaces: BTreeMap<usize, (Arc<str>, u32)>,
    untold: Untold,
}

/// Slow requests that were not told, for want of room in the ring.
struct Untold {
    /// Up to the last look, as the programs count them.
    seen: [u64; MAX_PAYERS as usize],
    /// By the namespace's number, and the greatest threshold that they reached.
    counts: BTreeMap<(u32, u64), u64>,
}

impl Untold {
    fn new() -> Self {
        Self {
            seen: [0; MAX_PAYERS as usize],
            counts: BTreeMap::new(),
        }
    }

    /// Takes in what is counted by now, under these thresholds.
    fn see(&mut self, now: [u64; MAX_PAYERS as usize], thresholds: &Places<u64>) {
        for (place, threshold) in thresholds.all().enumerate() {
            for namespace in 0..=MAX_OWNERS {
                let index = payer(namespace, place as u32) as usize;
                let (Some(seen), Some(now)) = (self.seen.get_mut(index), now.get(index)) else {
                    continue;
                };
                let more = now.saturating_sub(*seen);
                *seen = *now;
                if more > 0 {
                    let key = (namespace, threshold.unwrap_or_default());
                    *self.counts.entry(key).or_default() += more;
                }
            }
        }
    }

    /// Adds what is known of thresholds that nobody has any more to the next that somebody has: whoever is concerned has that, or less.
    fn retain(&mut self, thresholds: &Places<u64>) {
        for ((namespace, threshold), count) in std::mem::take(&mut self.counts) {
            let held = thresholds.all().flatten();
            if let Some(kept) = held.filter(|held| *held <= threshold).max() {
                *self.counts.entry((namespace, kept)).or_default() += count;
            }
        }
    }

    /// How many would have been told to a view of this namespace: nobody's requests, and its own.
    fn of(&self, namespace: u32, threshold_ns: u64) -> u64 {
        let concerned = self.counts.iter().filter(|((whose, threshold), _)| {
            (*whose == 0 || *whose == namespace) && *threshold >= threshold_ns
        });
        concerned.map(|(_, count)| count).sum()
    }
}

/// So many different things, each of which several may use. Namespaces share the places.
struct Places<T>(Vec<Option<Used<T>>>);

/// Something that is used.
struct Used<T> {
    what: T,
    /// How many do, by the namespace.
    users: BTreeMap<Arc<str>, usize>,
}

impl<T: Copy + PartialEq> Places<T> {
    fn new(most: usize) -> Self {
        Self((0..most).map(|_| None).collect())
    }

    /// What has a place, in their order; None for a free one.
    fn all(&self) -> impl Iterator<Item = Option<T>> {
        self.0
            .iter()
            .map(|held| held.as_ref().map(|held| held.what))
    }

    /// Its place; None where namespace, or all of them, have too many others.
    fn take(&mut self, what: T, namespace: &Arc<str>) -> Option<usize> {
        let known = self.all().position(|held| held == Some(what));
        let place = match known {
            Some(place) => place,
            None => {
                let taken = self.0.iter().flatten();
                let own = taken
                    .clone()
                    .filter(|held| held.users.contains_key(namespace));
                // One that several use is taken once.
                let left = self.0.len() - taken.clone().count();
                if !share::may_take(own.count(), 1, left) {
                    return None;
                }
                self.0.iter().position(Option::is_none)?
            }
        };
        let held = self.0.get_mut(place)?.get_or_insert_with(|| Used {
            what,
            users: BTreeMap::new(),
        });
        *held.users.entry(Arc::clone(namespace)).or_default() += 1;
        Some(place)
    }

    /// One of the namespace needs it no more. What is there, if nobody else does.
    fn leave(&mut self, place: usize, namespace: &str) -> Option<T> {
        let held = self.0.get_mut(place)?;
        let used = held.as_mut()?;
        if let Some(users) = used.users.get_mut(namespace) {
            *users -= 1;
            if *users == 0 {
                used.users.remove(namespace);
            }
        }
        let is_left = used.users.is_empty();
        held.take_if(|_| is_left).map(|held| held.what)
    }
}

/// What is kept for one view.
pub struct View {
    /// The disks that it is about; empty: all.
    disks: Vec<String>,
    /// Which of the thresholds is its own.
    pub threshold: usize,
    /// Whose requests are its own; 0 where that is not told.
    pub owner: u16,
    /// From how many nanoseconds on requests are slow to it.
    threshold_ns: u64,
    /// On whose behalf it has them.
    namespace: Arc<str>,
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
            thresholds: Places::new(MAX_THRESHOLDS),
            owners: Places::new(MAX_OWNERS as usize),
            namespaces: BTreeMap::new(),
            untold: Untold::new(),
        })
    }

    /// One more view, of these disks; of all if they are none, on behalf of a process of this namespace. None where that, or all of
    /// them, have too many other thresholds.
    pub fn view(
        &mut self,
        disks: &[String],
        slow_threshold_ns: u64,
        process: Identity,
        namespace: &str,
    ) -> Result<Option<View>, ReadError> {
        let namespace: Arc<str> = namespace.into();
        let Some(threshold) = self.take_threshold(slow_threshold_ns, &namespace)? else {
            return Ok(None);
        };
        let owner = match self.own(process, &namespace) {
            Ok(owner) => owner,
            Err(error) => {
                self.leave_threshold(threshold, &namespace)?;
                return Err(error);
            }
        };
        Ok(Some(View {
            disks: disks.to_vec(),
            threshold,
            owner,
            threshold_ns: slow_threshold_ns,
            namespace,
            longest: BTreeMap::new(),
        }))
    }

    /// The place of a threshold; None where there are too many others.
    fn take_threshold(
        &mut self,
        nanos: u64,
        namespace: &Arc<str>,
    ) -> Result<Option<usize>, ReadError> {
        self.look_for_untold()?;
        let Some(place) = self.thresholds.take(nanos, namespace) else {
            return Ok(None);
        };
        match self.order_thresholds() {
            Ok(()) => Ok(Some(place)),
            Err(error) => {
                self.thresholds.leave(place, namespace);
                Err(error)
            }
        }
    }

    /// Nobody needs it any more, if nobody else does.
    fn leave_threshold(&mut self, place: usize, namespace: &str) -> Result<(), ReadError> {
        self.look_for_untold()?;
        self.thresholds.leave(place, namespace);
        self.untold.retain(&self.thresholds);
        self.order_thresholds()
    }

    fn look_for_untold(&mut self) -> Result<(), ReadError> {
        let untold = self.disks.untold()?;
        self.untold.see(untold, &self.thresholds);
        Ok(())
    }

    fn order_thresholds(&mut self) -> Result<(), ReadError> {
        let mut nanos = [u64::MAX; MAX_THRESHOLDS];
        for (ordered, held) in nanos.iter_mut().zip(self.thresholds.all()) {
            *ordered = held.unwrap_or(u64::MAX);
        }
        self.disks.set_thresholds(nanos)
    }

    /// The number of a process whose requests are told apart from now on; 0 where there are too many others.
    fn own(&mut self, process: Identity, namespace: &Arc<str>) -> Result<u16, ReadError> {
        let Some(place) = self.owners.take(process, namespace) else {
            return Ok(0);
        };
        let owner = place as u16 + 1;
        let known = self.namespaces.values();
        let known = known.map(|(namespace, number)| (namespace.as_ref(), *number));
        // That of nobody has a number, too.
        let number = share::number_of(known.chain([("", 0)]), namespace);
        if let Err(error) = self.disks.own(process, owner, number) {
            self.owners.leave(place, namespace);
            return Err(error);
        }
        self.namespaces
            .insert(place, (Arc::clone(namespace), number));
        Ok(owner)
    }

    /// Nobody needs it any more, if nobody else does.
    fn disown(&mut self, owner: u16, namespace: &str) -> Result<(), ReadError> {
        let Some(place) = usize::from(owner).checked_sub(1) else {
            return Ok(());
        };
        let Some(left) = self.owners.leave(place, namespace) else {
            return Ok(());
        };
        self.namespaces.remove(&place);
        let mut others = self.owners.all().flatten();
        // Of one that has its number by now.
        if others.any(|other| other.number == left.number) {
            return Ok(());
        }
        self.disks.disown(left.number)
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
        let left = self.leave_threshold(view.threshold, &view.namespace);
        left.and(self.disown(view.owner, &view.namespace))
    }

    /// Requests that ended.
    fn costs(&self) -> Result<Spent<()>, ReadError> {
        Ok(vec![(None, self.disks.requests()?)])
    }

    fn lost(&mut self, view: &View) -> Result<Losses, ReadError> {
        let lost = self.disks.lost(|disk| view.wants(disk))?;
        self.look_for_untold()?;
        let place = usize::from(view.owner).checked_sub(1);
        let known = place.and_then(|place| self.namespaces.get(&place));
        let number = known.map_or(0, |(_, number)| *number);
        let counts = [
            ("requests", lost.requests),
            ("times", lost.times),
            (Self::EVENTS_LOST, self.untold.of(number, view.threshold_ns)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &mut Places<u64>, what: u64, namespace: &str) -> Option<usize> {
        places.take(what, &namespace.into())
    }

    #[test]
    fn what_is_not_told_is_lost_to_whom_it_would_have_been_told() {
        let mut thresholds = Places::new(MAX_THRESHOLDS);
        let long = take(&mut thresholds, 1_000_000, "other").unwrap();
        let short = take(&mut thresholds, 10, "hostile").unwrap();
        let mut now = [0; MAX_PAYERS as usize];
        let mut untold = Untold::new();
        let mut lose = |untold: &mut Untold, namespace, threshold: usize, more, thresholds: &_| {
            now[payer(namespace, threshold as u32) as usize] += more;
            untold.see(now, thresholds);
        };
        lose(&mut untold, 0, short, 1000, &thresholds);
        lose(&mut untold, 1, short, 100, &thresholds);
        assert_eq!((untold.of(1, 10), untold.of(2, 10)), (1100, 1000));
        assert_eq!((untold.of(1, 1_000_000), untold.of(2, 1_000_000)), (0, 0));
        lose(&mut untold, 2, long, 7, &thresholds);
        lose(&mut untold, 0, long, 1, &thresholds);
        assert_eq!((untold.of(1, 1_000_000), untold.of(2, 1_000_000)), (1, 8));
        assert_eq!(untold.of(1, 10), 1101);
        // What somebody asks who comes later is no loss of before.
        assert_eq!(thresholds.leave(long, "other"), Some(1_000_000));
        untold.retain(&thresholds);
        assert_eq!(take(&mut thresholds, 500, "other"), Some(long));
        untold.see(now, &thresholds);
        assert_eq!((untold.of(2, 500), untold.of(1, 10)), (0, 1101));
    }

    #[test]
    fn one_namespace_takes_no_more_than_half_and_what_is_there_is_for_all() {
        let mut places = Places::new(8);
        let one: Vec<_> = (0..8)
            .map(|nanos| take(&mut places, nanos, "one"))
            .collect();
        assert_eq!(one[..4], [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(one[4..], [None; 4]);
        assert_eq!(take(&mut places, 100, "other"), Some(4));
        // Another of the same, and what somebody else has: that takes no place.
        assert_eq!(take(&mut places, 3, "one"), Some(3));
        assert_eq!(take(&mut places, 100, "one"), Some(4));
        assert_eq!(take(&mut places, 0, "other"), Some(0));
    }

    #[test]
    fn who_uses_what_others_have_takes_no_place_from_a_third() {
        let mut places = Places::new(8);
        for nanos in 0..4 {
            for namespace in ["one", "other"] {
                assert!(take(&mut places, nanos, namespace).is_some());
            }
        }
        let third: Vec<_> = (10..14)
            .map(|nanos| take(&mut places, nanos, "third"))
            .collect();
        assert_eq!(third, [Some(4), Some(5), None, None]);
    }

    #[test]
    fn a_place_is_free_once_the_last_has_left_it() {
        let mut places = Places::new(4);
        for namespace in ["one", "one", "other"] {
            assert_eq!(take(&mut places, 7, namespace), Some(0));
        }
        assert_eq!(places.leave(0, "one"), None);
        assert_eq!(places.leave(0, "other"), None);
        assert_eq!(places.all().next(), Some(Some(7)));
        assert_eq!(places.leave(0, "one"), Some(7));
        assert_eq!(places.leave(0, "one"), None);
        assert_eq!(take(&mut places, 9, "one"), Some(0));
    }
}
