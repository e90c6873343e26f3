//! How often all threads of a process are gone through.

use std::{collections::VecDeque, time::Duration};

/// To go through them takes one part in so many of a CPU: whoever has ten thousand threads is looked at less often.
const PART: u32 = 75;

/// What a pass takes is the median of so many, or of what there is of them: the first ones read what all threads are in.
const REMEMBERED: usize = 5;
const ENOUGH: usize = 3;

/// Of one process.
pub(super) struct Pace {
    asked: Duration,
    costs: VecDeque<Duration>,
}

impl Pace {
    /// So many times a second, at most.
    pub(super) fn of(frequency: u32) -> Self {
        Self {
            asked: Duration::from_secs(1) / frequency.max(1),
            costs: VecDeque::with_capacity(REMEMBERED),
        }
    }

    /// A pass took so much CPU time.
    pub(super) fn took(&mut self, cost: Duration) {
        if self.costs.len() == REMEMBERED {
            self.costs.pop_front();
        }
        self.costs.push_back(cost);
    }

    /// How long to wait from one pass to the next.
    pub(super) fn period(&self) -> Duration {
        let mut costs: Vec<Duration> = self.costs.iter().copied().collect();
        costs.sort_unstable();
        match costs.get(costs.len() / 2) {
            Some(median) if costs.len() >= ENOUGH => self.asked.max(*median * PART),
            _ => self.asked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Duration = Duration::from_millis(50);

    fn period(microseconds: &[u64]) -> Duration {
        let mut pace = Pace::of(20);
        for cost in microseconds {
            pace.took(Duration::from_micros(*cost));
        }
        pace.period()
    }

    #[test]
    fn threads_are_gone_through_as_often_as_is_asked_where_that_takes_little() {
        assert_eq!(period(&[]), ASKED);
        assert_eq!(period(&[100; 10]), ASKED);
        // 50 ms are 75 times as long.
        assert_eq!(period(&[666; 10]), ASKED);
    }

    #[test]
    fn where_it_takes_long_it_takes_no_more_than_its_part_of_a_cpu() {
        assert_eq!(period(&[2_000; 10]), Duration::from_millis(150));
        assert_eq!(period(&[1_000_000; 10]), Duration::from_secs(75));
    }

    #[test]
    fn a_pass_that_is_unlike_the_others_does_not_count() {
        assert_eq!(period(&[500_000]), ASKED);
        assert_eq!(period(&[500_000, 400_000]), ASKED);
        assert_eq!(period(&[500_000, 100, 100]), ASKED);
        let one = [2_000, 2_000, 900_000, 2_000, 1];
        assert_eq!(period(&one), Duration::from_millis(150));
        // What was long ago does not, either.
        assert_eq!(period(&[9_000, 9_000, 9_000, 100, 100, 100]), ASKED);
    }
}
