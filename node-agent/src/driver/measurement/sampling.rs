//! Keeps a measurement within its budget: looks at what probing costs now and then, and attaches what the governor plans.
//!
//! Slices begin and end by the process's own time, which passes while it works and hardly otherwise. It is read as what probing costs
//! is, so a look is due whenever the next thing is, if the process works as it does when it works. If it does not, the next look
//! comes later and later, up to [`LOOK`], and to a part of what is left: a burst may begin with several times the work that is usual. For what
//! becomes due in the meantime that is late, and late alike for beginnings and ends, which is what [`Cycle`] stands on.

mod ahead;
mod cells;

use std::time::Duration;

pub use ahead::Ahead;
use cells::Pair;
use ckb_probe_crds::Passed;
use tracing::debug;

use super::{Measurement, MeasurementError, Meter, Total, departures::Detaching, slice::Slice};
use crate::{
    governor::{self, Attachment, Budget, Cycle, Switch, Turn},
    mechanism::{GroupId, GroupIds},
    state::Fact,
};

/// Between two looks at how busy the operations are, at most.
const LOOK: Duration = Duration::from_millis(50);

/// The first, where others pay as well: until then what is attached is so whatever it costs.
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// And at least: while the process works, and while it does not, and something will be due soon after it does.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);
const IDLE_LOOK: Duration = Duration::from_millis(8);

/// It is looked again once so much of what is left has passed, a process that works, or does nothing: it may well work faster than it did,
/// and faster still as it begins.
const AHEAD: f64 = 0.5;
const AHEAD_OF_IDLE: f64 = 0.25;

/// What attaching a slice is taken to cost before one was attached.
const EDGE: Duration = Duration::from_millis(10);

/// Slices begin so many times later than attaching takes on the average: it seldom takes as long.
const DELAY: f64 = 1.25;

/// What is to be attached.
pub enum Due {
    /// These for good.
    Always(GroupIds),
    /// A slice.
    Slice,
}

/// What probing may cost a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// Percent of the CPU time that it uses itself.
    pub percent: f64,
    /// Percent of one CPU besides.
    pub floor: f64,
}

/// Keeps the budget by sampling.
pub struct DutyCycle {
    allowance: Allowance,
    /// What coming and going costs a slice, as a time of being attached.
    edge: Duration,
    /// How long attaching takes.
    attaching: Duration,
    plan: Option<governor::Plan>,
    /// CPU-seconds that probing the process cost too much before this began.
    owed: f64,
    cycle: Cycle,
    cells: Option<Pair>,
    /// Since when nothing is attached in a slice, and what passed of that until the next one was to be.
    free: Option<Glance>,
    before: Passed,
    /// When the process's clock was looked at last, and what it told.
    glanced: Glance,
    /// How often in a row the process had done nothing since the time before.
    idle_looks: u32,
}

/// A look at the process's clock: process time was no more than that by then.
#[derive(Clone, Copy, Debug, Default)]
struct Glance {
    at: Duration,
    time: Duration,
}

impl Glance {
    /// What passed from then on.
    fn until(self, later: Self) -> Passed {
        Passed {
            own: later.time.saturating_sub(self.time).as_secs_f64(),
            wall: later.at.saturating_sub(self.at).as_secs_f64(),
        }
    }
}

impl DutyCycle {
    /// For such a budget, before anything was attached.
    pub fn new(allowance: Allowance) -> Self {
        Self {
            allowance,
            edge: EDGE,
            attaching: EDGE,
            plan: None,
            owed: 0.0,
            cycle: Cycle::default(),
            cells: None,
            free: None,
            before: Passed::default(),
            glanced: Glance::default(),
            idle_looks: 0,
        }
    }

    /// To come and go takes so long, as was foreseen, or to come did.
    pub fn took(&mut self, edge: Duration) {
        self.edge = self.edge.max(edge);
        self.attaching = self.attaching.max(edge);
    }

    /// What may be spent.
    fn budget(&self, meter: &Meter, node_share: Option<f64>) -> Budget {
        let duty = meter.duty();
        let budget = Budget {
            ratio: self.allowance.percent / 100.0,
            floor: self.allowance.floor / 100.0 / duty,
            duty,
            known: meter.age(),
            edge: self.edge + self.lead().saturating_sub(self.attaching),
            turnaround: self.turnaround(),
        };
        match node_share {
            Some(most) => budget.within(most, meter.usage()),
            None => budget,
        }
    }

    /// Attaching begins so long before a slice does, in process time: what it takes, and what it was late for that.
    fn lead(&self) -> Duration {
        self.attaching.mul_f64(DELAY) + IDLE_LOOK + SHORTEST_LOOK
    }

    /// And how long after a slice the next one can begin, at the soonest.
    fn turnaround(&self) -> Duration {
        self.lead() + (2 * self.edge).saturating_sub(self.attaching)
    }
}

impl Measurement {
    /// CPU-seconds that probing has cost too much so far.
    pub fn debt(&self) -> f64 {
        let sampler = self.sampler.as_ref();
        let debt = sampler.map_or(0.0, |one| {
            let known = one.plan.as_ref().map_or(0.0, |plan| plan.debt);
            known + one.owed
        });
        debt.max(0.0)
    }

    /// So much is owed from before: to ask for something else pays for nothing.
    pub fn owe(&mut self, debt: f64) {
        if let Some(sampler) = &mut self.sampler {
            sampler.owed = debt;
        }
    }

    /// Between two looks at most.
    fn longest_look(&self) -> Duration {
        let is_first = self.sampler.is_some() && self.meter.age().is_zero();
        if is_first && self.mechanisms.node_share().is_some() {
            FIRST_LOOK
        } else {
            LOOK
        }
    }

    /// When [`Self::step`] is due again; None when it never is.
    pub fn next_step(&self) -> Option<Duration> {
        let sampler = self.sampler.as_ref().filter(|_| self.stopped.is_none())?;
        let (looked, glanced) = (self.meter.looked(), sampler.glanced);
        let look = looked + self.longest_look();
        let glance = sampler.cycle.next().map(|due| {
            let left = due.saturating_sub(glanced.time.max(self.meter.time()));
            let most = left.mul_f64(AHEAD_OF_IDLE).clamp(IDLE_LOOK, LOOK);
            let patience = SHORTEST_LOOK * 2_u32.saturating_pow(sampler.idle_looks.min(8));
            let wait = left.mul_f64(AHEAD).max(patience.min(most));
            glanced.at.max(looked) + wait
        });
        // Links that go are soon gone, and the next slice waits for that.
        let leaving = self
            .departures
            .has_slice()
            .then(|| glanced.at.max(looked) + IDLE_LOOK);
        let all = [Some(look), glance, leaving];
        all.into_iter().flatten().min()
    }

    /// Looks at the process's clock alone. Whether something may be due.
    fn glance(&mut self, now: Duration) -> bool {
        let cpu = self.cpu_time();
        let Some(sampler) = &mut self.sampler else {
            return false;
        };
        let Some(due) = sampler
            .cycle
            .next()
            .filter(|_| now < self.meter.looked() + LOOK)
        else {
            return true;
        };
        let before = sampler.glanced;
        let elapsed = now.saturating_sub(before.at.max(self.meter.looked()));
        // More than passed: what probing took is in it.
        let time = self.meter.time_at(cpu, now);
        let passed = time.saturating_sub(before.time.max(self.meter.time()));
        sampler.glanced = Glance { at: now, time };
        sampler.idle_looks = if passed > elapsed / 4 {
            0
        } else {
            sampler.idle_looks + 1
        };
        time >= due
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
        // What is attached once it counts nothing any more would be counted all the same.
        if self.sampler.is_none() || self.stopped.is_some() {
            return Ok(false);
        }
        let is_gone = self.settle();
        let at = now();
        if is_gone || self.next_step().is_some_and(|due| at >= due) && self.glance(at) {
            self.review(now)?;
        }
        let seen = self.last_look();
        if is_gone && let Some(sampler) = &mut self.sampler {
            sampler.cycle.detached(seen.time);
            sampler.free = Some(seen);
        }
        while self.due.is_none()
            && let Some(switch) = self.switch()
        {
            match switch {
                Switch::Attach => self.prepare_slice(),
                Switch::Count => self.begin_slice(now)?,
                Switch::Detach => self.close_slice(now)?,
                Switch::EndCell => self.end_cell(now)?,
            }
        }
        Ok(self.due.is_some())
    }

    /// Where the target and its clock were as they were last looked at.
    fn last_look(&self) -> Glance {
        Glance {
            at: self.meter.looked(),
            time: self.meter.time(),
        }
    }

    fn prepare_slice(&mut self) {
        let seen = self.last_look();
        if let Some(sampler) = &mut self.sampler {
            let free = sampler.free.take();
            sampler.before = free.map_or_else(Passed::default, |free| free.until(seen));
        }
        self.due = Some(Due::Slice);
    }

    fn switch(&mut self) -> Option<Switch> {
        let time = self.meter.time();
        if self.departures.has_slice() && self.attached.slice.is_none() {
            // Its calls would be counted twice.
            return None;
        }
        self.sampler.as_mut()?.cycle.step(time)
    }

    /// Attaches what was decided.
    pub fn attach(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        match self.due.take() {
            Some(Due::Always(always)) => self.change(always, now),
            Some(Due::Slice) => self.open_slice(now),
            None => Ok(()),
        }
    }

    /// Books what it cost that probes went, once they are gone. Whether those of a slice are by now.
    fn settle(&mut self) -> bool {
        let mut is_slice_gone = false;
        for gone in self.departures.gone() {
            self.meter.add_edge(&gone.groups, gone.lasted / 2);
            if let (Some(slice), Some(sampler)) = (gone.slice, &mut self.sampler) {
                sampler.edge = (sampler.edge * 7 + slice.edge) / 8;
                is_slice_gone = true;
            }
        }
        is_slice_gone
    }

    /// Looks at what probing costs, and attaches what the budget allows.
    fn review(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        let before = self.meter.looked();
        let mut spent = self.look(now())?;
        let wall = self.meter.looked().saturating_sub(before);
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
        let budget = sampler.budget(&self.meter, self.mechanisms.node_share());
        spent.floor = budget.floor * budget.duty * wall.as_secs_f64();
        self.meter.grant(spent.floor);
        spent.cost += std::mem::take(&mut sampler.owed);
        let plan = governor::plan(
            &groups,
            self.meter.usage(),
            budget,
            spent,
            sampler.plan.as_ref(),
        );
        let plan = sampler.plan.insert(plan);
        let planned = planned(plan, &self.costs, |attachment, _| {
            attachment == Attachment::Always
        });
        let always = if sampler.cycle.is_idle() {
            planned
        } else {
            // What is sliced stays so until its cell is over: whether it is to be attached all the time again may be for what its
            // slice saw, which must not decide for how long it stands.
            planned
                .intersection(&self.attached.always)
                .copied()
                .collect()
        };
        self.due = (always != self.attached.always).then_some(Due::Always(always));
        if self.due.is_none() && sampler.cycle.is_idle() && plan.slices.is_some() {
            self.begin_cells(now());
        }
        Ok(())
    }

    /// Attaches `always` for good, and leaves the others to slices.
    fn change(
        &mut self,
        always: GroupIds,
        now: &impl Fn() -> Duration,
    ) -> Result<(), MeasurementError> {
        debug!(?always, pid = self.process.pid, "the plan changes");
        let begun = now();
        let mut before = Vec::new();
        let attached = self
            .mechanisms
            .attach(&always, &self.attached.always, &mut before);
        if let Err(error) = attached {
            self.reaper.take(before);
            return Err(error.into());
        }
        let changed = now();
        self.departures.add(Detaching {
            groups: self.attached.always.clone(),
            since: changed,
            receipt: self.reaper.take_soon(before),
            attaching: changed - begun,
            of_slice: false,
        });
        self.look(changed)?;
        self.read(changed)?;
        let paused: GroupIds = self.attached.always.difference(&always).copied().collect();
        self.note(changed, Fact::Paused(paused.clone()));
        let resumed = always.difference(&self.attached.always).copied().collect();
        self.note(changed, Fact::Resumed(resumed));
        self.attached.always = always;
        if let Some(sampler) = &mut self.sampler {
            sampler.free = None;
        }
        match &self.sampler {
            Some(sampler) if !sampler.cycle.is_idle() => self.join_cell(paused, changed),
            _ => self.begin_cells(changed),
        }
        Ok(())
    }

    fn open_slice(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        let sampler = self.sampler.as_ref();
        let groups = sampler.and_then(|one| Some(one.cells.as_ref()?.of_slice(&one.cycle)));
        let Some(groups) = groups else {
            return Ok(());
        };
        self.attached.slices += 1;
        let before = now();
        self.mechanisms.open_slice(&groups)?;
        let opened = now();
        let attaching = opened.saturating_sub(before);
        // Sites come and go one after another: that costs for half of the time that it takes.
        self.meter.add_edge(&groups, attaching / 2);
        self.attached.slice = Some(Slice {
            groups,
            opened,
            attaching,
            counting: None,
            before: Total::default(),
        });
        self.look(opened)?;
        let time = self.meter.time();
        if let Some(sampler) = &mut self.sampler {
            sampler.attaching = (sampler.attaching * 7 + attaching) / 8;
            sampler.cycle.attached(time);
        }
        Ok(())
    }

    /// What is counted from now on is the slice's.
    fn begin_slice(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        let decided = self.meter.time();
        // What was counted since it was attached is read, and is nobody's.
        self.read(now())?;
        let at = now();
        self.look(at)?;
        let Some(slice) = &mut self.attached.slice else {
            return Ok(());
        };
        slice.counting = Some(at);
        slice.before = self.meter.total().clone();
        let groups = slice.groups.clone();
        let time = self.meter.time();
        let mut before = Passed::default();
        if let Some(sampler) = &mut self.sampler {
            sampler.cycle.counting(time.saturating_sub(decided));
            before = std::mem::take(&mut sampler.before);
        }
        let began = Fact::SliceBegan {
            groups,
            time,
            before,
        };
        self.note(at, began);
        Ok(())
    }

    pub(super) fn close_slice(
        &mut self,
        now: &impl Fn() -> Duration,
    ) -> Result<(), MeasurementError> {
        let Some(slice) = self.attached.slice.take() else {
            return Ok(());
        };
        let mut links = Vec::new();
        let ended = self.mechanisms.close_slice(&slice.groups, &mut links);
        // At once: where the target leaves no processor alone, whoever is woken to detach may well run before this thread does again.
        let closed = now();
        let receipt = self.reaper.take_soon(links);
        ended?;
        if let Some(counting) = slice.counting {
            let slice_us = closed.saturating_sub(counting).as_micros() as u64;
            debug!(slice_us, pid = self.process.pid, "a slice is over");
        }
        self.departures.add(Detaching {
            groups: slice.groups.clone(),
            since: closed,
            receipt,
            attaching: slice.attaching,
            of_slice: true,
        });
        let open = closed.saturating_sub(slice.opened);
        self.meter.add_open(&slice.groups, open);
        self.look(closed)?;
        self.read(closed)?;
        let time = self.meter.time();
        let groups = slice.groups;
        if slice.counting.is_some() {
            let probing = self.meter.total().ratio_since(&slice.before);
            let ended = Fact::SliceEnded {
                groups,
                time,
                probing: probing.unwrap_or_default(),
            };
            self.note(closed, ended);
        }
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
