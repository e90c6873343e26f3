//! Reading what the programs counted, and telling them what to count.

mod ended;
mod hits;
mod reading;

use std::{thread, time::Duration};

use ckb_probe_common::{
    CallKey, CallStart, Control, Family, FamilyKey, FamilySlot, Group, Losses, MAX_CAUSE, Mark,
    SlowArguments, SlowCall, Totals,
    hits::{Traceparent, Value},
    maximum_of,
};
pub(super) use hits::{Hits, told_apart};
pub use reading::{
    FamilyReading, MapsReading, PayloadsLost, SeenCall, SeenPayload, SlotReading, ValueReading,
};
use zerocopy::FromBytes;

use super::{
    AttachError, ReadError, Slots,
    memory::Reservation,
    object::Object,
    typed::{Counts, PerCpu, Ring, Table, Values},
};

/// How long a program that saw the old epoch may still write to its maximum. A program runs for a
/// microsecond; this leaves room for one that was preempted.
pub(super) const GRACE: Duration = Duration::from_millis(2);

pub(super) struct Maps {
    control_map: Values<Control>,
    totals: PerCpu<Totals>,
    histograms: PerCpu<ckb_probe_common::Histogram>,
    losses: PerCpu<Losses>,
    events_lost: PerCpu<u64>,
    families: Values<Family>,
    family_count: Values<u64>,
    family_slots: Table<FamilyKey, FamilySlot>,
    /// How many had been asked for when it was last looked which of them found no room, and which those were.
    folded: (u64, Vec<u64>),
    hits: Option<Hits>,
    causes_unseen: Values<u64>,
    /// By slot: which cause its calls are; 0 for none.
    causes: Vec<u8>,
    /// By slot, those of column families too: the maximum that was told last.
    longest: Vec<u64>,
    /// By slot, those of column families too, and [`Group`]: calls of which the end was not seen, and will not be.
    cut: Vec<[u64; Group::COUNT]>,
    in_flight: ended::InFlight,
    more_calls: Table<CallKey, CallStart>,
    slow_calls: Ring<SlowCall>,
    stacks_lost: PerCpu<u64>,
    copying: PerCpu<u64>,
    control: Control,
    slots: u32,
    /// What they take.
    room: Option<Reservation>,
}

impl Maps {
    /// They are about to be gone.
    pub(super) fn leave(&mut self) {
        if let Some(room) = &mut self.room {
            room.leave();
        }
    }

    /// Takes the maps over, and gives the programs their first orders.
    pub(super) fn take(
        object: &mut Object,
        slots: u32,
        control: Control,
        causes: Vec<u8>,
        hits: Option<Hits>,
    ) -> Result<Self, AttachError> {
        let mut maps = Self {
            control_map: Values::take(object, "CONTROL")?,
            totals: PerCpu::take_for_batches(object, "TOTALS")?,
            histograms: PerCpu::take(object, "HISTOGRAMS")?,
            losses: PerCpu::take(object, "LOSSES")?,
            events_lost: PerCpu::take(object, "EVENTS_LOST")?,
            families: Values::take(object, "FAMILIES")?,
            family_count: Values::take(object, "FAMILY_COUNT")?,
            family_slots: Table::take(object, "FAMILY_SLOTS")?,
            folded: (0, Vec::new()),
            hits,
            causes_unseen: Values::take(object, "CAUSES_UNSEEN")?,
            causes,
            cut: Vec::new(),
            longest: Vec::new(),
            in_flight: ended::InFlight::take(object)?,
            more_calls: Table::take(object, "MORE_CALLS")?,
            slow_calls: Ring::take(object, "SLOW_CALLS")?,
            stacks_lost: PerCpu::take(object, "STACKS_LOST")?,
            copying: PerCpu::take(object, "COPYING")?,
            control,
            slots,
            room: object.take_room(),
        };
        maps.order(|_| {})?;
        Ok(maps)
    }

    /// Changes what the programs are told.
    pub(super) fn order(&mut self, change: impl FnOnce(&mut Control)) -> Result<(), ReadError> {
        change(&mut self.control);
        self.control_map.set(0, self.control)
    }

    /// Tells the programs which causes all of the calls are seen of: those of these slots.
    pub(super) fn watch_causes(&mut self, slots: &Slots) -> Result<(), ReadError> {
        let causes = slots
            .iter()
            .filter_map(|slot| self.causes.get(usize::from(*slot)));
        let watched = causes.fold(0, |seen, cause| seen | 1 << cause) & !1;
        self.order(|control| control.causes = watched)
    }

    /// Whether any calls of these slots and groups are in flight.
    pub(super) fn any_in_flight(&self, of: &[(u8, Group)]) -> Result<bool, ReadError> {
        let families = self.seen_families()?;
        let values = self.hits.as_ref().map(Hits::values).transpose()?;
        let values = values.unwrap_or_default();
        for (slot, group) in of {
            let slot = u32::from(*slot);
            let own = families.iter().filter(|(_, family)| family.slot == slot);
            let own = own.map(|(index, _)| self.slots + index);
            let with_value = values.iter().filter(|(_, value)| value.slot == slot);
            let with_value = with_value.map(|(place, _)| *place);
            for place in own.chain(with_value).chain([slot]) {
                let cut = self.cut.get(place as usize).copied().unwrap_or_default();
                let in_flight = in_flight(&self.totals.get(place)?, *group);
                if in_flight > cut[*group as usize] {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// About how many calls each operation has had, with its column families, and how many other processes have.
    pub(super) fn met(&self) -> Result<Vec<(u64, u64)>, ReadError> {
        let met = |cpus: Vec<Totals>| {
            let cpus = cpus.into_iter();
            cpus.fold((0, 0), |(hits, others), cpu| {
                (hits + cpu.hits, others + cpu.others)
            })
        };
        let totals = self.totals.first(self.slots)?;
        Ok(totals.into_iter().map(met).collect())
    }

    pub(super) fn read(&mut self) -> Result<MapsReading, ReadError> {
        let retired = self.control.epoch;
        self.order(|control| control.epoch = retired.wrapping_add(1))?;
        thread::sleep(GRACE);
        let losses = self.losses.sum(0)?;
        let families = self
            .seen_families()?
            .into_iter()
            .map(|(index, family)| {
                Ok(FamilyReading {
                    reading: self.read_slot(self.slots + index, family.slot, retired)?,
                    ..FamilyReading::of(&family)
                })
            })
            .collect::<Result<Vec<_>, ReadError>>()?;
        let families_folded = self.folded_families()?;
        let values = self.values(retired)?;
        let (mut values_folded, mut hits_lost) = (Vec::new(), Vec::new());
        for slot in 0..self.slots {
            let (folded, lost) = match &self.hits {
                Some(hits) => (hits.folded(slot)?, hits.losses(slot)?),
                None => Default::default(),
            };
            values_folded.push(folded);
            hits_lost.push(lost);
        }
        let unbegun = hits_lost.iter().map(|lost| lost.unbegun);
        let slots = (0..self.slots)
            .zip(unbegun)
            .map(|(slot, unbegun)| {
                Ok(SlotReading {
                    unbegun,
                    ..self.read_slot(slot, slot, retired)?
                })
            })
            .collect::<Result<_, ReadError>>()?;
        self.tell_unseen_causes(&families)?;
        Ok(MapsReading {
            families_folded,
            slots,
            families,
            values,
            values_folded,
            unread: hits_lost.iter().map(|lost| lost.unread).collect(),
            payloads_lost: hits_lost
                .iter()
                .map(|lost| PayloadsLost {
                    full: lost.payloads,
                    unread: lost.unread_payloads,
                    long: lost.long_payloads,
                })
                .collect(),
            calls_lost: losses.calls,
            events_lost: (0..self.slots)
                .map(|slot| self.events_lost.sum(slot))
                .collect::<Result<_, _>>()?,
            sizes_lost: losses.sizes,
        })
    }

    /// By operation, where stacks are copied: slow calls whose stacks were not.
    pub(super) fn stacks_lost(&self) -> Result<Vec<u64>, ReadError> {
        let slots = 0..self.stacks_lost.len();
        slots.map(|slot| self.stacks_lost.sum(slot)).collect()
    }

    /// What it has cost to copy stacks.
    pub(super) fn copying(&self) -> Result<Duration, ReadError> {
        Ok(Duration::from_nanos(self.copying.sum(0)?))
    }

    /// Those of which nobody sees the end. Where calls of a group are not recorded any more, all that is in flight of it is cut.
    fn cut(&mut self, slot: u32, operation: u32, totals: &[Totals]) -> [u64; Group::COUNT] {
        let gate = self.control.gate(operation);
        let index = slot as usize;
        if self.cut.len() <= index {
            self.cut.resize(index + 1, [0; Group::COUNT]);
        }
        let cut = &mut self.cut[index];
        for group in Group::ALL {
            if !gate.records(group as u32) {
                cut[group as usize] = in_flight(totals, group);
            }
        }
        *cut
    }

    /// Tells the programs how many calls that are causes ended unseen: for them, those would be under way for ever.
    fn tell_unseen_causes(&mut self, families: &[FamilyReading]) -> Result<(), ReadError> {
        let operations = (0..self.slots).chain(families.iter().map(|family| family.slot));
        let mut unseen = [0; MAX_CAUSE as usize + 1];
        for (operation, cut) in operations.zip(&self.cut) {
            let cause = self.causes.get(operation as usize).copied().unwrap_or(0);
            if let Some(unseen) = unseen.get_mut(usize::from(cause)) {
                *unseen += cut[Group::First as usize] + cut[Group::Second as usize];
            }
        }
        for (cause, unseen) in (0..).zip(unseen).skip(1) {
            self.causes_unseen.set(cause, unseen)?;
        }
        Ok(())
    }

    fn read_slot(
        &mut self,
        slot: u32,
        operation: u32,
        retired: u32,
    ) -> Result<SlotReading, ReadError> {
        let totals = self.totals.get(slot)?;
        let cut = self.cut(slot, operation, &totals).iter().sum();
        let mut reading = SlotReading {
            untimed: cut,
            cut,
            ..SlotReading::default()
        };
        for cpu in &totals {
            reading.sum_ns = reading.sum_ns.saturating_add(cpu.sum_ns);
            reading.bytes = reading.bytes.saturating_add(cpu.bytes);
            reading.slow = reading.slow.saturating_add(cpu.slow);
            reading.untimed = reading.untimed.saturating_add(cpu.untimed);
            let (files, more) = (&mut reading.files, cpu.file_io);
            files.reads = files.reads.saturating_add(more.reads);
            files.read_bytes = files.read_bytes.saturating_add(more.read_bytes);
            files.written_bytes = files.written_bytes.saturating_add(more.written_bytes);
            files.readers = files.readers.saturating_add(more.readers);
        }
        let told = self.longest.get(slot as usize).copied().unwrap_or_default();
        reading.max_ns = longest(&totals, retired, told);
        if self.longest.len() <= slot as usize {
            self.longest.resize(slot as usize + 1, 0);
        }
        self.longest[slot as usize] = reading.max_ns;
        // What is counted and not timed may have none.
        if slot < self.histograms.len() {
            for cpu in self.histograms.get(slot)? {
                for (bucket, count) in (0..).zip(cpu.buckets) {
                    reading.histogram.add(bucket, count);
                }
            }
        }
        Ok(reading)
    }

    /// What was counted by value.
    fn values(&mut self, retired: u32) -> Result<Vec<ValueReading>, ReadError> {
        let seen = self.hits.as_ref().map(Hits::values).transpose()?;
        let seen = seen.unwrap_or_default().into_iter();
        let read = seen.map(|(place, value)| {
            Ok(ValueReading {
                place,
                value,
                reading: self.read_slot(place, value.slot, retired)?,
            })
        });
        read.collect()
    }

    /// The column families that were given a slot of their own, by index.
    fn seen_families(&self) -> Result<Vec<(u32, Family)>, ReadError> {
        let count = self.family_count.get(0)?;
        let room = self.families.len();
        (0..room.min(u32::try_from(count).unwrap_or(u32::MAX)))
            .map(|index| Ok((index, self.families.get(index)?)))
            .collect()
    }

    /// By operation: how many column families were given no slot of their own. Those are found in the list of all handles, which
    /// is read only when more of them came by than there is room for, and then again when there are more.
    fn folded_families(&mut self) -> Result<Vec<u64>, ReadError> {
        let count = self.family_count.get(0)?;
        if count > u64::from(self.families.len()) && count != self.folded.0 {
            let mut folded = vec![0; self.slots as usize];
            // Handles are never removed, and there is room for a thousand: each is met once.
            for (key, known) in self.family_slots.entries()? {
                if known.slot < self.slots
                    && let Some(folded) = folded.get_mut(key.slot as usize)
                {
                    *folded += 1;
                }
            }
            self.folded = (count, folded);
        }
        Ok(self.folded.1.clone())
    }

    /// What value of an argument a slot beyond those of operations and column families is of.
    pub(super) fn value(&self, slot: u32) -> Option<Value> {
        self.hits.as_ref()?.value(slot)
    }

    /// What family a slot beyond the operations' is of.
    pub(super) fn family(&self, slot: u32) -> Option<FamilyReading> {
        let index = slot.checked_sub(self.slots)?;
        let family = self.families.get(index).ok()?;
        Some(FamilyReading::of(&family))
    }

    /// Forgets calls of pairs whose ends will not be seen: they are cut, and in no one's way.
    pub(super) fn forget_unseen(&mut self) -> Result<(), ReadError> {
        let control = &self.control;
        let is_unseen = |(key, start): &(CallKey, CallStart)| {
            // Those of sessions, of which there is no more than a size to remember, are in no generation.
            let gate = control.gate(key.operation());
            key.is_sliced() || (start.mark != Mark::default() && !start.mark.passes(gate))
        };
        // Others begin and end meanwhile.
        let calls = self.more_calls.entries()?.into_iter();
        for (key, _) in calls.filter(is_unseen) {
            self.more_calls.remove(key)?;
        }
        match &mut self.hits {
            Some(hits) => hits.forget(is_unseen),
            None => Ok(()),
        }
    }

    pub(super) fn payloads(&mut self) -> Vec<SeenPayload> {
        self.hits.as_mut().map(Hits::payloads).unwrap_or_default()
    }

    pub(super) fn slow_calls(&mut self) -> Vec<SeenCall> {
        let calls = std::iter::from_fn(|| self.slow_calls.next());
        let calls = calls.map(|(call, more)| SeenCall {
            call,
            // What is told of a call says by its length what it is.
            arguments: SlowArguments::read_from_bytes(&more).ok(),
            parent: Traceparent::read_from_bytes(&more)
                .ok()
                .map(|parent| parent.text),
        });
        calls.collect()
    }
}

/// The longest call of an epoch. A program that was preempted as it was about to tell one may have told it only after that epoch was
/// read: what is in the other half and is longer than what was `told` of the one before counts now.
fn longest(totals: &[Totals], epoch: u32, told: u64) -> u64 {
    let of = |epoch: u32| {
        let cpus = totals.iter();
        let maxima = cpus.filter_map(|cpu| maximum_of(epoch, cpu.maxima[epoch as usize & 1]));
        maxima.max().unwrap_or_default()
    };
    let late = Some(of(epoch.wrapping_sub(1))).filter(|late| *late > told);
    of(epoch).max(late.unwrap_or_default())
}

/// How many calls of a group have been taken up and have not ended: they may end on another CPU than they began on.
fn in_flight(totals: &[Totals], group: Group) -> u64 {
    let cpus = totals.iter().map(|cpu| cpu.in_flight[group as usize]);
    let sum = cpus.fold(0, u64::wrapping_add);
    // While calls come and go, one may be seen to end whose beginning was not.
    if sum > i64::MAX as u64 { 0 } else { sum }
}

impl Counts for Losses {}

#[cfg(test)]
mod tests {
    use ckb_probe_common::maximum;

    use super::*;

    #[test]
    fn a_maximum_that_was_told_late_is_in_the_next_reading_and_no_other_is_there_twice() {
        let totals = |even: u64, odd: u64| Totals {
            maxima: [even, odd],
            ..Totals::default()
        };
        let cpus = [
            totals(maximum(4, 70), maximum(3, 500)),
            totals(0, maximum(3, 90)),
        ];
        assert_eq!(
            longest(&cpus, 4, 90),
            500,
            "told by one CPU after the third was read"
        );
        assert_eq!(longest(&cpus, 4, 500), 70);
        assert_eq!(longest(&cpus, 3, 0), 500);
        assert_eq!(longest(&cpus, 6, 0), 0, "of long ago");
    }
}
