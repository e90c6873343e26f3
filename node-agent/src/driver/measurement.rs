//! A process being measured, within its budget, for all that ask anything of it.
//!
//! What is attached when is carried out here, and what was recorded when is noted as [`TimedFact`]s for the books of everybody who
//! asks. What to attach is for the [governor](crate::governor) to decide.

mod departures;
mod meter;
mod minute;
mod reaper;
mod running;
mod sampling;
mod slice;

use std::{sync::mpsc::Receiver, time::Duration};

use departures::PendingDetaches;
use meter::Meter;
pub use meter::Total;
pub use minute::Minute;
pub use reaper::{DropHandle, Reaper};
pub use running::Running;
use running::{Mechanisms, Started};
pub use sampling::Allowance;
use sampling::{Ahead, Due, DutyCycle};
use slice::Slice;

use crate::{
    governor::Spent,
    kernel::{AttachError, ReadError},
    mechanism::{Event, GroupId, GroupIds, profile::Finished},
    observe::{self, CpuTime, ProcessId},
    state::{Fact, TimedFact},
};

/// Something failed that worked before.
#[derive(Debug, thiserror::Error)]
pub enum MeasurementError {
    /// The kernel refused.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The counts cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// One process with probes on it. Dropping it detaches them.
pub struct Measurement {
    // Declared first: links go before anything else.
    mechanisms: Mechanisms,
    process: ProcessId,
    costs: Vec<Option<Duration>>,
    meter: Meter,
    sampler: Option<DutyCycle>,
    /// What was decided and is still to be attached.
    due: Option<Due>,
    attached: Attached,
    departures: PendingDetaches,
    reaper: Reaper,
    entries: Vec<TimedFact>,
    read_at: Duration,
    /// Since when it counts nothing any more.
    stopped: Option<Duration>,
}

/// What is attached now.
struct Attached {
    always: GroupIds,
    slice: Option<Slice>,
    /// How many slices there were.
    slices: u64,
}

impl Measurement {
    /// Attaches all that the mechanisms have to attach, but for what is foreseen to cost too much for that. What the kernel refuses is left
    /// out, and handed back with its error. `sampled` is what sampling keeps its cost below; None: it is measured all of the time.
    pub fn begin(
        process: ProcessId,
        mechanisms: Vec<Running>,
        sampled: Option<Allowance>,
        reaper: &Reaper,
        now: impl Fn() -> Duration,
    ) -> Begun {
        let mut sampler = sampled.map(DutyCycle::new);
        let ahead = Ahead::of(&mechanisms, sampler.as_mut());
        let started = now();
        let Started {
            mechanisms,
            costs,
            refused,
        } = Mechanisms::start(mechanisms, &ahead.later);
        let attached = now();
        if mechanisms.is_empty() {
            return Begun {
                measurement: None,
                refused,
                attached,
            };
        }
        if let Some(sampler) = &mut sampler {
            sampler.took(attached - started);
        }
        let known: Vec<Duration> = costs.iter().map(|cost| cost.unwrap_or_default()).collect();
        let there = costs.iter().enumerate().filter(|(_, cost)| cost.is_some());
        let there: GroupIds = there
            .map(|(index, _)| GroupId::default().offset(index))
            .collect();
        let mut measurement = Self {
            process,
            meter: Meter::new(
                &known,
                observe::cpu_time(process).unwrap_or_default(),
                attached,
            )
            .foreseeing(&ahead.rates)
            .with(mechanisms.beside()),
            sampler,
            due: None,
            attached: Attached {
                always: &there - &ahead.later,
                slice: None,
                slices: 0,
            },
            departures: PendingDetaches::new(mechanisms.detach_one_by_one()),
            mechanisms,
            costs,
            reaper: reaper.clone(),
            entries: Vec::new(),
            read_at: attached,
            stopped: None,
        };
        measurement.leave_to_slices(&there & &ahead.later, attached);
        Begun {
            measurement: Some(measurement),
            refused,
            attached,
        }
    }

    /// Counts and tells nothing from now on: what is read and taken then agrees.
    pub fn stop(&mut self, now: Duration) -> Result<(), ReadError> {
        self.mechanisms.stop()?;
        self.stopped.get_or_insert(now);
        Ok(())
    }

    /// Since when it counts nothing any more, if it was stopped.
    pub fn stopped(&self) -> Option<Duration> {
        self.stopped
    }

    /// Gives back what only one measurement of a process can have, before another is begun. What is left goes with it.
    pub fn end(&mut self) {
        self.mechanisms.end(&self.reaper);
    }

    /// Takes what was noted since the last time.
    pub fn entries(&mut self) -> Vec<TimedFact> {
        std::mem::take(&mut self.entries)
    }

    /// Takes in what the kernel counted up to now.
    pub fn read(&mut self, now: Duration) -> Result<(), ReadError> {
        let reading = self.mechanisms.read()?;
        // However late that is read, nothing was counted since it was stopped.
        let now = self.stopped.unwrap_or(now);
        self.read_at = now;
        self.note(now, Fact::Read(reading));
        if self.stopped.is_some() {
            self.end_cells(now);
        }
        Ok(())
    }

    /// Takes in what was counted up to now for the last time: nothing is sliced any more, so what slices saw stands for as much of their
    /// cells as is over. Left to its end, a cell would be nobody's, and may be longer than all of those before it.
    pub fn finish(&mut self, now: Duration) -> Result<(), ReadError> {
        self.read(now)?;
        self.end_cells(now);
        (self.sampler, self.due) = (None, None);
        Ok(())
    }

    /// The cells under way are over. Where the process is gone, nobody knows what it used since that was looked at last.
    fn end_cells(&mut self, now: Duration) {
        if self.sampler.is_none() {
            return;
        }
        let is_there = observe::cpu_time(self.process).is_ok();
        let at = match is_there && self.look(now).is_ok() {
            true => now,
            false => self.meter.looked().min(now),
        };
        let time = self.meter.time();
        self.note_end_of_cells(at, time);
    }

    /// When it was read last.
    pub fn read_at(&self) -> Duration {
        self.read_at
    }

    /// What probing has cost since this began, and what the target used itself.
    pub fn total(&mut self, now: Duration) -> Total {
        if self.sampler.is_none() {
            // Nobody else looks. Unreadable: the process is gone, or the next window will say.
            let _ = self.look(now);
        }
        self.meter.total().clone()
    }

    /// Where what is finished comes from that is more than figures; asked for once.
    pub fn profiles(&mut self) -> Vec<(GroupId, Receiver<Finished>)> {
        self.mechanisms.profiles()
    }

    /// Takes the events that wait.
    pub fn events(&mut self) -> Vec<Event> {
        self.mechanisms.events()
    }

    /// Whether the group is attached in slices, or not at all.
    pub fn is_sampled(&self, group: GroupId) -> bool {
        !self.attached.always.contains(&group)
    }

    fn note(&mut self, at: Duration, fact: Fact) {
        let time = self.meter.time();
        self.entries.push(TimedFact { at, time, fact });
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        self.mechanisms.hits(self.costs.len())
    }

    fn look(&mut self, now: Duration) -> Result<Spent, MeasurementError> {
        if let Some(slice) = &mut self.attached.slice {
            let open = slice.book(now);
            self.meter.add_open(&slice.groups, open);
        }
        let hits = self.hits()?;
        for (group, fixed) in self.mechanisms.fixed_costs()? {
            self.meter.set_fixed(group, fixed);
        }
        let cpu = self.cpu_time();
        Ok(self.meter.look(&self.attached.always, hits, cpu, now))
    }

    /// Where it cannot be read the process is gone, and will be seen to be.
    fn cpu_time(&self) -> CpuTime {
        observe::cpu_time(self.process).unwrap_or(self.meter.cpu())
    }
}

/// A measurement that began.
pub struct Begun {
    /// It; None where nothing could be attached.
    pub measurement: Option<Measurement>,
    /// The groups that could not, and why.
    pub refused: Vec<(GroupIds, AttachError)>,
    /// When that was done.
    pub attached: Duration,
}

#[cfg(test)]
mod tests;
