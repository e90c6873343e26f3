//! What those have paid who call functions of the kernel and are not asked, beyond what they may pay. No clock, no I/O.

use std::time::{Duration, Instant};

/// Seconds of what they may pay: while no more is owed, functions begin to be probed. It is paid as it comes, and never ahead.
const TOLERATED: f64 = 2.0;

/// And no more is owed at any time, whatever was paid: nobody waits for longer than ten minutes.
const MOST: f64 = 600.0;

/// Of a node: whoever asked for what, and whether it is asked still. What is to be paid is in CPU-seconds, and `rate` in CPU-seconds per second.
#[derive(Debug, Default)]
pub(super) struct BystanderDebt {
    owed: f64,
    /// By when that is so.
    at: Option<Instant>,
}

impl BystanderDebt {
    /// They have paid so much more.
    pub(super) fn charge(&mut self, cost: f64, rate: f64, now: Instant) {
        let rate = rate.max(0.0);
        let since = self.at.map(|at| now.saturating_duration_since(at));
        let granted = rate * since.unwrap_or_default().as_secs_f64();
        let owed = (self.owed - granted).max(0.0) + cost.max(0.0);
        self.owed = owed.min(MOST * rate);
        // What is told late was so before.
        self.at = self.at.max(Some(now));
    }

    /// How long nothing more is to begin; None where it may.
    pub(super) fn wait(&mut self, rate: f64, now: Instant) -> Option<Duration> {
        self.charge(0.0, rate, now);
        let beyond = self.owed / rate - TOLERATED;
        (beyond > 0.0).then(|| Duration::from_secs_f64(beyond.min(MOST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a node's one CPU.
    const RATE: f64 = 0.01;

    #[test]
    fn what_others_paid_keeps_anybody_from_beginning_until_it_is_made_good() {
        let (mut debt, start) = (BystanderDebt::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(debt.wait(RATE, at(0)), None);
        // Twelve functions that take a second to go.
        debt.charge(0.12, RATE, at(0));
        assert_eq!(debt.wait(RATE, at(0)), Some(Duration::from_secs(10)));
        assert_eq!(debt.wait(RATE, at(7)), Some(Duration::from_secs(3)));
        assert_eq!(debt.wait(RATE, at(10)), None);
        // Nothing is saved up.
        assert_eq!(debt.wait(RATE, at(1_000)), None);
        debt.charge(0.03, RATE, at(1_000));
        assert_eq!(debt.wait(RATE, at(1_000)), Some(Duration::from_secs(1)));
        debt.charge(1e9, RATE, at(1_000));
        assert_eq!(debt.wait(RATE, at(1_000)), Some(Duration::from_secs(598)));
    }

    /// A spec is edited or made anew five times a second for an hour, of a process or of many: whoever may begin does, which costs others.
    #[test]
    fn however_often_it_begins_others_pay_no_more_than_they_may() {
        for cost in [0.001, 0.02, 0.3, 1.5] {
            let (mut debt, start) = (BystanderDebt::default(), Instant::now());
            let mut paid = 0.0;
            for step in 0..5 * 3600 {
                let now = start + step * Duration::from_millis(200);
                if debt.wait(RATE, now).is_none() {
                    debt.charge(cost, RATE, now);
                    paid += cost;
                }
            }
            // One more than is made good by then.
            let most = RATE * (3600.0 + TOLERATED) + cost;
            assert!(paid <= most, "{paid} of {most}");
            assert!(paid > 0.4 * RATE * 3600.0, "it begins: {paid}");
        }
    }
}
