//! What happened in a simulation, what was told of it, and how far the one was from the other.

use super::*;

/// What happened, and what was told of it.
#[derive(Default)]
pub struct Record {
    /// CPU-seconds in each millisecond: what probing cost, what it was allowed to, and what it would cost if all were attached.
    pub cost: Vec<f64>,
    pub allowed: Vec<f64>,
    pub full: Vec<f64>,
    /// One for each look.
    pub plans: Vec<(f64, Plan)>,
    /// Of each operation.
    pub told: Vec<Told>,
}

/// What is told of one operation.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// How often it was done.
    pub done: f64,
    /// How often it is said to have been.
    pub count: f64,
    pub variance: f64,
    /// The standard error of what probes may take more than is believed, which slices have in common.
    pub doubtful: f64,
    /// In how many slices it was seen, and how many there were.
    pub slices: u32,
    pub cells: u32,
    /// Stretches of half a minute, in whole cells.
    pub intervals: Vec<Interval>,
    /// The one that runs: since when, and what was done before.
    pub interval: Interval,
    pub since: (u64, f64),
    /// How much of it was not sampled and not counted.
    pub missed: f64,
    pub spread: Spread,
}

/// What is told of a stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    pub done: f64,
    pub count: f64,
    pub variance: f64,
    pub cells: u32,
}

/// Milliseconds.
const INTERVAL: u64 = 30_000;

impl Told {
    /// A cell is over, or a stretch in which all was counted.
    pub fn end_stretch(&mut self, now: u64, count: f64, variance: f64, sliced: bool) {
        self.interval.count += count;
        self.interval.variance += variance;
        self.interval.cells += u32::from(sliced);
        if now >= self.since.0 + INTERVAL {
            let interval = std::mem::take(&mut self.interval);
            let done = self.done - self.since.1;
            self.since = (now, self.done);
            self.intervals.push(Interval { done, ..interval });
        }
    }

    /// What is told less what was done, in standard errors of what slices differ by alone.
    pub fn errors_off(&self) -> f64 {
        let off = self.count - self.done;
        off / self.variance.sqrt().max(self.done * 1e-6).max(1e-9)
    }

    /// The standard error that is told of it.
    pub fn error(&self) -> f64 {
        self.variance.sqrt().hypot(self.doubtful)
    }
}

impl Record {
    /// What probing cost, as a share of its budget, in the worst span of so many seconds that begins in `from`.
    pub fn worst(&self, from: std::ops::Range<f64>, span: f64) -> f64 {
        self.worst_but_for(from, span, 0.0)
    }

    /// The same, where so many CPU-seconds do not count in any of them.
    pub fn worst_but_for(&self, from: std::ops::Range<f64>, span: f64, spared: f64) -> f64 {
        let [first, end, span] = [from.start, from.end, span].map(|time| (time * 1e3) as usize);
        let last = end.min(self.cost.len() - span);
        let mut cost: f64 = self.cost[first..first + span].iter().sum();
        let mut allowed: f64 = self.allowed[first..first + span].iter().sum();
        let mut worst = (cost - spared) / allowed;
        for begin in first..last {
            cost += self.cost[begin + span] - self.cost[begin];
            allowed += self.allowed[begin + span] - self.allowed[begin];
            worst = worst.max((cost - spared) / allowed);
        }
        worst
    }

    /// The most CPU-seconds that a slice of so many seconds may cost.
    pub fn costliest(&self, span: f64) -> f64 {
        let span = (span * 1e3) as usize;
        let mut cost: f64 = self.full[..span].iter().sum();
        let mut most = cost;
        for begin in 0..self.full.len() - span {
            cost += self.full[begin + span] - self.full[begin];
            most = most.max(cost);
        }
        most
    }

    /// What probing cost from a time on, as a share of its budget.
    pub fn mean(&self, from: f64) -> f64 {
        let first = (from * 1e3) as usize;
        let cost: f64 = self.cost[first..].iter().sum();
        let allowed: f64 = self.allowed[first..].iter().sum();
        cost / allowed
    }

    /// The plans made from a time on.
    pub fn plans(&self, from: f64) -> impl Iterator<Item = &Plan> {
        let later = self.plans.iter().filter(move |(at, _)| *at >= from);
        later.map(|(_, plan)| plan)
    }

    /// How often the attachment of the operation that changed most did, from a time on.
    pub fn changes(&self, from: f64) -> usize {
        let plans: Vec<&Plan> = self.plans(from).collect();
        let changes = |i: usize| {
            let differs = |pair: &&[&Plan]| pair[0].attachments[i] != pair[1].attachments[i];
            plans.windows(2).filter(differs).count()
        };
        let operations = plans[0].attachments.len();
        (0..operations).map(changes).max().unwrap_or_default()
    }
}
