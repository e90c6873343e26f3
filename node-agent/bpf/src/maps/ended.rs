//! Calls whose threads have ended: such a call does not return, and no program is run for it any more.
//!
//! In a slice that is nothing new: as the slice is over, all that is in flight is cut, and its places are the next one's. Of what is attached
//! all of the time a place would be kept for good, until there is none for anybody. Threads are known by their numbers alone, so it is
//! looked at what is in flight now and then, and whether those threads are still there.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use ckb_probe_common::{CELLS, CallKey, CallStart, Cell, Group, Mark};

use super::{
    super::{AttachError, ReadError, object::Object, typed::Values},
    Maps, in_flight,
};

/// How long it is not looked again, since that takes a millisecond: each time that nothing was found it is twice as long.
const LEAST_WAIT: Duration = Duration::from_secs(1);
const MOST_WAIT: Duration = Duration::from_secs(16);

/// With so many in flight there is soon no room for more, and it is looked as often as it may be.
const MANY: u64 = CELLS as u64 / 2;

/// Nobody's.
const FREE: Cell = Cell {
    key: CallKey { owner: 0, stack: 0 },
    start: CallStart {
        time_ns: 0,
        bytes: 0,
        mark: Mark(0),
    },
};

/// Where most calls in flight are.
pub(super) struct InFlight {
    cells: Values<Cell>,
    /// When it was looked last, and how long it is not looked again.
    looked: Option<(Instant, Duration)>,
}

impl InFlight {
    pub(super) fn take(object: &mut Object) -> Result<Self, AttachError> {
        Ok(Self {
            cells: Values::take_for_batches(object, "CALLS")?,
            looked: None,
        })
    }
}

impl Maps {
    /// See [`super::super::Probes::forget_ended`].
    pub(in super::super) fn forget_ended(
        &mut self,
        ended: impl FnOnce(BTreeSet<u32>) -> BTreeSet<u32>,
    ) -> Result<(), ReadError> {
        let (passed, wait) = match self.in_flight.looked {
            Some((looked, wait)) => (looked.elapsed(), wait),
            None => (MOST_WAIT, LEAST_WAIT),
        };
        if passed < LEAST_WAIT {
            return Ok(());
        }
        let flying = self.flying()?;
        if flying == 0 || passed < wait && flying < MANY {
            return Ok(());
        }
        let found = self.free_ended(ended)?;
        let next = match found {
            true => LEAST_WAIT,
            false => (wait * 2).min(MOST_WAIT),
        };
        self.in_flight.looked = Some((Instant::now(), next));
        Ok(())
    }

    /// Whether there were any.
    fn free_ended(
        &mut self,
        ended: impl FnOnce(BTreeSet<u32>) -> BTreeSet<u32>,
    ) -> Result<bool, ReadError> {
        let cells = (0..).zip(self.in_flight.cells.all()?);
        let cells: Vec<(u32, Cell)> = cells.filter(|(_, cell)| stays(&cell.key)).collect();
        let mut more = self.more_calls.entries()?;
        more.retain(|(key, _)| stays(key));
        let keys = cells.iter().map(|(_, cell)| &cell.key);
        let threads = keys.chain(more.iter().map(|(key, _)| key));
        let threads: BTreeSet<u32> = threads.map(CallKey::thread).collect();
        if threads.is_empty() {
            return Ok(false);
        }
        // Asked after they were read: what was there by then is all that there will be of those that have.
        let ended = ended(threads);
        let has_ended = |key: &CallKey| ended.contains(&key.thread());
        for (place, _) in cells.iter().filter(|(_, cell)| has_ended(&cell.key)) {
            // It may have been read as its thread wrote it.
            let Cell { key, start } = self.in_flight.cells.get(*place)?;
            if has_ended(&key) {
                self.in_flight.cells.set(*place, FREE)?;
                self.is_cut(&key, &start);
            }
        }
        for (key, start) in more.iter().filter(|(key, _)| has_ended(key)) {
            self.more_calls.remove(*key)?;
            self.is_cut(key, start);
        }
        Ok(!ended.is_empty())
    }

    /// A call's end will not be seen.
    fn is_cut(&mut self, key: &CallKey, start: &CallStart) {
        // Otherwise it is no call, but what is remembered for the end of one: a size, or by what something else ends that is in flight.
        let is_call = start.time_ns > 0;
        // What is not to be recorded as it ends is cut already.
        if is_call && start.mark.passes(self.control.gate(key.operation())) {
            let (slot, group) = (start.mark.slot() as usize, start.mark.group() as usize);
            if self.cut.len() <= slot {
                self.cut.resize(slot + 1, [0; Group::COUNT]);
            }
            if let Some(cut) = self.cut[slot].get_mut(group) {
                *cut += 1;
            }
        }
    }

    /// How many calls are in flight; of what is told apart by column family or by value, which has totals of its own, that there may be one.
    fn flying(&self) -> Result<u64, ReadError> {
        let told_apart = self.hits.is_some() || self.family_count.get(0)? > 0;
        let totals = self.totals.first(self.slots)?;
        let flying = totals.iter().enumerate().flat_map(|(slot, totals)| {
            let cut = self.cut.get(slot).copied().unwrap_or_default();
            let groups = Group::ALL.into_iter();
            groups.map(move |group| in_flight(totals, group).saturating_sub(cut[group as usize]))
        });
        Ok(flying.sum::<u64>().max(u64::from(told_apart)))
    }
}

/// Whether nobody frees this place, if the thread does not.
fn stays(key: &CallKey) -> bool {
    key.is_of_a_thread() && !key.is_sliced()
}
