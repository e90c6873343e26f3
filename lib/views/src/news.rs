//! Whether a report tells of an interval that was not told before. What an agent writes is of a whole node: who reports every two seconds
//! repeats, of a target that reports every ten, what it said.

use std::time::Duration;

/// What was last taken of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct News<Content> {
    stamp: u64,
    content: Content,
    taken: Duration,
}

impl<Content: PartialEq> News<Content> {
    /// The first.
    pub fn first(stamp: u64, content: Content, now: Duration) -> Self {
        Self {
            stamp,
            content,
            taken: now,
        }
    }

    /// Takes it, if it is of an interval of its own: it says something else, or the same once an interval has passed.
    pub fn take(
        &mut self,
        stamp: u64,
        content: Content,
        interval: Duration,
        now: Duration,
    ) -> bool {
        let since = now.saturating_sub(self.taken);
        let is_another = stamp != self.stamp && content != self.content && since * 2 >= interval;
        let is_repeated = stamp != self.stamp && since * 10 >= interval * 9;
        if is_another || is_repeated {
            *self = Self::first(stamp, content, now);
        }
        is_another || is_repeated
    }

    /// How many intervals passed of which nothing came, beyond the one that is still to come; they are over with that.
    pub fn missed(&mut self, interval: Duration, now: Duration) -> u32 {
        // What is late by an interval and a half is not told any more.
        let late = now.saturating_sub(self.taken);
        let mut missed = 0;
        while !interval.is_zero() && late > interval * (missed + 2) + interval / 2 && missed < 300 {
            missed += 1;
        }
        self.taken += interval * missed;
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_repeated_beside_another_target_is_taken_once() {
        let mut news = News::first(1, "a", seconds(0));
        let ten = seconds(10);
        for second in [2, 4, 6, 8] {
            assert!(!news.take(second, "a", ten, seconds(second)));
        }
        assert!(news.take(10, "b", ten, seconds(10)));
        assert!(
            !news.take(10, "c", ten, seconds(20)),
            "it is the same report"
        );
    }

    #[test]
    fn an_idle_target_says_the_same_in_each_interval() {
        let mut news = News::first(0, "idle", seconds(0));
        let each =
            (1..=20).filter(|second| news.take(*second, "idle", seconds(2), seconds(*second)));
        assert_eq!(each.count(), 10);
    }

    #[test]
    fn of_whoever_is_silent_intervals_are_missed() {
        let mut news = News::first(1, "a", seconds(0));
        assert_eq!(news.missed(seconds(10), seconds(25)), 0);
        assert_eq!(news.missed(seconds(10), seconds(26)), 1);
        assert_eq!(news.missed(seconds(10), seconds(26)), 0);
        assert_eq!(news.missed(seconds(10), seconds(56)), 3);
        assert_eq!(news.missed(seconds(0), seconds(5600)), 0);
    }
}
