//! Reading what the programs counted.

use std::{thread, time::Duration};

use aya::{
    Ebpf, Pod,
    maps::{Array, MapData, MapError, PerCpuArray, PerCpuValues, RingBuf},
    util::nr_cpus,
};
use ckb_probe_common::{Losses, Slot, SlowCall, maximum_index};
use ckb_probe_crds::Histogram;

use super::{AttachError, ReadError};

/// How long a program that saw the old epoch may still write to its maximum. A program runs for a
/// microsecond; this leaves room for one that was preempted.
const GRACE: Duration = Duration::from_millis(2);

#[repr(transparent)]
#[derive(Clone, Copy)]
struct SlotValue(Slot);
// SAFETY: repr(C), integers only, any bit pattern is valid.
unsafe impl Pod for SlotValue {}

#[repr(transparent)]
#[derive(Clone, Copy)]
struct LossesValue(Losses);
// SAFETY: repr(C), integers only, any bit pattern is valid.
unsafe impl Pod for LossesValue {}

/// What was counted, over all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// By slot.
    pub slots: Vec<SlotReading>,
    /// Calls not recorded, since too many were in flight.
    pub calls_lost: u64,
    /// Slow-call events that the ring buffer could not take.
    pub events_lost: u64,
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
    /// Longest call since the reading before.
    pub max_ns: u64,
    /// Calls by duration; their number is the number of calls.
    pub histogram: Histogram,
}

pub(super) struct Maps {
    slots: PerCpuArray<MapData, SlotValue>,
    maxima: PerCpuArray<MapData, u64>,
    losses: PerCpuArray<MapData, LossesValue>,
    epoch: Array<MapData, u32>,
    slow_calls: RingBuf<MapData>,
    slot_count: u32,
    current_epoch: u32,
    cpus: usize,
}

impl Maps {
    pub(super) fn take(object: &mut Ebpf, slot_count: u32) -> Result<Self, AttachError> {
        let mut take = |name| object.take_map(name).ok_or(AttachError::Mismatch(name));
        let cpus = nr_cpus().map_err(|(_, source)| {
            AttachError::Map(ReadError {
                map: "SLOTS",
                source: Box::new(MapError::IoError(source)),
            })
        })?;
        Ok(Self {
            slots: take("SLOTS")?.try_into().map_err(error("SLOTS"))?,
            maxima: take("MAXIMA")?.try_into().map_err(error("MAXIMA"))?,
            losses: take("LOSSES")?.try_into().map_err(error("LOSSES"))?,
            epoch: take("EPOCH")?.try_into().map_err(error("EPOCH"))?,
            slow_calls: take("SLOW_CALLS")?
                .try_into()
                .map_err(error("SLOW_CALLS"))?,
            slot_count,
            current_epoch: 0,
            cpus,
        })
    }

    pub(super) fn read(&mut self) -> Result<Reading, ReadError> {
        let retired = self.current_epoch;
        self.current_epoch = retired.wrapping_add(1);
        self.epoch
            .set(0, self.current_epoch, 0)
            .map_err(error("EPOCH"))?;
        thread::sleep(GRACE);
        let losses = self.losses.get(&0, 0).map_err(error("LOSSES"))?;
        Ok(Reading {
            slots: (0..self.slot_count)
                .map(|slot| self.read_slot(slot, retired))
                .collect::<Result<_, _>>()?,
            calls_lost: losses.iter().map(|LossesValue(losses)| losses.calls).sum(),
            events_lost: losses.iter().map(|LossesValue(losses)| losses.events).sum(),
        })
    }

    fn read_slot(&mut self, slot: u32, retired: u32) -> Result<SlotReading, ReadError> {
        let maximum = maximum_index(slot, retired);
        let mut reading = SlotReading {
            max_ns: self.take_maximum(maximum)?,
            ..SlotReading::default()
        };
        for SlotValue(cpu) in self.slots.get(&slot, 0).map_err(error("SLOTS"))?.iter() {
            reading.sum_ns += cpu.sum_ns;
            reading.bytes += cpu.bytes;
            reading.slow += cpu.slow;
            for (bucket, count) in (0..).zip(cpu.buckets) {
                reading.histogram.add(bucket, count);
            }
        }
        Ok(reading)
    }

    fn take_maximum(&mut self, index: u32) -> Result<u64, ReadError> {
        let values = self.maxima.get(&index, 0).map_err(error("MAXIMA"))?;
        let maximum = values.iter().copied().max().unwrap_or_default();
        if maximum > 0 {
            let cleared = PerCpuValues::try_from(vec![0; self.cpus])
                .map_err(|source| error("MAXIMA")(MapError::IoError(source)))?;
            self.maxima
                .set(index, cleared, 0)
                .map_err(error("MAXIMA"))?;
        }
        Ok(maximum)
    }

    pub(super) fn slow_calls(&mut self) -> Vec<SlowCall> {
        let mut calls = Vec::new();
        while let Some(item) = self.slow_calls.next() {
            if item.len() >= size_of::<SlowCall>() {
                // SAFETY: long enough, and a SlowCall is integers only; the ring aligns to 8 bytes, which
                // read_unaligned does not rely on.
                calls.push(unsafe { item.as_ptr().cast::<SlowCall>().read_unaligned() });
            }
        }
        calls
    }
}

fn error(map: &'static str) -> impl Fn(MapError) -> ReadError {
    move |source| ReadError {
        map,
        source: Box::new(source),
    }
}
