//! How much of the time is recorded.

use std::time::Duration;

use ckb_probe_crds::{Lasted, Passed, SliceShape};

/// How a group is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// All of the time: all of it was entered up to then. Here and below, on the wall and in the process's own time.
    Always { entered: (Duration, Duration) },
    /// Not since then, and nobody knows whether again.
    Off { since: (Duration, Duration) },
    /// In slices, of which the cell is under way.
    Sliced(Cell),
}

impl Default for Mode {
    fn default() -> Self {
        Self::Always {
            entered: (Duration::ZERO, Duration::ZERO),
        }
    }
}

/// A stretch of the process's own time, and the slice that stands for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// As it was drawn.
    pub shape: SliceShape,
    /// When it began.
    pub began: (Duration, Duration),
    /// The same: since when its slice counts.
    pub counting: Option<(Duration, Duration)>,
    /// For how long it did, on the wall.
    pub watched: Duration,
    /// And in the process's own time.
    pub counted: Duration,
    /// What passed without probes before each piece of it, since the last one.
    pub before: Passed,
    /// Seconds that probes are believed to have taken in it, besides.
    pub probing: f64,
    /// Whether its slice is over.
    pub sliced: bool,
}

impl Cell {
    /// One that begins.
    pub fn new(shape: SliceShape, now: Duration, time: Duration) -> Self {
        Self {
            shape,
            began: (now, time),
            counting: None,
            watched: Duration::ZERO,
            counted: Duration::ZERO,
            before: Passed::default(),
            probing: 0.0,
            sliced: false,
        }
    }

    /// What of the time up to now it was, and for how much of that its slice stands as what was seen.
    pub fn span(&self, now: Duration, time: Duration) -> Span {
        let own = time.saturating_sub(self.began.1);
        Span {
            elapsed: now.saturating_sub(self.began.0),
            own,
            recorded: self.counted.min(own),
            unseen: self.counted < own || own.is_zero(),
            ..Span::default()
        }
    }

    /// How long its slice lasted. One that is cut off in a piece of it does not say how long slices last.
    pub fn lasted(&self) -> Option<Lasted> {
        let passed = |wall: Duration, own: Duration| Passed {
            own: own.as_secs_f64(),
            wall: wall.as_secs_f64(),
        };
        (self.sliced && self.counting.is_none()).then(|| Lasted {
            slice: passed(self.watched, self.counted),
            before: self.before,
            probing: self.probing,
        })
    }

    /// How much of it is over: 1 at its end.
    pub fn part(&self, time: Duration) -> f64 {
        let passed = time.saturating_sub(self.began.1).as_secs_f64();
        (passed / self.shape.cell.max(1e-9)).clamp(0.0, 1.0)
    }
}

/// A stretch of time, and in how much of it calls were recorded: by the process's own time, which all but stands still while it is idle. By
/// the clock on the wall, an idle stretch in which everything was attached would say that most of what was done later was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// The stretch, on the wall: what is told of it was done in that time.
    pub elapsed: Duration,
    /// For how much of that nobody measured the process, nor knows what it used: as much as in the rest.
    pub hole: Duration,
    /// The process's own time of the interval, so far as that is known: of this stretch, and of what was left out.
    pub own: Duration,
    /// For how much of it calls were recorded.
    pub recorded: Duration,
    /// Whether there was any in which they were not, however short.
    pub unseen: bool,
}

impl Span {
    /// Of a stretch in which all was recorded.
    pub fn complete(elapsed: Duration, own: Duration) -> Self {
        Self {
            elapsed,
            own,
            recorded: own,
            ..Self::default()
        }
    }

    /// Adds what came after it.
    pub fn add(&mut self, more: Self) {
        self.elapsed += more.elapsed;
        self.hole += more.hole;
        self.own += more.own;
        self.recorded += more.recorded;
        self.unseen |= more.unseen;
    }

    /// Nobody measured the process for so long.
    pub fn add_hole(&mut self, lasted: Duration) {
        self.elapsed += lasted;
        self.hole += lasted;
    }

    /// So much time of the interval, on the wall and the process's own, is not in it: nobody watched, or what was watched is yet to be entered.
    pub fn leave_out(&mut self, missed: (Duration, Duration)) {
        self.own += missed.1;
        self.unseen |= missed != (Duration::ZERO, Duration::ZERO);
    }

    /// Nothing of it is known.
    pub fn forget(&mut self) {
        (self.recorded, self.unseen) = (Duration::ZERO, true);
    }

    /// Whether all calls were recorded.
    pub fn is_complete(&self) -> bool {
        !self.unseen && self.hole.is_zero()
    }

    /// The part in which calls were recorded of the time that the process used: 1 only where that is all.
    pub fn share(&self) -> f64 {
        let part = |of: Duration, whole: Duration| match whole.is_zero() {
            true => 0.0,
            false => (of.as_secs_f64() / whole.as_secs_f64()).min(1.0),
        };
        if self.is_complete() {
            return 1.0;
        }
        // Where nothing is sampled nobody asks what the process uses.
        let seen = match self.unseen {
            true => part(self.recorded, self.own),
            false => 1.0,
        };
        seen * part(self.elapsed.saturating_sub(self.hole), self.elapsed)
    }

    /// Elapsed, and as large a part of that as was recorded: as many of both only where all was.
    pub fn milliseconds(&self) -> (u64, u64) {
        let elapsed = self.elapsed.as_millis() as u64;
        let recorded = self.elapsed.mul_f64(self.share()).as_millis() as u64;
        let most = match self.is_complete() {
            true => elapsed,
            false => elapsed.saturating_sub(1),
        };
        (elapsed, recorded.min(most))
    }
}
