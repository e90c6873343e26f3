//! How much of the time is recorded.

use std::time::Duration;

use ckb_probe_crds::{Lasted, Passed, SliceShape};

/// How a group is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// All of the time: all of it was entered up to then.
    Always { entered: Duration },
    /// Not since then, and nobody knows whether again.
    Off { since: Duration },
    /// In slices, of which the cell is under way.
    Sliced(Cell),
}

impl Default for Mode {
    fn default() -> Self {
        Self::Always {
            entered: Duration::ZERO,
        }
    }
}

/// A stretch of the process's own time, and the slice that stands for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// As it was drawn.
    pub shape: SliceShape,
    /// When it began, on the wall and in the process's own time.
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
        let elapsed = now.saturating_sub(self.began.0);
        let passed = time.saturating_sub(self.began.1).as_secs_f64();
        let seen = self.counted.as_secs_f64();
        let part = if passed > 0.0 {
            (seen / passed).min(1.0)
        } else {
            0.0
        };
        Span {
            elapsed,
            recorded: elapsed.mul_f64(part),
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

/// A stretch of time, and how much of it calls were recorded in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// The stretch.
    pub elapsed: Duration,
    /// For how much of it calls were recorded: by the process's own time, of which nothing passes while it is idle.
    pub recorded: Duration,
}

impl Span {
    /// Of a stretch in which all was recorded.
    pub fn complete(elapsed: Duration) -> Self {
        Self {
            elapsed,
            recorded: elapsed,
        }
    }

    /// Adds what came after it.
    pub fn add(&mut self, more: Self) {
        self.elapsed += more.elapsed;
        self.recorded += more.recorded;
    }

    /// So much time of the interval is not in it: nobody watched, or what was watched is yet to be entered. What was recorded is as
    /// much less of the whole.
    pub fn leave_out(&mut self, missed: Duration) {
        if !missed.is_zero() {
            let part = self.elapsed.as_secs_f64() / (self.elapsed + missed).as_secs_f64();
            self.recorded = self.recorded.mul_f64(part);
        }
    }

    /// Elapsed and recorded: as many of both only where all of the time was recorded.
    pub fn milliseconds(&self) -> (u64, u64) {
        let (elapsed, recorded) = (self.elapsed.as_millis(), self.recorded.as_millis());
        let complete = self.recorded >= self.elapsed;
        let most = if complete {
            elapsed
        } else {
            elapsed.saturating_sub(1)
        };
        (elapsed as u64, recorded.min(most) as u64)
    }
}
