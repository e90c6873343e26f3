//! What was counted of a row, or of a part of one: in all, in the interval that is running, and in the one that ended last.

use std::collections::BTreeMap;

use ckb_probe_crds::{
    Figures, IntervalFigures, Name, SliceShape, Spread, Variance, figures::Remainders,
};

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Accumulator {
    /// Since the first attach, over all of the target's processes.
    pub total: Figures,
    /// What was seen since the first attach: what `total` was scaled up from.
    pub samples: u64,
    latest: Figures,
    pending: Figures,
    /// What the slice of the cell that runs has counted.
    slice: Figures,
    /// What slices stand for besides what they saw, while they are too few to be told.
    unproven: Figures,
    /// How much slices differ, by measure.
    spreads: BTreeMap<Name, Spread>,
    /// What all slices alike may be off by, by measure: in all, and in the interval that is running.
    shared: BTreeMap<Name, [Shared; 2]>,
    rounded: Remainders,
    open: IntervalFigures,
    closed: IntervalFigures,
}

/// A standard error that is the same of one slice and of the next: of a sum it is the sum, and not the root of that of squares.
#[derive(Clone, Copy, Debug, Default)]
struct Shared(f64);

impl Shared {
    /// More of it: by how much the variance of the sum grows.
    fn add(&mut self, error: f64) -> f64 {
        let before = self.0;
        self.0 += error;
        self.0.powi(2) - before.powi(2)
    }
}

/// A cell of process time that is over.
#[derive(Clone, Copy, Debug)]
pub struct EndedCell {
    /// As it was drawn, and its slice.
    pub shape: SliceShape,
    /// What slices count is to be taken so many times, since they do not last as long as they were drawn to.
    pub factor: f64,
    /// By what part that may be off, for all slices alike.
    pub doubt: f64,
    /// How much of it passed: 1, if it was not cut off.
    pub part: f64,
    /// Whether there was a slice in that.
    pub sliced: bool,
    /// Whether no slice was before.
    pub first: bool,
    /// Whether there are so few slices that what was seen is told, and not yet what it stands for.
    pub few: bool,
}

impl Accumulator {
    /// One of which nothing was counted.
    pub fn blank(blank: &Figures) -> Self {
        let mut tally = Self {
            total: blank.clone(),
            ..Self::default()
        };
        tally.open.figures = blank.clone();
        tally.closed.figures = blank.clone();
        tally
    }

    /// The mechanism counts from zero.
    pub fn restarted(&mut self) {
        self.latest = Figures::default();
    }

    /// What was observed and not entered is nobody's: it stands for nothing that is told.
    pub fn forget_pending(&mut self) {
        self.pending = Figures::default();
    }

    /// Takes in what was counted since the mechanism was begun; whether that is more than before.
    pub fn observe(&mut self, reading: &Figures) -> bool {
        let mut news = reading.since(&self.latest);
        let is_more = !news.is_idle();
        raise(&mut self.open.figures, &news);
        // How things stand is so at once, and never again because a slice stands for more time than it lasted.
        let levels = std::mem::take(&mut news.levels);
        self.total.levels.extend(levels.clone());
        self.open.figures.levels.extend(levels);
        self.pending.follow(&news);
        self.latest = reading.clone();
        is_more
    }

    /// It is not there any more: nothing of it stands.
    pub fn vanished(&mut self) {
        for level in self.total.levels.values_mut() {
            *level = 0;
        }
        for level in self.open.figures.levels.values_mut() {
            *level = 0;
        }
    }

    /// Enters what is pending: it was all that there was.
    pub fn enter(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let all = self.scaled(&pending, 1.0);
        self.total.follow(&all);
    }

    /// What is pending is what a slice counted: it is entered as its cell ends.
    pub fn end_slice(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.slice.follow(&pending);
    }

    /// A cell is over: what its slice counted, if there was one, stands for it.
    pub fn end_cell(&mut self, cell: &EndedCell) {
        let EndedCell {
            shape,
            factor,
            doubt,
            part,
            sliced,
            first,
            few,
        } = cell;
        let slice = std::mem::take(&mut self.slice);
        let scaled = self.scaled(&slice, (shape.weight() * factor).max(1.0));
        self.unproven.merge(&scaled.since(&slice));
        self.total.follow(&slice);
        if !*few {
            let proven = std::mem::take(&mut self.unproven);
            self.total.follow(&proven);
        }
        let unseen = if *first {
            Spread::default()
        } else {
            Spread::of_unseen()
        };
        for name in slice.measures() {
            if !self.spreads.contains_key(name) {
                self.spreads.insert(name.clone(), unseen);
            }
        }
        for (name, spread) in &mut self.spreads {
            let mut variance = spread.cut(*part, shape.cell);
            let mut unseen = 0.0;
            if *sliced {
                let seen = slice.count(name).unwrap_or_default() as f64;
                variance += spread.observe(seen * factor, shape);
                unseen = seen * (shape.weight() * factor - 1.0).max(0.0);
            }
            let shared = self.shared.entry(name.clone()).or_default();
            let figures = [&mut self.total, &mut self.open.figures];
            for (figures, shared) in figures.into_iter().zip(shared) {
                let variance = Variance::new(variance + shared.add(doubt * unseen));
                if !variance.is_zero() {
                    *figures.variances.entry(name.clone()).or_default() += variance;
                }
            }
        }
    }

    /// There was more, and nobody knows how much.
    pub fn leave_out(&mut self) {
        self.total.leave_out();
    }

    /// Slices of what is measured from now on have nothing to do with those before.
    pub fn forget_spread(&mut self) {
        self.spreads.clear();
        self.slice = Figures::default();
        self.unproven = Figures::default();
    }

    /// Ends an interval of so many milliseconds, of which so many were recorded.
    pub fn close(&mut self, milliseconds: u64, recorded_milliseconds: u64) {
        let next = IntervalFigures {
            figures: blank(&self.open.figures),
            ..IntervalFigures::default()
        };
        for [_, of_interval] in self.shared.values_mut() {
            *of_interval = Shared::default();
        }
        self.closed = std::mem::replace(&mut self.open, next);
        self.closed.milliseconds = milliseconds;
        self.closed.recorded_milliseconds = recorded_milliseconds;
    }

    /// Whether there is anything to tell of it.
    pub fn is_told(&self) -> bool {
        self.samples > 0 || !self.total.is_idle()
    }

    /// The interval that ended last.
    pub fn window(&self) -> &IntervalFigures {
        &self.closed
    }

    /// As many times what was seen, which is entered into the interval.
    fn scaled(&mut self, seen: &Figures, weight: f64) -> Figures {
        let samples = samples(seen);
        self.samples += samples;
        self.open.samples += samples;
        let scaled = seen.scale(weight, &mut self.rounded);
        // What stands for part of an interval has its longest call there, too.
        self.open.figures.follow(&scaled);
        scaled
    }
}

/// The same measures, and nothing counted; levels stand until they change.
fn blank(figures: &Figures) -> Figures {
    let mut blank = figures.since(figures);
    for maximum in blank.maxima.values_mut() {
        *maximum = 0;
    }
    blank
}

/// Raises the maxima at once: those of what is entered later would be another interval's.
fn raise(figures: &mut Figures, news: &Figures) {
    let maxima = Figures {
        maxima: news.maxima.clone(),
        ..Figures::default()
    };
    figures.merge(&maxima);
}

/// How much was seen: of calls, how many.
fn samples(figures: &Figures) -> u64 {
    let values = figures.distributions.values().map(|values| values.count());
    values
        .max()
        .unwrap_or_else(|| figures.sums.values().copied().max().unwrap_or_default())
}
