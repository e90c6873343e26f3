//! What grows, from one scrape to the next: numbers, distributions, and the rows that are made of them.

use std::collections::BTreeSet;

use ckb_probe_crds::{
    Descriptor, Distribution, Figures, Histogram, IntervalFigures, Variance, descriptor::Unit,
};

use super::super::{
    kept::{self, Values, scaled},
    spread::spread,
};
use crate::record::Row;

pub(super) struct RowWalk<'a> {
    pub(super) name: &'a str,
    of: &'a kept::Row,
    samples: Counter<'a>,
    pub(super) whole: FiguresWalk<'a>,
    pub(super) parts: Vec<(&'a str, FiguresWalk<'a>)>,
}

/// Figures as they grow, and their increments since the walk began.
pub(super) struct FiguresWalk<'a> {
    distributions: Vec<(&'static str, DistributionWalk<'a>)>,
    counters: Vec<(&'static str, Counter<'a>)>,
    levels: Vec<(&'static str, &'a Values, Unit)>,
    pub(super) total: Figures,
}

pub(super) struct DistributionWalk<'a> {
    buckets: Vec<(u64, &'a Values)>,
    /// How many there were between each bound and the one before, and how many below it.
    last: Option<Vec<(u64, u64)>>,
    sum: Option<Counter<'a>>,
    /// All of them, timed or not; where that is told by itself.
    count: Option<Counter<'a>>,
}

/// A number that grows, in its measure's unit.
pub(super) struct Counter<'a> {
    values: &'a Values,
    unit: Unit,
    last: Option<u64>,
}

/// Where a walk is.
#[derive(Clone, Copy)]
pub(super) struct Here {
    pub(super) place: u32,
    /// Whether what was not there before was zero: an agent told of this target, and of all its rows.
    pub(super) from_zero: bool,
}

impl Counter<'_> {
    /// What was added since the last scrape: None where it is not told. What falls has begun anew. With it, whether it has.
    pub(super) fn advance(&mut self, here: Here) -> Option<(u64, bool)> {
        let value = scaled(self.values.at(here.place)?, self.unit);
        let (added, anew) = match self.last {
            Some(last) if value < last => (value, true),
            Some(last) => (value - last, false),
            None => (if here.from_zero { value } else { 0 }, false),
        };
        self.last = Some(value);
        Some((added, anew))
    }
}

pub(super) fn counter(values: &Values, unit: Unit) -> Counter<'_> {
    Counter {
        values,
        unit,
        last: None,
    }
}

impl DistributionWalk<'_> {
    pub(super) fn advance(&mut self, here: Here, anew: &mut bool) -> Option<Distribution> {
        let mut of = Distribution::default();
        let timed = self.advance_buckets(here, &mut of.histogram, anew);
        let mut added = |counter: &mut Option<Counter>| {
            let (added, again) = counter.as_mut()?.advance(here)?;
            *anew |= again;
            Some(added)
        };
        of.sum = added(&mut self.sum).unwrap_or_default();
        let count = added(&mut self.count);
        of.unmeasured = count
            .unwrap_or_default()
            .saturating_sub(of.histogram.count());
        (timed || count.is_some()).then_some(of)
    }

    /// Whether it is told. All buckets begin anew together.
    fn advance_buckets(&mut self, here: Here, to: &mut Histogram, anew: &mut bool) -> bool {
        let below = self.buckets.iter();
        let below = below.map(|(_, values)| Some(scaled(values.at(here.place)?, Unit::Count)));
        let Some(below) = below.collect::<Option<Vec<u64>>>() else {
            return false;
        };
        if below.is_empty() {
            return false;
        }
        let mut before = 0;
        let now: Vec<(u64, u64)> = below
            .iter()
            .map(|below| {
                let between = below.saturating_sub(before);
                before = before.max(*below);
                (between, *below)
            })
            .collect();
        let zero = || vec![(0, 0); now.len()];
        let last = match self.last.take() {
            Some(last) => {
                let mut both = last.iter().zip(&now);
                let fell = both.any(|((_, before), (_, below))| below < before);
                *anew |= fell;
                if fell { zero() } else { last }
            }
            None if here.from_zero => zero(),
            None => now.clone(),
        };
        let mut begin = 0;
        for (((bound, _), (between, _)), (before, _)) in self.buckets.iter().zip(&now).zip(&last) {
            let end = (*bound != u64::MAX).then_some(*bound);
            spread(to, (begin, end), *before, between.saturating_sub(*before));
            begin = *bound;
        }
        self.last = Some(now);
        true
    }
}

impl<'a> FiguresWalk<'a> {
    pub(super) fn new(of: &'a kept::Figures, descriptor: &Descriptor) -> Self {
        let names: BTreeSet<&'static str> =
            of.buckets.keys().chain(of.counts.keys()).copied().collect();
        let distributions = names.into_iter().map(|name| {
            let buckets = of.buckets.get(name).into_iter().flatten();
            let sum = of.sums.get(name);
            let count = of.counts.get(name);
            let walk = DistributionWalk {
                buckets: buckets.map(|(bound, values)| (*bound, values)).collect(),
                last: None,
                sum: sum.map(|values| counter(values, descriptor.unit(name))),
                count: count.map(|values| counter(values, Unit::Count)),
            };
            (name, walk)
        });
        let counters = of.counters.iter();
        let levels = of.levels.iter();
        Self {
            distributions: distributions.collect(),
            counters: counters
                .map(|(name, values)| (*name, counter(values, descriptor.unit(name))))
                .collect(),
            levels: levels
                .map(|(name, values)| (*name, values, descriptor.unit(name)))
                .collect(),
            total: Figures::default(),
        }
    }

    /// What was added since the last scrape, with levels as they are now.
    pub(super) fn advance(&mut self, here: Here, anew: &mut bool) -> Figures {
        let mut figures = Figures::default();
        for (name, walk) in &mut self.distributions {
            let of = walk.advance(here, anew);
            figures
                .distributions
                .extend(of.map(|of| ((*name).into(), of)));
        }
        for (name, walk) in &mut self.counters {
            if let Some((added, again)) = walk.advance(here) {
                *anew |= again;
                figures.sums.insert((*name).into(), added);
            }
        }
        for (name, values, unit) in &self.levels {
            let level = values.at(here.place).map(|value| scaled(value, *unit));
            figures
                .levels
                .extend(level.map(|level| ((*name).into(), level)));
        }
        figures
    }
}

impl<'a> RowWalk<'a> {
    pub(super) fn new(name: &'a str, of: &'a kept::Row, descriptor: &Descriptor) -> Self {
        let parts = of.parts.iter();
        Self {
            name,
            of,
            samples: counter(&of.samples, Unit::Count),
            whole: FiguresWalk::new(&of.whole, descriptor),
            parts: parts
                .map(|(name, of)| (name.as_str(), FiguresWalk::new(of, descriptor)))
                .collect(),
        }
    }

    /// The row in what has passed since the last scrape, of so many milliseconds in so much of which its probe was in place.
    pub(super) fn advance(
        &mut self,
        here: Here,
        (milliseconds, attached): (u64, f64),
        counted: Option<&'static str>,
        anew: &mut bool,
    ) -> Row {
        // Of a probe that has just come, and of which no report interval has ended, all is seen.
        let share = self.of.share.at(here.place).unwrap_or(1.0) * attached;
        let recorded = (share.min(1.0) * milliseconds as f64).round() as u64;
        let (samples, again) = self.samples.advance(here).unwrap_or_default();
        *anew |= again;
        let window = |samples, figures| IntervalFigures {
            milliseconds,
            recorded_milliseconds: recorded,
            samples,
            figures,
        };
        let mut figures = self.whole.advance(here, anew);
        if recorded < milliseconds
            && let Some(counted) = counted
            && let Some(error) = self.of.error.at(here.place)
        {
            let count = figures.count(counted).unwrap_or_default() as f64;
            let variance = match error.is_finite() {
                true => Variance::new((error * count).powi(2)),
                false => Variance::UNKNOWN,
            };
            figures.variances.insert(counted.into(), variance);
        }
        self.whole.total.follow(&figures);
        let parts = self.parts.iter_mut().map(|(name, walk)| {
            let figures = walk.advance(here, anew);
            walk.total.follow(&figures);
            Row {
                key: (*name).to_owned(),
                total: Figures::default(),
                window: window(0, figures),
                unseen: 0,
                unseen_last: 0,
                parts: Vec::new(),
            }
        });
        let parts = parts.collect();
        Row {
            key: self.name.to_owned(),
            total: Figures::default(),
            window: window(samples, figures),
            unseen: 0,
            unseen_last: 0,
            parts,
        }
    }
}
