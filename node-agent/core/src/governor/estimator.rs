//! From what was counted to loads: how busy the operations are, and what the target itself uses, by process time.

use std::time::Duration;

use libm::{exp, exp2};

use super::{LONGEST_PERIOD, Load, ProcessTime, Spent, sane};

/// Seconds of open time that a look takes at least, and the hits that it sees or was to see: less says too little.
const LOOK: f64 = 0.015;
const LOOK_HITS: f64 = 50.0;

/// A look between these parts of the rate believed in is noise, and counts for a quarter; and so does a slice that finds more.
const NOISE: std::ops::Range<f64> = 0.5..1.5;
const NOISE_WEIGHT: f64 = 0.25;

/// Seconds of being counted in which a rate that fell is all but forgotten: of a target that works in bursts, many a slice finds
/// nothing. That what is always attached rose is believed at once.
const DECAY: f64 = 0.5;

/// Seconds on the wall in which it is too.
const SLOW_DECAY: f64 = 30.0;

/// Seconds in which belief in a rate halves while nothing is seen of its operation, so that what is off is tried again.
const FORGETTING: f64 = 600.0;

/// Seconds of process time and on the wall, once or twice, in which an operation is remembered to have been busy: a target that works
/// in bursts is not attached to for good between any two of them. And how long it is remembered of one that hardly works.
const REMEMBERED: f64 = 1.0;
const REMEMBERED_AT_LEAST: f64 = 15.0;
const REMEMBERED_AT_MOST: f64 = 120.0;

/// The part of the CPU time that is the target's own at least, over [`BELIEVED`] CPU-seconds, whatever probing is believed to cost:
/// many programs on one function cost less than as many on as many. And that of any look.
const LEAST_OWN: f64 = 0.25;
const LEAST_OF_A_LOOK: f64 = 0.02;

/// Seconds on the wall in which it is found out whether probing can cost what it is believed to.
const BELIEVED: f64 = 10.0;

/// Hits that say enough however soon they came, and CPU-seconds that they cost then: of what tells its own cost a hit is a nanosecond, and
/// a single event is thousands of them.
const MANY_HITS: f64 = 1000.0;
const MANY_COST: f64 = 1e-3;

/// Seconds over which what samplers cost is smoothed: they meet a process now and then.
const SAMPLERS: f64 = 1.0;

/// What was seen of one operation since the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Counted hits.
    pub hits: u64,
    /// How long hits were counted, on the wall: of what passes between two looks, process time passes evenly.
    pub open: Duration,
    /// How long hits cost: `open` and the edges.
    pub attached: Duration,
    /// The part of what a hit costs that it did not, since somebody else had the kernel trap anyway.
    pub saved: f64,
    /// Whether it is attached in slices: then a busy one among them is paid for by later ones, and not by taking it off at once.
    pub sliced: bool,
}

/// Smooths what was seen.
#[derive(Clone, Debug)]
pub struct Estimator {
    rates: Vec<Rate>,
    time: ProcessTime,
    /// CPU-seconds per second of what no hit costs.
    besides: f64,
    /// CPU-seconds that were used, and that probing is believed to have cost of them: both are forgotten.
    used: f64,
    counted: f64,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    cost: Duration,
    /// CPU-seconds that it cost in the last look.
    cost_seconds: f64,
    hits_per_second: Option<f64>,
    /// What it is taken for until there was a look at it, in hits per second on the wall.
    foreseen: Option<f64>,
    /// The greatest rate of late.
    peak: Peak,
    hits: f64,
    open: f64,
    unseen: f64,
}

/// The greatest of a time that is remembered once or twice over.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    now: f64,
    before: f64,
    /// Seconds on the wall, and of process time.
    age: (f64, f64),
}

impl Peak {
    fn pass(&mut self, elapsed: f64, passed: f64, rate: f64) {
        self.age.0 += elapsed;
        self.age.1 += passed;
        let (wall, time) = self.age;
        if wall > REMEMBERED_AT_LEAST && time > REMEMBERED || wall > REMEMBERED_AT_MOST {
            // After a gap in which nobody looked nothing is remembered.
            let gap = wall > 2.0 * REMEMBERED_AT_MOST;
            self.before = if gap { 0.0 } else { self.now };
            (self.now, self.age) = (0.0, (0.0, 0.0));
        }
        self.now = self.now.max(rate);
    }

    fn get(&self) -> f64 {
        self.now.max(self.before)
    }
}

impl Estimator {
    /// Knows nothing yet of operations with these costs of a hit.
    pub fn new(costs: &[Duration]) -> Self {
        let rate = |&cost| Rate {
            cost,
            cost_seconds: 0.0,
            hits_per_second: None,
            foreseen: None,
            peak: Peak::default(),
            hits: 0.0,
            open: 0.0,
            unseen: 0.0,
        };
        Self {
            rates: costs.iter().map(rate).collect(),
            time: ProcessTime::default(),
            besides: 0.0,
            used: 0.0,
            counted: 0.0,
        }
    }

    /// The same, where of some operations it is foreseen how often a second they are hit on the wall: they are taken to be as busy until they
    /// were looked at.
    #[must_use]
    pub fn foreseeing(mut self, rates: &[Option<f64>]) -> Self {
        for (rate, foreseen) in self.rates.iter_mut().zip(rates) {
            rate.foreseen = *foreseen;
        }
        self
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
        let (speed, duty) = (self.time.speed(), self.time.duty());
        let parts = |sight: &Observation| {
            let part = |time: Duration| {
                let seconds = seconds.max(1e-9);
                (time.as_secs_f64() / seconds).min(2.0)
            };
            (part(sight.open), part(sight.attached))
        };
        // What was counted cost so much, and what the edges hid costs in proportion to what the target did.
        let counted = self
            .rates
            .iter()
            .zip(sights)
            .map(|(rate, sight)| rate.counted(sight));
        let counted: f64 = counted.sum();
        let hidden = self.rates.iter().zip(sights).map(|(rate, sight)| {
            let (open, attached) = parts(sight);
            rate.hidden(sight, duty) * (attached - open).max(0.0) / speed
        });
        let hidden: f64 = hidden.sum();
        let used = cpu.as_secs_f64();
        let kept = exp(-seconds / BELIEVED);
        self.used = self.used * kept + used;
        self.counted = self.counted * kept + counted;
        let possible = (self.used * (1.0 - LEAST_OWN) / self.counted.max(1e-12)).min(1.0);
        let own = (used - counted * possible) / (1.0 + hidden * possible);
        let own = own.max(used * LEAST_OF_A_LOOK);
        let passed = self.time.advance(seconds, own, used - own);
        for (rate, sight) in self.rates.iter_mut().zip(sights) {
            rate.observe(seconds, passed, sight, parts(sight).0 * passed);
        }
        let hidden = self.rates.iter().zip(sights).map(|(rate, sight)| {
            let (open, attached) = parts(sight);
            rate.hidden(sight, duty) * (attached - open).max(0.0) * passed
        });
        let hidden: Vec<f64> = hidden.collect();
        // The target has not paid more than it used for what nobody counted: its time goes on a little while it is idle.
        let paid = (used / hidden.iter().sum::<f64>().max(1e-12)).min(1.0);
        for ((rate, sight), hidden) in self.rates.iter_mut().zip(sights).zip(hidden) {
            rate.cost_seconds = rate.counted(sight) + hidden * paid;
        }
        let cost: f64 = self.costs().sum();
        if seconds > 0.0 {
            let kept = exp(-seconds / SAMPLERS);
            self.besides = self.besides * kept + besides / seconds * (1.0 - kept);
        }
        Spent {
            elapsed: Duration::from_secs_f64(passed.min(1e6)),
            cost: cost + besides,
            own,
            floor: 0.0,
            besides: self.besides / self.time.duty(),
        }
    }

    /// What each of the loads cost in the last look, in CPU-seconds.
    pub fn costs(&self) -> impl Iterator<Item = f64> {
        self.rates.iter().map(|rate| rate.cost_seconds)
    }

    /// The loads by now.
    pub fn loads(&self) -> Vec<Load> {
        let duty = self.time.duty();
        let load = |rate: &Rate| Load {
            hits_per_second: rate.believed(duty),
            peak: rate.peak.get(),
            cost: rate.cost,
        };
        self.rates.iter().map(load).collect()
    }

    /// The target's own time.
    pub fn time(&self) -> &ProcessTime {
        &self.time
    }

    /// CPU-seconds per second of process time that the target itself uses, without probing.
    pub fn cpu(&self) -> f64 {
        sane(self.time.speed())
    }
}

impl Rate {
    /// CPU-seconds that the counted hits cost.
    fn counted(&self, sight: &Observation) -> f64 {
        sight.hits as f64 * self.cost.as_secs_f64() * (1.0 - sight.saved)
    }

    /// CPU-seconds a second of process time that hits cost which nobody counts.
    fn hidden(&self, sight: &Observation, duty: f64) -> f64 {
        let rate = self.believed(duty).unwrap_or(0.0);
        rate * self.cost.as_secs_f64() * (1.0 - sight.saved)
    }

    /// How often it is hit in a second of process time, which makes up that part of the time on the wall; None where nobody knows.
    fn believed(&self, duty: f64) -> Option<f64> {
        let foreseen = self.foreseen.map(|on_the_wall| on_the_wall / duty);
        self.hits_per_second.or(foreseen)
    }

    /// Takes in what was seen in `open` of the `passed` seconds of process time; `elapsed` are those on the wall.
    fn observe(&mut self, elapsed: f64, passed: f64, sight: &Observation, open: f64) {
        // What is counted while probes come and go costs, and happened in no time that anybody knows.
        if !sight.open.is_zero() {
            self.hits += sight.hits as f64;
        }
        self.open += open;
        self.unseen += elapsed;
        let believed = self.hits_per_second.unwrap_or(f64::INFINITY);
        let known = self.open >= LOOK && self.hits.max(believed * self.open) >= LOOK_HITS;
        let many = MANY_HITS.max(MANY_COST / self.cost.as_secs_f64().max(1e-9));
        if known || (self.open > 0.0 && self.hits >= many) {
            let seen = self.hits / self.open;
            self.hits_per_second = Some(match self.hits_per_second {
                None => seen,
                Some(rate) => rate + self.weight(rate, seen, sight.sliced) * (seen - rate),
            });
            (self.hits, self.open, self.unseen) = (0.0, 0.0, 0.0);
        } else if self.unseen > LONGEST_PERIOD {
            let kept = exp2(-elapsed / FORGETTING);
            let forgotten = |rate: Option<f64>| rate.map(|rate| rate * kept);
            self.hits_per_second = forgotten(self.hits_per_second);
            self.foreseen = forgotten(self.foreseen);
        }
        self.peak
            .pass(elapsed, passed, self.hits_per_second.unwrap_or(0.0));
    }

    /// How much a look counts against what was believed.
    fn weight(&self, rate: f64, seen: f64, sliced: bool) -> f64 {
        if seen >= rate * NOISE.end && !sliced {
            1.0
        } else if seen >= rate * NOISE.start {
            NOISE_WEIGHT
        } else {
            1.0 - exp(-self.open / DECAY - self.unseen / SLOW_DECAY)
        }
    }
}
