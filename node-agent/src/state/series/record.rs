//! How much of the time is recorded.

use std::time::Duration;

/// Less is not scaled up: a moment says nothing of the minute before it.
const LEAST_RECORDED: Duration = Duration::from_millis(10);

/// When calls were recorded since the last entry.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedTime {
    /// The last entry.
    pub entered: Duration,
    /// How long nobody saw anything since, but for the pause that lasts.
    pub unrecorded: Duration,
    /// Since when a pause lasts.
    pub paused: Option<Duration>,
}

/// A stretch of time, and how much of it calls were recorded in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// The stretch.
    pub elapsed: Duration,
    /// For how much of it calls were recorded.
    pub recorded: Duration,
}

impl RecordedTime {
    /// Whether calls were recorded all the time since the last entry.
    pub fn is_complete(&self) -> bool {
        self.paused.is_none() && self.unrecorded.is_zero()
    }

    /// How much of the time since the last entry, up to now, nobody has seen anything in.
    pub fn pending(&self, now: Duration) -> Duration {
        self.paused.map_or(Duration::ZERO, |paused| {
            now.saturating_sub(paused.max(self.entered))
        })
    }

    /// The time since the last entry, if enough of it was recorded to stand for the rest; the next entry begins.
    pub fn take(&mut self, now: Duration) -> Option<Span> {
        let elapsed = now.saturating_sub(self.entered);
        let recorded = elapsed.saturating_sub(self.unrecorded + self.pending(now));
        if recorded < elapsed && recorded < LEAST_RECORDED {
            return None;
        }
        self.entered = now;
        self.unrecorded = Duration::ZERO;
        Some(Span { elapsed, recorded })
    }
}

impl Span {
    /// So much time came after it that nobody saw, and that is still to be entered. A span that would pass for all of the
    /// interval is only its part.
    pub fn leave_out(&mut self, pending: Duration) {
        if self.recorded >= self.elapsed && !pending.is_zero() {
            let part = self.elapsed.as_secs_f64() / (self.elapsed + pending).as_secs_f64();
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
