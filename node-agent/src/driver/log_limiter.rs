//! How many lines a target writes into the agent's log: a target can make as many events as it likes, and a log that is turned
//! over within seconds tells nobody anything. Whatever is left out is counted.

use std::{cmp::Reverse, time::Duration};

/// Lines at once, of one target.
const BURST: u32 = 1_000;

/// Lines a second, of one target, in the long run.
const PER_SECOND: u32 = 100;

/// What is left out is said no more often.
const SAY_AFTER: Duration = Duration::from_secs(1);

/// The lines of one view. All views of a process share what it has.
#[derive(Clone, Debug)]
pub struct LogLimiter {
    /// Lines that may be written; a part of one at times.
    left: f64,
    looked: Duration,
    /// Left out since that was last said.
    unsaid: u64,
    said: Duration,
}

impl LogLimiter {
    /// One that nothing was written of.
    pub fn new(now: Duration) -> Self {
        Self {
            left: f64::from(BURST),
            looked: now,
            unsaid: 0,
            said: now,
        }
    }

    /// Whether a line may be written now, where so many views look at the process. If not, it is left out.
    pub fn allows(&mut self, views: usize, now: Duration) -> bool {
        let views = views.max(1) as f64;
        let more = now.saturating_sub(self.looked).as_secs_f64() * f64::from(PER_SECOND) / views;
        self.looked = self.looked.max(now);
        self.left = (self.left + more).min(f64::from(BURST) / views).max(0.0);
        let allowed = self.left >= 1.0;
        if allowed {
            self.left -= 1.0;
        } else {
            self.unsaid += 1;
        }
        allowed
    }

    /// Which of these lines may be written, by their weights: where not all may, the weightiest.
    pub fn choose(&mut self, weights: &[u64], views: usize, now: Duration) -> Vec<bool> {
        let allowed = weights.iter().filter(|_| self.allows(views, now)).count();
        let mut heaviest: Vec<usize> = (0..weights.len()).collect();
        heaviest.sort_by_key(|&line| Reverse(weights[line]));
        let mut chosen = vec![false; weights.len()];
        for &line in heaviest.iter().take(allowed) {
            chosen[line] = true;
        }
        chosen
    }

    /// How many were left out, if that is to be said now.
    pub fn left_out(&mut self, now: Duration) -> Option<u64> {
        let due = now.saturating_sub(self.said) >= SAY_AFTER;
        if self.unsaid == 0 || !due {
            return None;
        }
        self.said = now;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60;

    #[test]
    fn of_too_many_lines_the_weightiest_are_written() {
        let mut flow = LogLimiter::new(Duration::ZERO);
        let weights: Vec<u64> = (0..3_000).map(|line| line % 1_500).collect();
        let chosen = flow.choose(&weights, 1, Duration::ZERO);
        let written = weights.iter().zip(&chosen).filter(|(_, chosen)| **chosen);
        let written: Vec<u64> = written.map(|(weight, _)| *weight).collect();
        assert_eq!(written.len(), BURST as usize);
        assert!(written.iter().all(|weight| *weight >= 1_000));
        assert_eq!(flow.left_out(SAY_AFTER), Some(2_000));
    }

    /// How many of so many lines a second are written in a minute, by each of so many views, and how many are said to be left out.
    fn in_a_minute(per_second: u32, views: usize) -> (u64, u64) {
        let mut flow = LogLimiter::new(Duration::ZERO);
        let (mut written, mut said) = (0, 0);
        for line in 0..u64::from(per_second) * MINUTE {
            let now = Duration::from_secs(line) / per_second;
            written += u64::from(flow.allows(views, now));
            said += flow.left_out(now).unwrap_or_default();
        }
        said += flow
            .left_out(Duration::from_secs(2 * MINUTE))
            .unwrap_or_default();
        (written, said)
    }

    #[test]
    fn a_target_that_makes_few_events_has_all_of_them_written() {
        assert_eq!(in_a_minute(100, 1), (6_000, 0));
        let mut burst = LogLimiter::new(Duration::ZERO);
        let written = (0..2_000).filter(|_| burst.allows(1, Duration::ZERO));
        assert_eq!(written.count(), BURST as usize);
    }

    #[test]
    fn one_that_makes_many_has_a_hundred_a_second_written_and_the_rest_counted() {
        let (written, said) = in_a_minute(10_000, 1);
        assert!(written.abs_diff(7_000) <= 1, "{written}");
        assert_eq!(written + said, 600_000);
    }

    #[test]
    fn however_many_ask_for_its_events_they_are_not_more() {
        let (written, said) = in_a_minute(1_000, 50);
        assert!(written * 50 <= 7_050, "{written}");
        assert_eq!(written + said, 60_000);
    }
}
