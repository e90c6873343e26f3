//! Which of many targets differs from the others, in one figure.
//!
//! Targets of one kind do much the same, and none does exactly what the others do: what is usual is the median of all, and how much they
//! differ is how far they are from it, at the median (both stand, whatever half of the targets do). Ratios matter and not differences, so
//! all of it is of logarithms. A target is an outlier if it is at least [`TIMES`] as much or as little as is usual, and that is neither within
//! how much targets differ nor within how far off its own figure may be.

use crate::{IntervalFigures, Value};

/// Of fewer targets nobody knows what is usual.
pub const FEWEST: usize = 6;

/// What differs by less is nobody's trouble.
pub const TIMES: f64 = 2.0;

/// How often an outlier is found among targets that are alike, in all that is compared of them at a time.
const FALSE_ALARMS: f64 = 0.01;

/// Targets that are more alike than this are so by chance.
const LEAST_SPREAD: f64 = 0.05;

/// Values beyond a quantile that it takes to know it.
const TAIL: f64 = 10.0;

/// A figure of one target in one report interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetFigure {
    /// It; greater than zero.
    pub value: f64,
    /// The standard error of its logarithm.
    pub error: f64,
}

/// A target that differs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlier {
    /// Its place among the values.
    pub place: usize,
    /// What it has, and what is usual.
    pub value: f64,
    /// The median.
    pub usual: f64,
    /// How many standard errors that is from it.
    pub errors: f64,
}

impl Outlier {
    /// How many times what is usual it has.
    pub fn times(&self) -> f64 {
        self.value / self.usual
    }
}

impl TargetFigure {
    /// A rate, or a quantile, of a row in a report interval; None of anything else, and where too little is known. What was watched all of
    /// the time and did not happen is taken for less than once.
    pub fn of(window: &IntervalFigures, value: Value) -> Option<Self> {
        if window.recorded_milliseconds == 0 {
            return None;
        }
        match value {
            Value::Rate(measure) => Self::of_rate(window, measure),
            Value::Quantile(measure, quantile) => Self::of_quantile(window, measure, quantile),
            Value::Total(_)
            | Value::Recent(_)
            | Value::Maximum(_)
            | Value::Level(_)
            | Value::Percent(..)
            | Value::Each(..)
            | Value::EachInAll(..)
            | Value::Portion(..) => None,
        }
    }

    fn of_rate(window: &IntervalFigures, measure: &str) -> Option<Self> {
        let seconds = window.milliseconds as f64 / 1e3;
        let count = window.figures.count(measure)?;
        if count == 0 {
            let all_was_seen = window.recorded_milliseconds >= window.milliseconds;
            return Self::new(1.0 / seconds, 1.0).filter(|_| all_was_seen);
        }
        let error = window.figures.relative_error(measure)?;
        // That as many came by chance is in it, too.
        let variance = error * error + 1.0 / window.samples.max(1) as f64;
        Self::new(count as f64 / seconds, variance.sqrt())
    }

    fn of_quantile(window: &IntervalFigures, measure: &str, quantile: f64) -> Option<Self> {
        let seen = window.samples as f64;
        if seen * (1.0 - quantile) < TAIL {
            return None;
        }
        let values = &window.figures.distributions.get(measure)?.histogram;
        let most = window.figures.maxima.get(measure).copied();
        let at = |quantile: f64| {
            let value = values.quantile(quantile.min(1.0))?;
            Some(value.min(most.unwrap_or(u64::MAX)) as f64)
        };
        let off = (quantile * (1.0 - quantile) / seen).sqrt();
        let (low, high) = (at(quantile - off)?, at(quantile + off)?);
        Self::new(at(quantile)?, (high / low).ln() / 2.0)
    }

    fn new(value: f64, error: f64) -> Option<Self> {
        let is_known = value > 0.0 && value.is_finite() && error.is_finite();
        is_known.then_some(Self { value, error })
    }
}

/// The outliers among targets, where `comparisons` figures of them are compared at a time.
pub fn outliers(values: &[TargetFigure], comparisons: usize) -> Vec<Outlier> {
    let targets = values.len();
    if targets < FEWEST {
        return Vec::new();
    }
    let logs = values.iter().map(|one| one.value.ln());
    let usual = median(logs.clone().collect());
    let distances = logs.map(|log| (log - usual).abs());
    // The median of few is often too small: so many times it false alarms are as few as is said, of targets that differ as a normal
    // distribution does. 1.48 times it is its standard deviation.
    let part = 1.0 / targets as f64;
    let few = 1.0 + 10.0 * part + 200.0 * part * part;
    let spread = (1.4826 * few * median(distances.clone().collect())).max(LEAST_SPREAD);
    let chances = (targets * comparisons.max(1)) as f64 / FALSE_ALARMS;
    let limit = (2.0 * chances.ln()).sqrt();
    let judged = values.iter().zip(distances).enumerate();
    let found = judged.filter_map(|(place, (one, distance))| {
        let errors = distance / spread.hypot(one.error);
        (distance >= TIMES.ln() && errors >= limit).then(|| Outlier {
            place,
            value: one.value,
            usual: usual.exp(),
            errors,
        })
    });
    found.collect()
}

/// Of an even number, the mean of the two in the middle. There is one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests;
