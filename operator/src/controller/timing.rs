//! How long to wait, and what to make of it when that took longer.

use k8s_openapi::jiff::Timestamp;
use tokio::time::{Duration, Instant};

/// Making statuses takes one part in so many of this process's time at the most: where there are thousands of targets, each of
/// which may report at any time, every CkbProbe is looked at less often.
const SHARE: u32 = 10;
/// No CkbProbe is looked at less often than this when there is news of it.
pub const SLOWEST: Duration = Duration::from_secs(15);
/// Two that write to one object at a time are no fault, unless it lasts: from this wait on, the fifth or so, it is told.
pub const LASTING: Duration = Duration::from_secs(4);
/// Nothing that is done between two looks at the clock takes as long as this. Whatever agents said meanwhile has yet to be read.
const LATE: Duration = Duration::from_secs(3);
/// Never sleep longer: the wall clock, by which probes expire, may be set.
pub const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// How long to wait between two looks at each of so many CkbProbes, where a look takes so long.
pub fn pace(effort: Duration, probes: u32) -> Duration {
    effort
        .saturating_mul(probes)
        .saturating_mul(SHARE)
        .min(SLOWEST)
}

/// Whether this process was stopped, or the clock set forward, since it began to look and then meant to sleep for so long.
pub fn was_away(begun: Timestamp, meant: Duration, now: Timestamp) -> bool {
    let took = Duration::try_from(now.duration_since(begun)).unwrap_or_default();
    took > meant + LATE
}

/// The instant of a time of day, and a little more so that it has passed.
pub fn instant(at: Timestamp, now: Timestamp) -> Instant {
    let ahead = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    Instant::now() + ahead.min(LONGEST_SLEEP * 1440) + Duration::from_millis(5)
}
