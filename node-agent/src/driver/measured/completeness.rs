//! Whether more is to be measured of a process than is, and when that is tried.

use std::time::{Duration, Instant};

use super::super::workers::Errand;

/// Between two attempts to find what was not found: at first, and at most. A process that has just begun maps its libraries
/// within milliseconds, and is looked at again as soon.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(60));

/// At most, as long as nothing at all was found in a young process: its loader is kept waiting, and a search costs little.
const BLIND: Duration = Duration::from_millis(20);

/// After so long a process is not young any more: what it has not mapped it lacks.
pub const YOUTH: Duration = Duration::from_secs(1);

/// What can't be asked while too much is held up is asked again after so long, and then less and less often.
const HELD_UP: Duration = Duration::from_secs(1);

/// When it is tried next, and how often it was.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// When it is tried.
    pub at: Instant,
    after: Duration,
    began: Instant,
}

impl Retry {
    /// Of what was looked for once.
    pub fn first() -> Self {
        Self::after(RETRY.0)
    }

    /// Of what waits until less is held up.
    pub fn held_up() -> Self {
        Self::after(HELD_UP)
    }

    fn after(after: Duration) -> Self {
        let now = Instant::now();
        Self {
            at: now + after,
            after,
            began: now,
        }
    }

    /// The next one; `blind` while nothing was found at all.
    #[must_use]
    pub fn next(self, blind: bool) -> Self {
        let doubled = (self.after * 2).min(RETRY.1);
        let after = match (blind, self.began.elapsed() < YOUTH) {
            (true, true) => doubled.min(BLIND),
            (true, false) => doubled.max(YOUTH),
            (false, _) => doubled,
        };
        Self {
            began: self.began,
            ..Self::after(after)
        }
    }

    /// Whether it is one of the quick ones after the process began.
    pub fn is_young(&self) -> bool {
        self.after < YOUTH
    }
}

/// Whether more is to be measured than is.
pub enum Completeness {
    /// All was found that was asked for, or what was not never will be.
    Complete,
    /// Something was not found. It is looked for again in time.
    Lacking(Retry),
    /// It is being looked for.
    Looking(Retry, Errand<bool>),
    /// There is more to be measured, or something else is asked: it is asked anew as soon as nothing attaches.
    Outdated(Option<Retry>),
    /// The same, once less is held up.
    HeldUp(Retry),
}

impl Completeness {
    /// How often it was tried, if anything is lacking.
    pub fn retry(&self) -> Option<Retry> {
        match self {
            Self::Complete => None,
            Self::Outdated(retry) => *retry,
            Self::Lacking(retry) | Self::Looking(retry, _) | Self::HeldUp(retry) => Some(*retry),
        }
    }

    /// When it is tried again, if that is for nothing but time to tell.
    pub fn retry_at(&self) -> Option<Instant> {
        match self {
            Self::Lacking(retry) | Self::HeldUp(retry) => Some(retry.at),
            Self::Complete | Self::Looking(..) | Self::Outdated(_) => None,
        }
    }
}
