//! From what was counted to loads: how busy the operations are, and what the target itself uses.

use std::time::Duration;

use super::{LONGEST_PERIOD, Load, Spent, sane};

/// Seconds of open time that a look takes at least, and the hits that it sees or was to see: less says too little.
const LOOK: f64 = 0.015;
const LOOK_HITS: f64 = 50.0;

/// A look between these parts of the rate believed in is noise, and counts for a quarter.
const NOISE: std::ops::Range<f64> = 0.5..1.5;
const NOISE_WEIGHT: f64 = 0.25;

/// Seconds in which a rate that fell is all but forgotten. One that rose is believed at once.
const DECAY: f64 = 0.5;

/// Seconds in which belief in a rate halves while nothing is seen of its operation, so that what is off is tried again.
const FORGETTING: f64 = 600.0;

/// Seconds over which the target's CPU time is smoothed.
const SMOOTHING: f64 = 5.0;

/// Seconds over which what samplers cost is smoothed: they meet a process now and then.
const SAMPLERS: f64 = 1.0;

/// CPU-seconds that the target may have used before its clock shows any.
const CLOCK_TICK: f64 = 0.01;

/// What was seen of one operation since the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Counted hits.
    pub hits: u64,
    /// How long hits were counted.
    pub open: Duration,
    /// How long hits cost: `open` and the edges.
    pub attached: Duration,
    /// The part of what a hit costs that it did not, since somebody else had the kernel trap anyway.
    pub saved: f64,
}

/// Smooths what was seen.
#[derive(Clone, Debug)]
pub struct Estimator {
    rates: Vec<Rate>,
    own: f64,
    elapsed: f64,
    /// CPU-seconds per second of what no hit costs.
    besides: f64,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    cost: Duration,
    /// CPU-seconds that it cost in the last look.
    cost_seconds: f64,
    hits_per_second: Option<f64>,
    hits: f64,
    open: f64,
    unseen: f64,
}

impl Estimator {
    /// Knows nothing yet of operations with these costs of a hit.
    pub fn new(costs: &[Duration]) -> Self {
        let rate = |&cost| Rate {
            cost,
            cost_seconds: 0.0,
            hits_per_second: None,
            hits: 0.0,
            open: 0.0,
            unseen: 0.0,
        };
        Self {
            rates: costs.iter().map(rate).collect(),
            own: CLOCK_TICK,
            elapsed: 0.0,
            besides: 0.0,
        }
    }

    /// Takes in what was seen in `elapsed`, in which the target used the time `cpu`, probing included, and probing cost so many
    /// CPU-seconds `besides` what the hits cost, which are not of that time: what others do at its request. Returns what probing cost,
    /// for the next plan.
    pub fn observe(
        &mut self,
        elapsed: Duration,
        cpu: Duration,
        besides: f64,
        sights: &[Observation],
    ) -> Spent {
        let seconds = elapsed.as_secs_f64();
        let cost: f64 = self
            .rates
            .iter_mut()
            .zip(sights)
            .map(|(rate, sight)| rate.observe(seconds, sight))
            .sum();
        let own = cpu.as_secs_f64() - cost;
        let kept = (-seconds / SMOOTHING).exp();
        self.own = self.own * kept + own;
        self.elapsed = self.elapsed * kept + seconds;
        if seconds > 0.0 {
            let kept = (-seconds / SAMPLERS).exp();
            self.besides = self.besides * kept + besides / seconds * (1.0 - kept);
        }
        Spent {
            elapsed,
            cost: cost + besides,
            own,
            besides: self.besides,
        }
    }

    /// What each of the loads cost in the last look, in CPU-seconds.
    pub fn costs(&self) -> impl Iterator<Item = f64> {
        self.rates.iter().map(|rate| rate.cost_seconds)
    }

    /// The loads by now.
    pub fn loads(&self) -> Vec<Load> {
        let load = |rate: &Rate| Load {
            hits_per_second: rate.hits_per_second,
            cost: rate.cost,
        };
        self.rates.iter().map(load).collect()
    }

    /// CPU-seconds per second that the target itself uses, without probing.
    pub fn cpu(&self) -> f64 {
        if self.elapsed > 0.0 {
            sane(self.own / self.elapsed)
        } else {
            0.0
        }
    }
}

impl Rate {
    /// Returns the CPU-seconds that the hits cost: those counted, and those that the edges hid.
    fn observe(&mut self, elapsed: f64, sight: &Observation) -> f64 {
        self.hits += sight.hits as f64;
        self.open += sight.open.as_secs_f64();
        self.unseen += elapsed;
        let believed = self.hits_per_second.unwrap_or(f64::INFINITY);
        if self.open >= LOOK && self.hits.max(believed * self.open) >= LOOK_HITS {
            let seen = self.hits / self.open;
            self.hits_per_second = Some(match self.hits_per_second {
                None => seen,
                Some(rate) => rate + self.weight(rate, seen) * (seen - rate),
            });
            (self.hits, self.open, self.unseen) = (0.0, 0.0, 0.0);
        } else if self.unseen > LONGEST_PERIOD {
            let kept = (-elapsed / FORGETTING).exp2();
            self.hits_per_second = self.hits_per_second.map(|rate| rate * kept);
        }
        let hidden = sight.attached.saturating_sub(sight.open).as_secs_f64();
        let hits = sight.hits as f64 + self.hits_per_second.unwrap_or(0.0) * hidden;
        self.cost_seconds = hits * self.cost.as_secs_f64() * (1.0 - sight.saved);
        self.cost_seconds
    }

    /// How much a look counts against what was believed.
    fn weight(&self, rate: f64, seen: f64) -> f64 {
        if seen >= rate * NOISE.end {
            1.0
        } else if seen >= rate * NOISE.start {
            NOISE_WEIGHT
        } else {
            1.0 - (-self.unseen / DECAY).exp()
        }
    }
}
