//! A row over any number of targets: what statuses, headlines and tables are made from.
//!
//! Rates and quantiles are those of the last report interval of the targets that are attached now. Totals are of every
//! target that reported, also of one whose agent is silent: a counter does not go back because nobody speaks.
//!
//! Agents scale what they sampled by elapsed over recorded time, so merging is adding, whether or not anything was sampled.
//! An interval in which nothing was recorded says nothing of its time: it counts in the share, and not as a rate of zero. Nor is
//! there a rate of zero of what was sampled, and of which no slice saw anything: there may have been some of it. So what is merged with
//! such a one is the least that there was, and no anomaly of that which was seen.
//!
//! Counts of several targets add, and so do their variances, since no target's slices are drawn with regard to another's.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Figures, IntervalFigures, Name, Share};

/// Something that can be made of a row's figures. Each names a measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// How many per second, in the last report interval.
    Rate(&'static str),
    /// How many since the agent attached.
    Total(&'static str),
    /// How many in the last report interval.
    Recent(&'static str),
    /// The largest of the last report interval.
    Maximum(&'static str),
    /// How it stands.
    Level(&'static str),
    /// A quantile (0 to 1) of the last report interval.
    Quantile(&'static str, f64),
    /// The first in percent of the second, both of the last report interval.
    Percent(&'static str, &'static str),
    /// How many of the first there were for each of the second, both of the last report interval.
    Each(&'static str, &'static str),
    /// The same since the agent attached.
    EachInAll(&'static str, &'static str),
    /// The first in percent of the second, both levels.
    Portion(&'static str, &'static str),
}

impl Value {
    /// The measure that it is made of.
    pub fn measure(self) -> &'static str {
        match self {
            Self::Rate(measure)
            | Self::Total(measure)
            | Self::Recent(measure)
            | Self::Maximum(measure)
            | Self::Level(measure)
            | Self::Quantile(measure, _)
            | Self::Percent(measure, _)
            | Self::Each(measure, _)
            | Self::EachInAll(measure, _)
            | Self::Portion(measure, _) => measure,
        }
    }
}

/// A row of many targets. Merging two is associative and commutative, but for the last bit of the rates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    total: Figures,
    recent: Figures,
    rates: BTreeMap<Name, f64>,
    share: Share,
    samples: u64,
    /// Measures of which nothing was seen in the last report interval of a target, or of a row, that is merged in here.
    unseen: BTreeSet<Name>,
}

impl Summary {
    /// That of one report; `live` when its window is of now.
    pub fn of(total: &Figures, window: &IntervalFigures, live: bool) -> Self {
        let mut summary = Self {
            total: total.clone(),
            ..Self::default()
        };
        if !live {
            // A level that nobody sees any more is not how things stand.
            summary.total.levels.clear();
            return summary;
        }
        summary.share = Share::of(window);
        summary.samples = window.samples;
        summary.unseen = unseen(total, window).cloned().collect();
        if summary.share.is_known() {
            summary.rates = rates(window)
                .map(|(name, rate)| (name.clone(), rate))
                .collect();
            summary.recent = window.figures.clone();
        }
        summary
    }

    /// Adds one more report: as merging [`Self::of`] it, without the copy.
    pub fn add(&mut self, total: &Figures, window: &IntervalFigures, live: bool) {
        if !live {
            return self.merge(&Self::of(total, window, live));
        }
        self.total.merge(total);
        let share = Share::of(window);
        self.share.merge(&share);
        self.samples = self.samples.saturating_add(window.samples);
        self.unseen.extend(unseen(total, window).cloned());
        if share.is_known() {
            for (name, rate) in rates(window) {
                *self.rates.entry(name.clone()).or_default() += rate;
            }
            self.recent.merge(&window.figures);
        }
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            total,
            recent,
            rates,
            share,
            samples,
            unseen,
        } = other;
        self.total.merge(total);
        self.recent.merge(recent);
        for (name, rate) in rates {
            *self.rates.entry(name.clone()).or_default() += rate;
        }
        self.share.merge(share);
        self.samples = self.samples.saturating_add(*samples);
        self.unseen.extend(unseen.iter().cloned());
    }

    /// In how much of the last report interval it was recorded.
    pub fn share(&self) -> Share {
        self.share
    }

    /// How many values the figures of the last report interval rest on.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Whether the measure is a distribution.
    pub fn is_distribution(&self, measure: &str) -> bool {
        self.total.distributions.contains_key(measure)
            || self.recent.distributions.contains_key(measure)
    }

    /// A value, in the measure's unit; None where it is not known.
    pub fn value(&self, value: Value) -> Option<f64> {
        let recent = &self.recent;
        match value {
            Value::Rate(measure) => {
                let rate = self.rates.get(measure).copied();
                rate.filter(|_| self.seen(measure).is_some())
            }
            Value::Total(measure) => Some(self.total.count(measure)? as f64),
            Value::Recent(measure) => Some(self.seen(measure)? as f64),
            Value::Maximum(measure) => Some(self.maximum(measure)? as f64),
            Value::Level(measure) => Some(*self.total.levels.get(measure)? as f64),
            Value::Quantile(measure, quantile) => {
                let values = &recent.distributions.get(measure)?.histogram;
                // Never above the exact maximum: the bucket of the longest call may reach beyond it.
                let most = self.maximum(measure).unwrap_or(u64::MAX);
                Some(values.quantile(quantile)?.min(most) as f64)
            }
            Value::Percent(part, whole) => Some(self.for_each(part, whole)? * 100.0),
            Value::Each(part, whole) => self.for_each(part, whole),
            Value::EachInAll(part, whole) => {
                let whole = self.total.count(whole).filter(|whole| *whole > 0)?;
                Some(self.total.count(part)? as f64 / whole as f64)
            }
            Value::Portion(part, whole) => {
                let levels = &self.total.levels;
                let whole = levels.get(whole).filter(|whole| **whole > 0)?;
                Some(*levels.get(part)? as f64 * 100.0 / *whole as f64)
            }
        }
    }

    /// The standard error of a count or of a rate, as a part of it: 0 where all was seen, and infinite where it is the least that there
    /// was. None where nothing was counted, and for what is no count.
    pub fn error(&self, value: Value) -> Option<f64> {
        match value {
            Value::Rate(measure) | Value::Recent(measure) => {
                let is_the_least = self.unseen.contains(measure) && self.seen(measure).is_some();
                match is_the_least {
                    true => Some(f64::INFINITY),
                    false => self.recent.relative_error(measure),
                }
            }
            Value::Total(measure) => self.total.relative_error(measure),
            Value::Maximum(_)
            | Value::Level(_)
            | Value::Quantile(..)
            | Value::Percent(..)
            | Value::Each(..)
            | Value::EachInAll(..)
            | Value::Portion(..) => None,
        }
    }

    /// Whether it was sampled, and nothing of this was seen in all of the last interval.
    pub fn is_unseen(&self, measure: &str) -> bool {
        self.unseen.contains(measure) && self.seen(measure).is_none_or(|count| count == 0)
    }

    /// What the values of the last report interval come to, of a distribution; None where nothing is known of them.
    pub fn sum(&self, measure: &str) -> Option<f64> {
        self.seen(measure)?;
        Some(self.recent.distributions.get(measure)?.sum as f64)
    }

    /// How much of the one there was in the last interval for each of the other; None where there was none of that.
    fn for_each(&self, part: &str, whole: &str) -> Option<f64> {
        let whole = self.recent.count(whole).filter(|whole| *whole > 0)?;
        Some(self.seen(part)? as f64 / whole as f64)
    }

    /// How much there was of it in the last interval; None also where none was seen of what was not watched all of the time.
    fn seen(&self, measure: &str) -> Option<u64> {
        let count = self.recent.count(measure)?;
        (count > 0 || !self.share.is_sampled()).then_some(count)
    }

    /// The largest value of the last interval; None where values of this sort were seen to be none.
    fn maximum(&self, measure: &str) -> Option<u64> {
        let maximum = self.recent.maxima.get(measure).copied()?;
        let mut values = self.recent.distributions.get(measure).into_iter();
        let any = |values: &crate::Distribution| values.histogram.iter().next().is_some();
        values.all(any).then_some(maximum)
    }
}

/// Of an interval that was not watched all of the time, the measures of which nothing was seen.
fn unseen<'a>(total: &'a Figures, window: &'a IntervalFigures) -> impl Iterator<Item = &'a Name> {
    let share = Share::of(window);
    let measures = total.measures().chain(window.figures.measures());
    measures.filter(move |name| {
        let count = window.figures.count(name).unwrap_or_default();
        share.is_sampled() && (count == 0 || !share.is_known())
    })
}

/// How often a second.
fn rates(window: &IntervalFigures) -> impl Iterator<Item = (&Name, f64)> {
    let seconds = window.milliseconds as f64 / 1000.0;
    let sums = window.figures.sums.keys();
    let measures = sums.chain(window.figures.distributions.keys());
    measures.filter_map(move |name| {
        let count = window.figures.count(name)?;
        Some((name, count as f64 / seconds))
    })
}

#[cfg(test)]
mod tests;
