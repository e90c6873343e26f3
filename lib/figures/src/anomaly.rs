//! Whether a figure is as it usually is, by its own past alone.
//!
//! What is usual is the median of its last [`REMEMBERED`] values, in logarithms: ratios matter, and not differences. A single value says
//! little, since a node works in bursts and compactions come and go. So what is judged is what lasts: the *sustained* deviation, the least of
//! the last three in one direction, or of more for what falls off, where values differ much by themselves: a node that waits for blocks has none
//! of them for a while. Most figures have a rhythm of their own that makes that
//! large now and then: the largest of each of the last [`PARTS`] stretches is remembered, and what goes beyond all of them, by a margin, is an
//! anomaly. A figure that is known to within some error deviates by that much less. While it is unusual nothing is learned, unless it stays; once
//! that is over, as much is no news for a day.

use std::collections::VecDeque;

use crate::{Summary, Value};

/// Values whose median is what is usual.
const REMEMBERED: usize = 64;

/// How many values in a row must deviate, for it to last, at least and at most; as many that do not end it.
const LASTS: usize = 3;
const LASTS_AT_MOST: usize = 10;

/// Where values differ by this (a standard deviation of logarithms), the least of three is still mostly what lasts.
const CALM: f32 = 0.25;

/// How many of these deviations are chance, up and down.
const CHANCE: [f32; 2] = [3.0, 1.25];

/// Of so many values it is known how much they differ, and by so many times as much they are outliers.
const SPREAD: f32 = 6.0 * PART as f32;
const OUTLYING: f32 = 4.0;

/// How many stretches the past is cut into, and how many values each has: of report intervals of 30 s, an hour.
const PARTS: usize = 24;
const PART: u32 = 120;

/// Stretches in which nothing is said.
const LEARNING: usize = 6;

/// What deviates by less is nobody's trouble: 1.4 times as much, or as little.
const LEAST: f32 = 0.336;

/// How much further than ever before it must go, as a part of that, and besides: once a whole day is known, and at first.
const MARGIN: f32 = 0.25;
const YOUNG: f32 = 0.75;
const BESIDES: f32 = 0.1;

/// What stays unusual for so many values is usual from then on.
const ADOPTED: u32 = 2 * PART;

/// Standard errors that a figure may be off by.
const ERRORS: f32 = 2.0;

/// A figure of a report interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// It; greater than zero.
    pub value: f64,
    /// The standard error of its logarithm.
    pub error: f64,
}

/// Values beyond a quantile that it takes to know it.
const TAIL: f64 = 10.0;

/// What did not happen is taken to have happened so often a second.
const NEVER: f64 = 1e-3;

impl Known {
    /// A rate of a row, of so many targets each, or a quantile; None of anything else, and where too little is known.
    pub fn of(row: &Summary, value: Value, targets: usize) -> Option<Self> {
        let samples = row.samples().max(1) as f64;
        match value {
            Value::Rate(_) => {
                let rate = row.value(value)? / targets.max(1) as f64;
                // That as many came by chance is in it, too.
                let error = row.error(value).unwrap_or_default().powi(2) + 1.0 / samples;
                Some(Self {
                    value: rate.max(NEVER),
                    error: error.sqrt(),
                })
            }
            Value::Quantile(measure, quantile) => {
                if samples * (1.0 - quantile) < TAIL {
                    return None;
                }
                let off = (quantile * (1.0 - quantile) / samples).sqrt();
                let at = |quantile: f64| row.value(Value::Quantile(measure, quantile.min(1.0)));
                let (low, high) = (at(quantile - off)?, at(quantile + off)?);
                Some(Self {
                    value: at(quantile)?,
                    error: (high / low.max(1.0)).ln().max(0.0) / 2.0,
                })
            }
            Value::Total(_)
            | Value::Recent(_)
            | Value::Maximum(_)
            | Value::Level(_)
            | Value::Percent(..)
            | Value::Portion(..)
            | Value::Each(..)
            | Value::EachInAll(..) => None,
        }
    }
}

/// A figure that is not as it usually is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Anomaly {
    /// What it is, and what it usually is.
    pub value: f64,
    /// The median of what it was before.
    pub usual: f64,
    /// For how many values it has not been.
    pub lasted: u32,
}

impl Anomaly {
    /// How many times what is usual it is.
    pub fn times(&self) -> f64 {
        self.value / self.usual
    }
}

/// A figure over time.
#[derive(Clone, Debug, Default)]
pub struct Course {
    logarithms: VecDeque<f32>,
    /// The same, the least first.
    sorted: Vec<f32>,
    /// How far values are from what is usual, on the average of so many, and no more of them than [`SPREAD`].
    distance: f32,
    distances: f32,
    /// The last deviations, each as much less as its error is: the newest last.
    deviations: VecDeque<f32>,
    /// The largest sustained deviation of each stretch, up and down: the newest last.
    parts: VecDeque<[f32; 2]>,
    /// How many values that has seen.
    of_part: u32,
    anomaly: Option<Lasting>,
}

/// What is usual, of logarithms.
#[derive(Clone, Copy, Debug)]
struct Usual {
    median: f32,
    /// By how much values differ from it: a standard deviation, which outliers do not change.
    spread: f32,
}

/// An anomaly that lasts.
#[derive(Clone, Copy, Debug)]
struct Lasting {
    direction: usize,
    value: f32,
    usual: Usual,
    limit: f32,
    lasted: u32,
    /// The largest sustained deviation.
    most: f32,
    calm: usize,
}

/// Up and down.
const SIGNS: [f32; 2] = [1.0, -1.0];

impl Course {
    /// The next value. None where it is not known: nothing is learned of that, and an anomaly lasts, no longer than it would otherwise.
    pub fn observe(&mut self, known: Option<Known>) -> Option<Anomaly> {
        let Some(known) = known.filter(|known| known.value > 0.0 && known.error.is_finite()) else {
            if let Some(lasting) = &mut self.anomaly {
                lasting.lasted += 1;
                if lasting.lasted >= ADOPTED {
                    *self = Self::default();
                }
            }
            return self.anomaly();
        };
        let logarithm = known.value.ln() as f32;
        let held = self.anomaly.map(|one| one.usual);
        let Some(usual) = held.or_else(|| self.usual()) else {
            self.learn(logarithm);
            return None;
        };
        let off = logarithm - usual.median;
        let certain = (off.abs() - ERRORS * known.error.max(0.0) as f32).max(0.0);
        self.deviations.push_back(certain.copysign(off));
        if self.deviations.len() > LASTS_AT_MOST {
            self.deviations.pop_front();
        }
        let sustained = [0, 1].map(|direction| self.sustained(direction, usual));
        let Some(lasting) = &mut self.anomaly else {
            self.judge(logarithm, usual, sustained);
            return self.anomaly();
        };
        let direction = lasting.direction;
        lasting.value = logarithm;
        lasting.lasted += 1;
        lasting.most = lasting.most.max(sustained[direction]);
        let is_calm = off * SIGNS[direction] < lasting.limit / 2.0;
        lasting.calm = if is_calm { lasting.calm + 1 } else { 0 };
        let (is_over, stays) = (
            lasting.calm >= usual.lasts()[direction],
            lasting.lasted >= ADOPTED,
        );
        let most = lasting.most;
        if stays {
            *self = Self::default();
        } else if is_over {
            self.anomaly = None;
            self.deviations.clear();
            self.remember(direction, most);
        }
        if stays || is_over {
            self.learn(logarithm);
        }
        self.anomaly()
    }

    /// What goes on, if it is not as usual.
    pub fn anomaly(&self) -> Option<Anomaly> {
        let value = |logarithm: f32| match f64::from(logarithm.exp()) {
            value if value < 2.0 * NEVER => 0.0,
            value => value,
        };
        self.anomaly.map(|lasting| Anomaly {
            value: value(lasting.value),
            usual: f64::from(lasting.usual.median.exp()),
            lasted: lasting.lasted,
        })
    }

    fn judge(&mut self, logarithm: f32, usual: Usual, sustained: [f32; 2]) {
        if self.parts.len() > LEARNING {
            for (direction, sustained) in sustained.into_iter().enumerate() {
                let limit = self.limit(direction, usual);
                if sustained > limit {
                    self.anomaly = Some(Lasting {
                        direction,
                        value: logarithm,
                        usual,
                        limit,
                        lasted: usual.lasts()[direction] as u32,
                        most: sustained,
                        calm: 0,
                    });
                    return;
                }
            }
        }
        for (direction, sustained) in sustained.into_iter().enumerate() {
            self.remember(direction, sustained);
        }
        self.learn(logarithm);
    }

    /// The least of the last deviations, in one direction.
    fn sustained(&self, direction: usize, usual: Usual) -> f32 {
        let (sign, lasts) = (SIGNS[direction], usual.lasts()[direction]);
        if self.deviations.len() < lasts {
            return 0.0;
        }
        let last = self.deviations.iter().rev().take(lasts);
        last.map(|off| off * sign)
            .fold(f32::INFINITY, f32::min)
            .max(0.0)
    }

    /// How far a sustained deviation may go.
    fn limit(&self, direction: usize, usual: Usual) -> f32 {
        let parts = self.parts.iter().map(|part| part[direction]);
        let ever = parts.fold(0.0, f32::max);
        let young = YOUNG * (1.0 - self.parts.len() as f32 / PARTS as f32);
        let least = LEAST.max(CHANCE[direction] * usual.spread);
        (ever * (1.0 + MARGIN + young) + BESIDES).max(least * (1.0 + young))
    }

    /// It has gone so far.
    fn remember(&mut self, direction: usize, sustained: f32) {
        if let Some(part) = self.parts.back_mut() {
            part[direction] = part[direction].max(sustained);
        }
    }

    fn learn(&mut self, logarithm: f32) {
        if let Some(usual) = self.usual() {
            let off = (logarithm - usual.median).abs();
            self.distances = (self.distances + 1.0).min(SPREAD);
            // What is far off says little of how far values usually are.
            let most = if self.distances < LASTS as f32 {
                off
            } else {
                OUTLYING * self.distance
            };
            self.distance += (off.min(most) - self.distance) / self.distances;
        }
        let place = |sorted: &[f32], one: f32| {
            let place = sorted.binary_search_by(|held| held.total_cmp(&one));
            place.unwrap_or_else(|place| place)
        };
        if self.logarithms.len() >= REMEMBERED
            && let Some(oldest) = self.logarithms.pop_front()
        {
            self.sorted.remove(place(&self.sorted, oldest));
        }
        self.logarithms.push_back(logarithm);
        self.sorted
            .insert(place(&self.sorted, logarithm), logarithm);
        if self.of_part.is_multiple_of(PART) {
            self.parts.push_back([0.0; 2]);
            if self.parts.len() > PARTS {
                self.parts.pop_front();
            }
        }
        self.of_part = self.of_part.wrapping_add(1);
    }

    /// None of fewer than are remembered.
    fn usual(&self) -> Option<Usual> {
        if self.sorted.len() < REMEMBERED {
            return None;
        }
        let median = self.sorted.get(REMEMBERED / 2).copied()?;
        // That is the standard deviation of a normal distribution.
        let spread = 1.25 * self.distance;
        Some(Usual { median, spread })
    }
}

impl Usual {
    /// How many in a row must deviate, up and down.
    fn lasts(self) -> [usize; 2] {
        let down = (LASTS as f32 * (self.spread / CALM).powi(2)).ceil() as usize;
        [LASTS, down.clamp(LASTS, LASTS_AT_MOST)]
    }
}

#[cfg(test)]
mod tests;
