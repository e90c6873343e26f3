//! When windows begin and end. No clock, no I/O.

use std::time::Duration;

/// A window that is to come, or is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Upcoming {
    /// How many times `every` had passed since 1970 as it began; 0 where there is one only, and no other occasion.
    pub(super) number: u64,
    /// Until it begins.
    pub(super) begins: Duration,
    /// And then until it ends.
    pub(super) lasts: Duration,
}

/// The windows that are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// From the beginning of one to that of the next; None: there is one.
    pub(super) every: Option<Duration>,
    /// How long each lasts.
    pub(super) window: Duration,
    /// Whether one alone is told apart from that of another occasion.
    pub(super) occasional: bool,
}

/// The window after that of the number `done`, at this time since 1970; None where there is no other. One that began while the one
/// before was being finished is still taken, if less than half of it is over.
pub(super) fn upcoming(schedule: Schedule, now: Duration, done: Option<u64>) -> Option<Upcoming> {
    let Schedule {
        every,
        window,
        occasional,
    } = schedule;
    let times = |length: Duration| {
        u64::try_from(now.as_nanos() / length.as_nanos().max(1)).unwrap_or(u64::MAX)
    };
    let Some(every) = every.filter(|every| !every.is_zero()) else {
        return done.is_none().then_some(Upcoming {
            // Agents that begin at about the same moment have the same.
            number: if occasional { times(window) } else { 0 },
            begins: Duration::ZERO,
            lasts: window,
        });
    };
    let number = times(every);
    let passed = u64::try_from(now.as_nanos() % every.as_nanos()).unwrap_or(u64::MAX);
    let passed = Duration::from_nanos(passed);
    // Also where the clock was set back: then the number is another, and not the next.
    if done != Some(number) && passed < window / 2 {
        return Some(Upcoming {
            number,
            begins: Duration::ZERO,
            lasts: window - passed,
        });
    }
    Some(Upcoming {
        number: number.saturating_add(1),
        begins: every - passed,
        lasts: window,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn coming(number: u64, begins: u64, lasts: u64) -> Option<Upcoming> {
        Some(Upcoming {
            number,
            begins: secs(begins),
            lasts: secs(lasts),
        })
    }

    const fn schedule(every: Option<Duration>, window: u64) -> Schedule {
        Schedule {
            every,
            window: secs(window),
            occasional: false,
        }
    }

    #[test]
    fn what_is_asked_once_begins_at_once_and_never_again() {
        let once = schedule(None, 30);
        assert_eq!(upcoming(once, secs(77), None), coming(0, 0, 30));
        assert_eq!(upcoming(once, secs(200), Some(0)), None);
    }

    #[test]
    fn what_is_asked_once_on_each_occasion_has_a_number_of_its_own() {
        let once = Schedule {
            occasional: true,
            ..schedule(None, 30)
        };
        assert_eq!(upcoming(once, secs(77), None), coming(2, 0, 30));
        assert_eq!(upcoming(once, secs(200), Some(2)), None);
        assert_eq!(upcoming(once, secs(200), None), coming(6, 0, 30));
    }

    #[test]
    fn windows_begin_at_multiples_of_the_clock_wherever_it_is_asked() {
        let every = schedule(Some(secs(600)), 30);
        let at = |now, done| upcoming(every, secs(now), done);
        assert_eq!(at(1_200, None), coming(2, 0, 30));
        assert_eq!(at(1_300, None), coming(3, 500, 30));
        assert_eq!(at(1_231, Some(2)), coming(3, 569, 30));
        // The clock was set back, and forward.
        assert_eq!(at(600, Some(2)), coming(1, 0, 30));
        assert_eq!(at(6_000, Some(2)), coming(10, 0, 30));
    }

    #[test]
    fn a_window_that_follows_at_once_is_shorter_by_what_the_one_before_took_to_finish() {
        let every = schedule(Some(secs(10)), 10);
        let at = |now, done| upcoming(every, secs(now), done);
        assert_eq!(at(101, Some(9)), coming(10, 0, 9));
        assert_eq!(at(104, Some(9)), coming(10, 0, 6));
        assert_eq!(at(105, Some(9)), coming(11, 5, 10));
        assert_eq!(at(104, Some(10)), coming(11, 6, 10));
    }

    proptest! {
        #[test]
        fn all_nodes_have_the_same_window_at_the_same_time(
            every in 1..100_000u64,
            window in 1..1_000u64,
            now in 0..1u64 << 40,
        ) {
            let (every, window, now) = (every * 10, window.min(every * 10), Duration::from_millis(now));
            let Some(next) = upcoming(schedule(Some(secs(every)), window), now, None) else {
                return Err(TestCaseError::fail("there is always another"));
            };
            let end = now + next.begins + next.lasts;
            prop_assert_eq!(end, secs(next.number * every + window));
            prop_assert!(next.lasts > secs(window) / 2 && next.lasts <= secs(window));
        }
    }
}
