//! When a slice begins and ends, in process time. No clock, no I/O.

use std::time::Duration;

use ckb_probe_crds::SliceShape;

use super::{LONG_ONES, Slices, Turn, finite};

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
/// looked for in the same way, and attaching to be over by `A`: so it begins a while (`lead`) before. Where it takes
/// longer, the slice begins when it is over and lasts as long as it was to.
///
/// **At the ends of a cell** that holds since a cell is a circle: what of a slice would last beyond its cell's end is at its beginning, so
/// such a slice comes in two pieces. Were it to last into the next cell, that would be seen more or less often as the lengths change,
/// which they do with the load: what comes at the beginning of bursts was told 4 % too low.
///
/// **Pairs.** Cells come in pairs of one length. Who waits for a turn has it in one of them, either as likely as the other, and both are its cell.
///
/// Where a slice would meet the one before, which takes a while to be detached, it begins later; that is rare ([`Slices`] are far enough apart).
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
    half: Half,
    /// The piece of the slice that is the next or under way, and the one after it.
    piece: Piece,
    rest: Option<Piece>,
    /// When the cell ends.
    over: Duration,
    /// Since when nothing is attached.
    free: Duration,
    /// Attaching begins so long before a slice does.
    lead: Duration,
}

/// When counting begins and ends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    begin: Duration,
    end: Duration,
}

impl Piece {
    /// As long, and not before then.
    fn not_before(self, earliest: Duration) -> Self {
        self.later(earliest.saturating_sub(self.begin))
    }

    fn later(self, by: Duration) -> Self {
        Self {
            begin: self.begin + by,
            end: self.end + by,
        }
    }

    fn earlier(self, by: Duration) -> Self {
        Self {
            begin: self.begin.saturating_sub(by),
            end: self.end.saturating_sub(by),
        }
    }
}

/// Which of a pair of cells it is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Half {
    second: bool,
    /// Whether the first is the turn of those who have even ones.
    even_first: bool,
}

impl Half {
    fn first(random: f64) -> Self {
        Self {
            second: false,
            even_first: random < 0.5,
        }
    }

    fn second(self) -> Self {
        Self {
            second: true,
            ..self
        }
    }
}

impl Slice {
    /// As the plan of the moment says; by two numbers from [0, 1).
    fn drawn(slices: Slices, mut random: impl FnMut() -> f64) -> Self {
        let long = random() < LONG_ONES;
        let (open, cell) = slices.drawn(long, random());
        Self { open, cell, long }
    }
}

impl Default for Cycle {
    fn default() -> Self {
        Self { stage: Stage::Idle }
    }
}

impl Cycle {
    /// From now on there is this to slice; what was under way is over. Attaching begins `lead` of process time before a slice does. It
    /// begins somewhere in a pair of cells: either is as likely, or those who wait for their turn would be seen the less after each beginning.
    pub fn restart(
        &mut self,
        slices: Option<Slices>,
        lead: Duration,
        now: Duration,
        mut random: impl FnMut() -> f64,
    ) {
        let Some(slices) = slices else {
            self.stage = Stage::Idle;
            return;
        };
        let slice = Slice::drawn(slices, &mut random);
        let phase = 2.0 * finite(random()).clamp(0.0, 1.0);
        let first = Half::first(random());
        let half = if phase < 1.0 { first } else { first.second() };
        let cell = Cell::new(slice, half, lead, now, random());
        // It began a while ago, before there was anything to slice: what of its slice would have been over by now is.
        let passed = slice.cell.mul_f64(phase.fract());
        let mut pieces = [Some(cell.piece), cell.rest]
            .into_iter()
            .flatten()
            .map(|piece| piece.earlier(passed))
            .filter(|piece| piece.end > now + lead);
        let left = pieces.next();
        let cell = Cell {
            piece: left.unwrap_or(cell.piece.earlier(passed)),
            rest: pieces.next(),
            over: cell.over.saturating_sub(passed),
            ..cell
        };
        self.stage = match left {
            Some(_) => Stage::Before(cell),
            None => Stage::After(cell),
        };
    }

    /// When, in process time, [`Self::step`] has something to do.
    pub fn next(&self) -> Option<Duration> {
        match self.stage {
            Stage::Idle | Stage::Attaching(..) | Stage::Detaching(_) => None,
            Stage::Before(cell) => Some(cell.piece.begin.saturating_sub(cell.lead)),
            Stage::Attached(cell) => Some(cell.piece.begin),
            Stage::Open(cell) => Some(cell.piece.end),
            Stage::After(cell) => Some(cell.over.saturating_sub(cell.lead)),
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
            // Nobody can count while it is being attached: had it been attached at once, the slice would have begun as it was looked
            // for, or when it was to. It is as long, all the same.
            let late = now.saturating_sub(cell.piece.begin.max(since));
            cell.piece = cell.piece.later(late);
            self.stage = Stage::Attached(cell);
        }
    }

    /// It counts from now on, which took so long since [`Switch::Count`]: the slice is as long, all the same.
    pub fn counting(&mut self, took: Duration) {
        if let Stage::Open(cell) = &mut self.stage {
            cell.piece = cell.piece.later(took);
        }
    }

    /// The slice costs nothing any more. Until then nothing can be attached, however long that took: what was to begin meanwhile begins
    /// later, and is as long.
    pub fn detached(&mut self, now: Duration) {
        if let Stage::Detaching(mut cell) = self.stage {
            cell.free = now;
            self.stage = match cell.rest.take() {
                Some(rest) => {
                    cell.piece = rest.not_before(now + cell.lead);
                    Stage::Before(cell)
                }
                None => Stage::After(cell),
            };
        }
    }

    /// The next cell, which begins where the last one ended, so that no time is nobody's. The second of a pair is as long as the first,
    /// with its slice at another place; the first of the next is as the plan of the moment says, if there is anything to slice.
    pub fn next_cell(
        &mut self,
        slices: Option<Slices>,
        lead: Duration,
        now: Duration,
        mut random: impl FnMut() -> f64,
    ) {
        let Stage::After(last) = self.stage else {
            self.stage = Stage::Idle;
            return;
        };
        let (slice, half) = match (last.half.second, slices) {
            (false, _) => (last.slice, last.half.second()),
            (true, Some(slices)) => {
                let slice = Slice::drawn(slices, &mut random);
                (slice, Half::first(random()))
            }
            (true, None) => {
                self.stage = Stage::Idle;
                return;
            }
        };
        // Cells that passed between two looks were over before anybody could look into them.
        let mut from = last.over;
        while from + slice.cell <= now && from >= last.piece.end && !slice.cell.is_zero() {
            from += slice.cell;
        }
        let mut cell = Cell::new(slice, half, lead, from, random());
        cell.piece = cell.piece.not_before(last.free + lead);
        self.stage = Stage::Before(cell);
    }

    /// Whether this cell is the second of its pair.
    pub fn is_second(&self) -> bool {
        self.cell().is_some_and(|cell| cell.half.second)
    }

    /// Whether who has such turns is attached in the slice of this cell.
    pub fn takes(&self, turn: Turn) -> bool {
        self.cell().is_some_and(|cell| {
            let is_even = cell.half.second != cell.half.even_first;
            turn == Turn::Every || is_even == (turn == Turn::Even)
        })
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
    /// With its slice at a place of it, from [0, 1).
    fn new(slice: Slice, half: Half, lead: Duration, from: Duration, place: f64) -> Self {
        let over = from + slice.cell;
        let begin = from + slice.cell.mul_f64(finite(place).clamp(0.0, 1.0));
        let end = begin + slice.open;
        let beyond = end.saturating_sub(over);
        let (piece, rest) = if beyond.is_zero() {
            (Piece { begin, end }, None)
        } else {
            let piece = Piece {
                begin: from,
                end: from + beyond,
            };
            (piece, Some(Piece { begin, end: over }))
        };
        Self {
            slice,
            half,
            piece,
            rest,
            over,
            free: Duration::ZERO,
            lead,
        }
    }
}
