//! What the programs counted.

use std::{collections::BTreeMap, thread};

use ckb_probe_common::{
    maximum_of,
    syscalls::{MAX_TARGETS, Met, NO_ROW, SlowSyscall, of_error_key},
};
use ckb_probe_figures::Histogram;

use super::{
    super::{ReadError, maps::GRACE, typed::Counts},
    SyscallTracer, Target, TargetId,
};

/// What a target did since it was added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetReading {
    /// By number; those that were not told apart come last.
    pub calls: Vec<SyscallReading>,
}

/// One system call over all CPUs, since the target was added; `max_ns` since the reading before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallReading {
    /// Its number; none: all that were not told apart.
    pub number: Option<u32>,
    /// Nanoseconds spent in the calls.
    pub sum_ns: u64,
    /// Calls at or above the slow threshold.
    pub slow: u64,
    /// Longest call since the reading before.
    pub max_ns: u64,
    /// Calls that ended, by duration.
    pub histogram: Histogram,
    /// Calls that began and had not ended as the gate was closed: how long they took nobody knows.
    pub cut: u64,
    /// How often the kernel broke a call off for a signal or a stop, and made it again: one call to the program, with all of the
    /// time that it took.
    pub restarts: u64,
    /// Calls that failed.
    pub failed: u64,
    /// How: calls by the error's number. Less than `failed` where numbers were lost.
    pub errors: Vec<(u32, u64)>,
}

impl SyscallTracer {
    /// What targets did, in the order in which they are asked for; nothing of one that was removed.
    pub fn read(&mut self, ids: &[TargetId]) -> Result<Vec<TargetReading>, ReadError> {
        for id in ids {
            self.order(*id, |order| order.epoch = order.epoch.wrapping_add(1))?;
        }
        thread::sleep(GRACE);
        for id in ids {
            self.look_at_cut(*id)?;
        }
        let mut errors = BTreeMap::<u32, Vec<(u32, u64)>>::new();
        for (key, count) in self.errors.entries()? {
            let (row, error) = of_error_key(key);
            errors.entry(row).or_default().push((error, count));
        }
        ids.iter()
            .map(|id| self.read_target(*id, &errors))
            .collect()
    }

    fn read_target(
        &self,
        id: TargetId,
        errors: &BTreeMap<u32, Vec<(u32, u64)>>,
    ) -> Result<TargetReading, ReadError> {
        let Some(Target { order, cut, .. }) = self.targets.get(&id) else {
            return Ok(TargetReading::default());
        };
        let own = self.rows_of(id)?;
        let own = own.iter().map(|(number, row)| (Some(*number), *row));
        let calls = own.chain([(None, order.other_row)]).map(|(number, row)| {
            let (mut reading, _) = self.read_row(row, order.epoch.wrapping_sub(1))?;
            reading.number = number;
            reading.cut = cut.get(&row).copied().unwrap_or_default();
            reading.errors = errors.get(&row).cloned().unwrap_or_default();
            reading.errors.sort_unstable();
            Ok(reading)
        });
        let mut calls: Vec<SyscallReading> = calls.collect::<Result<_, ReadError>>()?;
        calls.retain(|call| call.histogram.count() + call.cut + call.restarts > 0);
        Ok(TargetReading { calls })
    }

    /// Notes which calls had not ended as the last gate was closed. Since then nothing has begun or ended, but for what the programs
    /// did that had seen it open: a moment later there is none.
    pub(super) fn look_at_cut(&mut self, id: TargetId) -> Result<(), ReadError> {
        let Some(Target { order, is_cut, .. }) = self.targets.get(&id) else {
            return Ok(());
        };
        if !*is_cut || order.gate != 0 {
            return Ok(());
        }
        let others = order.other_row;
        let own = self.rows_of(id)?.into_iter().map(|(_, row)| row);
        let cut = own.chain([others]).map(|row| {
            let (reading, begun) = self.read_row(row, order.epoch)?;
            let over = reading.histogram.count() + reading.restarts;
            Ok((row, begun.saturating_sub(over)))
        });
        let cut = cut.collect::<Result<_, ReadError>>()?;
        if let Some(target) = self.targets.get_mut(&id) {
            target.cut = cut;
            target.is_cut = false;
        }
        Ok(())
    }

    /// The numbers that have a row of their own, with it.
    pub(super) fn rows_of(&self, id: TargetId) -> Result<Vec<(u32, u32)>, ReadError> {
        let Some(Target { order, .. }) = self.targets.get(&id) else {
            return Ok(Vec::new());
        };
        let table = self.tables.get(id.0)?;
        Ok((0..)
            .zip(table.rows)
            .filter(|(_, row)| *row != NO_ROW && *row != order.other_row)
            .collect())
    }

    /// What a row has, and how many of its calls began.
    fn read_row(&self, row: u32, retired: u32) -> Result<(SyscallReading, u64), ReadError> {
        let mut reading = SyscallReading::default();
        let mut begun = 0;
        for cpu in self.rows.get(row)? {
            begun += cpu.begun;
            reading.restarts += cpu.restarts;
            reading.sum_ns += cpu.sum_ns;
            reading.failed += cpu.errors;
            reading.slow += cpu.slow;
            let maximum = maximum_of(retired, cpu.maxima[retired as usize & 1]);
            reading.max_ns = reading.max_ns.max(maximum.unwrap_or_default());
            for (bucket, count) in (0..).zip(cpu.histogram.buckets) {
                reading.histogram.add(bucket, count);
            }
        }
        Ok((reading, begun))
    }

    /// How many calls of a target met the programs, and what of them was lost, since it was added: cheap to ask often.
    pub fn hits(&self, id: TargetId) -> Result<Met, ReadError> {
        self.met.sum(id.0)
    }

    /// How many calls of processes that are no targets met the programs, since the load.
    pub fn misses(&self) -> Result<u64, ReadError> {
        Ok(self.met.sum(MAX_TARGETS as u32)?.left)
    }

    /// Takes the slow calls that wait in the ring buffer; those of targets that were removed are dropped.
    pub fn slow_calls(&mut self) -> Vec<(TargetId, SlowSyscall)> {
        let calls = self.slow_calls.drain(|call| call.payer.into()).into_iter();
        let calls = calls.map(|(call, _)| (TargetId(call.target.into()), call));
        let is_of_target = |(id, call): &(TargetId, SlowSyscall)| {
            let target = self.targets.get(id);
            target.is_some_and(|target| target.process == call.process)
        };
        calls.filter(is_of_target).collect()
    }
}

impl Counts for Met {}
