//! What was counted of a row, or of a part of one: in all, in the interval that is running, and in the one that ended last.

use ckb_probe_crds::{Figures, IntervalFigures, figures::Remainders};

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Accumulator {
    /// Since the first attach, over all of the target's processes.
    pub total: Figures,
    /// What was seen since the first attach: what `total` was scaled up from.
    pub samples: u64,
    latest: Figures,
    pending: Figures,
    last_slice: Figures,
    rounded: Remainders,
    open: IntervalFigures,
    closed: IntervalFigures,
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

    /// Enters what is pending, as so many times what it is.
    pub fn enter(&mut self, weight: f64) {
        let pending = std::mem::take(&mut self.pending);
        let samples = samples(&pending);
        self.samples += samples;
        self.open.samples += samples;
        self.add(&pending, weight);
        self.last_slice = pending;
    }

    /// Has the last slice stand for so many times itself more.
    pub fn stretch(&mut self, weight: f64) {
        let slice = std::mem::take(&mut self.last_slice);
        self.add(&slice, weight);
        self.last_slice = slice;
    }

    /// Ends an interval of so many milliseconds, of which so many were recorded.
    pub fn close(&mut self, milliseconds: u64, recorded_milliseconds: u64) {
        let next = IntervalFigures {
            figures: blank(&self.open.figures),
            ..IntervalFigures::default()
        };
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

    fn add(&mut self, seen: &Figures, weight: f64) {
        let scaled = seen.scale(weight, &mut self.rounded);
        self.total.follow(&scaled);
        // What stands for part of an interval has its longest call there, too.
        self.open.figures.follow(&scaled);
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
