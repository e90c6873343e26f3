//! What is measured, as numbers that merge: the one algebra of agents, operator and command line.
//!
//! A figure is one of four things, by how two of them become one: a sum adds, a maximum keeps the greater, a level is the
//! newest of a target and adds up over targets, and a distribution is a histogram with its sum. Everything else that is
//! shown (rates, quantiles, ratios) is made from these where it is shown.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Histogram, Variance};

/// A measure's name, as its kind's descriptor spells it.
pub type Name = Cow<'static, str>;

/// How many measures of one sort a row has at the most; no kind has more than half as many.
pub const MAX_MEASURES: usize = 24;

/// Figures by the name of the measure. One that is not there is not known, which is not the same as zero.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// What adds up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_MEASURES))]
    pub sums: BTreeMap<Name, u64>,
    /// What was largest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_MEASURES))]
    pub maxima: BTreeMap<Name, u64>,
    /// How things stand: the newest of each target, added up over targets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_MEASURES))]
    pub levels: BTreeMap<Name, u64>,
    /// How values are distributed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_MEASURES))]
    pub distributions: BTreeMap<Name, Distribution>,
    /// Of what was sampled: the variance of each sum, and of how many values a distribution has. They add, as the counts do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_MEASURES))]
    pub variances: BTreeMap<Name, Variance>,
}

/// Values of one sort.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Distribution {
    /// How many there were of each size.
    #[serde(default)]
    pub histogram: Histogram,
    /// All of them added, in the measure's unit.
    #[serde(default)]
    pub sum: u64,
    /// How many were counted and not measured: in no bucket and not in the sum.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmeasured: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What rounding has left over, so that it is not lost again and again: a slice of one call may stand for one and a half.
#[derive(Clone, Debug, Default)]
pub struct Remainders {
    sums: BTreeMap<Name, f64>,
    measured: BTreeMap<Name, f64>,
    unmeasured: BTreeMap<Name, f64>,
}

impl Distribution {
    /// How many values there were, measured or not.
    pub fn count(&self) -> u64 {
        self.histogram.count().saturating_add(self.unmeasured)
    }

    /// Adds another's values: exact, associative and commutative.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            histogram,
            sum,
            unmeasured,
        } = other;
        self.histogram.merge(histogram);
        self.sum = self.sum.saturating_add(*sum);
        self.unmeasured = self.unmeasured.saturating_add(*unmeasured);
    }

    /// What was added since `earlier` was taken of the same one.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            histogram: self.histogram.since(&earlier.histogram),
            sum: self.sum.saturating_sub(earlier.sum),
            unmeasured: self.unmeasured.saturating_sub(earlier.unmeasured),
        }
    }
}

impl Figures {
    /// Adds those of another target: associative and commutative, with nothing as its identity.
    pub fn merge(&mut self, other: &Self) {
        self.merge_flows(other);
        for (name, level) in &other.levels {
            add(&mut self.levels, name, *level);
        }
    }

    /// Adds what the same target did afterwards: as [`Self::merge`], but the newer levels replace the older.
    pub fn follow(&mut self, later: &Self) {
        self.merge_flows(later);
        for (name, level) in &later.levels {
            change(&mut self.levels, name, |held| *held = *level);
        }
    }

    fn merge_flows(&mut self, other: &Self) {
        for (name, sum) in &other.sums {
            add(&mut self.sums, name, *sum);
        }
        for (name, maximum) in &other.maxima {
            change(&mut self.maxima, name, |held| *held = (*held).max(*maximum));
        }
        for (name, distribution) in &other.distributions {
            change(&mut self.distributions, name, |held| {
                held.merge(distribution)
            });
        }
        for (name, variance) in &other.variances {
            change(&mut self.variances, name, |held| *held += *variance);
        }
    }

    /// Forgets how values were distributed: how many there were, and their sum, is as it was.
    pub fn forget_distribution(&mut self) {
        for distribution in self.distributions.values_mut() {
            *distribution = Distribution {
                histogram: Histogram::default(),
                sum: distribution.sum,
                unmeasured: distribution.count(),
            };
        }
    }

    /// What was added since `earlier` was taken of the same figures. Maxima and levels are those of now.
    pub fn since(&self, earlier: &Self) -> Self {
        let sums = self.sums.iter().map(|(name, sum)| {
            let before = earlier.sums.get(name).copied().unwrap_or_default();
            (name.clone(), sum.saturating_sub(before))
        });
        let none = Distribution::default();
        let distributions = self.distributions.iter().map(|(name, values)| {
            let before = earlier.distributions.get(name).unwrap_or(&none);
            (name.clone(), values.since(before))
        });
        let variances = self.variances.iter().map(|(name, variance)| {
            let before = earlier.variances.get(name).copied().unwrap_or_default();
            (name.clone(), variance.since(before))
        });
        let variances = variances.filter(|(_, variance)| !variance.is_zero());
        Self {
            sums: sums.collect(),
            maxima: self.maxima.clone(),
            levels: self.levels.clone(),
            distributions: distributions.collect(),
            variances: variances.collect(),
        }
    }

    /// So many times the same: sums and distributions. What is taken once is as it was, whatever was left over; maxima and
    /// levels stand for themselves, and how far to trust it is for who knows where it is from to say.
    pub fn scale(&self, weight: f64, left: &mut Remainders) -> Self {
        if weight == 1.0 {
            return self.clone();
        }
        let sums = self.sums.iter().map(|(name, sum)| {
            let left = left.sums.entry(name.clone()).or_default();
            (name.clone(), scaled(*sum, weight, left))
        });
        let sums = sums.collect();
        let distributions = self.distributions.iter().map(|(name, values)| {
            let measured = left.measured.entry(name.clone()).or_default();
            let histogram = scale_histogram(&values.histogram, weight, measured);
            let unmeasured = left.unmeasured.entry(name.clone()).or_default();
            let distribution = Distribution {
                histogram,
                sum: scaled(values.sum, weight, &mut 0.0),
                unmeasured: scaled(values.unmeasured, weight, unmeasured),
            };
            (name.clone(), distribution)
        });
        Self {
            sums,
            maxima: self.maxima.clone(),
            levels: self.levels.clone(),
            distributions: distributions.collect(),
            variances: self.variances.clone(),
        }
    }

    /// The names of what can be counted.
    pub fn measures(&self) -> impl Iterator<Item = &Name> {
        self.sums.keys().chain(self.distributions.keys())
    }

    /// The standard error of a count, as a part of it; 0 where all was seen, and infinite where the count is the least that there was.
    /// None where nothing was counted, and nothing left out.
    pub fn relative_error(&self, measure: &str) -> Option<f64> {
        let count = self.count(measure)?;
        let variance = self.variances.get(measure).copied().unwrap_or_default();
        let deviation = variance.deviation();
        (count > 0 || deviation.is_infinite()).then(|| deviation / count as f64)
    }

    /// What was counted is the least that there was: nobody knows how much was not.
    pub fn leave_out(&mut self) {
        let names: Vec<Name> = self.measures().cloned().collect();
        let unknown = |name| (name, Variance::UNKNOWN);
        self.variances.extend(names.into_iter().map(unknown));
    }

    /// How much there was of a sum, or how many values of a distribution.
    pub fn count(&self, measure: &str) -> Option<u64> {
        let sum = || self.sums.get(measure).copied();
        let values = self.distributions.get(measure).map(Distribution::count);
        values.or_else(sum)
    }

    /// Whether anything was counted.
    pub fn is_idle(&self) -> bool {
        self.sums.values().all(|sum| *sum == 0)
            && self.levels.values().all(|level| *level == 0)
            && self
                .distributions
                .values()
                .all(|values| values.count() == 0)
    }
}

fn add(to: &mut BTreeMap<Name, u64>, name: &Name, more: u64) {
    change(to, name, |held| *held = held.saturating_add(more));
}

/// Changes what there is of this name, which is copied only where it is new: intervals that follow each other have the same.
fn change<Of: Default>(to: &mut BTreeMap<Name, Of>, name: &Name, by: impl FnOnce(&mut Of)) {
    match to.get_mut(name) {
        Some(held) => by(held),
        None => by(to.entry(name.clone()).or_default()),
    }
}

/// So many times a number, rounded with what was left over before; what is left over now is handed on.
fn scaled(value: u64, weight: f64, left: &mut f64) -> u64 {
    let due = value as f64 * weight + *left;
    let given = due.round().max(0.0);
    *left = due - given;
    given as u64
}

/// Rounds the running sum and not each bucket, so that the number of values is off by less than one.
fn scale_histogram(histogram: &Histogram, weight: f64, left: &mut f64) -> Histogram {
    let (mut seen, mut given) = (0, 0);
    let before = *left;
    let scaled = histogram
        .iter()
        .map(|(bucket, count)| {
            seen += count;
            let due = (seen as f64 * weight + before).round().max(0.0) as u64;
            (bucket, due - std::mem::replace(&mut given, due))
        })
        .collect();
    *left += seen as f64 * weight - given as f64;
    scaled
}

#[cfg(test)]
mod tests;
