//! Reading what the programs counted, and telling them what to count.

use std::{thread, time::Duration};

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, RingBuf};
use ckb_probe_common::{
    CallKey, CallStart, Cause, Control, Family, FamilyKey, Losses, MAX_ARGUMENTS, SlowCall,
    SlowCallWithArguments, TEXT_BYTES, Totals, maximum_of,
};
use ckb_probe_figures::Histogram;

use super::{AttachError, ReadError, memory::Reservation, object::Object, pod::pod, walk::Walk};
use ckb_probe_symbols::text;

/// How long a program that saw the old epoch may still write to its maximum. A program runs for a
/// microsecond; this leaves room for one that was preempted.
pub(super) const GRACE: Duration = Duration::from_millis(2);

pod! {
    TotalsValue(Totals);
    HistogramValue(ckb_probe_common::Histogram);
    LossesValue(Losses);
    ControlValue(Control);
    FamilyValue(Family);
    FamilyKeyValue(FamilyKey);
    CauseValue(Cause);
    CallKeyValue(CallKey);
    CallStartValue(CallStart);
}

/// What was counted, over all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapsReading {
    /// By slot; without the calls of `families`.
    pub slots: Vec<SlotReading>,
    /// By column family, in the order in which they were first seen.
    pub families: Vec<FamilyReading>,
    /// By operation: column families that count with the operation's others, since there was no room for more.
    pub families_folded: Vec<u64>,
    /// Calls not recorded, since too many were in flight.
    pub calls_lost: u64,
    /// By operation: slow-call events that the ring buffer could not take.
    pub events_lost: Vec<u64>,
    /// Calls counted without their payload size.
    pub sizes_lost: u64,
}

/// One slot over all CPUs, since the attach; `max_ns` since the reading before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotReading {
    /// Nanoseconds spent in the calls.
    pub sum_ns: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Calls at or above the slow threshold.
    pub slow: u64,
    /// Calls counted and not timed: in no bucket.
    pub untimed: u64,
    /// Longest call since the reading before.
    pub max_ns: u64,
    /// Timed calls by duration.
    pub histogram: Histogram,
}

/// One operation on one column family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilyReading {
    /// The operation's slot.
    pub slot: u32,
    /// RocksDB's number for it.
    pub id: u32,
    /// Its name in RocksDB; empty where it could not be read.
    pub name: String,
    /// The calls on the column family.
    pub reading: SlotReading,
}

impl FamilyReading {
    fn of(family: &Family) -> Self {
        Self {
            slot: family.slot,
            id: family.id,
            name: text::of_padded(&family.name),
            reading: SlotReading::default(),
        }
    }
}

/// A slow call, as the kernel told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenCall {
    /// The call, as the kernel reported it.
    pub call: SlowCall,
    /// Its arguments, and what those point to that are texts; None where they were not asked for or not kept.
    pub arguments: Option<([u64; MAX_ARGUMENTS], [[u8; TEXT_BYTES]; MAX_ARGUMENTS])>,
}

pub(super) struct Maps {
    control_map: Array<MapData, ControlValue>,
    totals: PerCpuArray<MapData, TotalsValue>,
    histograms: PerCpuArray<MapData, HistogramValue>,
    losses: PerCpuArray<MapData, LossesValue>,
    events_lost: PerCpuArray<MapData, u64>,
    families: Array<MapData, FamilyValue>,
    family_count: Array<MapData, u64>,
    family_slots: HashMap<MapData, FamilyKeyValue, u32>,
    /// How many had been asked for when it was last looked which of them found no room, and which those were.
    folded: (u64, Vec<u64>),
    causes: Array<MapData, CauseValue>,
    calls_in_flight: Walk<CallKeyValue, CallStartValue>,
    more_calls: HashMap<MapData, CallKeyValue, CallStartValue>,
    slow_calls: RingBuf<MapData>,
    stacks_lost: PerCpuArray<MapData, u64>,
    copying: PerCpuArray<MapData, u64>,
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
    ) -> Result<Self, AttachError> {
        let mut maps = Self {
            control_map: object.take_map("CONTROL")?,
            totals: object.take_map("TOTALS")?,
            histograms: object.take_map("HISTOGRAMS")?,
            losses: object.take_map("LOSSES")?,
            events_lost: object.take_map("EVENTS_LOST")?,
            families: object.take_map("FAMILIES")?,
            family_count: object.take_map("FAMILY_COUNT")?,
            family_slots: object.take_map("FAMILY_SLOTS")?,
            folded: (0, Vec::new()),
            causes: object.take_map("CAUSES")?,
            calls_in_flight: object.walk("MORE_CALLS")?,
            more_calls: object.take_map("MORE_CALLS")?,
            slow_calls: object.take_map("SLOW_CALLS")?,
            stacks_lost: object.take_map("STACKS_LOST")?,
            copying: object.take_map("COPYING")?,
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
        self.control_map
            .set(0, ControlValue(self.control), 0)
            .map_err(error("CONTROL"))
    }

    /// About how many calls each operation has had, with its column families, and how many other processes have.
    pub(super) fn met(&self) -> Result<Vec<(u64, u64)>, ReadError> {
        let met = |slot| {
            let cpus = self.totals.get(&slot, 0).map_err(error("TOTALS"))?;
            let cpus = cpus.iter();
            Ok(cpus.fold((0, 0), |(hits, others), TotalsValue(cpu)| {
                (hits + cpu.hits, others + cpu.others)
            }))
        };
        (0..self.slots).map(met).collect()
    }

    pub(super) fn read(&mut self) -> Result<MapsReading, ReadError> {
        let retired = self.control.epoch;
        self.order(|control| control.epoch = retired.wrapping_add(1))?;
        thread::sleep(GRACE);
        let losses = self.losses.get(&0, 0).map_err(error("LOSSES"))?;
        let sum = |which: fn(&Losses) -> u64| {
            losses.iter().map(|LossesValue(losses)| which(losses)).sum()
        };
        let families = self
            .seen_families()?
            .into_iter()
            .map(|(index, family)| {
                Ok(FamilyReading {
                    reading: self.read_slot(self.slots + index, retired)?,
                    ..FamilyReading::of(&family)
                })
            })
            .collect::<Result<_, ReadError>>()?;
        let families_folded = self.folded_families()?;
        Ok(MapsReading {
            families_folded,
            slots: (0..self.slots)
                .map(|slot| self.read_slot(slot, retired))
                .collect::<Result<_, _>>()?,
            families,
            calls_lost: sum(|losses| losses.calls),
            events_lost: (0..self.slots)
                .map(|slot| self.events_lost(slot))
                .collect::<Result<_, _>>()?,
            sizes_lost: sum(|losses| losses.sizes),
        })
    }

    fn events_lost(&self, slot: u32) -> Result<u64, ReadError> {
        let cpus = self.events_lost.get(&slot, 0);
        Ok(cpus.map_err(error("EVENTS_LOST"))?.iter().sum())
    }

    /// By operation, where stacks are copied: slow calls whose stacks were not.
    pub(super) fn stacks_lost(&self) -> Result<Vec<u64>, ReadError> {
        let of = |slot| {
            let cpus = self.stacks_lost.get(&slot, 0);
            Ok(cpus.map_err(error("STACKS_LOST"))?.iter().sum())
        };
        (0..self.stacks_lost.len()).map(of).collect()
    }

    /// What it has cost to copy stacks.
    pub(super) fn copying(&self) -> Result<Duration, ReadError> {
        let cpus = self.copying.get(&0, 0).map_err(error("COPYING"))?;
        Ok(Duration::from_nanos(cpus.iter().sum()))
    }

    fn read_slot(&self, slot: u32, retired: u32) -> Result<SlotReading, ReadError> {
        let mut reading = SlotReading::default();
        for TotalsValue(cpu) in self.totals.get(&slot, 0).map_err(error("TOTALS"))?.iter() {
            reading.sum_ns = reading.sum_ns.saturating_add(cpu.sum_ns);
            reading.bytes = reading.bytes.saturating_add(cpu.bytes);
            reading.slow = reading.slow.saturating_add(cpu.slow);
            reading.untimed = reading.untimed.saturating_add(cpu.untimed);
            let maximum = maximum_of(retired, cpu.maxima[retired as usize & 1]);
            reading.max_ns = reading.max_ns.max(maximum.unwrap_or_default());
        }
        let cpus = self.histograms.get(&slot, 0);
        for HistogramValue(cpu) in cpus.map_err(error("HISTOGRAMS"))?.iter() {
            for (bucket, count) in (0..).zip(cpu.buckets) {
                reading.histogram.add(bucket, count);
            }
        }
        Ok(reading)
    }

    /// The column families that were given a slot of their own, by index.
    fn seen_families(&self) -> Result<Vec<(u32, Family)>, ReadError> {
        let count = self
            .family_count
            .get(&0, 0)
            .map_err(error("FAMILY_COUNT"))?;
        let room = self.families.len();
        (0..room.min(u32::try_from(count).unwrap_or(u32::MAX)))
            .map(|index| {
                let family = self.families.get(&index, 0).map_err(error("FAMILIES"))?;
                Ok((index, family.0))
            })
            .collect()
    }

    /// By operation: how many column families were given no slot of their own. Those are found in the list of all handles, which
    /// is read only when more of them came by than there is room for, and then again when there are more.
    fn folded_families(&mut self) -> Result<Vec<u64>, ReadError> {
        let count = self
            .family_count
            .get(&0, 0)
            .map_err(error("FAMILY_COUNT"))?;
        if count > u64::from(self.families.len()) && count != self.folded.0 {
            let mut folded = vec![0; self.slots as usize];
            // Handles are never removed, and there is room for a thousand: each is met once.
            for handle in self.family_slots.iter() {
                let (FamilyKeyValue(key), slot) = handle.map_err(error("FAMILY_SLOTS"))?;
                if slot < self.slots
                    && let Some(folded) = folded.get_mut(key.slot as usize)
                {
                    *folded += 1;
                }
            }
            self.folded = (count, folded);
        }
        Ok(self.folded.1.clone())
    }

    /// What family a slot beyond the operations' is of.
    pub(super) fn family(&self, slot: u32) -> Option<FamilyReading> {
        let index = slot.checked_sub(self.slots)?;
        let FamilyValue(family) = self.families.get(&index, 0).ok()?;
        Some(FamilyReading::of(&family))
    }

    /// Forgets what began under sliced attachments that are gone: those calls' ends were not seen.
    pub(super) fn forget_sliced(
        &mut self,
        causes: impl Iterator<Item = u8>,
    ) -> Result<(), ReadError> {
        for cause in causes {
            let none = CauseValue(Cause::default());
            self.causes
                .set(u32::from(cause), none, 0)
                .map_err(error("CAUSES"))?;
        }
        // Others begin and end meanwhile.
        let all = self
            .calls_in_flight
            .keys()
            .map_err(walk_error("MORE_CALLS"))?;
        let stale = all.into_iter();
        for key in stale.filter(|CallKeyValue(key)| key.owner >> 32 != 0) {
            // It was there a moment ago, and nobody else removes it.
            let _ = self.more_calls.remove(&key);
        }
        Ok(())
    }

    pub(super) fn slow_calls(&mut self) -> Vec<SeenCall> {
        let mut calls = Vec::new();
        while let Some(item) = self.slow_calls.next() {
            if item.len() >= size_of::<SlowCallWithArguments>() {
                // SAFETY: long enough, and integers only; the ring aligns to 8 bytes, which read_unaligned does not rely on.
                let seen = unsafe {
                    item.as_ptr()
                        .cast::<SlowCallWithArguments>()
                        .read_unaligned()
                };
                calls.push(SeenCall {
                    call: seen.call,
                    arguments: Some((seen.values, seen.texts)),
                });
            } else if item.len() >= size_of::<SlowCall>() {
                // SAFETY: as above.
                let call = unsafe { item.as_ptr().cast::<SlowCall>().read_unaligned() };
                calls.push(SeenCall {
                    call,
                    arguments: None,
                });
            }
        }
        calls
    }
}

pub(super) fn error(map: &'static str) -> impl Fn(MapError) -> ReadError {
    move |source| ReadError {
        map: map.to_string(),
        source: Box::new(source),
    }
}

/// The same of a walk through a map.
pub(super) fn walk_error(map: &'static str) -> impl Fn(std::io::Error) -> ReadError {
    move |source| ReadError::of(map, source)
}

/// What is not there need not be removed.
pub(super) fn absent(result: Result<(), MapError>, map: &'static str) -> Result<(), ReadError> {
    match result {
        Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error))
            if error.io_error.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(())
        }
        Err(other) => Err(error(map)(other)),
    }
}
