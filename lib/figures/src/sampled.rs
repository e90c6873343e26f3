//! How far to trust a figure that was made of slices: its variance, from how much slices differ.
//!
//! Time is cut into cells with one slice in each, at a random place ([`SliceShape`]). What a slice counted, times its weight, is an
//! unbiased estimate of what its cell did; and since the places are drawn apart from each other, the variances of cells add. A
//! single slice does not tell its own. Calls within a slice are no independent sample: they come in bursts, so slices are the units,
//! and a slice differs from the next one of its length by as much as chance makes them differ, and by what the load has changed
//! meanwhile, which between neighbours is little (successive differences: Wolter, *Introduction to Variance Estimation*, ch. 8).

mod outliers;

use std::{borrow::Cow, ops::AddAssign};

use outliers::Outliers;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Pairs of slices that are remembered, about.
const MEMORY: f64 = 32.0;

/// Fewer pairs say too little. Of six slices, which are few enough for what they stand for to wait, there are as many whatever their
/// lengths are.
const FEW: f64 = 4.0;

/// As if so many more slices had met what few do: of a Poisson variable of few, so many more are in the variance for 1.96 of its roots to be 95 %.
const OUTLYING: f64 = 1.8;

/// The square of a standard error. A whole number, so that adding is exact, whatever the order.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Variance(f64);

// Neither made nor read from anything that is no number.
impl Eq for Variance {}

/// Beyond any that is known, which stay below it also where many add up.
const UNKNOWN: f64 = 1e300;
const MOST_KNOWN: f64 = 1e280;

impl Variance {
    /// Nobody knows: what was counted is the least that there was, and there may have been any number more.
    pub const UNKNOWN: Self = Self(UNKNOWN);

    /// Rounded up; what is no number is none.
    pub fn new(value: f64) -> Self {
        Self(if value.is_finite() && value > 0.0 {
            value.ceil().min(MOST_KNOWN)
        } else {
            0.0
        })
    }

    /// The standard error; infinite where it is not known.
    pub fn deviation(self) -> f64 {
        if self.0 >= UNKNOWN {
            f64::INFINITY
        } else {
            self.0.max(0.0).sqrt()
        }
    }

    /// Whether there is none.
    pub fn is_zero(self) -> bool {
        self.0 <= 0.0
    }

    /// What was added since.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self((self.0 - earlier.0).max(0.0))
    }
}

impl AddAssign for Variance {
    fn add_assign(&mut self, other: Self) {
        self.0 = (self.0.max(0.0) + other.0.max(0.0)).min(UNKNOWN);
    }
}

impl JsonSchema for Variance {
    fn schema_name() -> Cow<'static, str> {
        "Variance".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "number",
            "minimum": 0,
            "description": "The square of the standard error of a sampled count.",
        })
    }
}

/// A slice and its cell, in seconds, as they were drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SliceShape {
    /// How long it counted.
    pub open: f64,
    /// How long its cell is.
    pub cell: f64,
    /// Whether it is one of the long ones: those differ less.
    pub long: bool,
}

impl SliceShape {
    /// How many times itself it stands for.
    pub fn weight(&self) -> f64 {
        (self.cell / self.open.max(1e-9)).max(1.0)
    }
}

/// How long a slice lasted, and what was before it, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lasted {
    /// The slice.
    pub slice: Passed,
    /// What passed since the last one.
    pub before: Passed,
    /// What probes are believed to have taken in the slice, besides the process's own time.
    pub probing: f64,
}

/// A stretch of time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passed {
    /// Of the process's own time.
    pub own: f64,
    /// On the wall.
    pub wall: f64,
}

impl Passed {
    /// Adds another.
    pub fn add(&mut self, more: Self) {
        self.own += more.own;
        self.wall += more.wall;
    }

    /// Whether the process worked in it: otherwise its own time passes now and then, and how fast is chance.
    fn is_work(&self) -> bool {
        self.own > 0.0 && self.wall > 0.0 && self.wall <= self.own * WORKS
    }
}

/// How long slices lasted, beside how long they were drawn to.
///
/// Whoever begins and ends a slice is late for both, and not alike where the machine has no processor to spare. What cannot be helped is
/// known: how much of the process's time there was, and how much of it the slices say that there was. What they say of all else is
/// off by the same, and is set right by the ratio of the two (a ratio estimator: Cochran, *Sampling Techniques*, ch. 6). Of few slices, and of
/// bursts, that ratio is chance: it made totals 5 % too high in the first minute, and differ by half as much again. So it is shrunk towards 1
/// by as much as it is not certain.
///
/// The time on the wall is known as well. Where probes cost more than they are believed to, what they take besides is taken for the process's
/// own time, which passes faster in slices than between them, of a process that has time to spare; so slices are over sooner, and what they
/// count is taken more often. How fast it passes is compared with what was just before, and only where the process worked, so that loads
/// that come in bursts say it, too. Of a process that is busy to the limit nothing is seen, and nothing of bursts that are over before
/// anybody looks: there it is a [doubt](Self::doubt).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Balance {
    own: Ratio,
    speed: Ratio,
    /// Of the last [`LATENESS`] slices, about: what probes are believed to have taken, and what the process took itself.
    probing: (f64, f64),
}

/// Of the last [`LATENESS`] slices, about: how much there was in their cells, what they say that there was, and by how much they differ from
/// that, squared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ratio {
    there: f64,
    told: f64,
    scatter: f64,
}

/// Slices in which it is forgotten how long they lasted.
const LATENESS: f64 = 128.0;

/// A ratio beyond this says that slices were too few, or something is wrong.
const MOST: f64 = 4.0;

/// Standard errors that chance makes two ratios differ by.
const CHANCE: f64 = 2.0;

/// A process works if no more time on the wall passes than this, by its own.
const WORKS: f64 = 1.25;

/// And what probes cost is not believed to be that much more than it was found to be.
const MOST_HIDDEN: f64 = 1.3;

/// The standard error of what a probed call is believed to cost, as a part of it. Where the processor slept before the call it costs half as
/// much again as where calibration has it: two standard errors.
const COST_ERROR: f64 = 0.25;

impl Ratio {
    fn observe(&mut self, there: f64, told: f64) {
        let kept = 1.0 - 1.0 / LATENESS;
        self.there = self.there * kept + there;
        self.told = self.told * kept + told;
        self.scatter = self.scatter * kept * kept + (told - there).powi(2);
    }

    /// 1 where nothing is known.
    fn value(&self) -> f64 {
        if self.there > 0.0 {
            (self.there / self.told.max(1e-9)).clamp(1.0 / MOST, MOST)
        } else {
            1.0
        }
    }

    /// What it may be off by for chance alone.
    fn chance(&self) -> f64 {
        CHANCE * self.scatter.sqrt() / self.there.max(1e-9)
    }

    /// The standard error of the ratio; None where nothing was seen. Where what is the process's own passes slower than before, the process
    /// has no time to spare, and as much may be hidden.
    fn doubt(&self) -> Option<f64> {
        (self.there > 0.0).then(|| self.chance() / CHANCE + (1.0 - self.value()).max(0.0))
    }

    /// By how much it is more than [what is certain of it](Self::certain).
    fn held_back(&self) -> f64 {
        (self.value() - self.certain()).max(0.0)
    }

    /// The ratio, so far as it is not what chance makes of it: of bursts a few slices meet much or little, and a total that was set right by
    /// that would be off by more.
    fn certain(&self) -> f64 {
        let off = self.value() - 1.0;
        let doubt = (self.chance() / off.abs().max(1e-9)).powi(2);
        1.0 + off * (1.0 - doubt).max(0.0)
    }
}

impl Balance {
    /// A slice lasted so long: what it counted is to be taken so many times.
    pub fn observe(&mut self, slice: &SliceShape, lasted: &Lasted) -> f64 {
        let own = lasted.slice.own.max(0.0);
        self.own.observe(slice.cell, slice.weight() * own);
        let kept = 1.0 - 1.0 / LATENESS;
        self.probing.0 = self.probing.0 * kept + lasted.probing.max(0.0);
        self.probing.1 = self.probing.1 * kept + own;
        if lasted.slice.is_work() && lasted.before.is_work() {
            let as_before = lasted.before.own / lasted.before.wall * lasted.slice.wall;
            self.speed.observe(own, as_before);
        }
        self.factor()
    }

    /// How many times what a slice counts is to be taken: once, before anything is known.
    pub fn factor(&self) -> f64 {
        self.own.certain() * self.speed.certain().clamp(1.0, MOST_HIDDEN)
    }

    /// The standard error of that, as a part of it, for what probes really take: as much of what is believed as calibration may be off by, or
    /// of what is seen as is chance, whichever is less; but no less than what is seen that they take more, and is not believed yet since slices are
    /// few. It is the same of one slice and of the next, so it does not fall with their number.
    pub fn doubt(&self) -> f64 {
        let (probing, own) = self.probing;
        if own <= 0.0 {
            return 0.0;
        }
        let believed = COST_ERROR * probing / own;
        let doubt = self.speed.doubt();
        let doubt = doubt.map_or(believed, |seen| seen.min(believed));
        doubt.max(self.speed.held_back())
    }
}

/// How much slices differ, in one measure of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Of the last slice of either length: how much a second. And of the one before it.
    last: [Option<f64>; 2],
    before: [Option<f64>; 2],
    /// Half of the squared differences of two, on the average.
    scatter: [Mean; 2],
    /// And whether few slices make up most of that.
    outliers: [Outliers; 2],
    /// How much a second, on the average.
    rate: Mean,
    /// The squared cells of slices before it was known how much they differ.
    unproven: f64,
    /// Whether what comes up late is told at once, and not only when it is known how much slices differ.
    at_once: bool,
    /// What [`Self::cut`] would have said of a rate of 1 before any was known.
    uncertain: f64,
}

/// An average of about the last [`MEMORY`] values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    value: f64,
    values: f64,
}

impl Mean {
    fn take(&mut self, value: f64) {
        self.values = (self.values + 1.0).min(MEMORY);
        self.value += (value - self.value) / self.values;
    }
}

impl Spread {
    /// Of something that slices before did not see.
    pub fn of_unseen() -> Self {
        Self {
            last: [Some(0.0); 2],
            at_once: true,
            ..Self::default()
        }
    }

    /// A slice saw so much: the variance of what it says of its cell, and of what those said of theirs that were before anything was
    /// known.
    pub fn observe(&mut self, seen: f64, slice: &SliceShape) -> f64 {
        let rate = seen / slice.open.max(1e-9);
        let length = usize::from(slice.long);
        if let Some(last) = self.last[length].replace(rate) {
            self.scatter[length].take((rate - last).powi(2) / 2.0);
            if let Some(before) = self.before[length].replace(last) {
                self.outliers[length].take([before, last, rate]);
            }
        }
        self.rate.take(rate);
        let cut = std::mem::take(&mut self.uncertain) * rate * rate;
        let unseen = 1.0 - 1.0 / slice.weight();
        self.unproven += slice.cell * slice.cell * unseen;
        let Some(scatter) = self.scatter(length) else {
            return cut;
        };
        scatter * std::mem::take(&mut self.unproven) + cut
    }

    /// By slices of this length, or of both where there were few of it; None where there were few of both.
    fn scatter(&self, length: usize) -> Option<f64> {
        let [own, other] = [self.scatter[length], self.scatter[1 - length]];
        let both = own.values + other.values;
        let outliers = self.outliers[length];
        let (value, pairs, outliers) = if own.values >= FEW {
            (own.value, own.values, outliers)
        } else if both >= FEW || self.at_once && both > 0.0 {
            let all = own.value * own.values + other.value * other.values;
            (all / both, both, outliers.and(self.outliers[1 - length]))
        } else {
            return None;
        };
        Some(value * (few(pairs) + OUTLYING * outliers.few()))
    }

    /// Only this part of a cell passed: what it adds that its slice was in that part, or was not, as chance would have it. Much of the load
    /// may be of late: of a load that rises cells become longer, so that there are few slices of that, and the cell that is cut off is the longest.
    pub fn cut(&mut self, part: f64, cell: f64) -> f64 {
        let uncertain = cell * cell * part * (1.0 - part);
        if self.rate.values < 1.0 {
            // It will be known: the slice of this cell, or of the next, tells.
            self.uncertain += uncertain;
        }
        let late = self.last.into_iter().flatten();
        late.fold(self.rate.value, f64::max).powi(2) * uncertain
    }
}

/// How many times the variance of so many pairs is to be taken, for 1.96 errors to be 95 % of them: what few say of it is often too
/// little (Student's distribution; neighbouring pairs share a slice, so three are as good as two).
fn few(pairs: f64) -> f64 {
    1.0 + 3.6 / pairs
}

#[cfg(test)]
mod tests;
