//! A process being measured, within its budget: what the agent's engine and the command line have in common.
//!
//! The kernel side ([`Probes`]) and the books ([`Instance`]) are kept in step here: what is attached when, and what
//! was recorded when. What to attach is for the [`governor`] to decide.

mod departures;
mod meter;
mod reaper;

use std::time::Duration;

use ckb_probe_crds::Breach;
use departures::{Departures, Leaving};
use meter::Meter;
pub use reaper::{Reaper, Receipt};
use tracing::debug;

use crate::{
    attach::{Coverage, Loaded, TargetError, load},
    disturbance::{Disturbance, Use},
    governor::{self, Attachment, Budget, Cycle, Spent, Switch, Turn},
    instance::Instance,
    kinds::Slot,
    observe::{self, CpuTime, ProcessId, SymbolCache},
    probe::{AttachError, Means, Probes, ReadError, Slots, SlowCall},
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
    probes: Probes,
    process: ProcessId,
    costs: Vec<Option<Duration>>,
    meter: Meter,
    sampler: Option<Sampler>,
    attached: Attached,
    departures: Departures,
    reaper: Reaper,
}

/// What is attached now.
struct Attached {
    always: Slots,
    slice: Option<Slice>,
    /// How many slices there were.
    slices: u64,
}

/// A slice that is open.
struct Slice {
    slots: Slots,
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
    /// Attaches to whatever of the slots' functions the process has. `coverage` is filled as far as it is known, also
    /// when that fails.
    #[expect(clippy::too_many_arguments, reason = "each is another's business")]
    pub fn begin(
        means: Means,
        process: ProcessId,
        slots: &[Slot],
        budget: &ckb_probe_crds::Overhead,
        cache: &mut SymbolCache,
        coverage: &mut Coverage,
        reaper: &Reaper,
        now: impl Fn() -> Duration,
    ) -> Result<(Self, Duration), TargetError> {
        let Loaded { mut probes, costs } = load(means, process, slots, cache, coverage)?;
        let always: Slots = (0..=u8::MAX)
            .zip(&costs)
            .filter_map(|(slot, cost)| cost.map(|_| slot))
            .collect();
        let started = now();
        probes.attach(&always)?;
        let attached = now();
        let edge = attached - started;
        let known: Vec<Duration> = costs.iter().map(|cost| cost.unwrap_or_default()).collect();
        let measurement = Self {
            probes,
            process,
            meter: Meter::new(
                &known,
                observe::cpu_time(process).unwrap_or_default(),
                attached,
            ),
            sampler: (budget.on_breach == Breach::Sample).then(|| Sampler {
                ratio: budget.max_percent / 100.0,
                edge: edge.max(EDGE),
                plan: None,
                cycle: Cycle::looking(attached),
                disturbance: Disturbance::default(),
                last: None,
            }),
            attached: Attached {
                always,
                slice: None,
                slices: 0,
            },
            departures: Departures::new(means.tier.detaches_one_by_one()),
            costs,
            reaper: reaper.clone(),
        };
        Ok((measurement, attached))
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
    pub fn step(
        &mut self,
        instance: &mut Instance,
        now: &impl Fn() -> Duration,
    ) -> Result<(), MeasurementError> {
        if self.sampler.is_none() {
            return Ok(());
        }
        self.settle(instance, now)?;
        if now() >= self.next_look() {
            self.review(instance, now)?;
        }
        let switch = self.sampler.as_mut().and_then(|sampler| {
            let plan = sampler.plan.as_ref()?;
            sampler.cycle.step(plan, now(), fastrand::f64())
        });
        match switch {
            Some(Switch::Attach) => self.open_slice(instance, now),
            Some(Switch::Detach) => {
                self.close_slice(instance, now)?;
                if !self.departures.has_slice() {
                    // It was closed before, as the plan changed, and is gone.
                    self.end_cell(instance, now, now())?;
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Books what it cost that probes went, once they are gone.
    fn settle(
        &mut self,
        instance: &mut Instance,
        now: &impl Fn() -> Duration,
    ) -> Result<(), MeasurementError> {
        let mut ended = None;
        for gone in self.departures.gone() {
            self.meter.add_edge(&gone.slots, gone.lasted / 2);
            ended = gone.slice.or(ended);
        }
        if let Some(slice) = ended {
            if let Some(sampler) = &mut self.sampler {
                sampler.edge = (sampler.edge * 7 + slice.edge) / 8;
            }
            self.end_cell(instance, now, slice.gone)?;
        }
        Ok(())
    }

    /// The slice that the cycle is about is gone since then: what it saw decides how long it takes to pay for it.
    fn end_cell(
        &mut self,
        instance: &mut Instance,
        now: &impl Fn() -> Duration,
        gone: Duration,
    ) -> Result<(), MeasurementError> {
        self.review(instance, now)?;
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
    pub fn read(&mut self, instance: &mut Instance, now: Duration) -> Result<(), ReadError> {
        let reading = self.probes.read()?;
        instance.observe(&reading, now);
        Ok(())
    }

    /// What probing has cost since the last time, as a part of the CPU time that the target used itself; None where it
    /// used none.
    pub fn overhead_ratio(&mut self, now: Duration) -> Option<f64> {
        if self.sampler.is_none() {
            // Nobody else looks. Unreadable: the process is gone, or the next window will say.
            let _ = self.look(now);
        }
        self.meter.overhead_ratio()
    }

    /// Takes the slow calls that wait in the ring buffer.
    pub fn slow_calls(&mut self) -> Vec<SlowCall> {
        self.probes.slow_calls()
    }

    /// The slot of the operation that a slow call is of, and its column family by number and name.
    pub fn operation(&self, call: &SlowCall) -> (usize, Option<(u32, String)>) {
        match self.probes.family(call.slot) {
            Some(family) => (family.slot as usize, Some((family.id, family.name))),
            None => (call.slot as usize, None),
        }
    }

    /// Whether the slot is attached in slices, or not at all.
    pub fn is_sampled(&self, slot: usize) -> bool {
        u8::try_from(slot).is_ok_and(|slot| !self.attached.always.contains(&slot))
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
            self.meter.add_open(&slice.slots, open);
        }
        let hits = self.probes.hits()?;
        let cpu = self.cpu_time();
        Ok(self.meter.look(&self.attached.always, hits, cpu, now))
    }

    /// Looks at what probing costs, and attaches what the budget allows.
    fn review(
        &mut self,
        instance: &mut Instance,
        now: &impl Fn() -> Duration,
    ) -> Result<(), MeasurementError> {
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
            self.change(always, instance, now)?;
        }
        Ok(())
    }

    /// Attaches `always` for good, and leaves the others to the slices to come.
    fn change(
        &mut self,
        always: Slots,
        instance: &mut Instance,
        now: &impl Fn() -> Duration,
    ) -> Result<(), MeasurementError> {
        debug!(?always, pid = self.process.pid, "the plan changes");
        // What comes to be always attached would count twice while a slice is open.
        self.close_slice(instance, now)?;
        let begun = now();
        let before = self.probes.attach(&always)?;
        let since = self.moment(now);
        let changed = since.time;
        self.departures.add(Leaving {
            slots: self.attached.always.clone(),
            since: changed,
            receipt: self.reaper.take(before),
            attaching: changed - begun,
            of_slice: false,
        });
        if let Some(sampler) = &mut self.sampler {
            sampler.last = Some(since);
        }
        self.read(instance, changed)?;
        for slot in self.attached.always.difference(&always) {
            instance.pause(*slot, changed, 1.0);
        }
        for slot in always.difference(&self.attached.always) {
            instance.resume(*slot, changed);
        }
        self.attached.always = always;
        Ok(())
    }

    fn open_slice(
        &mut self,
        instance: &mut Instance,
        now: &impl Fn() -> Duration,
    ) -> Result<(), MeasurementError> {
        let Some(plan) = self.sampler.as_ref().and_then(|one| one.plan.as_ref()) else {
            return Ok(());
        };
        let number = self.attached.slices;
        let slots = planned(plan, &self.costs, |attachment, turn| {
            attachment == Attachment::Sliced && turn.takes(number)
        });
        self.attached.slices += 1;
        let before = self.moment(now);
        self.probes.open_slice(&slots)?;
        let since = self.moment(now);
        let opened = since.time;
        for slot in &slots {
            instance.resume(*slot, opened);
        }
        let attaching = opened - before.time;
        let last = self
            .sampler
            .as_mut()
            .and_then(|sampler| sampler.last.take());
        // Sites come and go one after another: that costs for half of the time that it takes.
        self.meter.add_edge(&slots, attaching / 2);
        self.attached.slice = Some(Slice {
            slots,
            opened,
            attaching,
            since,
            hits: self.probes.hits()?,
            apart: last.map_or(Use::default(), |last| before.since(&last)),
        });
        if let Some(sampler) = &mut self.sampler {
            sampler.cycle.opened(opened);
        }
        Ok(())
    }

    fn close_slice(
        &mut self,
        instance: &mut Instance,
        now: &impl Fn() -> Duration,
    ) -> Result<(), MeasurementError> {
        let Some(mut slice) = self.attached.slice.take() else {
            return Ok(());
        };
        let links = self.probes.close_slice()?;
        let end = self.moment(now);
        let closed = end.time;
        self.departures.add(Leaving {
            slots: slice.slots.clone(),
            since: closed,
            receipt: self.reaper.take(links),
            attaching: slice.attaching,
            of_slice: true,
        });
        let open = slice.book(closed);
        self.meter.add_open(&slice.slots, open);
        let cost = self.cost(&slice.slots, &slice.hits, &self.probes.hits()?);
        let mut part = 1.0;
        if let Some(sampler) = &mut self.sampler {
            let watched = end.since(&slice.since);
            part = sampler.disturbance.observe(slice.apart, watched, cost);
            sampler.last = Some(end);
        }
        self.read(instance, closed)?;
        for slot in &slice.slots {
            instance.pause(*slot, closed, part);
        }
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

    /// What probing these slots cost between two readings: as in a cold cache, which is what a slice begins with.
    fn cost(&self, slots: &Slots, before: &[u64], after: &[u64]) -> Duration {
        let cost = |slot: &u8| {
            let slot = usize::from(*slot);
            let hits = after.get(slot)?.saturating_sub(*before.get(slot)?);
            Some(self.costs.get(slot)?.as_ref()?.mul_f64(hits as f64))
        };
        slots.iter().filter_map(cost).sum()
    }
}

/// The slots that are planned to be attached in that way, of those that are there.
fn planned(
    plan: &governor::Plan,
    costs: &[Option<Duration>],
    how: impl Fn(Attachment, Turn) -> bool,
) -> Slots {
    let slots = plan.attachments.iter().zip(&plan.turns).zip(costs);
    (0..=u8::MAX)
        .zip(slots)
        .filter(|(_, ((attachment, turn), cost))| cost.is_some() && how(**attachment, **turn))
        .map(|(slot, _)| slot)
        .collect()
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
