//! Keeps a measurement within its budget: looks at what probing costs now and then, and attaches what the governor plans.

use std::time::Duration;

use tracing::debug;

use super::{
    Measurement, MeasurementError,
    departures::Detaching,
    observer_effect::{ObserverEffect, Use},
    slice::{Moment, Slice},
};
use crate::{
    governor::{self, Attachment, Budget, Cycle, Switch, Turn},
    mechanism::{GroupId, GroupIds},
    state::Fact,
};

/// Between two looks at how busy the operations are.
const LOOK: Duration = Duration::from_millis(50);

/// To the first look: until then everything is attached, whatever it costs.
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// What attaching a slice is taken to cost before one was attached.
const EDGE: Duration = Duration::from_millis(10);

/// What is to be attached.
pub enum Due {
    /// These for good.
    Always(GroupIds),
    /// A slice.
    Slice,
}

/// Keeps the budget by sampling.
pub struct DutyCycle {
    ratio: f64,
    edge: Duration,
    plan: Option<governor::Plan>,
    cycle: Cycle,
    disturbance: ObserverEffect,
    /// Since when the target has been left alone, as far as it is.
    last: Option<Moment>,
}

impl DutyCycle {
    /// For a budget of so many percent, after everything was attached, which took `edge`.
    pub fn new(percent: f64, edge: Duration, attached: Duration) -> Self {
        Self {
            ratio: percent / 100.0,
            edge: edge.max(EDGE),
            plan: None,
            cycle: Cycle::looking(attached),
            disturbance: ObserverEffect::default(),
            last: None,
        }
    }
}

impl Measurement {
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
        if self.decide(now)? {
            self.attach(now)?;
        }
        Ok(())
    }

    /// The part of [`Self::step`] that nobody is kept waiting by. True where something is to be [attached](Self::attach) now,
    /// which may take as long as the kernel and the target's file systems like.
    pub fn decide(&mut self, now: &impl Fn() -> Duration) -> Result<bool, MeasurementError> {
        if self.sampler.is_none() {
            return Ok(false);
        }
        self.settle(now)?;
        if now() >= self.next_look() {
            self.review(now)?;
        }
        if self.due.is_some() {
            return Ok(true);
        }
        let switch = self.sampler.as_mut().and_then(|sampler| {
            let plan = sampler.plan.as_ref()?;
            sampler.cycle.step(plan, now(), fastrand::f64())
        });
        match switch {
            Some(Switch::Attach) => self.due = Some(Due::Slice),
            Some(Switch::Detach) => {
                self.close_slice(now)?;
                if !self.departures.has_slice() {
                    // It was closed before, as the plan changed, and is gone.
                    self.end_cell(now, now())?;
                }
            }
            None => {}
        }
        Ok(self.due.is_some())
    }

    /// Attaches what was decided.
    pub fn attach(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        match self.due.take() {
            Some(Due::Always(always)) => self.change(always, now),
            Some(Due::Slice) => self.open_slice(now),
            None => Ok(()),
        }
    }

    /// Books what it cost that probes went, once they are gone.
    fn settle(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        let mut ended = None;
        for gone in self.departures.gone() {
            self.meter.add_edge(&gone.groups, gone.lasted / 2);
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
        if let Some(DutyCycle {
            plan: Some(plan),
            cycle,
            ..
        }) = &mut self.sampler
        {
            cycle.closed(plan, gone);
        }
        Ok(())
    }

    fn next_look(&self) -> Duration {
        let planned = self
            .sampler
            .as_ref()
            .is_some_and(|sampler| sampler.plan.is_some());
        self.meter.looked() + if planned { LOOK } else { FIRST_LOOK }
    }

    /// Looks at what probing costs, and attaches what the budget allows.
    fn review(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        let spent = self.look(now())?;
        let Some(sampler) = &mut self.sampler else {
            return Ok(());
        };
        let mut groups = self.meter.loads();
        for (group, cost) in groups.iter_mut().zip(&self.costs) {
            // What is not there costs nothing.
            if cost.is_none() {
                group.hits_per_second = Some(0.0);
            }
        }
        if sampler.plan.is_none() && groups.iter().any(|group| group.hits_per_second.is_none()) {
            // The first look, at all of them, is not over.
            return Ok(());
        }
        let budget = Budget {
            ratio: sampler.ratio,
            edge: sampler.edge,
        };
        let plan = governor::plan(
            &groups,
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
        self.due = (always != self.attached.always).then_some(Due::Always(always));
        Ok(())
    }

    /// Attaches `always` for good, and leaves the others to the slices to come.
    fn change(
        &mut self,
        always: GroupIds,
        now: &impl Fn() -> Duration,
    ) -> Result<(), MeasurementError> {
        debug!(?always, pid = self.process.pid, "the plan changes");
        // What comes to be always attached would count twice while a slice is open.
        self.close_slice(now)?;
        let begun = now();
        let mut before = Vec::new();
        let attached = self
            .mechanisms
            .attach(&always, &self.attached.always, &mut before);
        if let Err(error) = attached {
            self.reaper.take(before);
            return Err(error.into());
        }
        let since = self.moment(now);
        let changed = since.time;
        self.departures.add(Detaching {
            groups: self.attached.always.clone(),
            since: changed,
            receipt: self.reaper.take_soon(before),
            attaching: changed - begun,
            of_slice: false,
        });
        if let Some(sampler) = &mut self.sampler {
            sampler.last = Some(since);
        }
        self.read(changed)?;
        let paused = self.attached.always.difference(&always);
        let paused = Fact::Paused {
            groups: paused.copied().collect(),
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
        let groups = planned(plan, &self.costs, |attachment, turn| {
            attachment == Attachment::Sliced && turn.takes(number)
        });
        self.attached.slices += 1;
        let before = self.moment(now);
        self.mechanisms.open_slice(&groups)?;
        let since = self.moment(now);
        let opened = since.time;
        self.note(opened, Fact::Resumed(groups.clone()));
        let attaching = opened - before.time;
        let last = self
            .sampler
            .as_mut()
            .and_then(|sampler| sampler.last.take());
        // Sites come and go one after another: that costs for half of the time that it takes.
        self.meter.add_edge(&groups, attaching / 2);
        self.attached.slice = Some(Slice {
            groups,
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

    pub(super) fn close_slice(
        &mut self,
        now: &impl Fn() -> Duration,
    ) -> Result<(), MeasurementError> {
        let Some(mut slice) = self.attached.slice.take() else {
            return Ok(());
        };
        let mut links = Vec::new();
        let ended = self.mechanisms.close_slice(&slice.groups, &mut links);
        // At once: a slice that is believed to be longer than it was would count too little. Where the target leaves no processor
        // alone, whoever is woken to detach may well run before this thread does again.
        let end = self.moment(now);
        let receipt = self.reaper.take_soon(links);
        ended?;
        let closed = end.time;
        let slice_us = closed.saturating_sub(slice.since.time).as_micros() as u64;
        debug!(slice_us, pid = self.process.pid, "a slice is over");
        self.departures.add(Detaching {
            groups: slice.groups.clone(),
            since: closed,
            receipt,
            attaching: slice.attaching,
            of_slice: true,
        });
        let open = slice.book(closed);
        self.meter.add_open(&slice.groups, open);
        let cost = self.cost(&slice.groups, &slice.hits, &self.hits()?);
        let mut part = 1.0;
        if let Some(sampler) = &mut self.sampler {
            let watched = end.since(&slice.since);
            part = sampler.disturbance.observe(slice.apart, watched, cost);
            sampler.last = Some(end);
        }
        self.read(closed)?;
        let groups = slice.groups;
        self.note(closed, Fact::Paused { groups, part });
        Ok(())
    }
}

/// The groups that are planned to be attached in that way, of those that are there.
fn planned(
    plan: &governor::Plan,
    costs: &[Option<Duration>],
    how: impl Fn(Attachment, Turn) -> bool,
) -> GroupIds {
    let groups = plan.attachments.iter().zip(&plan.turns).zip(costs);
    groups
        .enumerate()
        .filter(|(_, ((attachment, turn), cost))| cost.is_some() && how(**attachment, **turn))
        .map(|(index, _)| GroupId::default().offset(index))
        .collect()
}
