//! A process being measured, within its budget, for all that ask anything of it.
//!
//! What is attached when is carried out here, and what was recorded when is noted as [`Entry`]s for the books of everybody who
//! asks. What to attach is for the [`governor`] to decide.

mod departures;
mod disturbance;
mod meter;
mod reaper;

use std::time::Duration;

use ckb_probe_crds::{Breach, Overhead};
use departures::{Departures, Leaving};
use disturbance::{Disturbance, Use};
use meter::Meter;
pub use meter::Total;
pub use reaper::{Reaper, Receipt};
use tracing::debug;

use crate::{
    books::{Entry, Fact},
    governor::{self, Attachment, Budget, Cycle, Spent, Switch, Turn},
    kernel::{AttachError, Links, ReadError},
    mechanism::{Event, LoadId, Loads, Mechanism, Reading},
    observe::{self, CpuTime, ProcessId},
};

/// Between two looks at how busy the operations are.
const LOOK: Duration = Duration::from_millis(50);

/// To the first look: until then everything is attached, whatever it costs.
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// What attaching a slice is taken to cost before one was attached.
const EDGE: Duration = Duration::from_millis(10);

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
    mechanisms: Vec<Running>,
    process: ProcessId,
    costs: Vec<Option<Duration>>,
    meter: Meter,
    sampler: Option<Sampler>,
    attached: Attached,
    departures: Departures,
    reaper: Reaper,
    entries: Vec<Entry>,
}

/// A mechanism, and which loads are its.
pub struct Running {
    /// It.
    pub mechanism: Box<dyn Mechanism>,
    /// Numbered from this one on, as many as it has costs.
    pub first: LoadId,
}

impl Running {
    fn loads(&self) -> Loads {
        let loads = 0..self.mechanism.costs().len();
        loads.map(|index| self.first.offset(index)).collect()
    }
}

/// What is attached now.
struct Attached {
    always: Loads,
    slice: Option<Slice>,
    /// How many slices there were.
    slices: u64,
}

/// A slice that is open.
struct Slice {
    loads: Loads,
    opened: Duration,
    /// How long it took to attach.
    attaching: Duration,
    since: Moment,
    /// What had been counted by then.
    hits: Vec<u64>,
    /// How the target fared between the last slice and this one.
    apart: Use,
}

/// A time, and what the target had used by then.
#[derive(Clone, Copy)]
struct Moment {
    time: Duration,
    cpu: CpuTime,
}

/// Keeps the budget by sampling.
struct Sampler {
    ratio: f64,
    edge: Duration,
    plan: Option<governor::Plan>,
    cycle: Cycle,
    disturbance: Disturbance,
    /// Since when the target has been left alone, as far as it is.
    last: Option<Moment>,
}

impl Measurement {
    /// Attaches all that the mechanisms have to attach. What the kernel refuses is left out, and handed back with its error.
    pub fn begin(
        process: ProcessId,
        mechanisms: Vec<Running>,
        overhead: &Overhead,
        reaper: &Reaper,
        now: impl Fn() -> Duration,
    ) -> Begun {
        let started = now();
        let mut refused = Vec::new();
        let mut costs: Vec<Option<Duration>> = Vec::new();
        let mut running = Vec::new();
        for mut one in mechanisms {
            let loads = one.loads();
            costs.resize(one.first.index(), None);
            match one.mechanism.attach(&loads) {
                Ok(_) => {
                    costs.extend_from_slice(one.mechanism.costs());
                    running.push(one);
                }
                Err(error) => {
                    costs.resize(one.first.index() + loads.len(), None);
                    refused.push((loads, error));
                }
            }
        }
        let attached = now();
        if running.is_empty() {
            return Begun {
                measurement: None,
                refused,
                attached,
            };
        }
        let edge = attached - started;
        let known: Vec<Duration> = costs.iter().map(|cost| cost.unwrap_or_default()).collect();
        let one_by_one = running
            .iter()
            .any(|one| one.mechanism.detaches_one_by_one());
        let measurement = Self {
            process,
            meter: Meter::new(
                &known,
                observe::cpu_time(process).unwrap_or_default(),
                attached,
            ),
            sampler: (overhead.on_breach == Breach::Sample).then(|| Sampler {
                ratio: overhead.max_percent / 100.0,
                edge: edge.max(EDGE),
                plan: None,
                cycle: Cycle::looking(attached),
                disturbance: Disturbance::default(),
                last: None,
            }),
            attached: Attached {
                always: costs
                    .iter()
                    .enumerate()
                    .filter_map(|(index, cost)| cost.map(|_| LoadId::default().offset(index)))
                    .collect(),
                slice: None,
                slices: 0,
            },
            departures: Departures::new(one_by_one),
            mechanisms: running,
            costs,
            reaper: reaper.clone(),
            entries: Vec::new(),
        };
        Begun {
            measurement: Some(measurement),
            refused,
            attached,
        }
    }

    /// Counts and tells nothing from now on: what is read and taken then agrees.
    pub fn stop(&mut self) -> Result<(), ReadError> {
        let mut mechanisms = self.mechanisms.iter_mut();
        mechanisms.try_for_each(|running| running.mechanism.stop())
    }

    /// Gives back what only one measurement of a process can have, before another is begun. What is left goes with it.
    pub fn end(&mut self) {
        for running in &mut self.mechanisms {
            self.reaper.take(running.mechanism.end());
        }
    }

    /// Takes what was noted since the last time.
    pub fn entries(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }

    /// When [`Self::step`] is due again; None when it never is.
    pub fn next_step(&self) -> Option<Duration> {
        let sampler = self.sampler.as_ref()?;
        let look = self.next_look();
        let switch = sampler
            .plan
            .as_ref()
            .and_then(|plan| sampler.cycle.next(plan));
        Some(switch.map_or(look, |switch| switch.min(look)))
    }

    /// Keeps within the budget: looks at what probing costs now and then, and begins and ends slices.
    pub fn step(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        if self.sampler.is_none() {
            return Ok(());
        }
        self.settle(now)?;
        if now() >= self.next_look() {
            self.review(now)?;
        }
        let switch = self.sampler.as_mut().and_then(|sampler| {
            let plan = sampler.plan.as_ref()?;
            sampler.cycle.step(plan, now(), fastrand::f64())
        });
        match switch {
            Some(Switch::Attach) => self.open_slice(now),
            Some(Switch::Detach) => {
                self.close_slice(now)?;
                if !self.departures.has_slice() {
                    // It was closed before, as the plan changed, and is gone.
                    self.end_cell(now, now())?;
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Books what it cost that probes went, once they are gone.
    fn settle(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        let mut ended = None;
        for gone in self.departures.gone() {
            self.meter.add_edge(&gone.loads, gone.lasted / 2);
            ended = gone.slice.or(ended);
        }
        if let Some(slice) = ended {
            if let Some(sampler) = &mut self.sampler {
                sampler.edge = (sampler.edge * 7 + slice.edge) / 8;
            }
            self.end_cell(now, slice.gone)?;
        }
        Ok(())
    }

    /// The slice that the cycle is about is gone since then: what it saw decides how long it takes to pay for it.
    fn end_cell(
        &mut self,
        now: &impl Fn() -> Duration,
        gone: Duration,
    ) -> Result<(), MeasurementError> {
        self.review(now)?;
        if let Some(Sampler {
            plan: Some(plan),
            cycle,
            ..
        }) = &mut self.sampler
        {
            cycle.closed(plan, gone);
        }
        Ok(())
    }

    /// Takes in what the kernel counted up to now.
    pub fn read(&mut self, now: Duration) -> Result<(), ReadError> {
        let mut reading = Reading::default();
        for running in &mut self.mechanisms {
            reading.extend(running.mechanism.read()?);
        }
        self.note(now, Fact::Read(reading));
        Ok(())
    }

    /// What probing has cost since this began, and what the target used itself.
    pub fn total(&mut self, now: Duration) -> Total {
        if self.sampler.is_none() {
            // Nobody else looks. Unreadable: the process is gone, or the next window will say.
            let _ = self.look(now);
        }
        self.meter.total()
    }

    /// Takes the events that wait.
    pub fn events(&mut self) -> Vec<Event> {
        let mechanisms = self.mechanisms.iter_mut();
        mechanisms
            .flat_map(|running| running.mechanism.events())
            .collect()
    }

    /// Whether the load is attached in slices, or not at all.
    pub fn is_sampled(&self, load: LoadId) -> bool {
        !self.attached.always.contains(&load)
    }

    fn note(&mut self, at: Duration, fact: Fact) {
        self.entries.push(Entry { at, fact });
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        let mut hits = vec![0; self.costs.len()];
        for running in &self.mechanisms {
            let first = running.first.index();
            for (to, from) in hits[first..].iter_mut().zip(running.mechanism.hits()?) {
                *to = from;
            }
        }
        Ok(hits)
    }

    fn attach(&mut self, always: &Loads) -> Result<Vec<Links>, AttachError> {
        let mut before = Vec::new();
        for running in &mut self.mechanisms {
            let own = running.loads();
            let changes = always
                .symmetric_difference(&self.attached.always)
                .any(|load| own.contains(load));
            if changes {
                before.extend(running.mechanism.attach(always)?);
            }
        }
        Ok(before)
    }

    fn next_look(&self) -> Duration {
        let planned = self
            .sampler
            .as_ref()
            .is_some_and(|sampler| sampler.plan.is_some());
        self.meter.looked() + if planned { LOOK } else { FIRST_LOOK }
    }

    fn look(&mut self, now: Duration) -> Result<Spent, MeasurementError> {
        if let Some(slice) = &mut self.attached.slice {
            let open = slice.book(now);
            self.meter.add_open(&slice.loads, open);
        }
        let hits = self.hits()?;
        let fixed: Result<Duration, ReadError> = self
            .mechanisms
            .iter()
            .map(|running| running.mechanism.fixed_cost())
            .sum();
        self.meter.set_fixed(fixed?);
        let cpu = self.cpu_time();
        Ok(self.meter.look(&self.attached.always, hits, cpu, now))
    }

    /// Looks at what probing costs, and attaches what the budget allows.
    fn review(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        let spent = self.look(now())?;
        let Some(sampler) = &mut self.sampler else {
            return Ok(());
        };
        let mut loads = self.meter.loads();
        for (load, cost) in loads.iter_mut().zip(&self.costs) {
            // What is not there costs nothing.
            if cost.is_none() {
                load.hits_per_second = Some(0.0);
            }
        }
        if sampler.plan.is_none() && loads.iter().any(|load| load.hits_per_second.is_none()) {
            // The first look, at all of them, is not over.
            return Ok(());
        }
        let budget = Budget {
            ratio: sampler.ratio,
            edge: sampler.edge,
        };
        let plan = governor::plan(
            &loads,
            self.meter.usage(),
            budget,
            spent,
            sampler.plan.as_ref(),
        );
        let always = planned(&plan, &self.costs, |attachment, _| {
            attachment == Attachment::Always
        });
        let first = sampler.plan.is_none();
        let plan = sampler.plan.insert(plan);
        if first {
            sampler.cycle.closed(plan, now());
        }
        if always != self.attached.always {
            self.change(always, now)?;
        }
        Ok(())
    }

    /// Attaches `always` for good, and leaves the others to the slices to come.
    fn change(
        &mut self,
        always: Loads,
        now: &impl Fn() -> Duration,
    ) -> Result<(), MeasurementError> {
        debug!(?always, pid = self.process.pid, "the plan changes");
        // What comes to be always attached would count twice while a slice is open.
        self.close_slice(now)?;
        let begun = now();
        let before = self.attach(&always)?;
        let since = self.moment(now);
        let changed = since.time;
        self.departures.add(Leaving {
            loads: self.attached.always.clone(),
            since: changed,
            receipt: self.reaper.take(before),
            attaching: changed - begun,
            of_slice: false,
        });
        if let Some(sampler) = &mut self.sampler {
            sampler.last = Some(since);
        }
        self.read(changed)?;
        let paused = self.attached.always.difference(&always);
        let paused = Fact::Paused {
            loads: paused.copied().collect(),
            part: 1.0,
        };
        self.note(changed, paused);
        let resumed = always.difference(&self.attached.always);
        let resumed = Fact::Resumed(resumed.copied().collect());
        self.note(changed, resumed);
        self.attached.always = always;
        Ok(())
    }

    fn open_slice(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        let Some(plan) = self.sampler.as_ref().and_then(|one| one.plan.as_ref()) else {
            return Ok(());
        };
        let number = self.attached.slices;
        let loads = planned(plan, &self.costs, |attachment, turn| {
            attachment == Attachment::Sliced && turn.takes(number)
        });
        self.attached.slices += 1;
        let before = self.moment(now);
        for running in &mut self.mechanisms {
            if !running.loads().is_disjoint(&loads) {
                running.mechanism.open_slice(&loads)?;
            }
        }
        let since = self.moment(now);
        let opened = since.time;
        self.note(opened, Fact::Resumed(loads.clone()));
        let attaching = opened - before.time;
        let last = self
            .sampler
            .as_mut()
            .and_then(|sampler| sampler.last.take());
        // Sites come and go one after another: that costs for half of the time that it takes.
        self.meter.add_edge(&loads, attaching / 2);
        self.attached.slice = Some(Slice {
            loads,
            opened,
            attaching,
            since,
            hits: self.hits()?,
            apart: last.map_or(Use::default(), |last| before.since(&last)),
        });
        if let Some(sampler) = &mut self.sampler {
            sampler.cycle.opened(opened);
        }
        Ok(())
    }

    fn close_slice(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        let Some(mut slice) = self.attached.slice.take() else {
            return Ok(());
        };
        let mut links = Vec::new();
        for running in &mut self.mechanisms {
            if !running.loads().is_disjoint(&slice.loads) {
                links.extend(running.mechanism.close_slice()?);
            }
        }
        let end = self.moment(now);
        let closed = end.time;
        self.departures.add(Leaving {
            loads: slice.loads.clone(),
            since: closed,
            receipt: self.reaper.take(links),
            attaching: slice.attaching,
            of_slice: true,
        });
        let open = slice.book(closed);
        self.meter.add_open(&slice.loads, open);
        let cost = self.cost(&slice.loads, &slice.hits, &self.hits()?);
        let mut part = 1.0;
        if let Some(sampler) = &mut self.sampler {
            let watched = end.since(&slice.since);
            part = sampler.disturbance.observe(slice.apart, watched, cost);
            sampler.last = Some(end);
        }
        self.read(closed)?;
        let loads = slice.loads;
        self.note(closed, Fact::Paused { loads, part });
        Ok(())
    }

    fn moment(&self, now: &impl Fn() -> Duration) -> Moment {
        Moment {
            time: now(),
            cpu: self.cpu_time(),
        }
    }

    /// Where it cannot be read the process is gone, and will be seen to be.
    fn cpu_time(&self) -> CpuTime {
        observe::cpu_time(self.process).unwrap_or(self.meter.cpu())
    }

    /// What these loads cost between two readings: as in a cold cache, which is what a slice begins with.
    fn cost(&self, loads: &Loads, before: &[u64], after: &[u64]) -> Duration {
        let cost = |load: &LoadId| {
            let load = load.index();
            let hits = after.get(load)?.saturating_sub(*before.get(load)?);
            Some(self.costs.get(load)?.as_ref()?.mul_f64(hits as f64))
        };
        loads.iter().filter_map(cost).sum()
    }
}

/// The loads that are planned to be attached in that way, of those that are there.
fn planned(
    plan: &governor::Plan,
    costs: &[Option<Duration>],
    how: impl Fn(Attachment, Turn) -> bool,
) -> Loads {
    let loads = plan.attachments.iter().zip(&plan.turns).zip(costs);
    loads
        .enumerate()
        .filter(|(_, ((attachment, turn), cost))| cost.is_some() && how(**attachment, **turn))
        .map(|(index, _)| LoadId::default().offset(index))
        .collect()
}

/// A measurement that began.
pub struct Begun {
    /// It; None where nothing could be attached.
    pub measurement: Option<Measurement>,
    /// The loads that could not, and why.
    pub refused: Vec<(Loads, AttachError)>,
    /// When that was done.
    pub attached: Duration,
}

impl Slice {
    /// How long it was open since this was asked last.
    fn book(&mut self, now: Duration) -> Duration {
        let open = now.saturating_sub(self.opened);
        self.opened = now;
        open
    }
}

impl Moment {
    /// How the target fared since an earlier one.
    fn since(&self, earlier: &Self) -> Use {
        Use {
            time: self.time.saturating_sub(earlier.time),
            cpu: self.cpu.saturating_sub(earlier.cpu),
        }
    }
}

#[cfg(test)]
mod tests;
