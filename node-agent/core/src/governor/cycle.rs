//! When a slice begins and ends, in process time. No clock, no I/O.

use std::time::Duration;

use ckb_probe_crds::SliceShape;

use super::{LONG_ONES, Slices, finite};

/// What to do with the sliced operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Attach them, then tell [`Cycle::attached`].
    Attach,
    /// What is counted from now on counts.
    Count,
    /// It does not any more: detach them, then tell [`Cycle::detached`].
    Detach,
    /// The cell is all but over: what its slice counted stands for it, and the next one is to be drawn.
    EndCell,
}

/// What it takes to come and to go, in process time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Changeover {
    /// Attaching begins so long before a slice does.
    pub before: Duration,
    /// And a slice begins so long after the one before it ended, at the soonest.
    pub between: Duration,
}

/// A slice, as it was drawn: what it stands for was decided before anything of it was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slice {
    /// How long it counts.
    pub open: Duration,
    /// How long its cell is.
    pub cell: Duration,
    /// Whether it is one of the long ones.
    pub long: bool,
}

impl Slice {
    /// What the figures need to know of it.
    pub fn shape(&self) -> SliceShape {
        SliceShape {
            open: self.open.as_secs_f64(),
            cell: self.cell.as_secs_f64(),
            long: self.long,
        }
    }

    /// The same, where it stands for two cells.
    pub fn shape_of_two(&self) -> SliceShape {
        SliceShape {
            cell: 2.0 * self.cell.as_secs_f64(),
            ..self.shape()
        }
    }
}

/// Cuts process time into cells with one slice in each, at a random place.
///
/// **Why what a slice counts, times its weight, is what the cell counts on the average.** Let a slice be drawn to last from `A` to
/// `A + L` in a cell of length `C`, with `A` uniform. Nobody sees process time pass but by looking at it, so a slice begins at the
/// first look at or after `A`, and ends at the first one at or after `A + L`. What happens between two looks is thus counted if and
/// only if the earlier look was in `[A, A + L)`, which has the probability `L / C` wherever that look was: being late for the
/// beginning and being late for the end make up for each other, however much happens between two looks. That needs both to be
/// looked for in the same way, and attaching to be over by `A`: so it begins a while ([`Slices::drawn`]'s caller says how long it
/// takes) before. Where it takes longer, the slice begins when it is over and lasts as long as it was to.
///
/// A slice begins within its cell and may last into the next, so what happens near a cell's beginning is seen as often as what happens
/// near its end. Where a slice would meet the one before it begins later, which is rare ([`Slices`] are far enough apart).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cycle {
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// There is nothing to slice.
    Idle,
    /// The slice of this cell is to come.
    Before(Cell),
    /// Attaching has begun, then, and is not finished.
    Attaching(Cell, Duration),
    /// It is attached, and does not count yet.
    Attached(Cell),
    /// It counts.
    Open(Cell),
    /// Detaching has begun and is not finished.
    Detaching(Cell),
    /// The slice is over.
    After(Cell),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    slice: Slice,
    /// When attaching begins, counting begins and ends, and the cell ends.
    attach: Duration,
    begin: Duration,
    end: Duration,
    over: Duration,
    changeover: Changeover,
}

/// Where in its cell a slice is, and of which sort: four numbers from [0, 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Whether it is a long one.
    pub length: f64,
    /// How long it is, of those.
    pub varied: f64,
    /// Its place.
    pub place: f64,
    /// Of the first two cells, how much of them is over already.
    pub phase: f64,
}

impl Draw {
    /// All from one source.
    pub fn from(mut random: impl FnMut() -> f64) -> Self {
        Self {
            length: random(),
            varied: random(),
            place: random(),
            phase: random(),
        }
    }
}

impl Default for Cycle {
    fn default() -> Self {
        Self { stage: Stage::Idle }
    }
}

impl Cycle {
    /// From now on there is this to slice; what was under way is over. Returns whether the cell is the second of two: either is as
    /// likely, or those who wait for their turn would be seen the less after each beginning.
    pub fn restart(
        &mut self,
        slices: Option<Slices>,
        changeover: Changeover,
        now: Duration,
        random: impl FnMut() -> f64,
    ) -> bool {
        let Some(slices) = slices else {
            self.stage = Stage::Idle;
            return false;
        };
        let draw = Draw::from(random);
        let mut cell = Cell::new(slices, changeover, now, draw);
        // It began a while ago, before there was anything to slice: what of its slice would have been over by now is.
        let phase = 2.0 * finite(draw.phase).clamp(0.0, 1.0);
        let second = phase >= 1.0;
        let over = cell.slice.cell.mul_f64(phase - f64::from(u8::from(second)));
        let shift = |time: Duration| time.saturating_sub(over);
        cell = Cell {
            attach: shift(cell.attach),
            begin: shift(cell.begin),
            end: shift(cell.end),
            over: shift(cell.over),
            ..cell
        };
        self.stage = if cell.end <= now + changeover.before {
            Stage::After(cell)
        } else {
            Stage::Before(cell)
        };
        second
    }

    /// When, in process time, [`Self::step`] has something to do.
    pub fn next(&self) -> Option<Duration> {
        match self.stage {
            Stage::Idle | Stage::Attaching(..) | Stage::Detaching(_) => None,
            Stage::Before(cell) => Some(cell.attach),
            Stage::Attached(cell) => Some(cell.begin),
            Stage::Open(cell) => Some(cell.end),
            Stage::After(cell) => Some(cell.over.saturating_sub(cell.changeover.before)),
        }
    }

    /// What to do now, if anything.
    pub fn step(&mut self, now: Duration) -> Option<Switch> {
        if now < self.next()? {
            return None;
        }
        let (stage, switch) = match self.stage {
            Stage::Before(cell) => (Stage::Attaching(cell, now), Switch::Attach),
            Stage::Attached(cell) => (Stage::Open(cell), Switch::Count),
            Stage::Open(cell) => (Stage::Detaching(cell), Switch::Detach),
            Stage::After(cell) => (Stage::After(cell), Switch::EndCell),
            Stage::Idle | Stage::Attaching(..) | Stage::Detaching(_) => return None,
        };
        self.stage = stage;
        Some(switch)
    }

    /// The slice is attached by now.
    pub fn attached(&mut self, now: Duration) {
        if let Stage::Attaching(mut cell, since) = self.stage {
            // It took longer than it was to: the slice is as long, all the same. That it was begun late is another matter: so is its
            // end.
            let late = now
                .saturating_sub(since)
                .saturating_sub(cell.changeover.before);
            cell.begin += late;
            cell.end += late;
            self.stage = Stage::Attached(cell);
        }
    }

    /// The slice costs nothing any more.
    pub fn detached(&mut self) {
        if let Stage::Detaching(cell) = self.stage {
            self.stage = Stage::After(cell);
        }
    }

    /// The next cell, as the plan of the moment says: it begins where the last one ended, so that no time is nobody's.
    pub fn next_cell(
        &mut self,
        slices: Option<Slices>,
        changeover: Changeover,
        now: Duration,
        random: impl FnMut() -> f64,
    ) {
        self.stage = match (self.stage, slices) {
            (Stage::After(last), Some(slices)) => {
                let draw = Draw::from(random);
                let cell = Cell::new(slices, changeover, Duration::ZERO, draw);
                Stage::Before(cell.following(last, now))
            }
            _ => Stage::Idle,
        };
    }

    /// One more cell like the one that ended, with its slice at another place.
    pub fn same_cell_again(&mut self, now: Duration, mut random: impl FnMut() -> f64) {
        if let Stage::After(last) = self.stage {
            let cell = Cell::placed(last.slice, last.changeover, Duration::ZERO, random());
            self.stage = Stage::Before(cell.following(last, now));
        }
    }

    /// The slice of this cell, whatever became of it.
    pub fn slice(&self) -> Option<Slice> {
        self.cell().map(|cell| cell.slice)
    }

    /// When this cell begins, and when it ends.
    pub fn bounds(&self) -> Option<std::ops::Range<Duration>> {
        let of = |cell: Cell| cell.over.saturating_sub(cell.slice.cell)..cell.over;
        self.cell().map(of)
    }

    /// Whether anything is sliced at all.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    fn cell(&self) -> Option<Cell> {
        match self.stage {
            Stage::Idle => None,
            Stage::Before(cell)
            | Stage::Attaching(cell, _)
            | Stage::Attached(cell)
            | Stage::Open(cell)
            | Stage::Detaching(cell)
            | Stage::After(cell) => Some(cell),
        }
    }
}

impl Cell {
    fn new(slices: Slices, changeover: Changeover, begin: Duration, draw: Draw) -> Self {
        let long = draw.length < LONG_ONES;
        let (open, cell) = slices.drawn(long, draw.varied);
        Self::placed(Slice { open, cell, long }, changeover, begin, draw.place)
    }

    /// With its slice somewhere in it.
    fn placed(slice: Slice, changeover: Changeover, begin: Duration, place: f64) -> Self {
        let place = slice.cell.mul_f64(finite(place).clamp(0.0, 1.0));
        Self {
            slice,
            attach: (begin + place).saturating_sub(changeover.before),
            begin: begin + place,
            end: begin + place + slice.open,
            over: begin + slice.cell,
            changeover,
        }
    }

    /// The same, after the last one. Cells that passed between two looks were over before anybody could look into them.
    fn following(self, last: Self, now: Duration) -> Self {
        let mut from = last.over;
        while from + self.slice.cell <= now && from >= last.end && !self.slice.cell.is_zero() {
            from += self.slice.cell;
        }
        let begin = (from + self.begin).max(last.end + self.changeover.between);
        Self {
            attach: begin.saturating_sub(self.changeover.before),
            begin,
            end: begin + self.slice.open,
            over: from + self.slice.cell,
            ..self
        }
    }
}
