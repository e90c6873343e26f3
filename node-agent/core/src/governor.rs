//! Keeps what probing costs a target within its budget, and measures as much as the budget allows. No clock, no I/O.
//!
//! **Process time.** Nothing here goes by the wall clock. A second of *process time* is as much of the target's own CPU time (what
//! probing takes is off) as it uses in a second when it works: [`ProcessTime`]. An idle target's time stands still, and a burst of
//! work is long, however short it was. What a target does is the same in each second of process time as long as it does the same
//! things, whether it works all the time or in bursts; so that is the axis on which it is sampled.
//!
//! **Water-filling.** The budget is `B = ratio · cpu + floor`, in CPU-seconds per second. An operation that is attached all the
//! time costs its load `l = hits per second · cost of a hit`. Rare ones are [`Attachment::Always`]; the busy ones are
//! attached in slices, for a part `a` of the time:
//!
//! ```text
//! always  while  l ≤ w       w = (B − Σ l of those at or below w) / number of the others
//! sliced  otherwise          a = (B − Σ l of the always attached) / Σ l of those that share a slice
//! ```
//!
//! so a rarer operation is never measured less than a busier one, and when all fits, all is attached always. The sliced
//! operations share all of the slices, or one half of them takes turns with the other ([`turns`]).
//!
//! **Slices.** Time is cut into cells, with one slice at a random place in each. How long both are is drawn before anything of the
//! cell is seen ([`Cycle`]), so a slice stands for its cell by a weight that does not depend on what it sees. Attaching and
//! detaching take a while (`edge`) that costs but measures nothing: it counts as attached. Many short slices know more of a load
//! that changes than few long ones, which may all miss its busiest second; so there are as many as leave half of what is paid for to
//! be measured. Where even two short slices in 10 s are too much, the period grows instead; where it would pass two minutes, the
//! busiest operations are off.
//!
//! **Hysteresis.** An operation leaves [`Attachment::Always`] at once when its load passes `w`, and comes back below
//! `0.6 · w`, so noise does not move it to and fro.
//!
//! **Debt.** What probing cost beyond the budget is owed (a load rose, and was seen only at the next plan), and what it
//! costs less repays it; little can be saved, and no more than a minute's budget is owed. Debt lowers `B`; and until it is
//! repaid nothing comes back to [`Attachment::Always`], and the sliced operations are taken to be as busy as they were.
//! So a target that works in bursts, shorter than any reaction, stays within its budget too, in the long run.
//!
//! **Frequency.** What is sampled is not attached in slices: it is sampled less often ([`frequency()`]). It takes half of the budget at
//! most, and what it takes of late is not there for what is attached (`B` is the rest): would that learn of it by its debt, it would be
//! late by as much, in each window of stacks.
//!
//! **Use.** Every 50 ms at the latest the caller tells the [`Estimator`] what was counted, makes a [`plan`] from its loads, and
//! attaches what the plan says; a [`Cycle`] says when a slice begins and ends.

use std::time::Duration;

mod cycle;
mod debt;
mod estimator;
mod frequency;
mod process_time;
mod slices;
mod turns;

pub use cycle::{Cycle, Slice, Switch};
pub use debt::Debt;
pub use estimator::{Estimator, Observation};
pub use frequency::{ONE_IN, Thinned, frequency};
pub use process_time::ProcessTime;
pub use slices::Slices;
use slices::Spacing;
pub use turns::Turn;

/// Seconds of process time in which slices are counted: so many of them as may be, or one in a period where that is longer.
const WINDOW: f64 = 10.0;

/// The part of the budget that is planned for: estimates err, and a ceiling is a ceiling.
const AIM: f64 = 0.9;

/// Seconds that slices measure at least, on the average.
const SLICE: f64 = 0.02;

/// Some slices are so many times as long as the others: what takes longer than a slice is seen by no slice.
const LONG: f64 = 4.0;

/// The part of the slices that these are.
const LONG_ONES: f64 = 0.25;

/// Seconds: the longest period in which the sliced operations are looked at once.
const LONGEST_PERIOD: f64 = 120.0;

/// A load comes back at this part of the level at which it left. Noise of ±20 % in the hits stays within.
const RETURN: f64 = 0.6;

/// Seconds in which debt would be repaid if it did not shrink meanwhile.
const REPAYMENT: f64 = 3.0;

/// The part of the budget that debt never takes, so that there are always some figures.
const SUBSISTENCE: f64 = 0.25;

/// Seconds of budget: debt beyond this is forgiven.
const DEBT: f64 = 60.0;

/// Seconds of budget: what may be saved for bad times, and what may be owed before it matters.
const TOLERANCE: f64 = 1.0;

/// No more than so many seconds on the wall, of which a minute has few: a target that is hardly ever busy waits long for a second of
/// its own.
const TOLERATED: f64 = 3.0;

/// One operation, as it costs while it is attached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// While attached, per second of process time. None before enough was seen: it is attached until then.
    pub hits_per_second: Option<f64>,
    /// The most that it was of late: what is sliced comes back only where that would do.
    pub peak: f64,
    /// CPU time of one hit, at the target's expense.
    pub cost: Duration,
}

/// What probing may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// CPU time of probing per CPU time of the target itself: maxPercent / 100.
    pub ratio: f64,
    /// CPU-seconds per second of process time that are granted besides, however little the target uses.
    pub floor: f64,
    /// The part of the time on the wall that process time makes up.
    pub duty: f64,
    /// How long that is known, on the wall: what is young may seem to work all the time.
    pub known: Duration,
    /// How long a slice that measures nothing would cost: its sites come one after another as it is attached, and go
    /// one after another as it is detached.
    pub edge: Duration,
    /// How long after a slice the next one can begin to count, at the soonest: one is detached and the other attached.
    pub turnaround: Duration,
}

impl Budget {
    /// The same, but no more than `most` CPU-seconds per second on the wall, of a target that uses `cpu` CPU-seconds per second of process
    /// time.
    #[must_use]
    pub fn within(self, most: f64, cpu: f64) -> Self {
        let most = sane(most) / sane(self.duty).max(f64::MIN_POSITIVE);
        let floor = sane(self.floor).min(most);
        let (ratio, cpu) = (sane(self.ratio), sane(cpu));
        let ratio = match ratio * cpu > most - floor {
            true => (most - floor) / cpu,
            false => ratio,
        };
        Self {
            ratio,
            floor,
            ..self
        }
    }
}

/// What happened since the last plan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Process time since the last plan.
    pub elapsed: Duration,
    /// CPU-seconds that probing cost.
    pub cost: f64,
    /// CPU-seconds that the target used itself. Below zero, it makes good for too much before.
    pub own: f64,
    /// CPU-seconds that were granted besides.
    pub floor: f64,
    /// CPU-seconds per second that probing costs now besides what hits cost: nobody attaches or detaches that.
    pub besides: f64,
}

/// How an operation is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// All the time.
    Always,
    /// For a slice of each cell, by turns with others.
    Sliced,
    /// Not at all: even the rarest slices would cost too much. Tried again as the [`Estimator`] forgets how busy it was.
    Off,
}

/// What to attach, until the next plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Of each operation.
    pub attachments: Vec<Attachment>,
    /// Of each operation: which slices it is attached in, if it is sliced.
    pub turns: Vec<Turn>,
    /// None when no operation is sliced.
    pub slices: Option<Slices>,
    /// CPU-seconds that probing cost too much so far; below zero, what it saved.
    pub debt: f64,
    /// CPU-seconds per second of the operations that are always attached.
    always: f64,
    /// CPU-seconds per second of the operations that share a slice, while it is attached.
    sliced: f64,
}

/// Decides how each operation is attached, from what the operations cost and from what the target itself uses: `cpu`
/// in CPU-seconds per second. `last` is the plan that was carried out since, if any.
pub fn plan(loads: &[Load], cpu: f64, budget: Budget, spent: Spent, last: Option<&Plan>) -> Plan {
    let last = last.filter(|last| last.attachments.len() == loads.len());

    // What may be spent.
    let granted = sane(budget.ratio) * sane(cpu) + sane(budget.floor);
    let tolerated = TOLERANCE.min(TOLERATED * sane(budget.duty)) * granted;
    let debt = owed(last, spent, budget.ratio, granted, tolerated);
    let excess = (debt - tolerated).max(0.0);
    let indebted = excess > 0.0;
    let aim = granted * AIM - sane(spent.besides) - excess / REPAYMENT;
    let level = aim.max(granted * SUBSISTENCE);

    // What can stay attached.
    let was = |i: usize| last.map(|last| last.attachments[i]);
    let weighed: Vec<Weighed> = loads
        .iter()
        .enumerate()
        .map(|(i, load)| load.weigh(was(i), indebted))
        .collect();
    let water = water_level(weighed.iter().map(|load| load.always).collect(), level);
    let busy = weighed.iter().filter(|load| load.always > water);
    let rare = weighed.iter().filter(|load| load.always <= water);
    let always = sum(rare.map(|load| load.full));
    let left = level - always;

    // What slices can bear.
    let edge = budget.edge.as_secs_f64().min(LONGEST_PERIOD / 4.0);
    let most = left * LONGEST_PERIOD / (2.0 * (SLICE + edge));
    let too_busy = first_beyond(busy.map(|load| load.sliced).collect(), most);
    let attachments: Vec<Attachment> = weighed
        .iter()
        .map(|load| match load {
            load if load.always <= water => Attachment::Always,
            load if load.sliced < too_busy => Attachment::Sliced,
            _ => Attachment::Off,
        })
        .collect();
    let sliced: Vec<Option<f64>> = attachments
        .iter()
        .zip(&weighed)
        .map(|(attachment, load)| (*attachment == Attachment::Sliced).then_some(load.full))
        .collect();

    let feared = last.filter(|_| indebted).map_or(0.0, |last| last.sliced);
    let turns = last.map(|last| last.turns.as_slice());
    let spacing = Spacing {
        edge,
        duty: budget.duty,
        known: budget.known.as_secs_f64(),
        turnaround: budget.turnaround.as_secs_f64().min(LONGEST_PERIOD / 4.0),
    };
    let shared = Shared::by_turns(&sliced, turns, left, spacing, feared.min(most));
    let slicing = attachments.contains(&Attachment::Sliced);
    Plan {
        attachments,
        turns: shared.turns,
        slices: slicing.then_some(shared.slices),
        debt,
        always,
        sliced: shared.load,
    }
}

/// Who shares which slices.
struct Shared {
    turns: Vec<Turn>,
    /// CPU-seconds per second of those that share one, at most.
    load: f64,
    slices: Slices,
}

impl Shared {
    /// Spends `left` on the sliced operations, given by their loads, which are taken to be `feared` at least: by turns
    /// where that can be.
    fn by_turns(
        sliced: &[Option<f64>],
        last: Option<&[Turn]>,
        left: f64,
        spacing: Spacing,
        feared: f64,
    ) -> Self {
        let by = |turns: Vec<Turn>| {
            let load = turns::heaviest(sliced, &turns).max(feared);
            let a = if load > left { left / load } else { 1.0 };
            let slices = Slices::affordable(a, spacing);
            Self {
                turns,
                load,
                slices,
            }
        };
        let halves = by(turns::halve(sliced, last));
        if halves.slices.period.as_secs_f64() <= WINDOW {
            halves
        } else {
            // Of so few slices nobody should miss any.
            by(turns::every(sliced))
        }
    }
}

impl Plan {
    /// The part of the time in which an operation is measured.
    pub fn share(&self, operation: usize) -> f64 {
        match (self.attachments.get(operation), self.slices) {
            (Some(Attachment::Always), _) => 1.0,
            (Some(Attachment::Sliced), Some(slices)) => {
                let turn = self.turns.get(operation);
                slices.share() * turn.map_or(1.0, |turn| turn.part())
            }
            _ => 0.0,
        }
    }

    /// CPU-seconds per second that probing will cost at most, edges included.
    pub fn estimate(&self) -> f64 {
        let attached = self.slices.map_or(0.0, |slices| {
            slices.attached.as_secs_f64() / slices.period.as_secs_f64()
        });
        self.always + self.sliced * attached
    }

    /// CPU-seconds that a slice costs.
    fn slice(&self) -> f64 {
        let attached = self.slices.map_or(Duration::ZERO, |slices| slices.attached);
        self.sliced * attached.as_secs_f64()
    }
}

/// A load in CPU-seconds per second while attached, and what it is taken for when asked how it may be attached: more,
/// where it would have to come back.
struct Weighed {
    full: f64,
    always: f64,
    sliced: f64,
}

impl Load {
    fn weigh(&self, was: Option<Attachment>, indebted: bool) -> Weighed {
        let full = sane(sane(self.hits_per_second.unwrap_or(0.0)) * self.cost.as_secs_f64());
        Weighed {
            full,
            always: match was {
                // Not a single hit yet, or hardly any process time: it costs as little.
                _ if self.hits_per_second.is_none() => 0.0,
                None | Some(Attachment::Always) => full,
                Some(_) if indebted => f64::INFINITY,
                Some(_) => full.max(sane(self.peak) * self.cost.as_secs_f64()) / RETURN,
            },
            sliced: match was {
                Some(Attachment::Off) => full / RETURN,
                _ => full,
            },
        }
    }
}

/// CPU-seconds owed now. What was saved may pay for two slices besides: they cost all at once what their cells save.
fn owed(last: Option<&Plan>, spent: Spent, ratio: f64, granted: f64, tolerated: f64) -> f64 {
    let (debt, slice) = last.map_or((0.0, 0.0), |last| (last.debt, last.slice()));
    let earned = sane(ratio) * finite(spent.own) + sane(spent.floor);
    finite(debt + finite(spent.cost) - earned).clamp(-tolerated - 2.0 * slice, DEBT * granted)
}

/// The level to which a budget fills the loads: what is at or below it gets all it asks for.
fn water_level(mut loads: Vec<f64>, mut budget: f64) -> f64 {
    loads.sort_by(f64::total_cmp);
    for (position, load) in loads.iter().enumerate() {
        let level = budget / (loads.len() - position) as f64;
        if *load > level {
            return level;
        }
        budget -= load;
    }
    f64::INFINITY
}

/// Of loads taken in ascending order, the first with which their sum passes `most`.
fn first_beyond(mut loads: Vec<f64>, most: f64) -> f64 {
    loads.sort_by(f64::total_cmp);
    let mut sum = 0.0;
    let beyond = |load: &f64| {
        sum += load;
        sum > most
    };
    loads.into_iter().find(beyond).unwrap_or(f64::INFINITY)
}

/// A sum that does not depend on the order, not even in its last digit.
fn sum(loads: impl Iterator<Item = f64>) -> f64 {
    let mut loads: Vec<f64> = loads.collect();
    loads.sort_by(f64::total_cmp);
    loads.iter().fold(0.0, |sum, load| sum + load)
}

/// Neither negative nor beyond all reason.
fn sane(value: f64) -> f64 {
    finite(value).max(0.0)
}

fn finite(value: f64) -> f64 {
    const REASON: f64 = 1e9;
    if value.is_nan() {
        0.0
    } else {
        value.clamp(-REASON, REASON)
    }
}

#[cfg(test)]
mod tests;
